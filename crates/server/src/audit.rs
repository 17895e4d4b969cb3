//! What was changed, by whom: a line of JSON for each control action.
//!
//! ```text
//!   STATE/audit/current.log ──► 1.log ──► …              what was done; mode 0600, rotated by size
//!              refused/current.log ──► 1.log ──► …      what was not
//! ```
//!
//! What was refused, or failed, is apart: however often somebody tries, it pushes out nothing that was done. So is what whoever
//! asked gave up before it was begun. What was begun goes on without him, and says itself what came of it. A line is in the
//! file before the action's answer is on its way; it is not forced to the disk. Nothing of a body, a token or a secret's
//! value is in it. Who shows no token, or one that is unknown, leaves no line: whoever can reach the
//! port could otherwise push all others out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Caller;
use crate::logs::{Rotation, numbered, open_lines, rotate};

/// How much of it is kept, of what was done and of what was not: some half a million actions.
pub const AUDIT: Rotation = Rotation { bytes: 10 << 20, files: 10 };

/// What comes of an action that was not begun: whoever asked has gone before.
pub(crate) const UNANSWERED: &str = "unanswered";

/// What comes of an action that was begun, and of which nobody says how it ended: the worker's own fault, or its end.
pub(crate) const BROKE_OFF: &str = "broke-off";

/// The time as lines have it: fine enough to tell by it which of two came first.
pub(crate) fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// One control action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// When it ended, RFC 3339.
    pub time: String,
    /// Who asked for it.
    pub who: Who,
    /// From where: an address, or the process on the Unix socket.
    pub remote: String,
    /// Whose functions it was about.
    pub tenant: String,
    /// What, in one word or two: `deploy`, `remove`, `token create`.
    pub action: String,
    /// About which function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The version that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What else it was about: a token's name, a secret's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What came of it: `ok`, or the type of the error that was answered; `unanswered`: it was given up before it was begun;
    /// `broke-off`: it may have been done.
    pub result: String,
}

/// Who asked for an action.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// Any user of the machine: TCP asked for no token.
    Anyone,
    /// Who has the token of this name.
    Token(String),
    /// The user of this number, on the Unix socket or at the command line.
    Uid(u32),
}

impl From<&Caller> for Who {
    fn from(caller: &Caller) -> Self {
        match caller {
            Caller::Anyone => Self::Anyone,
            Caller::Token(token) => Self::Token(token.name.to_string()),
            Caller::User { uid } => Self::Uid(*uid),
        }
    }
}

/// The audit log of a state directory.
#[derive(Debug)]
pub struct Audit {
    done: Lines,
    refused: Lines,
}

/// A file of actions, and its older siblings.
#[derive(Debug)]
struct Lines {
    dir: PathBuf,
    rotation: Rotation,
    current: Mutex<Option<Current>>,
}

#[derive(Debug)]
struct Current {
    file: File,
    size: u64,
}

impl Audit {
    /// The log in a directory, which is made for nobody else's eyes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: &Path, rotation: Rotation) -> io::Result<Self> {
        let done = Lines::open(dir, rotation)?;
        Ok(Self { done, refused: Lines::open(&dir.join("refused"), rotation)? })
    }

    /// Writes a line. A disk that does not take it is told in the worker's log: refusing what has been done already
    /// would help nobody.
    pub fn write(&self, action: &Action) {
        match action.result.as_str() {
            // What broke off may have been done.
            "ok" | BROKE_OFF => self.done.write(action),
            _ => self.refused.write(action),
        }
    }

    /// The last actions, oldest first. Blocks on disk.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn read(&self, most: usize) -> io::Result<Vec<Action>> {
        let mut all = self.done.read(most)?;
        all.extend(self.refused.read(most)?);
        // Times in one format and zone compare as text.
        all.sort_by(|one, other| one.time.cmp(&other.time));
        Ok(all.split_off(all.len().saturating_sub(most)))
    }
}

