//! `wool logs`.
//!
//! ```text
//!   following ──► the function is removed: said, and it was a success
//!            └──► the reply is cut off ──ask once more──► no answer: the worker is gone
//!                                                    └──► refused: its own words
//! ```

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hyper::{Method, StatusCode, header};

use super::terminal::{pass_on, say};
use super::{call, client};
use crate::cli::{Global, Logs};
use crate::client::{Client, ClientError};

/// A worker that stops cuts followers off at once, and a moment later accepts no connection any more.
const MOMENT: Duration = Duration::from_millis(300);

pub(super) async fn logs(global: &Global, logs: &Logs) -> Result<()> {
    let client = client(global)?;
    let log = format!("/v1/functions/{}/logs", call::segment(&logs.name));
    let mut path = format!("{log}?follow={}&lines={}", logs.follow, logs.lines);
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
    let told = client.lines(response, show).await;
    outcome?;
    match told {
        Err(cut @ ClientError::Broken { .. }) if logs.follow => why(&client, &log, cut).await?,
        told => told?,
    }
    if logs.follow {
        say(&format!("{} was removed: its log ends here", logs.name));
    }
    Ok(())
}

/// Why a log was not followed to its end; no error when the function was removed meanwhile.
async fn why(client: &Client, log: &str, cut: ClientError) -> Result<(), ClientError> {
    tokio::time::sleep(MOMENT).await;
    let path = format!("{log}?lines=0");
    match client.ask(Method::GET, &path, &[], Bytes::new()).await {
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
        Err(
            ClientError::NoWorker { .. } | ClientError::Broken { .. } | ClientError::Hung { .. },
        ) => Err(ClientError::Gone { target: client.target().clone() }),
        Err(refused) => Err(refused),
        // It is there, or there again.
        Ok(_) => Err(cut),
    }
}
