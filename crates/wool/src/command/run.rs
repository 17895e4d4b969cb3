//! `wool run`: a function from a file, without deploying it for good.
//!
//! It is deployed under a name that its contents give it ([`run_name`]), so that a second run finds it there. The worker
//! keeps it in memory alone and leaves it out of lists. It is gone when the worker ends or has no room for more of its kind:
//! also between the look and the call, and then it is deployed once more.

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use hyper::{Method, StatusCode, header};
use sandbox::InvocationId;

use super::call::Reply;
use super::deploy::How;
use super::terminal::say;
use super::{call, client, deploy, event, pack, up};
use crate::cli::{Global, Run};
use crate::client::{Client, ClientError};
use doors::native::{FunctionDetail, random_id};
use platform::logs::{Entry, WORKER, stamp};
use platform::run_name;

pub(super) async fn run(global: &Global, run: &Run) -> Result<()> {
    let found = pack::find(&run.path)?;
    let client = reach(global).await?;
    let packed = deploy::packed(&client, found).await?;
    let (module, kind) = (deploy::module_of(&packed), packed.content_type);
    let name = run_name::name(&run.instead.query(), &module, kind, &*packed.bytes)?;
    let how = How { hidden: true, fresh: run.fresh, instead: run.instead };
    let there = if run.fresh { None } else { find(&client, &name).await? };
    let function = match there {
        Some(function) => function,
        None => deploy::upload(&client, &name, packed.clone(), how).await?,
    };
    deploy::warn_of(&function);
    // Once: it may come from a pipe.
    let event = event::read(&run.event)?;
    let mut output = Output::of_a_call(&client, &name)?;
    let mut reply = output.call(&event).await;
    if reply.as_ref().is_ok_and(Reply::found_nothing) {
        deploy::upload(&client, &name, packed, how).await?;
        reply = output.call(&event).await;
    }
    // Whatever became of the call, what was printed is shown, and before the result.
    let shown = output.rest().await;
    reply?.conclude(&client, &run.event)?;
    shown
}

/// The worker that answers, or one that is started now.
async fn reach(global: &Global) -> Result<Client> {
    let client = client(global)?;
    if global.url.is_none() && !client.healthy().await {
        up::start_beside_others(global).await?;
    }
    Ok(client)
}

async fn find(client: &Client, name: &str) -> Result<Option<FunctionDetail>> {
    match client.get(&format!("/v1/functions/{name}")).await {
        Ok(function) => Ok(Some(function)),
        Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Passes on what a function prints during a call, to the stream that does not hold the result.
struct Output<'a> {
    client: &'a Client,
    name: &'a str,
    invocation: InvocationId,
    /// The last time that was shown, or when it began, and how many entries of that time were.
    shown: (String, usize),
}

impl<'a> Output<'a> {
    fn of_a_call(client: &'a Client, name: &'a str) -> Result<Self> {
        // A millisecond early: the log's times are cut to whole ones.
        let began = stamp(SystemTime::now() - Duration::from_millis(1));
        let invocation = random_id().context("the kernel gives no random bytes")?;
        Ok(Self { client, name, invocation, shown: (began, 0) })
    }

    /// Calls the function, and shows what is printed meanwhile.
    async fn call(&mut self, event: &event::Body) -> Result<Reply> {
        let id = self.invocation.clone();
        tokio::select! {
            reply = call::call(self.client, self.name, event, Some(&id)) => reply,
            never = self.follow() => match never {},
        }
    }

    /// Shows what is printed while the function runs.
    async fn follow(&mut self) -> Infallible {
        // Whether it ends early or fails: the rest is shown after the call.
        drop(self.read(true).await);
        std::future::pending().await
    }

    /// Shows what was not shown yet. It is all there when the reply is.
    async fn rest(&mut self) -> Result<()> {
        self.read(false).await
    }

    async fn read(&mut self, follow: bool) -> Result<()> {
        let (name, id, (since, already)) = (self.name, &self.invocation, self.shown.clone());
        let path = format!(
            "/v1/functions/{name}/logs?follow={follow}&lines=100000&invocation={id}&since={since}"
        );
        let accept = [(header::ACCEPT, "application/x-ndjson")];
        let response = self.client.ask(Method::GET, &path, &accept, Bytes::new()).await?;
        let mut old = already;
        let show = |line: &[u8]| {
            let Ok(entry) = serde_json::from_slice::<Entry>(line) else { return };
            if entry.time == since && old > 0 {
                old -= 1;
                return;
            }
            // How the call failed is told at its end.
            if entry.stream != WORKER {
                say(&entry.text);
            }
            if entry.time == self.shown.0 {
                self.shown.1 += 1;
            } else {
                self.shown = (entry.time, 1);
            }
        };
        Ok(self.client.lines(response, show).await?)
    }
}
