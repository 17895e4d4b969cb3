//! What stands between a socket and a request: listeners, TLS, how many connections there may be, and what their heads say.

pub(crate) mod connections;
pub(crate) mod heads;
pub(crate) mod listen;
pub(crate) mod slow_reader;
pub mod tls;
