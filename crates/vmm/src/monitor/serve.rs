//! The main thread: reads orders, starts clones, holds clones that run on after their call, and
//! stops clones whose channel has closed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use microvm::machine::{Hypervisor, HypervisorError};
use microvm::memory::Scanner;
use microvm::vfs::Branch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::{Imports, Limits, LoadedFile};
use sys::scm;

use super::conversation::Channel;
use super::family::{Family, tell};
use super::hold::WatchedClone;
use super::reference::{MonitorError, Reference};
use super::running::RunningClone;
use super::snapshot;
use super::spare::{Spare, Spares, try_out};
use crate::message::{Event, MAX_PACKET, Order, PACKAGES, Place};

/// Bytes of files in one packet.
const FILES_BYTES: usize = MAX_PACKET / 2;
/// Layers whose index is kept; with more, all are read again.
const MAX_BRANCHES: usize = 256;

/// Serves one family until the worker closes the control socket. Failures of orders are told to the
/// worker; an error of the socket is returned. `program` is this process's executable. Without a
/// `host` it tells the worker so, and ends.
///
/// # Errors
/// When the control socket breaks.
pub fn serve(
    control: OwnedFd,
    host: Result<Hypervisor, HypervisorError>,
    scanner: Scanner,
    program: File,
) -> io::Result<()> {
    let control = Arc::new(control);
    let host = match host {
        Ok(host) => host,
        Err(error) => {
            tell(&control, &without_machines(&error));
            return Ok(());
        }
    };
    tell(&control, &Event::Up {});
    let mut reference = None;
    loop {
        let Some((order, fds)) = receive(&control)? else { return Ok(()) };
        let outcome = match (order, reference.take()) {
            (Order::Refer { interpreter, layers }, None) => {
                Reference::start(&host, &interpreter, layers.into_iter().zip(fds)).map(|started| {
                    tell(&control, &Event::Ready {});
                    reference = Some(started);
                    None
                })
            }
            (Order::Import { modules, path }, Some(mut importing)) => {
                let imported = importing.import(&modules, &path);
                // Whatever the outcome. The worker ignores repeated calls.
                let missed = importing.missed_calls();
                missed.for_each(|call| tell(&control, &Event::Lacks { call }));
                imported.map(|imports| {
                    tell_imports(&control, imports);
                    reference = Some(importing);
                    None
                })
            }
            (Order::Freeze { spares }, Some(imported)) => {
                imported.freeze().map(|template| Some((template, spares)))
            }
            (Order::Restore { layers, spares }, None) => {
                snapshot::restore(&host, &program, layers, fds)
                    .map(|template| Some((template, spares)))
            }
            _ => Err(MonitorError::Unexpected),
        };
        let frozen = outcome.and_then(|frozen| {
            let Some((template, spares)) = frozen else { return Ok(None) };
            let clone_bytes = try_out(&template, &host, &scanner)?;
            Ok(Some((template, clone_bytes, spares)))
        });
        match frozen {
            Ok(None) => {}
            Ok(Some((template, clone_bytes, spares))) => {
                let given_bytes = template.given();
                let family = Family::new(host, template, scanner, Arc::clone(&control));
                tell(&control, &Event::Frozen { clone_bytes, given_bytes });
                return Nursery::of(Arc::new(family), control, program, spares).watch();
            }
            Err(trouble) => {
                tell(&control, &Event::failed(None, &trouble));
            }
        }
    }
}

fn without_machines(error: &HypervisorError) -> Event {
    match Event::failed(None, error) {
        Event::Failed { reason, exhausted: false, .. } => Event::Unusable { reason },
        passing => passing,
    }
}

fn tell_imports(control: &OwnedFd, mut imports: Imports) {
    let mut some: Vec<LoadedFile> = Vec::new();
    let mut bytes = 0;
    for file in std::mem::take(&mut imports.files) {
        let variables: usize = file.variables.iter().map(|name| name.len() + 3).sum();
        bytes += file.module.len() + file.path.len() + file.importer.len() + variables + 140;
        some.push(file);
        if bytes > FILES_BYTES {
            tell(control, &Event::Files { files: std::mem::take(&mut some) });
            bytes = 0;
        }
    }
    tell(control, &Event::Files { files: some });
    tell(control, &Event::Imported { imports });
}

fn receive(control: &OwnedFd) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let mut packet = vec![0; MAX_PACKET];
    let received = scm::receive(control.as_fd(), &mut packet, true)?;
    if received.length == 0 {
        return Ok(None);
    }
    let order = serde_json::from_slice(&packet[..received.length]).map_err(io::Error::other)?;
    Ok(Some((order, received.fds?)))
}

/// Makes clones and watches their channels.
struct Nursery {
    family: Arc<Family>,
    control: Arc<OwnedFd>,
    branches: HashMap<Place, Arc<Branch>>,
    watched: Vec<WatchedClone>,
    spares: Spares,
    /// This process's executable; none after a snapshot was ordered, which happens once.
    program: Option<File>,
}

