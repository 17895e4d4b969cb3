//! Secrets: told to a function when it is loaded, and to no other.

use std::collections::BTreeMap;
use std::fmt::Debug;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::handler::Handler;

/// Variables of a handler's environment whose values are secret. They are overwritten when they are
/// dropped.
pub type SecretEnvironment = BTreeMap<String, Zeroizing<String>>;

/// The secrets of a function cannot be read; says why, and nothing of them.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{0}")]
pub struct SecretsUnreadable(pub String);

/// Knows the secrets of functions.
///
/// An instance has those that were there when it was loaded. Who changes one calls
/// [`Engine::renew`](crate::Engine::renew) afterwards: secrets are read when an instance has its
/// place already, so none that was loaded before is kept.
pub trait SecretStore: Send + Sync + Debug {
    /// Those of a handler's function. On the path of calls that make an instance: it must not wait.
    ///
    /// # Errors
    /// When they cannot be read: the handler is not loaded without them.
    fn read(&self, handler: &Handler) -> Result<SecretEnvironment, SecretsUnreadable>;

    /// Their names, whether or not they can be read. Asked at every start: it must not wait.
    fn names(&self, handler: &Handler) -> Vec<String>;
}

/// A store without secrets.
#[derive(Clone, Copy, Debug)]
pub struct NoSecrets;

impl SecretStore for NoSecrets {
    fn read(&self, _: &Handler) -> Result<SecretEnvironment, SecretsUnreadable> {
        Ok(SecretEnvironment::new())
    }

    fn names(&self, _: &Handler) -> Vec<String> {
        Vec::new()
    }
}
