//! The kernel's ABI: flags, the layout of structures, and arguments in registers.

pub(crate) mod flags;
pub(crate) mod record;
pub(crate) mod registers;
