//! The program `uv`, which resolves and unpacks packages: finding it and running it.
//!
//! ```text
//!   PATH ─► one that is recent enough ─┐
//!   STATE/uv/bin ─► the pinned one ────┼─► Uv ─► a command for a base's Python ─► run, its words told
//!   package index ─► fetched by pip ───┘
//! ```
//!
//! A fetched uv is pinned by version and by hash. The environment is passed on, so proxies, `UV_*`,
//! `PIP_*` and `SSL_CERT_FILE` mean what they mean elsewhere; [`crate::installer`] takes
//! credentials away that belong to no index. The cache is `uv/cache` of the state directory unless
//! `UV_CACHE_DIR` names another; it serves resolving. Wheels are kept unpacked, in the store, and
//! not a second time in a cache of ours.

mod fetch;
mod run;
pub(crate) mod words;

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use layers::base::Base;
use layers::child::{self, Unfinished};
use layers::patience::Over;
use layers::{FileError, Patience, Progress, Store};
use thiserror::Error;

pub(crate) use run::{Finished, run, run_watched};

/// The oldest uv that knows all the options that are used.
const OLDEST: (u64, u64) = (0, 5);

/// How long a program may take to say which it is.
const ASIDE: Duration = Duration::from_secs(10);

/// Most bytes of such an answer.
const MAX_ANSWER: u64 = 4096;

/// A uv that is there and answers.
#[derive(Clone, Debug)]
pub struct Uv {
    /// The binary's path.
    pub program: PathBuf,
    /// Its version, such as `0.13.9`.
    pub version: String,
    cache: PathBuf,
    shared_cache: bool,
}

/// Through which cache wheels are fetched.
#[derive(Clone, Debug)]
pub(crate) struct Fetching {
    pub(crate) cache: PathBuf,
    pub(crate) link_mode: &'static str,
    /// Whether it may hold what is wanted already.
    pub(crate) filled: bool,
}

/// Why there is no uv.
#[derive(Debug, Error)]
pub enum UvError {
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// pip could not be started, or was ended.
    #[error(transparent)]
    Start(#[from] Unfinished),
    /// Nothing to fetch it with.
    #[error(
        "no pip to fetch uv with: install python3-pip (for example `apt install python3-pip`) or put uv on PATH"
    )]
    NoPip,
    /// The fetch failed.
    #[error("uv could not be fetched; put uv on PATH, or look at what pip says:\n{words}")]
    Fetch {
        /// pip's own words.
        words: String,
    },
    /// The wheel is not what it should be.
    #[error("the fetched uv cannot be unpacked")]
    Wheel(#[source] io::Error),
    /// The binary does not run.
    #[error("{} does not run; is the state directory mounted noexec?", path.display())]
    Broken {
        /// The path that was tried.
        path: PathBuf,
    },
    /// The binary hangs.
    #[error(
        "{} did not answer `--version` within {} s and was ended: remove it, so that it is fetched again, or put uv on PATH", path.display(), limit.as_secs()
    )]
    Hangs {
        /// The path that was tried.
        path: PathBuf,
        /// How long it was waited for.
        limit: Duration,
    },
}

impl Uv {
    /// The host's uv if it is recent enough, else the one fetched before, else a fetched one.
    ///
    /// # Errors
    /// When there is none and it cannot be fetched.
    pub fn find_or_fetch(
        store: &Store,
        patience: &Patience,
        progress: &dyn Progress,
    ) -> Result<Self, UvError> {
        let path = env::var_os("PATH").unwrap_or_default();
        match Self::among(&path, store, patience, progress, ASIDE)? {
            Some(uv) => Ok(uv),
            None => Self::own(store, patience, progress),
        }
    }

