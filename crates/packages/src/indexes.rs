//! Which indexes functions may name, which files they may fetch, and to whom the worker's credentials go.
//!
//! Indexes are asked from the host's network, with credentials from the worker's environment. A function that could name any
//! address would reach services that only the host reaches, and one that could give any address an index's name would be
//! sent that index's password. So the operator says which there are:
//!
//! | where | functions that may name it | asked for every function |
//! | --- | --- | --- |
//! | `UV_DEFAULT_INDEX`, `UV_INDEX_URL` | all | yes |
//! | without these, the public index | none: it is asked without being named | yes |
//! | `UV_INDEX`, `UV_EXTRA_INDEX_URL` | all | yes |
//! | the setting `indexes` | all | no |
//!
//! `UV_INDEX_<NAME>_USERNAME` and `_PASSWORD` go to the index to which one of these gives that name. Those of a name that
//! none of them gives, or that two of them give, go nowhere. Addresses are compared as text: whatever two programs could
//! read as different addresses is refused.

mod index;

use std::collections::BTreeMap;
use std::ffi::OsString;

use thiserror::Error;

use crate::address::{goes_nowhere_else, trimmed};
use crate::requirements;
use crate::sources::Sources;
use index::checked;
pub use index::{Index, IndexError};

/// A function names what its operator has not allowed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum NotAllowed {
    /// An index that the operator does not allow.
    #[error(
        "functions of this worker may not name the index {url}: leave it out if it is the usual one, which is asked anyway; or have the worker's operator add it to the setting `indexes` ({allowed})"
    )]
    Index {
        /// As the function has it.
        url: String,
        /// What it could name, as a clause.
        allowed: String,
    },
    /// An index by another's name.
    #[error(
        "the index {url} is called {name:?}, and the worker's operator calls another one so: choose another name"
    )]
    Name {
        /// As the function has it.
        url: String,
        /// The name that was given.
        name: String,
    },
    /// A file at an address that the operator does not allow.
    #[error(
        "{package}: functions of this worker may not fetch {url}: take the package from an index, put the code into the function's folder, or have the worker's operator add the address, or the beginning of it, to the setting `package_urls`"
    )]
    File {
        /// The package's normalised name.
        package: String,
        /// Where it is to come from.
        url: String,
    },
}

/// What functions may name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexes {
    known: Vec<Index>,
    /// Beginnings of the addresses of files.
    files: Vec<String>,
}

impl Indexes {
    /// Those that a worker's environment names, and these. `files` are the beginnings of addresses of which a requirement may name a
    /// file.
    ///
    /// # Errors
    /// When an address of `files` is none.
    pub fn new(
        configured: Vec<Index>,
        files: Vec<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, IndexError> {
        let said = |names: [&str; 2]| names.into_iter().find_map(&variable).unwrap_or_default();
        let default = said(["UV_DEFAULT_INDEX", "UV_INDEX_URL"]);
        let of_environment = format!(
            "{default} {} {}",
            variable("UV_INDEX").unwrap_or_default(),
            variable("UV_EXTRA_INDEX_URL").unwrap_or_default()
        );
        let mut known: Vec<Index> = of_environment.split_whitespace().map(Index::lenient).collect();
        let mut places = Vec::new();
        known.extend(configured);
        for place in files {
            let place = checked(&place)?;
            places.push(if place.ends_with('/') { place.to_owned() } else { format!("{place}/") });
        }
        Ok(Self { known, files: places })
    }

    /// Those of this process's environment.
    pub(crate) fn of_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        // Only what is configured can be wrong.
        Self::new(Vec::new(), Vec::new(), variable)
            .unwrap_or(Self { known: Vec::new(), files: Vec::new() })
    }

    /// Lets requirements and what is said of their sources pass, if the operator allows all that they name.
    ///
    /// # Errors
    /// With the first address that is not allowed.
    pub(crate) fn admit(
        &self,
        requirements: &[String],
        sources: &Sources,
    ) -> Result<(), NotAllowed> {
        for (name, url) in sources.addresses() {
            self.admit_index(name, url)?;
        }
        let limits = sources.requirements();
        let mut all = requirements.iter().map(String::as_str).chain(limits);
        all.try_for_each(|requirement| self.admit_file(requirement))
    }

