//! One distribution of what a handler locked.

use sandbox::Layer;
use serde::{Deserialize, Serialize};

/// One locked distribution, as it is installed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Distribution {
    /// Normalised name (PEP 503).
    pub name: String,
    /// Exact version, as the lock states it.
    pub version: String,
    /// Names its directory in the install cache: content, interpreter and platform included.
    pub wheel: String,
    /// Outermost importable modules that it brings, dotted below namespace packages; longest prefix
    /// wins.
    pub modules: Vec<String>,
}

impl Distribution {
    /// Stands for a lock whose directory alone is known.
    pub(crate) fn whole_lock(packages: &Layer) -> Self {
        let (name, version, modules) = (String::new(), String::new(), Vec::new());
        Self { name, version, wheel: packages.to_string(), modules }
    }

    pub(crate) fn is_whole_lock(&self) -> bool {
        self.name.is_empty()
    }

    /// Name and version, as in `numpy==2.1.0`; the directory of a whole lock.
    pub(crate) fn label(&self) -> String {
        if self.is_whole_lock() {
            self.wheel.clone()
        } else {
            format!("{}=={}", self.name, self.version)
        }
    }

    /// Length in bytes of the longest prefix of `module` that it claims; the distribution of a lock
    /// that claims the most provides the module.
    pub(crate) fn claim(&self, module: &str) -> Option<usize> {
        if self.is_whole_lock() {
            return Some(0);
        }
        self.modules.iter().filter(|outer| within(module, outer)).map(String::len).max()
    }
}

/// Whether `module` is `outer` or lies below it.
fn within(module: &str, outer: &str) -> bool {
    module.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brings(name: &str, modules: &[&str]) -> Distribution {
        Distribution {
            name: name.to_owned(),
            version: "1".to_owned(),
            wheel: format!("{name}-1"),
            modules: modules.iter().map(|module| (*module).to_owned()).collect(),
        }
    }

    #[test]
    fn a_module_belongs_to_whoever_brings_its_longest_prefix() {
        let set = [
            brings("google-auth", &["google.auth", "google.oauth2"]),
            brings("protobuf", &["google.protobuf", "google._upb"]),
            brings("six", &["six"]),
        ];
        let owner = |module| {
            let claims =
                set.iter().enumerate().filter_map(|(at, one)| Some((one.claim(module)?, at)));
            claims.max().map(|(_, at)| at)
        };
        assert_eq!(owner("google.protobuf.message"), Some(1));
        assert_eq!(owner("google.auth"), Some(0));
        assert_eq!(owner("six"), Some(2));
        assert_eq!(owner("sixteen"), None);
        assert_eq!(owner("google"), None);
    }
}
