//! The floor: one Python that forks itself when asked, from the request to the child's first byte. No isolation, no
//! HTTP, no code to load, and one fork at a time. It has imported nothing, or a file that imports a library.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::rootfs::Rootfs;
use crate::load::{Pending, Shot, Target};

const SERVER: &str = "
import gc, os, signal, sys
if len(sys.argv) == 3:
    sys.path.insert(0, sys.argv[1])
    with open(sys.argv[2]) as file:
        exec(compile(file.read(), sys.argv[2], 'exec'), {'__name__': 'imported'})
# Nobody waits for the children: the kernel reaps them.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gc.freeze()
while os.read(0, 1):
    if os.fork() == 0:
        os.write(1, b'x')
        os._exit(0)
";

/// A Python that forks.
#[derive(Debug)]
pub(crate) struct OsFork {
    name: String,
    // Taken in turn: there is one thread that forks.
    pipes: Mutex<(ChildStdin, ChildStdout)>,
    _process: Child,
}

impl OsFork {
    /// One that has imported nothing.
    pub(crate) fn start(rootfs: &Rootfs) -> Result<Self> {
        Self::run("os.fork()", rootfs, &[])
    }

    /// One that has run `file`, with what it imports in `packages`.
    pub(crate) fn having_run(
        name: &str,
        rootfs: &Rootfs,
        packages: &Path,
        file: &Path,
    ) -> Result<Self> {
        Self::run(name, rootfs, &[packages, file])
    }

    fn run(name: &str, rootfs: &Rootfs, arguments: &[&Path]) -> Result<Self> {
        let mut command = rootfs.python();
        command.args(["-I", "-S", "-c", SERVER]).args(arguments);
        // As zygotes are started: a pool of threads could not be forked.
        command.env("OPENBLAS_NUM_THREADS", "1").env("HOME", std::env::temp_dir());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("start the interpreter that forks")?;
        let stdin = process.stdin.take().context("it has no input")?;
        let stdout = process.stdout.take().context("it has no output")?;
        let pipes = Mutex::new((stdin, stdout));
        Ok(Self { name: name.to_owned(), pipes, _process: process })
    }
}

impl Target for OsFork {
    fn name(&self) -> &str {
        &self.name
    }

    fn shoot(&self, _client: usize) -> Pending<'_, Shot> {
        Box::pin(async {
            let mut pipes = self.pipes.lock().await;
            pipes.0.write_all(b"f").await.context("ask for a fork")?;
            let mut byte = [0];
            let read = pipes.1.read(&mut byte).await.context("read the child's byte")?;
            ensure!(read == 1, "the interpreter that forks is gone");
            Ok(Shot::plain(Instant::now()))
        })
    }
}
