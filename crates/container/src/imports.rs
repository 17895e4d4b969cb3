//! A zygote's imports, and what they leave behind.
//!
//! ```text
//!   all at once ─► examined by the warden ─► nothing left: it can be forked
//!                     │ something is left, and the zygote names no module
//!                     ▼
//!   another zygote, step by step, examined after each ─► left_by: first module of each guilty step
//! ```
//! The list of loaded modules and their times are claims of a process in which packages run. The
//! total time and the remains are measured from outside.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use sandbox::{Imports, LoadedFile, ProviderError, ZygoteSpec};
use serde::{Deserialize, Serialize};
use sys::process::PidFd;
use sys::scm;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, sleep_until};
use warden::protocol::{Answer, Command, ImportRemains};

use crate::client::unexpected;
use crate::fork::read_packet;
use crate::handle::Handle;

/// Timeout for callers that have none. The engine gives up sooner: see its `creation_timeout`.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of files and variables that a zygote may report. Large package sets load some
/// five thousand; a report beyond this only serves to fill the worker's memory.
const MAX_FILES: usize = 100_000;

/// Maximum size of a zygote's whole report, in bytes: a name may be as long as a packet.
const MAX_BYTES: usize = 64 << 20;

/// Length limit of a variable's name, in bytes: the guest sends `*` instead of longer ones.
const MAX_VARIABLE_BYTES: usize = 1024;

/// Size limit of the modules in one message, in bytes: the guest reads 64 KiB at a time.
const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// How often to look again for a thread that Python has joined: the kernel keeps it a moment
/// longer.
const LOOKS: usize = 5;
const MOMENT: Duration = Duration::from_millis(10);

/// How much longer than a look the pause after it is: the warden serves all sandboxes with one
/// thread.
const PAUSE: u32 = 9;

/// How a zygote is asked for its imports.
#[derive(Debug)]
pub(crate) enum Steps {
    AtOnce,
    /// One request for each of these steps, examined after each.
    Each(Vec<Vec<String>>),
}

impl Steps {
    /// Divides loaded files into steps, in the order in which they were loaded. A step is a run of
    /// modules below one package of the first level. The outermost name alone does not do: two
    /// distributions may share it as a namespace package.
    pub(crate) fn of(files: &[LoadedFile]) -> Self {
        fn below(module: &str) -> &str {
            module.match_indices('.').nth(1).map_or(module, |(end, _)| &module[..end])
        }
        let runs = files.chunk_by(|one, next| below(&one.module) == below(&next.module));
        Self::Each(runs.map(|run| run.iter().map(|file| file.module.clone()).collect()).collect())
    }
}

#[derive(Serialize)]
struct ImportMessage<'a> {
    kind: &'static str,
    modules: &'a [String],
    path: &'a [&'static str],
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum ImportReply {
    Files { files: Vec<LoadedFile> },
    Imported(Imports),
}

/// Whether a fork would lose state, or share state that it must not share.
pub(crate) fn left_something(imports: &Imports) -> bool {
    let kernels = imports.threads > 0 || imports.fds > 0 || imports.shared > 0;
    kernels || imports.scratch || imports.timers
}

/// Lets the zygote import what its specification requests, and lets the warden examine it
/// afterwards.
pub(crate) async fn import(
    control: &AsyncFd<OwnedFd>,
    (handle, process): (&Handle, &PidFd),
    spec: &ZygoteSpec,
    steps: &Steps,
) -> Result<Imports, ProviderError> {
    let begin = Instant::now();
    // One deadline for the whole report: a packet now and then does not extend it.
    let mut asked = ImportRequest {
        control,
        handle,
        process,
        packaged: spec.packages.is_some(),
        deadline: begin + IMPORT_TIMEOUT,
        noted: 0,
        said: 0,
    };
    let mut all = Imports::default();
    // The kernel's findings, and the zygote's own on its scratch and its timers.
    let mut left = (ImportRemains::default(), false, false);
    let mut looks = Examiner { handle, next: begin };
    if spec.imports.is_empty() {
        // No package code has run in it that had not run in its parent.
        return Ok(all);
    }
    match steps {
        Steps::AtOnce => {
            asked.import(&spec.imports, &mut all).await?;
            left = (looks.settled().await?, all.scratch, all.timers);
        }
        Steps::Each(steps) => {
            let mut left_by = Vec::new();
            for step in steps {
                asked.import(step, &mut all).await?;
                let now = (looks.settled().await?, all.scratch, all.timers);
                if now != left {
                    left_by.extend(step.first().cloned());
                    left = now;
                }
            }
            // Requests also modules that were loaded as part of others, or that are no file.
            asked.import(&spec.imports, &mut all).await?;
            left = (looks.settled().await?, all.scratch, all.timers);
            all.left_by = left_by;
        }
    }
    if left == (ImportRemains::default(), false, false) {
        // For example a thread that ended a moment later than its join.
        all.left_by.clear();
    }
    ImportRemains { tasks: all.threads, descriptors: all.fds, shared: all.shared } = left.0;
    all.bound(begin.elapsed());
    Ok(all)
}

/// Examinations of a zygote by the warden.
struct Examiner<'a> {
    handle: &'a Handle,
    /// The earliest time of the next look: see [`PAUSE`].
    next: Instant,
}

