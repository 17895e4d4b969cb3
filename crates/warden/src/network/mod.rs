//! Outgoing connections: a network for one instance, and the proxy that connects for it. Which connections it makes is
//! the crate `egress`'s to say; which calls a sandbox may make on sockets is [`crate::confine`]'s.

pub(crate) mod proxies;
mod proxy;
mod reach;
