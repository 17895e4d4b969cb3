//! Whether a distribution's files are what it says, by hashing them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use layers::{FileError, text};
use sha2::{Digest as _, Sha256};

use super::record::{self, MAX_RECORD, Record};
use super::{Distribution, Reason, Tree, commands};
use crate::install::imports;

/// Longest `entry_points.txt` in bytes.
const MAX_ENTRY_POINTS: u64 = 1 << 20;

/// A candidate that was looked at.
#[derive(Debug)]
pub(super) struct Examined {
    pub(super) info: String,
    /// Paths that it lists, whether it is recognised or not.
    pub(super) listed: Vec<String>,
    pub(super) outcome: Result<Distribution, Reason>,
}

/// Looks at candidates, one after the other.
#[derive(Debug)]
pub(super) struct Examiner<'a> {
    root: &'a Path,
    tree: &'a Tree,
    /// Rows that may still be read.
    left: usize,
    /// What each file has: many may list the same.
    hashed: HashMap<String, Hashed>,
}

/// A file's SHA-256 and size, as a row has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hashed {
    pub(super) hash: String,
    pub(super) size: String,
}

/// Of one candidate: the bundle could not be read, or it stays code.
enum Failed {
    Read(FileError),
    Stays(Reason),
}

impl From<Reason> for Failed {
    fn from(reason: Reason) -> Self {
        Self::Stays(reason)
    }
}

impl<'a> Examiner<'a> {
    pub(super) fn new(root: &'a Path, tree: &'a Tree) -> Self {
        Self { root, tree, left: record::MAX_ROWS, hashed: HashMap::new() }
    }

    pub(super) fn examine(&mut self, info: String) -> Result<Examined, FileError> {
        let mut listed = Vec::new();
        let outcome = match self.distribution(&info, &mut listed) {
            Ok(distribution) => Ok(distribution),
            Err(Failed::Stays(reason)) => Err(reason),
            Err(Failed::Read(error)) => return Err(error),
        };
        Ok(Examined { info, listed, outcome })
    }

    fn distribution(
        &mut self,
        info: &str,
        listed: &mut Vec<String>,
    ) -> Result<Distribution, Failed> {
        for file in ["RECORD", "METADATA", "WHEEL"] {
            if !self.tree.has(&format!("{info}/{file}")) {
                return Err(Reason::Lacks(file).into());
            }
        }
        let text = self.text(info, "RECORD", MAX_RECORD)?;
        let record = Record::parse(&text, info, self.left)?;
        self.left -= text.lines().count();
        listed.extend(record.rows.iter().map(|row| row.path.clone()));
        for row in &record.rows {
            if !self.tree.has(&row.path) {
                return Err(Reason::Missing(row.path.clone()).into());
            }
            let there = self.hashed(&row.path)?;
            if there.hash != row.hash || !row.size.is_empty() && there.size != row.size {
                return Err(Reason::Differs(row.path.clone()).into());
            }
        }
        let commands = match self.tree.has(&format!("{info}/entry_points.txt")) {
            true => commands::of(&self.text(info, "entry_points.txt", MAX_ENTRY_POINTS)?)?,
            false => Default::default(),
        };
        if let Some(other) = record.commands.iter().find(|name| !commands.contains_key(*name)) {
            return Err(Reason::Command(other.clone()).into());
        }
        let directory = self.root.join(info);
        let said = imports::read_info(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Reason::Metadata(error.to_string()).into(),
            _ => Failed::Read(FileError::at("read", &directory)(error)),
        })?;
        let receipts = self.tree.inside(info).filter(|path| record::is_receipt(path, info));
        Ok(Distribution {
            name: said.name,
            version: said.version,
            info: info.to_owned(),
            rows: record.rows,
            receipts: receipts.map(str::to_owned).collect(),
            commands: commands.into_iter().collect(),
        })
    }

    fn text(&self, info: &str, file: &'static str, most: u64) -> Result<String, Failed> {
        let path = self.root.join(info).join(file);
        let bytes = text::read_up_to(most, &path).map_err(FileError::at("read", &path));
        let bytes = bytes.map_err(Failed::Read)?.ok_or(Reason::TooLong { file, most })?;
        let no_text = |_| Reason::Metadata(format!("its {file} is not UTF-8 text"));
        Ok(String::from_utf8(bytes).map_err(no_text)?)
    }

    fn hashed(&mut self, path: &str) -> Result<Hashed, Failed> {
        if let Some(known) = self.hashed.get(path) {
            return Ok(known.clone());
        }
        let whole = self.root.join(path);
        let hashed = hash(&whole).map_err(FileError::at("read", &whole)).map_err(Failed::Read)?;
        self.hashed.insert(path.to_owned(), hashed.clone());
        Ok(hashed)
    }
}

fn hash(path: &Path) -> io::Result<Hashed> {
    let mut hasher = Hasher(Sha256::new());
    let size = io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(Hashed { hash: told(hasher.0), size: size.to_string() })
}

/// What a row would say of a file with these bytes.
pub(super) fn hash_of(bytes: &[u8]) -> Hashed {
    Hashed { hash: told(Sha256::new_with_prefix(bytes)), size: bytes.len().to_string() }
}

fn told(hasher: Sha256) -> String {
    format!("sha256={}", URL_SAFE_NO_PAD.encode(hasher.finalize()))
}

struct Hasher(Sha256);

impl io::Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
