//! What a deploy acknowledged survives the worker's sudden end.

mod world;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use engine::HandlerId;
use function::Label;
use function::WholeName;
use platform::functions::{Registry, Sqlite, StoreError, Version};

const CHILD: &str = "LAMBSWOOL_TEST_REGISTRY";

fn version(name: &str, number: u64) -> Version {
    let mut handler = world::handler(name, |key| (key == "version").then(|| number.to_string()));
    handler.id = HandlerId(Arc::from(format!("{name}-{number}")));
    Version {
        handler: Arc::new(handler),
        created: UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + number),
        manifest: serde_json::json!({ "number": number }),
        lock: format!("lock {number}\n"),
    }
}

fn named(name: &str) -> WholeName {
    WholeName::new(&Label::default_tenant(), &name.parse().unwrap())
}

fn open(path: &Path) -> Registry {
    Registry::open(Box::new(Sqlite::open(path).unwrap())).unwrap()
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        return write_for_ever(&PathBuf::from(path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
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
        let number = current.current.manifest["number"].as_u64().unwrap();
        assert!(number >= acknowledged, "{number} is older than the acknowledged {acknowledged}");
        assert_eq!(*current.current, version("f", number), "no version is half there");
        let own = registry.get(&named(&format!("f{acknowledged}"))).unwrap();
        assert_eq!(own.current.handler.id.to_string(), format!("f{acknowledged}-{acknowledged}"));
    }
    assert!(acknowledged >= 60);
}

fn write_for_ever(path: &Path) {
    let registry = open(path);
    let first =
        registry.get(&named("f")).map_or(0, |f| f.current.manifest["number"].as_u64().unwrap());
    for number in first + 1.. {
        registry.put(version("f", number), false, usize::MAX).unwrap();
        registry.put(version(&format!("f{number}"), number), false, usize::MAX).unwrap();
        // A line of its own: the test harness has written before it.
        let mut stdout = std::io::stdout();
        writeln!(stdout, "\nput {number}").and_then(|()| stdout.flush()).unwrap();
    }
}

#[test]
fn the_newest_hundred_versions_are_kept_and_the_current_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let registry = open(&path);
    let kept = || -> Vec<String> {
        let past = registry.history(&named("f")).unwrap();
        past.into_iter().map(|version| version.id.to_string()).collect()
    };
    registry.put(version("g", 1), false, usize::MAX).unwrap();
    for number in 1..=103 {
        registry.put(version("f", number), false, usize::MAX).unwrap();
    }
    let newest: Vec<String> = (4..=103).rev().map(|number| format!("f-{number}")).collect();
    assert_eq!(kept(), newest);
    // An old one is deployed again.
    registry.put(version("f", 1), false, usize::MAX).unwrap();
    assert_eq!(kept(), [&newest[..], &["f-1".to_owned()]].concat());
    assert_eq!(*open(&path).get(&named("f")).unwrap().current, version("f", 1));
    assert_eq!(registry.history(&named("g")).unwrap().len(), 1, "another function's stay");
}

#[test]
fn a_registry_of_a_newer_release_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    drop(Sqlite::open(&path).unwrap());
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Sqlite::open(&path).unwrap_err(), StoreError::Newer { found: 99, .. }));
}

#[test]
fn a_registry_of_the_first_schema_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let old = version("f", 7);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE versions (id TEXT PRIMARY KEY, name TEXT NOT NULL, created INTEGER NOT NULL,
                 handler TEXT NOT NULL, manifest TEXT NOT NULL, lock TEXT NOT NULL) STRICT;
             CREATE INDEX versions_of ON versions (name, created);
             CREATE TABLE functions (name TEXT PRIMARY KEY, current TEXT NOT NULL REFERENCES versions (id)) STRICT;
             PRAGMA user_version = 1;",
        )
        .unwrap();
    connection
        .execute(
            "INSERT INTO versions VALUES ('f-7', 'f', 1700000000007, ?1, '{\"number\":7}', ?2)",
            [serde_json::to_string(&old.handler).unwrap(), old.lock.clone()],
        )
        .unwrap();
    connection.execute("INSERT INTO functions VALUES ('f', 'f-7')", []).unwrap();
    drop(connection);
    let function = open(&path).get(&named("f")).unwrap();
    assert_eq!(*function.current, old);
    assert_eq!((function.hidden, function.updated), (false, old.created));
}

#[test]
fn removing_a_function_is_for_good_and_spares_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let registry = open(&path);
    for name in ["f", "g"] {
        registry.put(version(name, 1), false, usize::MAX).unwrap();
    }
    assert!(registry.remove(&named("f")).unwrap().is_some());
    assert!(registry.remove(&named("f")).unwrap().is_none());
    drop(registry);
    let names: Vec<String> = open(&path).list().iter().map(|f| f.name().to_owned()).collect();
    assert_eq!(names, ["g"]);
}
