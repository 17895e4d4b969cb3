//! Packages that a bundle brings itself, apart from its code.
//!
//! ```text
//!   admit        whole bundle ─► recognised ─► code │ packages     the record has the whole one's digest, and `bundled`
//!   materialise  whole bundle ─► recognised ─► code │ packages     the same: both follow from the files alone
//!                (kept)                         │      └► wheels of the store, a set: /opt/python
//!                                               └► sealed: /var/task
//! ```
//!
//! The kept bundle stays whole, so a version is made again, rolled back to and configured anew as any other, and a
//! deploy with [`VARIABLE`] takes the same files as they are.

use std::collections::BTreeMap;

use bundle::code::{Bundle as Code, CodeError};
use layers::Store;
use packages::bundled::{self, Brought, Reason};

/// A function with this variable set to [`CODE`] has all of its bundle as code.
const VARIABLE: &str = "LAMBSWOOL_BUNDLE";
const CODE: &str = "code";

/// How many distributions are told of.
const TOLD: usize = 5;

/// A bundle of which a part are packages.
#[derive(Debug)]
pub struct Split {
    /// All of its files.
    pub(crate) whole: Code,
    pub(crate) brought: Brought,
}

/// The code of a bundle, and the rest of it.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) code: Code,
    /// None: all of it is code.
    pub(crate) split: Option<Split>,
    /// Which distributions stay code, and why: one sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Whether a function's environment lets packages of its bundle be packages.
pub(crate) fn is_wanted(environment: &BTreeMap<String, String>) -> bool {
    environment.get(VARIABLE).is_none_or(|value| value != CODE)
}

/// The top-level name of a handler's module.
pub(crate) fn top_of(handler: &str) -> &str {
    handler.split(['.', '/']).next().unwrap_or_default()
}

impl Parts {
    /// All of it is code.
    pub(crate) fn whole(code: Code) -> Self {
        Self { code, split: None, warnings: Vec::new() }
    }

    /// Tells packages from code. `own` is the top-level name of the handler's module.
    pub(crate) fn of(store: &Store, whole: Code, own: &str) -> Result<Self, CodeError> {
        let brought = bundled::recognise(whole.path(), own)?;
        let warnings = told(&brought.refused);
        if brought.distributions.is_empty() {
            return Ok(Self { warnings, ..Self::whole(whole) });
        }
        let code = whole.without(store, &brought.leaving())?;
        Ok(Self { code, split: Some(Split { whole, brought }), warnings })
    }
}

impl Split {
    /// Its packages, for a deploy's progress.
    pub(crate) fn told(&self) -> String {
        let all = &self.brought.distributions;
        let named = all.iter().take(TOLD).map(|one| format!("{} {}", one.name, one.version));
        let named = named.collect::<Vec<_>>().join(", ");
        format!("{named}{} of the bundle become packages", more(all.len()))
    }
}

/// Says that nothing of a bundle becomes packages after all.
pub(crate) fn all_stays(error: &dyn std::error::Error) -> String {
    format!(
        "all packages in the bundle stay code, and are imported with each start: {}",
        sandbox::chain(error)
    )
}

fn told(refused: &[(String, Reason)]) -> Vec<String> {
    let stays = |(info, reason): &(String, Reason)| {
        let named = info.strip_suffix(".dist-info").unwrap_or(info);
        format!("{named} in the bundle stays code, and is imported with each start: {reason}")
    };
    // The function's own distribution is where it belongs.
    let refused = refused.iter().filter(|(_, reason)| !matches!(reason, Reason::Handler(_)));
    let mut warnings: Vec<String> = refused.map(stays).collect();
    let count = warnings.len();
    warnings.truncate(TOLD);
    if count > TOLD {
        warnings.push(format!("{} more distributions in the bundle stay code", count - TOLD));
    }
    warnings
}

fn more(count: usize) -> String {
    if count > TOLD { format!(" and {} more", count - TOLD) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_value_code_keeps_packages_of_a_bundle_as_code() {
        let with = |value: &str| BTreeMap::from([(VARIABLE.to_owned(), value.to_owned())]);
        assert!(
            is_wanted(&BTreeMap::new()) && is_wanted(&with("")) && is_wanted(&with("packages"))
        );
        assert!(!is_wanted(&with("code")));
    }

    #[test]
    fn a_few_distributions_that_stay_code_are_told_with_their_reasons() {
        let refused = |count: usize| {
            let one = |n| (format!("p{n}-1.dist-info"), Reason::Lacks("RECORD"));
            (0..count).map(one).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&refused(1)),
            ["p0-1 in the bundle stays code, and is imported with each start: it has no RECORD"]
        );
        let many = told(&refused(TOLD + 2));
        assert_eq!(many.len(), TOLD + 1);
        assert_eq!(many[TOLD], "2 more distributions in the bundle stay code");
        let own = ("app-1.dist-info".to_owned(), Reason::Handler("app".to_owned()));
        assert_eq!(told(&[own]), [""; 0]);
    }
}
