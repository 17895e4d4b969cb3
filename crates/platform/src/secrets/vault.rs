//! All secrets, sealed, on disk and in memory.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::SystemTime;

use engine::{Handler, SecretEnvironment, SecretStore, SecretsUnreadable};
use function::WholeName;
use store::millis::truncate;
use store::{Sealed, SecretRow, StoreError};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::SecretKey;
use super::seal::{Sealer, purpose};

/// Longest name of a variable.
pub const KEY_BYTES: usize = 128;

/// A function's secrets together, in bytes. A load's header, which carries them as JSON, must hold them however they are
/// escaped.
const FUNCTION_BYTES: usize = 32 << 10;

/// What the witness says: it tells a wrong key at the start, and not at the first call.
const WITNESS: &[u8] = b"these secrets were sealed with this key";

/// A secret as lists show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The variable's name.
    pub key: String,
    /// When it was last set, to the millisecond.
    pub updated: SystemTime,
}

/// What could not be done with secrets. Says nothing of any value.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// They were sealed with another key.
    #[error(
        "the secrets of {0} were sealed with another key: give the worker that one (secret_key_file, or secret.key in the state directory), or remove the file and set the secrets again"
    )]
    OtherKey(String),
    /// A name that no variable can have.
    #[error(
        "{0:?} is no name of a secret: it becomes a variable of the function's environment; use 1 to {KEY_BYTES} letters, digits and `_`, not beginning with a digit"
    )]
    Key(String),
    /// A value that no variable can have.
    #[error("the value of {0} holds a zero byte or is not UTF-8: encode it, as base64 for example")]
    Value(String),
    /// The secrets of one function are too large together.
    #[error("the secrets of a function may have {FUNCTION_BYTES} bytes together")]
    TooLarge,
    /// As many functions of the tenant have secrets as may.
    #[error(
        "{tenant} has secrets for as many functions as it may ({most}), those included that are not deployed: remove some with `wool secret rm`, or have the operator raise `functions` in [tenants.{tenant}]"
    )]
    Full {
        /// The tenant's name.
        tenant: String,
        /// The most functions with secrets of this tenant.
        most: usize,
    },
    /// It could not be sealed.
    #[error("the secret could not be sealed")]
    Seal(#[source] std::io::Error),
    /// The work ended without a result.
    #[error("the secrets broke off")]
    BrokeOff,
}

/// The secrets of all functions.
#[derive(Debug)]
pub struct Vault {
    sealer: Sealer,
    known: RwLock<BTreeMap<WholeName, BTreeMap<String, Row>>>,
    // Taken before `known`: one writer at a time, and memory follows the store in the same order.
    store: Mutex<Box<dyn store::Secrets>>,
}

#[derive(Clone, Debug)]
struct Row {
    sealed: Sealed,
    updated: SystemTime,
}

impl Vault {
    /// Reads all secrets of a store into memory, sealed as they are.
    ///
    /// # Errors
    /// When the store cannot be read, or its secrets were sealed with another key.
    pub fn open(mut store: Box<dyn store::Secrets>, key: &SecretKey) -> Result<Self, SecretError> {
        let sealer = Sealer::new(key);
        check_witness(&mut *store, &sealer)?;
        let mut known: BTreeMap<WholeName, BTreeMap<String, Row>> = BTreeMap::new();
        for SecretRow { owner, key, sealed, updated } in store.list()? {
            known.entry(owner).or_default().insert(key, Row { sealed, updated });
        }
        Ok(Self { sealer, known: RwLock::new(known), store: Mutex::new(store) })
    }

