//! The import cache: which zygotes exist, how they derive from each other, which to make next.
//!
//! ```text
//!   Absent ──wanted──► Making ──► Ready ──lost, an impostor, evicted, too old──► Absent
//!                        └──────► Refused ──(failed: after a while)────────────► Absent
//!
//!   call ─► pick ─► fork ─► load ─► observe ─┐
//!                    what it imported        ▼
//!                              replan ─► create ─► measure
//! ```
//!
//! There is one tree for each trust domain: tenant, kind of sandbox, Python and network class. A
//! zygote sees an exact set of distributions, and serves only handlers that locked every one of
//! them (the trust rule). A task of its own makes each zygote: callers watch it, so that it is made
//! once however many calls ask for it, and the task goes on when they leave. A zygote whose imports
//! left threads or open files is refused for as long as the worker runs. One that was lost is
//! refused for a while. A set whose zygote could not be made is refused for twice as long after
//! each further failure.
//!
//! There are four floors; each uses only those below it:
//!
//! ```text
//!   work/    tasks and calls: pick, observe, prewarm, replan, create, rebalance, replace, report
//!   state/   under the one lock: zygotes, refusals, observations, the queue of creations
//!   policy/  decisions, as pure functions: select, plan, candidates, benefit, price, evict, forkable
//!   model/   facts: sets, catalog, profiles, estimates, provenance, lookups, spending
//! ```

mod model;
mod policy;
mod state;
mod work;

pub use model::import_time::ImportTime;
pub use state::pick::Pick;
pub(crate) use state::zygote::CachedZygote;
pub use work::ImportCache;
