//! A package index on loopback (PEP 503, metadata apart by PEP 658) that serves the wheels of directories: what is
//! measured of installing never leaves the machine.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// An index that serves until it is dropped, on the runtime that it was started on.
#[derive(Debug)]
pub(crate) struct Index {
    authority: String,
    serving: JoinHandle<()>,
}

/// Wheels by file name.
type Wheels = BTreeMap<String, Served>;

/// A wheel, and its SHA-256 in hexadecimal: without it an installer fetches each wheel whenever it locks one.
#[derive(Debug)]
struct Served {
    path: PathBuf,
    hash: String,
}

impl Served {
    fn of(path: PathBuf) -> Result<Self> {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let hash = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { path, hash })
    }
}

impl Index {
    /// Serves all wheels that lie in `dirs` now.
    pub(crate) async fn serve(dirs: &[&Path]) -> Result<Self> {
        let mut wheels = Wheels::new();
        for dir in dirs {
            let entries = fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))?;
            let paths = entries.flatten().map(|entry| entry.path());
            let paths = paths.filter(|path| path.extension().is_some_and(|e| e == "whl"));
            for path in paths {
                let name = path.file_name().context("a wheel without a name")?;
                wheels.insert(name.to_string_lossy().into_owned(), Served::of(path)?);
            }
        }
        let wheels = Arc::new(wheels);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("open the index")?;
        let authority = listener.local_addr().context("open the index")?.to_string();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let wheels = Arc::clone(&wheels);
                let service = service_fn(move |request: Request<Incoming>| {
                    let answer = answer(&wheels, request.uri().path());
                    async move { answer }
                });
                let connection =
                    http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // The client may go away in the middle.
                tokio::spawn(async move { drop(connection.await) });
            }
        });
        Ok(Self { authority, serving })
    }

    /// As installers want it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/simple", self.authority)
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn answer(wheels: &Wheels, path: &str) -> Result<Response<Full<Bytes>>> {
    let found = if let Some(file) = path.strip_prefix("/files/") {
        match (wheels.get(file), file.strip_suffix(".metadata").and_then(|file| wheels.get(file))) {
            (Some(wheel), _) => Some(("application/octet-stream", fs::read(&wheel.path)?)),
            (None, Some(wheel)) => Some(("text/plain", metadata(&wheel.path)?)),
            (None, None) => None,
        }
    } else {
        let project = path.strip_prefix("/simple/").map(|name| name.trim_end_matches('/'));
        project.and_then(|name| page(wheels, name)).map(|page| ("text/html", page.into_bytes()))
    };
    let response = match found {
        Some((kind, body)) => {
            Response::builder().header(header::CONTENT_TYPE, kind).body(Bytes::from(body).into())
        }
        None => Response::builder().status(StatusCode::NOT_FOUND).body(Bytes::new().into()),
    };
    response.context("no valid answer")
}

/// A project's page; none when no wheel is its.
fn page(wheels: &Wheels, project: &str) -> Option<String> {
    let links: String = wheels
        .iter()
        .filter(|(file, _)| file.split('-').next().is_some_and(|name| normal(name) == normal(project)))
        .map(|(file, Served { hash, .. })| format!("<a href=\"/files/{file}#sha256={hash}\" data-core-metadata=\"true\" data-dist-info-metadata=\"true\">{file}</a>\n"))
        .collect();
    (!links.is_empty()).then(|| format!("<!DOCTYPE html><html><body>{links}</body></html>"))
}

fn normal(name: &str) -> String {
    name.to_lowercase().replace(['_', '.'], "-")
}

fn metadata(wheel: &Path) -> Result<Vec<u8>> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?).context("read a wheel")?;
    let ends =
        |name: &&str| name.ends_with(".dist-info/METADATA") && name.matches('/').count() == 1;
    let name = archive.file_names().find(ends).context("a wheel without METADATA")?.to_owned();
    let mut text = Vec::new();
    archive.by_name(&name).context("read a wheel")?.read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_finds_its_wheels_however_its_name_is_written() {
        let files = ["psycopg2_binary-2.9.13-cp311.whl", "psycopg2-1.0-py3-none-any.whl"];
        let wheels: Wheels = files
            .map(|file| (file.to_owned(), Served { path: PathBuf::new(), hash: "0".to_owned() }))
            .into();
        let page = page(&wheels, "psycopg2-binary").unwrap();
        assert!(page.contains(files[0]) && !page.contains(files[1]), "{page}");
        assert!(super::page(&wheels, "psycopg").is_none());
    }
}
