//! A package index that takes its time for ever: nobody waits for it longer than he wants to, and no installer is left.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use e2e::{Reply, Site, Worker, can_run, eventually, json};

/// Sends a byte now and then, to everybody, as long as the test lives. Where it is.
fn dripping() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/simple", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut request = [0; 4096];
                drop(stream.read(&mut request));
                let head =
                    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 100000\r\n\r\n";
                let mut drops =
                    std::iter::once(head.as_bytes()).chain(std::iter::repeat(&b" "[..]));
                while drops.next().is_some_and(|drop| stream.write_all(drop).is_ok()) {
                    thread::sleep(Duration::from_millis(100));
                }
            });
        }
    });
    url
}

fn up(settings: &[(&str, &str)]) -> Worker {
    let url = dripping();
    let index = [("UV_DEFAULT_INDEX", url.as_str()), ("UV_INDEX_URL", url.as_str())];
    Site::new().up_with(&[&index, settings].concat())
}

const SOURCE: &str = "# /// script\n# dependencies = [\"driptest\"]\n# ///\ndef handler(event, context):\n    return 1\n";

/// What works for the state directory and is no `wool`.
fn installers(site: &Site) -> Vec<String> {
    let state = site.state().to_string_lossy().into_owned();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let command = |entry: fs::DirEntry| {
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        (command.contains(&state) && command.contains("pip compile")).then_some(command)
    };
    entries.filter_map(command).collect()
}

fn begun(worker: &Worker) {
    eventually("the installer asks", || !installers(worker.site()).is_empty());
}

fn ended(site: &Site) {
    eventually("no installer is left", || installers(site).is_empty());
}

#[test]
fn an_index_that_drips_is_given_up_and_the_deploy_says_so() {
    if !can_run() {
        return;
    }
    let worker = up(&[("WOOL_INDEX_TIMEOUT", "3s")]);
    let refused: Reply = worker.deploy("f", SOURCE).expect(503);
    let error = refused.error();
    assert!(error.contains("the index did not answer within 3 s"), "{error}");
    assert!(error.contains("index_timeout"), "{error}");
    assert_eq!(installers(worker.site()), Vec::<String>::new());
    worker.assert_well();
}

#[test]
fn a_deploy_that_its_client_gives_up_ends_its_installer() {
    if !can_run() {
        return;
    }
    let worker = up(&[]);
    let file = worker.site().own().join("f.py");
    fs::write(&file, SOURCE).unwrap();
    // More often than there are turns.
    for _ in 0..3 {
        let mut wool = worker.site().command();
        wool.arg("deploy").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = wool.spawn().unwrap();
        begun(&worker);
        client.kill().unwrap();
        client.wait().unwrap();
        ended(worker.site());
    }
    let plain = "def handler(event, context):\n    return 2\n";
    assert_eq!(worker.try_out("g", plain).expect(200).json(), json!(2));
    worker.assert_well();
}

#[test]
fn no_installer_outlives_its_worker() {
    if !can_run() {
        return;
    }
    let worker = up(&[]);
    let deploy = |worker: &Worker| {
        let client = (**worker).clone();
        thread::spawn(move || {
            drop(client.try_put("/v1/functions/f", "text/x-python", SOURCE.as_bytes()))
        })
    };
    let client = deploy(&worker);
    begun(&worker);
    let site = worker.stop();
    assert_eq!(installers(&site), Vec::<String>::new());
    client.join().unwrap();

    let url = dripping();
    let worker = site.up_with(&[("UV_DEFAULT_INDEX", &url), ("UV_INDEX_URL", &url)]);
    let client = deploy(&worker);
    begun(&worker);
    let site = worker.crash();
    ended(&site);
    client.join().unwrap();
    drop(site.up().stop());
}
