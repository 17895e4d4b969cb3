//! A source distribution: where the index has it, and fetching it.

use std::ffi::OsStr;
use std::path::Path;

use layers::Silent;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::address::without_credentials;
use crate::build_error::BuildError;
use crate::installer::Site;
use crate::project::{self, Project, stub};
use crate::requirements;

const DOWNLOAD: &str = include_str!("download.py");

/// Largest archive, in bytes.
const MAX_BYTES: u64 = 512 << 20;

/// A source distribution of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    /// The archive's address.
    pub(crate) url: String,
    /// Its hash: `sha256:` and hexadecimal digits.
    pub(crate) hash: String,
}

/// The answer to a request for a lock, as far as it is needed (PEP 751).
#[derive(Debug, Deserialize)]
struct Listed {
    #[serde(default)]
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    sdist: Option<Archive>,
}

#[derive(Debug, Deserialize)]
struct Archive {
    url: Option<String>,
    hashes: Table,
}

impl Source {
    /// Asks the index for the source of an exact version. With metadata given uv runs nothing of
    /// it.
    pub(super) fn find(site: &Site<'_>, name: &str, version: &str) -> Result<Self, BuildError> {
        let mut settings = site.sources.for_finding().table().clone();
        settings.insert("dependency-metadata".to_owned(), Value::Array(vec![stub(name)]));
        let wanted = [format!("{name}=={version}")];
        let project = Project::write(site.store, &wanted, &settings)?;
        let ask = |offline: bool| {
            let mut command = site.installer.command(site.store, site.base, &["pip", "compile"])?;
            command.args(["--format", "pylock.toml", "--no-header", "--no-deps"]);
            command.args(["--only-binary", ":all:", "--no-binary", name]);
            command.args(offline.then_some("--offline"));
            command.arg(project::FILE).current_dir(project.path());
            Ok::<_, BuildError>(site.installer.run(&mut command, &Silent)?)
        };
        let mut answer = ask(true)?;
        if !answer.status.success() {
            answer = ask(false)?;
        }
        if !answer.status.success() {
            return Err(BuildError::NoSource { words: answer.words });
        }
        let unclear = |words: &str| BuildError::NoSource { words: words.to_owned() };
        let listed: Listed =
            toml::from_str(&answer.output).map_err(|error| unclear(error.message()))?;
        let mut found =
            listed.packages.into_iter().filter(|p| requirements::normalise(&p.name) == name);
        let archive = found.next().and_then(|package| package.sdist);
        let archive = archive.ok_or_else(|| unclear("the index lists no source distribution"))?;
        let hash = archive
            .hashes
            .iter()
            .find_map(|(kind, hash)| Some(format!("{kind}:{}", hash.as_str()?)));
        let url = archive.url.zip(hash);
        let (url, hash) = url.ok_or_else(|| unclear("the index gives no hash of it"))?;
        // It is written down: the script that fetches looks the credentials up again.
        Ok(Self { url: without_credentials(&url), hash })
    }

    /// What the archive is called.
    pub(super) fn file(&self) -> &str {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        path.rsplit('/').next().unwrap_or_default()
    }

    /// Fetches it, and checks its hash.
    pub(super) fn fetch(&self, site: &Site<'_>, to: &Path) -> Result<(), BuildError> {
        let indexes = serde_json::to_string(&site.installer.indexes().named()).unwrap_or_default();
        let limit = MAX_BYTES.to_string();
        let words: [&OsStr; 5] = [
            self.url.as_ref(),
            self.hash.as_ref(),
            to.as_os_str(),
            limit.as_ref(),
            indexes.as_ref(),
        ];
        let interpreter = site.base.command(site.store);
        let refused: Option<String> =
            interpreter.ask_within(site.installer.patience(), DOWNLOAD, &words)?;
        refused.map_or(Ok(()), |reason| {
            Err(BuildError::Fetch { file: self.file().to_owned(), reason })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_without_credentials_and_names_its_file() {
        let url = without_credentials("https://me:p@ss@example.org/a@b/x-1.0.tar.gz?y#z");
        assert_eq!(url, "https://example.org/a@b/x-1.0.tar.gz?y#z");
        assert_eq!(Source { url, hash: String::new() }.file(), "x-1.0.tar.gz");
    }
}
