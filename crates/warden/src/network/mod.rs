//! Outgoing connections: a network for one instance, and the proxy that connects for it.

pub(crate) mod proxies;
mod proxy;
mod reach;
