//! A lease: an instance in the hands of one call, with its place among its handler's instances.

use super::Seat;
use crate::instance::LoadedInstance;

/// Dropping it destroys the sandbox first, then frees its seat.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) instance: LoadedInstance,
    pub(crate) seat: Seat,
}
