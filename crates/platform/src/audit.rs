//! What was changed, by whom: a line of JSON for each control action.
//!
//! ```text
//!   STATE/audit/current.log ──► 1.log ──► …        what administrators did; mode 0600, rotated by size
//!               refused/                           what they were refused, likewise
//!               anyone/, anyone/refused/           whoever showed no token while none was asked for
//!               tenants/NAME/, …/NAME/refused/     whoever has a token of that tenant, whomever it was about
//!               others/, others/refused/           tenants for whom there was no place among those
//! ```
//!
//! Each of them is rotated by itself: whatever a tenant that has one does, and however often, it pushes out no line of another's or
//! of an administrator's, and nobody pushes out one of its. No tenant is forgotten for another's sake: those that come when all
//! places are taken have one log together, in which each can push out what the others did. A place is free again when somebody
//! removes its directory. Read, they are one list. Releases before this one kept all that was done in the first: what they
//! wrote is read where it is.
//!
//! What was refused, or failed, is apart: however often somebody tries, it pushes out nothing that was done. So is what whoever
//! asked gave up before it was begun. What was begun goes on without him, and says itself what came of it. A line is in the
//! file before the action's answer is on its way; it is not forced to the disk. Nothing of a body, a token or a secret's
//! value is in it. Who shows no token, or one that is unknown, leaves no line while tokens are asked for: whoever can reach the
//! port could otherwise fill a disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::Caller;
use crate::logs::{Rotation, numbered, open_lines, rotate};
use function::Label;

/// How much of it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Of what administrators did, and as much of what they were refused.
    pub administrators: Rotation,
    /// Of what those of one tenant did, and as much of what they were refused. So for whoever shows no token.
    pub tenant: Rotation,
    /// Tenants that have a log of their own: the first that do something. All others have one together, of the same size.
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
const OTHERS: &str = "others";

/// What comes of an action that was not begun: whoever asked has gone before.
pub const UNANSWERED: &str = "unanswered";

/// What comes of an action that was begun, and of which nobody says how it ended: the worker's own fault, or its end.
pub const BROKE_OFF: &str = "broke-off";

