//! Archives that bring their packages themselves.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::index::Index;
use e2e::{Site, Value, Worker, bundle, can_run, json, machine};

/// Lays a distribution of one module out as an installer does: folder, name, module.
const INSTALL: &str = r#"
import base64, hashlib, pathlib, sys
root, name, module = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
info = f"{name}-1.0.dist-info"
files = {
    f"{name}.py": module,
    f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
    f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
record = f"{info}/RECORD,,\n"
(root / info).mkdir(parents=True)
for path, text in files.items():
    (root / path).write_text(text)
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    record += f"{path},sha256={digest.rstrip('=')},{len(text)}\n"
(root / info / "RECORD").write_text(record)
"#;

/// Says where its package is, and whether that was imported before.
const MAIN: &str = "import sys\nBEFORE = 'tinypkg' in sys.modules\nimport tinypkg\n\
    def handler(event, context):\n    return [tinypkg.__file__, BEFORE, tinypkg.WORDS]\n";

/// A folder with this entry file and the package `tinypkg`.
fn folder(main: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.py"), main).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", INSTALL]).arg(folder.path()).args(["tinypkg", "WORDS = 'tiny'\n"]);
    assert!(python.status().unwrap().success());
    folder
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    found
}

fn zip(folder: &Path) -> Vec<u8> {
    let name = |path: &PathBuf| path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
    let read: Vec<(String, Vec<u8>)> =
        files(folder).iter().map(|path| (name(path), fs::read(path).unwrap())).collect();
    let listed: Vec<(&str, &[u8])> = read.iter().map(|(name, it)| (&**name, &**it)).collect();
    bundle::zip(&listed)
}

fn deploy(worker: &Worker, name: &str, folder: &Path) -> Value {
    let path = format!("/v1/functions/{name}");
    drop(worker.put(&path, "application/zip", &zip(folder)).expect(201));
    worker.get(&path).expect(200).json()
}

fn wheels(worker: &Worker) -> BTreeSet<String> {
    let entries = fs::read_dir(worker.site().state().join("layers/wheels")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

#[test]
fn packages_of_an_archive_are_imported_ahead_unless_it_says_that_they_are_code() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let folder = folder(MAIN);
    let known = deploy(&worker, "f", folder.path());
    assert_eq!(known["manifest"]["bundled"], true, "{known}");
    let reply = worker.run("f", &json!(0)).expect(200);
    assert_eq!(reply.json(), json!(["/opt/python/tinypkg.py", true, "tiny"]));
    assert_eq!(reply.header("Lambswool-Start"), "fork");
    // Another function with the same package adds nothing to the store.
    let before = wheels(&worker);
    assert_eq!(before.len(), 1, "{before:?}");
    fs::write(folder.path().join("other.py"), "").unwrap();
    drop(deploy(&worker, "g", folder.path()));
    assert_eq!(worker.run("g", &json!(0)).expect(200).json()[1], true);
    assert_eq!(wheels(&worker), before);
    // Told to, it runs as it is.
    let project = "[tool.lambswool.environment]\nLAMBSWOOL_BUNDLE = \"code\"\n";
    fs::write(folder.path().join("pyproject.toml"), project).unwrap();
    let known = deploy(&worker, "f", folder.path());
    assert!(known["manifest"]["bundled"].is_null(), "{known}");
    let code = json!(["/var/task/tinypkg.py", false, "tiny"]);
    assert_eq!(worker.run("f", &json!(0)).expect(200).json(), code);
    worker.assert_well();
}

#[test]
fn packages_that_are_listed_are_all_that_a_function_has() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("tinypkg", "WORDS = 'listed'\n");
    let worker = Site::new().up_with(&[("WOOL_INDEXES", &index.url())]);
    let folder = folder(MAIN);
    let project = format!("[tool.uv]\nindex-url = \"{}\"\n", index.url());
    fs::write(folder.path().join("pyproject.toml"), project).unwrap();
    fs::write(folder.path().join("requirements.txt"), "tinypkg\n").unwrap();
    let known = deploy(&worker, "f", folder.path());
    assert!(known["manifest"]["bundled"].is_null(), "{known}");
    let said = worker.run("f", &json!(0)).expect(200).json();
    assert_eq!(said, json!(["/var/task/tinypkg.py", false, "tiny"]), "its own file comes first");
    fs::write(folder.path().join("requirements.txt"), "# none\n").unwrap();
    assert_eq!(deploy(&worker, "f", folder.path())["manifest"]["bundled"], true);
}

