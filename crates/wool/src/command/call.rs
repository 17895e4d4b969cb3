//! `wool invoke`, and the call in `wool run`.

use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};
use sandbox::InvocationId;

use super::terminal::{columns, say};
use super::{client, event};
use crate::cli::{Event, Global, Invoke};
use crate::client::{Client, ClientError};
use doors::error::ErrorBody;
use doors::native::{INVOCATION, START};

pub(super) async fn invoke(global: &Global, invoke: &Invoke) -> Result<()> {
    let client = client(global)?;
    let event = event::read(&invoke.event)?;
    call(&client, &invoke.name, &event, None).await?.conclude(&client, &invoke.event)
}

/// What a worker replied to a call.
#[derive(Debug)]
pub(super) struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
    /// From here, in milliseconds.
    took: f64,
}

/// Calls a function and waits for the reply; the invocation has a random id unless one is chosen.
pub(super) async fn call(
    client: &Client,
    name: &str,
    event: &event::Body,
    id: Option<&InvocationId>,
) -> Result<Reply> {
    let path = path(name);
    let began = Instant::now();
    let mut headers = vec![(header::CONTENT_TYPE, event.content_type.as_str())];
    headers.extend(id.map(|id| (INVOCATION, id.as_str())));
    let response = client.send(Method::POST, &path, &headers, event.bytes.clone()).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = client.body(response).await?;
    Ok(Reply { status, headers, body, took: began.elapsed().as_secs_f64() * 1e3 })
}

impl Reply {
    /// Whether there was no such function.
    pub(super) fn found_nothing(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Writes the result to where the options say.
    ///
    /// # Errors
    /// What went wrong with the call.
    pub(super) fn conclude(self, client: &Client, options: &Event) -> Result<()> {
        // Now, and not before the call: what is piped in has arrived by now.
        if let Some(warning) = event::passed_over(options, std::io::stdin()) {
            say(warning);
        }
        if options.timings {
            say(&timings(&self.headers, self.took));
        }
        if self.status == StatusCode::OK {
            let content_type = text(&self.headers, &header::CONTENT_TYPE).unwrap_or_default();
            return event::write(options, &self.body, &content_type);
        }
        let status = self.status;
        match serde_json::from_slice::<ErrorBody>(&self.body) {
            Ok(said) => Err(ClientError::Refused { status, detail: said.error }.into()),
            Err(_) => Err(client.unexpected(format!("status {status}")).into()),
        }
    }
}

/// Where a function is called: its name may be followed by `:` and a version's number or an alias.
fn path(name: &str) -> String {
    match name.split_once(':') {
        None => format!("/run/{}", segment(name)),
        Some((name, qualifier)) => {
            format!("/run/{}?qualifier={}", segment(name), segment(qualifier))
        }
    }
}

/// A name as one segment of a path; the worker says what is wrong with one that is none.
pub(super) fn segment(name: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let encode = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    name.bytes().map(encode).collect()
}

fn text(headers: &HeaderMap, name: &header::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// The stages of a call as a table, milliseconds.
fn timings(headers: &HeaderMap, total: f64) -> String {
    let mut rows = vec![vec!["stage".to_owned(), format!("{:>10}", "ms")]];
    let stages =
        text(headers, &header::HeaderName::from_static("server-timing")).unwrap_or_default();
    for stage in stages.split(", ").filter(|stage| !stage.is_empty()) {
        let (name, duration) = stage.split_once(";dur=").unwrap_or((stage, "?"));
        rows.push(vec![name.to_owned(), format!("{duration:>10}")]);
    }
    rows.push(vec!["total, seen from here".to_owned(), format!("{total:>10.3}")]);
    let start = text(headers, &START).unwrap_or_else(|| "none".to_owned());
    format!("start: {start}\n{}", columns(&rows).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_stands_behind_a_colon() {
        assert_eq!(path("hello"), "/run/hello");
        assert_eq!(path("hello:live"), "/run/hello?qualifier=live");
        assert_eq!(path("hello:$LATEST"), "/run/hello?qualifier=%24LATEST");
        assert_eq!(path("hello:"), "/run/hello?qualifier=");
    }

    #[test]
    fn a_strange_name_stays_one_segment() {
        assert_eq!(segment("hello-1"), "hello-1");
        assert_eq!(segment("../v1 ü"), "%2E%2E%2Fv1%20%C3%BC");
    }

    #[test]
    fn timings_show_every_stage_and_the_start() {
        let mut headers = HeaderMap::new();
        headers.insert("server-timing", "fork;dur=0.812, call;dur=0.310".parse().unwrap());
        headers.insert(START, "fork".parse().unwrap());
        let table = timings(&headers, 1.5);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "start: fork");
        assert!(lines[2].starts_with("fork ") && lines[2].ends_with("0.812"), "{table}");
        assert!(lines[4].starts_with("total") && lines[4].ends_with("1.500"), "{table}");
    }
}
