//! Sandboxes to build packages in: instances of the ordinary kind, which serve one call and go.
//!
//! ```text
//!   create ─► load, invoke ─► output, line by line … ─► done ─► dropped: destroyed
//!                                   │ too long, ended, stopped, strange: dropped all the same
//! ```
//!
//! They are not the engine's: nothing of a build is cached, forked, kept or counted as a call, and its answer may be
//! far larger than a call's: it goes into an unnamed file as it comes. They have no network, and limits of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use layers::{Store, guest};
use packages::SandboxError;
use packages::sdist::{FUNCTION, MODULE, Sandboxes, Task, plain};
use sandbox::wire::{Convention, Frame, Load, Prefix, Reply, Request};
use sandbox::{Death, Instance, InstanceSpec, Kind, Limits, Network, Provider, Reset};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader, copy, sink};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::deploy::progress::Progress;

/// Largest wheel, in bytes.
const ANSWER_BYTES: usize = 512 << 20;

/// Output shown of one call, in bytes.
const OUTPUT_BYTES: usize = 1 << 20;

/// Processes and threads of a build.
const PIDS: u32 = 512;

/// Files that a build may have, in each of its two scratch directories.
const INODES: u32 = 200_000;

/// Between two looks whether anybody still waits for a build.
const LOOK: Duration = Duration::from_millis(100);

/// The one call of each.
const CALL: &str = "build";

/// Makes the sandboxes that build packages.
#[derive(Debug)]
pub struct BuildSandboxes {
    // The warden goes when the last of its provider goes, and a deploy may outlive the worker's end.
    provider: Weak<dyn Provider>,
    store: Store,
    spool: PathBuf,
    guest: Vec<(&'static str, &'static [u8])>,
    limits: Limits,
    timeout: Duration,
    runtime: Handle,
    stop: CancellationToken,
    /// Those that are there.
    there: Mutex<Vec<Weak<dyn Instance>>>,
}

impl BuildSandboxes {
    /// Sandboxes of a provider, each with `memory` bytes, of which its files may take half, and `timeout` to answer.
    /// What they answer is kept below `spool`. Inside a tokio runtime.
    #[must_use]
    pub fn new(
        provider: &Arc<dyn Provider>,
        store: Store,
        spool: PathBuf,
        guest: Vec<(&'static str, &'static [u8])>,
        memory: u64,
        timeout: Duration,
    ) -> Self {
        let scratch_bytes = memory / 2;
        let limits = Limits {
            // Together as much as is asked for.
            memory_bytes: memory - scratch_bytes.saturating_sub(Limits::SCRATCH),
            pids: PIDS,
            scratch_bytes,
            scratch_inodes: INODES,
            ..Limits::default()
        };
        Self {
            provider: Arc::downgrade(provider),
            store,
            spool,
            guest,
            limits,
            timeout,
            runtime: Handle::current(),
            stop: CancellationToken::new(),
            there: Mutex::default(),
        }
    }

    /// Bytes that the builds which are under way cost now, as far as the host can tell.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let mut there = self.there();
        there.retain(|instance| instance.strong_count() > 0);
        there.iter().filter_map(|instance| instance.upgrade()?.memory().ok()).sum()
    }

    fn there(&self) -> MutexGuard<'_, Vec<Weak<dyn Instance>>> {
        // It is whole between any two operations on it.
        self.there.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the builds that are under way, and those that would follow.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    async fn run(
        &self,
        spec: InstanceSpec,
        body: &[u8],
        progress: &dyn Progress,
    ) -> Result<File, SandboxError> {
        let provider = self.provider.upgrade().ok_or(SandboxError::Stopping)?;
        let mut instance = provider
            .create_instance(spec)
            .await
            .map_err(|error| SandboxError::None(error.into()))?;
        let (channel, written) = (instance.connect(), instance.output());
        let instance: Arc<dyn Instance> = Arc::from(instance);
        self.there().push(Arc::downgrade(&instance));
        let talk = async {
            let channel = channel?;
            tokio::select! {
                answer = converse(channel, body, self.timeout, &self.spool, progress) => answer,
                never = show(written, progress) => never,
            }
        };
        match tokio::time::timeout(self.timeout, talk).await {
            Err(_) => Err(SandboxError::TimedOut { limit: self.timeout }),
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(SandboxError::Died(self.explain(&*instance).await))
            }
            Ok(Err(error)) => Err(SandboxError::None(error.into())),
        }
    }

    async fn explain(&self, instance: &dyn Instance) -> String {
        match instance.autopsy().await {
            Ok(Death::OutOfMemory) => format!(
                "it reached its memory limit of {} MiB; the setting `build_memory` allows more",
                self.limits.charged_bytes() >> 20
            ),
            death => death.unwrap_or(Death::Unknown).to_string(),
        }
    }
}

