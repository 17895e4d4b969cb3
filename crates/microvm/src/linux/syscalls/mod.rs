//! The system calls: a table from numbers to functions, and the functions by subject.

pub(crate) mod alarm;
pub(crate) mod clock;
pub(crate) mod files;
pub(crate) mod futex;
pub(crate) mod identity;
pub(crate) mod memory;
pub(crate) mod random;
pub(crate) mod resource_limits;
pub(crate) mod signals;
pub(crate) mod table;
pub(crate) mod threads;
