//! Packages that come as source only: built in a sandbox, whatever their source does.

use std::fs;
use std::time::Instant;

use e2e::index::Index;
use e2e::machine::skip;
use e2e::{Reply, Site, Value, Worker, can_run, eventually, json};

/// A backend in the source itself, which needs nothing else; `BODY` is what it does before it makes its wheel.
const BACKEND: &str = r#"
import os, zipfile

def wheel(directory, name, module="x = 1", file=None, info=None, extra=()):
    file = file or f"{name}-1.0-py3-none-any.whl"
    info = info or f"{name}-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(directory, file), "w") as z:
        z.writestr(f"{name}.py", module)
        for path in extra:
            z.writestr(path, "planted")
        z.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nREQUIRES")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return file

def build_wheel(directory, settings=None, metadata=None):
    name = "NAME"
    BODY
    return wheel(directory, name)
"#;

const PROJECT: &str =
    "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";

fn add(index: &Index, name: &str, body: &str) {
    let backend = BACKEND.replace("NAME", name).replace("BODY", body).replace("REQUIRES", "");
    index.add(name, &[("pyproject.toml", PROJECT.as_bytes()), ("backend.py", backend.as_bytes())]);
}

fn function(index: &Index, name: &str) -> String {
    format!(
        "# /// script\n# dependencies = [\"{name}\"]\n# [tool.uv]\n# index-url = \"{}\"\n# ///\n\
         import {name}\ndef handler(event, context):\n    return {name}.x\n",
        index.url()
    )
}

fn deploy(worker: &Worker, index: &Index, name: &str) -> Reply {
    worker.deploy(&caller(name), &function(index, name))
}

/// The function that imports a package: a file of its own name would hide it.
fn caller(name: &str) -> String {
    format!("calls-{name}")
}

/// What a build of this kind is answered with.
fn refusal(worker: &Worker, index: &Index, name: &str) -> String {
    let error = deploy(worker, index, name).expect(422).error();
    assert!(error.contains("building it failed") && error.contains(name), "{error}");
    error
}

#[test]
fn a_source_is_built_once_and_its_wheel_is_one_like_any_other() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "plainone", "import os; print('hello from the backend at', os.nice(0))");
    let site = Site::new();
    let worker = site.up_with(&[("WOOL_INDEXES", &index.url())]);
    let path = worker.site().own().join("calls-plainone.py");
    fs::write(&path, function(&index, "plainone")).unwrap();
    let said = worker.site().wool(&["deploy", path.to_str().unwrap()]);
    assert!(said.stderr.contains("hello from the backend at 10"), "{said:?}");
    drop(said.ok());
    assert_eq!(worker.run("calls-plainone", &json!({})).expect(200).json(), 1);
    drop(deploy(&worker, &index, "plainone").expect(201));
    let metrics = worker.get("/metrics").text();
    for result in ["miss", "hit"] {
        let series = format!("lambswool_cache_total{{cache=\"install\",result=\"{result}\"}} 1");
        assert!(metrics.contains(&series), "{series} is missing in\n{metrics}");
    }
    let known = worker.get("/v1/functions/calls-plainone").json();
    let lock = known["lock"].as_str().unwrap();
    assert!(lock.contains("plainone==1.0") && lock.contains("sha256:"), "{lock}");
    let listed = worker.get("/v1/packages").json();
    assert_eq!(listed["packages"][0]["built"], true, "{listed}");
    assert!(worker.site().wool(&["packages"]).ok().contains("built here"));

    // Broken on disk, it is unpacked again from what was built; the index is not needed.
    let port = index.port();
    drop(index);
    let wheel = worker.site().state().join("layers/wheels");
    let wheel = wheel.join(listed["packages"][0]["wheel"].as_str().unwrap());
    fs::remove_file(wheel.join("plainone.py")).unwrap();
    let checked = worker.post("/v1/packages/verify", "application/json", b"").expect(200).json();
    assert_eq!(checked["broken"][0]["repaired"], true, "{checked} {port}");
    drop(worker.deploy("again", "# /// script\n# ///\ndef handler(e, c): pass\n").expect(201));
    assert_eq!(worker.run("calls-plainone", &json!({})).expect(200).json(), 1);
    worker.assert_well();
}

