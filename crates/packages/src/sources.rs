//! Where a function's packages come from: the part of uv's `[tool.uv]` that a function may set.
//!
//! Indexes and which package comes from which, constraints, overrides, and how versions are chosen. Whatever would
//! reach outside an index (repositories, paths, workspaces) is refused, and so are credentials: they belong to the
//! worker's environment (`UV_INDEX_<NAME>_USERNAME` and `_PASSWORD`, netrc), and so are in no bundle, lock or registry.
//! Which indexes these may be, [`crate::indexes`] says.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::address::plain;
use crate::requirements::{self, RequirementError};

/// Lists of requirements.
const REQUIREMENTS: [&str; 2] = ["constraint-dependencies", "override-dependencies"];

/// Index addresses, as uv had them before it had tables.
const ADDRESSES: [&str; 2] = ["index-url", "extra-index-url"];

/// Plain values that steer the resolution.
const CHOICES: [&str; 5] =
    ["exclude-newer", "index-strategy", "prerelease", "resolution", "fork-strategy"];

/// Settings that would change what is installed and cannot be honoured.
const REFUSED: [&str; 4] = ["find-links", "no-index", "workspace", "managed"];

/// What a function says about where its packages come from; credential-free.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sources(Table);

impl Sources {
    /// Reads the `[tool.uv]` table that stands in `file`.
    ///
    /// # Errors
    /// With the setting that cannot be honoured, and what to do.
    pub fn read(uv: &Table, file: &str) -> Result<Self, RequirementError> {
        let mut kept = Table::new();
        for (key, value) in uv {
            let wrong = |reason: &str| refused(file, &format!("tool.uv.{key}"), reason);
            match key.as_str() {
                "index" => value
                    .as_array()
                    .ok_or_else(|| wrong("write [[tool.uv.index]]"))?
                    .iter()
                    .try_for_each(|index| check_index(index, file))?,
                "sources" => check_sources(value, file)?,
                key if ADDRESSES.contains(&key) => {
                    texts(value).iter().try_for_each(|url| check_address(url, key, file))?;
                }
                key if REQUIREMENTS.contains(&key) => {
                    let all = value.as_array().ok_or_else(|| wrong("write a list of texts"))?;
                    for requirement in all {
                        let text = requirement.as_str().ok_or_else(|| wrong("write texts"))?;
                        requirements::check(file, text)?;
                    }
                }
                key if CHOICES.contains(&key) => {}
                key if REFUSED.contains(&key) => {
                    return Err(wrong("packages come from indexes only"));
                }
                // Settings of uv's that concern a project's development, not what it needs.
                _ => continue,
            }
            kept.insert(key.clone(), value.clone());
        }
        Ok(Self(kept))
    }

    /// Adds constraints, as `-c FILE` of a requirements file names them.
    pub fn constrain(&mut self, constraints: Vec<String>) {
        if constraints.is_empty() {
            return;
        }
        let list = self.0.entry(REQUIREMENTS[0]).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(list) = list {
            list.extend(constraints.into_iter().map(Value::String));
        }
    }

    /// All of it: for resolving. Hashes that constraints have are not the installer's to read.
    pub(crate) fn for_resolving(&self) -> Table {
        let mut settings = self.0.clone();
        for list in REQUIREMENTS {
            let lines = settings.get_mut(list).and_then(Value::as_array_mut);
            for line in lines.into_iter().flatten() {
                if let Value::String(text) = line {
                    *text = requirements::without_hashes(text);
                }
            }
        }
        settings
    }

    /// What finding a locked file needs: an exact version has nothing left to choose.
    #[must_use]
    pub fn for_finding(&self) -> Self {
        let indexes = |key: &str| ["index", "sources"].contains(&key) || ADDRESSES.contains(&key);
        Self(self.0.clone().into_iter().filter(|(key, _)| indexes(key)).collect())
    }

    /// All of it as text: equal sources have equal ones.
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }

    /// Addresses of all indexes that it names, with the names that it gives them.
    pub(crate) fn addresses(&self) -> Vec<(Option<&str>, &str)> {
        let tables = self.0.get("index").and_then(Value::as_array).into_iter().flatten();
        let named = tables.filter_map(|index| {
            Some((index.get("name").and_then(Value::as_str), index.get("url")?.as_str()?))
        });
        let plain = ADDRESSES.iter().filter_map(|key| self.0.get(*key)).flat_map(texts);
        named.chain(plain.map(|url| (None, url))).collect()
    }

    /// The requirements among it: constraints and overrides.
    pub(crate) fn requirements(&self) -> Vec<&str> {
        REQUIREMENTS.iter().filter_map(|key| self.0.get(*key)).flat_map(texts).collect()
    }

    /// The table itself.
    pub(crate) fn table(&self) -> &Table {
        &self.0
    }
}

