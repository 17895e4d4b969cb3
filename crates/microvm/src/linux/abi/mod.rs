//! What the kernel's ABI fixes: flags, the layout of structures, and how registers hold arguments.

pub(crate) mod flags;
pub(crate) mod record;
pub(crate) mod registers;
