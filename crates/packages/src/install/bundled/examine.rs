//! Whether a distribution's files are what it says, by hashing them.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use layers::{FileError, text};
use sha2::{Digest as _, Sha256};

use super::record::{self, MAX_RECORD, Record, Row};
use super::{Distribution, Reason, Tree, commands};
use crate::install::imports;

/// Longest `entry_points.txt` in bytes.
const MAX_ENTRY_POINTS: u64 = 256 << 10;

/// Longest name and version together, in bytes: with a hash behind them they are a directory's name.
const MAX_NAMED: usize = 160;

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
    /// Commands that may still be made.
    commands: usize,
    /// Whose each file is that was looked at.
    claimed: HashMap<String, String>,
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
        let (left, commands) = (record::MAX_ROWS, commands::MAX_COMMANDS);
        Self { root, tree, left, commands, claimed: HashMap::new() }
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
        let rows = text.lines().count();
        self.left = self.left.checked_sub(rows).ok_or(Reason::TooManyRows(record::MAX_ROWS))?;
        let record = Record::parse(&text, info)?;
        listed.extend(record.rows.iter().map(|row| row.path.clone()));
        for Row { path, .. } in &record.rows {
            if let Some(other) = self.claimed.get(path) {
                return Err(Reason::Claimed { path: path.clone(), other: other.clone() }.into());
            }
        }
        self.claimed.extend(listed.iter().map(|path| (path.clone(), info.to_owned())));
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
        let left = self.commands.checked_sub(commands.len());
        self.commands = left.ok_or(Reason::TooManyCommands(commands::MAX_COMMANDS))?;
        if let Some(other) = record.commands.iter().find(|name| !commands.contains_key(*name)) {
            return Err(Reason::Command(other.clone()).into());
        }
        let directory = self.root.join(info);
        let said = imports::read_info(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => Reason::Metadata(error.to_string()).into(),
            _ => Failed::Read(FileError::at("read", &directory)(error)),
        })?;
        if said.name.len() + said.version.len() > MAX_NAMED {
            return Err(Reason::Metadata("its name and version are too long".to_owned()).into());
        }
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

    fn hashed(&self, path: &str) -> Result<Hashed, Failed> {
        let whole = self.root.join(path);
        hash(&whole).map_err(FileError::at("read", &whole)).map_err(Failed::Read)
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