impl Sandboxes for BuildSandboxes {
    fn call(&self, task: Task<'_>, progress: &dyn Progress) -> Result<File, SandboxError> {
        let guest = guest::install(&self.store, task.base, &self.guest)
            .map_err(|error| SandboxError::None(error.into()))?;
        let spec = InstanceSpec {
            kind: Kind::Container,
            reset: Reset::Never,
            python: task.base.python(guest),
            packages: task.packages,
            code: task.code,
            opt: None,
            network: Network::None,
            egress: [].into(),
            owner: "".into(),
            limits: self.limits,
        };
        let given_up = async {
            while !task.patience.given_up() {
                tokio::time::sleep(LOOK).await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => Err(SandboxError::Stopping),
                () = given_up => Err(SandboxError::Stopping),
                answer = self.run(spec, &task.body, progress) => answer,
            }
        })
    }
}

/// Shows what is written around the guest. Ends only with an error.
async fn show<T>(written: Option<OwnedFd>, progress: &dyn Progress) -> io::Result<T> {
    if let Some(written) = written {
        let mut written = pipe::Receiver::from_owned_fd(written)?;
        let mut output = Output { left: OUTPUT_BYTES, progress };
        let mut text = Vec::with_capacity(64 << 10);
        while written.read_buf(&mut text).await? > 0 {
            output.show(&text);
            text.clear();
        }
    }
    std::future::pending().await
}

/// Loads our code, calls it and waits for its answer. An I/O error of the kind `UnexpectedEof`: its process ended.
async fn converse(
    channel: OwnedFd,
    body: &[u8],
    limit: Duration,
    spool: &Path,
    progress: &dyn Progress,
) -> io::Result<Result<File, SandboxError>> {
    let stream = std::os::unix::net::UnixStream::from(channel);
    stream.set_nonblocking(true)?;
    let mut stream = UnixStream::from_std(stream)?;
    let mut outgoing = Vec::new();
    Request::Load(load()).encode(b"", &mut outgoing).map_err(io::Error::other)?;
    let invoke = Request::Invoke {
        id: CALL.to_owned(),
        remaining_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        content_type: "application/json".to_owned(),
        lambda: None,
    };
    invoke.encode(body, &mut outgoing).map_err(io::Error::other)?;
    // Short enough for the channel to take it whole, whatever the other side does.
    stream.write_all(&outgoing).await.map_err(|_| io::ErrorKind::UnexpectedEof)?;
    let mut stream = BufReader::with_capacity(64 << 10, stream);
    let mut output = Output { left: OUTPUT_BYTES, progress };
    loop {
        let mut prefix = [0; Prefix::BYTES];
        stream.read_exact(&mut prefix).await.map_err(gone)?;
        let lengths = match Prefix::read(prefix, ANSWER_BYTES) {
            Ok(lengths) => lengths,
            Err(error) => return Ok(Err(SandboxError::Answer(error.to_string()))),
        };
        let mut header = vec![0; lengths.header];
        stream.read_exact(&mut header).await.map_err(gone)?;
        let mut body = (&mut stream).take(lengths.body as u64);
        match Reply::decode(Frame { header, body: Vec::new() }) {
            Ok((Reply::Log { .. }, _)) => {
                let mut text = Vec::new();
                let shown = (&mut body).take(output.left as u64).read_to_end(&mut text).await;
                shown.map_err(gone)?;
                output.show(&text);
            }
            Ok((Reply::Done { id: of, .. }, _)) if of == CALL => {
                return store(body, lengths.body as u64, spool).await;
            }
            Ok((Reply::Failed { failure, .. }, _)) => {
                let words = plain(&format!("{}: {}", failure.error_type, failure.message));
                return Ok(Err(SandboxError::Died(words)));
            }
            Ok((Reply::Ready { .. } | Reply::Loaded { .. } | Reply::Imports {}, _)) => {}
            Ok((Reply::Done { .. } | Reply::Part { .. }, _)) => {
                let words = "it names another invocation".to_owned();
                return Ok(Err(SandboxError::Answer(words)));
            }
            Err(error) => return Ok(Err(SandboxError::Answer(error.to_string()))),
        }
        // The rest of a body that is not used.
        copy(&mut body, &mut sink()).await.map_err(gone)?;
    }
}

fn gone(_: io::Error) -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}

/// All of an answer, in an unnamed file.
async fn store(
    mut answer: impl AsyncRead + Unpin,
    length: u64,
    spool: &Path,
) -> io::Result<Result<File, SandboxError>> {
    let mut file = match tempfile::tempfile_in(spool) {
        Ok(file) => file,
        Err(error) => return Ok(Err(SandboxError::NotKept(error))),
    };
    let mut buffer = vec![0; 64 << 10];
    let mut left = length;
    while left > 0 {
        let count = answer.read(&mut buffer).await.map_err(gone)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Into the page cache: short enough to do here.
        if let Err(error) = file.write_all(&buffer[..count]) {
            return Ok(Err(SandboxError::NotKept(error)));
        }
        left -= count as u64;
    }
    Ok(file.rewind().map(|()| file).map_err(SandboxError::NotKept))
}

