//! Services of the host for sandboxes with outgoing connections.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Serves an address: echoes what a client sends, after its own name.
pub(crate) fn answering_at(address: &str, name: &'static str) -> u16 {
    serving_at(address, name, None)
}

/// Serves an address, and counts open connections if there is a counter.
pub(crate) fn serving_at(
    address: &str,
    name: &'static str,
    open: Option<&'static AtomicUsize>,
) -> u16 {
    let listener = TcpListener::bind((address, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            if let Some(open) = open {
                open.fetch_add(1, Ordering::SeqCst);
            }
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(got @ 1..) = caller.read(&mut bytes) {
                    let _ = caller.write_all(&[name.as_bytes(), b": ", &bytes[..got]].concat());
                }
                if let Some(open) = open {
                    open.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    port
}

pub(crate) fn answering(name: &'static str) -> u16 {
    answering_at("127.0.0.1", name)
}

/// A file that every user can read, as those of `/etc`.
pub(crate) fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), mode).unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A service that reports how each of its connections ended.
pub(crate) fn telling_ends() -> (u16, mpsc::Receiver<&'static str>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for mut caller in listener.incoming().flatten() {
            let tell = tell.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                let end = loop {
                    match caller.read(&mut bytes) {
                        Ok(0) => break "ended",
                        Ok(_) => drop(caller.write_all(b"heard")),
                        Err(_) => break "reset",
                    }
                };
                let _ = tell.send(end);
            });
        }
    });
    (port, told)
}

/// A name server without names: the first part of a name says how it answers.
pub(crate) fn nameless_server(at: &str) {
    let socket = UdpSocket::bind((at, 53)).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let packet = &mut bytes[..length];
            // The query's header becomes the answer's. The first part of the name follows it, after
            // its length.
            let code = match &packet[13..] {
                name if name.starts_with(b"missing") => 3,
                name if name.starts_with(b"bare") => 0,
                _ => 2,
            };
            packet[2] |= 0x80;
            packet[3] = 0x80 | code;
            let _ = socket.send_to(packet, from);
        }
    });
}