    /// Sets a secret of a tenant of which `most` functions may have some. Waits for the disk. The engine is then to renew
    /// the function's instances.
    ///
    /// # Errors
    /// When name or value do not fit, or it would be one function more; nothing has changed then.
    pub(crate) fn set(
        &self,
        owner: &WholeName,
        key: &str,
        value: &[u8],
        most: usize,
    ) -> Result<(), SecretError> {
        check_key(key)?;
        if str::from_utf8(value).is_err() || value.contains(&0) {
            return Err(SecretError::Value(key.to_owned()));
        }
        let sealed = self.sealer.seal(value, &purpose_of(owner, key)).map_err(SecretError::Seal)?;
        let row = Row { sealed, updated: truncate(SystemTime::now()) };
        let mut store = self.store();
        self.check_room(owner, most)?;
        let mut all = self.of(owner);
        all.insert(key.to_owned(), row.clone());
        let bytes: usize = all.iter().map(|(key, row)| key.len() + row.sealed.text.len()).sum();
        if bytes > FUNCTION_BYTES {
            return Err(SecretError::TooLarge);
        }
        let Row { sealed, updated } = row;
        store.put(&SecretRow { owner: owner.clone(), key: key.to_owned(), sealed, updated })?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(owner.clone(), all);
        Ok(())
    }

    /// Removes a secret; says whether it was there. Waits for the disk.
    ///
    /// # Errors
    /// When the store failed; nothing has changed then.
    pub(crate) fn remove(&self, owner: &WholeName, key: &str) -> Result<bool, SecretError> {
        let mut store = self.store();
        let removed = store.remove(owner, key)?;
        let mut all = self.of(owner);
        all.remove(key);
        self.put(owner, all);
        Ok(removed)
    }

    /// Removes all secrets of a function; for one that was removed. Waits for the disk.
    ///
    /// # Errors
    /// When the store failed; nothing has changed then.
    pub(crate) fn forget(&self, owner: &WholeName) -> Result<(), SecretError> {
        let mut store = self.store();
        store.forget(owner)?;
        self.put(owner, BTreeMap::new());
        Ok(())
    }

    /// The names of a function's secrets.
    #[must_use]
    pub(crate) fn list(&self, owner: &WholeName) -> Vec<Held> {
        let held = |(key, row): (String, Row)| Held { key, updated: row.updated };
        self.of(owner).into_iter().map(held).collect()
    }

    /// A function need not be deployed to have secrets: without a bound, a token that may deploy could fill the disk.
    fn check_room(&self, owner: &WholeName, most: usize) -> Result<(), SecretError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = |one: &&WholeName| one.tenant() == owner.tenant();
        if known.contains_key(owner) || known.keys().filter(of_tenant).count() < most {
            return Ok(());
        }
        Err(SecretError::Full { tenant: owner.tenant().to_owned(), most })
    }

    fn store(&self) -> MutexGuard<'_, Box<dyn store::Secrets>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, owner: &WholeName) -> BTreeMap<String, Row> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(owner).cloned().unwrap_or_default()
    }

    fn put(&self, owner: &WholeName, all: BTreeMap<String, Row>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            known.remove(owner);
        } else {
            known.insert(owner.clone(), all);
        }
    }
}

impl SecretStore for Vault {
    fn read(&self, handler: &Handler) -> Result<SecretEnvironment, SecretsUnreadable> {
        let owner = handler.whole_name();
        let open = |(key, row): (String, Row)| {
            let opened = self.sealer.open(&row.sealed, &purpose_of(&owner, &key));
            // It was checked to be UTF-8 before it was sealed, and what opens is what was sealed.
            let text =
                opened.and_then(|mut value| String::from_utf8(std::mem::take(&mut *value)).ok());
            let text = text.ok_or_else(|| {
                SecretsUnreadable(format!(
                    "the secret {key} of {owner} does not open: it was changed on disk; set it again with `wool secret set`"
                ))
            })?;
            Ok((key, Zeroizing::new(text)))
        };
        self.of(&owner).into_iter().map(open).collect()
    }

    fn names(&self, handler: &Handler) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.get(&handler.whole_name()).into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }
}

fn purpose_of(owner: &WholeName, key: &str) -> Vec<u8> {
    purpose(&[owner.tenant(), owner.name(), key])
}

fn check_key(key: &str) -> Result<(), SecretError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = (1..=KEY_BYTES).contains(&key.len())
        && key.bytes().all(plain)
        && !key.as_bytes()[0].is_ascii_digit();
    let cut = || key.chars().take(2 * KEY_BYTES).collect();
    if fits { Ok(()) } else { Err(SecretError::Key(cut())) }
}