fn check_index(index: &Value, file: &str) -> Result<(), RequirementError> {
    let url = index.get("url").and_then(Value::as_str);
    let url = url.ok_or_else(|| refused(file, "tool.uv.index", "each index needs a url"))?;
    check_address(url, "index", file)
}

fn check_address(url: &str, key: &str, file: &str) -> Result<(), RequirementError> {
    let wrong = |reason: &str| refused(file, &format!("tool.uv.{key}"), reason);
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or_else(|| wrong("an index is an http or https address"))?;
    if url.contains("${") {
        return Err(wrong("an address cannot refer to an environment variable"));
    }
    if !plain(url) {
        return Err(wrong("an address holds letters, digits and what RFC 3986 has beside them"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        // Without repeating the address: it holds a secret.
        return Err(wrong(
            "an address with credentials would be kept with the code; name the index and put them into the worker's environment, as UV_INDEX_<NAME>_USERNAME and UV_INDEX_<NAME>_PASSWORD",
        ));
    }
    Ok(())
}

fn check_sources(sources: &Value, file: &str) -> Result<(), RequirementError> {
    let table = sources.as_table();
    let table = table.ok_or_else(|| refused(file, "tool.uv.sources", "write a table"))?;
    for (name, source) in table {
        let all = source.as_array().cloned().unwrap_or_else(|| vec![source.clone()]);
        let of_index = |source: &Value| {
            let keys = source.as_table()?;
            let known =
                keys.keys().all(|key| ["index", "marker", "extra", "group"].contains(&&**key));
            Some(known && keys.get("index")?.is_str())
        };
        if !all.iter().all(|source| of_index(source) == Some(true)) {
            let key = format!("tool.uv.sources.{name}");
            return Err(refused(
                file,
                &key,
                "only { index = \"name\" } is supported; put other code into the function's folder",
            ));
        }
    }
    Ok(())
}

fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::String(text) => vec![text],
        _ => Vec::new(),
    }
}

fn refused(file: &str, key: &str, reason: &str) -> RequirementError {
    RequirementError::Source {
        file: file.to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Sources, String> {
        Sources::read(&text.parse().unwrap(), "pyproject.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn indexes_pins_and_constraints_are_kept_and_development_settings_are_not() {
        let sources = read(
            "constraint-dependencies = [\"six<1.17\"]\ndev-dependencies = [\"pytest\"]\npackage = false\n\
             [[index]]\nname = \"corp\"\nurl = \"https://corp.example/simple\"\nexplicit = true\n\
             [sources]\nsix = { index = \"corp\" }\n",
        )
        .unwrap();
        let keys: Vec<&String> = sources.0.keys().collect();
        assert_eq!(keys, ["constraint-dependencies", "index", "sources"]);
        let finding = sources.for_finding();
        assert_eq!(finding.0.keys().collect::<Vec<_>>(), ["index", "sources"]);
    }

    #[test]
    fn what_is_no_index_is_refused_and_a_secret_is_not_repeated() {
        for bad in [
            "find-links = [\"/wheels\"]",
            "index-url = \"file:///wheels\"",
            "index-url = \"https://${USER}.example/simple\"",
            "index-url = \"https://a.example\\\\@b.example/simple\"",
            "[[index]]\nname = \"x\"",
            "[sources]\nsix = { git = \"https://example.org/six\" }",
            "[sources]\nsix = { path = \"../six\" }",
            "[sources]\nsix = [{ index = \"a\" }, { url = \"https://example.org/x.whl\" }]",
            "constraint-dependencies = [\"six @ file:///x.whl\"]",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        let error = read("[[index]]\nname = \"x\"\nurl = \"https://me:hunter2@x.example/simple\"");
        let error = error.unwrap_err();
        assert!(
            error.contains("UV_INDEX_<NAME>_PASSWORD") && !error.contains("hunter2"),
            "{error}"
        );
    }
}