/// What a build prints, and no more of it than anybody reads.
struct Output<'a> {
    left: usize,
    progress: &'a dyn Progress,
}

impl Output<'_> {
    fn show(&mut self, text: &[u8]) {
        if self.left == 0 {
            return;
        }
        let shown = &text[..text.len().min(self.left)];
        self.left -= shown.len();
        for line in plain(&String::from_utf8_lossy(shown)).lines() {
            if !line.trim().is_empty() {
                self.progress.line(line.trim_end());
            }
        }
        if self.left == 0 {
            self.progress.line("… and more output, which is not shown");
        }
    }
}

fn load() -> Load {
    Load {
        module: MODULE.to_owned(),
        function: FUNCTION.to_owned(),
        convention: Convention::Lambda,
        name: "build".to_owned(),
        version: String::new(),
        memory_mb: 0,
        environment: BTreeMap::new(),
        binary: true,
        observe: false,
        entries: None,
        lambda: None,
        threads: 1,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream as Blocking;
    use std::process::Command;

    use sandbox::wire::LogStream;

    use super::*;

    /// What a sandbox answers that says this, piece by piece, to whatever it is asked.
    async fn answer(
        spool: &Path,
        say: impl FnOnce(Blocking) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Result<File, SandboxError>> {
        let (ours, theirs) = Blocking::pair().unwrap();
        // It hears what it is asked, however soon it has said all.
        let hears = theirs.try_clone().unwrap();
        let saying = std::thread::spawn(move || {
            say(theirs.try_clone()?)?;
            theirs.shutdown(Shutdown::Write)
        });
        let limit = Duration::from_secs(60);
        let answer = converse(ours.into(), b"{}", limit, spool, &layers::Silent).await;
        // The other side sees that its channel is closed.
        drop(saying.join().unwrap());
        drop(hears);
        answer
    }

    fn header(reply: &Reply, body: usize) -> Vec<u8> {
        let header = serde_json::to_vec(reply).unwrap();
        let lengths = [header.len(), body].map(|length| u32::try_from(length).unwrap());
        [lengths.map(u32::to_le_bytes).as_flattened(), &header].concat()
    }

    fn done() -> Reply {
        Reply::Done { id: CALL.to_owned(), content_type: String::new() }
    }

    /// The most bytes that this process ever had in memory.
    fn peak() -> usize {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
    }

    /// In a process of its own: what other tests take is not counted, and what was taken and given back is.
    #[test]
    fn an_answer_of_hundreds_of_megabytes_stands_in_a_file_and_not_in_memory() {
        const ALONE: &str = "LAMBSWOOL_TEST_ALONE";
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        if std::env::var_os(ALONE).is_some() {
            return runtime().unwrap().block_on(receive_hundreds_of_megabytes());
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = "an_answer_of_hundreds_of_megabytes_stands_in_a_file_and_not_in_memory";
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("{module}::{test}"), "--test-threads=1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    async fn receive_hundreds_of_megabytes() {
        let (spool, before) = (tempfile::tempdir().unwrap(), peak());
        let pieces = 256;
        let said = answer(spool.path(), move |mut channel| {
            let log = Reply::Log { id: CALL.to_owned(), stream: LogStream::Stdout };
            channel.write_all(&header(&log, pieces << 20))?;
            for _ in 0..pieces {
                channel.write_all(&vec![b'l'; 1 << 20])?;
            }
            channel.write_all(&header(&done(), pieces << 20))?;
            for piece in 0..pieces {
                channel.write_all(&vec![u8::try_from(piece).unwrap(); 1 << 20])?;
            }
            Ok(())
        });
        let mut file = said.await.unwrap().unwrap();
        let more = peak() - before;
        assert!(more < 64 << 20, "{more} bytes more");
        assert_eq!(file.metadata().unwrap().len(), 256 << 20);
        assert_eq!(fs::read_dir(spool.path()).unwrap().count(), 0, "it has no name");
        let mut byte = [7];
        for piece in [0, 1, 255] {
            file.seek(io::SeekFrom::Start((piece << 20) + 5)).unwrap();
            file.read_exact(&mut byte).unwrap();
            assert_eq!(u64::from(byte[0]), piece);
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_off_or_too_long_is_none() {
        let spool = tempfile::tempdir().unwrap();
        let cut = answer(spool.path(), |mut channel| {
            channel.write_all(&header(&done(), 10))?;
            channel.write_all(b"nine byte")
        });
        assert_eq!(cut.await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let long = answer(spool.path(), |mut channel| {
            channel.write_all(&header(&done(), ANSWER_BYTES + 1))
        });
        assert!(matches!(long.await.unwrap(), Err(SandboxError::Answer(_))));
        let nowhere = answer(Path::new("/nowhere"), |mut channel| {
            channel.write_all(&header(&done(), 1))?;
            channel.write_all(b"x")
        });
        assert!(matches!(nowhere.await.unwrap(), Err(SandboxError::NotKept(_))));
    }
}
