//! The HTTP API against its own description: schemathesis sends what it says that it takes, and what it says that it does not,
//! and compares the answers with those that it describes.
//!
//! `make fuzz TARGETS=http_api MINUTES=30` is a long run, with another seed each time (`LAMBSWOOL_FUZZ_SECONDS`), or that of
//! `SEED` (`LAMBSWOOL_FUZZ_SEED`).

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use e2e::{Site, can_run, machine};

/// What the short run tries: as much on a fast machine as on a slow one, and the same each time.
const SHORT: [&str; 7] = [
    "--phases",
    "coverage,fuzzing",
    "--max-examples",
    "15",
    "--seed",
    "7",
    "--generation-deterministic",
];

#[test]
fn the_api_answers_as_it_says_whatever_is_sent() {
    if !can_run() {
        return;
    }
    let Some(mut schemathesis) = schemathesis() else {
        machine::skip("schemathesis", "needs schemathesis: `make test` puts it into .venv");
        return;
    };
    let site = Site::new();
    let token = site.wool(&["token", "create", "fuzzer", "--scope", "admin"]).ok();
    let worker = site.up();
    drop(worker.get_over_tcp("/v1/functions").expect(401));
    let long = std::env::var("LAMBSWOOL_FUZZ_SECONDS").ok();
    let location = format!("{}/openapi.json", worker.url());
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http_api/schemathesis.toml");
    schemathesis.arg("--config-file").arg(config).arg("run").arg(location);
    schemathesis.args(["--header", &format!("Authorization: Bearer {}", token.trim())]);
    match &long {
        Some(seconds) => schemathesis.args(["--max-time", seconds]),
        None => schemathesis.args(SHORT),
    };
    let seed = std::env::var("LAMBSWOOL_FUZZ_SEED").unwrap_or_default();
    if long.is_some() && !seed.is_empty() {
        schemathesis.args(["--seed", &seed]);
    }
    // Reports and examples stay with the site.
    let said = schemathesis.current_dir(worker.site().own()).output().unwrap();
    let words = String::from_utf8_lossy(&said.stdout).into_owned();
    if long.is_some() {
        std::io::stdout().write_all(words.as_bytes()).unwrap();
    }
    assert!(said.status.success(), "{words}\n{}", String::from_utf8_lossy(&said.stderr));
    // It says in the end how much it has tried.
    assert!(words.contains("passed"), "{words}");
    let log = worker.log();
    assert!(!log.contains("panicked"), "{log}");
    drop(worker.get("/healthz").expect(200));
}

/// The one that belongs to the checkout, or whichever is on PATH.
fn schemathesis() -> Option<Command> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/schemathesis");
    [own.as_path(), Path::new("schemathesis")].into_iter().find_map(|program| {
        let there =
            Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
        there.then(|| Command::new(program))
    })
}
