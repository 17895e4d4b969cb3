//! What a zygote imports, and what that leaves behind.
//!
//! ```text
//!   all at once ─► examined by the warden ─► nothing left: it can be forked
//!                     │ something, and the zygote names no module
//!                     ▼
//!   another one, step by step, examined after each ─► left_by: the first module of each step that left something
//! ```
//! Which modules were loaded, and how long each took, is the word of a process in which packages run. How long all took
//! together, and what they left, is seen from outside.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use sandbox::{Imports, LoadedFile, ProviderError, ZygoteSpec};
use serde::{Deserialize, Serialize};
use sys::process::PidFd;
use sys::scm;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, sleep_until};
use warden::protocol::{Answer, Command, Left};

use crate::client::unexpected;
use crate::fork::read_packet;
use crate::handle::Handle;

/// For who waits without an end. The engine gives up sooner: see its `creation_timeout`.
const IMPORT_PATIENCE: Duration = Duration::from_secs(120);

/// Most files that a zygote may say it has loaded, and variables that they looked up: large package sets load some five
/// thousand. Whoever says more means to fill this process's memory.
const MOST_FILES: usize = 100_000;

/// Most bytes of all that it says of its imports: a name may be as long as a packet.
const MOST_BYTES: usize = 64 << 20;

/// Longest name of a variable: the guest says `*` instead of longer ones.
const VARIABLE_BYTES: usize = 1024;

/// Longest list of modules in one message: the guest reads 64 KiB at a time.
const MESSAGE_BYTES: usize = 32 << 10;

/// A thread that Python has joined is the kernel's for a moment longer: looks that see one, and the time between two.
const LOOKS: usize = 5;
const MOMENT: Duration = Duration::from_millis(10);

/// How much longer than a look the pause after it is: the warden looks for one sandbox and serves all.
const PAUSE: u32 = 9;

/// How a zygote is asked for its imports.
#[derive(Debug)]
pub(crate) enum Steps {
    AtOnce,
    /// These, examined after each.
    Each(Vec<Vec<String>>),
}

impl Steps {
    /// Steps through what was loaded, in the order in which it was. One is a run of modules below one package of the first
    /// level: two distributions may share the outermost name, which is then a namespace.
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

/// Whether a fork would lose something, or share what is not to be shared.
pub(crate) fn left_something(imports: &Imports) -> bool {
    let kernels = imports.threads > 0 || imports.fds > 0 || imports.shared > 0;
    kernels || imports.scratch || imports.timers
}

/// Has the zygote import what its specification says, and has the warden look at what it is then.
pub(crate) async fn import(
    control: &AsyncFd<OwnedFd>,
    (handle, process): (&Handle, &PidFd),
    spec: &ZygoteSpec,
    steps: &Steps,
) -> Result<Imports, ProviderError> {
    let begin = Instant::now();
    // One deadline for all of it: a packet now and then does not extend it.
    let mut asked = Asked {
        control,
        handle,
        process,
        packaged: spec.packages.is_some(),
        deadline: begin + IMPORT_PATIENCE,
        noted: 0,
        said: 0,
    };
    let mut all = Imports::default();
    // The kernel's word, and the zygote's own on its scratch and its timers.
    let mut left = (Left::default(), false, false);
    let mut looks = Looks { handle, next: begin };
    if spec.imports.is_empty() {
        // Nothing of packages has run in it that had not in the one that it came from.
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
            // What was loaded as something else's part, or is no file, is asked for as well.
            asked.import(&spec.imports, &mut all).await?;
            left = (looks.settled().await?, all.scratch, all.timers);
            all.left_by = left_by;
        }
    }
    if left == (Left::default(), false, false) {
        // A thread that ended a moment later than its join, say.
        all.left_by.clear();
    }
    Left { tasks: all.threads, descriptors: all.fds, shared: all.shared } = left.0;
    all.bound(begin.elapsed());
    Ok(all)
}

/// The kernel's word on a zygote.
struct Looks<'a> {
    handle: &'a Handle,
    /// Not sooner: see [`PAUSE`].
    next: Instant,
}

impl Looks<'_> {
    /// Looks until no thread is left, or for long enough.
    async fn settled(&mut self) -> Result<Left, ProviderError> {
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

    async fn look(&mut self) -> Result<Left, ProviderError> {
        sleep_until(self.next.into()).await;
        let (began, command) = (Instant::now(), Command::Examine { sandbox: self.handle.id.0 });
        let (Answer::Examined(left), _) = self.handle.client.call(command, &[]).await? else {
            return Err(unexpected());
        };
        self.next = Instant::now() + PAUSE * began.elapsed();
        Ok(left)
    }
}

/// A zygote that is asked for imports.
struct Asked<'a> {
    control: &'a AsyncFd<OwnedFd>,
    handle: &'a Handle,
    process: &'a PidFd,
    packaged: bool,
    deadline: Instant,
    /// Files and variables that it has said.
    noted: usize,
    /// Bytes of everything that it has said.
    said: usize,
}

impl Asked<'_> {
    fn lost(&self, reason: String) -> ProviderError {
        ProviderError::ZygoteLost { id: self.handle.id, reason }
    }

    /// It has closed its end of the conversation: as it died, for the most part.
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
            let patience = self.deadline.saturating_duration_since(Instant::now());
            let said = read_packet(self.control, patience).await;
            let said = match said {
                Ok(said) => said,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(self.ended().await);
                }
                Err(error) => return Err(self.lost(format!("while importing: {error}"))),
            };
            self.said += said.len();
            if self.said > MOST_BYTES {
                return Err(self.lost(format!("it says more than {MOST_BYTES} bytes of imports")));
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
        if self.noted > MOST_FILES {
            let what = format!("it names more than {MOST_FILES} files and variables");
            return Err(self.lost(what));
        }
        if variables.flatten().any(|name| name.len() > VARIABLE_BYTES) {
            let what = format!("it names a variable in more than {VARIABLE_BYTES} bytes");
            return Err(self.lost(what));
        }
        all.files.extend(files);
        Ok(())
    }
}

/// The modules, as many at a time as fit into a message.
fn messages(mut modules: &[String]) -> impl Iterator<Item = &[String]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = modules.iter().take_while(|module| {
            bytes += module.len() + 4;
            bytes <= MESSAGE_BYTES
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
