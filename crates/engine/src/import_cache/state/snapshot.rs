//! All that decisions are made from, as it is at one moment.

use std::sync::Arc;

use super::zygote::View;
use crate::import_cache::model::catalog::Catalog;
use crate::import_cache::model::profile::Profile;
use crate::import_cache::policy::benefit::Demand;
use crate::warm_pool::Offer;

/// All that a plan is made from, as it is at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) view: Arc<View>,
    pub(crate) catalog: Arc<Catalog>,
    /// The part of starts that are of locks never seen before.
    pub(crate) unseen_ratio: f64,
    /// Idle instances, those first that save least for each byte: milliseconds of late.
    pub(crate) idle: Vec<Offer>,
    pub(crate) profiles: Vec<(Arc<Profile>, f64)>,
}

impl Snapshot {
    /// Who was started of late, and how often.
    pub(crate) fn demands(&self) -> Vec<Demand<'_>> {
        self.profiles.iter().map(|(profile, weight)| Demand { profile, weight: *weight }).collect()
    }
}