    /// The pinned uv of the state directory, fetched unless it is there.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub fn own(
        store: &Store,
        patience: &Patience,
        progress: &dyn Progress,
    ) -> Result<Self, UvError> {
        let program = store.uv().join("bin").join(format!("uv-{}", fetch::VERSION));
        if !program.is_file() {
            fetch::fetch(store, &program, patience, progress)?;
        }
        match said(Command::new(&program).arg("--version"), patience, ASIDE) {
            Ok(Some(words)) => {
                Self::saying(store, &program, &words).ok_or(UvError::Broken { path: program })
            }
            Ok(None) => Err(UvError::Broken { path: program }),
            Err(Unfinished::TooLong { limit }) => Err(UvError::Hangs { path: program, limit }),
            Err(error) => Err(error.into()),
        }
    }

    /// The first of the directories' in `path` that says that it is recent enough, each within
    /// `limit`. One that says nothing is passed over.
    fn among(
        path: &OsStr,
        store: &Store,
        patience: &Patience,
        progress: &dyn Progress,
        limit: Duration,
    ) -> Result<Option<Self>, UvError> {
        let directories = env::split_paths(path).filter(|path| path.is_absolute());
        for program in directories.map(|path| path.join("uv")).filter(|path| path.is_file()) {
            let words = match said(Command::new(&program).arg("--version"), patience, limit) {
                Ok(Some(words)) => words,
                Ok(None) | Err(Unfinished::Start { .. }) => continue,
                Err(Unfinished::TooLong { limit }) => {
                    progress.line(&format!(
                        "{} did not answer `--version` within {} s: it is passed over",
                        program.display(),
                        limit.as_secs()
                    ));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(uv) = Self::saying(store, &program, &words) else { continue };
            let mut numbers = uv.version.split('.').map_while(|part| part.parse::<u64>().ok());
            if numbers.next().zip(numbers.next()).is_some_and(|version| version >= OLDEST) {
                return Ok(Some(uv));
            }
        }
        Ok(None)
    }

    /// The program that has said `words` of itself: `uv 0.13.9 (…)`.
    fn saying(store: &Store, program: &Path, words: &str) -> Option<Self> {
        let version = words.strip_prefix("uv ")?.split_whitespace().next()?.to_owned();
        let named = env::var_os("UV_CACHE_DIR").filter(|path| !path.is_empty());
        let shared_cache = named.is_some();
        let cache = named.map_or_else(|| store.uv().join("cache"), PathBuf::from);
        Some(Self { program: program.to_owned(), version, cache, shared_cache })
    }

    /// The cache that serves resolving.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The cache to fetch wheels through. What is fetched is unpacked into the store and need not
    /// stay: `own` is a directory on the store's file system that goes afterwards, and `name` what
    /// is fetched: each is unpacked apart, so that it shows how large it becomes. A cache that the
    /// operator named is used instead, and copied from: a wheel must not share files with a
    /// directory that other programs write to.
    pub(crate) fn fetching(&self, own: &Path, name: &str) -> Fetching {
        if self.shared_cache {
            Fetching { cache: self.cache.clone(), link_mode: "copy", filled: true }
        } else {
            Fetching { cache: own.join(name), link_mode: "hardlink", filled: false }
        }
    }

    /// A command that works for a base's Python, with a cache.
    pub(crate) fn command(
        &self,
        store: &Store,
        base: &Base,
        cache: &Path,
        words: &[&str],
    ) -> Result<Command, FileError> {
        let mut command = Command::new(&self.program);
        command
            .args(words)
            .args(["--color", "never", "--no-progress", "--no-python-downloads"])
            .arg("--cache-dir")
            .arg(cache)
            .arg("--python")
            .arg(interpreter(store, base)?)
            // The environment in which the worker was started says nothing about a function.
            .env_remove("VIRTUAL_ENV")
            .env_remove("CONDA_PREFIX");
        // Three tries, the default, keep a client of an offline machine waiting for ten seconds.
        if env::var_os("UV_HTTP_RETRIES").is_none() {
            command.env("UV_HTTP_RETRIES", "1");
        }
        Ok(command)
    }
}

/// What a program says of itself, asked aside from what it is for; none when it fails. It is ended,
/// with all that it has started, when it takes longer than `limit` or the deploy has been given up.
fn said(
    command: &mut Command,
    patience: &Patience,
    limit: Duration,
) -> Result<Option<String>, Unfinished> {
    let began = Instant::now();
    let over = || match patience.given_up() {
        true => Some(Over::GivenUp),
        false => (began.elapsed() >= limit).then_some(Over::TooLong(limit)),
    };
    let read = |pipe: std::process::ChildStdout| {
        let mut words = Vec::new();
        // What was cut off is no answer.
        let _ = pipe.take(MAX_ANSWER).read_to_end(&mut words);
        words
    };
    let unread = |mut pipe: std::process::ChildStderr| drop(io::copy(&mut pipe, &mut io::sink()));
    let (status, words, ()) = child::run(command, over, read, unread)?;
    Ok(status.success().then(|| String::from_utf8_lossy(&words).into_owned()))
}

/// A script that starts the base's interpreter, for uv to ask it about itself. Not the host's
/// Python that the base was made from: that may have been upgraded or removed since.
fn interpreter(store: &Store, base: &Base) -> Result<PathBuf, FileError> {
    let directory = store.uv().join("python").join(&base.id);
    let path = directory.join("python3");
    let quoted: Vec<String> = base.command(store).words().iter().map(quote).collect();
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" "));
    if fs::read_to_string(&path).is_ok_and(|there| there == script) {
        return Ok(path);
    }
    fs::create_dir_all(&directory).map_err(FileError::at("create", &directory))?;
    let unfinished =
        directory.join(format!("new-{}-{:?}", std::process::id(), std::thread::current().id()));
    let write = || -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o755).open(&unfinished)?;
        io::Write::write_all(&mut file, script.as_bytes())?;
        drop(file);
        wait_until_it_runs(&unfinished)?;
        fs::rename(&unfinished, &path)
    };
    write().map_err(FileError::at("write", &path))?;
    Ok(path)
}

