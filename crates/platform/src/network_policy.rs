//! Which functions may reach something, as the operator has it, and what bounds them.

use std::str::FromStr;

use egress::{Refusal, Rules};
use engine::Handler;
use function::DEFAULT_TENANT;
use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use sandbox::{Destination, Network};
use serde::Serialize;
use thiserror::Error;

use crate::run_name;

/// Names of functions: `report-*` for the default tenant's, or with a tenant, `acme/*`. A star stands for anything but the slash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Pattern(Glob);

/// Why a text is no [`Pattern`].
#[derive(Debug, Error)]
#[error(
    "{0}; write a function's name, in which `*` stands for anything, as in \"report-*\" or \"acme/*\""
)]
pub struct PatternError(globset::Error);

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        // A star is no slash: what names no tenant names no other tenant's functions.
        GlobBuilder::new(text).literal_separator(true).build().map(Self).map_err(PatternError)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0.glob().to_owned()
    }
}

/// Why a function may not run as it asks to.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAllowed {
    /// Its class is not for it.
    #[error(
        "{name} asks for network = \"{class}\", which this worker's operator has not allowed it: have {name:?} added to `{setting}` in the worker's configuration, or set network = \"none\""
    )]
    Class {
        /// Which function.
        name: String,
        /// What it asks for.
        class: &'static str,
        /// Where the operator would allow it.
        setting: &'static str,
    },
    /// The same of a function that `wool run` made, whose name no setting can list: each edit has another.
    #[error(
        "the function asks for network = \"{class}\", which this worker's operator has not allowed to what `wool run` makes: deploy it under a name that `{setting}` in the worker's configuration lists, have {pattern:?} added there, which stands for whatever is run so, or set network = \"none\""
    )]
    ClassOfRun {
        /// What it asks for.
        class: &'static str,
        /// Where the operator would allow it.
        setting: &'static str,
        /// What the operator would have to add.
        pattern: String,
    },
    /// It could never reach what it lists.
    #[error("egress = [\"{destination}\"] cannot be: {refusal}")]
    Destination {
        /// The destination that was refused.
        destination: Destination,
        /// The reason of the refusal.
        refusal: Refusal,
    },
}

/// See the module's own words.
#[derive(Clone, Debug, Default)]
pub struct Networks {
    egress: GlobSet,
    host: GlobSet,
    rules: Rules,
}

impl Networks {
    /// Functions of the patterns `egress` may reach what they list, within `rules`, and those of `host` what the host
    /// reaches.
    #[must_use]
    pub fn new(egress: &[Pattern], host: &[Pattern], rules: Rules) -> Self {
        Self { egress: set(egress), host: set(host), rules }
    }

    /// Whether a function may run as it asks to.
    ///
    /// # Errors
    /// Why not, and who has to do what about it.
    pub fn check(&self, handler: &Handler) -> Result<(), NotAllowed> {
        let (set, setting) = match handler.network {
            Network::None | Network::Loopback => return Ok(()),
            Network::Egress => (&self.egress, "egress"),
            Network::Host => (&self.host, "host_network"),
        };
        let whole = format!("{}/{}", handler.tenant, handler.name);
        let plain = handler.tenant == DEFAULT_TENANT && set.is_match(&handler.name);
        if !plain && !set.is_match(&whole) {
            let own = handler.tenant == DEFAULT_TENANT;
            let class = handler.network.as_str();
            if run_name::is_one(&handler.name) {
                let runs = run_name::PATTERN;
                let pattern =
                    if own { runs.to_owned() } else { format!("{}/{runs}", handler.tenant) };
                return Err(NotAllowed::ClassOfRun { class, setting, pattern });
            }
            let name = if own { handler.name.clone() } else { whole };
            return Err(NotAllowed::Class { name, class, setting });
        }
        for destination in handler.egress.iter() {
            self.rules.judge_wish(destination).map_err(|refusal| NotAllowed::Destination {
                destination: destination.clone(),
                refusal,
            })?;
        }
        Ok(())
    }
}