/// The time as lines have it: fine enough to tell by it which of two came first.
pub fn now() -> String {
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
    /// What, in one word or two: `deploy`, `remove`, `token create`; `give way`, of a function that went so that another had room.
    pub action: String,
    /// About which function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The version that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What else it was about: a token's name, a secret's, or the function that another gave way to.
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
    /// Held while files are written, or change their names, and while those of a log are opened to be read. They are opened for
    /// each line: it is the rare thing, and there may be many tenants.
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
        let (dir, rotation) = self.log_of(among);
        let dir = if done { dir } else { dir.join(REFUSED) };
        if let Err(error) = append(&dir, &line, rotation) {
            let line = String::from_utf8_lossy(&line);
            tracing::error!(%error, line = line.trim_end(), "the audit log cannot be written");
        }
    }

    /// Where lines of theirs go, and how many stay.
    fn log_of(&self, among: &Among) -> (PathBuf, Rotation) {
        let Bounds { administrators, tenant: rotation, tenants } = self.bounds;
        let tenant = match among {
            Among::Administrators => return (self.dir.clone(), administrators),
            Among::Anyone => return (self.dir.join(ANYONE), rotation),
            Among::Tenant(tenant) => tenant.as_str(),
        };
        let own = self.dir.join(TENANTS).join(tenant);
        // Where nobody can tell how many there are, a line is better kept among others' than not at all.
        let has_place = own.exists() || self.tenants().is_ok_and(|there| there.len() < tenants);
        (if has_place { own } else { self.dir.join(OTHERS) }, rotation)
    }

    /// The directories of tenants.
    fn tenants(&self) -> io::Result<Vec<PathBuf>> {
        match fs::read_dir(self.dir.join(TENANTS)) {
            Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The last actions of all, oldest first. Blocks on disk, and keeps nobody from writing meanwhile.
    ///
    /// # Errors
    /// When the files cannot be read.
    pub fn read(&self, most: usize) -> io::Result<Vec<Action>> {
        let shared = [ANYONE, OTHERS].map(|name| self.dir.join(name));
        let logs = [self.dir.clone()].into_iter().chain(shared).chain(self.tenants()?);
        let mut last = Vec::new();
        for log in logs {
            for dir in [log.join(REFUSED), log] {
                last.extend(read(self.files(&dir)?, most)?);
                // Times in one format and zone compare as text. Never are more kept than twice what is asked for.
                last.sort_by(|one: &Action, other| one.time.cmp(&other.time));
                last.drain(..last.len().saturating_sub(most));
            }
        }
        Ok(last)
    }

    /// The files of a log as they are at one moment, newest first, each with the bytes that it has then: what is renamed or
    /// written afterwards is read neither twice nor in part.
    fn files(&self, dir: &Path) -> io::Result<Vec<(File, u64)>> {
        let most = self.bounds.administrators.files.max(self.bounds.tenant.files);
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut files = Vec::new();
        for number in 0..most {
            match File::open(numbered(dir, number)) {
                Ok(file) => {
                    let bytes = file.metadata()?.len();
                    files.push((file, bytes));
                }
                // The newest may be missing, where the last rotation was cut off.
                Err(error) if error.kind() == io::ErrorKind::NotFound && number == 0 => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(error),
            }
        }
        Ok(files)
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

/// The last actions of a log, oldest first: older files are not looked at where the newer ones have as many.
fn read(newest_first: Vec<(File, u64)>, most: usize) -> io::Result<Vec<Action>> {
    let mut actions = Vec::new();
    for (file, bytes) in newest_first {
        if actions.len() >= most {
            break;
        }
        let mut text = Vec::new();
        file.take(bytes).read_to_end(&mut text)?;
        // One that a crash or a full disk cut off, if within a character, is no action.
        let lines = text.rsplit(|byte| *byte == b'\n');
        let here = lines.filter_map(|line| serde_json::from_slice(line).ok());
        actions.extend(here.take(most - actions.len()));
    }
    actions.reverse();
    Ok(actions)
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
    fn no_tenant_is_forgotten_however_many_others_come_and_however_much_they_do() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        let write = |name: &str, action: &Action| {
            audit.write(&Among::Tenant(name.parse().unwrap()), action);
        };
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            write(name, &action(number));
        }
        for number in 100..1000 {
            let result = ["ok", "wrong-scope"][number % 2].to_owned();
            write(["d", "e", "f"][number % 3], &Action { result, ..action(number) });
        }
        write("a", &action(3));
        let kept = functions(&audit, 10_000);
        for number in [0, 1, 2, 3, 998, 999] {
            assert!(kept.contains(&format!("f{number:04}")), "{number}: {kept:?}");
        }
        assert!(kept.len() <= 4 + 2 * 30, "they are bounded together: {}", kept.len());
        // Somebody has made room.
        fs::remove_dir_all(dir.path().join("tenants/b")).unwrap();
        write("d", &action(4));
        assert!(dir.path().join("tenants/d/current.log").exists());
    }

    #[test]
    fn a_line_is_written_though_nobody_can_tell_how_many_tenants_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        fs::write(dir.path().join("tenants"), "").unwrap();
        audit.write(&Among::Tenant("a".parse().unwrap()), &action(7));
        fs::remove_file(dir.path().join("tenants")).unwrap();
        assert_eq!(functions(&audit, 10), ["f0007"]);
    }

    #[test]
    fn older_files_are_not_read_where_newer_ones_have_as_much_as_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let audit = Audit::open(dir.path(), bounds(10)).unwrap();
        for number in 0..12 {
            audit.write(&Among::Administrators, &action(number));
        }
        // What cannot be read.
        fs::create_dir(numbered(dir.path(), 2)).unwrap();
        assert_eq!(functions(&audit, 2), ["f0010", "f0011"]);
        assert_eq!(functions(&audit, 12).len(), 12);
        assert!(audit.read(13).is_err());
    }

    #[test]
    fn what_is_written_while_it_is_read_neither_doubles_nor_loses_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let Bounds { administrators, .. } = bounds(1);
        // Nothing is old enough to go: no line may be missing.
        let administrators = Rotation { files: 300, ..administrators };
        let audit = Audit::open(dir.path(), Bounds { administrators, ..bounds(1) }).unwrap();
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                (0..250).for_each(|number| audit.write(&Among::Administrators, &action(number)));
            });
            while !writing.is_finished() {
                let expected = (0..).map(|number| format!("f{number:04}"));
                let read = functions(&audit, 1000);
                assert!(read.iter().cloned().eq(expected.take(read.len())), "{read:?}");
            }
        });
    }
}
