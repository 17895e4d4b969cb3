//! Zygotes that die or hang, and trees of them that are given to another worker.

use std::fs;
use std::time::Duration;

use e2e::index::Index;
use e2e::{Site, Value, Worker, bundle, can_run, json};
use rustix::process::{Pid, Signal, kill_process};

const ECHO: &str = "def handler(event, context):\n    return event\n";

/// What is called is forked, always.
const NO_CACHE: (&str, &str) = ("WOOL_HANDLER_CACHE", "false");

fn zygotes(worker: &Worker) -> Vec<Value> {
    worker.status()["engine"]["zygotes"].as_array().unwrap().clone()
}

fn signal(pid: u32, signal: Signal) {
    // Killing one of them may have ended others.
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal);
}

/// The zygotes and what they keep landed and waiting, and then what they were forking when the first list was made.
fn kill_all(worker: &Worker) {
    for _ in 0..2 {
        let listed = worker.site().sandboxed();
        listed.iter().for_each(|pid| signal(*pid, Signal::KILL));
        let gone = || !worker.site().sandboxed().iter().any(|pid| listed.contains(pid));
        e2e::eventually("those that were killed are gone", gone);
    }
}

/// The process of the only zygote of a worker that keeps nothing ready.
fn the_zygote(worker: &Worker) -> u32 {
    let mut pid = 0;
    e2e::eventually("only the root is left", || {
        let all = worker.site().sandboxed();
        pid = all.first().copied().unwrap_or(0);
        all.len() == 1 && worker.status()["engine"]["reaping"] == 0
    });
    pid
}

#[test]
fn no_call_is_lost_when_its_zygote_is_killed() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[NO_CACHE]);
    drop(worker.try_out("f", ECHO).expect(200));
    for round in 0..10 {
        let before = zygotes(&worker)[0]["id"].clone();
        kill_all(&worker);
        assert_eq!(worker.run("f", &json!(round)).expect(200).json(), round);
        assert_ne!(zygotes(&worker)[0]["id"], before, "it was replaced");
    }
    worker.assert_well();
}

#[test]
fn a_zygote_that_hangs_is_given_up_and_the_call_is_served_from_another() {
    if !can_run() {
        return;
    }
    let settings = [NO_CACHE, ("WOOL_SLOTS", "0"), ("WOOL_SPARES", "0")];
    let worker = Site::new().up_with(&settings);
    drop(worker.try_out("f", ECHO).expect(200));
    let (hung, before) = (the_zygote(&worker), zygotes(&worker)[0]["id"].clone());
    signal(hung, Signal::STOP);
    assert_eq!(worker.run("f", &json!("still")).expect(200).json(), "still");
    assert_ne!(zygotes(&worker)[0]["id"], before, "it was replaced");
    e2e::eventually("the one that hung is gone", || !worker.site().sandboxed().contains(&hung));
    let log = worker.log();
    assert!(log.contains("a zygote was given up"), "{log}");
    worker.assert_well();
}

#[test]
fn a_call_that_was_sent_is_never_sent_again() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[NO_CACHE]);
    let dies = "import os, signal\ndef handler(event, context):\n    print('called')\n    os.kill(os.getpid(), signal.SIGKILL)\n    os._exit(1)\n";
    drop(worker.try_out("dies", dies).expect(502));
    let called = || {
        let lines = worker.logs("dies");
        lines
            .iter()
            .filter(|line| line["text"].as_str().is_some_and(|text| text.contains("called")))
            .count()
    };
    e2e::eventually("it was called", || called() > 0);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(called(), 1);
    worker.assert_well();
}

