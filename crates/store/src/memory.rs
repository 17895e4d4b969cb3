//! Every store in memory: the double for tests.

mod layers;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use function::{AliasName, BundleDigest, VersionId, WholeLayerName};

use crate::millis::truncate;
use crate::{
    ActionRow, Actions, AliasRow, AttachmentRow, Bundles, FunctionRow, Functions, LayerRow,
    MAX_VERSIONS, Pack, PastVersion, PublishedVersion, Sealed, SecretRow, Secrets, StoreError,
    TokenRow, Tokens, Version, WholeName,
};

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
    functions: BTreeMap<WholeName, FunctionRow>,
    /// Those of each function, the oldest first.
    versions: BTreeMap<WholeName, Vec<Version>>,
    published: BTreeMap<(WholeName, u32), Numbered>,
    /// The last number that each name was given.
    numbers: BTreeMap<WholeName, u32>,
    aliases: BTreeMap<(WholeName, AliasName), AliasRow>,
    attachments: BTreeMap<(WholeName, String, String), String>,
    layers: BTreeMap<(WholeLayerName, u32), LayerRow>,
    /// The last number that each layer was given.
    layer_numbers: BTreeMap<WholeLayerName, u32>,
    bundles: BTreeMap<BundleDigest, Vec<u8>>,
    actions: Vec<ActionRow>,
    broken: bool,
}

/// A published version but for the version itself.
#[derive(Clone, Debug)]
struct Numbered {
    id: VersionId,
    published: SystemTime,
    description: String,
}

impl Content {
    fn published(&self, name: &WholeName, number: u32) -> Option<PublishedVersion> {
        let Numbered { id, published, description } =
            self.published.get(&(name.clone(), number))?.clone();
        let version = self.versions.get(name)?.iter().find(|version| version.id == id)?;
        Some(PublishedVersion {
            number,
            version: Arc::new(version.clone()),
            published,
            description,
        })
    }
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

impl Functions for Memory {
    fn put(&mut self, function: &FunctionRow) -> Result<(), StoreError> {
        let mut content = self.content()?;
        let name = function.current.record.whole_name();
        let current = &function.current;
        let published = content.published.iter().filter(|((of, _), _)| *of == name);
        let published: Vec<_> = published.map(|(_, one)| one.id.clone()).collect();
        let before = content.functions.get(&name).map(|row| row.current.id.clone());
        let versions = content.versions.entry(name.clone()).or_default();
        let known = versions.iter_mut().find(|version| version.id == current.id);
        let kept = if let Some(known) = known {
            known.warnings.clone_from(&current.warnings);
            known.clone()
        } else {
            let created = truncate(current.created);
            versions.push(Version { created, ..Version::clone(current) });
            versions[versions.len() - 1].clone()
        };
        // Stable: of two of one time the one that was put later is the newer.
        versions.sort_by_key(|version| version.created);
        let surplus = versions.len().saturating_sub(MAX_VERSIONS as usize);
        let oldest: Vec<_> = versions.iter().take(surplus).map(|one| one.id.clone()).collect();
        let kept_on = |id: &VersionId| {
            *id == current.id || Some(id) == before.as_ref() || published.contains(id)
        };
        versions.retain(|version| kept_on(&version.id) || !oldest.contains(&version.id));
        let updated = truncate(function.updated);
        let row = FunctionRow { current: Arc::new(kept), updated };
        content.functions.insert(name, row);
        Ok(())
    }

    fn remove(&mut self, name: &WholeName) -> Result<bool, StoreError> {
        let mut content = self.content()?;
        content.versions.remove(name);
        content.published.retain(|(of, _), _| of != name);
        content.aliases.retain(|(of, _), _| of != name);
        content.attachments.retain(|(of, ..), _| of != name);
        Ok(content.functions.remove(name).is_some())
    }

    fn list(&self) -> Result<Vec<FunctionRow>, StoreError> {
        Ok(self.content()?.functions.values().cloned().collect())
    }

    fn history(&self, name: &WholeName) -> Result<Vec<PastVersion>, StoreError> {
        let content = self.content()?;
        let versions = content.versions.get(name).into_iter().flatten().rev();
        let past =
            |version: &Version| PastVersion { id: version.id.clone(), created: version.created };
        Ok(versions.map(past).collect())
    }

    fn version(&self, name: &WholeName, id: &VersionId) -> Result<Option<Version>, StoreError> {
        let content = self.content()?;
        let mut versions = content.versions.get(name).into_iter().flatten();
        Ok(versions.find(|version| version.id == *id).cloned())
    }

    fn bundles(&self) -> Result<BTreeSet<BundleDigest>, StoreError> {
        let content = self.content()?;
        let versions = content.versions.values().flatten();
        let of_layers = content.layers.values().map(|row| &row.version.bundle);
        let of_versions = versions.flat_map(|version| version.record.bundles());
        Ok(of_versions.chain(of_layers).cloned().collect())
    }

