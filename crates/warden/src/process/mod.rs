//! Processes that the warden starts, the namespaces that they share, and its own place among them.
//!
//! | file | process |
//! | --- | --- |
//! | `spawn` | an interpreter from nothing; the steps that monitors and the proxy share with it |
//! | `shared_namespaces`, `deaths` | pid 1 of the sandboxes, and its reports of deaths |
//! | `guardian` | clears up when the warden is killed, on cgroups of version 1 |
//! | `detach` | leaves sudo |
//! | `beside` | finds the programs that are installed with the warden |

pub mod beside;
pub(crate) mod deaths;
pub mod detach;
pub mod guardian;
pub mod shared_namespaces;
pub mod spawn;
