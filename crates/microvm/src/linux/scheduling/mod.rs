//! How threads of a guest take turns on its one processor, and how signals reach them.
//!
//! ```text
//!   wait      a call that cannot be answered yet: another thread runs, or the monitor sleeps
//!     └── timers    the alarm and the limit of processor time come due
//!           └── deliver   a signal goes to the thread that takes it
//!                 ├── switch    one thread's state is put aside, another one's is loaded
//!                 └── frame     what a handler finds on its stack
//! ```

pub(crate) mod deliver;
pub(crate) mod frame;
pub(crate) mod switch;
pub(crate) mod timers;
pub(crate) mod wait;