/// Runs a new script until it starts. A process that another thread forked while the script was
/// being written holds it open for writing until that process executes its own program; so long the
/// script cannot be executed: ETXTBSY.
fn wait_until_it_runs(script: &Path) -> io::Result<()> {
    for _ in 0..1000 {
        let mut command = Command::new(script);
        command.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status() {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(1));
            }
            ran => return ran.map(drop),
        }
    }
    Err(io::ErrorKind::ExecutableFileBusy.into())
}

fn quote(word: &OsString) -> String {
    format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_is_still_held_open_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        let write = || {
            let mut options = fs::OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o755).open(&path).unwrap()
        };
        let mut held = write();
        io::Write::write_all(&mut held, b"#!/bin/sh\n").unwrap();
        let busy = Command::new(&path).status().unwrap_err();
        assert_eq!(busy.kind(), io::ErrorKind::ExecutableFileBusy);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait_until_it_runs(&path));
            std::thread::sleep(Duration::from_millis(20));
            drop(held);
            waits.join().unwrap().unwrap();
        });
    }

    /// A `uv` in a directory of its own.
    fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uv");
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o755).open(&path);
        io::Write::write_all(file.as_mut().unwrap(), script.as_bytes()).unwrap();
        (dir, path)
    }

    #[test]
    fn a_uv_that_hangs_is_ended_and_the_next_one_taken() {
        let (hangs, _) = program("#!/bin/sh\necho $$ >\"$0.pid\"\nsleep 1000\ntrue\n");
        let (fails, _) = program("#!/bin/sh\necho 'uv 9.9.9'; exit 1\n");
        let (old, _) = program("#!/bin/sh\necho 'uv 0.4.30'\n");
        let (good, path) = program("#!/bin/sh\necho 'uv 0.13.9 (linux)'\n");
        wait_until_it_runs(&path).unwrap();
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path()).unwrap();
        let directories = [&hangs, &fails, &old, &good].map(|dir| dir.path().to_owned());
        let path_of_all = env::join_paths(&directories).unwrap();
        let limit = Duration::from_secs(3);
        let patience = Patience::endless();
        let found = Uv::among(&path_of_all, &store, &patience, &layers::Silent, limit);
        assert_eq!(found.unwrap().unwrap().program, path);
        let pid = fs::read_to_string(hangs.path().join("uv.pid")).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "it has been reaped");
    }

    #[test]
    fn a_deploy_that_is_given_up_ends_while_a_uv_hangs() {
        let (hangs, path) = program("#!/bin/sh\ntouch \"$0.there\"\nsleep 1000\ntrue\n");
        let there = path.with_extension("there");
        let patience = Patience::of(Duration::MAX, move || there.exists());
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path()).unwrap();
        let found = Uv::among(
            hangs.path().as_os_str(),
            &store,
            &patience,
            &layers::Silent,
            Duration::from_secs(600),
        );
        assert!(matches!(found, Err(UvError::Start(Unfinished::GivenUp))), "{found:?}");
    }

    #[test]
    fn a_quote_in_a_path_stays_inside_its_word() {
        assert_eq!(quote(&OsString::from("/a b/it's")), r"'/a b/it'\''s'");
    }
}