#[test]
fn a_tree_that_one_worker_learnt_is_what_another_starts_from() {
    if !can_run() {
        return;
    }
    let source = "# /// script\n# dependencies = [\"six==1.16.0\", \"idna==3.7\"]\n# ///\nimport six, idna\ndef handler(event, context):\n    return six.__version__\n";
    let first = Site::new().up();
    if !first.deploys_from_index("f", source) {
        return;
    }
    drop(first.run("f", &json!({})).expect(200));
    let written = first.site().wool(&["zygotes", "--json"]).ok();
    let said: Value = serde_json::from_str(&written).unwrap();
    let children = said["tree"]["children"].as_array().unwrap();
    assert_eq!(children[0]["packages"], json!(["idna==3.7", "six==1.16.0"]), "{said}");

    let site = Site::new();
    let file = site.state().with_file_name("tree.json");
    fs::write(&file, &written).unwrap();
    let seed = ("WOOL_ZYGOTE_SEED", file.to_str().unwrap());
    let second = site.up_with(&[seed, ("WOOL_ZYGOTES", "static")]);
    drop(second.deploy("f", source).expect(201));
    drop(second.run("f", &json!({})).expect(200));
    e2e::eventually("the seed has grown", || zygotes(&second).len() == 2);
    let again: Value =
        serde_json::from_str(&second.site().wool(&["zygotes", "--json"]).ok()).unwrap();
    assert_eq!(again["tree"], said["tree"], "the same tree comes out that went in");
    second.assert_well();
    first.assert_well();
}

/// Ten packages, each with a function that imports it and no other, deployed one after the other, and then nine functions
/// without packages.
fn ten_and_nine(worker: &Worker, index: &Index) {
    for n in 0..10 {
        index.add_wheel(&format!("single{n}"), "x = 1\n");
        let source = format!(
            "# /// script\n# dependencies = [\"single{n}\"]\n# [tool.uv]\n# index-url = \"{}\"\n# ///\n\
             import single{n}\ndef handler(event, context):\n    return single{n}.x\n",
            index.url()
        );
        drop(worker.try_out(&format!("calls-{n}"), &source).expect(200));
    }
    for n in 0..9 {
        drop(worker.deploy(&format!("bare-{n}"), ECHO).expect(201));
    }
}

/// The packages that zygotes have imported.
fn imported(worker: &Worker) -> Vec<String> {
    let said: Value =
        serde_json::from_str(&worker.site().wool(&["zygotes", "--json"]).ok()).unwrap();
    let nodes = said["tree"]["children"].as_array().unwrap();
    let mut names: Vec<String> = nodes
        .iter()
        .flat_map(|node| node["packages"].as_array().unwrap())
        .map(|package| package.as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn after_a_restart_the_zygotes_are_those_that_were_there_or_are_given() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let url = index.url();
    let settings = [("WOOL_INDEXES", url.as_str())];
    let all: Vec<String> = (0..10).map(|n| format!("single{n}==1.0")).collect();
    let worker = Site::new().up_with(&settings);
    ten_and_nine(&worker, &index);
    drop(index);
    e2e::eventually("all are there", || imported(&worker) == all);
    let given = worker.site().own().join("given.json");
    fs::write(&given, worker.site().wool(&["zygotes", "--json"]).ok()).unwrap();
    let site = worker.stop();
    let learnt = site.state().join("zygotes.json");

    let worker = site.up_with(&settings);
    e2e::eventually("those of the last run are there", || imported(&worker) == all);
    let site = worker.stop();

    // Without them, those of the eight sets that were deployed last: functions without packages do not count.
    fs::write(&learnt, "{\"tree\": ").unwrap();
    let worker = site.up_with(&settings);
    e2e::eventually("eight are there", || imported(&worker) == all[2..]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(imported(&worker), all[2..]);
    let log = worker.log();
    assert!(log.contains("the zygotes of the last run are not known"), "{log}");
    let site = worker.stop();

    fs::remove_file(&learnt).unwrap();
    let seed = ("WOOL_ZYGOTE_SEED", given.to_str().unwrap());
    let worker = site.up_with(&[settings[0], seed]);
    e2e::eventually("those that are given are there", || imported(&worker) == all);
    worker.assert_well();
}

/// A package that keeps what a variable was when it was imported, and functions of it, one of which sets that variable.
#[test]
fn what_a_function_sets_is_there_for_its_packages_imports_too() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("moody", "import os\nMOOD = os.environ.get('MOOD', 'none')\n");
    let url = index.url();
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &url), NO_CACHE]);
    let source = |settings: &str| {
        format!(
            "# /// script\n# dependencies = [\"moody\"]\n# [tool.uv]\n# index-url = \"{url}\"\n{settings}# ///\n\
             import moody\ndef handler(event, context):\n    return moody.MOOD\n"
        )
    };
    drop(worker.deploy("plain", &source("")).expect(201));
    let sets = source("# [tool.lambswool]\n# environment = { MOOD = \"merry\" }\n");
    drop(worker.deploy("sets", &sets).expect(201));
    drop(worker.deploy("secretive", &source("")).expect(201));
    let set = ["secret", "set", "secretive", "MOOD"];
    drop(worker.site().wool_reading(&set, b"grave").ok());
    let first = "import os\nos.environ[\"MOOD\"] = \"wry\"\nimport moody\n";
    let itself = source("").replacen("import moody\n", first, 1);
    drop(worker.deploy("itself", &itself).expect(201));
    let moods = [("plain", "none"), ("sets", "merry"), ("secretive", "grave"), ("itself", "wry")];
    for _ in 0..8 {
        for (name, mood) in moods {
            assert_eq!(worker.run(name, &json!({})).expect(200).json(), json!(mood), "{name}");
        }
    }
    let served = |zygote: &Value| {
        zygote["distributions"] == json!(["moody==1.0"])
            && zygote["variables"] == json!(["MOOD"])
            && zygote["forks"].as_u64() >= Some(8)
    };
    assert!(zygotes(&worker).iter().any(served), "{:?}", zygotes(&worker));
    drop(worker.site().wool(&["rm", "secretive"]).ok());
    worker.assert_well();
}