#[test]
fn a_package_that_was_changed_stays_code_and_the_deploy_says_why() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let folder = folder(MAIN);
    let module = folder.path().join("tinypkg.py");
    fs::write(&module, "WORDS = 'mine'\n").unwrap();
    let known = deploy(&worker, "f", folder.path());
    let warning = known["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("tinypkg-1.0 in the bundle stays code"), "{warning}");
    assert!(warning.contains("\"tinypkg.py\" is not what its RECORD says"), "{warning}");
    let said = worker.run("f", &json!(0)).expect(200).json();
    assert_eq!(said, json!(["/var/task/tinypkg.py", false, "mine"]));
    // Nor does a package hide a module of the function's own that Python prefers.
    fs::write(&module, "WORDS = 'tiny'\n").unwrap();
    fs::create_dir(folder.path().join("tinypkg")).unwrap();
    fs::write(folder.path().join("tinypkg/__init__.py"), "WORDS = 'own'\n").unwrap();
    let known = deploy(&worker, "f", folder.path());
    assert!(known["warnings"][0].as_str().unwrap().contains("shares a name with it"), "{known}");
    let said = worker.run("f", &json!(0)).expect(200).json();
    assert_eq!(said, json!(["/var/task/tinypkg/__init__.py", false, "own"]));
    assert!(wheels(&worker).is_empty());
}

#[test]
fn a_version_with_packages_of_its_bundle_is_made_again_of_nothing_else() {
    if !can_run() {
        return;
    }
    let folder = folder(MAIN);
    let ids = || {
        let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
        let version = deploy(&worker, "f", folder.path())["version"].clone();
        for kind in ["code", "packages", "wheels"] {
            for entry in fs::read_dir(worker.site().state().join("layers").join(kind)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                    .unwrap();
            }
            if kind == "wheels" {
                // The set is what a call looks for.
                let sets = worker.site().state().join("layers/packages");
                fs::remove_dir_all(&sets).unwrap();
                fs::create_dir(&sets).unwrap();
                fs::create_dir(worker.site().state().join("layers/wheels/locked")).unwrap();
            }
            let said = worker.run("f", &json!(0)).expect(200).json();
            assert_eq!(said[0], "/opt/python/tinypkg.py", "{kind}");
        }
        assert_eq!(worker.get("/v1/functions/f").json()["version"], version);
        version
    };
    assert_eq!(ids(), ids(), "on every machine the same");
}

#[test]
fn an_archive_for_lambda_starts_from_a_zygote_and_a_variable_says_otherwise() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let folder = folder(MAIN);
    // As AWS's build tool leaves it.
    fs::write(folder.path().join("requirements.txt"), "tinypkg\n").unwrap();
    let archive = worker.site().own().join("f.zip");
    fs::write(&archive, zip(folder.path())).unwrap();
    let encoded = Command::new("base64").arg("-w0").arg(&archive).output().unwrap().stdout;
    let encoded = String::from_utf8(encoded).unwrap();
    let asked = json!({
        "FunctionName": "f", "Runtime": format!("python{}", minor()), "Handler": "main.handler",
        "Role": "arn:aws:iam::000000000000:role/any", "Code": {"ZipFile": encoded},
    });
    let functions = "/2015-03-31/functions";
    let body = asked.to_string();
    drop(worker.post(functions, "application/json", body.as_bytes()).expect(201));
    let reply = worker.run("f", &json!(0)).expect(200);
    assert_eq!(reply.json(), json!(["/opt/python/tinypkg.py", true, "tiny"]));
    assert_eq!(reply.header("Lambswool-Start"), "fork");
    for (value, place) in [("code", "/var/task"), ("", "/opt/python")] {
        let asked = json!({"Environment": {"Variables": {"LAMBSWOOL_BUNDLE": value}}});
        let path = format!("{functions}/f/configuration");
        drop(worker.put(&path, "application/json", asked.to_string().as_bytes()).expect(200));
        let said = worker.run("f", &json!(0)).expect(200).json();
        assert_eq!(said[0], format!("{place}/tinypkg.py"), "of the files that are kept");
    }
    worker.assert_well();
}

/// The minor version of the Python that the workers' base is of.
fn minor() -> String {
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let said = Command::new("python3").args(["-c", version]).output().unwrap().stdout;
    String::from_utf8(said).unwrap().trim().to_owned()
}

