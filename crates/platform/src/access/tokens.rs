//! All tokens: on disk by their hashes, in memory for every request.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use function::Label;
use store::millis::truncate;
use tokio::sync::watch;
use tokio::time::timeout;

use super::rows::{from_row, to_row};
use super::token::TokenHash;
use super::token_error::TokenError;
use super::{Patterns, Refusal, Scope, Secret, Token};

/// Between two looks at the clock of who waits for a token's end.
const LOOK: Duration = Duration::from_secs(1);

/// A token that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct NewToken {
    /// The token's name.
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

/// The tokens of a worker.
#[derive(Debug)]
pub struct Tokens {
    known: RwLock<Known>,
    // Taken before `known`: one writer at a time, and memory follows the store in the same order.
    store: Mutex<Box<dyn store::Tokens>>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Known {
    by_id: HashMap<String, (TokenHash, Arc<Token>)>,
    ever: bool,
}

impl Tokens {
    /// Reads all tokens of a store into memory.
    ///
    /// # Errors
    /// When the store or one of its rows cannot be read.
    pub fn open(store: Box<dyn store::Tokens>) -> Result<Self, TokenError> {
        let mut by_id = HashMap::new();
        for row in store.list()? {
            let (hash, token) = from_row(row)?;
            by_id.insert(token.id.clone(), (hash, Arc::new(token)));
        }
        let known = Known { by_id, ever: store.ever_inserted()? };
        let changed = watch::Sender::new(());
        Ok(Self { known: RwLock::new(known), store: Mutex::new(store), changed })
    }

    /// Makes a token. Its secret is returned here and kept nowhere: only its hash is stored. Waits for the disk.
    ///
    /// # Errors
    /// When the name is taken or the request makes no sense; nothing has changed then.
    pub(crate) fn create(&self, new: NewToken) -> Result<(Arc<Token>, Secret), TokenError> {
        let NewToken { name, tenant, scopes, functions, lifetime } = new;
        if scopes.is_empty() {
            return Err(TokenError::NoScope);
        }
        let of_some = !functions.written().is_empty() || tenant != Label::default_tenant();
        if scopes.contains(&Scope::Admin) && of_some {
            return Err(TokenError::AdminOfSome);
        }
        let created = truncate(SystemTime::now());
        let expires = lifetime.map(|lifetime| expiry(created, lifetime)).transpose()?;
        let secret = Secret::draw().map_err(TokenError::Random)?;
        let id = secret.id().to_owned();
        let token = Arc::new(Token { id, name, tenant, scopes, functions, created, expires });
        let mut store = self.store();
        if !store.insert(&to_row(&token, &secret.hash()))? {
            return Err(TokenError::Exists(token.name.clone()));
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_id.insert(token.id.clone(), (secret.hash(), Arc::clone(&token)));
        known.ever = true;
        self.changed.send_replace(());
        Ok((token, secret))
    }

    /// Removes a token; says whether it was there. Waits for the disk.
    ///
    /// # Errors
    /// When the store failed; nothing has changed then.
    pub(crate) fn remove(&self, name: &Label) -> Result<bool, TokenError> {
        let mut store = self.store();
        let removed = store.remove(name.as_str())?;
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.by_id.retain(|_, (_, token)| token.name != *name);
        self.changed.send_replace(());
        Ok(removed)
    }

    /// All tokens, expired ones included, by name.
    #[must_use]
    pub(crate) fn list(&self) -> Vec<Arc<Token>> {
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

    fn store(&self) -> MutexGuard<'_, Box<dyn store::Tokens>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
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

    use store::memory::Memory;
    use store_sqlite::SqliteTokens;

    use super::*;

    fn open(store: &Memory) -> Tokens {
        Tokens::open(Box::new(store.clone())).unwrap()
    }

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
        let store = SqliteTokens::open(&dir.path().join("access.sqlite")).unwrap();
        let tokens = Tokens::open(Box::new(store)).unwrap();
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
        let store = Memory::default();
        let tokens = open(&store);
        assert!(!tokens.ever_made());
        let short =
            NewToken { lifetime: Some(Duration::from_secs(60)), ..new("a", &[Scope::Read]) };
        let (token, secret) = tokens.create(short).unwrap();
        let (_, lasting) = tokens.create(new("b", &[Scope::Invoke, Scope::Read])).unwrap();
        let tokens = open(&store);
        let (before, after) = (token.created, token.expires.unwrap());
        assert_eq!(tokens.find(&secret, before).unwrap(), token);
        assert_eq!(tokens.find(&secret, after), Err(Refusal::Expired));
        assert_eq!(tokens.find(&Secret::draw().unwrap(), before), Err(Refusal::Unknown));
        assert!(tokens.remove(&"b".parse().unwrap()).unwrap());
        assert!(!tokens.remove(&"b".parse().unwrap()).unwrap());
        assert_eq!(tokens.find(&lasting, before), Err(Refusal::Unknown));
        assert!(tokens.remove(&"a".parse().unwrap()).unwrap());
        assert!(open(&store).ever_made(), "removing the last opens no door");
    }

    #[test]
    fn a_secret_with_a_known_id_and_another_tail_opens_nothing() {
        let tokens = open(&Memory::default());
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
        let tokens = open(&Memory::default());
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

    #[test]
    fn a_change_that_the_store_refuses_changes_nothing() {
        let store = Memory::default();
        let tokens = open(&store);
        store.set_broken(true);
        assert!(matches!(tokens.create(new("a", &[Scope::Read])), Err(TokenError::Store(_))));
        assert!(!tokens.ever_made() && tokens.list().is_empty());
        store.set_broken(false);
        let (token, secret) = tokens.create(new("a", &[Scope::Read])).unwrap();
        store.set_broken(true);
        assert!(matches!(tokens.remove(&token.name), Err(TokenError::Store(_))));
        assert_eq!(tokens.find(&secret, token.created).unwrap(), token);
    }
}
