//! `wool run`: a function from a file, without deploying it for good.
//!
//! It is deployed under a name that its contents give it ([`throwaway`]), so that a second run finds it there, hidden from
//! lists and forgotten when the worker starts again.

use std::time::SystemTime;

use anyhow::Result;
use bytes::Bytes;
use hyper::{Method, StatusCode, header};

use super::pack::pack;
use super::terminal::say;
use super::{call, client, deploy, state_root, up};
use crate::cli::{Global, Isolation, Run};
use crate::client::{Client, ClientError};
use crate::logs::{Entry, stamp};
use crate::throwaway;

pub(super) async fn run(global: &Global, run: &Run) -> Result<()> {
    let packed = pack(&run.path)?;
    let client = reach(global).await?;
    let isolation = run.isolation.map_or("", Isolation::as_str);
    let (module, kind) = (deploy::module_of(&packed), packed.content_type);
    let name = throwaway::name(isolation, &module, kind, &*packed.bytes)?;
    if !is_there(&client, &name).await? {
        deploy::upload(&client, &name, packed, true, run.isolation).await?;
    }
    // A millisecond early: the log's times are cut to whole ones.
    let began = stamp(SystemTime::now() - std::time::Duration::from_millis(1));
    let (invocation, result) = call::call(&client, &name, &run.event).await;
    if let Some(invocation) = invocation {
        show_output(&client, &name, &invocation, &began).await?;
    }
    result
}

/// The worker that answers, or one that is started now.
async fn reach(global: &Global) -> Result<Client> {
    let client = client(global)?;
    if client.healthy().await || global.url.is_some() {
        return Ok(client);
    }
    let root = state_root(global);
    let started = Client::of(&root);
    if !started.healthy().await {
        say(&format!(
            "no worker answers: starting one on {} (stop it with `wool down`)",
            root.display()
        ));
        up::start_in_background(global, &up::beside_others(global)?).await?;
    }
    Ok(started)
}

async fn is_there(client: &Client, name: &str) -> Result<bool> {
    match client.ask(Method::GET, &format!("/v1/functions/{name}"), &[], Bytes::new()).await {
        Ok(_) => Ok(true),
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Passes on what the function printed, to the stream that does not hold the result.
async fn show_output(client: &Client, name: &str, invocation: &str, since: &str) -> Result<()> {
    let path =
        format!("/v1/functions/{name}/logs?lines=100000&invocation={invocation}&since={since}");
    let accept = [(header::ACCEPT, "application/x-ndjson")];
    let response = client.ask(Method::GET, &path, &accept, Bytes::new()).await?;
    let show = |line: &[u8]| {
        if let Ok(entry) = serde_json::from_slice::<Entry>(line) {
            say(&entry.text);
        }
    };
    Ok(client.lines(response, show).await?)
}
