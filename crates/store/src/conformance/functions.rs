//! What every store of functions does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use function::{
    AttachedLayer, Convention, Kind, Limits, Manifest, Network, PackageLock, Reset, VersionId,
    VersionRecord,
};

use super::{Backend, ODD, at};
use crate::{
    AliasRow, AttachmentRow, FunctionRow, MAX_VERSIONS, PastVersion, PublishedVersion, Version,
    WholeName,
};

fn record(tenant: &str, name: &str) -> VersionRecord {
    VersionRecord {
        tenant: tenant.to_owned(),
        name: name.to_owned(),
        python: "3.12".to_owned(),
        bundle: blake3::hash(name.as_bytes()).into(),
        manifest: Manifest {
            module: "main".to_owned(),
            function: "handler".to_owned(),
            convention: Convention::Lambda,
            requirements: vec!["six>=1; python_version > '3'".to_owned()],
            requires_python: Some(">=3.11".to_owned()),
            python: None,
            kind: Kind::Microvm,
            reset: Reset::Always,
            limits: Limits::default(),
            network: Network::None,
            egress: vec!["db.example:5432".parse().expect("a destination")],
            timeout: Duration::from_millis(1500),
            concurrency: 3,
            environment: BTreeMap::from([(
                "GREETING".to_owned(),
                "gr\u{fc}\u{df} 🐑\n".to_owned(),
            )]),
            sets: vec!["*".to_owned()],
            import_cache: false,
            binary: true,
            declared: false,
            bundled: false,
            told: None,
            layers: Vec::new(),
            lambda: None,
        },
        lock: Some(PackageLock {
            text: "six==1.17.0\n".to_owned(),
            direct: vec!["six".to_owned()],
        }),
    }
}

/// A version whose id is its number, deployed in that millisecond.
fn version(tenant: &str, name: &str, number: u64) -> Version {
    Version {
        id: VersionId(Arc::from(format!("{tenant}-{name}-{number}"))),
        record: record(tenant, name),
        created: at(number),
        warnings: vec![format!("warning {number}")],
    }
}

fn row(tenant: &str, name: &str, number: u64) -> FunctionRow {
    let current = Arc::new(version(tenant, name, number));
    FunctionRow { current, updated: at(number) }
}

fn put(backend: &impl Backend, rows: &[FunctionRow]) {
    let mut store = backend.functions();
    rows.iter().for_each(|row| store.put(row).unwrap());
}

fn list(backend: &impl Backend) -> Vec<FunctionRow> {
    backend.functions().list().unwrap()
}

fn named(tenant: &str, name: &str) -> WholeName {
    WholeName::stored(tenant.to_owned(), name.to_owned())
}

fn history(backend: &impl Backend, tenant: &str, name: &str) -> Vec<PastVersion> {
    backend.functions().history(&named(tenant, name)).unwrap()
}

fn past(tenant: &str, name: &str, number: u64) -> PastVersion {
    PastVersion { id: version(tenant, name, number).id, created: at(number) }
}

/// A new store holds no function, and one that is not there can be removed.
pub fn a_new_store_holds_no_function<B: Backend>() {
    let backend = B::default();
    assert_eq!(list(&backend), []);
    assert_eq!(history(&backend, "default", "f"), []);
    assert!(!backend.functions().remove(&named("default", "f")).unwrap());
}

/// Every field is kept, times to the millisecond.
pub fn a_function_comes_back_as_it_was_put<B: Backend>() {
    let backend = B::default();
    let finer = Duration::from_nanos(999_999);
    let plain = row("acme", "f", 1);
    let current = Version { created: at(2) + finer, warnings: Vec::new(), ..version("b", "g", 2) };
    let fine = FunctionRow { current: Arc::new(current), updated: at(3) + finer };
    put(&backend, &[plain.clone(), fine.clone()]);
    let current = Version { created: at(2), ..Version::clone(&fine.current) };
    let expected = FunctionRow { current: Arc::new(current), updated: at(3) };
    assert_eq!(list(&backend), [plain, expected]);
}

/// The last version that was put is current, and the others are its history.
pub fn the_last_version_that_was_put_is_current<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1), row("acme", "f", 2)]);
    assert_eq!(list(&backend), [row("acme", "f", 2)]);
    let both = [past("acme", "f", 2), past("acme", "f", 1)];
    assert_eq!(history(&backend, "acme", "f"), both);
}

/// A version that is put again keeps the time of its first deploy, and takes the new warnings.
pub fn a_version_that_is_put_again_is_as_old_as_before<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1), row("acme", "f", 2)]);
    let again = Version { created: at(9), warnings: Vec::new(), ..version("acme", "f", 1) };
    put(&backend, &[FunctionRow { current: Arc::new(again), updated: at(9) }]);
    let current = Arc::new(Version { warnings: Vec::new(), ..version("acme", "f", 1) });
    assert_eq!(list(&backend), [FunctionRow { current, updated: at(9) }]);
    let both = [past("acme", "f", 2), past("acme", "f", 1)];
    assert_eq!(history(&backend, "acme", "f"), both);
}

