//! Hostile code stays inside: each attack is carried out twice.
//!
//! ```text
//!   everything in force                       ─► contained, by what is expected
//!   everything but exactly one named defence  ─► it succeeds, and says what it has
//! ```
//! An attack that goes through `/proc` is contained three times: as the interpreter is, once that is dumpable, and from a program
//! that it executes. The second run shows that the first means something. An attack that only several missing defences let through names all
//! of them, is tried without each of them alone, and is not counted; nor is what this kernel or host lacks. What it lacks the host itself
//! says ([`host`]), and not an error that the filter gives as well. There, too, the few attacks are shown to do what they say that no
//! missing defence lets through. Once with detached roots and once with staged ones, as on kernels before 6.15. `make escape` prints
//! the table.

// A release switches no defence off.
#![cfg(debug_assertions)]
#![expect(clippy::print_stdout, reason = "the table is what one runs this for")]

mod attack;
mod attacks;
mod bait;
mod host;
mod stage;
#[path = "../../crates/container/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use attack::{Attack, Outcome, Way, Who};
use bait::Bait;
use container::{Defence, RootMount};
use stage::Stage;
use tokio::sync::Mutex;

/// The session's key ring and what stands under known names are of one test at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// What kernels say to what they lack, and the filter to what it refuses.
const LACKING: &[&str] = &["ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ENODEV", "EOPNOTSUPP"];

/// One attack's two runs.
struct Row {
    attack: Attack,
    inside: Outcome,
    /// The same in the other ways, where it is carried out in each.
    otherwise: Vec<(Way, Outcome)>,
    /// Without the defences that it names. None where no set of missing defences is known to let it through.
    outside: Option<Outcome>,
    /// On the host itself, where the host was asked.
    host: Option<Outcome>,
    /// Those of several that let it through by themselves where the kernel has another one: then it names too many.
    alone: Vec<Defence>,
}

impl Row {
    /// Everything in force: as expected.
    fn contained(&self) -> bool {
        let expected = |outcome: &Outcome| match outcome {
            Outcome::Contained(met) => self.attack.contained.contains(&met.as_str()),
            Outcome::Succeeded(_) => false,
        };
        expected(&self.inside) && self.otherwise.iter().all(|(_, outcome)| expected(outcome))
    }

    /// What shows that it bites: without its defences, or on the host itself.
    fn shown(&self) -> Option<&Outcome> {
        if self.only_on_host() { self.host.as_ref() } else { self.outside.as_ref() }
    }

    /// What it was answered there, where that may be the host's own answer.
    fn refused(&self) -> Option<&str> {
        match self.shown() {
            Some(Outcome::Contained(met)) => {
                let met = met.as_str();
                let by_host = self.attack.refused_by_host.contains(&met);
                (by_host || LACKING.contains(&met)).then_some(met)
            }
            _ => None,
        }
    }

    /// This kernel or host has no such thing to attack: it says the same where nothing of ours confines anybody.
    fn lacking(&self) -> bool {
        match (self.refused(), &self.host) {
            (Some(met), Some(Outcome::Contained(there))) => met == there,
            _ => false,
        }
    }

    fn bites(&self) -> bool {
        matches!(self.shown(), Some(Outcome::Succeeded(_)))
    }

    fn only_on_host(&self) -> bool {
        self.attack.without.is_empty()
    }
}

/// What came of all attacks.
struct Table {
    rows: Vec<Row>,
    /// Names of those that were not carried out, and why.
    left_out: Vec<(&'static str, &'static str)>,
    /// The kernel has Landlock scopes.
    scopes: bool,
}

/// Whether this kernel does without a defence: what names it and one other needs that one alone here.
fn lacks(defence: Defence) -> bool {
    if defence == Defence::ProcessorGroup {
        // What names it beside another is after real-time priority, which a group has a share of in version 1 only
        // (CONFIG_RT_GROUP_SCHED).
        return !Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists();
    }
    let since = match defence {
        Defence::LandlockNetwork => 4,
        Defence::LandlockScopes => 6,
        _ => 0,
    };
    sys::probe::landlock() < since
}

