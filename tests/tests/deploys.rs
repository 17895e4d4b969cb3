//! Deploying: every form of a bundle, versions, redeploys, removal.

use std::fs;

use e2e::{Site, Worker, bundle, can_run, json};

const SOURCE: &[u8] = b"import part\ndef handler(event, context):\n    return part.WORDS\n";
const PART: &[u8] = b"WORDS = 'from a part'\n";

#[test]
fn a_function_comes_as_a_file_a_folder_or_an_archive() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let files: [(&str, &[u8]); 2] = [("main.py", SOURCE), ("part.py", PART)];
    let (tar, zip) = (bundle::tar(&files), bundle::zip(&files));
    for (name, content_type, bytes) in [
        ("from-zip", "application/zip", zip),
        ("from-tar", "application/x-tar", tar.clone()),
        ("from-tar-gz", "application/gzip", bundle::gzip(&tar)),
    ] {
        let deployed =
            worker.put(&format!("/v1/functions/{name}"), content_type, &bytes).expect(201);
        assert_eq!(deployed.json()["handler"], "main.handler");
        assert_eq!(worker.run(name, &json!({})).expect(200).json(), "from a part");
    }
    let folder = worker.site().own().join("folder");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(
        folder.join("main.py"),
        "from sub.part import WORDS\ndef handler(event, context):\n    return WORDS\n",
    )
    .unwrap();
    fs::write(folder.join("sub/part.py"), PART).unwrap();
    let path = folder.to_str().unwrap();
    assert_eq!(worker.site().wool(&["deploy", path, "--json"]).json()["name"], "folder");
    assert_eq!(worker.run("folder", &json!({})).expect(200).json(), "from a part");
    let file = worker.site().own().join("single.py");
    fs::write(&file, "def handler(event, context):\n    return __name__\n").unwrap();
    drop(worker.site().wool(&["deploy", file.to_str().unwrap(), "--name", "other"]).ok());
    assert_eq!(worker.run("other", &json!({})).expect(200).json(), "single");
    worker.assert_well();
}

#[test]
fn a_version_never_changes_and_the_newest_is_current() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let one = version(&worker, "1");
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), 1);
    let two = version(&worker, "2");
    assert_ne!(one, two);
    // An instance of the first is idle: it must not answer for the second.
    let reply = worker.run("f", &json!({})).expect(200);
    assert_eq!((reply.json(), reply.header("lambswool-start")), (json!(2), "fork"));
    // The same contents are the same version, wherever they stand in the history.
    assert_eq!(version(&worker, "1"), one);
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), 1);
    let history = worker.get("/v1/functions/f").json();
    let versions: Vec<&str> = history["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|past| past["version"].as_str().unwrap())
        .collect();
    assert_eq!(versions.len(), 2, "{history}");
    assert!(versions.contains(&one.as_str()) && versions.contains(&two.as_str()));

    // A deploy that fails changes nothing.
    drop(worker.deploy("f", "def handler(event, context:\n").expect(422));
    assert_eq!(worker.run("f", &json!({})).expect(200).json(), 1);

    drop(worker.delete("/v1/functions/f").expect(204));
    for reply in [
        worker.run("f", &json!({})),
        worker.get("/v1/functions/f"),
        worker.delete("/v1/functions/f"),
    ] {
        assert!(reply.expect(404).error().starts_with("unknown-function: "));
    }
    assert_eq!(worker.get("/v1/functions").json(), json!({"functions": []}));
    worker.assert_well();
}

#[test]
fn a_call_under_way_when_its_function_is_replaced_or_removed_still_answers() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let slow = "import time\ndef handler(event, context):\n    print('began', flush=True)\n    time.sleep(0.7)\n    return 'old'\n";
    drop(worker.deploy("f", slow).expect(201));
    std::thread::scope(|scope| {
        let calls: Vec<_> = (0..2).map(|_| scope.spawn(|| worker.run("f", &json!({})))).collect();
        e2e::eventually("both calls have begun", || worker.logs("f").len() == 2);
        drop(worker.deploy("f", "def handler(event, context):\n    return 'new'\n").expect(201));
        assert_eq!(worker.run("f", &json!({})).expect(200).json(), "new");
        drop(worker.delete("/v1/functions/f").expect(204));
        for call in calls {
            assert_eq!(call.join().unwrap().expect(200).json(), "old");
        }
    });
    worker.assert_well();
}

fn version(worker: &Worker, value: &str) -> String {
    let source = format!("def handler(event, context):\n    return {value}\n");
    worker.deploy("f", &source).expect(201).json()["version"].as_str().unwrap().to_owned()
}
