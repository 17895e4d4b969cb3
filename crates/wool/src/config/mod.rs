//! Settings: a TOML file, then `WOOL_*` variables, then flags; the later wins. Unknown keys are errors.
//!
//! ```text
//!   settings! { /// words  key: Type = default, "example"; }
//!      └─► a field of Config · a key of the file · the variable WOOL_KEY · a line of `wool up --help` · a row of the page
//! ```
//!
//! The file is `--config FILE`, else the first of `$XDG_CONFIG_HOME/lambswool/config.toml` and
//! `/etc/lambswool/config.toml` that exists. The table `[internals]` is for measurements and tests.

mod declared;
mod internals;
mod listed;
mod page;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use container::Isolation;
use egress::MAX_RULES;
use engine::ZygotePolicy;
use packages::indexes::IndexError;
use thiserror::Error;
use toml::{Table, Value};

pub use declared::Setting;
pub use internals::Internals;
pub use listed::Listed;
pub use page::{help, rows};
pub use settings::{BuildFromSource, Config};

/// The table of [`Internals`].
const INTERNALS: &str = "internals";

/// Why the settings cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{path} is no valid TOML: {reason}")]
    Syntax {
        /// The file's path.
        path: PathBuf,
        /// Where and what.
        reason: String,
    },
    /// A key is unknown or a value does not fit.
    #[error("{setting} does not fit: {reason}")]
    Value {
        /// Where it was said: `--listen`, `WOOL_SLOTS`, `slots in c.toml`.
        setting: String,
        /// What does not fit.
        reason: String,
    },
    /// Variables that look like settings, and are none.
    #[error(
        "{0}: no such setting; `wool up --help` lists them, each is WOOL_ and its name in capitals"
    )]
    Variables(String),
    /// Other machines reach the address, and tokens would cross their networks in the clear.
    #[error(
        "refusing to listen on {0}, which other machines reach: it takes a certificate (make one with `wool tls self-signed`, or get one, and name it and its key in tls_certificate and tls_key); or listen on a loopback address, 127.0.0.1:{port}, with a tunnel or an authenticating proxy in front", port = .0.port()
    )]
    NoTls(SocketAddr),
    /// One of the two is missing.
    #[error("TLS takes a certificate and its key: name both files, tls_certificate and tls_key")]
    HalfOfTls,
    /// Zygotes are asked for where nothing can be forked.
    #[error(
        "nothing can be forked in the container recipe \"{0}\", whose sandboxes have a mount namespace of their own: leave `zygotes` out, or choose a recipe without own=mnt"
    )]
    NothingForks(Isolation),
    /// A place of packages is none.
    #[error("package_urls: {0}")]
    Packages(#[source] IndexError),
    /// The proxy would be told of more than it takes.
    #[error(
        "{setting} has {entries} entries and may have {}: name whole networks in place of their addresses",
        MAX_RULES
    )]
    TooManyRules {
        /// Which of the two lists.
        setting: &'static str,
        /// How many there are.
        entries: usize,
    },
    /// Nothing could be done with it.
    #[error("{setting} = 0 {why}: leave it out for the default, or write more")]
    Nothing {
        /// The setting's key.
        setting: &'static str,
        /// What it would mean.
        why: &'static str,
    },
    /// Only the zygotes of a tree are asked for, and no tree is given.
    #[error(
        "zygotes = \"static\" makes those of a given tree: name its file with zygote_seed in [internals]"
    )]
    NoSeed,
}

