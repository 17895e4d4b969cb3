//! What stands between a socket and a request: listeners, TLS, how many connections there may be, and what their heads say.

pub mod connections;
pub mod heads;
pub mod listen;
pub mod slow_reader;
pub mod tls;