/// Bytes on the disk below a directory, each file once.
fn bytes(directory: &Path) -> u64 {
    let mut seen = BTreeSet::new();
    let new = |it: &fs::Metadata| seen.insert(it.ino());
    let all = files(directory).into_iter().map(|path| fs::symlink_metadata(path).unwrap());
    all.filter(new).map(|it| it.blocks() * 512).sum()
}

#[test]
fn what_pip_puts_into_an_archive_is_what_an_index_gives() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up_with(&[("WOOL_HANDLER_CACHE", "false")]);
    let header = "# /// script\n# dependencies = [\"numpy==2.2.6\", \"idna==3.10\"]\n# ///\n";
    let body = "import sys\nBEFORE = 'numpy' in sys.modules\nimport idna, numpy\n\
        def handler(event, context):\n    \
        return [BEFORE, idna.__file__, numpy.__file__, float(numpy.ones(3).sum())]\n";
    if !worker.deploys_from_index("listed", &format!("{header}{body}")) {
        return;
    }
    let before = wheels(&worker);
    let folder = tempfile::tempdir().unwrap();
    let installed = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--python-version"])
        .args([&minor(), "--target", folder.path().to_str().unwrap()])
        .args(["numpy==2.2.6", "idna==3.10"])
        .output()
        .unwrap();
    if !installed.status.success() {
        return machine::skip("network", &String::from_utf8_lossy(&installed.stderr));
    }
    fs::write(folder.path().join("main.py"), body).unwrap();
    let known = deploy(&worker, "brought", folder.path());
    assert_eq!(known["warnings"], json!([]));
    assert_eq!(wheels(&worker), before, "not one more");
    let layers = worker.site().state().join("layers");
    let once = bytes(&layers);
    fs::write(folder.path().join("main.py"), format!("{body}\n# another\n")).unwrap();
    drop(deploy(&worker, "again", folder.path()));
    let more = bytes(&layers).saturating_sub(once);
    assert!(more < 1 << 20, "{more} bytes more");
    for name in ["listed", "brought", "again"] {
        let reply = worker.run(name, &json!(0)).expect(200);
        let packages = ["/opt/python/idna/__init__.py", "/opt/python/numpy/__init__.py"];
        assert_eq!(reply.json(), json!([true, packages[0], packages[1], 3.0]), "{name}");
        assert_eq!(reply.header("Lambswool-Start"), "fork", "{name}");
    }
    worker.assert_well();
}

#[test]
fn a_bundle_that_claims_somebody_elses_package_changes_it_for_nobody() {
    if !can_run() {
        return;
    }
    let index = Index::open();
    index.add_wheel("tinypkg", "WORDS = 'tiny'\n");
    let settings = [("WOOL_INDEXES", index.url()), ("WOOL_HANDLER_CACHE", "false".to_owned())];
    let worker = Site::new().up_with(&settings.each_ref().map(|(name, value)| (*name, &**value)));
    // Its RECORD agrees with its files, and its name and version are another package's.
    let forged = tempfile::tempdir().unwrap();
    fs::write(forged.path().join("main.py"), MAIN).unwrap();
    let mut python = Command::new("python3");
    python.args(["-c", INSTALL]).arg(forged.path()).args(["tinypkg", "WORDS = 'evil'\n"]);
    assert!(python.status().unwrap().success());
    assert_eq!(deploy(&worker, "evil", forged.path())["manifest"]["bundled"], true);
    let said = |name: &str| worker.run(name, &json!(0)).expect(200).json()[2].clone();
    assert_eq!(said("evil"), "evil");
    let of_forged = wheels(&worker);
    let listed = tempfile::tempdir().unwrap();
    fs::write(listed.path().join("main.py"), MAIN).unwrap();
    fs::write(listed.path().join("requirements.txt"), "tinypkg\n").unwrap();
    let project = format!("[tool.uv]\nindex-url = \"{}\"\n", index.url());
    fs::write(listed.path().join("pyproject.toml"), project).unwrap();
    drop(deploy(&worker, "listed", listed.path()));
    drop(deploy(&worker, "brought", folder(MAIN).path()));
    for _ in 0..2 {
        assert_eq!(
            (said("listed"), said("brought"), said("evil")),
            ("tiny".into(), "tiny".into(), "evil".into())
        );
    }
    let added: Vec<String> = wheels(&worker).difference(&of_forged).cloned().collect();
    assert!(added.iter().all(|id| id.starts_with("tinypkg-1.0-")), "{added:?}");
    assert!(!added.is_empty());
    worker.assert_well();
}