/// The newest versions are kept, and the current one however old it is.
pub fn the_newest_versions_and_the_current_one_are_kept<B: Backend>() {
    let backend = B::default();
    let newest = u64::from(MAX_VERSIONS) + 3;
    let rows: Vec<FunctionRow> = (1..=newest).map(|number| row("acme", "f", number)).collect();
    put(&backend, &[row("acme", "g", 1)]);
    put(&backend, &rows);
    let mut kept: Vec<_> = (4..=newest).rev().map(|number| past("acme", "f", number)).collect();
    assert_eq!(history(&backend, "acme", "f"), kept);
    put(&backend, &[row("acme", "f", 1)]);
    kept.push(past("acme", "f", 1));
    assert_eq!(history(&backend, "acme", "f"), kept);
    put(&backend, &[row("acme", "f", newest + 1)]);
    let with_the_one_before = history(&backend, "acme", "f");
    assert!(with_the_one_before.contains(&past("acme", "f", 1)), "it was current until now");
    put(&backend, &[row("acme", "f", newest + 2)]);
    assert!(!history(&backend, "acme", "f").contains(&past("acme", "f", 1)));
    assert_eq!(history(&backend, "acme", "g").len(), 1, "another function's stay");
}

/// A function goes with its versions; those of that name of another tenant stay.
pub fn a_removed_function_is_gone_with_its_versions<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1), row("acme", "f", 2), row("b", "f", 3)]);
    assert!(backend.functions().remove(&named("acme", "f")).unwrap());
    assert!(!backend.functions().remove(&named("acme", "f")).unwrap());
    assert_eq!(list(&backend), [row("b", "f", 3)]);
    assert_eq!(history(&backend, "acme", "f"), []);
    put(&backend, &[row("acme", "f", 1)]);
    assert_eq!(history(&backend, "acme", "f"), [past("acme", "f", 1)]);
}

/// Functions are listed by tenant and name, and a name is any text.
pub fn functions_are_listed_by_tenant_and_name<B: Backend>() {
    let backend = B::default();
    let mut rows: Vec<FunctionRow> =
        ODD.iter().rev().flat_map(|odd| [row(odd, "f", 1), row("t", odd, 2)]).collect();
    put(&backend, &rows);
    rows.sort_by_key(|row| row.current.record.whole_name());
    assert_eq!(list(&backend), rows);
    assert!(backend.functions().remove(&named("t", "%")).unwrap());
    rows.retain(|row| row.current.record.name != "%");
    assert_eq!(list(&backend), rows);
}

fn publish(backend: &impl Backend, name: &str, time: u64) -> Option<u32> {
    let mut store = backend.functions();
    let published = store.publish(&named("acme", name), at(time), "for May").unwrap();
    published.map(|one| one.number)
}

fn published(name: &str, number: u32, version_number: u64, time: u64) -> PublishedVersion {
    let version = Arc::new(version("acme", name, version_number));
    PublishedVersion { number, version, published: at(time), description: "for May".to_owned() }
}

/// A number means one version for good; the version that has the newest number keeps it.
pub fn each_published_version_has_the_next_number<B: Backend>() {
    let backend = B::default();
    assert_eq!(publish(&backend, "f", 1), None, "there is no such function");
    put(&backend, &[row("acme", "f", 1), row("acme", "g", 1)]);
    assert_eq!(publish(&backend, "f", 5), Some(1));
    assert_eq!(publish(&backend, "f", 6), Some(1), "nothing has changed");
    put(&backend, &[row("acme", "f", 2)]);
    assert_eq!((publish(&backend, "f", 7), publish(&backend, "g", 8)), (Some(2), Some(1)));
    put(&backend, &[row("acme", "f", 1)]);
    assert_eq!(publish(&backend, "f", 9), Some(3), "the same version again, after another");
    let all = [
        published("f", 1, 1, 5),
        published("f", 2, 2, 7),
        published("f", 3, 1, 9),
        published("g", 1, 1, 8),
    ];
    assert_eq!(backend.functions().published().unwrap(), all);
}

/// A number is not given twice, not even after its version or the whole function was removed.
pub fn a_number_is_not_given_twice<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1)]);
    assert_eq!(publish(&backend, "f", 1), Some(1));
    assert!(backend.functions().unpublish(&named("acme", "f"), 1).unwrap());
    assert!(!backend.functions().unpublish(&named("acme", "f"), 1).unwrap());
    assert_eq!(publish(&backend, "f", 2), Some(2));
    backend.functions().remove(&named("acme", "f")).unwrap();
    assert_eq!(backend.functions().published().unwrap(), []);
    put(&backend, &[row("acme", "f", 1)]);
    assert_eq!(publish(&backend, "f", 3), Some(3));
}

