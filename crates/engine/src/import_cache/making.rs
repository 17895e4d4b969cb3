//! Making zygotes, each in a task of its own, once, watched by whoever needs it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sandbox::{ProviderError, Zygote, ZygoteSpec};
use tokio::sync::watch;
use tokio::time::timeout;

use super::kept::{Kept, Key};
use super::select::{Standing, unfit};
use super::{ImportCache, Node};

/// What comes of making a zygote. Ok(None): it was made, but must not be forked.
pub(super) type Made = Result<Option<Arc<Kept>>, Arc<ProviderError>>;

impl ImportCache {
    /// What to watch until the zygote is there; none when it is there, or refused.
    pub(super) fn ensure(
        self: &Arc<Self>,
        key: &Key,
        imports: Vec<String>,
    ) -> Option<watch::Receiver<Option<Made>>> {
        let mut nodes = self.nodes();
        match (self.standing(&nodes, key), nodes.get(key)) {
            (Standing::Making, Some(Node::Making(making))) => Some(making.clone()),
            (Standing::Absent, _) => Some(self.start(&mut nodes, key, imports)),
            _ => None,
        }
    }

    pub(super) fn start(
        self: &Arc<Self>,
        nodes: &mut HashMap<Key, Node>,
        key: &Key,
        imports: Vec<String>,
    ) -> watch::Receiver<Option<Made>> {
        let (tell, making) = watch::channel(None);
        nodes.insert(key.clone(), Node::Making(making.clone()));
        let (cache, key) = (Arc::clone(self), key.clone());
        let work = async move {
            let made = tokio::select! {
                () = cache.halt.cancelled() => Err(ProviderError::Interpreter("the worker is stopping".to_owned())),
                made = cache.make(&key, imports) => made,
            };
            let made = cache.settle(key, made);
            tell.send_replace(Some(made));
        };
        self.errands.spawn_on(work, &self.runtime);
        making
    }

    async fn make(
        self: &Arc<Self>,
        key: &Key,
        imports: Vec<String>,
    ) -> Result<Box<dyn Zygote>, ProviderError> {
        let spec = ZygoteSpec {
            python: key.python.clone(),
            packages: key.packages.clone(),
            imports,
            network: key.network,
            limits: self.config.zygote_limits,
        };
        if key.packages.is_none() {
            return self.in_time(self.provider.create_zygote(spec)).await;
        }
        // The semaphore is never closed.
        let _turn = self.builds.acquire().await;
        let root = Key { packages: None, ..key.clone() };
        let parent = match self.ensure(&root, Vec::new()) {
            Some(mut making) => outcome(&mut making).await?,
            None => self.ready(&self.nodes(), &root),
        };
        let Some(parent) = parent else {
            return self.in_time(self.provider.create_zygote(spec)).await;
        };
        let derived = self.in_time(parent.zygote.derive(spec)).await;
        if let Err(error @ (ProviderError::ZygoteLost { .. } | ProviderError::Impostor { .. })) =
            &derived
        {
            self.lose(&parent, &error.to_string());
        }
        derived
    }

    async fn in_time(
        &self,
        making: sandbox::Pending<'_, Box<dyn Zygote>>,
    ) -> Result<Box<dyn Zygote>, ProviderError> {
        let late = |_| ProviderError::Step {
            step: "make a zygote",
            source: io::ErrorKind::TimedOut.into(),
        };
        timeout(self.config.creation_timeout, making).await.map_err(late)?
    }

    /// Notes what came of making a zygote.
    fn settle(&self, key: Key, made: Result<Box<dyn Zygote>, ProviderError>) -> Made {
        let settled = match made {
            Err(error) => {
                tracing::warn!(packages = ?key.packages, %error, "a zygote could not be made");
                let mut nodes = self.nodes();
                nodes.remove(&key);
                if key.packages.is_some() {
                    self.refuse(&mut nodes, key, error.to_string(), false);
                }
                Err(Arc::new(error))
            }
            Ok(zygote) => match unfit(zygote.imports()) {
                Some(why) => {
                    tracing::warn!(packages = ?key.packages, why, "a zygote cannot be forked");
                    self.refuse(&mut self.nodes(), key, why, true);
                    Ok(None)
                }
                None => {
                    let used = AtomicU64::new(self.uses.fetch_add(1, Ordering::Relaxed));
                    let (forks, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
                    let kept = Arc::new(Kept { key: key.clone(), zygote, used, forks, bytes });
                    self.nodes().insert(key, Node::Ready(Arc::clone(&kept)));
                    Ok(Some(kept))
                }
            },
        };
        self.fit();
        settled
    }
}

/// Waits for what comes of it.
pub(super) async fn outcome(
    making: &mut watch::Receiver<Option<Made>>,
) -> Result<Option<Arc<Kept>>, ProviderError> {
    match making.wait_for(Option::is_some).await.as_deref() {
        Ok(Some(Ok(kept))) => Ok(kept.clone()),
        Ok(Some(Err(error))) => Err(retell(error)),
        Ok(None) | Err(_) => Err(ProviderError::Interpreter("its start was given up".to_owned())),
    }
}

/// An error for each of those who waited for the same thing.
fn retell(error: &ProviderError) -> ProviderError {
    match error {
        ProviderError::Exhausted { what } => ProviderError::Exhausted { what: what.clone() },
        ProviderError::ZygoteLost { id, reason } => {
            ProviderError::ZygoteLost { id: *id, reason: reason.clone() }
        }
        ProviderError::Impostor { id, reason } => {
            ProviderError::Impostor { id: *id, reason: reason.clone() }
        }
        ProviderError::Step { step, source } => {
            ProviderError::Step { step, source: io::Error::new(source.kind(), source.to_string()) }
        }
        ProviderError::WardenGone => ProviderError::WardenGone,
        ProviderError::Interpreter(text) => ProviderError::Interpreter(text.clone()),
        ProviderError::Refused(text) => ProviderError::Refused(text.clone()),
    }
}
