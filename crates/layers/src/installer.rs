//! Running somebody else's installer: its words are passed on as they come, and kept for the error.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use thiserror::Error;

use crate::child::{self, Unfinished};
use crate::patience::{Over, Patience};
use crate::{Progress, requirements};

/// Most bytes of an installer's words that an error keeps: the last ones.
const KEPT: usize = 16 << 10;

/// What an installer left behind.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) output: String,
    /// What it wrote to its standard error.
    pub(crate) words: String,
}

/// An installer that did not come to its end.
#[derive(Debug, Error)]
pub enum InstallerError {
    /// It could not be run.
    #[error("cannot start {program}")]
    Start {
        /// What was started.
        program: String,
        /// Why it did not.
        source: std::io::Error,
    },
    /// It was ended: an index that it asks sends too slowly, or nothing.
    #[error(
        "the index did not answer within {} s: try again, ask another index, or raise the setting `index_timeout`",
        limit.as_secs()
    )]
    TooLong {
        /// What all that is asked of an index may take.
        limit: Duration,
    },
    /// It was ended: who wanted the packages has gone, or the worker stops.
    #[error("the installer was ended: nobody waits for it any more")]
    GivenUp,
    /// It was ended: it took more than it may.
    #[error("the installer was ended: it took more than it may")]
    Excessive,
}

impl InstallerError {
    pub(crate) fn of(program: &OsStr, unfinished: Unfinished) -> Self {
        match unfinished {
            Unfinished::Start(source) => {
                Self::Start { program: program.to_string_lossy().into_owned(), source }
            }
            Unfinished::Over(Over::TooLong(limit)) => Self::TooLong { limit },
            Unfinished::Over(Over::GivenUp) => Self::GivenUp,
            Unfinished::Over(Over::Excessive) => Self::Excessive,
        }
    }
}

/// Runs it to its end, or to that of `patience`. Its standard error is told line by line; its standard output too when
/// `chatty`.
pub(crate) fn run(
    command: &mut Command,
    chatty: bool,
    patience: &Patience,
    progress: &dyn Progress,
) -> Result<Finished, InstallerError> {
    run_watched(command, chatty, patience, progress, || false)
}

/// The same, and ends it as soon as `excessive` says so, which is asked again and again.
pub(crate) fn run_watched(
    command: &mut Command,
    chatty: bool,
    patience: &Patience,
    progress: &dyn Progress,
    excessive: impl Fn() -> bool,
) -> Result<Finished, InstallerError> {
    let places = places(command);
    let output = |pipe| lines(pipe, &places, chatty.then_some(progress));
    let over = || patience.over().or_else(|| excessive().then_some(Over::Excessive));
    let ran = child::run(command, over, output, |pipe| lines(pipe, &places, Some(progress)));
    let (status, output, words) =
        ran.map_err(|unfinished| InstallerError::of(command.get_program(), unfinished))?;
    Ok(Finished { status, output, words: tail(words) })
}

fn lines(pipe: impl Read, places: &[(String, &str)], progress: Option<&dyn Progress>) -> String {
    let mut text = String::new();
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        let mut told = without_options(&redacted(&String::from_utf8_lossy(&line)));
        for (path, name) in places {
            told = told.replace(path, name);
        }
        if let (Some(progress), false) = (progress, told.trim().is_empty()) {
            progress.line(told.trim_end());
        }
        text.push_str(&told);
        line.clear();
    }
    text
}

/// Directories of the worker's that the program knows, and what stands for each in what it says: where a worker keeps its state is
/// nothing for who deploys.
fn places(command: &Command) -> Vec<(String, &'static str)> {
    let after = |name: &str| {
        let mut arguments = command.get_args().skip_while(|argument| *argument != name).skip(1);
        arguments.next().map(Path::new)
    };
    let cache = after("--cache-dir");
    let state = cache.filter(|path| path.ends_with("uv/cache"));
    let state = state.and_then(|path| path.parent()?.parent());
    // Those further down first: they begin with the others.
    [
        (command.get_current_dir(), "the project"),
        (after("--target"), "the packages"),
        (cache, "the cache"),
        (state, "the worker's state"),
    ]
    .into_iter()
    .filter_map(|(path, name)| Some((path?.to_str()?.to_owned(), name)))
    .filter(|(path, _)| path.len() > 1)
    .collect()
}