#[test]
fn a_script_that_a_build_runs_imports_what_lies_beside_it() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let body = "\n    import subprocess, sys\n    subprocess.check_call([sys.executable, 'tools/gen.py'])\n    \
                return wheel(directory, name, open('made.py').read())";
    let backend = BACKEND.replace("NAME", "generated").replace("BODY", body);
    let backend = backend.replace("REQUIRES", "");
    let script = "import helper\nopen('made.py', 'w').write(f'x = {helper.VALUE}')\n";
    let files = [
        ("pyproject.toml", PROJECT.as_bytes()),
        ("backend.py", backend.as_bytes()),
        ("tools/gen.py", script.as_bytes()),
        ("tools/helper.py", b"VALUE = 42\n"),
        // The backend's own process, which is started here, too, does not take this one.
        ("json.py", b"raise SystemExit('this is not the json of the standard library')\n"),
    ];
    index.add("generated", &files);
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
    drop(deploy(&worker, &index, "generated").expect(201));
    assert_eq!(worker.run("calls-generated", &json!({})).expect(200).json(), 42);
    worker.assert_well();
}

#[test]
fn two_deploys_that_need_the_same_source_build_it_once() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "sharedone", "import time; time.sleep(3)");
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
    let source = function(&index, "sharedone");
    let began = Instant::now();
    let said: Vec<String> = std::thread::scope(|scope| {
        let deploy = |name: &'static str| {
            let path = worker.site().own().join(format!("{name}.py"));
            fs::write(&path, &source).unwrap();
            worker.site().wool(&["deploy", path.to_str().unwrap()])
        };
        let both = [scope.spawn(move || deploy("first")), scope.spawn(move || deploy("second"))];
        both.map(|one| one.join().unwrap()).into_iter().map(|said| said.stderr).collect()
    });
    let built = said.iter().filter(|words| words.contains("building sharedone")).count();
    assert_eq!(built, 1, "{said:?} after {:?}", began.elapsed());
    for name in ["first", "second"] {
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), 1);
    }
    worker.assert_well();
}

#[test]
fn what_was_built_with_an_indexs_tools_is_given_to_nobody_who_gets_them_elsewhere() {
    if !can_run() {
        return;
    }
    // Two tenants name an index each. Both have the very same source; the tools that build it differ.
    let project = "[build-system]\nrequires = [\"maker\"]\nbuild-backend = \"maker\"\n";
    let indexes = ["1", "666"].map(|value| {
        let index = Index::open();
        index.add("twofold", &[("pyproject.toml", project.as_bytes())]);
        let made = format!("return wheel(directory, name, module='x = {value}')");
        let backend = BACKEND.replace("NAME", "twofold").replace("BODY", &made);
        index.add_wheel("maker", &backend.replace("REQUIRES", ""));
        index
    });
    let allowed = indexes.iter().map(Index::url).collect::<Vec<_>>().join(" ");
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &allowed)]);
    let mut locks = Vec::new();
    for (index, (name, value)) in indexes.iter().rev().zip([("bad", 666), ("good", 1)]) {
        drop(worker.deploy(name, &function(index, "twofold")).expect(201));
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), value);
        let known = worker.get(&format!("/v1/functions/{name}")).json();
        locks.push(known["lock"].as_str().unwrap().to_owned());
    }
    assert_eq!(locks[0], locks[1], "only the tools differ");
    assert_eq!(worker.run("bad", &json!({})).expect(200).json(), 666);
    worker.assert_well();
}

#[test]
fn a_build_reads_and_reaches_nothing_of_the_host() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let site = Site::new();
    let secret = site.own().join("secret");
    fs::write(&secret, "secret").unwrap();
    let body = r#"
    import json, socket, sys
    def attempt(what):
        try:
            return repr(what())
        except OSError as error:
            return type(error).__name__
    def connect(address):
        with socket.create_connection(address, 3):
            return "connected"
    def write(path):
        with open(path, "w"):
            return "written"
    seen = {
        "secret": attempt(lambda: open("SECRET").read()),
        "shadow": attempt(lambda: open("/etc/shadow").read()),
        "root": attempt(lambda: open("/proc/1/root/etc/shadow").read()),
        "loopback": attempt(lambda: connect(("127.0.0.1", PORT))),
        "outside": attempt(lambda: connect(("1.1.1.1", 53))),
        "code": attempt(lambda: write("/var/task/x")),
        "packages": attempt(lambda: write("/opt/python/x")),
        "system": attempt(lambda: write("/usr/bin/x")),
        "uid": os.getuid(),
    }
    return wheel(directory, name, "x = " + repr(seen))
