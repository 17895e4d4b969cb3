//! Requests that are none, are too large, or come too often.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use e2e::traces::peak_memory;
use e2e::{Site, Worker, can_run};

#[test]
fn a_gigabyte_is_refused_without_being_kept() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let token = token(&site);
    let worker = site.up_with(&[("WOOL_TOKENS", "off")]);
    drop(worker.try_out("f", "def handler(event, context): pass\n").expect(200));
    let before = peak_memory(worker.pid());
    for (method, path) in [("POST", "/run/f"), ("PUT", "/v1/functions/g")] {
        for announced in [true, false] {
            let status = send_zeros(&worker, &token, method, path, 1 << 30, announced);
            assert!(status.contains(" 413 "), "{method} {path}: {status}");
        }
    }
    let grown = peak_memory(worker.pid()).saturating_sub(before);
    assert!(grown < 50 << 10, "the worker has grown by {grown} KiB");
    let left = std::fs::read_dir(worker.site().state().join("run")).unwrap().flatten();
    let left: Vec<_> =
        left.filter(|entry| entry.metadata().is_ok_and(|m| m.len() > 1 << 20)).collect();
    assert!(left.is_empty(), "{left:?}");
    worker.assert_well();
}

#[test]
fn what_is_no_json_never_reaches_a_sandbox() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("f", "def handler(event, context): pass\n").expect(201));
    for body in [&b"{"[..], b"{'a': 1}", b"a=1", b"NaN", b"\"\xff\"", b"{} {}"] {
        let reply = worker.post("/run/f", "application/json", body).expect(400);
        assert!(reply.error().starts_with("bad-json: "), "{}", reply.error());
    }
    let deep = "[".repeat(1 << 20);
    drop(worker.post("/run/f", "application/json", deep.as_bytes()).expect(400));
    let instances = &worker.status()["engine"]["instances"];
    for kind in ["busy", "idle", "creating", "idle_bytes"] {
        assert_eq!(instances[kind], 0, "{instances}");
    }
    worker.assert_well();
}

#[test]
fn an_odd_name_is_answered_with_the_rule() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let long = "a".repeat(65);
    for name in [
        "-a",
        "_a",
        "a.b",
        "a%20b",
        "a%2Fb",
        "%2e%2e%2fetc",
        "%00",
        "%ff",
        "%C3%BC",
        "a%0Ab",
        &long,
    ] {
        let deployed = worker.put(
            &format!("/v1/functions/{name}"),
            "text/x-python",
            b"def handler(e, c): pass\n",
        );
        let called = worker.post(&format!("/run/{name}"), "application/json", b"{}");
        for reply in [deployed, called, worker.get(&format!("/v1/functions/{name}"))] {
            let error = reply.expect(400).error();
            assert!(
                error.starts_with("bad-name: ") && error.contains("1 to 64 letters"),
                "{name}: {error}"
            );
        }
    }
    let longest = "a".repeat(64);
    let source = "def handler(event, context):\n    return context.function_name\n";
    assert_eq!(worker.try_out(&longest, source).expect(200).json(), longest.as_str());
    drop(worker.get("/nothing/here").expect(404));
    drop(worker.delete("/healthz").expect(405));
    worker.assert_well();
}

#[test]
fn ten_thousand_unknown_functions_leave_nothing_in_memory() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    let ask = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            let path = format!("/run/unknown-{number}");
            drop(worker.post(&path, "application/json", b"{}").expect(404));
        }
    };
    let ask_from_all_sides = |first: usize, each: usize| {
        std::thread::scope(|scope| {
            for side in 0..4 {
                let begin = first + side * each;
                scope.spawn(move || ask(begin..begin + each));
            }
        });
    };
    // Fewer where a request takes longer.
    let rounds = 250 / e2e::slow() as usize;
    ask_from_all_sides(0, rounds);
    let before = peak_memory(worker.pid());
    ask_from_all_sides(1000, 9 * rounds);
    let grown = peak_memory(worker.pid()) - before;
    assert!(grown < 4 << 10, "the worker has grown by {grown} KiB");
    let metrics = worker.get("/metrics").text();
    assert!(!metrics.contains("unknown-"), "names nobody deployed are no labels");
    let logs = std::fs::read_dir(worker.site().state().join("logs")).unwrap().count();
    assert_eq!(logs, 0, "no logs of unknown functions");
    worker.assert_well();
}

