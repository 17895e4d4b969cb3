//! Functions that come and go: each belongs to one client, so that what must be there is known at any moment.
//!
//! A deploy or removal that the worker's death cut off may have been done or not: until the next one, both are right.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use e2e::json;
use fastrand::Rng;

use crate::client::Load;
use crate::epoch::Epoch;
use crate::exchange::Request;
use crate::function::Expected;
use crate::history::History;
use crate::verdict::{Verdict, judge, settle};

/// Functions of each client.
const EACH: u32 = 3;

/// The revisions that a name may be at; none: it is not there.
type Possible = Vec<Option<u64>>;

#[derive(Debug, Default)]
pub(crate) struct OwnFunctions(Mutex<BTreeMap<String, Possible>>);

impl OwnFunctions {
    /// One random step of a client.
    pub(crate) fn step(&self, load: &Load, epoch: &Epoch, client: u32, rng: &mut Rng) {
        let name = format!("own-{client}-{}", rng.u32(0..EACH));
        match rng.u32(0..4) {
            0 => self.remove(load, epoch, &name, rng.bool()),
            1 => self.deploy(load, epoch, &name),
            _ => self.call(load, epoch, &name),
        }
    }

    fn possible(&self, name: &str) -> Possible {
        self.0.lock().unwrap().get(name).cloned().unwrap_or_else(|| vec![None])
    }

    fn set(&self, name: &str, possible: Possible) {
        self.0.lock().unwrap().insert(name.to_owned(), possible);
    }

    fn deploy(&self, load: &Load, epoch: &Epoch, name: &str) {
        let revision = load.next_call();
        let mut either = self.possible(name);
        either.push(Some(revision));
        self.set(name, either);
        let source = format!(
            "import time\ndef handler(event, context):\n    time.sleep(0.02)\n    return {revision}\n"
        );
        let begun = Instant::now();
        let heard = epoch.way(true).exchange(&Request::deploy(name, &source));
        let verdict = settle(&heard, &[200, 201], epoch);
        if matches!(verdict, Verdict::Right) {
            self.set(name, vec![Some(revision)]);
        }
        load.history.called("(deploy own)", revision, begun, &verdict, "");
    }

    /// Removes it, perhaps while it is being called.
    fn remove(&self, load: &Load, epoch: &Epoch, name: &str, called: bool) {
        let before = self.possible(name);
        let mut either = before.clone();
        either.push(None);
        self.set(name, either);
        let statuses: &[u16] = match (before.iter().any(Option::is_some), before.contains(&None)) {
            (true, false) => &[204],
            (true, true) => &[204, 404],
            (false, _) => &[404],
        };
        let verdict = std::thread::scope(|scope| {
            if called {
                scope.spawn(|| self.call(load, epoch, name));
            }
            let begun = Instant::now();
            let heard = epoch.way(true).exchange(&Request::remove(name));
            let verdict = settle(&heard, statuses, epoch);
            load.history.called("(remove own)", 0, begun, &verdict, "");
            verdict
        });
        // Not before the call beside it has ended, which may find it or not.
        if matches!(verdict, Verdict::Right) {
            self.set(name, vec![None]);
        }
    }

    fn call(&self, load: &Load, epoch: &Epoch, name: &str) {
        let (call, possible, begun) = (load.next_call(), self.possible(name), Instant::now());
        let heard = epoch.way(call % 2 == 0).exchange(&Request::call(name, &json!({})));
        let verdicts = possible.iter().map(|revision| {
            let expected = match revision {
                Some(revision) => Expected::Value(json!(revision)),
                None => Expected::Error(404, "unknown-function", String::new()),
            };
            judge(&expected, &heard, epoch, &load.kills)
        });
        let mut verdict = Verdict::Wrong(String::new());
        for one in verdicts {
            verdict = one;
            if !matches!(verdict, Verdict::Wrong(_)) {
                break;
            }
        }
        load.history.called("(call own)", call, begun, &verdict, "");
    }

    /// Whether a worker that has just started knows exactly what it must, and each answers.
    pub(crate) fn check(&self, load: &Load, epoch: &Epoch, shared: &[&str]) {
        let Some(names) = listed(epoch, &load.history) else { return };
        let known = self.0.lock().unwrap().clone();
        for name in shared {
            if !names.iter().any(|listed| listed == name) {
                load.history.failure(format_args!("{name} is lost"));
            }
        }
        for (name, possible) in &known {
            let there = names.contains(name);
            if there && !possible.iter().any(Option::is_some) || !there && !possible.contains(&None)
            {
                load.history.failure(format_args!("{name}: there is {there}, may be {possible:?}"));
            }
            if there {
                self.call(load, epoch, name);
            }
        }
        for name in names.iter().filter(|name| !shared.contains(&name.as_str())) {
            if !known.contains_key(name) {
                load.history.failure(format_args!("{name} was never deployed"));
            }
        }
    }
}

pub(crate) fn listed(epoch: &Epoch, history: &History) -> Option<Vec<String>> {
    match epoch.way(true).exchange(&Request::get("/v1/functions?hidden=true")) {
        Ok(answer) => {
            let functions = answer.json()["functions"].as_array().cloned().unwrap_or_default();
            let names = functions.iter().filter_map(|function| function["name"].as_str());
            Some(names.map(str::to_owned).collect())
        }
        Err(error) => {
            history.failure(format_args!("the functions cannot be listed: {error:?}"));
            None
        }
    }
}
