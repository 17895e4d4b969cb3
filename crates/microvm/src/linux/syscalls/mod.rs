//! The system calls: a table from numbers to functions, and the functions by subject. A call that may wait stands in the
//! table's `waiting_call`. `tests/compared` prints what calls return here and on the host, `tests/hostile.rs` gives them bad
//! arguments.

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
