//! Output of functions: from the engine to files, and from files to readers.
//!
//! ```text
//!   engine ── write ──► bounded queue ──► writer thread ──► logs/<name>/current.log ──► 1.log ──► 2.log
//!      (never waits: too fast, or its share is full → dropped) one line: RFC 3339, invocation, stream, text
//! ```
//!
//! A reader asks the writer to catch up first, so what a finished call printed is there to read. Followers are woken
//! by a counter that moves whenever something was written.
//!
//! ```text
//!   wool rm NAME ──► registry: gone ──► files and bucket: gone        in the writer, between two lines
//!                          └── a call of it that still runs: its lines are dropped, for good
//!   died in between ──► the next worker's writer begins with removing what the registry does not know
//! ```

mod file;
mod follow;
mod line;
mod opened;
mod rate;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Instant, SystemTime};

use engine::{LogLine, LogSink};
use sandbox::wire::LogStream;
use tokio::sync::{broadcast, oneshot, watch};

pub use file::Rotation;
pub use file::{open_lines, path as numbered, rotate};
pub use follow::Reader;
pub use line::stamp;
pub use line::{Entry, ParseError, WORKER};
pub use opened::{OpenLog, Removal};

use crate::functions::Registry;
use crate::limits::bucket::Rate;
use crate::limits::shares::Share;
use file::Files;
use function::{WholeName, directory};
use rate::{Buckets, Piece, Verdict};

/// Pieces that may wait for the writer; each holds at most 64 KiB, and becomes twice that in a file.
const QUEUE: usize = 4096;

/// The logs of all functions.
#[derive(Debug)]
pub struct Logs {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
    buckets: Mutex<Buckets>,
    written: watch::Receiver<u64>,
    removed: broadcast::Sender<WholeName>,
    root: PathBuf,
    rotation: Rotation,
    registry: Arc<Registry>,
}

/// Removals that a follower may be behind; one that is further behind asks whether its function is there.
const REMOVALS: usize = 64;

/// Whether a function is there again whose log is to be removed.
type IsBack = Box<dyn FnOnce() -> bool + Send>;

enum Message {
    /// A piece, and how many bytes before it were dropped.
    Line {
        at: SystemTime,
        line: LogLine,
        dropped: u64,
        place: Share,
    },
    Remove(String, IsBack, oneshot::Sender<()>),
    Flush(oneshot::Sender<()>),
}

impl Logs {
    /// Starts the writer, which first removes what is left of functions that the registry does not know. It ends, with
    /// everything written, when the logs are dropped.
    ///
    /// # Errors
    /// When no thread can be made.
    pub fn start(
        root: &Path,
        rotation: Rotation,
        rate: Rate,
        registry: Arc<Registry>,
    ) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE);
        let (written_now, written) = watch::channel(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let files = Files::new(root.to_owned(), rotation);
        let known = Arc::clone(&registry);
        thread::Builder::new().name("logs".to_owned()).spawn(move || {
            if let Err(error) = sys::process::renounce_privilege() {
                tracing::error!(%error, "a thread cannot give up its privilege");
            }
            let functions = known.list();
            let names = functions.iter().map(|f| f.whole_name().directory().into_owned());
            files.keep_only(&names.collect());
            write_all(&messages, files, &known, &written_now);
        })?;
        let (buckets, removed) =
            (Mutex::new(Buckets::new(rate, QUEUE)), broadcast::Sender::new(REMOVALS));
        let root = root.to_owned();
        Ok(Self { queue, dropped, buckets, written, removed, root, rotation, registry })
    }

    /// Pieces dropped because the writer could not keep up, or their function wrote faster than it may.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything that was handed over before is in its file.
    pub async fn flush(&self) {
        self.ask(Message::Flush).await;
    }

    /// Forgets what a function wrote, and waits until it is gone; for a function that was removed. Not if the function is back
    /// when it would be gone. That is asked in between what is written: whatever comes from a function that is back later is
    /// written later, too.
    pub(crate) async fn remove_unless(
        &self,
        name: &WholeName,
        is_back: impl FnOnce() -> bool + Send + 'static,
    ) {
        let directory = name.directory().into_owned();
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner).forget(&directory);
        if self.ask(|done| Message::Remove(directory, Box::new(is_back), done)).await {
            // There may be no follower.
            let _ = self.removed.send(name.clone());
        }
    }

    /// Whose logs are removed from now on.
    fn removals(&self) -> broadcast::Receiver<WholeName> {
        self.removed.subscribe()
    }

    /// Waits until the writer has done what it is asked; says whether it has.
    async fn ask(&self, message: impl FnOnce(oneshot::Sender<()>) -> Message) -> bool {
        let (done, wait) = oneshot::channel();
        let (queue, message) = (self.queue.clone(), message(done));
        let sent = tokio::task::spawn_blocking(move || queue.send(message).is_ok()).await;
        // An error says that it let that be, or has ended, and then nothing is outstanding.
        sent.unwrap_or(false) && wait.await.is_ok()
    }

    /// A reader of the last `lines` entries of a function, oldest first. Blocks on disk.
    ///
    /// # Errors
    /// When the files cannot be read.
    fn read(&self, name: &WholeName, lines: usize) -> std::io::Result<Reader> {
        let directory = self.root.join(&*name.directory());
        Reader::back(directory, self.rotation, self.written.clone(), lines)
    }
}