/// A package that keeps whether another is there, one that keeps what all is there, and functions with and without that other.
#[test]
fn a_package_that_looks_for_another_finds_it_wherever_it_is_locked() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("companion", "");
    let probes =
        "try:\n    import companion\n    FOUND = True\nexcept ImportError:\n    FOUND = False\n";
    index.add_wheel("prober", probes);
    let lists = "from importlib import metadata\nNAMES = sorted(one.name for one in metadata.distributions())\n";
    index.add_wheel("lister", lists);
    let walks = "import pkgutil\nNAMES = sorted(one.name for one in pkgutil.iter_modules() if one.name in ('companion', 'walker'))\n";
    index.add_wheel("walker", walks);
    let url = index.url();
    let settings = [("WOOL_INDEXES", &*url), NO_CACHE];
    let worker = Site::new().up_with(&settings);
    let source = |packages: &[&str], keeps: &str| {
        format!(
            "# /// script\n# dependencies = {packages:?}\n# [tool.uv]\n# index-url = \"{url}\"\n# ///\n\
             import {keeps}\ndef handler(event, context):\n    return {keeps}\n"
        )
    };
    let functions = [
        ("alone", &["prober"][..], "prober.FOUND", json!(false)),
        ("both", &["companion", "prober"], "prober.FOUND", json!(true)),
        ("lists", &["lister"], "lister.NAMES", json!(["lister"])),
        ("lists_more", &["companion", "lister"], "lister.NAMES", json!(["companion", "lister"])),
        ("walks", &["walker"], "walker.NAMES", json!(["walker"])),
        ("walks_more", &["companion", "walker"], "walker.NAMES", json!(["companion", "walker"])),
    ];
    let right = |worker: &Worker, several: &[(&str, &[&str], &str, Value)]| {
        for (name, _, _, expected) in several {
            assert_eq!(worker.run(name, &json!({})).expect(200).json(), *expected, "{name}");
        }
    };
    for (count, (name, packages, keeps, _)) in functions.iter().enumerate() {
        let source = source(packages, keeps).replacen(keeps, keeps.split('.').next().unwrap(), 1);
        drop(worker.deploy(name, &source).expect(201));
        right(&worker, &functions[..=count]);
    }
    for _ in 0..4 {
        right(&worker, &functions);
    }
    let served = |set: &[&str]| {
        zygotes(&worker).iter().any(|zygote| {
            let sees = zygote["distributions"].as_array().unwrap();
            let has = |name: &&str| sees.contains(&json!(format!("{name}==1.0")));
            sees.len() == set.len() && set.iter().all(has) && zygote["forks"].as_u64() >= Some(4)
        })
    };
    for (name, packages, _, _) in &functions {
        assert!(served(packages), "{name} is not forked from what it has: {:?}", zygotes(&worker));
    }
    // Nor by what is made anew, in whatever order.
    for _ in 0..4 {
        kill_all(&worker);
        right(&worker, &functions);
    }
    let worker = worker.stop().up_with(&settings);
    for _ in 0..4 {
        right(&worker, &functions);
    }
    worker.assert_well();
}