/// What the command line says.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The value of `--config`.
    pub config: Option<PathBuf>,
    /// The value of `--listen`.
    pub listen: Option<String>,
    /// The value of `--state`.
    pub state: Option<PathBuf>,
    /// The value of `--python`.
    pub python: Option<String>,
    /// The value of `--user`.
    pub user: Option<String>,
    /// Whether `--strict` was given.
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
        // `wool up` has it as a flag; other commands read the settings, too.
        let named = || std::env::var_os("WOOL_CONFIG").filter(|path| !path.is_empty());
        let named = flags.config.clone().or_else(|| named().map(PathBuf::from));
        named.or_else(|| places().into_iter().find(|path| path.is_file()))
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
        let mut sources = BTreeMap::new();
        let mut table = Table::new();
        if let Some((path, text)) = file {
            table = text.parse().map_err(|e: toml::de::Error| ConfigError::Syntax {
                path: path.to_owned(),
                reason: e.to_string(),
            })?;
            let of_file = |key: &String| (key.clone(), format!("{key} in {}", path.display()));
            sources.extend(table.keys().map(of_file));
        }
        let of_variable = |name: &str| variable(name).filter(|text| !text.is_empty());
        for setting in Self::DECLARED {
            let name = setting.variable();
            if let Some(text) = of_variable(&name) {
                table.insert(setting.key.to_owned(), scalar(&text));
                sources.insert(setting.key.to_owned(), name);
            }
        }
        for setting in Internals::DECLARED {
            let name = setting.variable();
            if let Some(text) = of_variable(&name) {
                let inner = table.entry(INTERNALS).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(inner) = inner {
                    inner.insert(setting.key.to_owned(), scalar(&text));
                    sources.insert(format!("{INTERNALS}.{}", setting.key), name);
                }
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
                sources.insert(key.to_owned(), format!("--{key}"));
            }
        }
        if flags.strict {
            table.insert("strict".to_owned(), Value::Boolean(true));
            sources.insert("strict".to_owned(), "--strict".to_owned());
        }
        let config: Self = match table.clone().try_into() {
            Ok(config) => config,
            Err(error) => return Err(unfit(&table, &sources, &error)),
        };
        if config.tls_certificate.is_some() != config.tls_key.is_some() {
            return Err(ConfigError::HalfOfTls);
        }
        if !config.listen.ip().is_loopback() && config.tls_certificate.is_none() {
            return Err(ConfigError::NoTls(config.listen));
        }
        if !config.internals.container_recipe.forks() && config.zygotes() != ZygotePolicy::None {
            return Err(ConfigError::NothingForks(config.internals.container_recipe));
        }
        if config.zygotes() == ZygotePolicy::Static && config.internals.zygote_seed.is_none() {
            return Err(ConfigError::NoSeed);
        }
        if config.client_timeout.0.is_zero() {
            let why = "would give no client time to send anything";
            return Err(ConfigError::Nothing { setting: "client_timeout", why });
        }
        if config.sandboxes == Some(0) {
            let why = "would leave no call a sandbox";
            return Err(ConfigError::Nothing { setting: "sandboxes", why });
        }
        config.indexes().map_err(ConfigError::Packages)?;
        let lists = [("egress_allow", &config.egress_allow), ("egress_deny", &config.egress_deny)];
        for (setting, list) in lists {
            let entries = list.0.len();
            if entries > MAX_RULES {
                return Err(ConfigError::TooManyRules { setting, entries });
            }
        }
        Ok(config)
    }
}

/// Which setting it is that does not fit: the error itself names it only where it is no setting at all.
fn unfit(
    table: &Table,
    sources: &BTreeMap<String, String>,
    error: &toml::de::Error,
) -> ConfigError {
    let (key, reason) = first_unfit::<Config>(table)
        .unwrap_or_else(|| ("a setting".to_owned(), error.message().to_owned()));
    let inner = table.get(INTERNALS).filter(|_| key == INTERNALS).and_then(Value::as_table);
    let (key, reason) = match inner.and_then(first_unfit::<Internals>) {
        Some((inner, reason)) => (format!("{INTERNALS}.{inner}"), reason),
        None => (key, reason),
    };
    ConfigError::Value { setting: sources.get(&key).cloned().unwrap_or(key), reason }
}

/// The first key whose value alone does not fit, and why.
fn first_unfit<T: serde::de::DeserializeOwned>(table: &Table) -> Option<(String, String)> {
    table.iter().find_map(|(key, value)| {
        let one = Table::from_iter([(key.clone(), value.clone())]);
        let error = one.try_into::<T>().err()?;
        Some((key.clone(), error.message().to_owned()))
    })
}

/// Refuses variables that look like settings and are none: a misspelt one would silently mean nothing.
///
/// # Errors
/// When one of the names begins with `WOOL_` and no part of this program reads it.
pub fn refuse_unknown(variables: impl Iterator<Item = OsString>) -> Result<(), ConfigError> {
    // What is read besides the settings, by the command line and by the worker's log.
    const OTHERS: [&str; 7] = ["URL", "CONFIG", "TOKEN", "TOKEN_FILE", "CA", "TENANT", "LOG"];
    let of_settings = Config::DECLARED.iter().map(|setting| setting.variable());
    let internal = Internals::DECLARED.iter().map(|setting| setting.variable());
    let known: BTreeSet<String> = of_settings.chain(internal).collect();
    let is_unknown = |name: &String| {
        name.strip_prefix("WOOL_").is_some_and(|rest| !OTHERS.contains(&rest))
            && !known.contains(name)
    };
    let mut unknown: Vec<String> =
        variables.filter_map(|name| name.into_string().ok()).filter(is_unknown).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    unknown.sort();
    Err(ConfigError::Variables(unknown.join(", ")))
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
mod tests;
