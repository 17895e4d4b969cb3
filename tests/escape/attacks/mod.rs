//! The attacks, by what they are after.

mod files;
mod ipc;
mod kernel;
pub(crate) mod known;
mod limits;
mod neighbours;
mod network;
mod privilege;
mod zygotes;

use crate::attack::Attack;

/// All of them.
pub(crate) fn all() -> Vec<Attack> {
    [
        files::ATTACKS,
        privilege::ATTACKS,
        neighbours::ATTACKS,
        ipc::ATTACKS,
        network::ATTACKS,
        kernel::ATTACKS,
        limits::ATTACKS,
        zygotes::ATTACKS,
    ]
    .concat()
}
