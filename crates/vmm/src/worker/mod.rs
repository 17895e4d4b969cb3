//! The worker's side: families of micro-VMs as the engine sees them.

mod allowance;
mod family;
mod instance;
mod machines;
mod saving;
mod snapshots;
mod warded;
mod zygote;

pub use machines::{Absent, Keep, Machines};