/// Once such a connection was closed behind the refusal, and the client's next call on it was lost.
#[test]
fn a_refusal_leaves_the_connection_usable_when_the_body_comes_after_the_headers() {
    if !can_run() {
        return;
    }
    let site = Site::new();
    let token = token(&site);
    let worker = site.up();
    let mut stream = TcpStream::connect(address(&worker)).unwrap();
    stream.set_nodelay(true).unwrap();
    for (method, path, status) in [
        ("POST", "/run/unknown", " 404 "),
        ("POST", "/run/a.b", " 400 "),
        ("PUT", "/v1/functions/-", " 400 "),
        ("DELETE", "/v1/functions/unknown", " 404 "),
        ("POST", "/nothing/here", " 404 "),
        ("GET", "/healthz", " 200 "),
    ] {
        let host = address(&worker);
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\nContent-Length: 2\r\n\r\n"
        )
        .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        stream.write_all(b"{}").unwrap();
        let mut answer = BufReader::new(&stream);
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        assert!(line.contains(status), "{method} {path}: {line:?}");
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            answer.read_line(&mut line).unwrap();
            let header = line.to_ascii_lowercase();
            length = header
                .strip_prefix("content-length: ")
                .map_or(length, |v| v.trim().parse().unwrap());
        }
        answer.read_exact(&mut vec![0; length]).unwrap();
    }
}

#[test]
fn a_foreign_web_page_is_kept_out() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("f", "def handler(event, context): pass\n").expect(201));
    for (path, header, status) in [
        ("/run/f", "Origin: https://evil.example", " 403 "),
        ("/run/f", "Sec-Fetch-Site: cross-site", " 403 "),
        // Stopping is for whoever may open the socket in the state directory.
        ("/v1/stop", "Sec-Fetch-Site: none", " 404 "),
    ] {
        let mut stream = TcpStream::connect(address(&worker)).unwrap();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\n{header}\r\nContent-Length: 2\r\n\r\n{{}}",
            address(&worker)
        )
        .unwrap();
        assert!(status_line(stream).contains(status), "{path} {header}");
    }
}

