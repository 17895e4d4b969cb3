//! What was changed, by whom: a line of JSON for each control action.
//!
//! ```text
//!   STATE/audit/current.log ──► 1.log ──► …        what administrators did; mode 0600, rotated by size
//!               refused/                           what they were refused, likewise
//!               anyone/, anyone/refused/           whoever showed no token while none was asked for
//!               tenants/NAME/, …/NAME/refused/     whoever has a token of that tenant, whomever it was about
//! ```
//!
//! Each of them is rotated by itself: whatever a tenant does, and however often, it pushes out no line of another's or of an
//! administrator's. Read, they are one list. Releases before this one kept all that was done in the first: what they wrote is
//! read where it is.
//!
//! What was refused, or failed, is apart: however often somebody tries, it pushes out nothing that was done. So is what whoever
//! asked gave up before it was begun. What was begun goes on without him, and says itself what came of it. A line is in the
//! file before the action's answer is on its way; it is not forced to the disk. Nothing of a body, a token or a secret's
//! value is in it. Who shows no token, or one that is unknown, leaves no line while tokens are asked for: whoever can reach the
//! port could otherwise fill a disk.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::{Caller, Label};
use crate::logs::{Rotation, numbered, open_lines, rotate};

/// How much of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of what administrators did, and as much of what they were refused.
    pub administrators: Rotation,
    /// Of what those of one tenant did, and as much of what they were refused. So for whoever shows no token.
    pub tenant: Rotation,
    /// Tenants of whom anything is kept. When one more does something, the one who did nothing for longest is forgotten.
    pub tenants: usize,
}

/// Some half a million actions of administrators, and some forty thousand of each tenant: 4 GiB at most.
pub const AUDIT: Bounds = Bounds {
    administrators: Rotation { bytes: 10 << 20, files: 10 },
    tenant: Rotation { bytes: 2 << 20, files: 4 },
    tenants: 256,
};

/// Below the log's directory, and below those of it.
const REFUSED: &str = "refused";
const ANYONE: &str = "anyone";
const TENANTS: &str = "tenants";

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

/// Among whose actions one is: it pushes out no older ones but theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Among {
    /// Who may do everything, for every tenant.
    Administrators,
    /// Any user of the machine.
    Anyone,
    /// Who has a token of this tenant.
    Tenant(Label),
}

impl From<&Caller> for Among {
    fn from(caller: &Caller) -> Self {
        match (caller, caller.tenant()) {
            (Caller::Anyone, _) => Self::Anyone,
            (_, Some(tenant)) => Self::Tenant(tenant),
            (Caller::Token(_) | Caller::User { .. }, None) => Self::Administrators,
        }
    }
}

/// The audit log of a state directory.
#[derive(Debug)]
pub struct Audit {
    dir: PathBuf,
    bounds: Bounds,
    /// Held while files are written, or change their names. They are opened for each line: it is the rare thing, and there
    /// may be many tenants.
    writing: Mutex<()>,
}

impl Audit {
    /// The log in a directory, which is made for nobody else's eyes.
    ///
    /// # Errors
    /// When it cannot be made, or not be written to.
    pub fn open(dir: &Path, bounds: Bounds) -> io::Result<Self> {
        for dir in [dir.to_owned(), dir.join(REFUSED)] {
            append(&dir, b"", bounds.administrators)?;
        }
        Ok(Self { dir: dir.to_owned(), bounds, writing: Mutex::default() })
    }

    /// Writes a line. A disk that does not take it is told in the worker's log: refusing what has been done already
    /// would help nobody.
    pub fn write(&self, among: &Among, action: &Action) {
        // Plain data: it always serializes.
        let mut line = serde_json::to_vec(action).unwrap_or_default();
        line.push(b'\n');
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // What broke off may have been done.
        let done = matches!(action.result.as_str(), "ok" | BROKE_OFF);
        let written = self.make_room(among).and_then(|(dir, rotation)| {
            append(&if done { dir } else { dir.join(REFUSED) }, &line, rotation)
        });
        if let Err(error) = written {
            let line = String::from_utf8_lossy(&line);
            tracing::error!(%error, line = line.trim_end(), "the audit log cannot be written");
        }
    }

    /// Where lines of theirs go, and how many stay.
    fn make_room(&self, among: &Among) -> io::Result<(PathBuf, Rotation)> {
        let tenant = match among {
            Among::Administrators => return Ok((self.dir.clone(), self.bounds.administrators)),
            Among::Anyone => return Ok((self.dir.join(ANYONE), self.bounds.tenant)),
            Among::Tenant(tenant) => tenant.as_str(),
        };
        let dir = self.dir.join(TENANTS).join(tenant);
        if !dir.exists() {
            // Only an administrator makes tenants: nobody else has anybody forgotten.
            let mut others = self.tenants()?;
            others.sort_by_cached_key(|dir| last_written(dir));
            let beyond = (others.len() + 1).saturating_sub(self.bounds.tenants);
            for forgotten in others.iter().take(beyond) {
                let tenant = forgotten.file_name().unwrap_or_default().to_string_lossy();
                tracing::warn!(%tenant, "too many tenants: the audit log forgets what one of them did");
                fs::remove_dir_all(forgotten)?;
            }
        }
        Ok((dir, self.bounds.tenant))
    }