/// A published version is kept however many follow it, and is found by its id.
pub fn a_published_version_is_kept<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1)]);
    assert_eq!(publish(&backend, "f", 1), Some(1));
    let newest = u64::from(MAX_VERSIONS) + 3;
    put(&backend, &(2..=newest).map(|number| row("acme", "f", number)).collect::<Vec<_>>());
    let find = |number| {
        let id = version("acme", "f", number).id;
        backend.functions().version(&named("acme", "f"), &id).unwrap()
    };
    assert_eq!(find(1), Some(version("acme", "f", 1)));
    assert_eq!(find(2), None, "it had no number");
    assert_eq!(find(newest), Some(version("acme", "f", newest)));
    let id = version("acme", "f", 1).id;
    assert_eq!(backend.functions().version(&named("b", "f"), &id).unwrap(), None);
    assert_eq!(backend.functions().published().unwrap(), [published("f", 1, 1, 1)]);
}

/// The bundles of all kept versions are told, of current ones and others.
pub fn the_bundles_of_all_versions_are_told<B: Backend>() {
    let backend = B::default();
    let of = |name: &str, number: u64, content: &str| {
        let mut version = version("acme", name, number);
        version.record.bundle = blake3::hash(content.as_bytes()).into();
        version.record.manifest.layers = vec![AttachedLayer {
            arn: String::new(),
            code_size: 0,
            bytes: 0,
            bundle: blake3::hash(format!("layer {content}").as_bytes()).into(),
            modules: Vec::new(),
            uses_runtime_set: false,
        }];
        FunctionRow { current: Arc::new(version), updated: at(number) }
    };
    put(&backend, &[of("f", 1, "a"), of("f", 2, "b"), of("g", 3, "b")]);
    let digests = |all: &[&str]| -> BTreeSet<_> {
        all.iter().map(|content| blake3::hash(content.as_bytes()).into()).collect()
    };
    assert_eq!(backend.functions().bundles().unwrap(), digests(&["a", "b", "layer a", "layer b"]));
    backend.functions().remove(&named("acme", "f")).unwrap();
    assert_eq!(backend.functions().bundles().unwrap(), digests(&["b", "layer b"]));
}

/// An alias is put, replaced and removed, and goes with its function.
pub fn an_alias_goes_with_its_function<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1), row("acme", "g", 1)]);
    let alias = |name: &str, number: u32, canary, time| AliasRow {
        name: name.parse().expect("an alias"),
        // In place of 0, the current version.
        number: Some(number).filter(|number| *number > 0),
        canary,
        updated: at(time),
        description: "gr\u{fc}\u{df}".to_owned(),
    };
    let (f, g) = (named("acme", "f"), named("acme", "g"));
    let mut store = backend.functions();
    store.put_alias(&f, &alias("live", 1, None, 1)).unwrap();
    store.put_alias(&f, &alias("Live", 0, None, 2)).unwrap();
    store.put_alias(&g, &alias("live", 1, None, 3)).unwrap();
    store.put_alias(&f, &alias("live", 2, Some((1, 0.25)), 4)).unwrap();
    let all = [
        (f.clone(), alias("Live", 0, None, 2)),
        (f.clone(), alias("live", 2, Some((1, 0.25)), 4)),
        (g.clone(), alias("live", 1, None, 3)),
    ];
    assert_eq!(store.aliases().unwrap(), all);
    drop(store);
    let mut store = backend.functions();
    assert!(store.remove_alias(&f, &all[0].1.name).unwrap());
    assert!(!store.remove_alias(&f, &all[0].1.name).unwrap());
    store.remove(&f).unwrap();
    assert_eq!(store.aliases().unwrap(), all[2..]);
}

/// An attachment is put, replaced and removed, and goes with its function.
pub fn an_attachment_goes_with_its_function<B: Backend>() {
    let backend = B::default();
    put(&backend, &[row("acme", "f", 1), row("acme", "g", 1)]);
    let attachment = |kind: &str, key: &str, text: &str| AttachmentRow {
        kind: kind.to_owned(),
        key: key.to_owned(),
        text: text.to_owned(),
    };
    let (f, g) = (named("acme", "f"), named("acme", "g"));
    let mut store = backend.functions();
    store.attach(&f, &attachment("tags", "", "{}")).unwrap();
    store.attach(&f, &attachment("policy", "live", "gr\u{fc}\u{df} \0")).unwrap();
    store.attach(&f, &attachment("policy", "", "1")).unwrap();
    store.attach(&g, &attachment("tags", "", "2")).unwrap();
    store.attach(&f, &attachment("tags", "", "3")).unwrap();
    let all = [
        (f.clone(), attachment("policy", "", "1")),
        (f.clone(), attachment("policy", "live", "gr\u{fc}\u{df} \0")),
        (f.clone(), attachment("tags", "", "3")),
        (g.clone(), attachment("tags", "", "2")),
    ];
    assert_eq!(store.attachments().unwrap(), all);
    drop(store);
    let mut store = backend.functions();
    assert!(store.detach(&f, "policy", "").unwrap());
    assert!(!store.detach(&f, "policy", "").unwrap());
    assert_eq!(store.attachments().unwrap(), all[1..]);
    store.remove(&f).unwrap();
    assert_eq!(store.attachments().unwrap(), all[3..]);
}
