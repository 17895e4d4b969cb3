//! What the function with a network talks to: it says back what it was told, on each connection once.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

/// Who says nothing for so long has gone, or was stopped for longer than any fault stops anybody.
const PATIENCE: Duration = Duration::from_secs(60);

/// Its port, on loopback. It is there from the first that asks for it on, for as long as this process.
pub(crate) fn port() -> u16 {
    static PORT: LazyLock<u16> = LazyLock::new(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                // The caller may be killed at any moment: that is its own call's failure.
                std::thread::spawn(move || answer(&caller));
            }
        });
        port
    });
    *PORT
}

fn answer(mut caller: &TcpStream) -> std::io::Result<()> {
    caller.set_read_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(caller).read_line(&mut line)?;
    caller.write_all(format!("heard {line}").as_bytes())
}
