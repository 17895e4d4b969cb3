//! What a sandbox may reach outside: the rules, and the proxy that opens nothing else.
//!
//! ```text
//!   sandbox, a network of its own          wool-egress, the host's network, a uid of its own
//!   ─────────────────────────────          ─────────────────────────────────────────────────
//!   getaddrinfo(api.example.com) ── UDP ─► names: on the list? resolved outside? ─► 198.18.0.1, made up for this sandbox
//!   connect(198.18.0.1:443) ─────── TCP ─► accept; getsockname = 198.18.0.1:443 ─► api.example.com
//!                                           on the list at this port? resolve ─► each address: rules ─► connect, relay
//!   connect(192.0.2.7:5432) ─────── TCP ─► on the list as an address? rules ─► connect, relay
//! ```
//! A sandbox never learns an address of a name and so cannot keep one: who is behind a name is asked and judged for every
//! connection, and the address that was judged is the one that is connected to. Listening sockets are all that the proxy has
//! of a sandbox, and sockets in a namespace with nothing but loopback all that the sandbox has of the proxy.
//!
//! Failures: a destination that is not on the list has no route or no listener in the sandbox (at once, by the kernel); one
//! that the rules refuse, that cannot be reached or does not answer is reset after the sandbox's own connect has succeeded. A name
//! that is not there outside is not there inside, one that the host's resolver fails at is a failure of the server's. What ends
//! before both ends have said all is reset at both. When the proxy dies, its listeners go: connections are refused, and the worker
//! gives such instances up.

#![forbid(unsafe_code)]

pub mod addresses;
pub mod control;
mod guest;
mod inbox;
pub mod jail;
mod names;
mod outside;
mod policy;
pub mod proxy;
mod relay;
pub mod rules;
mod shares;

pub use rules::{MOST_RULES, Refusal, Rule, RuleError, Rules};