fn set(patterns: &[Pattern]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for Pattern(glob) in patterns {
        set.add(glob.clone());
    }
    // Each is valid by itself. Too many together allow no function.
    set.build().unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn networks(egress: &[&str], host: &[&str], allow: &[&str]) -> Networks {
        let patterns = |texts: &[&str]| -> Vec<Pattern> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        let rules = Rules { allow, deny: Vec::new(), worker: Some(8470) };
        Networks::new(&patterns(egress), &patterns(host), rules)
    }

    pub(crate) fn handler(tenant: &str, name: &str, network: Network, egress: &[&str]) -> Handler {
        let mut handler: Handler = serde_json::from_value(serde_json::json!({
            "id": "", "name": name, "tenant": tenant, "packages": null, "imports": [], "code": "code/c",
            "python": { "base": "base/b", "guest": "guest/g", "interpreter": "/usr/bin/python3" },
            "module": "m", "function": "f", "convention": "lambda", "binary": false, "environment": {},
            "limits": sandbox::Limits::default(), "network": "none",
            "timeout": { "secs": 1, "nanos": 0 }, "concurrency": 1,
        }))
        .unwrap();
        handler.network = network;
        handler.egress = egress.iter().map(|one| one.parse().unwrap()).collect();
        handler
    }

    #[test]
    fn without_a_word_of_the_operators_nobody_reaches_anything() {
        let none = networks(&[], &[], &[]);
        assert_eq!(none.check(&handler("default", "f", Network::None, &[])), Ok(()));
        for (class, setting) in [(Network::Egress, "`egress`"), (Network::Host, "`host_network`")] {
            let refused = none.check(&handler("default", "f", class, &[])).unwrap_err().to_string();
            assert!(refused.contains(setting) && refused.contains("\"f\""), "{refused}");
        }
    }

    #[test]
    fn what_wool_run_makes_is_allowed_by_a_pattern_and_not_told_to_be_listed() {
        let (one, other) = (format!("run-{}", "0".repeat(48)), format!("run-{}", "1".repeat(48)));
        let runs = networks(&["run-*", "acme/run-*"], &[], &[]);
        for name in [&one, &other] {
            for tenant in ["default", "acme"] {
                assert_eq!(runs.check(&handler(tenant, name, Network::Egress, &[])), Ok(()));
            }
        }
        let refused = |tenant: &str| {
            let run = handler(tenant, &one, Network::Egress, &[]);
            networks(&["fetch"], &[], &[]).check(&run).unwrap_err().to_string()
        };
        for (tenant, pattern) in [("default", "\"run-*\""), ("acme", "\"acme/run-*\"")] {
            let refused = refused(tenant);
            assert!(refused.contains(pattern) && refused.contains("`wool run`"), "{refused}");
            assert!(!refused.contains(&one), "the name of one edit: {refused}");
        }
    }

    #[test]
    fn a_pattern_with_a_tenant_is_for_that_tenant_and_one_without_for_the_operators_own() {
        let some = networks(&["report-*", "acme/*"], &["metrics"], &[]);
        let may = |tenant: &str, name: &str, class| {
            some.check(&handler(tenant, name, class, &[])).is_ok()
        };
        assert!(may("default", "report-daily", Network::Egress));
        assert!(may("acme", "anything", Network::Egress));
        assert!(may("default", "metrics", Network::Host));
        assert!(!may("emca", "report-daily", Network::Egress), "another tenant took the name");
        assert!(!may("report-x", "daily", Network::Egress), "a tenant took a pattern's beginning");
        assert!(!may("default", "report", Network::Egress));
        assert!(!may("default", "report-daily", Network::Host));
        assert!(!may("acme", "metrics", Network::Host));
    }

    #[test]
    fn a_destination_that_can_never_be_reached_is_told_before_any_call() {
        let some = networks(&["*/*"], &[], &["10.1.0.0/16:5432"]);
        let check = |to: &str| some.check(&handler("acme", "f", Network::Egress, &[to]));
        assert_eq!(check("10.1.2.3:5432"), Ok(()));
        assert_eq!(check("api.example.com:443"), Ok(()));
        let refused = check("10.2.0.1:5432").unwrap_err().to_string();
        assert!(refused.contains("egress_allow"), "{refused}");
        let refused = check("169.254.169.254:80").unwrap_err().to_string();
        assert!(refused.contains("metadata"), "{refused}");
    }
}