/// Whether the key is the one that sealed what the store holds.
fn check_witness(store: &mut dyn store::Secrets, sealer: &Sealer) -> Result<(), SecretError> {
    let purpose = purpose(&["witness"]);
    let offered = sealer.seal(WITNESS, &purpose).map_err(SecretError::Seal)?;
    let kept = store.witness(&offered)?;
    if sealer.open(&kept, &purpose).is_some_and(|value| value.as_slice() == WITNESS) {
        return Ok(());
    }
    Err(SecretError::OtherKey(store.location()))
}

#[cfg(test)]
mod tests {
    use store::Secrets as _;
    use store::memory::Memory;

    use super::*;

    /// A key that is the same for the same number.
    fn key(byte: u8) -> SecretKey {
        SecretKey(Zeroizing::new([byte; 32]))
    }

    fn open(store: &Memory) -> Vault {
        Vault::open(Box::new(store.clone()), &key(1)).unwrap()
    }

    fn named(name: &str) -> WholeName {
        WholeName::stored("acme".to_owned(), name.to_owned())
    }

    fn keys(vault: &Vault, owner: &WholeName) -> Vec<String> {
        vault.list(owner).into_iter().map(|held| held.key).collect()
    }

    #[test]
    fn a_store_that_was_sealed_with_another_key_is_refused_even_empty() {
        let store = Memory::default();
        drop(open(&store));
        let refused = Vault::open(Box::new(store.clone()), &key(2)).unwrap_err();
        assert!(matches!(&refused, SecretError::OtherKey(place) if place == "memory"), "{refused}");
        drop(open(&store));
    }

    #[test]
    fn the_store_gets_sealed_values_and_a_vault_that_is_opened_later_has_them() {
        let store = Memory::default();
        let vault = open(&store);
        vault.set(&named("f"), "B", b"value", 9).unwrap();
        vault.set(&named("f"), "A", b"value", 9).unwrap();
        let rows = store.list().unwrap();
        assert!(rows.iter().all(|row| row.sealed.text.len() == 5 + 16), "{rows:?}");
        assert_ne!(rows[0].sealed, rows[1].sealed);
        let again = open(&store);
        assert_eq!(again.list(&named("f")), vault.list(&named("f")));
        assert_eq!(keys(&again, &named("f")), ["A", "B"]);
        assert!(
            again.remove(&named("f"), "A").unwrap() && !again.remove(&named("f"), "A").unwrap()
        );
        assert_eq!(keys(&open(&store), &named("f")), ["B"]);
        again.forget(&named("f")).unwrap();
        assert_eq!(keys(&open(&store), &named("f")), [""; 0]);
    }

    #[test]
    fn a_tenant_has_secrets_for_no_more_functions_than_it_may() {
        let vault = open(&Memory::default());
        vault.set(&named("f"), "KEY", b"value", 1).unwrap();
        vault.set(&named("f"), "OTHER", b"value", 1).unwrap();
        let full = vault.set(&named("g"), "KEY", b"value", 1);
        assert!(matches!(full, Err(SecretError::Full { most: 1, .. })), "{full:?}");
        vault.forget(&named("f")).unwrap();
        vault.set(&named("g"), "KEY", b"value", 1).unwrap();
    }

    #[test]
    fn a_change_that_the_store_refuses_changes_nothing() {
        let store = Memory::default();
        let vault = open(&store);
        vault.set(&named("f"), "KEY", b"value", 9).unwrap();
        store.set_broken(true);
        let refused = [
            vault.set(&named("f"), "OTHER", b"value", 9),
            vault.remove(&named("f"), "KEY").map(drop),
            vault.forget(&named("f")),
        ];
        assert!(refused.iter().all(|one| matches!(one, Err(SecretError::Store(_)))), "{refused:?}");
        assert_eq!(keys(&vault, &named("f")), ["KEY"]);
    }
}
