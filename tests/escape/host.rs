//! The host itself: what an attack meets where nothing of ours confines it.
//!
//! It tells what the host lacks from what we refuse, since the filter refuses as a kernel does that lacks something. And it shows of
//! an attack that no missing defence lets through that it would do what it says.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};

use container::Defence;
use serde_json::{Value, json};

use crate::attack::{Attack, Outcome, Who};
use crate::bait::Bait;
use crate::support::attack::handler;

/// Whoever is nobody.
const NOBODY: u32 = 65_534;

/// Carries it out; none where what it attacks exists in a zygote or a bundle only.
pub(crate) fn run(attack: &Attack, bait: &Bait) -> Option<Outcome> {
    let package = match attack.who {
        Who::Handler | Who::Fresh | Who::Heir | Who::Reaching => false,
        Who::Package | Who::BoundPackage | Who::ReachingPackage => true,
        _ => return None,
    };
    let facts = bait.facts();
    let mut victim = attack.source.contains("def victim").then(|| Party::new(attack, package));
    let mut attacker = Party::new(attack, package);
    let mut said = Value::Null;
    for turn in 0..attack.turns {
        let mut told = Value::Null;
        if let Some(victim) = &mut victim {
            let event = json!({"who": "victim", "turn": turn, "told": null, "host": facts});
            told = match victim.ask(&event) {
                Some(told) => told,
                None => return Some(Outcome::Contained("victim: killed".to_owned())),
            };
        }
        if attack.who == Who::Heir {
            victim = None;
        }
        let who = if package { "package" } else { "attacker" };
        let event = json!({"who": who, "turn": turn, "told": told, "host": facts});
        said = match attacker.ask(&event) {
            Some(said) => said,
            None => return Some(Outcome::Contained("killed".to_owned())),
        };
        bait.poke();
    }
    Some(Outcome::of(&said))
}

/// An interpreter of the host's. It ends when this is dropped.
struct Party {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Party {
    fn new(attack: &Attack, package: bool) -> Self {
        let (means, driver) = (include_str!("means.py"), include_str!("host.py"));
        let source = handler(&format!("{means}\n{}\n{driver}", attack.source));
        let mut command = Command::new("python3");
        command.args(["-I", "-c", &source]).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        // As the sandbox without these defences: an ordinary user, unless it would keep its capabilities.
        let privileged =
            package || attack.without.is_empty() || attack.without.contains(&Defence::Capabilities);
        if !privileged {
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut process = command.spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Self { process, said }
    }

    /// What it answers; none when it has ended.
    fn ask(&mut self, event: &Value) -> Option<Value> {
        let input = self.process.stdin.as_mut()?;
        writeln!(input, "{event}").ok()?;
        let mut line = String::new();
        self.said.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
