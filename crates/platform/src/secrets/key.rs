//! The key that seals secrets, and the file that it is in.
//!
//! The first of: the file that `secret_key_file` names; `lambswool-secret-key` in systemd's `$CREDENTIALS_DIRECTORY`;
//! `STATE/secret.key`, which is made when it is not there.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;
use zeroize::Zeroizing;

/// The credential's name.
const CREDENTIAL: &str = "lambswool-secret-key";

const BYTES: usize = 32;

/// 256 random bits, overwritten when they are dropped.
pub struct SecretKey(pub(super) Zeroizing<[u8; BYTES]>);

/// Why there is no key.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the key of secrets from {path}")]
    Unreadable {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It cannot be made.
    #[error("cannot make the key of secrets in {path}")]
    Unwritable {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// It is gone, and what it sealed is there.
    #[error(
        "{0} is gone, the key of the secrets that are there: restore it from a backup, or name its place in secret_key_file; to give up the secrets, remove secrets.sqlite as well"
    )]
    Lost(PathBuf),
    /// Other users can read it.
    #[error("other users of this machine may read the key of secrets {0}: chmod 600 it")]
    Open(PathBuf),
    /// It holds something else.
    #[error(
        "{0} holds no key of secrets: it takes 64 hex digits, as `openssl rand -hex 32` writes them"
    )]
    Strange(PathBuf),
}

impl KeyError {
    fn is_absence(&self) -> bool {
        matches!(self, Self::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

impl SecretKey {
    /// Finds the key; makes `own` when no other place was named and nothing is `sealed` yet.
    ///
    /// # Errors
    /// When it cannot be read or made, it is lost, or others can read it.
    pub fn find(named: Option<&Path>, own: &Path, sealed: bool) -> Result<Self, KeyError> {
        let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        Self::find_among(named, credentials.as_deref(), own, sealed)
    }

    fn find_among(
        named: Option<&Path>,
        credentials: Option<&Path>,
        own: &Path,
        sealed: bool,
    ) -> Result<Self, KeyError> {
        if let Some(path) = named {
            return Self::read_private(path);
        }
        if let Some(path) = credentials.map(|dir| dir.join(CREDENTIAL)) {
            // systemd sees to who can read it. Where this account cannot, a key of its own would open nothing that is sealed.
            match Self::read(&path) {
                Err(error) if error.is_absence() => {}
                found => return found,
            }
        }
        match Self::read_private(own) {
            Err(error) if error.is_absence() && sealed => Err(KeyError::Lost(own.to_owned())),
            Err(error) if error.is_absence() => Self::make(own),
            found => found,
        }
    }

    fn read_private(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        let mode = fs::metadata(path).map_err(unreadable)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(KeyError::Open(path.to_owned()));
        }
        Self::read(path)
    }

    fn read(path: &Path) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        let text = Zeroizing::new(fs::read(path).map_err(unreadable)?);
        let mut key = Self(Zeroizing::new([0; BYTES]));
        let digits = text.trim_ascii();
        if digits.len() != 2 * BYTES {
            return Err(KeyError::Strange(path.to_owned()));
        }
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |at: usize| char::from(pair[at]).to_digit(16);
            let (Some(high), Some(low)) = (digit(0), digit(1)) else {
                return Err(KeyError::Strange(path.to_owned()));
            };
            *byte = u8::try_from(high << 4 | low).unwrap_or_default();
        }
        Ok(key)
    }

    fn make(path: &Path) -> Result<Self, KeyError> {
        let unwritable = |source| KeyError::Unwritable { path: path.to_owned(), source };
        let mut key = Self(Zeroizing::new([0; BYTES]));
        crate::random::fill(&mut *key.0).map_err(unwritable)?;
        let mut text = Zeroizing::new(String::with_capacity(2 * BYTES + 1));
        for byte in key.0.iter() {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text.push('\n');
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
        // The name as well: secrets that are sealed from now on are lost with it.
        let dir = path.parent().unwrap_or(Path::new("/"));
        sys::files::sync_names(dir).map_err(unwritable)?;
        Ok(key)
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("secret.key");
        let lost = SecretKey::find(None, &own, true);
        assert!(matches!(lost, Err(KeyError::Lost(_))), "another key opens nothing");
        assert!(!own.exists());
        let first = SecretKey::find(None, &own, false).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(*SecretKey::find(None, &own, true).unwrap().0, *first.0);
        assert_eq!(*SecretKey::find(Some(&own), Path::new("/nowhere"), false).unwrap().0, *first.0);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(SecretKey::find(None, &own, false), Err(KeyError::Open(_))));
    }

    #[test]
    fn a_credential_comes_before_the_workers_own_key_and_one_that_cannot_be_read_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let (given, own) = (dir.path().join("given"), dir.path().join("secret.key"));
        fs::create_dir(&given).unwrap();
        let credential = given.join(CREDENTIAL);
        // Unreadable for root as well, whom a mode does not keep out.
        std::os::unix::fs::symlink(&credential, &credential).unwrap();
        let refused = SecretKey::find_among(None, Some(&given), &own, false);
        assert!(matches!(refused, Err(KeyError::Unreadable { .. })), "{refused:?}");
        assert!(!own.exists());
        fs::remove_file(&credential).unwrap();
        SecretKey::find_among(None, Some(&given), &own, false).unwrap();
        assert!(own.exists());
        fs::write(&credential, "07".repeat(BYTES)).unwrap();
        let found = SecretKey::find_among(None, Some(&given), &own, false).unwrap();
        assert_eq!(*found.0, [7; BYTES]);
    }

    #[test]
    fn a_named_key_is_never_made_and_a_strange_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let named = dir.path().join("key");
        let missing = SecretKey::find(Some(&named), &dir.path().join("own"), false);
        assert!(matches!(missing, Err(KeyError::Unreadable { .. })));
        for text in ["", "00", &"0g".repeat(32), &"00".repeat(33)] {
            fs::write(&named, text).unwrap();
            fs::set_permissions(&named, fs::Permissions::from_mode(0o600)).unwrap();
            let refused =
                SecretKey::find(Some(&named), &dir.path().join("own"), false).unwrap_err();
            assert!(refused.to_string().contains("openssl rand"), "{refused}");
        }
        assert!(!dir.path().join("own").exists());
    }
}
