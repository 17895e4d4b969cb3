//! Settings: a TOML file, then `WOOL_*` variables, then flags; the later wins. Unknown keys are errors.
//!
//! The file is `--config FILE`, else the first of `$XDG_CONFIG_HOME/lambswool/config.toml` and
//! `/etc/lambswool/config.toml` that exists. Every key `k` has a variable `WOOL_K` (`log_bytes` → `WOOL_LOG_BYTES`).

mod settings;

use std::path::{Path, PathBuf};

use container::Isolation;
use egress::MOST_RULES;
use engine::ZygotePolicy;
use layers::indexes::IndexError;
use thiserror::Error;
use toml::{Table, Value};

use crate::access::{Demand, Unprotected};
pub use settings::{BuildFromSource, Config};

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{path} is no valid TOML: {reason}")]
    Syntax {
        /// Which file.
        path: PathBuf,
        /// Where and what.
        reason: String,
    },
    /// A key is unknown or a value does not fit.
    #[error("a setting does not fit ({sources}): {reason}")]
    Value {
        /// Where settings were read from.
        sources: String,
        /// What does not fit.
        reason: String,
    },
    /// The address is reachable from other machines, and nothing protects who uses it there.
    #[error("{0}")]
    Unprotected(Unprotected),
    /// One of the two is missing.
    #[error("TLS takes a certificate and its key: name both files, tls_certificate and tls_key")]
    HalfOfTls,
    /// Zygotes are asked for where nothing can be forked.
    #[error(
        "nothing can be forked in isolation \"{0}\", whose sandboxes have a mount namespace of their own: leave `zygotes` out, or choose an isolation without own=mnt"
    )]
    NothingForks(Isolation),
    /// A place of packages is none.
    #[error("package_urls: {0}")]
    Packages(#[source] IndexError),
    /// The proxy would be told of more than it takes.
    #[error(
        "{setting} has {entries} entries and may have {}: name whole networks in place of their addresses",
        MOST_RULES
    )]
    TooManyRules {
        /// Which of the two lists.
        setting: &'static str,
        /// How many there are.
        entries: usize,
    },
    /// Only the zygotes of a tree are asked for, and no tree is given.
    #[error("zygotes = \"static\" makes those of a given tree: name its file with zygote_seed")]
    NoSeed,
}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--listen`
    pub listen: Option<String>,
    /// `--state`
    pub state: Option<PathBuf>,
    /// `--python`
    pub python: Option<String>,
    /// `--user`
    pub user: Option<String>,
    /// `--strict`
    pub strict: bool,
}

impl Config {
    /// Reads the settings of this process.
    ///
    /// # Errors
    /// When a file, a variable or a flag does not fit.
    pub fn read(flags: &Flags) -> Result<Self, ConfigError> {
        let path = Self::file(flags);
        let file = match &path {
            Some(path) => Some((path.as_path(), read_file(path)?)),
            None => None,
        };
        Self::combine(file, |name| std::env::var(name).ok(), flags)
    }

    /// The file that settings are read from, if there is one.
    #[must_use]
    pub fn file(flags: &Flags) -> Option<PathBuf> {
        flags.config.clone().or_else(|| places().into_iter().find(|path| path.is_file()))
    }

    /// Puts file, variables and flags together.
    ///
    /// # Errors
    /// When one of them does not fit.
    pub fn combine(
        file: Option<(&Path, String)>,
        variable: impl Fn(&str) -> Option<String>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let mut sources = Vec::new();
        let mut table = Table::new();
        if let Some((path, text)) = file {
            table = text.parse().map_err(|e: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                reason: e.to_string(),
            })?;
            sources.push(path.display().to_string());
        }
        for key in keys() {
            let name = format!("WOOL_{}", key.to_uppercase());
            if let Some(text) = variable(&name).filter(|text| !text.is_empty()) {
                table.insert(key, scalar(&text));
                sources.push(name);
            }
        }
        let said = [
            ("listen", flags.listen.clone()),
            ("state", flags.state.as_ref().map(|path| path.display().to_string())),
            ("python", flags.python.clone()),
            ("user", flags.user.clone()),
        ];
        for (key, text) in said {
            if let Some(text) = text {
                table.insert(key.to_owned(), Value::String(text));
                sources.push(format!("--{key}"));
            }
        }
        if flags.strict {
            table.insert("strict".to_owned(), Value::Boolean(true));
            sources.push("--strict".to_owned());
        }
        let config: Self = table.try_into().map_err(|e: toml::de::Error| ConfigError::Value {
            sources: sources.join(", "),
            reason: e.message().to_owned(),
        })?;
        if config.tls_certificate.is_some() != config.tls_key.is_some() {
            return Err(ConfigError::HalfOfTls);
        }
        // Whether there is a token is seen when the worker starts; without TLS it takes one in any case.
        let tls = config.tls_certificate.is_some();
        let asks = tls && config.tokens != Demand::Off;
        Unprotected::check(config.listen, tls, asks).map_err(ConfigError::Unprotected)?;
        if !config.isolation.forks() && config.zygotes() != ZygotePolicy::None {
            return Err(ConfigError::NothingForks(config.isolation));
        }
        if config.zygotes() == ZygotePolicy::Static && config.zygote_seed.is_none() {
            return Err(ConfigError::NoSeed);
        }
        config.indexes().map_err(ConfigError::Packages)?;
        let lists = [("egress_allow", &config.egress_allow), ("egress_deny", &config.egress_deny)];
        for (setting, list) in lists {
            let entries = list.0.len();
            if entries > MOST_RULES {
                return Err(ConfigError::TooManyRules { setting, entries });
            }
        }
        Ok(config)
    }
}

/// Every key that a configuration may hold.
fn keys() -> Vec<String> {
    // A key whose default is "none" is missing from the table that the defaults make.
    let optional = [
        "tls_certificate",
        "tls_key",
        "admin_group",
        "secret_key_file",
        "user",
        "python",
        "run_bodies",
        "deploy_bodies",
        "connections",
        "memory",
        "handler_cache_bytes",
        "zygote_bytes",
        "zygotes",
        "zygote_seed",
        "build_memory",
        "sandboxes",
        "creations",
        "cpu_most",
        "cpu",
    ];
    let mut keys: Vec<String> =
        Table::try_from(Config::default()).unwrap_or_default().keys().cloned().collect();
    keys.extend(optional.map(str::to_owned));
    keys
}

/// A variable's text as TOML would have it: `true` and `10` are no strings, all else is.
fn scalar(text: &str) -> Value {
    match (text.parse::<bool>(), text.parse::<i64>()) {
        (Ok(flag), _) => Value::Boolean(flag),
        (_, Ok(number)) => Value::Integer(number),
        _ => Value::String(text.to_owned()),
    }
}

fn places() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    user.into_iter()
        .chain([PathBuf::from("/etc")])
        .map(|dir| dir.join("lambswool/config.toml"))
        .collect()
}

fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quantity::{Bytes, Span};

    fn combine(
        file: &str,
        variables: &[(&str, &str)],
        flags: &Flags,
    ) -> Result<Config, ConfigError> {
        let variable =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Config::combine(Some((Path::new("c.toml"), file.to_owned())), variable, flags)
    }

    #[test]
    fn a_flag_beats_a_variable_and_a_variable_beats_the_file() {
        let file = "listen = '127.0.0.1:1'\nqueue = 5\nidle = 30\nrun_body = '1MiB'";
        let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
        let variables =
            [("WOOL_LISTEN", "127.0.0.1:2"), ("WOOL_QUEUE", "7"), ("WOOL_ZYGOTES", "none")];
        let config = combine(file, &variables, &flags).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.queue, 7);
        assert_eq!(config.zygotes(), ZygotePolicy::None);
        assert_eq!(config.idle, Span(Duration::from_secs(30)));
        assert_eq!(config.run_body, Bytes(1 << 20));
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_the_known_ones() {
        let refused =
            combine("lisen = '127.0.0.1:1'", &[], &Flags::default()).unwrap_err().to_string();
        assert!(refused.contains("lisen") && refused.contains("listen"), "{refused}");
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused() {
        let refused = combine("listen = '0.0.0.0:8470'", &[], &Flags::default()).unwrap_err();
        assert!(matches!(refused, ConfigError::Unprotected(_)), "{refused}");
        assert!(combine("listen = '[::1]:0'", &[], &Flags::default()).is_ok());
        let tls = "listen = '0.0.0.0:8470'\ntls_certificate = 'c.pem'\ntls_key = 'k.pem'";
        assert!(combine(tls, &[], &Flags::default()).is_ok());
        let off = combine(tls, &[("WOOL_TOKENS", "off")], &Flags::default()).unwrap_err();
        assert!(off.to_string().contains("wool token create"), "{off}");
        let half = combine("tls_key = 'k.pem'", &[], &Flags::default()).unwrap_err();
        assert!(matches!(half, ConfigError::HalfOfTls));
    }

    #[test]
    fn indexes_are_a_list_or_words_and_hold_no_credentials() {
        let file = "indexes = ['corp=https://c.example/simple', 'https://d.example/simple']";
        let listed = combine(file, &[], &Flags::default()).unwrap();
        let words = ("WOOL_INDEXES", "corp=https://c.example/simple https://d.example/simple");
        let said = combine("", &[words], &Flags::default()).unwrap();
        assert_eq!((listed.indexes.len(), &listed.indexes), (2, &said.indexes));
        let secret = combine("indexes = 'https://me:hunter2@c.example'", &[], &Flags::default());
        let secret = secret.unwrap_err().to_string();
        assert!(secret.contains("UV_INDEX_CORP_PASSWORD"), "{secret}");
        let local = combine("package_urls = ['/wheels']", &[], &Flags::default()).unwrap_err();
        assert!(local.to_string().contains("package_urls"), "{local}");
    }

    #[test]
    fn zygotes_are_refused_where_nothing_can_be_forked() {
        let general = ("WOOL_ISOLATION", "general");
        let config = combine("", &[general], &Flags::default()).unwrap();
        assert_eq!((config.isolation, config.zygotes()), (Isolation::GENERAL, ZygotePolicy::None));
        let refused = combine("zygotes = 'root'", &[general], &Flags::default()).unwrap_err();
        assert!(matches!(refused, ConfigError::NothingForks(Isolation::GENERAL)), "{refused}");
        assert!(combine("isolation = 'sock'\nzygotes = 'root'", &[], &Flags::default()).is_ok());
        let misspelt = combine("isolation = 'docker'", &[], &Flags::default()).unwrap_err();
        assert!(misspelt.to_string().contains("lean, sock or general"), "{misspelt}");
    }

    #[test]
    fn processors_are_numbers_in_a_file_and_texts_in_a_variable() {
        let config = combine("cpu = 0.5", &[("WOOL_CPU_MOST", "1.5")], &Flags::default()).unwrap();
        let bounds = config.cpu_bounds();
        assert_eq!(bounds.default.unwrap().number(), 0.5);
        assert_eq!(bounds.most.unwrap().number(), 1.5);
        let refused = combine("cpu = '50%'", &[], &Flags::default()).unwrap_err().to_string();
        assert!(refused.contains("0.5 for half of one"), "{refused}");
        assert!(combine("", &[], &Flags { strict: true, ..Flags::default() }).unwrap().strict);
    }

    #[test]
    fn a_static_tree_has_to_be_named() {
        let refused = combine("zygotes = 'static'", &[], &Flags::default()).unwrap_err();
        assert!(refused.to_string().contains("zygote_seed"), "{refused}");
        let named =
            combine("zygotes = 'static'\nzygote_seed = 'tree.json'", &[], &Flags::default());
        assert_eq!(named.unwrap().zygotes(), ZygotePolicy::Static);
    }

    #[test]
    fn more_rules_than_the_proxy_takes_are_refused_by_the_name_of_their_setting() {
        for (setting, variable) in
            [("egress_allow", "WOOL_EGRESS_ALLOW"), ("egress_deny", "WOOL_EGRESS_DENY")]
        {
            let list = |entries: usize| vec!["10.0.0.0/8"; entries].join(",");
            let read = |entries| combine("", &[(variable, &list(entries))], &Flags::default());
            assert!(read(MOST_RULES).is_ok());
            let refused = read(MOST_RULES + 1).unwrap_err().to_string();
            assert!(refused.starts_with(setting) && refused.contains("512"), "{refused}");
        }
    }

    #[test]
    fn every_setting_has_a_variable() {
        let optional = combine(
            "",
            &[("WOOL_CREATIONS", "3"), ("WOOL_PYTHON", "3.12"), ("WOOL_ZYGOTE_BYTES", "1GiB")],
            &Flags::default(),
        );
        let config = optional.unwrap();
        assert_eq!((config.creations, config.python.as_deref()), (Some(3), Some("3.12")));
        assert_eq!(config.zygote_bytes, Some(Bytes(1 << 30)));
        assert_eq!(keys().len(), 53);
    }
}
