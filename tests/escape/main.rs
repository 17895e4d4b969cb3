//! Hostile code stays inside: each attack is carried out twice.
//!
//! ```text
//!   everything in force                       ─► contained, by what is expected
//!   everything but exactly one named defence  ─► it succeeds, and says what it has
//! ```
//! The second run shows that the first means something. An attack that only several missing defences let through names all
//! of them, is tried without each of them alone, and is not counted; nor is what this kernel or host lacks. Once with detached roots and once with staged ones,
//! as on kernels before 6.15. `make escape` prints the table.

#![expect(clippy::print_stdout, reason = "the table is what one runs this for")]

mod attack;
mod attacks;
mod bait;
mod stage;
#[path = "../../crates/container/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use attack::{Attack, Outcome, Who};
use bait::Bait;
use container::{Defence, Hang};
use stage::Stage;
use tokio::sync::Mutex;

/// The session's key ring and what stands under known names are of one test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What kernels say to what they lack.
const LACKING: &[&str] = &["ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENODEV", "EOPNOTSUPP"];

/// One attack's two runs.
struct Row {
    attack: Attack,
    inside: Outcome,
    /// None where no set of missing defences is known to let it through.
    outside: Option<Outcome>,
    /// Those of several that let it through by themselves: then it names too many.
    alone: Vec<Defence>,
}

impl Row {
    /// Everything in force: as expected.
    fn contained(&self) -> bool {
        match &self.inside {
            Outcome::Contained(met) => self.attack.contained.contains(&met.as_str()),
            Outcome::Succeeded(_) => false,
        }
    }

    /// This kernel or host has no such thing to attack.
    fn lacking(&self) -> bool {
        let refused =
            |met: &str| LACKING.contains(&met) || self.attack.refused_by_host.contains(&met);
        matches!(&self.outside, Some(Outcome::Contained(met)) if refused(met))
    }

    fn bites(&self) -> bool {
        matches!(&self.outside, Some(Outcome::Succeeded(_)))
    }
}

fn root_of(attack: &Attack, usual: Hang) -> Hang {
    if attack.who == Who::BoundPackage { Hang::Bind } else { usual }
}

/// All attacks, those of one stage after the other.
async fn carry_out(usual: Hang) -> Vec<Row> {
    let bait = Bait::new();
    let mut rows: Vec<Row> = Vec::new();
    for root in [usual, Hang::Bind] {
        let mut here: Vec<Attack> =
            attacks::all().into_iter().filter(|one| root_of(one, usual) == root).collect();
        let stage = Stage::new(root, &[], &bait).await;
        here.retain(|one| stage.proc() || !one.through_proc);
        for attack in here {
            let inside = stage.run(&attack).await;
            rows.push(Row { attack, inside, outside: None, alone: Vec::new() });
        }
        stage.end().await;
    }
    let mut missing: Vec<(Hang, &[Defence])> = Vec::new();
    for row in &rows {
        let all = row.attack.without;
        for without in std::iter::once(all).chain(all.chunks(1)).filter(|some| !some.is_empty()) {
            let needs = (root_of(&row.attack, usual), without);
            if !missing.contains(&needs) {
                missing.push(needs);
            }
        }
    }
    for (root, without) in missing {
        let stage = Stage::new(root, without, &bait).await;
        for row in rows.iter_mut().filter(|row| root_of(&row.attack, usual) == root) {
            if row.attack.without == without {
                row.outside = Some(stage.run(&row.attack).await);
            } else if let [one] = without
                && row.attack.without.contains(one)
                && matches!(stage.run(&row.attack).await, Outcome::Succeeded(_))
            {
                row.alone.push(*one);
            }
        }
        stage.end().await;
    }
    rows
}

fn short(outcome: &Outcome) -> String {
    let (Outcome::Contained(text) | Outcome::Succeeded(text)) = outcome;
    text.replace('\n', " ").chars().take(48).collect()
}

