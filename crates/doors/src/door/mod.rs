//! What stands between a socket and a request: listeners, TLS, how many connections there may be, and what their heads say.
//!
//! ```text
//!   listen (accept) ──► connections (a seat, or 503) ──► tls ──► heads (checked as they come) ──► the router behind it
//!                                                                      replies ◄── slow_reader ◄──┘
//! ```
//! The router comes from outside ([`listen::Behind`]).

pub mod connections;
pub mod heads;
pub mod listen;
pub mod slow_reader;
pub mod tls;