/// Without names and passwords in addresses: an index's credentials go no further.
fn redacted(line: &str) -> String {
    let mut pieces = line.split("://");
    let mut told = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(['/', ' ', '`', '\'', '"', ')', '\n']).unwrap_or(piece.len());
        let (authority, rest) = piece.split_at(end);
        let host = authority.rsplit_once('@').map(|(_, host)| host);
        told.push_str("://");
        if host.is_some() {
            told.push_str("****@");
        }
        told.push_str(host.unwrap_or(authority));
        told.push_str(rest);
    }
    told
}

/// Without the installer's options: the worker chose them, and its users cannot give any. A remark in parentheses that
/// names one goes, and so does a sentence of a hint.
fn without_options(line: &str) -> String {
    const OPTION: &str = "`--";
    if !line.contains(OPTION) {
        return line.to_owned();
    }
    let mut told = String::new();
    let mut rest = line;
    while let Some((before, inside)) = rest.split_once(" (") {
        let Some((remark, after)) = inside.split_once(')') else { break };
        told.push_str(before);
        if !remark.contains(OPTION) {
            told.push_str(&format!(" ({remark})"));
        }
        rest = after;
    }
    told.push_str(rest);
    if !told.trim_start().starts_with("hint:") || !told.contains(OPTION) {
        return told;
    }
    let end = if told.ends_with('\n') { "\n" } else { "" };
    let sentences = told.trim_end().split_inclusive(". ");
    let kept: String = sentences.filter(|sentence| !sentence.contains(OPTION)).collect();
    format!("{}{end}", kept.trim_end())
}

