//! `make demo` after its build: `examples/demo.sh` on the real examples, and a second time with no index to be reached.

use std::env;
use std::path::Path;
use std::process::Command;

use e2e::machine::programs;
use e2e::{Said, Site, Value, can_run, can_run_machines};

#[test]
fn the_demo_answers_on_real_input_and_again_without_a_network_and_leaves_nothing() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let probe = "# /// script\n# dependencies = [\"six==1.17.0\"]\n# ///\ndef handler(event, context): pass";
    if !worker.deploys_from_index("probe", probe) {
        return;
    }
    // Dropped at the end, it looks for what a worker may leave behind.
    let site = worker.stop();
    let first = demo(&site, &[]);
    let again = demo(&site, &[("UV_OFFLINE", "1"), ("ALL_PROXY", "http://127.0.0.1:9")]);
    for said in [first, again] {
        let (shown, timings) = (&said.stdout, &said.stderr);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(shown.contains(r#""message": "Hello, Ada!""#), "{shown}");
        assert!(thumbnail(shown) > 1000, "{shown}");
        assert_eq!(report(shown)["rows"], sales().len(), "{shown}");
        let revenue = report(shown)["revenue"].as_f64().unwrap();
        assert!((revenue - sales().iter().sum::<f64>()).abs() < 0.01, "{shown}");
        // Each of the three is called twice, and each call tells its stages.
        for (told, times) in
            [("start: ", 6), ("start: resume", 3), ("load   ", 3), ("handler_cache   ", 3)]
        {
            assert_eq!(timings.matches(told).count(), times, "{told}: {timings}");
        }
        if can_run_machines() {
            assert!(
                shown.contains("container, second call                       microvm, second call"),
                "{shown}"
            );
        }
        assert!(shown.contains("nothing runs, nothing is mounted"), "{shown}");
    }
}

fn demo(site: &Site, settings: &[(&str, &str)]) -> Said {
    let path = format!("{}:{}", programs().display(), env::var("PATH").unwrap());
    let mut script = Command::new(examples().join("demo.sh"));
    for (name, value) in site.command().get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.arg(site.state()).env("PATH", path).envs(settings.iter().copied());
    script.output().unwrap().into()
}

fn examples() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples"))
}

/// Bytes of the thumbnail, by the demo's own words.
fn thumbnail(shown: &str) -> u32 {
    let line = shown.lines().find_map(|line| line.strip_prefix("thumbnail: ")).unwrap();
    line.split(' ').next().unwrap().parse().unwrap()
}

fn report(shown: &str) -> Value {
    let line = shown.lines().find(|line| line.contains("revenue_by_region")).unwrap();
    serde_json::from_str(line).unwrap()
}

/// The revenues of the table that the report is about.
fn sales() -> Vec<f64> {
    let table = std::fs::read_to_string(examples().join("data/sales.csv")).unwrap();
    table.lines().skip(1).map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
}
