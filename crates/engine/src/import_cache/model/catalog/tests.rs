//! What the catalog learns, and from which sources it does not.

use sandbox::{Imports, LoadedFile};

use super::learning::MAX_MS;
use super::*;
use crate::import_cache::model::set::Set;

pub(crate) fn brings(name: &str, modules: &[&str]) -> Distribution {
    Distribution {
        name: name.to_owned(),
        version: "1".to_owned(),
        wheel: format!("{name}-1"),
        modules: modules.iter().map(|module| (*module).to_owned()).collect(),
    }
}

/// A catalog of `count` distributions of one module each; distribution and piece have the same
/// number.
pub(crate) fn simple(count: u8) -> Catalog {
    let mut catalog = Catalog::default();
    for at in 0..count {
        let name = char::from(b'a' + at).to_string();
        let number = catalog.number(&brings(&name, &[&name]));
        catalog.piece(&[number].into_iter().collect(), &name);
    }
    catalog
}

fn file(module: &str, milliseconds: f64, importer: &str) -> LoadedFile {
    LoadedFile {
        module: module.to_owned(),
        path: format!("/opt/python/{module}.py"),
        milliseconds,
        importer: importer.to_owned(),
        ..LoadedFile::default()
    }
}

fn set(members: impl IntoIterator<Item = u32>) -> Set {
    members.into_iter().collect()
}

fn report(files: Vec<LoadedFile>) -> Imports {
    Imports { files, ..Imports::default() }
}

#[test]
fn a_lie_about_time_stays_within_what_can_be() {
    let mut catalog = simple(2);
    for said in [f64::MAX, -f64::MAX, f64::INFINITY] {
        let sees = set([0]);
        catalog.measure(&sees, &report(vec![file("a", said, "")]));
        let cost = catalog.measured(0, &catalog.trust(&sees)).unwrap();
        assert!((0.0..=MAX_MS).contains(&cost), "{said}");
    }
}

#[test]
fn a_zygotes_report_teaches_costs_and_who_needs_whom() {
    let mut catalog = Catalog::default();
    let sees: Set = [
        catalog.number(&brings("requests", &["requests"])),
        catalog.number(&brings("urllib3", &["urllib3"])),
    ]
    .into_iter()
    .collect();
    let files =
        vec![file("requests", 8.0, ""), file("urllib3", 5.0, "requests"), file("json", 1.0, "")];
    let loaded = catalog.measure(&sees, &report(files));
    let trust = catalog.trust(&sees);
    assert_eq!(catalog.modules(&loaded), ["requests", "urllib3"]);
    let costs: Vec<_> = loaded.iter().map(|piece| catalog.measured(piece, &trust)).collect();
    assert_eq!(costs, [Some(8.0), Some(5.0)]);
    let requests: Set = loaded.iter().take(1).collect();
    assert!(
        catalog.closed(&requests, &trust, &Set::default()).is_empty(),
        "requests alone cannot be imported"
    );
    assert_eq!(catalog.closed(&loaded, &trust, &Set::default()), loaded);
}

#[test]
fn what_leaves_threads_behind_and_what_needs_it_is_left_out() {
    let mut catalog = Catalog::default();
    let names = ["torch", "lightning", "numpy"];
    let sees: Set = names.map(|name| catalog.number(&brings(name, &[name]))).into_iter().collect();
    let files =
        vec![file("numpy", 5.0, ""), file("lightning", 1.0, ""), file("torch", 9.0, "lightning")];
    let left_by = vec!["torch".to_owned()];
    let loaded = catalog.measure(&sees, &Imports { left_by, threads: 1, ..report(files) });
    let closed = catalog.closed(&loaded, &catalog.trust(&sees), &Set::default());
    assert_eq!(catalog.modules(&closed), ["numpy"]);
    let said: Vec<_> = catalog.unforkable().map(|(of, why)| (&*of.name, why)).collect();
    assert_eq!(said, [("torch", "torch leaves threads or processes behind")]);
}

