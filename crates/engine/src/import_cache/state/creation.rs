//! Zygotes that are being made, and the results.

use std::io;
use std::sync::Arc;

use sandbox::ProviderError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::zygote::CachedZygote;

/// Result of making a zygote. Ok(None): it was made, but must not be forked.
pub(crate) type CreationResult = Result<Option<Arc<CachedZygote>>, Arc<ProviderError>>;

#[derive(Debug)]
pub(crate) enum Node {
    Making(watch::Receiver<Option<CreationResult>>),
    Ready(Arc<CachedZygote>),
    Refused { why: String, since: Instant, for_good: bool },
}

/// Whether a zygote can be used or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It does not exist and may be made.
    Absent,
    /// It is being made.
    Making,
    /// It can be forked.
    Ready,
    /// It cannot be made or forked safely, for a while or for good.
    Refused,
}

/// The parent that a new zygote should have. If that is impossible: the best one when its turn
/// comes.
#[derive(Debug)]
pub(crate) enum Origin {
    Best,
    Ready(Arc<CachedZygote>),
    /// Wait until the parent is made.
    Pending(watch::Receiver<Option<CreationResult>>),
}

impl Origin {
    /// Waits until the parent exists.
    pub(crate) async fn wait(self) -> Option<Arc<CachedZygote>> {
        match self {
            Self::Best => None,
            Self::Ready(cached) => Some(cached),
            Self::Pending(mut making) => outcome(&mut making).await.ok().flatten(),
        }
    }
}

/// Waits for the result.
pub(crate) async fn outcome(
    making: &mut watch::Receiver<Option<CreationResult>>,
) -> Result<Option<Arc<CachedZygote>>, ProviderError> {
    match making.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(Ok(cached))) => Ok(cached.clone()),
        Ok(Some(Err(error))) => Err(retell(error)),
        Ok(None) | Err(_) => Err(ProviderError::Interpreter("its start was given up".to_owned())),
    }
}

/// A copy of an error, for each task that waited for the same zygote.
fn retell(error: &ProviderError) -> ProviderError {
    match error {
        ProviderError::Exhausted { what } => ProviderError::Exhausted { what: what.clone() },
        ProviderError::ZygoteLost { id, reason } => {
            ProviderError::ZygoteLost { id: *id, reason: reason.clone() }
        }
        ProviderError::Killed { reason } => ProviderError::Killed { reason: reason.clone() },
        ProviderError::Impostor { id, reason } => {
            ProviderError::Impostor { id: *id, reason: reason.clone() }
        }
        ProviderError::Step { step, source } => {
            ProviderError::Step { step, source: io::Error::new(source.kind(), source.to_string()) }
        }
        ProviderError::Absent(text) => ProviderError::Absent(text.clone()),
        ProviderError::WardenGone => ProviderError::WardenGone,
        ProviderError::Interpreter(text) => ProviderError::Interpreter(text.clone()),
        ProviderError::Refused(text) => ProviderError::Refused(text.clone()),
    }
}