impl Examiner<'_> {
    /// Looks until no thread is left, or [`LOOKS`] times.
    async fn settled(&mut self) -> Result<ImportRemains, ProviderError> {
        let mut left = self.look().await?;
        for _ in 1..LOOKS {
            if left.tasks == 0 {
                break;
            }
            sleep(MOMENT).await;
            left = self.look().await?;
        }
        Ok(left)
    }

    async fn look(&mut self) -> Result<ImportRemains, ProviderError> {
        sleep_until(self.next.into()).await;
        let (began, command) = (Instant::now(), Command::Examine { sandbox: self.handle.id.0 });
        let (Answer::Examined(left), _) = self.handle.client.call(command, &[]).await? else {
            return Err(unexpected());
        };
        self.next = Instant::now() + PAUSE * began.elapsed();
        Ok(left)
    }
}

/// A conversation with a zygote about its imports.
struct ImportRequest<'a> {
    control: &'a AsyncFd<OwnedFd>,
    handle: &'a Handle,
    process: &'a PidFd,
    packaged: bool,
    deadline: Instant,
    /// Files and variables reported so far.
    noted: usize,
    /// Bytes reported so far.
    said: usize,
}

impl ImportRequest<'_> {
    fn lost(&self, reason: String) -> ProviderError {
        ProviderError::ZygoteLost { id: self.handle.id, reason }
    }

    /// The error when the zygote has closed its channel, which mostly means that it died.
    async fn ended(&self) -> ProviderError {
        match self.handle.autopsy(self.process).await {
            Ok((death, _)) => self.lost(format!("while importing: {death}")),
            Err(error) => error,
        }
    }

    async fn import(&mut self, modules: &[String], all: &mut Imports) -> Result<(), ProviderError> {
        for modules in messages(modules) {
            self.import_some(modules, all).await?;
        }
        Ok(())
    }

    async fn import_some(
        &mut self,
        modules: &[String],
        all: &mut Imports,
    ) -> Result<(), ProviderError> {
        let path: &[&str] = if self.packaged { &["/opt/python"] } else { &[] };
        let message = ImportMessage { kind: "import", modules, path };
        let message = serde_json::to_vec(&message).map_err(|error| self.lost(error.to_string()))?;
        scm::send(self.control.as_fd(), &message, &[], false)
            .map_err(|error| self.lost(error.to_string()))?;
        loop {
            let timeout = self.deadline.saturating_duration_since(Instant::now());
            let said = read_packet(self.control, timeout).await;
            let said = match said {
                Ok(said) => said,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(self.ended().await);
                }
                Err(error) => return Err(self.lost(format!("while importing: {error}"))),
            };
            self.said += said.len();
            if self.said > MAX_BYTES {
                return Err(self.lost(format!("it says more than {MAX_BYTES} bytes of imports")));
            }
            match serde_json::from_slice(&said) {
                Ok(ImportReply::Files { files }) => self.note(files, all)?,
                Ok(ImportReply::Imported(imports)) => {
                    all.milliseconds += imports.milliseconds;
                    all.scratch = imports.scratch;
                    all.timers = imports.timers;
                    all.left_by.extend(imports.left_by);
                    all.failed.extend(imports.failed);
                    all.variables.extend(imports.variables);
                    return self.note(imports.files, all);
                }
                Err(_) => return Err(self.lost("it does not say what it imported".to_owned())),
            }
        }
    }

    fn note(&mut self, files: Vec<LoadedFile>, all: &mut Imports) -> Result<(), ProviderError> {
        let variables = files.iter().map(|file| &file.variables);
        self.noted += files.len() + variables.clone().map(Vec::len).sum::<usize>();
        if self.noted > MAX_FILES {
            let what = format!("it names more than {MAX_FILES} files and variables");
            return Err(self.lost(what));
        }
        if variables.flatten().any(|name| name.len() > MAX_VARIABLE_BYTES) {
            let what = format!("it names a variable in more than {MAX_VARIABLE_BYTES} bytes");
            return Err(self.lost(what));
        }
        all.files.extend(files);
        Ok(())
    }
}

/// The modules in groups, each small enough for one message.
fn messages(mut modules: &[String]) -> impl Iterator<Item = &[String]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = modules.iter().take_while(|module| {
            bytes += module.len() + 4;
            bytes <= MAX_MESSAGE_BYTES
        });
        let count = fits.count().max(1).min(modules.len());
        let (some, rest) = modules.split_at(count);
        modules = rest;
        Some(some).filter(|some| !some.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(module: &str, milliseconds: f64) -> LoadedFile {
        LoadedFile { module: module.to_owned(), milliseconds, ..LoadedFile::default() }
    }

    #[test]
    fn a_zygote_cannot_have_spent_more_time_than_it_had() {
        let said = [f64::INFINITY, f64::NAN, -1.0, 30.0, 90.0];
        let files: Vec<_> = said.iter().map(|said| file("a", *said)).collect();
        let mut imports = Imports { files, milliseconds: 1e300, ..Imports::default() };
        imports.bound(Duration::from_millis(100));
        assert_eq!(imports.milliseconds, 100.0);
        let sum: f64 = imports.files.iter().map(|file| file.milliseconds).sum();
        assert!((0.0..=100.001).contains(&sum), "{imports:?}");
        let mut honest = Imports { files: vec![file("a", 30.0)], ..Imports::default() };
        honest.bound(Duration::from_millis(100));
        assert_eq!(honest.files[0].milliseconds, 30.0);
    }

    #[test]
    fn steps_go_by_packages_and_keep_namespaces_apart() {
        let names = ["six", "google.auth._a", "google.auth", "google.protobuf.x", "a.b", "a.b.c"];
        let files: Vec<_> = names.iter().map(|name| file(name, 1.0)).collect();
        let Steps::Each(steps) = Steps::of(&files) else { panic!() };
        let expected = [
            &["six"][..],
            &["google.auth._a", "google.auth"],
            &["google.protobuf.x"],
            &["a.b", "a.b.c"],
        ];
        assert_eq!(steps, expected);
    }
}