fn print(rows: &[Row]) {
    println!("| attack | by | contained: | without | it has |");
    println!("| --- | --- | --- | --- | --- |");
    for row in rows {
        let names = row.attack.without.iter().map(|one| one.name()).collect::<Vec<_>>().join(" + ");
        let has = match &row.outside {
            None => "(more lines than can be switched off)".to_owned(),
            Some(_) if row.lacking() => "(not on this host)".to_owned(),
            Some(outcome) => short(outcome),
        };
        let (name, mechanism, met) = (row.attack.name, row.attack.mechanism, short(&row.inside));
        println!("| {name} | {mechanism} | {met} | {names} | {has} |");
    }
}

/// Asserts what the table is to show.
fn judge(rows: &[Row]) {
    print(rows);
    let names = |which: &dyn Fn(&Row) -> bool| -> Vec<String> {
        let found = rows.iter().filter(|row| which(row));
        found
            .map(|row| format!("{}: {:?}, {:?}", row.attack.name, row.inside, row.outside))
            .collect()
    };
    let escaped = names(&|row| !row.contained());
    let blunt = names(&|row| row.outside.is_some() && !row.bites() && !row.lacking());
    let enough = rows.iter().filter(|row| !row.alone.is_empty());
    let enough: Vec<_> = enough.map(|row| (row.attack.name, &row.alone)).collect();
    let bitten = rows.iter().filter(|row| row.bites());
    let pairs: BTreeSet<_> =
        bitten.filter_map(|row| Some((row.attack.mechanism, row.attack.pair()?.name()))).collect();
    println!("{} attacks, {} pairs of mechanism and defence", rows.len(), pairs.len());
    assert!(escaped.is_empty(), "not contained as expected: {escaped:#?}");
    assert!(blunt.is_empty(), "stopped by something else as well: {blunt:#?}");
    assert!(enough.is_empty(), "needs no second one missing: {enough:#?}");
    assert!(rows.len() >= 60 && pairs.len() >= 45, "{} pairs", pairs.len());
}

#[tokio::test]
async fn every_attack_is_contained_and_succeeds_without_the_defence_that_it_names() {
    if !support::can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    judge(&carry_out(Hang::Detached).await);
}

#[tokio::test]
async fn every_attack_is_contained_where_roots_are_staged_as_on_older_kernels() {
    if !support::can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    judge(&carry_out(Hang::Staged).await);
}

#[tokio::test]
async fn what_is_known_to_cross_between_sandboxes_still_does() {
    if !support::can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let bait = Bait::new();
    let stage = Stage::new(Hang::Detached, &[], &bait).await;
    for channel in attacks::known::CHANNELS {
        let found = stage.run(channel).await;
        println!("known: {}, by {}: {}", channel.name, channel.mechanism, short(&found));
        let open = match &found {
            Outcome::Succeeded(_) => true,
            Outcome::Contained(met) => channel.contained.contains(&met.as_str()),
        };
        assert!(
            open,
            "{}: {found:?}: closed? Then docs/threat-model.md is to say so",
            channel.name
        );
    }
    stage.end().await;
}

/// Whoever may start a warden through sudo, and nothing else, would be root without capabilities dropped.
#[test]
fn nobody_but_root_switches_a_defence_off() {
    if !support::can_run() {
        return;
    }
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let state = tempfile::tempdir_in(tmp).unwrap();
    std::fs::create_dir(state.path().join("run")).unwrap();
    let path = state.path().join("worker.sock");
    for (uid, isolation, refused) in [
        (65_534, "lean,unsafe-without=capabilities", true),
        (65_534, "lean", false),
        (0, "lean,unsafe-without=capabilities", false),
    ] {
        let worker = listen_as(uid, &path);
        let warden = Command::new(support::program())
            .args(["--isolation", isolation, "--state"])
            .args([state.path(), Path::new("--socket"), &path])
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&warden.stderr);
        assert!(!warden.status.success(), "there is nothing that it could serve from");
        assert_eq!(words.contains("only a worker that root runs"), refused, "{uid}: {words}");
        drop(worker);
        std::fs::remove_file(&path).unwrap();
    }
}

/// A worker's socket, as a user has opened it.
fn listen_as(uid: u32, path: &Path) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    let listening = std::thread::spawn(move || {
        // SAFETY: plain numbers. The raw call concerns this thread alone.
        unsafe { libc::syscall(libc::SYS_setresuid, -1, uid, -1) };
        listen(&socket, 1).unwrap();
        socket
    });
    listening.join().unwrap()
}
