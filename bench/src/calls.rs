//! Calls to functions that say what they imported, and how long their own work took: [`crate::observed`].

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::libraries::Library;
use crate::load::{Pending, Shot, Target};
use crate::worker::Worker;

/// What a copy of a function replies.
#[derive(Debug, Deserialize)]
struct Reply {
    work_ns: u64,
    imported: usize,
}

/// Functions of libraries on one worker, as an arm: each call goes to the next of them.
#[derive(Debug)]
pub(crate) struct Calls<'a> {
    worker: &'a Worker,
    name: String,
    event: &'static str,
    functions: Vec<String>,
    next: Cell<usize>,
}

/// Follows `Lambswool-Start` where the function had to import something from packages.
pub(crate) const IMPORTING: &str = " + imports";

/// The event on which a function works.
pub(crate) const WORK: &str = "{\"work\": true}";

/// The event on which a function does nothing.
pub(crate) const REST: &str = "{}";

impl<'a> Calls<'a> {
    /// Calls these functions, and begins anew after the last.
    pub(crate) fn new(
        worker: &'a Worker,
        name: String,
        event: &'static str,
        functions: Vec<String>,
    ) -> Self {
        Self { worker, name, event, functions, next: Cell::new(0) }
    }
}

/// Calls copies that no measurement calls: each once, and again where nothing is kept, until a call imports nothing.
/// Says how many modules the last one still imported.
pub(crate) async fn warm(
    worker: &Worker,
    library: &Library,
    copies: Range<usize>,
) -> Result<usize> {
    let mut left = usize::MAX;
    for attempt in 0..3 * copies.len() {
        let copy = copies.start + attempt % copies.len();
        // Each copy is observed, and what was made for the first may be made anew for all.
        if left == 0 && attempt >= copies.len() {
            break;
        }
        let shot = ask(worker, &library.function(copy), WORK).await?;
        if shot.start == "resume" {
            break;
        }
        left = shot.imported;
        worker.settle().await?;
    }
    Ok(left)
}

/// Calls a function that says what it imported.
pub(crate) async fn ask(worker: &Worker, function: &str, event: &'static str) -> Result<Shot> {
    let (mut shot, body) = worker.ask(function, event).await?;
    let reply: Reply =
        serde_json::from_slice(&body).context("the function's reply is another's")?;
    shot.own = Duration::from_nanos(reply.work_ns);
    // A kept instance says again what it once imported.
    if shot.start != "resume" && reply.imported > 0 {
        shot.imported = reply.imported;
        shot.start.push_str(IMPORTING);
    }
    Ok(shot)
}

impl Target for Calls<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        let number = self.next.get();
        self.next.set(number + 1);
        Box::pin(async move {
            let function = &self.functions[number % self.functions.len()];
            ask(self.worker, function, self.event).await
        })
    }

    fn settle(&self) -> Pending<'_, ()> {
        self.worker.settle()
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.worker.group()
    }
}