"#;
    let body = body.replace("SECRET", secret.to_str().unwrap());
    add(&index, "curious", &body.replace("PORT", &index.port().to_string()));
    let worker = site.up_with(&[("WOOL_INDEXES", &index.url())]);
    drop(deploy(&worker, &index, "curious").expect(201));
    let seen = worker.run("calls-curious", &json!({})).expect(200).json();
    for (what, came) in seen.as_object().unwrap() {
        let denied = came.as_str().is_some_and(|came| came.ends_with("Error"));
        assert!(denied || what == "uid" && *came != json!(0), "{what}: {seen}");
    }
    worker.assert_well();
}

#[test]
fn a_greedy_build_ends_at_its_limits_and_says_so() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let seconds = 30 * e2e::slow();
    let longer = format!("longer than {seconds} s");
    let shouts = "\n    for n in range(50_000): print('x' * 100)\n    raise SystemExit('enough')";
    let cases = [
        ("sleeper", "import time; time.sleep(10000)", longer.as_str()),
        (
            "forker",
            "\n    while True:\n        try: os.fork()\n        except OSError: raise SystemExit('no more processes')",
            "",
        ),
        (
            "writer",
            "\n    with open('/tmp/big', 'wb') as f:\n        for _ in range(10240): f.write(bytes(1 << 20))",
            "No space left",
        ),
        ("eater", "x = [b'x' * (1 << 20) for _ in range(10240)]", ""),
        ("shouter", shouts, "enough"),
        ("raiser", "raise RuntimeError('the reason why')", "RuntimeError: the reason why"),
        ("quitter", "os._exit(7)", "status 7"),
    ];
    for (name, body, _) in &cases {
        add(&index, name, body);
    }
    let url = index.url();
    let patience = format!("{seconds}s");
    let settings = [
        ("WOOL_BUILD_TIMEOUT", patience.as_str()),
        ("WOOL_BUILD_MEMORY", "256MiB"),
        ("WOOL_INDEXES", url.as_str()),
    ];
    let worker = Site::new().up_with(&settings);
    for (name, _, words) in cases {
        let error = refusal(&worker, &index, name);
        assert!(error.contains(words), "{name}: {error}");
    }
    nothing_is_left(&worker);
    worker.assert_well();
}

#[test]
fn a_wheel_that_is_not_what_was_asked_for_is_refused() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    let cases = [
        (
            "climber",
            "return wheel(directory, name, extra=['../../../../planted'])",
            "may not be unpacked",
        ),
        (
            "absolute",
            "return wheel(directory, name, extra=['/etc/planted'])",
            "may not be unpacked",
        ),
        ("impostor", "return wheel(directory, 'six')", "not a wheel of what was to be built"),
        (
            "liar",
            "wheel(directory, 'six', file=name + '-1.0-py3-none-any.whl'); return name + '-1.0-py3-none-any.whl'",
            "metadata are not of",
        ),
        ("foreign", "return wheel(directory, name, file=name + '-1.0-cp27-cp27m-win32.whl')", ""),
        (
            "broken",
            "open(directory + '/broken-1.0-py3-none-any.whl', 'w').write('PK'); return 'broken-1.0-py3-none-any.whl'",
            "cannot be read",
        ),
        ("outsider", "return '../../etc/passwd'", "no such file"),
    ];
    for (name, body, _) in &cases {
        add(&index, name, body);
    }
    let backend = BACKEND.replace("NAME", "needy").replace("BODY", "pass");
    let backend = backend.replace("REQUIRES", "Requires-Dist: six @ file:///etc/passwd\\n");
    index.add(
        "needy",
        &[("pyproject.toml", PROJECT.as_bytes()), ("backend.py", backend.as_bytes())],
    );
    let project = PROJECT.replace("[]", "[\"six @ file:///etc/passwd\"]");
    index.add("builder", &[("pyproject.toml", project.as_bytes())]);
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
    for (name, _, words) in cases {
        let error = deploy(&worker, &index, name).expect(422).error();
        assert!(error.contains(words), "{name}: {error}");
    }
    for name in ["needy", "builder"] {
        assert!(refusal(&worker, &index, name).contains("file:///etc/passwd"));
    }
    assert!(!worker.site().state().join("planted").exists());
    worker.assert_well();
}