    /// The directories of tenants.
    fn tenants(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(self.dir.join(TENANTS)) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The last actions of all, oldest first. Blocks on disk.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn read(&self, most: usize) -> io::Result<Vec<Action>> {
        let Bounds { administrators, tenant, .. } = self.bounds;
        let mut logs = vec![(self.dir.clone(), administrators), (self.dir.join(ANYONE), tenant)];
        logs.extend(self.tenants()?.into_iter().map(|dir| (dir, tenant)));
        let mut last = Vec::new();
        for (dir, rotation) in logs {
            for dir in [dir.join(REFUSED), dir] {
                last.extend(read(&dir, rotation, most)?);
                // Times in one format and zone compare as text. Never are more kept than twice what is asked for.
                last.sort_by(|one: &Action, other| one.time.cmp(&other.time));
                last.drain(..last.len().saturating_sub(most));
            }
        }
        Ok(last)
    }
}

/// Writes to a log, which is made if there is none.
fn append(dir: &Path, line: &[u8], rotation: Rotation) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let open = || open_lines(OpenOptions::new().mode(0o600), &numbered(dir, 0));
    let (mut file, size) = open()?;
    if size > 0 && size + line.len() as u64 > rotation.bytes {
        rotate(dir, rotation)?;
        (file, _) = open()?;
    }
    file.write_all(line)
}

/// The last actions of a log, oldest first.
fn read(dir: &Path, rotation: Rotation, most: usize) -> io::Result<Vec<Action>> {
    let mut newest_first = Vec::new();
    for number in 0..rotation.files {
        let text = match fs::read(numbered(dir, number)) {
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

/// When anything was last written to a tenant's logs.
fn last_written(dir: &Path) -> Option<SystemTime> {
    let files = [dir.to_owned(), dir.join(REFUSED)].map(|dir| numbered(&dir, 0));
    files.iter().filter_map(|file| fs::metadata(file).ok()?.modified().ok()).max()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// So many lines a file, and three files, for all of them.
    fn bounds(lines: u64) -> Bounds {
        let line = serde_json::to_vec(&action(0)).unwrap().len() as u64 + 1;
        let rotation = Rotation { bytes: lines * line, files: 3 };
        Bounds { administrators: rotation, tenant: rotation, tenants: 3 }
    }

    fn functions(audit: &Audit, most: usize) -> Vec<String> {
        let read = audit.read(most).unwrap();
        read.into_iter().map(|action| action.function.unwrap()).collect()
    }

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
        let bounds = bounds(10);
        let us = Among::Administrators;
        let audit = Audit::open(&dir, bounds).unwrap();
        for number in 0..15 {
            audit.write(&us, &action(number));
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
        let audit = Audit::open(&dir, bounds).unwrap();
        let names = |most| functions(&audit, most);
        assert_eq!(names(2), ["f0013", "f0014"]);
        assert_eq!(names(100).len(), 15);
        audit.write(&us, &action(15));
        assert_eq!(names(1), ["f0015"], "what was cut off took nothing with it");
        for number in 16..100 {
            audit.write(&us, &action(number));
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
            assert!(data.is_dir() || data.len() <= bounds.administrators.bytes);
        }
    }

    #[test]
    fn however_often_somebody_is_refused_what_was_done_stays() {
        let dir = tempfile::tempdir().unwrap();
        let us = Among::Tenant(Label::default_tenant());
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        let at = |second: usize| format!("2026-11-22T00:00:{:02}.000Z", second % 60);
        audit.write(&us, &Action { time: at(0), ..action(7) });
        for second in 1..1000 {
            let result = ["wrong-scope", "bad-name", UNANSWERED][second % 3].to_owned();
            audit.write(&us, &Action { time: at(1), result, ..action(second) });
        }
        audit.write(&us, &Action { time: at(2), result: BROKE_OFF.to_owned(), ..action(8) });
        let read = audit.read(1000).unwrap();
        let [first, .., last] = &read[..] else { panic!("{read:?}") };
        assert_eq!((first.result.as_str(), last.result.as_str()), ("ok", BROKE_OFF));
        assert!(read.len() < 40 && read.windows(2).all(|two| two[0].time <= two[1].time));
        assert_eq!(audit.read(1).unwrap().last(), Some(last));
    }

    #[test]
    fn whatever_a_tenant_does_however_often_every_line_of_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let tenant = |name: &str| Among::Tenant(name.parse().unwrap());
        let at = |second: usize| format!("2026-11-22T00:00:{second:02}.000Z");
        // As a release wrote it that had all in one.
        let before = Action { time: at(0), ..action(0) };
        let line = format!("{}\n", serde_json::to_string(&before).unwrap());
        fs::write(dir.path().join("current.log"), line).unwrap();
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        audit.write(&Among::Administrators, &Action { time: at(1), ..action(1) });
        audit.write(&tenant("acme"), &Action { time: at(2), ..action(2) });
        audit.write(&Among::Anyone, &Action { time: at(3), ..action(3) });
        for number in 100..1000 {
            audit.write(&tenant("emca"), &Action { time: at(4), ..action(number) });
        }
        audit.write(&tenant("acme"), &Action { time: at(5), ..action(5) });
        let kept = functions(&audit, 1000);
        assert_eq!(kept[..4], ["f0000", "f0001", "f0002", "f0003"]);
        assert_eq!(kept.last().map(String::as_str), Some("f0005"));
        assert!(kept.len() <= 35, "{}", kept.len());
        assert_eq!(functions(&audit, 2), ["f0999", "f0005"], "the last ones of all");
    }

    #[test]
    fn of_too_many_tenants_the_one_who_did_nothing_for_longest_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        let write = |name: &str, number: usize| {
            audit.write(&Among::Tenant(name.parse().unwrap()), &action(number));
            // What the disk keeps of the time may be no finer.
            std::thread::sleep(std::time::Duration::from_millis(20));
        };
        for (number, name) in ["a", "b", "c", "a", "d"].into_iter().enumerate() {
            write(name, number);
        }
        let mut kept = functions(&audit, 100);
        kept.sort();
        assert_eq!(kept, ["f0000", "f0002", "f0003", "f0004"]);
    }
}
