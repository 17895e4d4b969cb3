//! Inside `wool-vmm`: one family of machines, behind its jail's walls.
//!
//! ```text
//!   main thread:  orders ──► Reference ── freeze ──► Family ◄── a thread for each clone: channel ⇄ machine
//!                 watches the channels: a machine       └────── a thread for each spare, later a clone
//!                 whose channel closes is stopped,
//!                 one whose call is over is held
//!
//!   serve ──► spare, snapshot, clone ──► reset_clone ──► running ──► hold, conversation
//!                                           └──► family ──► function            all ──► reference
//! ```

mod clone;
mod conversation;
mod examine;
mod family;
mod filter;
mod function;
mod hold;
pub mod jail;
mod order_failure;
mod reference;
mod reset_clone;
mod running;
mod serve;
mod snapshot;
mod spare;
pub mod unikernel;

pub use examine::examine;
pub use serve::serve;
