//! Every store in memory: the double for tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::millis::truncate;
use crate::{Sealed, SecretRow, Secrets, StoreError, TokenRow, Tokens, WholeName};

/// A store of everything. Clones share their content: a clone is the same store, opened again.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
struct Content {
    /// Keyed by the token's name.
    tokens: BTreeMap<String, TokenRow>,
    token_was_inserted: bool,
    secrets: BTreeMap<(WholeName, String), SecretRow>,
    witness: Option<Sealed>,
    broken: bool,
}

impl Memory {
    /// While this is true, every method fails as if the disk did.
    pub fn set_broken(&self, broken: bool) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).broken = broken;
    }

    fn content(&self) -> Result<MutexGuard<'_, Content>, StoreError> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if content.broken {
            let source = "it was broken by a test".into();
            return Err(StoreError::Database {
                store: "the memory",
                step: "cannot be used",
                source,
            });
        }
        Ok(content)
    }
}

impl Tokens for Memory {
    fn list(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self.content()?.tokens.values().cloned().collect())
    }

    fn insert(&mut self, token: &TokenRow) -> Result<bool, StoreError> {
        let mut content = self.content()?;
        let taken = |other: &TokenRow| other.name == token.name || other.id == token.id;
        if content.tokens.values().any(taken) {
            return Ok(false);
        }
        let mut token = token.clone();
        token.created = truncate(token.created);
        token.expires = token.expires.map(truncate);
        content.tokens.insert(token.name.clone(), token);
        content.token_was_inserted = true;
        Ok(true)
    }

    fn remove(&mut self, name: &str) -> Result<bool, StoreError> {
        Ok(self.content()?.tokens.remove(name).is_some())
    }

    fn ever_inserted(&self) -> Result<bool, StoreError> {
        Ok(self.content()?.token_was_inserted)
    }
}

impl Secrets for Memory {
    fn location(&self) -> String {
        "memory".to_owned()
    }

    fn witness(&mut self, offered: &Sealed) -> Result<Sealed, StoreError> {
        Ok(self.content()?.witness.get_or_insert_with(|| offered.clone()).clone())
    }

    fn list(&self) -> Result<Vec<SecretRow>, StoreError> {
        Ok(self.content()?.secrets.values().cloned().collect())
    }

    fn put(&mut self, secret: &SecretRow) -> Result<(), StoreError> {
        let mut secret = secret.clone();
        secret.updated = truncate(secret.updated);
        let name = (secret.owner.clone(), secret.key.clone());
        self.content()?.secrets.insert(name, secret);
        Ok(())
    }

    fn remove(&mut self, owner: &WholeName, key: &str) -> Result<bool, StoreError> {
        Ok(self.content()?.secrets.remove(&(owner.clone(), key.to_owned())).is_some())
    }

    fn forget(&mut self, owner: &WholeName) -> Result<(), StoreError> {
        self.content()?.secrets.retain(|(other, _), _| other != owner);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::conformance::Backend;
    use crate::{Secrets, Tokens};

    impl Backend for Memory {
        fn tokens(&self) -> Box<dyn Tokens> {
            Box::new(self.clone())
        }

        fn secrets(&self) -> Box<dyn Secrets> {
            Box::new(self.clone())
        }
    }

    crate::conformance!(Memory);
}