#[test]
fn an_optional_import_binds_only_those_who_locked_what_it_found() {
    let mut catalog = simple(3);
    let (pair, alone) = (set([0, 1]), set([0, 2]));
    let loaded = catalog.measure(&pair, &report(vec![file("b", 5.0, "a"), file("a", 5.0, "")]));
    let a = set([0]);
    assert!(
        catalog.closed(&a, &catalog.trust(&pair), &Set::default()).is_empty(),
        "there it imports b"
    );
    assert_eq!(catalog.closed(&loaded, &catalog.trust(&pair), &Set::default()), loaded);
    assert_eq!(
        catalog.closed(&a, &catalog.trust(&alone), &Set::default()),
        a,
        "who has no b imports a without it"
    );
}

#[test]
fn a_package_that_lies_about_others_harms_only_who_locked_it() {
    let mut catalog = simple(3);
    // b's zygote says that a leaves threads, needs b, takes for ever, and fails.
    let liar = set([0, 1]);
    let files = vec![file("b", 1.0, "a"), file("a", f64::MAX, "")];
    let lies = Imports {
        left_by: vec!["a".to_owned()],
        threads: 1,
        failed: vec![("a".to_owned(), "no".to_owned())],
        ..report(files)
    };
    catalog.measure(&liar, &lies);
    let (a, victim) = (set([0]), set([0, 2]));
    catalog.measure(&victim, &report(vec![file("a", 7.0, "")]));
    for honest in [&victim, &a] {
        assert_eq!(catalog.closed(&a, &catalog.trust(honest), &Set::default()), a);
    }
    assert_eq!(catalog.measured(0, &catalog.trust(&victim)), Some(7.0));
    assert_eq!(catalog.measured(0, &catalog.trust(&a)), None);
    assert!(
        catalog.closed(&a, &catalog.trust(&liar), &Set::default()).is_empty(),
        "its own users believe it"
    );
    assert_eq!(catalog.measured(0, &catalog.trust(&liar)), Some(MAX_MS));
}

#[test]
fn what_is_said_of_names_and_numbers_of_modules_is_bounded() {
    let mut catalog = simple(1);
    let sees = set([0]);
    assert_eq!(catalog.piece(&sees, &format!("a.{}", "x".repeat(300))), None);
    for at in 0..MAX_PIECES + 10 {
        catalog.piece(&sees, &format!("a.m{at}"));
    }
    assert_eq!(catalog.pieces_of(&sees).count(), MAX_PIECES);
    assert_eq!(catalog.piece(&sees, "a"), Some(0), "what is known stays known");
}

#[test]
fn when_too_many_have_spoken_all_is_forgotten_and_learning_goes_on() {
    let mut catalog = simple(2);
    for at in 0..5000 {
        catalog.measure(&set([0, 10 + at]), &report(Vec::new()));
    }
    let sees = set([0]);
    catalog.measure(&sees, &report(vec![file("a", 4.0, "")]));
    assert_eq!(catalog.measured(0, &catalog.trust(&sees)), Some(4.0));
}

#[test]
fn one_set_that_weighs_absurdly_much_does_not_change_what_others_are_expected_to() {
    let mut catalog = simple(2);
    let before = catalog.expected_bytes(100.0);
    for _ in 0..1000 {
        catalog.record_memory(&set([0]), 100.0, 1 << 40);
    }
    assert!(
        catalog.expected_bytes(100.0) < before * 4,
        "{} {before}",
        catalog.expected_bytes(100.0)
    );
}

#[test]
fn a_load_is_shared_among_the_modules_that_nobody_measured() {
    let mut catalog = Catalog::default();
    let sees: Set = [catalog.number(&brings("a", &["a", "b"]))].into_iter().collect();
    let known = catalog.measure(&sees, &report(vec![file("a", 4.0, "")]));
    let all: Set =
        ["a", "a.x", "b"].into_iter().filter_map(|name| catalog.piece(&sees, name)).collect();
    let mut own = HashMap::new();
    let trust = catalog.trust(&sees);
    catalog.share(&all, 10.0, &trust, &mut own);
    let shares: Vec<_> = all.iter().map(|piece| own.get(&piece).copied()).collect();
    assert_eq!(shares, [None, Some(3.0), Some(3.0)]);
    assert_eq!(
        all.iter().map(|piece| catalog.untrusted_cost(piece)).collect::<Vec<_>>(),
        [4.0, 3.0, 3.0]
    );
    assert!(known.within(&all));
}
