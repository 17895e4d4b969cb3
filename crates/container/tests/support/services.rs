//! Services of the host for sandboxes that may connect to something.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Answers whoever connects at an address with what they have said, after its own name, until they go.
pub(crate) fn answering_at(address: &str, name: &'static str) -> u16 {
    serving_at(address, name, None)
}

/// The same; where there is a count, connections that are open are counted.
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

/// A file for everybody to read, as those of `/etc` are.
pub(crate) fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(file.path(), mode).unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A service that tells by what each of its connections ends.
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

/// A server for names that has none: of each it says what the first part of the name says.
pub(crate) fn nameless_server(at: &str) {
    let socket = UdpSocket::bind((at, 53)).unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut bytes) {
            let packet = &mut bytes[..length];
            // Its header becomes an answer's; the first part of the name comes after that and its own length.
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