impl LogSink for Logs {
    fn write(&self, line: LogLine) {
        let name = directory(&line.handler.tenant, &line.handler.name);
        let piece = Piece { text: line.text.len(), weight: line.weight() };
        // A bucket is whole between any two judgements.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = || self.registry.has(&line.handler);
        let verdict = buckets.judge(&name, piece, Instant::now(), is_there);
        drop(buckets);
        match verdict {
            Verdict::Passes { place, dropped } => {
                let message = Message::Line { at: SystemTime::now(), line, dropped, place };
                // Who asks for something takes a place, too.
                if let Err(TrySendError::Full(_)) = self.queue.try_send(message) {
                    self.count_dropped();
                }
            }
            Verdict::Dropped => self.count_dropped(),
            // The function is gone, and its log with it.
            Verdict::Gone => {}
        }
    }
}

impl Logs {
    fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("lambswool_log_pieces_dropped_total").increment(1);
    }
}

/// Runs in the writer's thread until all senders are gone.
fn write_all(
    messages: &Receiver<Message>,
    mut files: Files,
    registry: &Registry,
    written: &watch::Sender<u64>,
) {
    let mut waiting = Vec::new();
    while let Ok(first) = messages.recv() {
        // Everything that is there already goes into one write per file.
        for message in std::iter::once(first).chain(messages.try_iter().take(QUEUE)) {
            match message {
                Message::Line { at, line, dropped, place } => {
                    drop(place);
                    let handler = &line.handler;
                    let directory = directory(&handler.tenant, &handler.name);
                    let is_there = || registry.has(handler);
                    files.append(&directory, &handler.id, is_there, |out| {
                        render(out, at, &line, dropped);
                    });
                }
                Message::Remove(name, is_back, done) => {
                    if is_back() {
                        files.doubt(&name);
                    } else {
                        files.remove(&name);
                        waiting.push(done);
                    }
                }
                Message::Flush(done) => waiting.push(done),
            }
        }
        files.flush();
        written.send_modify(|count| *count += 1);
        for done in waiting.drain(..) {
            // The task that asked may have ended.
            let _ = done.send(());
        }
    }
}

/// Appends a piece as lines, behind one that says how much is missing before it.
fn render(out: &mut Vec<u8>, at: SystemTime, line: &LogLine, dropped: u64) {
    if dropped > 0 {
        let told = format!(
            "lambswool: {dropped} bytes of output came too fast and were dropped (log_rate)\n"
        );
        line::render(out, at, &line.invocation, LogStream::Stderr, told.as_bytes());
    }
    line::render(out, at, &line.invocation, line.stream, &line.text);
}

#[cfg(test)]
mod tests {
    use engine::{Handler, VersionId};

    use super::*;
    use crate::functions::Over;
    use store::Version;
    use store::memory::Memory;