    fn publish(
        &mut self,
        name: &WholeName,
        published: SystemTime,
        description: &str,
    ) -> Result<Option<PublishedVersion>, StoreError> {
        let mut content = self.content()?;
        let Some(row) = content.functions.get(name) else { return Ok(None) };
        let id = row.current.id.clone();
        let mut of_function = content.published.iter().filter(|((of, _), _)| of == name);
        if let Some((&(_, number), newest)) = of_function.next_back()
            && newest.id == id
        {
            return Ok(content.published(name, number));
        }
        let last = content.numbers.entry(name.clone()).or_default();
        *last += 1;
        let number = *last;
        let (published, description) = (truncate(published), description.to_owned());
        let numbered = Numbered { id, published, description };
        content.published.insert((name.clone(), number), numbered);
        Ok(content.published(name, number))
    }

    fn unpublish(&mut self, name: &WholeName, number: u32) -> Result<bool, StoreError> {
        Ok(self.content()?.published.remove(&(name.clone(), number)).is_some())
    }

    fn published(&self) -> Result<Vec<PublishedVersion>, StoreError> {
        let content = self.content()?;
        let all = content.published.keys();
        Ok(all.filter_map(|(name, number)| content.published(name, *number)).collect())
    }

    fn put_alias(&mut self, name: &WholeName, alias: &AliasRow) -> Result<(), StoreError> {
        let row = AliasRow { updated: truncate(alias.updated), ..alias.clone() };
        self.content()?.aliases.insert((name.clone(), alias.name.clone()), row);
        Ok(())
    }

    fn remove_alias(&mut self, name: &WholeName, alias: &AliasName) -> Result<bool, StoreError> {
        Ok(self.content()?.aliases.remove(&(name.clone(), alias.clone())).is_some())
    }

    fn aliases(&self) -> Result<Vec<(WholeName, AliasRow)>, StoreError> {
        let content = self.content()?;
        let aliases = content.aliases.iter();
        Ok(aliases.map(|((name, _), row)| (name.clone(), row.clone())).collect())
    }

    fn attach(&mut self, name: &WholeName, attachment: &AttachmentRow) -> Result<(), StoreError> {
        let AttachmentRow { kind, key, text } = attachment.clone();
        self.content()?.attachments.insert((name.clone(), kind, key), text);
        Ok(())
    }

    fn detach(&mut self, name: &WholeName, kind: &str, key: &str) -> Result<bool, StoreError> {
        let place = (name.clone(), kind.to_owned(), key.to_owned());
        Ok(self.content()?.attachments.remove(&place).is_some())
    }

    fn attachments(&self) -> Result<Vec<(WholeName, AttachmentRow)>, StoreError> {
        let content = self.content()?;
        let row = |((name, kind, key), text): (&(WholeName, String, String), &String)| {
            let (kind, key, text) = (kind.clone(), key.clone(), text.clone());
            (name.clone(), AttachmentRow { kind, key, text })
        };
        Ok(content.attachments.iter().map(row).collect())
    }
}

impl Bundles for Memory {
    fn put(&self, digest: &BundleDigest, pack: Pack<'_>) -> Result<(), StoreError> {
        if self.content()?.bundles.contains_key(digest) {
            return Ok(());
        }
        let mut archive = Vec::new();
        pack(&mut archive).map_err(|source| StoreError::Database {
            store: "the memory",
            step: "cannot be written",
            source: source.into(),
        })?;
        self.content()?.bundles.insert(digest.clone(), archive);
        Ok(())
    }

    fn get(&self, digest: &BundleDigest) -> Result<Option<Box<dyn Read + Send>>, StoreError> {
        let archive = self.content()?.bundles.get(digest).cloned();
        Ok(archive.map(|archive| Box::new(Cursor::new(archive)) as _))
    }

    fn remove(&self, digest: &BundleDigest) -> Result<(), StoreError> {
        self.content()?.bundles.remove(digest);
        Ok(())
    }

    fn retain(&self, digests: &BTreeSet<BundleDigest>) -> Result<(), StoreError> {
        self.content()?.bundles.retain(|digest, _| digests.contains(digest));
        Ok(())
    }
}

impl Actions for Memory {
    fn append(&mut self, action: &ActionRow, keep: usize) -> Result<(), StoreError> {
        let mut content = self.content()?;
        content.actions.push(action.clone());
        let same = |other: &ActionRow| other.group == action.group && other.done == action.done;
        let mut surplus = content.actions.iter().filter(|other| same(other)).count();
        surplus = surplus.saturating_sub(keep);
        content.actions.retain(|other| {
            let goes = surplus > 0 && same(other);
            surplus -= usize::from(goes);
            !goes
        });
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.content().map(drop)
    }

    fn last(&self, most: usize) -> Result<Vec<String>, StoreError> {
        let content = self.content()?;
        let first = content.actions.len().saturating_sub(most);
        Ok(content.actions[first..].iter().map(|action| action.line.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;
    use crate::conformance::Backend;
    use crate::{Actions, Bundles, Functions, Secrets, Tokens};

    impl Backend for Memory {
        fn tokens(&self) -> Box<dyn Tokens> {
            Box::new(self.clone())
        }

        fn secrets(&self) -> Box<dyn Secrets> {
            Box::new(self.clone())
        }

        fn functions(&self) -> Box<dyn Functions> {
            Box::new(self.clone())
        }

        fn bundles(&self) -> Box<dyn Bundles> {
            Box::new(self.clone())
        }

        fn actions(&self) -> Box<dyn Actions> {
            Box::new(self.clone())
        }
    }

    crate::conformance!(Memory);
}
