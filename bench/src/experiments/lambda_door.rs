//! Warm calls through AWS Lambda's API, beside the same calls through our own.
//!
//! Three arms on one worker: a function through our API; the same function through Lambda's; and one that Lambda's API
//! made, which also gets AWS's context and whose log gets the lines that AWS writes around a call. The arms take turns, so
//! that they see the same machine.
//!
//! Then first calls: functions that the API has just made, all called at once, each for the first time.

use std::io::{Cursor, Write as _};

use anyhow::{Context as _, Result};
use base64::prelude::*;
use hyper::Method;
use serde_json::json;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::{Measured, shares};
use crate::functions;
use crate::load::{Pending, Shot, Target, Until, closed};
use crate::run::{Comparison, Run};
use crate::sample::{Mode, median, quantile};
use crate::stage::Stage;
use crate::worker::Worker;

pub(super) const FIGURE: &str = "lambda_door";
pub(super) const TITLE: &str = "Warm calls through AWS Lambda's API, beside our own API";

const NATIVE: &str = "our API";
const SAME: &str = "Lambda's API, the same function";
const MADE: &str = "Lambda's API, a function that it made";

/// The function that Lambda's API makes.
const FUNCTION: &str = "made";

const FIRST: &str = "first calls, all at once";

/// Functions that are made, and then called at once.
const FUNCTIONS: usize = 50;

/// The longest of their first calls, and the median, in milliseconds.
const LONGEST: f64 = 500.0;
const USUAL: f64 = 200.0;

/// Clients at a time, where the rate is measured.
const CLIENTS: usize = 10;

/// How much longer a call may take, and how many of the calls a second must be left.
const MOST: f64 = 1.15;
const LEAST: f64 = 0.9;

pub(super) async fn measure(stage: &Stage) -> Result<Measured> {
    let mut run = Run::new(FIGURE, TITLE);
    let (rounds, alone, many) =
        (stage.amount(30, 2), stage.amount(200, 10), stage.amount(1000, 50));
    run.method = vec![
        format!("one worker; each of {rounds} rounds calls every arm {alone} times, one call at a time, and {many} times, {CLIENTS} at a time; who begins changes from round to round"),
        "a call replies with the event that it got; every instance was there before the first measured call".to_owned(),
        format!("`{NATIVE}`: `POST /run/NAME`"),
        format!("`{SAME}`: `POST /2015-03-31/functions/NAME/invocations`"),
        format!("`{MADE}`: made by `CreateFunction`; its log gets START, END and REPORT lines"),
        format!("`{FIRST}`: {FUNCTIONS} functions that `CreateFunction` made, each in a file of its own, called over connections that were there, the first time and all at the same moment; in each of five rounds others"),
    ];
    let noops = stage.template(&functions::Noops, 1).await?;
    let worker = stage.worker_on(&noops, "worker", &[], CLIENTS).await?;
    make(&worker, FUNCTION, 0).await?;
    let noop = functions::name(0);
    let mut arms = [
        Door { worker: &worker, name: NATIVE, path: format!("/run/{noop}") },
        Door { worker: &worker, name: SAME, path: invocations(&noop) },
        Door { worker: &worker, name: MADE, path: invocations(FUNCTION) },
    ];
    for arm in &arms {
        closed(arm, 0, CLIENTS, Until::Calls(20 * CLIENTS)).await?;
    }
    stage.rest(&mut run).await?;
    for round in 0..rounds {
        for (clients, calls) in [(1, alone), (CLIENTS, many)] {
            for arm in &arms {
                run.add(closed(arm, round, clients, Until::Calls(calls)).await?);
            }
        }
        arms.rotate_left(1);
    }
    for round in 0..stage.amount(5, 1) {
        let names: Vec<String> =
            (0..FUNCTIONS).map(|number| format!("first-{round}-{number}")).collect();
        for (number, name) in names.iter().enumerate() {
            make(&worker, name, number + 1).await?;
        }
        worker.connect(FUNCTIONS).await?;
        worker.settle().await?;
        let arm = Firsts { worker: &worker, names };
        run.add(closed(&arm, round, FUNCTIONS, Until::Calls(FUNCTIONS)).await?);
    }
    worker.stop().await?;
    for arm in [SAME, MADE] {
        let compared = compared(&run, arm);
        run.comparisons.extend(compared);
    }
    let firsts: Vec<f64> = run.answered(FIRST).iter().map(|sample| sample.latency_ms).collect();
    for (what, at, most) in [("longest", 1000, LONGEST), ("p50", 500, USUAL)] {
        let ours = quantile(&firsts, at);
        run.comparisons.push(Comparison {
            what: format!("{what} of {FIRST}, of {FUNCTIONS} functions"),
            paper: String::new(),
            target: format!("≤ {most} ms"),
            ours: format!("{ours:.1} ms"),
            reached: ours.is_finite().then_some(ours <= most),
        });
    }
    let plots = vec![("plot", shares(&run, [NATIVE, SAME, MADE], 2.0))];
    Ok(Measured { run, plots })
}

