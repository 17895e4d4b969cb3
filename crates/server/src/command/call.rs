//! `wool invoke`, and the call in `wool run`.

use std::time::Instant;

use anyhow::Result;
use hyper::header::{self, HeaderMap};
use hyper::{Method, StatusCode};

use super::terminal::{columns, say};
use super::{client, event};
use crate::api::{ErrorBody, INVOCATION, START};
use crate::cli::{Event, Global, Invoke};
use crate::client::{Client, ClientError};

pub(super) async fn invoke(global: &Global, invoke: &Invoke) -> Result<()> {
    let client = client(global)?;
    call(&client, &invoke.name, &invoke.event).await.1
}

/// Calls a function and writes its result; also says which invocation it was, when there was one.
pub(super) async fn call(
    client: &Client,
    name: &str,
    options: &Event,
) -> (Option<String>, Result<()>) {
    let mut invocation = None;
    let result = exchange(client, name, options, &mut invocation).await;
    (invocation, result)
}

async fn exchange(
    client: &Client,
    name: &str,
    options: &Event,
    invocation: &mut Option<String>,
) -> Result<()> {
    let body = event::read(options)?;
    let path = format!("/run/{}", segment(name));
    let began = Instant::now();
    let headers = [(header::CONTENT_TYPE, body.content_type.as_str())];
    let response = client.send(Method::POST, &path, &headers, body.bytes).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    *invocation = text(&headers, &INVOCATION);
    let result = client.body(response).await?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    if options.timings {
        say(&timings(&headers, took));
    }
    if status == StatusCode::OK {
        let content_type = text(&headers, &header::CONTENT_TYPE).unwrap_or_default();
        return event::write(options, &result, &content_type);
    }
    match serde_json::from_slice::<ErrorBody>(&result) {
        Ok(said) => Err(ClientError::Refused { status, detail: said.error }.into()),
        Err(_) => Err(client.unexpected(format!("status {status}")).into()),
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