/// A package that waits for what it has started while it is imported: in a zygote, whose own children are the kernel's to reap.
#[test]
fn a_package_is_told_how_its_children_ended() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let module = "import os, subprocess, sys\nchild = os.fork() or os._exit(7)\n\
                  ENDS = [subprocess.call([sys.executable, '-c', 'raise SystemExit(3)']), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]\n";
    index.add_wheel("starter", module);
    let url = index.url();
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &url), NO_CACHE]);
    let source = format!(
        "# /// script\n# dependencies = [\"starter\"]\n# [tool.uv]\n# index-url = \"{url}\"\n# ///\n\
         import sys\nahead = 'starter' in sys.modules\nimport starter\n\
         def handler(event, context):\n    return [ahead, starter.ENDS]\n"
    );
    drop(worker.deploy("starts", &source).expect(201));
    let came_ahead = || {
        let answer = worker.run("starts", &json!({})).expect(200).json();
        assert_eq!(answer[1], json!([3, 7]));
        answer[0] == json!(true)
    };
    e2e::eventually("a zygote has imported it", came_ahead);
    worker.assert_well();
}

/// Packages that make files while they are imported: few, and more than a fork can be given.
#[test]
fn what_imports_leave_in_the_scratch_is_there_for_each_fork() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let module = |bytes: usize| {
        format!(
            "import os, tempfile\nPLACE = tempfile.mkdtemp()\nopen(PLACE + '/cache', 'w').write('x' * {bytes})\n\
             os.symlink('cache', PLACE + '/link')\n"
        )
    };
    index.add_wheel("few", &module(1000));
    index.add_wheel("many", &module(2 << 20));
    let url = index.url();
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &url), NO_CACHE]);
    for (name, length) in [("few", 1000), ("many", 2 << 20)] {
        let source = format!(
            "# /// script\n# dependencies = [\"{name}\"]\n# [tool.uv]\n# index-url = \"{url}\"\n# ///\n\
             import os, sys\nahead = '{name}' in sys.modules\nimport {name}\n\
             def handler(event, context):\n    place = {name}.PLACE + '/link'\n    \
             with open({name}.PLACE + '/cache', 'a') as own:\n        own.write('y')\n    \
             return [ahead, len(open(place).read()), os.stat({name}.PLACE).st_uid == os.getuid()]\n"
        );
        let function = format!("of_{name}");
        drop(worker.deploy(&function, &source).expect(201));
        for _ in 0..3 {
            let said = worker.run(&function, &json!({})).expect(200).json();
            assert_eq!(said, json!([name == "few", length + 1, true]), "{name}");
        }
    }
    let listed = worker.site().wool(&["packages"]).ok();
    assert!(listed.contains("no: many leaves more in /tmp"), "{listed}");
    worker.assert_well();
}

#[test]
fn the_packages_of_a_zygote_stay_as_long_as_it_does() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_ZYGOTE_IDLE", "25s")]);
    let source = "# /// script\n# dependencies = [\"six==1.16.0\"]\n# ///\nimport six\ndef handler(event, context):\n    return 1\n";
    if !worker.deploys_from_index("f", source) {
        return;
    }
    let of_packages =
        || zygotes(&worker).iter().find_map(|one| Some(one["packages"].as_str()?.to_owned()));
    let layer = of_packages().expect("a zygote is made when a function is deployed");
    let file = worker.site().state().join("layers").join(layer).join("six.py");
    drop(worker.delete("/v1/functions/f").expect(204));
    // Whatever was used a moment ago stays in any case.
    std::thread::sleep(Duration::from_secs(12));
    drop(worker.site().wool(&["packages", "prune"]).ok());
    assert!(of_packages().is_some() && file.exists(), "{}", worker.status());
    std::thread::sleep(Duration::from_secs(10));
    e2e::eventually("the zygote is given back with age", || of_packages().is_none());
    e2e::eventually("and its packages with it", || {
        drop(worker.site().wool(&["packages", "prune"]).ok());
        !file.exists()
    });
    worker.assert_well();
}

/// gevent replaces Python's own functions, which has to come before anything uses them: urllib3 takes `SSLContext` as it finds it.
const PATCHED: &str = r#"
import sys
EARLY = "requests" in sys.modules
from gevent import monkey
monkey.patch_all()
import gevent, gevent.ssl, requests
from urllib3.util import ssl_