impl Nursery {
    fn of(family: Arc<Family>, control: Arc<OwnedFd>, program: File, spares: usize) -> Self {
        let spares = Spares::new(Arc::clone(&family), spares);
        let (branches, watched, program) = (HashMap::new(), Vec::new(), Some(program));
        Self { family, control, branches, watched, spares, program }
    }

    fn watch(mut self) -> io::Result<()> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
            fds.extend(self.watched.iter().map(WatchedClone::closing));
            match poll(&mut fds, self.patience().as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            self.spares.check();
            let has_order = !fds[0].revents().is_empty();
            let closed: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut closed = closed.into_iter();
            self.watched.retain(|clone| {
                let gone = closed.next().unwrap_or(false);
                if gone {
                    clone.end();
                }
                !gone
            });
            if has_order {
                let Some((order, fds)) = receive(&self.control)? else { return Ok(()) };
                self.carry_out(order, fds);
            }
            let now = Instant::now();
            self.watched.iter_mut().for_each(|clone| clone.look(now));
        }
    }

    /// How long the main thread may sleep; none: until an event.
    fn patience(&self) -> Option<Timespec> {
        let now = Instant::now();
        let left = self.watched.iter().filter_map(|clone| clone.left(now));
        // Some seconds at most.
        Timespec::try_from(left.chain(self.spares.due()).min()?).ok()
    }

    fn carry_out(&mut self, order: Order, fds: Vec<OwnedFd>) {
        match order {
            Order::Rest { number } => self.with(number, WatchedClone::rest),
            Order::Go { number } => self.with(number, WatchedClone::go),
            Order::Save {} if let Some(program) = self.program.take() => {
                snapshot::save(&self.family, program, fds);
            }
            Order::Clone { number, layers, limits, reset } => {
                self.start_clone(number, layers, limits, reset, fds);
            }
            Order::Refer { .. }
            | Order::Import { .. }
            | Order::Freeze { .. }
            | Order::Restore { .. }
            | Order::Save {} => {
                self.family.tell(&Event::failed(None, &MonitorError::Unexpected));
            }
        }
    }

    /// Acts on a clone, if it is still there.
    fn with(&mut self, number: u64, act: impl FnMut(&mut WatchedClone)) {
        self.watched.iter_mut().filter(|clone| clone.number() == number).for_each(act);
    }

    fn start_clone(
        &mut self,
        number: u64,
        layers: Vec<Place>,
        limits: Limits,
        reset: bool,
        fds: Vec<OwnedFd>,
    ) {
        // A clone that is reset starts from a machine with its code, which no spare has.
        let spare = if reset { None } else { self.spares.take() };
        let hold = spare.as_ref().map(Spare::hold).unwrap_or_default();
        let made = self.order_clone(layers, fds).and_then(|(channel, layers)| {
            let (family, watched) = (Arc::clone(&self.family), channel.clone());
            let hold = hold.clone();
            let clone = RunningClone {
                family,
                number,
                layers,
                limits,
                reset,
                channel,
                hold,
                last_words: RefCell::default(),
            };
            let left = match spare {
                Some(spare) => spare.give(clone),
                None => Some(clone),
            };
            if let Some(clone) = left {
                let thread = std::thread::Builder::new().name(format!("clone-{number}"));
                thread.spawn(move || clone.live(None))?;
            }
            Ok(watched)
        });
        self.spares.fill();
        match made {
            Ok(channel) => self.watched.push(WatchedClone::new(number, channel, hold)),
            Err(trouble) => {
                self.family.tell(&Event::failed(Some(number), &trouble));
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "the one caller's own variables")]
    fn order_clone(
        &mut self,
        places: Vec<Place>,
        fds: Vec<OwnedFd>,
    ) -> Result<(Channel, Vec<(Place, Arc<Branch>)>), MonitorError> {
        let mut fds = fds.into_iter();
        let channel = Channel::new(fds.next().ok_or(MonitorError::Unexpected)?);
        if self.branches.len() > MAX_BRANCHES {
            self.branches.clear();
        }
        let mut layers = Vec::new();
        for (place, directory) in places.into_iter().zip(fds) {
            // By its place: a layer that was read once can stand beside any other.
            let number = if place.at == PACKAGES { 1 } else { 2 };
            let branch = match self.branches.get(&place) {
                Some(branch) => Arc::clone(branch),
                None => {
                    let branch = Arc::new(Branch::read(number, directory)?);
                    self.branches.insert(place.clone(), Arc::clone(&branch));
                    branch
                }
            };
            layers.push((place, branch));
        }
        Ok((channel, layers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_short_of_something_is_not_said_to_have_no_machines() {
        let of = |number| HypervisorError::Machine(io::Error::from_raw_os_error(number));
        for number in [libc::ENOMEM, libc::EMFILE, libc::ENFILE] {
            let said = without_machines(&of(number));
            assert!(matches!(said, Event::Failed { exhausted: true, .. }), "{said:?}");
        }
        let Event::Unusable { reason } = without_machines(&of(libc::EBUSY)) else { panic!() };
        assert!(reason.contains("other hypervisor") && reason.contains("busy"), "{reason}");
    }
}