    fn line_of(version: &str, text: &'static str) -> LogLine {
        let handler = serde_json::from_value(serde_json::json!({
            "id": version, "name": "chatty", "packages": null, "imports": [], "code": "code/c",
            "python": { "base": "base/b", "guest": "guest/g", "interpreter": "/usr/bin/python3" },
            "module": "m", "function": "f", "convention": "lambda", "binary": false, "environment": {},
            "limits": sandbox::Limits::default(), "network": "none",
            "timeout": { "secs": 1, "nanos": 0 }, "concurrency": 1,
        }));
        let (stream, text) = (LogStream::Stdout, text.into());
        LogLine { handler: Arc::new(handler.unwrap()), invocation: String::new(), stream, text }
    }

    fn another(name: &str) -> Arc<Handler> {
        let handler = (*line().handler).clone();
        let (id, name) = (VersionId(Arc::from(name)), name.to_owned());
        Arc::new(Handler { id, name, ..handler })
    }

    fn line() -> LogLine {
        line_of("1", "by print\n")
    }

    fn name() -> WholeName {
        line().handler.whole_name()
    }

    fn registry(root: &Path) -> Arc<Registry> {
        Arc::new(crate::functions::tests::registry(Box::new(Memory::default()), root))
    }

    fn deploy(registry: &Registry, line: &LogLine) {
        let handler = Arc::clone(&line.handler);
        let record = crate::functions::tests::record(&handler.tenant, &handler.name);
        let (id, created, warnings) = (handler.id.clone(), SystemTime::now(), Vec::new());
        let version = Version { id, record, created, warnings };
        registry.put(version, handler, false, 9, &Over::Anything).unwrap();
    }

    fn start(root: &Path, registry: &Arc<Registry>) -> Logs {
        let rate = Rate { each_second: 1e9, burst: 1e9 };
        let rotation = Rotation { files: 2, bytes: 1 << 20 };
        Logs::start(&root.join("logs"), rotation, rate, Arc::clone(registry)).unwrap()
    }

    fn written(root: &Path) -> String {
        std::fs::read_to_string(root.join("logs/chatty/current.log")).unwrap()
    }

    #[test]
    fn a_piece_weighs_what_it_takes_in_the_file() {
        let mine = "6f9c0f4e-0000-4000-8000-000000000000";
        for text in ["\n", "no end", "two\nlines\n", "\n\n\n", "\u{fffd}, as it should be"] {
            for (invocation, stream) in
                [("", LogStream::Stdout), (mine, LogStream::Stderr), (mine, LogStream::Worker)]
            {
                let line =
                    LogLine { invocation: invocation.to_owned(), stream, ..line_of("1", text) };
                let mut out = Vec::new();
                line::render(&mut out, SystemTime::now(), invocation, stream, &line.text);
                assert_eq!(line.weight(), out.len(), "{text:?}");
            }
        }
        let broken = LogLine { text: vec![0xff; 100].into(), ..line() };
        let mut out = Vec::new();
        line::render(&mut out, SystemTime::now(), "", broken.stream, &broken.text);
        assert_eq!(broken.weight(), out.len());
    }

