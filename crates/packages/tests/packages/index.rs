//! A package index on loopback, and wheels made for it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use packages::indexes::Indexes;
use packages::installer::Installer;
use zip::write::SimpleFileOptions;

/// Serves wheels by PEP 503 until the process ends. Each request's path is noted.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// By file name.
    wheels: Mutex<BTreeMap<String, Vec<u8>>>,
    /// What an `Authorization` header must be.
    secret: Option<String>,
    asked: Mutex<Vec<String>>,
    /// Every `Authorization` header.
    shown: Mutex<Vec<String>>,
}

impl Index {
    /// An open one.
    pub(crate) fn open() -> Self {
        Self::start(None)
    }

    /// One that wants HTTP basic authentication; `token` is `user:password` in base64.
    pub(crate) fn closed(token: &str) -> Self {
        Self::start(Some(format!("Basic {token}")))
    }

    fn start(secret: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { secret, ..Shared::default() });
        let index = Self { port, shared: Arc::clone(&shared) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                // The client may go away in the middle.
                std::thread::spawn(move || drop(shared.serve(&stream)));
            }
        });
        index
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/simple", self.port)
    }

    /// `127.0.0.1:PORT`
    pub(crate) fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn add(&self, file: &str, wheel: Vec<u8>) {
        self.shared.wheels.lock().unwrap().insert(file.to_owned(), wheel);
    }

    /// The same installer, for functions that may name this index; as `name`, unless that is empty.
    pub(crate) fn allowed(&self, installer: &Installer, name: &str) -> Installer {
        allowed(installer, &[(name, &self.url())])
    }

    /// What was shown to it as credentials.
    pub(crate) fn shown(&self) -> Vec<String> {
        self.shared.shown.lock().unwrap().clone()
    }

    /// How often a path with this in it was asked for.
    pub(crate) fn asked(&self, part: &str) -> usize {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().filter(|path| path.contains(part)).count()
    }
}

/// The same installer, for functions that may name these indexes.
pub(crate) fn allowed(installer: &Installer, named: &[(&str, &str)]) -> Installer {
    let entry = |(name, url): &(&str, &str)| {
        let text = if name.is_empty() { (*url).to_owned() } else { format!("{name}={url}") };
        text.parse().unwrap()
    };
    let variable = |name: &str| std::env::var(name).ok();
    let configured = named.iter().map(entry).collect();
    installer.clone().allowing(Indexes::new(configured, Vec::new(), variable).unwrap())
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut request = String::new();
        reader.read_line(&mut request)?;
        let mut authorised = self.secret.is_none();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("authorization") {
                authorised |= self.secret.as_deref() == Some(value);
                self.shown.lock().unwrap().push(value.to_owned());
            }
        }
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        self.asked.lock().unwrap().push(path.clone());
        let (status, kind, body) = if authorised {
            self.answer(&path)
        } else {
            ("401 Unauthorized\r\nWWW-Authenticate: Basic", "text/plain", Vec::new())
        };
        let mut stream = stream;
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        )?;
        stream.write_all(&body)
    }

    fn answer(&self, path: &str) -> (&'static str, &'static str, Vec<u8>) {
        let wheels = self.wheels.lock().unwrap();
        if let Some(wheel) = path.strip_prefix("/files/").and_then(|file| wheels.get(file)) {
            return ("200 OK", "application/octet-stream", wheel.clone());
        }
        let name = path.strip_prefix("/simple/").unwrap_or_default().trim_end_matches('/');
        let prefix = format!("{}-", name.replace('-', "_"));
        let files: Vec<&String> = wheels.keys().filter(|file| file.starts_with(&prefix)).collect();
        if files.is_empty() {
            return ("404 Not Found", "text/plain", Vec::new());
        }
        let link = |file: &&String| format!("<a href=\"/files/{file}\">{file}</a>\n");
        let links: String = files.iter().map(link).collect();
        ("200 OK", "text/html", format!("<html><body>{links}</body></html>").into_bytes())
    }
}

/// A pure wheel `name-1.0` of these files, with its `.dist-info`. Returns its file name, too.
pub(crate) fn wheel(name: &str, version: &str, files: &[(&str, &str)]) -> (String, Vec<u8>) {
    let info = format!("{name}-{version}.dist-info");
    let metadata = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
    let tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n";
    let mut all: Vec<(String, String)> =
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    all.push((format!("{info}/METADATA"), metadata));
    all.push((format!("{info}/WHEEL"), tags.to_owned()));
    let rows = all.iter().map(|(path, _)| format!("{path},,\n"));
    let record: String = rows.chain([format!("{info}/RECORD,,\n")]).collect();
    all.push((format!("{info}/RECORD"), record));
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (path, text) in all {
        archive.start_file(path, SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    let bytes = archive.finish().unwrap().into_inner();
    (format!("{name}-{version}-py3-none-any.whl"), bytes)
}
