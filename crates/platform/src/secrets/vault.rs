//! All secrets, sealed, on disk and in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use engine::{Handler, SecretEnvironment, SecretStore, SecretsUnreadable};
use rusqlite::{Connection, OptionalExtension as _, params};
use thiserror::Error;
use zeroize::Zeroizing;

use super::key::SecretKey;
use super::seal::{NONCE_BYTES, Sealed, Sealer, purpose};
use crate::database::{self, DatabaseError};
use crate::functions::millis::{from_millis, to_millis};
use function::WholeName;

const MIGRATIONS: [&str; 1] = ["CREATE TABLE secrets (
         tenant   TEXT NOT NULL,
         function TEXT NOT NULL,
         key      TEXT NOT NULL,
         nonce    BLOB NOT NULL,
         sealed   BLOB NOT NULL,
         updated  INTEGER NOT NULL,
         PRIMARY KEY (tenant, function, key)
     ) STRICT, WITHOUT ROWID;
     CREATE TABLE witness (
         nonce  BLOB NOT NULL,
         sealed BLOB NOT NULL
     ) STRICT;"];

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
    /// The database failed.
    #[error("the secrets cannot be used")]
    Database(#[from] DatabaseError),
    /// SQLite refused.
    #[error("the secrets {0}")]
    Sql(&'static str, #[source] rusqlite::Error),
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
    /// Too much.
    #[error("the secrets of a function may have {FUNCTION_BYTES} bytes together")]
    TooLarge,
    /// As many functions of the tenant have secrets as may.
    #[error(
        "{tenant} has secrets for as many functions as it may ({most}), those included that are not deployed: remove some with `wool secret rm`, or have the operator raise `functions` in [tenants.{tenant}]"
    )]
    Full {
        /// Whose.
        tenant: String,
        /// How many.
        most: usize,
    },
    /// It could not be sealed.
    #[error("the secret could not be sealed")]
    Seal(#[source] std::io::Error),
}

/// The secrets of all functions.
#[derive(Debug)]
pub struct Vault {
    sealer: Sealer,
    known: RwLock<BTreeMap<WholeName, BTreeMap<String, Row>>>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `known`.
    disk: Mutex<Connection>,
}

#[derive(Clone, Debug)]
struct Row {
    sealed: Sealed,
    updated: SystemTime,
}

impl Vault {
    /// Opens the database; makes it when it is not there.
    ///
    /// # Errors
    /// When it cannot be read, or its secrets were sealed with another key.
    pub fn open(path: &Path, key: &SecretKey) -> Result<Self, SecretError> {
        let sealer = Sealer::new(key);
        let disk = database::open(path, &MIGRATIONS)?;
        ask_witness(&disk, &sealer, path)?;
        let known = RwLock::new(load(&disk)?);
        Ok(Self { sealer, known, disk: Mutex::new(disk) })
    }

