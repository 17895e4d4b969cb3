//! Bundles that no function is made of: archives that lie, links, bombs.

use e2e::{Site, Worker, bundle, can_run};
use tar::EntryType;

const GOOD: &[u8] = b"def handler(event, context): pass\n";

#[test]
fn a_bad_archive_is_refused_with_its_entry_named_and_nothing_is_written_outside() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let outside = worker.site().own().join("escaped.py");
    let absolute = outside.to_str().unwrap();
    let climbing = "../../../../../../escaped.py";
    for (archive, entry) in [
        (bundle::zip(&[("main.py", GOOD), (climbing, GOOD)]), climbing),
        (bundle::zip(&[("main.py", GOOD), (absolute, GOOD)]), "escaped.py"),
        (bundle::zip_with_link("secret", "/etc/passwd"), "secret"),
        (bundle::zip_bomb(64 << 20), "main.py"),
    ] {
        refused(&worker, "application/zip", &archive, entry);
    }
    for (archive, entry) in [
        (bundle::tar(&[("main.py", GOOD), (climbing, GOOD)]), climbing),
        (bundle::tar(&[("main.py", GOOD), ("/escaped.py", GOOD)]), "escaped.py"),
        (bundle::tar_with("secret", EntryType::Symlink, "/etc/passwd"), "secret"),
        (bundle::tar_with("secret", EntryType::Link, "/etc/passwd"), "secret"),
        (bundle::tar_with("pipe", EntryType::Fifo, ""), "pipe"),
        (bundle::tar_with("null", EntryType::Char, ""), "null"),
    ] {
        refused(&worker, "application/x-tar", &archive, entry);
    }
    assert!(!outside.exists());
    for place in ["/escaped.py", "/tmp/escaped.py"] {
        assert!(!std::path::Path::new(place).exists(), "{place}");
    }
    nothing_is_left_of_what_was_refused(&worker);
    worker.assert_well();
}

#[test]
fn what_is_no_archive_is_refused_as_what_it_was_called() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let half = &bundle::zip(&[("main.py", GOOD)])[..40];
    refused(&worker, "application/zip", b"not a zip", "zip");
    refused(&worker, "application/zip", half, "zip");
    refused(&worker, "application/gzip", b"not a gzip", "tar");
    refused(&worker, "application/zip", &bundle::zip(&[]), "empty");
    refused(&worker, "application/zip", &bundle::zip(&[("readme.txt", b"hello")]), "no entry file");
    refused(&worker, "text/x-python", b"\xff\xfe", "UTF-8");
    let odd = worker.put("/v1/functions/f", "application/pdf", b"%PDF").expect(415);
    assert!(odd.error().contains("text/x-python"), "{}", odd.error());
    worker.assert_well();
}

fn refused(worker: &Worker, content_type: &str, archive: &[u8], words: &str) {
    let reply = worker.put("/v1/functions/bad", content_type, archive).expect(422);
    assert!(reply.error().contains(words), "{words}: {}", reply.error());
    drop(worker.get("/v1/functions/bad").expect(404));
}

fn nothing_is_left_of_what_was_refused(worker: &Worker) {
    let layers = worker.site().state().join("layers");
    let code = std::fs::read_dir(layers.join("code")).into_iter().flatten().flatten();
    assert_eq!(
        code.map(|entry| entry.path()).collect::<Vec<_>>(),
        Vec::<std::path::PathBuf>::new()
    );
}
