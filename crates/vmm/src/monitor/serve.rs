//! The main thread: orders come in, clones are started, and those that nobody holds any more are stopped.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use microvm::hypervisor::Hypervisor;
use microvm::scan::Scanner;
use microvm::stop::Stopper;
use microvm::vfs::Branch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sandbox::{Imports, LoadedFile};
use sys::scm;

use super::clone::{Clone, chain, is_exhausted};
use super::conversation::Channel;
use super::family::{Family, tell};
use super::reference::{Reference, Trouble};
use super::spare::{Spare, Spares, try_out};
use crate::message::{Event, MAX_PACKET, Order, PACKAGES, Place};

/// Bytes of files in one packet, at most.
const FILES_BYTES: usize = MAX_PACKET / 2;
/// Layers whose index is kept; beyond, all are read again.
const MOST_BRANCHES: usize = 256;

/// Serves one family until the worker closes the control socket. What happens on the way to the worker is told to it; what
/// is left is an error of the socket.
///
/// # Errors
/// When the control socket breaks.
pub fn serve(control: OwnedFd, host: Hypervisor, mut scanner: Scanner) -> io::Result<()> {
    let control = Arc::new(control);
    let mut reference = None;
    loop {
        let Some((order, fds)) = receive(&control)? else { return Ok(()) };
        let outcome = match (order, reference.take()) {
            (Order::Refer { interpreter, layers }, None) => {
                Reference::start(&host, &interpreter, layers.into_iter().zip(fds)).map(|started| {
                    tell(&control, &Event::Ready {});
                    reference = Some(started);
                })
            }
            (Order::Import { modules, path }, Some(mut importing)) => {
                importing.import(&modules, &path).map(|imports| {
                    tell_imports(&control, imports);
                    reference = Some(importing);
                })
            }
            (Order::Freeze { spares }, Some(imported)) => {
                let frozen = imported.freeze().and_then(|template| {
                    let weight = try_out(&template, &host, &mut scanner)?;
                    Ok((template, weight))
                });
                match frozen {
                    Ok((template, clone_bytes)) => {
                        let given_bytes = template.given();
                        let family = Family::new(host, template, scanner, Arc::clone(&control));
                        tell(&control, &Event::Frozen { clone_bytes, given_bytes });
                        return Nursery::of(Arc::new(family), control, spares).watch();
                    }
                    Err(trouble) => Err(trouble),
                }
            }
            _ => Err(Trouble::Unexpected),
        };
        if let Err(trouble) = outcome {
            let (reason, exhausted) = (chain(&trouble), is_exhausted(&trouble));
            tell(&control, &Event::Failed { number: None, reason, exhausted });
        }
    }
}

fn tell_imports(control: &OwnedFd, mut imports: Imports) {
    let mut some: Vec<LoadedFile> = Vec::new();
    let mut bytes = 0;
    for file in std::mem::take(&mut imports.files) {
        bytes += file.module.len() + file.path.len() + file.importer.len() + 120;
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

/// Where clones are made, and watched.
struct Nursery {
    family: Arc<Family>,
    control: Arc<OwnedFd>,
    branches: HashMap<Place, Arc<Branch>>,
    watched: Vec<(Channel, Stopper)>,
    spares: Spares,
}

impl Nursery {
    fn of(family: Arc<Family>, control: Arc<OwnedFd>, spares: usize) -> Self {
        let spares = Spares::new(Arc::clone(&family), spares);
        Self { family, control, branches: HashMap::new(), watched: Vec::new(), spares }
    }

    fn watch(mut self) -> io::Result<()> {
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.control.as_fd(), PollFlags::IN)];
            // Nothing but closing: what can be read is the clone's own.
            fds.extend(self.watched.iter().map(|(channel, _)| {
                PollFd::from_borrowed_fd(channel.socket().as_fd(), PollFlags::RDHUP)
            }));
            let due = self.spares.due().and_then(|due| Timespec::try_from(due).ok());
            match poll(&mut fds, due.as_ref()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            self.spares.check();
            let has_order = !fds[0].revents().is_empty();
            let closed: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let mut closed = closed.into_iter();
            self.watched.retain(|(_, stopper)| {
                let gone = closed.next().unwrap_or(false);
                if gone {
                    stopper.stop();
                }
                !gone
            });
            if has_order {
                let Some((order, fds)) = receive(&self.control)? else { return Ok(()) };
                self.carry_out(order, fds);
            }
        }
    }

    fn carry_out(&mut self, order: Order, fds: Vec<OwnedFd>) {
        let Order::Clone { number, layers, limits, reset } = order else {
            let reason = Trouble::Unexpected.to_string();
            self.family.tell(&Event::Failed { number: None, reason, exhausted: false });
            return;
        };
        // One that is reset goes on from a machine with its code in it.
        let spare = if reset { None } else { self.spares.take() };
        let stopper = spare.as_ref().map(Spare::stopper).unwrap_or_default();
        let made = self.order_clone(layers, fds).and_then(|(channel, layers)| {
            let (family, stopper) = (Arc::clone(&self.family), stopper.clone());
            let watched = channel.clone();
            let clone = Clone { family, number, layers, limits, reset, channel, stopper };
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
            Ok(channel) => self.watched.push((channel, stopper)),
            Err(trouble) => {
                let (reason, exhausted) = (chain(&trouble), is_exhausted(&trouble));
                self.family.tell(&Event::Failed { number: Some(number), reason, exhausted });
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "the one caller's own variables")]
    fn order_clone(
        &mut self,
        places: Vec<Place>,
        fds: Vec<OwnedFd>,
    ) -> Result<(Channel, Vec<(Place, Arc<Branch>)>), Trouble> {
        let mut fds = fds.into_iter();
        let channel = Channel::new(fds.next().ok_or(Trouble::Unexpected)?);
        if self.branches.len() > MOST_BRANCHES {
            self.branches.clear();
        }
        let mut layers = Vec::new();
        for (place, directory) in places.into_iter().zip(fds) {
            // By where it goes: whatever was read once can stand beside any other.
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
