//! A worker's life, as its clients see it.
//!
//! ```text
//!   open ──► open, doomed ──► closed ──► open (the next one)
//!            (said before it is killed, so that whoever is cut off finds it said)
//! ```
//! A pause closes the gate without an end: calls under way finish, none begins.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use e2e::Worker;

use crate::exchange::Way;

/// One life of a worker.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) number: u32,
    tcp: SocketAddr,
    unix: PathBuf,
    doomed: AtomicBool,
}

impl Epoch {
    pub(crate) fn of(worker: &Worker, number: u32) -> Arc<Self> {
        let address = worker.url().trim_start_matches("http://");
        let tcp = address.parse().expect("a worker's address is one");
        let unix = worker.site().state().join("run/wool.sock");
        Arc::new(Self { number, tcp, unix, doomed: AtomicBool::new(false) })
    }

    pub(crate) fn way(&self, unix: bool) -> Way {
        if unix { Way::Unix(self.unix.clone()) } else { Way::Tcp(self.tcp) }
    }

    /// From now on connections may break.
    pub(crate) fn doom(&self) {
        self.doomed.store(true, Ordering::SeqCst);
    }

    pub(crate) fn doomed(&self) -> bool {
        self.doomed.load(Ordering::SeqCst)
    }
}

/// Where clients wait for a worker.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<Option<Arc<Epoch>>>,
    changed: Condvar,
    over: AtomicBool,
    inside: AtomicUsize,
}

/// A client that was let in; it leaves when this is dropped.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    gate: &'a Gate,
    pub(crate) epoch: Arc<Epoch>,
}

impl Gate {
    pub(crate) fn open(&self, epoch: Arc<Epoch>) {
        *self.open.lock().unwrap() = Some(epoch);
        self.changed.notify_all();
    }

    pub(crate) fn close(&self) {
        *self.open.lock().unwrap() = None;
    }

    /// Nobody is let in any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.close();
        self.changed.notify_all();
    }

    /// The worker of now; none when there is none.
    pub(crate) fn now(&self) -> Option<Arc<Epoch>> {
        self.open.lock().unwrap().clone()
    }

    /// Waits until it is open; none when all is over.
    pub(crate) fn enter(&self) -> Option<Visit<'_>> {
        let mut open = self.open.lock().unwrap();
        loop {
            if self.over() {
                return None;
            }
            if let Some(epoch) = &*open {
                self.inside.fetch_add(1, Ordering::SeqCst);
                return Some(Visit { gate: self, epoch: Arc::clone(epoch) });
            }
            open = self.changed.wait(open).unwrap();
        }
    }

    pub(crate) fn over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.inside.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.gate.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