fn root_of(attack: &Attack, usual: RootMount) -> RootMount {
    if attack.who == Who::BoundPackage { RootMount::Bind } else { usual }
}

/// All attacks, those of one stage after the other.
async fn carry_out(usual: RootMount) -> Table {
    let bait = Bait::new();
    let mut rows: Vec<Row> = Vec::new();
    let (mut left_out, mut scopes) = (Vec::new(), true);
    for root in [usual, RootMount::Bind] {
        let mut here: Vec<Attack> =
            attacks::all().into_iter().filter(|one| root_of(one, usual) == root).collect();
        let stage = Stage::new(root, &[], &bait).await;
        scopes = stage.scopes();
        if !stage.proc() {
            let lost = here.extract_if(.., |one| one.through_proc);
            left_out.extend(lost.map(|one| (one.name, "sandboxes have no /proc here")));
        }
        if !scopes {
            let lost = here.extract_if(.., |one| one.through_sockets);
            left_out.extend(lost.map(|one| (one.name, "sandboxes have no Unix sockets here")));
        }
        for attack in here {
            let inside = stage.run(&attack).await;
            let mut otherwise = Vec::new();
            if attack.in_each_way {
                for way in [Way::Dumpable, Way::Executed] {
                    otherwise.push((way, stage.run(&attack.by(way)).await));
                }
            }
            let (outside, host, alone) = (None, None, Vec::new());
            rows.push(Row { attack, inside, otherwise, outside, host, alone });
        }
        stage.end().await;
    }
    let mut missing: Vec<(RootMount, &[Defence])> = Vec::new();
    for row in rows.iter().filter(|row| scopes || !row.attack.by_scopes) {
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
        let judged = |row: &Row| scopes || !row.attack.by_scopes;
        for row in rows.iter_mut().filter(|row| root_of(&row.attack, usual) == root && judged(row))
        {
            if row.attack.without == without {
                row.outside = Some(stage.run(&row.attack).await);
            } else if let [one] = without
                && row.attack.without.contains(one)
                && row.attack.without.iter().any(|other| other != one && !lacks(*other))
                && matches!(stage.run(&row.attack).await, Outcome::Succeeded(_))
            {
                row.alone.push(*one);
            }
        }
        stage.end().await;
    }
    for row in rows.iter_mut().filter(|row| row.only_on_host() || row.refused().is_some()) {
        row.host = host::run(&row.attack, &bait);
    }
    Table { rows, left_out, scopes }
}

fn short(outcome: &Outcome) -> String {
    let (Outcome::Contained(text) | Outcome::Succeeded(text)) = outcome;
    text.replace('\n', " ").chars().take(48).collect()
}

fn print(table: &Table) {
    let rows = &table.rows;
    println!("| attack | by | contained: | without | it has |");
    println!("| --- | --- | --- | --- | --- |");
    for row in rows {
        let names = row.attack.without.iter().map(|one| one.name()).collect::<Vec<_>>().join(" + ");
        let has = match (&row.outside, &row.host) {
            _ if row.lacking() => "(not on this host)".to_owned(),
            (Some(outcome), _) => short(outcome),
            (None, Some(outcome)) => format!("(on the host itself: {})", short(outcome)),
            (None, None) => "(no Landlock scopes here)".to_owned(),
        };
        let (name, mechanism, met) = (row.attack.name, row.attack.mechanism, short(&row.inside));
        println!("| {name} | {mechanism} | {met} | {names} | {has} |");
    }
    println!(
        "let through by no set of missing defences, and shown to bite on the host itself only:"
    );
    for row in rows.iter().filter(|row| row.only_on_host() && !row.lacking()) {
        println!("- {}: {}", row.attack.name, row.attack.mechanism);
    }
    for (name, why) in &table.left_out {
        println!("not carried out: {name}: {why}");
    }
    let Counts { one, several, on_host } = Counts::of(rows.iter().map(|row| &row.attack));
    println!(
        "{} attacks: {one} with one defence, {several} with several, {on_host} with none; {} left out",
        rows.len(),
        table.left_out.len()
    );
}