    fn admit_index(&self, name: Option<&str>, url: &str) -> Result<(), NotAllowed> {
        let (url, wanted) = (url.to_owned(), trimmed(url));
        if !self.known.iter().any(|index| index.url == wanted) {
            let known = self.known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let none = "there is none so far".to_owned();
            let allowed = if known.is_empty() { none } else { format!("there are {known}") };
            return Err(NotAllowed::Index { url, allowed });
        }
        let Some(name) = name else { return Ok(()) };
        let taken = |index: &&Index| {
            let same = index.name.as_deref().is_some_and(|own| variable(own) == variable(name));
            same && index.url != wanted
        };
        match self.known.iter().find(taken) {
            Some(_) => Err(NotAllowed::Name { url, name: name.to_owned() }),
            None => Ok(()),
        }
    }

    fn admit_file(&self, requirement: &str) -> Result<(), NotAllowed> {
        let Some(url) = requirements::address(requirement) else { return Ok(()) };
        let allowed = |place: &String| url.starts_with(place.as_str()) && goes_nowhere_else(url);
        if self.files.iter().any(allowed) {
            return Ok(());
        }
        let package = requirements::name(requirement).unwrap_or_default();
        Err(NotAllowed::File { package, url: url.to_owned() })
    }

    /// The indexes by whose names credentials may be looked up, with their addresses.
    pub(crate) fn named(&self) -> Vec<(&str, &str)> {
        let mut by_variable: BTreeMap<String, Vec<(&str, &str)>> = BTreeMap::new();
        for index in &self.known {
            if let Some(name) = &index.name {
                let all = by_variable.entry(variable(name)).or_default();
                if !all.iter().any(|(_, url)| *url == index.url) {
                    all.push((name, &index.url));
                }
            }
        }
        by_variable.into_values().filter(|all| all.len() == 1).flatten().collect()
    }

    /// Of these variables, those that hold credentials for no index that the operator has named.
    pub(crate) fn homeless(&self, variables: impl Iterator<Item = OsString>) -> Vec<OsString> {
        let names: Vec<String> = self.named().iter().map(|(name, _)| variable(name)).collect();
        let homeless = |of: &OsString| {
            let text = of.to_string_lossy();
            let name = text.strip_prefix("UV_INDEX_").and_then(|rest| {
                rest.strip_suffix("_USERNAME").or_else(|| rest.strip_suffix("_PASSWORD"))
            });
            name.is_some_and(|name| !names.iter().any(|known| known == name))
        };
        variables.filter(homeless).collect()
    }
}

