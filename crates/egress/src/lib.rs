//! Outgoing connections of functions: the rules, and `wool-egress`, the proxy that connects for
//! them.
//!
//! ```text
//!   sandbox, a network of its own          wool-egress, the host's network, a uid of its own
//!   ─────────────────────────────          ─────────────────────────────────────────────────
//!   getaddrinfo(api.example.com) ── UDP ─► names: on the list? resolved outside?
//!                                             ─► 198.18.0.1, made up for this sandbox
//!   connect(198.18.0.1:443) ─────── TCP ─► accept; getsockname = 198.18.0.1:443
//!                                             ─► api.example.com: on the list at this port?
//!                                             ─► resolve ─► each address: rules ─► connect, relay
//!   connect(192.0.2.7:5432) ─────── TCP ─► on the list as an address? rules ─► connect, relay
//! ```
//!
//! A sandbox has no route to any real network. The warden makes the listed addresses and ports
//! local in the sandbox's network namespace, listens there, and hands the listening sockets to the
//! proxy. The proxy judges each connection and makes it from the host's network. See decision 13.
//!
//! **Callers.** `container` sends the proxy its orders ([`control`]); `platform` checks a deploy's
//! destinations against the same [`Rules`]; the warden executes `wool-egress` (`main.rs`).
//! `crates/container/tests/egress.rs` tests this crate on the real kernel.
//!
//! **Guarantees.** A sandbox never learns a name's real address, so it cannot keep one: each
//! connection to a name is resolved and judged anew, and the judged address is the one connected
//! to. The proxy has nothing of a sandbox but its listening sockets; the sandbox reaches nothing of
//! the proxy but these, in a namespace with only loopback.
//!
//! **Failures**
//!
//! | cause | what the sandbox sees |
//! | --- | --- |
//! | destination not on the list | no route or no listener: refused at once, by the kernel |
//! | refused by a rule, unreachable, or silent | a reset after its own connect has succeeded |
//! | name does not exist outside | NXDOMAIN |
//! | host's resolver fails | SERVFAIL |
//! | one end closes before both have finished | a reset at both ends |
//! | the proxy dies | connections are refused; the worker gives such instances up |

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

pub use rules::{MAX_RULES, Refusal, Rule, RuleError, Rules};