/// How attacks are shown to bite.
struct Counts {
    /// Without exactly one defence.
    one: usize,
    /// Only without several.
    several: usize,
    /// Only on the host itself.
    on_host: usize,
}

impl Counts {
    fn of<'a>(attacks: impl Iterator<Item = &'a Attack>) -> Self {
        attacks.fold(Self { one: 0, several: 0, on_host: 0 }, |counts, attack| {
            match attack.without.len() {
                0 => Self { on_host: counts.on_host + 1, ..counts },
                1 => Self { one: counts.one + 1, ..counts },
                _ => Self { several: counts.several + 1, ..counts },
            }
        })
    }
}

/// Asserts what the table is to show.
fn judge(table: &Table) {
    print(table);
    let (rows, scopes) = (&table.rows, table.scopes);
    let names = |which: &dyn Fn(&Row) -> bool| -> Vec<String> {
        let found = rows.iter().filter(|row| which(row));
        found
            .map(|row| {
                let Row { attack, inside, otherwise, outside, host, .. } = row;
                format!("{}: {inside:?}, {otherwise:?}, {outside:?}, {host:?}", attack.name)
            })
            .collect()
    };
    let escaped = names(&|row| !row.contained());
    let judged = |row: &Row| scopes || !row.attack.by_scopes;
    let blunt = names(&|row| judged(row) && !row.bites() && !row.lacking());
    let enough = rows.iter().filter(|row| !row.alone.is_empty());
    let enough: Vec<_> = enough.map(|row| (row.attack.name, &row.alone)).collect();
    let bitten = rows.iter().filter(|row| row.bites());
    let pairs: BTreeSet<_> =
        bitten.filter_map(|row| Some((row.attack.mechanism, row.attack.pair()?.name()))).collect();
    println!("{} pairs of mechanism and defence", pairs.len());
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
    judge(&carry_out(RootMount::Detached).await);
}

#[tokio::test]
async fn every_attack_is_contained_where_roots_are_staged_as_on_older_kernels() {
    if !support::can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    judge(&carry_out(RootMount::Staged).await);
}

#[test]
fn what_we_refuse_is_not_taken_for_what_the_host_lacks() {
    let attack = attacks::all().into_iter().find(|one| one.pair().is_some()).unwrap();
    let met = |error: &str| Some(Outcome::Contained(error.to_owned()));
    let row = |outside, host| Row {
        attack,
        inside: Outcome::Contained("ENOSYS".to_owned()),
        otherwise: Vec::new(),
        outside,
        host,
        alone: Vec::new(),
    };
    assert!(row(met("ENOSYS"), met("ENOSYS")).lacking());
    for host in [None, met("EPERM"), Some(Outcome::Succeeded("a key".to_owned()))] {
        let row = row(met("ENOSYS"), host);
        assert!(!row.lacking() && !row.bites());
    }
    // An error that no host gives for want of something is the attack's own.
    assert!(!row(met("ENOENT"), met("ENOENT")).lacking());
}

#[test]
fn every_defence_is_named_by_an_attack() {
    let named: Vec<_> = attacks::all().into_iter().flat_map(|one| one.without).collect();
    let unnamed: Vec<_> = Defence::ALL.iter().filter(|one| !named.contains(one)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_documents_count_the_attacks() {
    let all = attacks::all();
    let Counts { one, several, on_host } = Counts::of(all.iter());
    let whole = format!(
        "{} attacks, of which {one} are let through by one missing defence, {several} by several only, and {on_host} by none",
        all.len()
    );
    for document in [include_str!("../../docs/threat-model.md"), include_str!("../../CHANGELOG.md")]
    {
        let words = document.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(&whole), "{whole}");
    }
}

#[tokio::test]
async fn what_is_known_to_cross_between_sandboxes_still_does() {
    if !support::can_run() {
        return;
    }
    let _alone = ALONE.lock().await;
    let bait = Bait::new();
    let stage = Stage::new(RootMount::Detached, &[], &bait).await;
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
            .env_remove("SUDO_UID")
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