/// An index's name as uv has it in the names of variables.
fn variable(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexes(configured: &[&str], files: &[&str], variables: &[(&str, &str)]) -> Indexes {
        let configured = configured.iter().map(|text| text.parse().unwrap()).collect();
        let files = files.iter().map(|text| (*text).to_owned()).collect();
        let variable =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Indexes::new(configured, files, variable).unwrap()
    }

    fn admits(indexes: &Indexes, uv: &str) -> Result<(), NotAllowed> {
        indexes.admit(&[], &Sources::read(&uv.parse().unwrap(), "pyproject.toml").unwrap())
    }

    #[test]
    fn a_function_names_only_indexes_that_its_operator_allows() {
        let mirror = ("UV_DEFAULT_INDEX", "https://mirror.example/simple");
        let usual = indexes(&[], &[], &[mirror]);
        admits(&usual, "index-url = \"https://mirror.example/simple/\"").unwrap();
        admits(&usual, "[[index]]\nname = \"p\"\nurl = \"https://mirror.example/simple\"").unwrap();
        for inside in [
            "index-url = \"http://169.254.169.254/latest\"",
            "extra-index-url = [\"https://mirror.example/simple\", \"http://10.0.0.1/simple\"]",
            "[[index]]\nname = \"corp\"\nurl = \"https://mirror.example.net/simple\"",
            "[[index]]\nurl = \"https://mirror.example/simple/../x\"",
        ] {
            let refused = admits(&usual, inside).unwrap_err();
            assert!(matches!(refused, NotAllowed::Index { .. }), "{inside}: {refused}");
            assert!(refused.to_string().contains("the setting `indexes`"), "{refused}");
        }
        let corp = "[[index]]\nname = \"corp\"\nurl = \"https://corp.example/simple\"";
        admits(&indexes(&["corp=https://corp.example/simple/"], &[], &[]), corp).unwrap();
        admits(&indexes(&["https://corp.example/simple"], &[], &[]), corp).unwrap();
        let own = ("UV_INDEX", "other=https://x.example/s https://me:hunter2@corp.example/simple");
        let own = indexes(&[], &[], &[own]);
        admits(&own, corp).unwrap();
        let refused = admits(&own, "index-url = \"https://y.example\"").unwrap_err();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
        // Where the operator names no index, a function can name none.
        let refused = admits(&indexes(&[], &[], &[]), corp).unwrap_err();
        assert!(refused.to_string().contains("there is none so far"), "{refused}");
    }

    #[test]
    fn an_index_by_the_name_of_another_is_refused_and_so_is_sent_no_password() {
        let all =
            indexes(&["my-corp=https://corp.example/simple", "https://b.example/s"], &[], &[]);
        let named =
            |name: &str, url: &str| format!("[[index]]\nname = \"{name}\"\nurl = \"{url}\"");
        admits(&all, &named("my-corp", "https://corp.example/simple")).unwrap();
        admits(&all, &named("b", "https://b.example/s")).unwrap();
        // uv looks for the password of each of these under one name.
        for name in ["my-corp", "my_corp", "MY.corp"] {
            let refused = admits(&all, &named(name, "https://b.example/s")).unwrap_err();
            assert!(matches!(refused, NotAllowed::Name { .. }), "{name}: {refused}");
        }
    }

    #[test]
    fn credentials_of_a_name_that_no_index_has_are_kept_from_the_installer() {
        let known =
            ["my-corp=https://a.example/s", "two=https://a.example", "Two=https://b.example"];
        let all = indexes(&known, &[], &[("UV_INDEX", "env=https://c.example/s")]);
        assert_eq!(
            all.named(),
            [("env", "https://c.example/s"), ("my-corp", "https://a.example/s")]
        );
        let variables = [
            "UV_INDEX_MY_CORP_PASSWORD",
            "UV_INDEX_ENV_USERNAME",
            "UV_INDEX_TWO_PASSWORD",
            "UV_INDEX_EVIL_USERNAME",
            "UV_INDEX_STRATEGY",
            "UV_INDEX",
        ];
        let homeless = all.homeless(variables.into_iter().map(OsString::from));
        assert_eq!(homeless, ["UV_INDEX_TWO_PASSWORD", "UV_INDEX_EVIL_USERNAME"]);
    }

    #[test]
    fn a_file_is_fetched_only_from_below_a_place_that_the_operator_allows() {
        let all = indexes(&[], &["https://wheels.example/ok"], &[]);
        let admit = |text: &str| all.admit(&[text.to_owned()], &Sources::default());
        admit("x @ https://wheels.example/ok/x-1.whl#sha256=00 ; python_version > '3'").unwrap();
        admit("x==1").unwrap();
        for inside in [
            "x @ https://wheels.example/okay/x-1.whl",
            "x @ https://wheels.example/ok/../x-1.whl",
            "x @ https://wheels.example/ok/%2E%2e/x-1.whl",
            "x @ https://wheels.example:8443/ok/x-1.whl",
            "x @ https://metadata.internal/x-1.whl",
        ] {
            let refused = admit(inside).unwrap_err();
            assert!(refused.to_string().contains("package_urls"), "{inside}: {refused}");
        }
        let limit = "override-dependencies = [\"x @ https://metadata.internal/x-1.whl\"]";
        assert!(matches!(admits(&all, limit), Err(NotAllowed::File { .. })));
    }
}
