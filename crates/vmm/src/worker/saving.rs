//! Writes a snapshot from a monitor to the disk, through a pipe: the file is the worker's alone,
//! and no longer than it allows.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use sandbox::Imports;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::shared::Shared;
use super::snapshots::{Origin, Snapshots};
use crate::message::Event;

/// Longest time of a snapshot: some hundred megabytes, on a busy machine.
const SAVE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of one reading.
const READ: usize = 256 << 10;

/// A snapshot that a monitor was ordered to write.
#[derive(Debug)]
pub(super) struct SnapshotTransfer {
    pub(super) origin: Origin,
    /// Time since the machine's interpreter started.
    pub(super) age: Duration,
    pub(super) imports: Imports,
    pub(super) pipe: Receiver,
    /// Events of the monitor's.
    pub(super) told: mpsc::UnboundedReceiver<Event>,
}

/// A pipe: the worker's end, and the monitor's.
pub(super) fn pipe() -> io::Result<(Receiver, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    // If a user may not have that much, the pipe stays as it is.
    let _ = fcntl_setpipe_size(&reader, READ);
    Ok((Receiver::from_owned_fd(reader)?, writer))
}

impl SnapshotTransfer {
    /// Writes the snapshot until the monitor tells its end. Off the path of calls, one snapshot at
    /// a time.
    pub(super) async fn finish(mut self, shared: Arc<Shared>) {
        let Some(snapshots) = &shared.snapshots else { return };
        let Ok(_turn) = shared.saving.acquire().await else { return };
        match timeout(SAVE_TIMEOUT, self.write(snapshots)).await {
            Ok(Ok(Some(bytes))) => {
                tracing::info!(bytes, "a snapshot of a reference machine was written")
            }
            // The family ended meanwhile, which is no error.
            Ok(Ok(None)) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "a snapshot of a reference machine was not written");
            }
            Err(_) => tracing::warn!("a snapshot of a reference machine took too long"),
        }
    }

    /// Bytes of the snapshot; none when the family has ended.
    async fn write(&mut self, snapshots: &Arc<Snapshots>) -> io::Result<Option<u64>> {
        let (origin, imports) = (self.origin.clone(), std::mem::take(&mut self.imports));
        let (snapshots, age) = (Arc::clone(snapshots), self.age);
        let mut writing = aside(move || snapshots.begin(origin, age, imports)).await?;
        let mut buffer = vec![0; READ];
        loop {
            self.pipe.readable().await?;
            match self.pipe.try_read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => {
                    let push = move || writing.push(&buffer[..count]).map(|()| (writing, buffer));
                    (writing, buffer) = aside(push).await?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        loop {
            match self.told.recv().await {
                Some(Event::Saved { failed: None }) => {
                    return aside(move || writing.finish()).await.map(Some);
                }
                Some(Event::Saved { failed: Some(why) }) => return Err(io::Error::other(why)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Works on a thread of its own while no call waits: for the disk, and for hashing.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
