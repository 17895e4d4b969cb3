//! The worker's side: families of micro-VMs as the engine sees them.

mod allowance;
mod family;
mod instance;
mod machines;
mod monitor_process;
mod saving;
mod shared;
mod snapshots;
mod zygote;

pub use machines::{Keep, Machines};
pub use shared::Absent;
