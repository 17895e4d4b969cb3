//! All tokens: on disk by their hashes, in memory for every request.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::timeout;

use super::rows::{MIGRATIONS, insert, load, unreadable};
use super::token::TokenHash;
use function::Label;

use super::{Patterns, Refusal, Scope, Secret, Token};
use crate::database::{self, DatabaseError};
use crate::functions::millis::{from_millis, to_millis};

/// Between two looks at the clock of who waits for a token's end.
const LOOK: Duration = Duration::from_secs(1);

/// A token that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// Its name.
    pub name: Label,
    /// Whose functions it is for.
    pub tenant: Label,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// For which functions.
    pub functions: Patterns,
    /// For how long; none: until it is removed.
    pub lifetime: Option<Duration>,
}

/// What could not be done with tokens.
#[derive(Debug, Error)]
pub enum TokenError {
    /// There is no database.
    #[error("the tokens cannot be used")]
    Database(#[from] DatabaseError),
    /// SQLite refused.
    #[error("the tokens {0}")]
    Sql(&'static str, #[source] rusqlite::Error),
    /// A row is not what we wrote.
    #[error("the token {0} cannot be read: remove it with `wool token rm` and make another")]
    Row(String),
    /// The name is taken.
    #[error(
        "there is a token {0} already: choose another name, or remove that one with `wool token rm {0}`"
    )]
    Exists(Label),
    /// It would be good for nothing.
    #[error("a token needs a scope: --scope deploy, invoke, read or admin")]
    NoScope,
    /// An administrator of some.
    #[error(
        "the scope admin is over all functions of all tenants: leave out --functions and --tenant, or the scope admin"
    )]
    AdminOfSome,
    /// No time at all.
    #[error("a token cannot expire when it is made, or in more than a thousand years")]
    Lifetime,
    /// The kernel gave no random bytes.
    #[error("the kernel gave no random bytes")]
    Random(#[source] std::io::Error),
}

/// The tokens of a worker.
#[derive(Debug)]
pub struct Tokens {
    known: RwLock<Known>,
    // One writer at a time, and the memory follows the disk in the same order: taken before `known`.
    disk: Mutex<Connection>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Known {
    by_id: HashMap<String, (TokenHash, Arc<Token>)>,
    ever: bool,
}

impl Tokens {
    /// Opens the database; makes it, for nobody else's eyes, or brings an older one up to date.
    ///
    /// # Errors
    /// When it cannot be opened or read, or a newer release wrote it.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        let disk = database::open(path, &MIGRATIONS)?;
        let (tokens, ever) = load(&disk)?;
        let by_id = tokens.into_iter().map(|(hash, one)| (one.id.clone(), (hash, Arc::new(one))));
        let known = Known { by_id: by_id.collect(), ever };
        let changed = watch::Sender::new(());
        Ok(Self { known: RwLock::new(known), disk: Mutex::new(disk), changed })
    }

    /// Makes a token. The secret is known to who gets it from here, and to nobody else ever again. Waits for the disk.
    ///
    /// # Errors
    /// When the name is taken or the request makes no sense; nothing has changed then.
    pub fn create(&self, new: NewToken) -> Result<(Arc<Token>, Secret), TokenError> {
        let NewToken { name, tenant, scopes, functions, lifetime } = new;
        if scopes.is_empty() {
            return Err(TokenError::NoScope);
        }
        let of_some = !functions.written().is_empty() || tenant != Label::default_tenant();
        if scopes.contains(&Scope::Admin) && of_some {
            return Err(TokenError::AdminOfSome);
        }
        let created = from_millis(to_millis(SystemTime::now()));
        let expires = lifetime.map(|lifetime| expiry(created, lifetime)).transpose()?;
        let secret = Secret::draw().map_err(TokenError::Random)?;
        let id = secret.id().to_owned();
        let token = Arc::new(Token { id, name, tenant, scopes, functions, created, expires });
        let disk = self.disk();
        let taken = disk
            .query_row("SELECT 1 FROM tokens WHERE name = ?1", [token.name.as_str()], |_| Ok(()))
            .optional();
        if taken.map_err(unreadable)?.is_some() {
            return Err(TokenError::Exists(token.name.clone()));
        }
        insert(&disk, &token, &secret.hash())?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_id.insert(token.id.clone(), (secret.hash(), Arc::clone(&token)));
        known.ever = true;
        self.changed.send_replace(());
        Ok((token, secret))
    }

    /// Removes a token; says whether it was there. Waits for the disk.
    ///
    /// # Errors
    /// When the database refused; nothing has changed then.
    pub fn remove(&self, name: &Label) -> Result<bool, TokenError> {
        let disk = self.disk();
        let removed = disk
            .execute("DELETE FROM tokens WHERE name = ?1", [name.as_str()])
            .map_err(|source| TokenError::Sql("cannot be written", source))?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_id.retain(|_, (_, token)| token.name != *name);
        self.changed.send_replace(());
        Ok(removed > 0)
    }

