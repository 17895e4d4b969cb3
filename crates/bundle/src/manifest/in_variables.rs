//! Settings of `[tool.lambswool]` that a declared version has as environment variables: `LAMBSWOOL_ISOLATION=microvm`.
//!
//! AWS Lambda's API has no member for them, and each of its tools can set a variable. Only what that API cannot say has one.

use std::collections::BTreeMap;

use sandbox::{Cpu, Destination, Kind, Network, Reset};
use toml::{Table, Value};

use super::{ManifestError, Overrides, table};

/// What each such name begins with.
const PREFIX: &str = "LAMBSWOOL_";

/// The settings that can stand there, and how their texts are read.
const SETTINGS: [(&str, Form); 6] = [
    ("cpu", Form::Number),
    ("cpu_weight", Form::Number),
    ("egress", Form::List),
    ("fallback", Form::Text),
    ("isolation", Form::Text),
    ("reset", Form::Text),
];

/// Names that others read: whether the packages of a bundle are recognised.
const ELSEWHERE: [&str; 1] = ["BUNDLE"];

#[derive(Clone, Copy, Debug)]
enum Form {
    Text,
    Number,
    /// Texts with spaces or commas between them.
    List,
}

/// The settings, with the defaults of those that no variable names.
#[derive(Debug)]
pub(super) struct InVariables {
    pub(super) kind: Kind,
    pub(super) reset: Reset,
    pub(super) network: Network,
    pub(super) egress: Vec<Destination>,
    pub(super) cpu: Cpu,
}

impl InVariables {
    /// Reads them from a function's variables.
    ///
    /// # Errors
    /// When a name or a value is none that can be.
    pub(super) fn read(environment: &BTreeMap<String, String>) -> Result<Self, ManifestError> {
        let mut written = Table::new();
        for (name, text) in environment {
            let Some(rest) = name.strip_prefix(PREFIX) else { continue };
            if ELSEWHERE.contains(&rest) {
                continue;
            }
            let known = SETTINGS.iter().find(|(key, _)| key.to_ascii_uppercase() == rest);
            let (key, form) = known.ok_or_else(|| unknown(name))?;
            written.insert((*key).to_owned(), form.value(text));
        }
        if written.contains_key("egress") {
            written.insert("network".to_owned(), Value::String("egress".to_owned()));
        }
        let chosen = table::read(&written, "Environment", Overrides::default()).map_err(renamed)?;
        Ok(Self {
            kind: chosen.kind,
            reset: chosen.reset,
            network: chosen.network,
            egress: chosen.egress,
            cpu: chosen.limits.cpu,
        })
    }
}

impl Form {
    fn value(self, text: &str) -> Value {
        let words = || text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty());
        match self {
            Self::List => {
                Value::Array(words().map(|word| Value::String(word.to_owned())).collect())
            }
            Self::Number if text.parse::<i64>().is_ok() => {
                Value::Integer(text.parse().unwrap_or_default())
            }
            Self::Number if text.parse::<f64>().is_ok() => {
                Value::Float(text.parse().unwrap_or_default())
            }
            Self::Text | Self::Number => Value::String(text.to_owned()),
        }
    }
}

/// The error, with the name that the variable has.
fn renamed(error: ManifestError) -> ManifestError {
    match error {
        ManifestError::Value { file, key, value, reason } => {
            let key = format!("{PREFIX}{}", key.to_ascii_uppercase());
            ManifestError::Value { file, key, value, reason }
        }
        other => other,
    }
}

fn unknown(name: &str) -> ManifestError {
    let names = SETTINGS.iter().map(|(key, _)| key.to_ascii_uppercase());
    let names = names.chain(ELSEWHERE.iter().map(|&name| name.to_owned()));
    let names: Vec<String> = names.map(|name| format!("{PREFIX}{name}")).collect();
    ManifestError::Declared {
        setting: "environment",
        reason: format!(
            "{name} is no setting of Lambswool; those that stand here are {}",
            names.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<InVariables, ManifestError> {
        let all = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        InVariables::read(&all.collect())
    }

    #[test]
    fn variables_say_what_lambdas_api_cannot() {
        let none = read(&[("COLOUR", "blue"), ("LAMBSWOOL_BUNDLE", "code")]).unwrap();
        assert_eq!((none.kind, none.reset), (Kind::Container, Reset::Never));
        assert_eq!((none.network, none.egress.len()), (Network::None, 0));
        let machine = [("LAMBSWOOL_ISOLATION", "microvm"), ("LAMBSWOOL_RESET", "always")];
        let machine = read(&machine).unwrap();
        assert_eq!((machine.kind, machine.reset), (Kind::Microvm, Reset::Always));
        let either = [("LAMBSWOOL_ISOLATION", "microvm"), ("LAMBSWOOL_FALLBACK", "container")];
        assert_eq!(read(&either).unwrap().kind, Kind::MicrovmOrContainer);
        let reaching = read(&[("LAMBSWOOL_EGRESS", "a.example.com:443, *.example.org:443")]);
        let reaching = reaching.unwrap();
        assert_eq!((reaching.network, reaching.egress.len()), (Network::Egress, 2));
        let bound = read(&[("LAMBSWOOL_CPU", "0.5"), ("LAMBSWOOL_CPU_WEIGHT", "50")]).unwrap();
        assert!(bound.cpu.quota.is_some() && bound.cpu.weight == Some(50));
    }

    #[test]
    fn what_cannot_be_is_refused_by_the_name_of_its_variable() {
        for (name, value) in [
            ("LAMBSWOOL_ISOLATION", "vm"),
            ("LAMBSWOOL_ISOLATION", ""),
            ("LAMBSWOOL_RESET", "always"),
            ("LAMBSWOOL_FALLBACK", "container"),
            ("LAMBSWOOL_EGRESS", ""),
            ("LAMBSWOOL_EGRESS", "example.com"),
            ("LAMBSWOOL_CPU", "many"),
            ("LAMBSWOOL_CPU", "nan"),
            ("LAMBSWOOL_CPU", "-1"),
            ("LAMBSWOOL_CPU_WEIGHT", "0"),
            ("LAMBSWOOL_CPU_WEIGHT", "0.5"),
            ("LAMBSWOOL_ISOLATIO", "microvm"),
            ("LAMBSWOOL_isolation", "microvm"),
            ("LAMBSWOOL_MEMORY", "1GB"),
            ("LAMBSWOOL_", ""),
        ] {
            let refused = read(&[(name, value)]).unwrap_err().to_string();
            assert!(refused.contains(name), "{name}={value}: {refused}");
        }
    }
}