impl Lines {
    fn open(dir: &Path, rotation: Rotation) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let current = Mutex::new(Some(Current::open(dir)?));
        Ok(Self { dir: dir.to_owned(), rotation, current })
    }

    fn write(&self, action: &Action) {
        // Plain data: it always serializes.
        let mut line = serde_json::to_vec(action).unwrap_or_default();
        line.push(b'\n');
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.append(&mut current, &line) {
            *current = None;
            let line = String::from_utf8_lossy(&line);
            tracing::error!(%error, line = line.trim_end(), "the audit log cannot be written");
        }
    }

    fn append(&self, current: &mut Option<Current>, line: &[u8]) -> io::Result<()> {
        let mut open = match current.take() {
            Some(open) => open,
            None => Current::open(&self.dir)?,
        };
        if open.size > 0 && open.size + line.len() as u64 > self.rotation.bytes {
            rotate(&self.dir, self.rotation)?;
            open = Current::open(&self.dir)?;
        }
        open.file.write_all(line)?;
        open.size += line.len() as u64;
        *current = Some(open);
        Ok(())
    }

    /// The last of them, oldest first.
    fn read(&self, most: usize) -> io::Result<Vec<Action>> {
        let mut newest_first = Vec::new();
        for number in 0..self.rotation.files {
            let text = match fs::read(numbered(&self.dir, number)) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            };
            // One that a crash or a full disk cut off, if within a character, is no action.
            let lines = text.rsplit(|byte| *byte == b'\n');
            let actions = lines.filter_map(|line| serde_json::from_slice(line).ok());
            newest_first.extend(actions.take(most - newest_first.len()));
        }
        newest_first.reverse();
        Ok(newest_first)
    }
}

impl Current {
    fn open(dir: &Path) -> io::Result<Self> {
        let (file, size) = open_lines(OpenOptions::new().mode(0o600), &numbered(dir, 0))?;
        Ok(Self { file, size })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn action(number: usize) -> Action {
        Action {
            time: "2026-11-22T00:00:00.000Z".to_owned(),
            who: Who::Token("ci".to_owned()),
            remote: "127.0.0.1:5".to_owned(),
            tenant: "default".to_owned(),
            action: "deploy".to_owned(),
            function: Some(format!("f{number:04}")),
            version: None,
            subject: None,
            result: "ok".to_owned(),
        }
    }

    #[test]
    fn the_last_actions_are_read_across_files_and_the_oldest_files_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("audit");
        let line = serde_json::to_vec(&action(0)).unwrap().len() as u64 + 1;
        let rotation = Rotation { bytes: 10 * line, files: 3 };
        let audit = Audit::open(&dir, rotation).unwrap();
        for number in 0..15 {
            audit.write(&action(number));
        }
        // As after a crash in the middle of a line.
        drop(audit);
        let mut options = OpenOptions::new();
        options
            .append(true)
            .open(numbered(&dir, 0))
            .unwrap()
            .write_all(b"{\"time\": \"\xc3")
            .unwrap();
        let audit = Audit::open(&dir, rotation).unwrap();
        let names = |most| -> Vec<String> {
            let read = audit.read(most).unwrap();
            read.into_iter().map(|action| action.function.unwrap()).collect()
        };
        assert_eq!(names(2), ["f0013", "f0014"]);
        assert_eq!(names(100).len(), 15);
        audit.write(&action(15));
        assert_eq!(names(1), ["f0015"], "what was cut off took nothing with it");
        for number in 16..100 {
            audit.write(&action(number));
        }
        let kept = names(1000);
        assert!((20..=30).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.last().map(String::as_str), Some("f0099"));
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        let files = |dir: &Path| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        for entry in files(&dir).chain(files(&dir.join("refused"))) {
            let data = entry.metadata().unwrap();
            let mode = if data.is_dir() { 0o700 } else { 0o600 };
            assert_eq!(data.permissions().mode() & 0o777, mode);
            assert!(data.is_dir() || data.len() <= rotation.bytes);
        }
    }

    #[test]
    fn however_often_somebody_is_refused_what_was_done_stays() {
        let dir = tempfile::tempdir().unwrap();
        let line = serde_json::to_vec(&action(0)).unwrap().len() as u64 + 1;
        let audit = Audit::open(dir.path(), Rotation { bytes: 10 * line, files: 3 }).unwrap();
        let at = |second: usize| format!("2026-11-22T00:00:{:02}.000Z", second % 60);
        audit.write(&Action { time: at(0), ..action(7) });
        for second in 1..1000 {
            let result = ["wrong-scope", "bad-name", UNANSWERED][second % 3].to_owned();
            audit.write(&Action { time: at(1), result, ..action(second) });
        }
        audit.write(&Action { time: at(2), result: BROKE_OFF.to_owned(), ..action(8) });
        let read = audit.read(1000).unwrap();
        let [first, .., last] = &read[..] else { panic!("{read:?}") };
        assert_eq!((first.result.as_str(), last.result.as_str()), ("ok", BROKE_OFF));
        assert!(read.len() < 40 && read.windows(2).all(|two| two[0].time <= two[1].time));
        assert_eq!(audit.read(1).unwrap().last(), Some(last));
    }
}
