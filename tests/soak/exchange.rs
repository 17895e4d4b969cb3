//! One request and its one answer, on a connection of its own.
//!
//! The fixture's client cannot hang up half-way or speak over a Unix socket, and would not notice an answer that comes
//! twice: here everything up to the end of the stream is read and accounted for.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use e2e::Value;

/// Longer than any call may take: its timeout, the time that it may wait in the queue, and what a stopped zygote costs.
const PATIENCE: Duration = Duration::from_secs(400);

/// A way to the worker.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Vec<u8>,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) timing: String,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nobody took the connection.
    NotTaken,
    /// The connection broke before the answer was whole.
    CutOff,
    /// We gave up waiting.
    TooLate,
    /// What came is no answer, or more than one.
    Garbled,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A request that was sent. Dropping it hangs up.
pub(crate) struct Asked(Box<dyn Stream>);

impl Request {
    pub(crate) fn call(name: &str, event: &Value) -> Self {
        let body = event.to_string().into_bytes();
        Self {
            method: "POST",
            path: format!("/run/{name}"),
            content_type: "application/json",
            body,
        }
    }

    pub(crate) fn deploy(name: &str, source: &str) -> Self {
        let (path, body) = (format!("/v1/functions/{name}"), source.as_bytes().to_vec());
        Self { method: "PUT", path, content_type: "text/x-python", body }
    }

    pub(crate) fn secret(name: &str, key: &str, value: &str) -> Self {
        let path = format!("/v1/functions/{name}/secrets/{key}");
        Self { method: "PUT", path, content_type: "text/plain", body: value.as_bytes().to_vec() }
    }

    pub(crate) fn remove(name: &str) -> Self {
        Self { method: "DELETE", path: format!("/v1/functions/{name}"), ..Self::get("") }
    }

    pub(crate) fn get(path: &str) -> Self {
        let path = path.to_owned();
        Self { method: "GET", path, content_type: "application/json", body: Vec::new() }
    }
}

impl Way {
    pub(crate) fn ask(&self, request: &Request) -> Result<Asked, Unanswered> {
        let mut stream = self.connect().map_err(|_| Unanswered::NotTaken)?;
        let Request { method, path, content_type, body } = request;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // A worker that answers before it has read everything may close: then the answer tells more than this error.
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        match sent {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unanswered::CutOff),
            _ => Ok(Asked(stream)),
        }
    }

    /// Asks and waits for the answer.
    pub(crate) fn exchange(&self, request: &Request) -> Result<Answer, Unanswered> {
        self.ask(request)?.answer()
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }
}

impl Asked {
    /// Reads to the end of the stream.
    pub(crate) fn answer(mut self) -> Result<Answer, Unanswered> {
        let mut bytes = Vec::new();
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => parse(&bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Unanswered::TooLate),
            Err(_) => Err(Unanswered::CutOff),
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Answer, Unanswered> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let head = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => {
            return Err(Unanswered::CutOff);
        }
        Err(_) => return Err(Unanswered::Garbled),
    };
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| String::from_utf8_lossy(header.value).into_owned())
    };
    let body = &bytes[head..];
    let length = header("content-length").and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
    if body.len() < length {
        return Err(Unanswered::CutOff);
    }
    if body.len() > length {
        return Err(Unanswered::Garbled);
    }
    Ok(Answer {
        status: response.code.unwrap_or(0),
        timing: header("server-timing").unwrap_or_default(),
        body: body.to_vec(),
    })
}

impl Answer {
    /// The body, or what of it fits in a line.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body[..self.body.len().min(300)]).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}
