//! The input of decisions at one moment.

use std::sync::Arc;

use super::zygote::View;
use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::policy::benefit::Demand;
use crate::warm_pool::Offer;

/// The input of decisions at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) view: Arc<View>,
    pub(crate) catalog: Arc<Catalog>,
    /// Fraction of recent starts that were of new locks.
    pub(crate) unseen_ratio: f64,
    /// Idle instances, least saved per byte first, with the milliseconds that they save in the
    /// recent interval.
    pub(crate) idle: Vec<Offer>,
    pub(crate) profiles: Vec<(Arc<Profile>, f64)>,
}

impl Snapshot {
    /// Handlers started recently, and how often.
    pub(crate) fn demands(&self) -> Vec<Demand<'_>> {
        self.profiles.iter().map(|(profile, weight)| Demand { profile, weight: *weight }).collect()
    }
}
