//! Packages that would join the functions that lock them, or take the machine at the deploy.

use std::fs;
use std::time::Duration;

use e2e::index::Index;
use e2e::{Site, can_run, can_run_machines, eventually, json};

/// A backend in the source itself, which makes a wheel of one module.
const BACKEND: &str = r#"
import os, zipfile

def build_wheel(directory, settings=None, metadata=None):
    file = "NAME-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, file), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("NAME.py", MODULE)
        z.writestr("NAME-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: NAME\nVersion: 1.0\n")
        z.writestr("NAME-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("NAME-1.0.dist-info/RECORD", "")
    return file
"#;

const PROJECT: &str =
    "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";

/// A package of one module; `module` is a Python expression of its source.
fn add(index: &Index, name: &str, module: &str) {
    let backend = BACKEND.replace("NAME", name).replace("MODULE", module);
    index.add(name, &[("pyproject.toml", PROJECT.as_bytes()), ("backend.py", backend.as_bytes())]);
}

fn function(index: &Index, packages: &[&str], body: &str) -> String {
    format!(
        "# /// script\n# dependencies = {packages:?}\n# [tool.uv]\n# index-url = \"{}\"\n# ///\n{body}",
        index.url()
    )
}

#[test]
fn instances_do_not_meet_in_memory_that_a_package_shares_and_the_rest_of_its_set_is_imported_ahead()
{
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "sharer", r#""import mmap\nshared = mmap.mmap(-1, 4096)\n""#);
    add(&index, "peaceful", r#""import time\ntime.sleep(0.05)\n""#);
    let worker =
        Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false"), ("WOOL_INDEXES", &index.url())]);
    let body = "import sys\nbefore = sorted({'sharer', 'peaceful'} & set(sys.modules))\n\
                import peaceful, sharer\n\
                def handler(event, context):\n    sharer.shared[0] += 1\n    return {'before': before, 'calls': sharer.shared[0]}\n";
    if !worker.deploys_from_index("f", &function(&index, &["sharer", "peaceful"], body)) {
        return;
    }
    eventually("the other package is imported ahead", || {
        let said = worker.run("f", &json!({})).expect(200).json();
        assert_eq!(said["calls"], 1, "another instance was here: {said}");
        said["before"] == json!(["peaceful"])
    });
    let listed = worker.site().wool(&["packages", "--json"]).json();
    let why = |name: &str| {
        let packages = listed["packages"].as_array().unwrap();
        packages.iter().find(|package| package["name"] == name).unwrap()["unforkable"].clone()
    };
    assert_eq!(why("sharer"), "sharer leaves memory that forks would share behind");
    assert_eq!(why("peaceful"), json!(null));
    let shown = worker.site().wool(&["packages"]).ok();
    assert!(shown.contains("no: sharer leaves memory"), "{shown}");
    worker.assert_well();
}

#[test]
fn a_package_that_unpacks_to_more_than_the_operator_allows_is_refused_at_the_deploy() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "small", r#""small = 1\n""#);
    add(&index, "swollen", "'text = \"' + 'x' * (40 << 20) + '\"\\n'");
    let worker =
        Site::new().up_with(&[("WOOL_PACKAGE_BYTES", "8MiB"), ("WOOL_INDEXES", &index.url())]);
    let body = "def handler(event, context):\n    return 1\n";
    if !worker.deploys_from_index("small", &function(&index, &["small"], body)) {
        return;
    }
    let refused = worker.deploy("f", &function(&index, &["swollen"], body)).expect(422).error();
    assert!(refused.contains("swollen 1.0") && refused.contains("`package_bytes`"), "{refused}");
    worker.assert_well();
}

#[test]
fn a_package_that_spins_whenever_its_machine_is_cloned_is_stopped_though_nobody_calls() {
    if !can_run_machines() {
        return;
    }
    let index = Index::open();
    // Well-behaved while the reference machine is made and tried out.
    let module = r#""import random, time\nbegan = time.monotonic()\nseed = random.seed\ndef spin(*arguments):\n    while time.monotonic() > began + 8: pass\n    return seed(*arguments)\nrandom.seed = spin\n""#;
    add(&index, "spinner", module);
    let settings =
        [("WOOL_HANDLER_CACHE", "false"), ("WOOL_INDEXES", &index.url()), ("WOOL_SPARES", "2")];
    let worker = Site::new().up_with(&settings);
    let body = "import sys, time\nhad = 'spinner' in sys.modules\nimport spinner\n\
                def handler(event, context):\n    return [had, time.monotonic() - spinner.began]\n";
    let source = function(&index, &["spinner"], body);
    let source =
        source.replace("# [tool.uv]", "# [tool.lambswool]\n# isolation = \"microvm\"\n# [tool.uv]");
    drop(worker.deploy("f", &source).expect(201));
    eventually("machines are cloned from one that has the package", || {
        worker.run("f", &json!({})).expect(200).json()[0] == true
    });
    let name = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let took = || -> u64 {
        let pids =
            worker.site().sandboxed().into_iter().filter(|pid| name(pid).trim() == "wool-vmm");
        let stats = pids.filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stats
            .map(|stat| {
                let times = stat
                    .rsplit(' ')
                    .rev()
                    .skip(13)
                    .take(2)
                    .map(|ticks| ticks.parse::<u64>().unwrap());
                times.sum::<u64>()
            })
            .sum()
    };
    std::thread::sleep(Duration::from_secs(9));
    // The last one that was cloned in time; in its place another one is made, which spins.
    let last = worker.run("f", &json!({}));
    assert!(last.status == 200, "{}", last.text());
    let before = took();
    eventually("it spins", || took() > before + 100);
    eventually("it is stopped", || {
        let before = took();
        std::thread::sleep(Duration::from_secs(1));
        took() < before + 10
    });
    worker.assert_well();
}