#[test]
fn a_request_whose_length_can_be_read_in_two_ways_is_refused() {
    if !can_run() {
        return;
    }
    let worker = Site::new().up();
    drop(worker.deploy("f", "def handler(event, context): pass\n").expect(201));
    let host = address(&worker);
    let ask = |before: &str, lines: &str, body: &str, place: Option<usize>| {
        let mut stream = TcpStream::connect(&host).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        // What comes behind is a request of its own for a reader that goes by the other length.
        let next = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let asked = format!("POST /run/f HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n{body}{next}");
        let sent = format!("{before}{asked}");
        let (first, second) = sent.split_at(place.map_or(0, |place| before.len() + place));
        stream.write_all(first.as_bytes()).unwrap();
        if place.is_some() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        // The worker may have closed its end already.
        drop(stream.write_all(second.as_bytes()));
        let mut said = Vec::new();
        drop(stream.read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said).into_owned();
        let answers = said.split("HTTP/1.1 ").skip(1);
        answers.map(|answer| answer[..3].parse().unwrap()).collect::<Vec<u16>>()
    };
    let (length, chunked) = ("Content-Length: 7\r\n", "Transfer-Encoding: chunked\r\n");
    let body = "2\r\n{}\r\n0\r\n\r\n";
    for lines in [
        format!("{length}{chunked}"),
        format!("{chunked}{length}"),
        format!("{chunked}content-length:7\r\n"),
        format!("{chunked}A: b\r\nContent-Length: 0\r\n"),
        format!("{length}{length}{chunked}"),
        "Content-Length: 7\r\nContent-Length: 8\r\n".to_owned(),
        "Content-Length: 7, 7\r\n".to_owned(),
        "Content-Length: +7\r\n".to_owned(),
        "Transfer-Encoding: chunked, chunked\r\n".to_owned(),
        format!("{chunked}{chunked}"),
        "Transfer-Encoding: chunked, identity\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Content-Length : 7\r\n".to_owned(),
        "A: b\r\n Content-Length: 7\r\n".to_owned(),
        "Transfer-Encoding:\r\n chunked\r\n".to_owned(),
    ] {
        assert_eq!(ask("", &lines, body, None), [400], "{lines:?}");
    }
    assert_eq!(ask("", "Transfer-Encoding: gzip, chunked\r\n", body, None), [501]);
    // Wherever it stands on its connection, and however it comes.
    let post = format!("POST /run/f HTTP/1.1\r\nHost: {host}\r\n");
    let empty_lines = "\r\n".repeat(40_000);
    let long = format!("{post}Content-Length: 100002\r\n\r\n{{}}{}", " ".repeat(100_000));
    for (before, served) in [
        (&*empty_lines, 0),
        (&*format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n"), 1),
        (&*format!("{post}{chunked}\r\n{body}{empty_lines}"), 1),
        (&*format!("{post}{chunked}\r\n{body}{post}content-length: 2\r\n\r\n{{}}\n"), 2),
        (&*long, 1),
        // A trailer with a bare line feed ends later for hyper than for others.
        (&*format!("{post}{chunked}\r\n2\r\n{{}}\r\n0\r\nA: b\n\r\nX: y\r\n\r\n"), 1),
        (&*format!("{post}{chunked}\r\n2\r\n{{}}\r\n0\r\n\n\r\nX: y\r\n\r\n"), 1),
    ] {
        let mut expected = vec![200; served];
        expected.push(400);
        for lines in [format!("{length}{chunked}"), format!("{chunked}{length}")] {
            // In one write; in the middle of the first line, of either header, of the empty line.
            let begun = post.len();
            let places = [0, 4, begun, begun + 6, begun + 19, begun + 30, begun + lines.len() + 1];
            for place in std::iter::once(None).chain(places.map(Some)) {
                let mut answers = ask(before, &lines, body, place);
                // So many empty lines can be more than a head may have, which depends on the pieces they come in.
                if before.ends_with(&empty_lines) && answers.last() == Some(&431) {
                    *answers.last_mut().unwrap() = 400;
                }
                let behind = &before[..before.len().min(80)];
                assert_eq!(answers, expected, "{lines:?} parted at {place:?} behind {behind:?}");
            }
        }
    }
    // Either by itself, and the same one twice (RFC 9110, 8.6), is a request that is followed by another.
    for (lines, body) in [
        ("Content-Length: 2\r\n", "{}"),
        ("Content-Length: 2\r\nContent-Length: 2\r\n", "{}"),
        (chunked, body),
        (chunked, "2;a=\"b\"\r\n{}\r\n0\r\nContent-Length: 7\r\n\r\n"),
        ("Transfer-Encoding: Chunked\r\n", body),
        ("Transfer-Encoding: , chunked\r\n", body),
        (&*format!("Content-Length:{}2\r\n", " ".repeat(300)), "{}"),
        (&*format!("Content-Length: {}2\r\n", "0".repeat(300)), "{}"),
    ] {
        for place in [None, Some(20), Some(post.len() + lines.len() + 3)] {
            assert_eq!(ask("", lines, body, place), [200, 200], "{lines:?} {body:?} {place:?}");
        }
    }
    worker.assert_well();
}

/// By hand: a client library would stop at the refusal, and a bad client goes on sending.
fn send_zeros(
    worker: &Worker,
    token: &str,
    method: &str,
    path: &str,
    bytes: usize,
    announced: bool,
) -> String {
    let mut stream = TcpStream::connect(address(worker)).unwrap();
    let length = if announced {
        format!("Content-Length: {bytes}")
    } else {
        "Transfer-Encoding: chunked".to_owned()
    };
    let host = address(worker);
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\nContent-Type: application/zip\r\n{length}\r\n\r\n").unwrap();
    let piece = vec![0; 1 << 20];
    for _ in 0..bytes >> 20 {
        let sent = if announced {
            stream.write_all(&piece)
        } else {
            write!(stream, "{:x}\r\n", piece.len())
                .and_then(|()| stream.write_all(&piece))
                .and_then(|()| stream.write_all(b"\r\n"))
        };
        if sent.is_err() {
            break;
        }
    }
    // The worker may have closed its end already.
    drop(stream.write_all(b"0\r\n\r\n"));
    status_line(stream)
}

/// The header with a token that may do everything.
fn token(site: &Site) -> String {
    let token = site.wool(&["token", "create", "all", "--scope", "admin"]).ok();
    format!("Authorization: Bearer {}", token.trim())
}

fn status_line(stream: TcpStream) -> String {
    let mut line = String::new();
    drop(BufReader::new(stream.take(4096)).read_line(&mut line));
    line
}

fn address(worker: &Worker) -> String {
    worker.url().trim_start_matches("http://").to_owned()
}
