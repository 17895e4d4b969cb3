//! Snapshots of the reference machine: read from a file that the worker has opened and checked,
//! written to a pipe of the worker's. The monitor has no path to either, and no access to the key
//! that proves who wrote a snapshot.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use microvm::linux::{Build, Template};
use microvm::machine::Hypervisor;
use sandbox::chain;

use super::family::Family;
use super::reference::{MonitorError, tree};
use crate::message::Event;

/// Restores a template. The first descriptor is the snapshot's, the others are the layers'.
pub(super) fn restore(
    host: &Hypervisor,
    program: &File,
    layers: Vec<String>,
    fds: Vec<OwnedFd>,
) -> Result<Template, MonitorError> {
    let mut fds = fds.into_iter();
    let snapshot = BufReader::new(File::from(fds.next().ok_or(MonitorError::Unexpected)?));
    let tree = tree(host, layers.into_iter().zip(fds))?;
    Ok(Template::restore(host, Build::of(program)?, tree, snapshot)?)
}

/// Writes the family's template on a thread of its own: the template does not change, and clones
/// are made meanwhile.
pub(super) fn save(family: &Arc<Family>, program: File, fds: Vec<OwnedFd>) {
    let told = Arc::clone(family);
    let write = move || {
        let failed = try_save(&told, &program, fds).err().map(|error| chain(&error));
        told.tell(&Event::Saved { failed });
    };
    if let Err(error) = std::thread::Builder::new().name("snapshot".to_owned()).spawn(write) {
        family.tell(&Event::Saved { failed: Some(error.to_string()) });
    }
}

fn try_save(family: &Family, program: &File, fds: Vec<OwnedFd>) -> Result<(), MonitorError> {
    let pipe = fds.into_iter().next().ok_or(MonitorError::Unexpected)?;
    let build = Build::of(program)?;
    Ok(family.template.save(&family.host, build, BufWriter::new(File::from(pipe)))?)
}
