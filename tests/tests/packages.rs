//! Functions with packages, fetched from the index that the machine is configured for.

use std::fs;
use std::path::PathBuf;

use e2e::machine::manifest_dir;
use e2e::{Site, Worker, bundle, can_run, json};

#[test]
fn dependencies_come_from_a_header_a_requirements_file_or_a_project_file() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    if !can_fetch(&worker) {
        return;
    }
    let six = "import six\ndef handler(event, context):\n    return six.__version__\n";
    let header = format!("# /// script\n# dependencies = [\"six==1.16.0\"]\n# ///\n{six}");
    drop(worker.deploy("header", &header).expect(201));
    let files: [(&str, &[u8]); 2] =
        [("main.py", six.as_bytes()), ("requirements.txt", b"six==1.16.0\n")];
    drop(
        worker
            .put("/v1/functions/requirements", "application/zip", &bundle::zip(&files))
            .expect(201),
    );
    let project = b"[project]\nname = \"p\"\nversion = \"1\"\ndependencies = [\"six==1.17.0\"]\n[tool.lambswool]\nhandler = \"app.run\"\nmemory = \"128MB\"\n";
    let app = six.replace("handler", "run");
    let files: [(&str, &[u8]); 2] = [("app.py", app.as_bytes()), ("pyproject.toml", project)];
    drop(
        worker.put("/v1/functions/project", "application/x-tar", &bundle::tar(&files)).expect(201),
    );
    for (name, version) in [("header", "1.16.0"), ("requirements", "1.16.0"), ("project", "1.17.0")]
    {
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), version, "{name}");
        let known = worker.get(&format!("/v1/functions/{name}")).json();
        let lock = known["lock"].as_str().unwrap();
        assert!(lock.contains(&format!("six=={version}")) && lock.contains("sha256:"), "{lock}");
    }
    the_same_lock_is_one_zygote(&worker);
    native_code_works(&worker);
    worker.assert_well();
}

#[test]
fn the_readmes_function_answers_to_what_the_readme_sends() {
    if !can_run() {
        return;
    }
    let readme = fs::read_to_string(manifest_dir().join("../README.md")).unwrap();
    let (_, source) = readme.split_once("```python\n# report.py\n").unwrap();
    let (source, _) = source.split_once("```").unwrap();
    let worker = Site::new().up();
    if !worker.deploys_from_index("report", source) {
        return;
    }
    let commands = readme.lines().filter(|line| line.starts_with("$ ") && line.contains("report"));
    let quoted = commands.filter_map(|line| line.split('\'').nth(1));
    let events: Vec<&str> = quoted.filter(|text| text.starts_with('[')).collect();
    assert_eq!(events.len(), 3, "run, invoke and curl: {events:?}");
    for event in events {
        let answer = worker.run("report", &event.parse().unwrap()).expect(200).json();
        assert_eq!(answer["a"]["count"], 2.0, "{event}: {answer}");
    }
}

fn the_same_lock_is_one_zygote(worker: &Worker) {
    let status = worker.status();
    let zygotes = status["engine"]["zygotes"].as_array().unwrap();
    let with: Vec<_> = zygotes.iter().filter(|zygote| !zygote["packages"].is_null()).collect();
    assert_eq!(with.len(), 2, "one for each version of six: {status}");
    for zygote in with {
        assert_eq!(zygote["failed_imports"], json!([]), "{zygote}");
    }
}

#[test]
fn what_is_locked_is_all_that_is_seen() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let six = "import six\ndef handler(event, context):\n    return six.__version__\n";
    let with = format!("# /// script\n# dependencies = [\"six==1.16.0\"]\n# ///\n{six}");
    if !worker.deploys_from_index("with", &with) {
        return;
    }
    assert_eq!(worker.run("with", &json!({})).expect(200).json(), "1.16.0");
    let source = "def handler(event, context):\n    import six\n";
    let error = worker.try_out("without", source).expect(502).error();
    assert!(error.starts_with("ModuleNotFoundError"), "{error}");
}