    /// Sets a secret of a tenant of which `most` functions may have some. Waits for the disk. The engine is then to renew
    /// the function's instances.
    ///
    /// # Errors
    /// When name or value do not fit, or it would be one function more; nothing has changed then.
    pub fn set(
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
        let row = Row { sealed, updated: from_millis(to_millis(SystemTime::now())) };
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_room(owner, most)?;
        let mut all = self.of(owner);
        all.insert(key.to_owned(), row.clone());
        let bytes: usize = all.iter().map(|(key, row)| key.len() + row.sealed.text.len()).sum();
        if bytes > FUNCTION_BYTES {
            return Err(SecretError::TooLarge);
        }
        let fields = params![
            owner.tenant(),
            owner.name(),
            key,
            row.sealed.nonce.as_slice(),
            row.sealed.text,
            to_millis(row.updated),
        ];
        let sql = "INSERT INTO secrets (tenant, function, key, nonce, sealed, updated)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT DO UPDATE SET nonce = ?4, sealed = ?5, updated = ?6";
        disk.execute(sql, fields).map_err(unwritable)?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).insert(owner.clone(), all);
        Ok(())
    }

    /// Removes a secret; says whether it was there. Waits for the disk.
    ///
    /// # Errors
    /// When the database refused; nothing has changed then.
    pub fn remove(&self, owner: &WholeName, key: &str) -> Result<bool, SecretError> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "DELETE FROM secrets WHERE tenant = ?1 AND function = ?2 AND key = ?3";
        let removed = disk.execute(sql, [owner.tenant(), owner.name(), key]).map_err(unwritable)?;
        let mut all = self.of(owner);
        all.remove(key);
        self.put(owner, all);
        Ok(removed > 0)
    }

    /// Removes all secrets of a function; for one that was removed. Waits for the disk.
    ///
    /// # Errors
    /// When the database refused; nothing has changed then.
    pub fn forget(&self, owner: &WholeName) -> Result<(), SecretError> {
        let disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let sql = "DELETE FROM secrets WHERE tenant = ?1 AND function = ?2";
        disk.execute(sql, [owner.tenant(), owner.name()]).map_err(unwritable)?;
        self.put(owner, BTreeMap::new());
        Ok(())
    }

    /// Does something to a function that must not be done to one with secrets; none: it has some. Nobody sets one meanwhile.
    pub fn unless_held<T>(&self, owner: &WholeName, work: impl FnOnce() -> T) -> Option<T> {
        let _disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        self.of(owner).is_empty().then(work)
    }

    /// Does something while nobody sets or removes a secret.
    pub fn unchanged<T>(&self, work: impl FnOnce() -> T) -> T {
        let _disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }

    /// The names of a function's secrets.
    #[must_use]
    pub fn list(&self, owner: &WholeName) -> Vec<Held> {
        let held = |(key, row): (String, Row)| Held { key, updated: row.updated };
        self.of(owner).into_iter().map(held).collect()
    }

    /// Functions need not be deployed to have secrets: whoever may deploy could otherwise fill the disk with names.
    fn check_room(&self, owner: &WholeName, most: usize) -> Result<(), SecretError> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_tenant = |one: &&WholeName| one.tenant() == owner.tenant();
        if known.contains_key(owner) || known.keys().filter(of_tenant).count() < most {
            return Ok(());
        }
        Err(SecretError::Full { tenant: owner.tenant().to_owned(), most })
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

fn unwritable(source: rusqlite::Error) -> SecretError {
    SecretError::Sql("cannot be written", source)
}

fn unreadable(source: rusqlite::Error) -> SecretError {
    SecretError::Sql("cannot be read", source)
}

/// Whether the key is the one that sealed what is there.
fn ask_witness(disk: &Connection, sealer: &Sealer, path: &Path) -> Result<(), SecretError> {
    let row = |row: &rusqlite::Row<'_>| {
        Ok(Sealed { nonce: row.get::<_, [u8; NONCE_BYTES]>(0)?, text: row.get(1)? })
    };
    let found = disk.query_row("SELECT nonce, sealed FROM witness", [], row).optional();
    let of = purpose(&["witness"]);
    if let Some(witness) = found.map_err(unreadable)? {
        let same = sealer.open(&witness, &of).is_some_and(|said| said.as_slice() == WITNESS);
        return same.then_some(()).ok_or_else(|| SecretError::OtherKey(path.display().to_string()));
    }
    let Sealed { nonce, text } = sealer.seal(WITNESS, &of).map_err(SecretError::Seal)?;
    let sql = "INSERT INTO witness (nonce, sealed) VALUES (?1, ?2)";
    disk.execute(sql, params![nonce.as_slice(), text]).map_err(unwritable)?;
    Ok(())
}

fn load(disk: &Connection) -> Result<BTreeMap<WholeName, BTreeMap<String, Row>>, SecretError> {
    let sql = "SELECT tenant, function, key, nonce, sealed, updated FROM secrets";
    let mut statement = disk.prepare(sql).map_err(unreadable)?;
    let rows = statement.query_map([], |row| {
        let owner = WholeName::stored(row.get(0)?, row.get(1)?);
        let sealed = Sealed { nonce: row.get::<_, [u8; NONCE_BYTES]>(3)?, text: row.get(4)? };
        Ok((owner, row.get(2)?, Row { sealed, updated: from_millis(row.get(5)?) }))
    });
    let mut known: BTreeMap<WholeName, BTreeMap<String, Row>> = BTreeMap::new();
    for row in rows.map_err(unreadable)? {
        let (owner, key, row) = row.map_err(unreadable)?;
        known.entry(owner).or_default().insert(key, row);
    }
    Ok(known)
}
