//! `wool logs`.

use anyhow::Result;
use bytes::Bytes;
use hyper::{Method, header};

use super::terminal::pass_on;
use super::{call, client};
use crate::cli::{Global, Logs};

pub(super) async fn logs(global: &Global, logs: &Logs) -> Result<()> {
    let client = client(global)?;
    let mut path = format!(
        "/v1/functions/{}/logs?follow={}&lines={}",
        call::segment(&logs.name),
        logs.follow,
        logs.lines
    );
    if let Some(invocation) = &logs.invocation {
        path.push_str(&format!("&invocation={}", call::segment(invocation)));
    }
    let accept = if global.json { "application/x-ndjson" } else { "text/plain" };
    let response =
        client.ask(Method::GET, &path, &[(header::ACCEPT, accept)], Bytes::new()).await?;
    let mut outcome = Ok(());
    let show = |line: &[u8]| {
        if outcome.is_ok() {
            outcome = pass_on(&[line, b"\n"].concat());
        }
    };
    client.lines(response, show).await?;
    outcome
}
