//! A program in one way: deployed, called twice, removed.

use e2e::{Everywhere, Reply, Value, Way, bundle};

use crate::outcome::{Outcome, first_line};
use crate::program::{Program, REQUEST};

/// Deploys are tried so often where the index is slow.
const DEPLOYS: usize = 2;

/// Runs it.
pub(crate) fn run(ways: &Everywhere, way: Way, program: &Program) -> Outcome {
    Outcome::judge(calls(ways, way, program), program.limit(way))
}

/// Whether packages were imported ahead, or what the first thing was that went wrong.
fn calls(ways: &Everywhere, way: Way, program: &Program) -> Result<bool, String> {
    let worker = ways.worker(way);
    let name = format!("c-{}", program.name);
    let bundle = bundle::zip(&[
        ("main.py", program.function().as_bytes()),
        ("request.py", REQUEST.as_bytes()),
    ]);
    let place = format!("/v1/functions/{name}");
    let path = format!("{place}?{}", way.query());
    let mut deployed = Err("no deploy was tried".to_owned());
    for _ in 0..DEPLOYS {
        deployed = worker
            .try_put(&path, "application/zip", &bundle)
            .map_err(|error| format!("no answer to the deploy: {error}"));
        if deployed.as_ref().is_ok_and(|reply| reply.status != 503) {
            break;
        }
    }
    let deployed = deployed?;
    if deployed.status != 201 {
        return Err(said("the deploy", &deployed));
    }
    let result =
        call(ways, way, &name, 1).and_then(|imported| call(ways, way, &name, 2).map(|_| imported));
    drop(worker.try_delete(&place));
    result
}

fn call(ways: &Everywhere, way: Way, name: &str, number: usize) -> Result<bool, String> {
    let reply = ways
        .worker(way)
        .try_post(&format!("/run/{name}"), "application/json", b"{}")
        .map_err(|error| format!("no answer to call {number}: {error}"))?;
    if reply.status != 200 {
        return Err(said(&format!("call {number}"), &reply));
    }
    let start = reply.header("Lambswool-Start");
    if number == 1 && !way.starts().contains(&start) {
        return Err(format!("the instance was made by {start:?}"));
    }
    let answer: Value = reply.json();
    match (way, &answer["imported"]) {
        _ if answer["work"] != "right" => Err(format!("it answers {answer}")),
        (Way::Fresh, Value::Bool(true)) => {
            Err("a fresh interpreter had imported packages".to_owned())
        }
        (_, imported) => Ok(imported == true),
    }
}

fn said(what: &str, reply: &Reply) -> String {
    let error: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let message = match error["error"]["message"].as_str() {
        Some(message) => {
            format!("{}: {}", error["error"]["type"].as_str().unwrap_or("?"), first_line(message))
        }
        None => first_line(&reply.text()),
    };
    first_line(&format!("{what}: {} {message}", reply.status))
}
