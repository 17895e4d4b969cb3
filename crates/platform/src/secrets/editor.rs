//! Listing, setting and removing secrets, as doors ask for it.

use std::sync::Arc;

use engine::Engine;
use function::WholeName;
use zeroize::Zeroizing;

use super::{Held, SecretError, Vault};
use crate::access::{Permit, to};
use crate::functions::Registry;
use crate::limits::quotas::Quotas;

/// Lists and changes the secrets of functions, for callers with a permit.
#[derive(Clone, Debug)]
pub struct SecretEditor {
    vault: Arc<Vault>,
    registry: Arc<Registry>,
    engine: Arc<Engine>,
    quotas: Arc<Quotas>,
}

impl SecretEditor {
    /// Those in a vault, of the functions of a registry.
    #[must_use]
    pub fn new(
        vault: Arc<Vault>,
        registry: Arc<Registry>,
        engine: Arc<Engine>,
        quotas: Arc<Quotas>,
    ) -> Self {
        Self { vault, registry, engine, quotas }
    }

    /// The names of a function's secrets.
    #[must_use]
    pub fn list(&self, permit: &Permit<to::ListSecrets>) -> Vec<Held> {
        self.vault.list(permit.function())
    }

    /// Sets a secret, and ends the instances that do not have it. The function need not be deployed yet.
    ///
    /// # Errors
    /// When name or value do not fit, or another function of the tenant would have secrets than may; nothing has changed
    /// then.
    pub async fn set(
        &self,
        permit: &Permit<to::SetSecret>,
        key: String,
        value: Zeroizing<Vec<u8>>,
    ) -> Result<(), SecretError> {
        let (vault, owner) = (Arc::clone(&self.vault), permit.function().clone());
        let most = self.quotas.functions_with_secrets(owner.tenant());
        let set = tokio::task::spawn_blocking(move || vault.set(&owner, &key, &value, most)).await;
        set.unwrap_or(Err(SecretError::BrokeOff))?;
        self.renew(permit.function());
        Ok(())
    }

    /// Removes a secret, and ends the instances that have it; says whether it was there.
    ///
    /// # Errors
    /// When the disk refused; nothing has changed then.
    pub async fn remove(
        &self,
        permit: &Permit<to::RemoveSecret>,
        key: String,
    ) -> Result<bool, SecretError> {
        let (vault, owner) = (Arc::clone(&self.vault), permit.function().clone());
        let removed = tokio::task::spawn_blocking(move || vault.remove(&owner, &key)).await;
        let removed = removed.unwrap_or(Err(SecretError::BrokeOff))?;
        if removed {
            self.renew(permit.function());
        }
        Ok(removed)
    }

    /// Ends the instances that have the secrets of before.
    fn renew(&self, name: &WholeName) {
        for function in self.registry.versions(name) {
            self.engine.renew(&function.current().id);
        }
    }
}