fn invocations(function: &str) -> String {
    format!("/2015-03-31/functions/{function}/invocations")
}

/// Makes a function as a client of AWS does. The number tells its code from others'.
async fn make(worker: &Worker, name: &str, number: usize) -> Result<()> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("app.py", SimpleFileOptions::default())?;
    let source = format!("NUMBER = {number}\n\n\ndef handler(event, context):\n    return event\n");
    zip.write_all(source.as_bytes())?;
    let zip = zip.finish()?.into_inner();
    let request = json!({
        "FunctionName": name,
        "Runtime": worker.runtime().await?,
        "Role": "arn:aws:iam::000000000000:role/any",
        "Handler": "app.handler",
        "Code": { "ZipFile": BASE64_STANDARD.encode(zip) },
    });
    let (path, json) = ("/2015-03-31/functions", "application/json");
    let made = worker.control().send(Method::POST, path, json, request.to_string()).await?;
    made.good().context("make a function by Lambda's API")?;
    Ok(())
}

/// A function behind one of the two APIs, as an arm.
#[derive(Debug)]
struct Door<'a> {
    worker: &'a Worker,
    name: &'static str,
    path: String,
}

impl Target for Door<'_> {
    fn name(&self) -> &str {
        self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async { Ok(self.worker.post(&self.path, "{}").await?.0) })
    }

    fn settle(&self) -> Pending<'_, ()> {
        self.worker.settle()
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.worker.group()
    }
}

/// Functions that were never called; each client calls its own.
#[derive(Debug)]
struct Firsts<'a> {
    worker: &'a Worker,
    names: Vec<String>,
}

impl Target for Firsts<'_> {
    fn name(&self) -> &str {
        FIRST
    }

    fn shoot(&self, client: usize) -> Pending<'_, Shot> {
        let path = invocations(&self.names[client]);
        Box::pin(async move { Ok(self.worker.post(&path, "{}").await?.0) })
    }

    fn group(&self) -> Option<&crate::cpu::CpuGroup> {
        self.worker.group()
    }
}

/// What is to be said of an arm beside our own API.
fn compared(run: &Run, arm: &str) -> [Comparison; 2] {
    let one = |arm: &str| {
        let samples = run.answered(arm).into_iter();
        let alone = samples.filter(|sample| sample.mode == Mode::Closed && sample.level < 1.5);
        let times: Vec<f64> = alone.map(|sample| sample.latency_ms).collect();
        quantile(&times, 500)
    };
    let (ours, theirs) = (one(arm), one(NATIVE));
    let slower = ours / theirs;
    let rate = median(&run.ratios(arm, NATIVE, CLIENTS as f64));
    [
        Comparison {
            what: format!("p50 of a call, {arm}, over {NATIVE}"),
            paper: String::new(),
            target: format!("≤ {MOST}×"),
            ours: format!("{slower:.3}× ({ours:.3} over {theirs:.3} ms)"),
            reached: slower.is_finite().then_some(slower <= MOST),
        },
        Comparison {
            what: format!("calls a second, {CLIENTS} at a time, {arm}, over {NATIVE}"),
            paper: String::new(),
            target: format!("≥ {LEAST}×"),
            ours: format!("{rate:.3}×"),
            reached: rate.is_finite().then_some(rate >= LEAST),
        },
    ]
}