fn native_code_works(worker: &Worker) {
    let source = r#"
# /// script
# dependencies = ["Pillow==11.0.0"]
# [tool.lambswool]
# binary = true
# ///
import io
from PIL import Image
def handler(event, context):
    out = io.BytesIO()
    Image.open(io.BytesIO(event)).resize((8, 4)).save(out, "PNG")
    return out.getvalue(), "image/png"
"#;
    drop(worker.deploy("shrink", source).expect(201));
    let photo = fs::read(e2e::machine::manifest_dir().join("../examples/data/photo.jpg")).unwrap();
    let reply = worker.post("/run/shrink", "image/jpeg", &photo).expect(200);
    assert_eq!(reply.header("content-type"), "image/png");
    // A PNG's header: the signature, then IHDR with width and height.
    assert_eq!(&reply.body[1..4], b"PNG");
    assert_eq!(&reply.body[16..24], &[0, 0, 0, 8, 0, 0, 0, 4]);
}

#[test]
fn unresolvable_packages_are_told_in_the_installers_words() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    if !can_fetch(&worker) {
        return;
    }
    for (requirement, words) in [
        ("surely-nobody-calls-a-package-like-this", "was not found"),
        ("six==99.99", "no version of six==99.99"),
    ] {
        let source = format!(
            "# /// script\n# dependencies = [\"{requirement}\"]\n# ///\ndef handler(e, c): pass\n"
        );
        let error = worker.deploy("bad", &source).expect(422).error();
        assert!(error.starts_with("packages: ") && error.contains(words), "{requirement}: {error}");
    }
    for requirement in
        ["-e .", "six @ file:///etc", "--index-url=https://example.org", "six; rm -rf /"]
    {
        let source = format!(
            "# /// script\n# dependencies = [\"{requirement}\"]\n# ///\ndef handler(e, c): pass\n"
        );
        drop(worker.deploy("bad", &source).expect(422));
    }
}

/// Without network: any proxy that answers nobody is a machine without one.
#[test]
fn a_second_deploy_works_offline() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let six = "import six\ndef handler(event, context):\n    return six.__version__\n";
    let source = format!("# /// script\n# dependencies = [\"six==1.16.0\"]\n# ///\n{six}");
    if !worker.deploys_from_index("header", &source) {
        return;
    }
    let nowhere = "http://127.0.0.1:9";
    let offline = [
        ("HTTPS_PROXY", nowhere),
        ("HTTP_PROXY", nowhere),
        ("ALL_PROXY", nowhere),
        ("NO_PROXY", ""),
    ];
    let worker = worker.stop().up_with(&offline);
    assert_eq!(worker.run("header", &json!({})).expect(200).json(), "1.16.0");
    let changed = source.replace("return six", "return 'six ' + six");
    drop(worker.deploy("header", &changed).expect(201));
    assert_eq!(worker.run("header", &json!({})).expect(200).json(), "six 1.16.0");
    worker.assert_well();
}

#[test]
fn the_examples_run() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    if !can_fetch(&worker) {
        return;
    }
    let examples = e2e::machine::manifest_dir().join("../examples");
    let path = |name: &str| -> String { examples.join(name).to_str().unwrap().to_owned() };
    let said = worker.site().wool(&["run", &path("hello/hello.py"), r#"{"name": "Ada"}"#]);
    assert!(said.stderr.contains("greeting Ada"), "{said:?}");
    assert_eq!(said.json()["message"], "Hello, Ada!");
    let small: PathBuf = worker.site().own().join("small.jpg");
    let photo = format!("@{}", path("data/photo.jpg"));
    drop(
        worker
            .site()
            .wool(&["run", &path("thumbnail"), &photo, "-o", small.to_str().unwrap()])
            .ok(),
    );
    let small = fs::read(small).unwrap();
    assert!(small.starts_with(&[0xff, 0xd8]) && small.len() < 20_000, "{} bytes", small.len());
    worker.assert_well();
}

/// Whether packages can be fetched here. A skip is printed, and is a failure where `LAMBSWOOL_REQUIRE` names `network`.
fn can_fetch(worker: &Worker) -> bool {
    let source = "# /// script\n# dependencies = [\"six\"]\n# ///\ndef handler(e, c): pass\n";
    if !worker.deploys_from_index("probe", source) {
        return false;
    }
    drop(worker.delete("/v1/functions/probe").expect(204));
    true
}