def handler(event, context):
    jobs = [gevent.spawn(lambda number=number: number * number) for number in range(3)]
    gevent.joinall(jobs)
    return {"early": EARLY, "patched": ssl_.SSLContext is gevent.ssl.SSLContext, "jobs": [job.value for job in jobs]}
"#;

#[test]
fn what_a_function_does_before_its_imports_comes_first_where_it_says_so() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[NO_CACHE]);
    let source = |setting: &str| {
        format!(
            "# /// script\n# dependencies = [\"gevent==24.11.1\", \"requests==2.32.3\"]\n# [tool.lambswool]\n# {setting}\n# ///\n{PATCHED}"
        )
    };
    if !worker.deploys_from_index("ahead", &source("import_cache = true")) {
        return;
    }
    drop(worker.deploy("own", &source("import_cache = false")).expect(201));
    let calls = |function: &str| worker.run(function, &json!({})).expect(200).json();
    // That it matters.
    e2e::eventually("a zygote has imported ahead", || calls("ahead")["early"] == true);
    assert_eq!(calls("ahead")["patched"], false);
    for _ in 0..5 {
        assert_eq!(calls("own"), json!({"early": false, "patched": true, "jobs": [0, 1, 4]}));
    }
    worker.assert_well();
}

/// Deploys a main file with a header, and others beside it. False where there is no way to the index.
fn deploys(
    worker: &Worker,
    name: &str,
    header: &str,
    source: &str,
    others: &[(&str, &str)],
) -> bool {
    let main = format!("# /// script\n{header}# ///\n{source}");
    if others.is_empty() {
        return worker.deploys_from_index(name, &main);
    }
    let files = others.iter().copied().chain([("main.py", &*main)]);
    let files: Vec<(&str, &[u8])> = files.map(|(file, text)| (file, text.as_bytes())).collect();
    let path = format!("/v1/functions/{name}");
    drop(worker.put(&path, "application/zip", &bundle::zip(&files)).expect(201));
    true
}

#[test]
fn what_a_function_finds_does_not_depend_on_what_was_imported_ahead() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[NO_CACHE]);
    // That there is something to be forked from.
    let plain =
        "import bs4, requests, six\ndef handler(event, context):\n    return six.__file__\n";
    let needs =
        "# dependencies = [\"beautifulsoup4==4.12.3\", \"requests==2.32.3\", \"six==1.16.0\"]\n";
    if !deploys(&worker, "plain", needs, plain, &[]) {
        return;
    }
    let calls = |function: &str| worker.run(function, &json!({})).expect(200).json();
    for _ in 0..5 {
        assert_eq!(calls("plain"), "/opt/python/six.py");
    }

    // A package looks for what the function brings.
    let source = "import bs4.dammit\ndef handler(event, context):\n    return bs4.dammit.chardet_dammit(b'abc')\n";
    let own = "def detect(text):\n    return {'encoding': 'own'}\n";
    assert!(deploys(&worker, "brings", needs, source, &[("chardet.py", own)]));
    // The function brings another of what a package has bound.
    let source = "import bs4.css\ndef handler(event, context):\n    return bs4.css.soupsieve.WHO\n";
    assert!(deploys(&worker, "hides", needs, source, &[("soupsieve.py", "WHO = 'own'\n")]));
    // Its path names a directory of its own.
    let header = format!(
        "{needs}# [tool.lambswool]\n# environment = {{ PYTHONPATH = \"/var/task/vendor\" }}\n"
    );
    assert!(deploys(&worker, "path", &header, plain, &[("vendor/six.py", "")]));
    // A package stands before a module of Python's that others import.
    let header = "# dependencies = [\"requests==2.32.3\", \"ipaddress==1.0.23\"]\n";
    let source =
        "import requests, ipaddress\ndef handler(event, context):\n    return ipaddress.__file__\n";
    assert!(deploys(&worker, "before", header, source, &[]));
    for _ in 0..5 {
        assert_eq!(calls("brings"), "own");
        assert_eq!(calls("hides"), "own");
        assert_eq!(calls("path"), "/var/task/vendor/six.py");
        assert_eq!(calls("before"), "/opt/python/ipaddress.py");
        assert_eq!(calls("plain"), "/opt/python/six.py");
    }
    let all = zygotes(&worker);
    assert!(all.iter().any(|zygote| zygote["parent"] != Value::Null), "{all:?}");
    worker.assert_well();
}