    /// All tokens, expired ones included, by name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Token>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = known.by_id.values().map(|(_, token)| Arc::clone(token)).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// The token that a secret belongs to. In memory: nanoseconds, for every request.
    ///
    /// # Errors
    /// When it opens nothing.
    pub fn find(&self, secret: &Secret, now: SystemTime) -> Result<Arc<Token>, Refusal> {
        let hash = secret.hash();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // Ids are no secret: how long a look for one takes may be known.
        let (kept, token) = known.by_id.get(secret.id()).ok_or(Refusal::Unknown)?;
        if !kept.equals(&hash) {
            return Err(Refusal::Unknown);
        }
        if token.expired(now) { Err(Refusal::Expired) } else { Ok(Arc::clone(token)) }
    }

    /// Whether a token that was found opens something still.
    #[must_use]
    pub fn is_good(&self, token: &Token, now: SystemTime) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_id.contains_key(&token.id) && !token.expired(now)
    }

    /// Waits until something holds that depends on tokens and the time.
    pub async fn until(&self, holds: impl Fn(SystemTime) -> bool) {
        let mut changed = self.changed.subscribe();
        while !holds(SystemTime::now()) {
            // The clock may be set meanwhile: no longer than a look apart.
            drop(timeout(LOOK, changed.changed()).await);
        }
    }

    /// Whether a token was ever made, removed or not.
    #[must_use]
    pub fn ever_made(&self) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).ever
    }

    /// Whether there is one that opens something now.
    #[must_use]
    pub fn any_good(&self, now: SystemTime) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.by_id.values().any(|(_, token)| !token.expired(now))
    }

    fn disk(&self) -> MutexGuard<'_, Connection> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn expiry(created: SystemTime, lifetime: Duration) -> Result<SystemTime, TokenError> {
    // Almost a thousand years. The API's description says it, too.
    const LONGEST: Duration = Duration::from_secs(31_000_000_000);
    if lifetime < Duration::from_millis(1) || lifetime > LONGEST {
        return Err(TokenError::Lifetime);
    }
    created.checked_add(lifetime).ok_or(TokenError::Lifetime)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn new(name: &str, scopes: &[Scope]) -> NewToken {
        NewToken {
            name: name.parse().unwrap(),
            tenant: Label::default_tenant(),
            scopes: scopes.iter().copied().collect(),
            functions: Patterns::default(),
            lifetime: None,
        }
    }

    #[test]
    fn the_disk_holds_no_token_and_no_other_user_reads_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&dir.path().join("access.sqlite")).unwrap();
        let (_, secret) = tokens.create(new("ci", &[Scope::Deploy])).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let secret = &secret.reveal().as_bytes()[18..];
            assert!(!bytes.windows(secret.len()).any(|part| part == secret), "{path:?}");
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        }
    }

    #[test]
    fn a_token_opens_until_it_expires_or_is_removed_and_after_a_start_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.sqlite");
        let tokens = Tokens::open(&path).unwrap();
        assert!(!tokens.ever_made());
        let short =
            NewToken { lifetime: Some(Duration::from_secs(60)), ..new("a", &[Scope::Read]) };
        let (token, secret) = tokens.create(short).unwrap();
        let (_, lasting) = tokens.create(new("b", &[Scope::Invoke, Scope::Read])).unwrap();
        let tokens = Tokens::open(&path).unwrap();
        let (before, after) = (token.created, token.expires.unwrap());
        assert_eq!(tokens.find(&secret, before).unwrap(), token);
        assert_eq!(tokens.find(&secret, after), Err(Refusal::Expired));
        assert_eq!(tokens.find(&Secret::draw().unwrap(), before), Err(Refusal::Unknown));
        assert!(tokens.remove(&"b".parse().unwrap()).unwrap());
        assert!(!tokens.remove(&"b".parse().unwrap()).unwrap());
        assert_eq!(tokens.find(&lasting, before), Err(Refusal::Unknown));
        assert!(tokens.any_good(before) && !tokens.any_good(after));
        assert!(tokens.remove(&"a".parse().unwrap()).unwrap());
        assert!(Tokens::open(&path).unwrap().ever_made(), "removing the last opens no door");
    }

    #[test]
    fn a_secret_with_a_known_id_and_another_tail_opens_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&dir.path().join("access.sqlite")).unwrap();
        let (token, secret) = tokens.create(new("a", &[Scope::Read])).unwrap();
        let last = if secret.reveal().ends_with('0') { '1' } else { '0' };
        let mut forged = secret.reveal().to_owned();
        forged.pop();
        forged.push(last);
        let forged = Secret::read(&forged).unwrap();
        assert_eq!(forged.id(), token.id);
        assert_eq!(tokens.find(&forged, token.created), Err(Refusal::Unknown));
    }

    #[test]
    fn what_makes_no_sense_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&dir.path().join("access.sqlite")).unwrap();
        assert!(matches!(tokens.create(new("a", &[])), Err(TokenError::NoScope)));
        let functions = Patterns::try_from(vec!["a*".to_owned()]).unwrap();
        let some = NewToken { functions, ..new("a", &[Scope::Admin]) };
        assert!(matches!(tokens.create(some), Err(TokenError::AdminOfSome)));
        let no_time = NewToken { lifetime: Some(Duration::ZERO), ..new("a", &[Scope::Read]) };
        assert!(matches!(tokens.create(no_time), Err(TokenError::Lifetime)));
        tokens.create(new("a", &[Scope::Read])).unwrap();
        let again = tokens.create(new("a", &[Scope::Read])).unwrap_err();
        assert!(again.to_string().contains("wool token rm a"), "{again}");
        assert_eq!(tokens.list().len(), 1);
    }
}