fn tail(text: String) -> String {
    let text = text.trim();
    let mut start = text.len().saturating_sub(KEPT);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

/// Whether uv's words say that the network failed.
pub(crate) fn unreachable(words: &str) -> bool {
    let signs =
        ["error sending request", "failed to fetch", "could not connect", "dns error", "timed out"];
    says(words, &signs)
}

/// Whether uv's words say that a package would have to be built.
pub(crate) fn without_wheel(words: &str) -> bool {
    says(
        words,
        &["no usable wheels", "no wheels with a matching", "building from source is disabled"],
    )
}

/// Of which packages uv's words say that they have no wheel.
pub(crate) fn wheelless(words: &str) -> BTreeSet<String> {
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let after = |sign: &str| -> Vec<String> {
        let rests = flat.split(sign).skip(1);
        rests.filter_map(|rest| requirements::name(rest.trim_start_matches(['`', ' ']))).collect()
    };
    // `all versions of x have no usable wheels`, `x==1.0 has no …`, `x[extra]==1.0 has no …`
    let before = |sign: &str| -> Vec<String> {
        let parts: Vec<&str> = flat.split(sign).collect();
        let subjects = parts.iter().take(parts.len().saturating_sub(1));
        subjects.filter_map(|part| requirements::name(part.split(' ').next_back()?)).collect()
    };
    let signs = [
        " has no usable wheels",
        " have no usable wheels",
        " has no wheels with a matching",
        " have no wheels with a matching",
    ];
    let named = signs.iter().flat_map(|sign| before(sign));
    named.chain(after("Wheels are required for ")).collect()
}

/// Whether uv's words say that a package has no source either.
pub(crate) fn without_source(words: &str) -> bool {
    says(words, &["no source distribution"])
}

/// Whether uv's words say that a file is not the locked one.
pub(crate) fn wrong_hash(words: &str) -> bool {
    says(words, &["hash mismatch"])
}

/// Older versions wrap their lines anywhere.
fn says(words: &str, signs: &[&str]) -> bool {
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    signs.iter().any(|sign| flat.contains(sign))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Progress for Heard {
        fn step(&self, _: &str) {}
        fn line(&self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
        fn bytes(&self, _: u64, _: Option<u64>) {}
    }

    #[test]
    fn words_are_told_and_kept_and_output_is_not_told() {
        let heard = Heard::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo one >&2; echo two >&2; exit 3"]);
        let finished = run(&mut command, false, &Patience::endless(), &heard).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert_eq!((finished.output.as_str(), finished.words.as_str()), ("out\n", "one\ntwo"));
        assert_eq!(*heard.0.lock().unwrap(), ["one", "two"]);
    }

    #[test]
    fn credentials_in_addresses_are_not_passed_on() {
        let heard = Heard::default();
        let mut command = Command::new("sh");
        command.args(["-c", "echo 'at `https://me:hunter2@a.org/s` and http://b.org/@' >&2"]);
        let finished = run(&mut command, false, &Patience::endless(), &heard).unwrap();
        assert_eq!(finished.words, "at `https://****@a.org/s` and http://b.org/@");
        assert_eq!(*heard.0.lock().unwrap(), [finished.words]);
    }

    #[test]
    fn words_are_understood_however_they_are_wrapped() {
        assert!(without_wheel(
            "Because x has no usable\n      wheels and building from source\n is disabled"
        ));
        assert!(unreachable("cause: Failed to\n fetch: x") && !unreachable("no solution found"));
        assert!(wrong_hash("error: Hash mismatch for `six==1.16.0`"));
    }

    #[test]
    fn packages_without_a_wheel_are_understood() {
        let of = |words: &str| wheelless(words).into_iter().collect::<Vec<_>>();
        let words = "cause: Because docopt==0.6.2 has no usable\n  wheels and function depends on docopt==0.6.2, we\n\
                     hint: Wheels are required for `docopt` because building from source is disabled";
        assert_eq!(of(words), ["docopt"]);
        assert_eq!(
            of("Because all versions of Py_Crypto have no usable wheels and"),
            ["py-crypto"]
        );
        assert_eq!(of("Because x==1 has no wheels with a matching Python ABI tag"), ["x"]);
        assert_eq!(of("Because only x<=2 is available"), [""; 0]);
    }

    #[test]
    fn options_of_the_installer_are_not_passed_on() {
        let told =
            without_options("hint: Wheels are off for `x` (i.e., with `--no-binary-package x`)\n");
        assert_eq!(told, "hint: Wheels are off for `x`\n");
        let told = without_options(
            "hint: `x` (1.0) is on another index (e.g., 2.0). If you trust all, use `--index-strategy y` to see it. Ask (them).",
        );
        assert_eq!(told, "hint: `x` (1.0) is on another index (e.g., 2.0). Ask (them).");
        assert_eq!(without_options("hint: use `--all` for it\n"), "\n");
        for whole in
            ["cause: (a) b (c)\n", "error: unexpected argument `--x` (y", "hint: a - b -- c"]
        {
            assert_eq!(without_options(whole), whole);
        }
    }

    #[test]
    fn an_installer_that_does_too_much_is_ended() {
        let room = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "touch here; exec sleep 600"]).current_dir(room.path());
        let excessive = || room.path().join("here").exists();
        let ended =
            run_watched(&mut command, false, &Patience::endless(), &crate::Silent, excessive);
        assert!(matches!(ended, Err(InstallerError::Excessive)), "{ended:?}");
    }

    #[test]
    fn no_directory_of_the_workers_is_told() {
        let mut command = Command::new("uv");
        command.args([
            "pip",
            "--cache-dir",
            "/srv/state/uv/cache",
            "--target",
            "/srv/state/layers/x",
        ]);
        command.current_dir("/srv/state/run/project-1");
        let words = "failed in /srv/state/run/project-1/a, /srv/state/uv/cache/b and /srv/state/c for /srv/state/layers/x\n";
        let told = lines(words.as_bytes(), &places(&command), None);
        assert_eq!(
            told,
            "failed in the project/a, the cache/b and the worker's state/c for the packages\n"
        );
        assert_eq!(places(&Command::new("uv")), []);
    }

    #[test]
    fn an_installer_that_fills_both_pipes_comes_to_its_end() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "yes | head -c 300000 >&2; yes | head -c 300000; yes | head -c 300000 >&2",
        ]);
        let finished = run(&mut command, false, &Patience::endless(), &crate::Silent).unwrap();
        assert!(finished.status.success());
        assert_eq!((finished.output.len(), finished.words.len() <= KEPT), (300_000, true));
    }
}
