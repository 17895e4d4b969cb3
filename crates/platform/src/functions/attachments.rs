//! What an API keeps beside a function: tags, policies, and what calls of it must keep to.
//!
//! An attachment has a kind and a key. What belongs to one version or alias has its qualifier as the key, and goes when
//! that is removed; what belongs to the whole function has an empty key.

use std::sync::{Arc, PoisonError};

use function::{Qualifier, WholeName};
use store::{AttachmentRow, Functions, StoreError};
use thiserror::Error;

use super::Registry;
use super::known::Known;
use crate::access::{Permit, Purpose, to};

/// Longest text of one attachment, in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Most attachments of one function.
const MAX_ATTACHMENTS: usize = 500;

/// Why an attachment stays as it is.
#[derive(Debug, Error)]
pub enum AttachmentError<E> {
    /// There is no such function.
    #[error("no function {:?}: see `wool ls`", .0.name())]
    Unknown(WholeName),
    /// The function has as many as it may, or the text is too long.
    #[error(
        "{0} keeps as much beside it as a function may: {MAX_ATTACHMENTS} entries, each of {MAX_TEXT} bytes"
    )]
    TooMuch(String),
    /// The caller does not want the change, having seen what is there.
    #[error("the change was refused")]
    Refused(E),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
    /// The work ended without a result.
    #[error("the change broke off: see the worker's log")]
    BrokeOff,
}

/// Reads and changes attachments, for callers with a permit.
#[derive(Clone, Debug)]
pub struct Attachments {
    registry: Arc<Registry>,
}

impl Attachments {
    /// Those of the functions of a registry.
    #[must_use]
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { registry }
    }

    /// Whether the function is there, and has a version that this means.
    #[must_use]
    pub fn has_version<P>(&self, permit: &Permit<P>, qualifier: &Qualifier) -> bool
    where
        P: Purpose<Subject = WholeName>,
    {
        self.registry.resolve(permit.function(), qualifier, || 1.0).is_some()
    }

    /// An attachment's text; none: there is no such attachment, or function.
    #[must_use]
    pub fn get<P>(&self, permit: &Permit<P>, kind: &str, key: &str) -> Option<String>
    where
        P: Purpose<Subject = WholeName>,
    {
        let text = |known: &Known| known.attachment(kind, key).map(str::to_owned);
        self.registry.peek(permit.function(), text).flatten()
    }

    /// The keys and texts of all attachments of a kind, by key.
    #[must_use]
    pub fn list(&self, permit: &Permit<to::ShowFunction>, kind: &str) -> Vec<(String, String)> {
        self.registry.peek(permit.function(), |known| known.attachments(kind)).unwrap_or_default()
    }

    /// Changes an attachment: `change` sees its text, and says what it is to be; none: it is removed. Nothing comes between
    /// the two. Returns the text as it is now.
    ///
    /// # Errors
    /// When there is no such function, or `change` refuses; nothing has changed then.
    pub async fn change<E: Send + 'static>(
        &self,
        permit: &Permit<to::Configure>,
        kind: &'static str,
        key: String,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, E> + Send + 'static,
    ) -> Result<Option<String>, AttachmentError<E>> {
        let (registry, name) = (Arc::clone(&self.registry), permit.function().clone());
        let work = tokio::task::spawn_blocking(move || {
            registry.change_attachment(&name, kind, key, change)
        });
        work.await.unwrap_or(Err(AttachmentError::BrokeOff))
    }
}

impl Registry {
    /// All attachments of a kind: function, key and text.
    pub(crate) fn attached(&self, kind: &str) -> Vec<(WholeName, String, String)> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        let of = |(name, known): (&WholeName, &Known)| {
            let all = known.attachments(kind).into_iter();
            let name = name.clone();
            all.map(move |(key, text)| (name.clone(), key, text))
        };
        functions.iter().flat_map(of).collect()
    }

    /// Holds the lock of the store: what `change` saw still holds when it is made.
    pub(super) fn change_attachment<E>(
        &self,
        name: &WholeName,
        kind: &str,
        key: String,
        change: impl FnOnce(Option<&str>) -> Result<Option<String>, E>,
    ) -> Result<Option<String>, AttachmentError<E>> {
        let mut store = self.store();
        let seen = |known: &Known| {
            let before = known.attachment(kind, &key).map(str::to_owned);
            (before, known.attachment_count(), known.is_temporary())
        };
        let (before, count, is_temporary) =
            self.peek(name, seen).ok_or_else(|| AttachmentError::Unknown(name.clone()))?;
        let after = change(before.as_deref()).map_err(AttachmentError::Refused)?;
        let is_too_much =
            |text: &String| text.len() > MAX_TEXT || (before.is_none() && count >= MAX_ATTACHMENTS);
        if after.as_ref().is_some_and(is_too_much) {
            return Err(AttachmentError::TooMuch(name.name().to_owned()));
        }
        let row = after.clone().map(|text| AttachmentRow {
            kind: kind.to_owned(),
            key: key.clone(),
            text,
        });
        // What is in memory alone has nothing in the store.
        if !is_temporary {
            match &row {
                Some(row) => store.attach(name, row).map_err(AttachmentError::Store)?,
                None => drop(store.detach(name, kind, &key).map_err(AttachmentError::Store)?),
            }
        }
        let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = functions.get_mut(name) {
            match row {
                Some(row) => known.attach(row),
                None => known.detach(kind, &key),
            }
        }
        Ok(after)
    }

    /// Removes what is kept for a version or an alias. The caller holds the store.
    pub(super) fn detach_all(
        &self,
        store: &mut dyn Functions,
        name: &WholeName,
        qualifier: &Qualifier,
    ) -> Result<(), StoreError> {
        let key = qualifier.to_string();
        for kind in self.peek(name, |known| known.kinds(&key)).unwrap_or_default() {
            store.detach(name, &kind, &key)?;
            let mut functions = self.functions.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = functions.get_mut(name) {
                known.detach(&kind, &key);
            }
        }
        Ok(())
    }
}