    #[tokio::test]
    async fn what_was_removed_is_gone_when_the_removal_returns() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        deploy(&registry, &line());
        let logs = start(root.path(), &registry);
        let log = root.path().join("logs/chatty");
        for _ in 0..100 {
            logs.write(line());
            logs.flush().await;
            assert!(log.exists());
            logs.remove_unless(&name(), || false).await;
            assert!(!log.exists());
        }
    }

    #[tokio::test]
    async fn a_log_stays_whose_function_is_back_when_it_would_be_removed() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        deploy(&registry, &line());
        let logs = start(root.path(), &registry);
        let mut removals = logs.removals();
        logs.write(line());
        // Asked by the writer itself, nothing is written between the answer and the removal.
        logs.remove_unless(&name(), || thread::current().name() == Some("logs")).await;
        assert!(root.path().join("logs/chatty/current.log").exists());
        assert!(removals.try_recv().is_err(), "no reader is told that it is gone");
        logs.remove_unless(&name(), || false).await;
        assert!(!root.path().join("logs/chatty").exists());
        assert_eq!(removals.try_recv().unwrap(), name());
    }

    #[tokio::test]
    async fn what_outlives_its_function_writes_neither_its_log_nor_that_of_the_next_of_its_name() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        let (old, older, new) =
            (line_of("2", "of the old\n"), line_of("1", "older\n"), line_of("3", "of the new\n"));
        deploy(&registry, &older);
        deploy(&registry, &old);
        let logs = start(root.path(), &registry);
        logs.write(old.clone());
        logs.write(older.clone());
        logs.flush().await;
        assert!(written(root.path()).contains("older"), "a version before is the function's still");

        registry.remove(&name(), |_| ()).unwrap();
        logs.remove_unless(&name(), || false).await;
        logs.write(old.clone());
        logs.write(older.clone());
        logs.flush().await;
        assert!(!root.path().join("logs/chatty").exists());
        let buckets = format!("{:?}", logs.buckets.lock().unwrap());
        assert!(!buckets.contains("chatty"), "{buckets}");

        deploy(&registry, &new);
        for line in [&old, &new, &older, &new] {
            logs.write(line.clone());
        }
        logs.flush().await;
        assert!(!written(root.path()).contains("old"), "{}", written(root.path()));
        assert_eq!(written(root.path()).matches("of the new").count(), 2);
    }

    #[tokio::test]
    async fn a_function_that_is_back_before_its_log_is_gone_gets_nothing_more_of_the_one_before() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        let (old, new) = (line_of("1", "of the old\n"), line_of("2", "of the new\n"));
        deploy(&registry, &old);
        let logs = start(root.path(), &registry);
        logs.write(old.clone());
        logs.flush().await;
        registry.remove(&name(), |_| ()).unwrap();
        deploy(&registry, &new);
        logs.remove_unless(&name(), || true).await;
        // In this order: the new one has a bucket, and the writer alone can tell them apart.
        logs.write(new);
        logs.write(old);
        logs.flush().await;
        assert_eq!(written(root.path()).matches("of the old").count(), 1);
        assert_eq!(written(root.path()).matches("of the new").count(), 1);
    }

    #[tokio::test]
    async fn a_function_that_writes_more_than_can_wait_pushes_out_no_line_of_another() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        let loud = LogLine { handler: another("loud"), ..line() };
        deploy(&registry, &line());
        deploy(&registry, &loud);
        let logs = Arc::new(start(root.path(), &registry));
        // The question runs in the writer's thread, which waits here meanwhile.
        let (go_on, waits) = sync_channel::<()>(0);
        let (nobody, writer) = (another("nobody").whole_name(), Arc::clone(&logs));
        let (asked, is_asked) = oneshot::channel();
        let removal = tokio::spawn(async move {
            let is_back = move || asked.send(()).is_ok() && waits.recv().is_err();
            writer.remove_unless(&nobody, is_back).await;
        });
        is_asked.await.unwrap();
        for number in 0..24_000 {
            logs.write(loud.clone());
            if number % 240 == 0 {
                logs.write(line());
            }
        }
        drop(go_on);
        removal.await.unwrap();
        logs.flush().await;
        assert_eq!(written(root.path()).matches("by print").count(), 100);
        logs.write(loud);
        logs.flush().await;
        let log = std::fs::read_to_string(root.path().join("logs/loud/current.log")).unwrap();
        let kept = log.matches("by print").count() - 1;
        let dropped =
            format!(" {} bytes of output came too fast", (24_000 - kept) * "by print\n".len());
        assert!(kept < QUEUE && log.contains(&dropped), "{kept}: {log:.200}");
    }

    #[tokio::test]
    async fn what_functions_left_that_are_gone_is_removed_at_the_start() {
        let root = tempfile::tempdir().unwrap();
        let registry = registry(root.path());
        deploy(&registry, &line());
        for left in ["logs/chatty", "logs/gone", "logs/@acme/chatty"] {
            std::fs::create_dir_all(root.path().join(left)).unwrap();
            std::fs::write(root.path().join(left).join("current.log"), "left\n").unwrap();
        }
        start(root.path(), &registry).flush().await;
        let there = std::fs::read_dir(root.path().join("logs")).unwrap();
        let there: Vec<_> = there.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(there, ["chatty"]);
        assert_eq!(written(root.path()), "left\n");
    }
}
