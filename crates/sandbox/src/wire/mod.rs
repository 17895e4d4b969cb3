//! The protocol between the worker and a guest, on a stream socket.
//!
//! ```text
//!   0        4        8                8+H                8+H+B
//!   ├─ H u32 ┼─ B u32 ┼─ header, JSON ─┼─ body, any bytes ─┤      integers little-endian
//! ```
//!
//! The header is one JSON object whose `kind` names the message. `guest/vectors/wire.json` holds
//! examples that the Rust tests and the guest's own tests both read.
//!
//! ```text
//!   worker                        guest
//!     │ ◄───────────── ready ────── │   once, when it can be loaded
//!     │ ── load ──────────────────► │
//!     │ ◄── log* ── loaded|failed ─ │   imports before loaded and the first done, when asked to
//!     │ ── invoke + body ─────────► │   any number of times, one at a time
//!     │ ◄── log* ─── done|failed ── │
//! ```

mod frame;
mod message;

pub use function::{Convention, Lambda};

pub use frame::{Decoder, Frame, FrameError, MAX_HEADER_BYTES, Prefix};
pub use message::{Failure, LambdaCall, Load, LogStream, MessageError, Reply, Request};