#[test]
fn a_crash_in_the_middle_of_a_build_leaves_nothing_half_made() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "slowone", "import time; time.sleep(8)");
    add(&index, "quickone", "pass");
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
    // Installer and compiler are there from here on.
    drop(deploy(&worker, &index, "quickone").expect(201));
    let client = (*worker).clone();
    let source = function(&index, "slowone");
    let site = std::thread::scope(|scope| {
        scope.spawn(|| {
            let path = "/v1/functions/calls-slowone";
            assert!(client.try_put(path, "text/x-python", source.as_bytes()).is_err());
        });
        let code = worker.site().state().join("layers/code");
        e2e::eventually("the build is under way", || {
            let entries = fs::read_dir(&code).unwrap().flatten();
            let building = |name: &str| name.starts_with(".tmp-build-");
            entries.into_iter().any(|entry| building(&entry.file_name().to_string_lossy()))
                && !worker.site().sandboxed().is_empty()
        });
        worker.crash()
    });
    site.wait_until_quiet();
    let worker = site.up_with(&[("WOOL_INDEXES", &index.url())]);
    let code = fs::read_dir(worker.site().state().join("layers/code")).unwrap().flatten();
    assert!(code.into_iter().all(|entry| !entry.file_name().to_string_lossy().starts_with('.')));
    let built = fs::read_dir(worker.site().state().join("layers/built")).unwrap();
    assert_eq!(built.count(), 1, "the one that was built before");
    drop(deploy(&worker, &index, "slowone").expect(201));
    assert_eq!(worker.run("calls-slowone", &json!({})).expect(200).json(), 1);
    // A worker that is told to stop does not wait for a build either.
    add(&index, "slowtwo", "import time; time.sleep(100)");
    let source = function(&index, "slowtwo");
    let client = (*worker).clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop(client.try_put("/v1/functions/calls-slowtwo", "text/x-python", source.as_bytes()))
        });
        let code = worker.site().state().join("layers/code");
        e2e::eventually("the build is under way", || {
            fs::read_dir(&code)
                .unwrap()
                .flatten()
                .any(|e| e.file_name().to_string_lossy().starts_with(".tmp-build-"))
        });
        drop(worker.stop());
    });
}

#[test]
fn building_can_be_switched_off() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "unwanted", "pass");
    let worker =
        Site::new().up_with(&[("WOOL_BUILD_FROM_SOURCE", "never"), ("WOOL_INDEXES", &index.url())]);
    let error = deploy(&worker, &index, "unwanted").expect(422).error();
    assert!(error.contains("build_from_source") && error.contains("unwanted"), "{error}");
}

#[test]
fn real_packages_without_wheels_run_pure_and_with_c() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let pure = "# /// script\n# dependencies = [\"docopt\", \"six\"]\n# ///\nimport docopt\n\
                def handler(e, c):\n    return docopt.docopt('Usage: x [--n=N]', ['--n=3'])['--n']\n";
    if !worker.deploys_from_index("pure", pure) {
        return;
    }
    assert_eq!(worker.run("pure", &json!({})).expect(200).json(), "3");
    let native = "# /// script\n# dependencies = [\"crcmod==1.7\"]\n# ///\n\
                  import crcmod.predefined\nimport crcmod._crcfunext\n\
                  def handler(e, c):\n    return crcmod.predefined.mkCrcFun('crc-32')(b'abc')\n";
    let reply = worker.deploy("native", native);
    if reply.status != 201 && reply.error().contains("no C compiler") {
        skip("compiler", &reply.error());
        return;
    }
    drop(reply.expect(201));
    assert_eq!(worker.run("native", &json!({})).expect(200).json(), 0x3524_41c2);
    worker.assert_well();
}

/// Nothing of a build that failed is kept.
fn nothing_is_left(worker: &Worker) {
    let layers = worker.site().state().join("layers");
    let names = |kind: &str| -> Vec<String> {
        let entries = fs::read_dir(layers.join(kind)).unwrap().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names("built"), [""; 0]);
    let temporary = names("code").into_iter().filter(|name| name.starts_with(".tmp"));
    assert_eq!(temporary.collect::<Vec<_>>(), [""; 0]);
    let packages: Value = worker.get("/v1/packages").json();
    assert_eq!(packages["packages"], json!([]));
}

#[test]
fn what_a_build_weighs_counts_in_the_memory_that_caches_have() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    add(&index, "weighty", "held = b'x' * (200 << 20)\n    import time; time.sleep(8)");
    let worker =
        Site::new().up_with(&[("WOOL_CACHE_MEMORY", "1GiB"), ("WOOL_INDEXES", &index.url())]);
    let used = || worker.status()["engine"]["memory"]["used_bytes"].as_u64().unwrap() >> 20;
    assert!(used() < 100, "{}", used());
    std::thread::scope(|scope| {
        scope.spawn(|| drop(deploy(&worker, &index, "weighty").expect(201)));
        eventually("the build is counted", || used() > 190);
    });
    eventually("it is over", || used() < 100);
    worker.assert_well();
}
