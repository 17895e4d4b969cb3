//! What a deploy acknowledged survives the worker's sudden end.

mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use engine::Handler;
use function::{DEFAULT_TENANT, Label, PackageLock, VersionId, VersionRecord, WholeName};
use platform::functions::{Function, Handlers, Registry};
use store::Version;
use store_sqlite::{FileBundles, SqliteFunctions};

const CHILD: &str = "LAMBSWOOL_TEST_REGISTRY";

/// A version whose number stands in its settings, named by it.
fn version(name: &str, number: u64) -> Version {
    let word = |key: &str| (key == "version").then(|| number.to_string());
    let record = VersionRecord {
        tenant: DEFAULT_TENANT.to_owned(),
        name: name.to_owned(),
        python: "3.11".to_owned(),
        bundle: blake3::hash(b"").into(),
        manifest: world::manifest(word),
        lock: Some(PackageLock { text: format!("lock {number}\n"), direct: Vec::new() }),
    };
    Version {
        id: VersionId(Arc::from(format!("{name}-{number}"))),
        record,
        created: UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + number),
        warnings: vec![format!("warning {number}")],
    }
}

fn number_of(function: &Function) -> u64 {
    function.manifest().environment["VERSION"].parse().unwrap()
}

fn put(registry: &Registry, version: Version) {
    let handler = Handler { id: version.id.clone(), ..world::handler(&version.record) };
    let over = platform::functions::Over::Anything;
    registry.put(version, Arc::new(handler), false, usize::MAX, &over).unwrap();
}

fn named(name: &str) -> WholeName {
    WholeName::new(&Label::default_tenant(), &name.parse().unwrap())
}

fn open(path: &Path) -> Registry {
    let root = path.parent().unwrap();
    let layers = layers::Store::open(root).unwrap();
    let handlers = Handlers::open(layers, &root.join("handlers")).unwrap();
    let bundles = Arc::new(FileBundles::open(&root.join("bundles")).unwrap());
    Registry::open(Box::new(SqliteFunctions::open(path).unwrap()), bundles, handlers).unwrap()
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(&PathBuf::from(path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("functions.sqlite");
    let mut acknowledged = 0;
    for round in 1..=3u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_writer_loses_nothing_that_it_acknowledged", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines
            .map_while(Result::ok)
            .filter_map(|line| line.strip_prefix("put ")?.parse::<u64>().ok());
        // Killed wherever it is after so many puts: before, in or after the next transaction.
        acknowledged = said.take(20 * usize::try_from(round).unwrap()).last().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let registry = open(&path);
        let current = registry.get(&named("f")).unwrap();
        let number = number_of(&current);
        assert!(number >= acknowledged, "{number} is older than the acknowledged {acknowledged}");
        assert_eq!(*current.current(), version("f", number), "no version is half there");
        let own = registry.get(&named(&format!("f{acknowledged}"))).unwrap();
        assert_eq!(own.current().id.to_string(), format!("f{acknowledged}-{acknowledged}"));
    }
    assert!(acknowledged >= 60);
}

fn write_for_ever(path: &Path) {
    let registry = open(path);
    let first = registry.get(&named("f")).map_or(0, |function| number_of(&function));
    for number in first + 1.. {
        put(&registry, version("f", number));
        put(&registry, version(&format!("f{number}"), number));
        // A line of its own: the test harness has written before it.
        let mut stdout = std::io::stdout();
        writeln!(stdout, "\nput {number}").and_then(|()| stdout.flush()).unwrap();
    }
}

#[test]
fn removing_a_function_is_for_good_and_spares_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("functions.sqlite");
    let registry = open(&path);
    for name in ["f", "g"] {
        put(&registry, version(name, 1));
    }
    assert_eq!(registry.remove(&named("f"), |_| ()).unwrap().len(), 1);
    assert_eq!(registry.remove(&named("f"), |_| ()).unwrap().len(), 0);
    drop(registry);
    let names: Vec<String> = open(&path).list().iter().map(|f| f.name().to_owned()).collect();
    assert_eq!(names, ["g"]);
}
