//! The files of a log: the current one and its older siblings.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::VersionId;

use crate::throttled_log::Seldom;

/// When a log is rotated, and how much of it stays.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// Size at which the current file becomes an older one.
    pub bytes: u64,
    /// Files kept, the current one included; at least one.
    pub files: usize,
}

/// Files held open at a time; the rest are opened again when needed.
const OPEN: usize = 64;

/// Versions of a function that are remembered to be its own.
const VERSIONS: usize = 8;

/// The current files of all functions, for one writer.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
    rotation: Rotation,
    open: HashMap<String, Current>,
}

#[derive(Debug)]
struct Current {
    file: File,
    size: u64,
    pending: Vec<u8>,
    /// Versions that were found to be of its function, the last first: these are not asked about again.
    versions: Vec<VersionId>,
}

impl Files {
    pub(super) fn new(root: PathBuf, rotation: Rotation) -> Self {
        Self { root, rotation, open: HashMap::new() }
    }

    /// Has `render` append to what is to be written to the log of a version's function, if that `is_there`: a call that
    /// outlives its function must neither bring its log back nor write into the next one's of that name.
    pub(super) fn append(
        &mut self,
        name: &str,
        version: &VersionId,
        is_there: impl FnOnce() -> bool,
        render: impl FnOnce(&mut Vec<u8>),
    ) {
        let known = self.open.get(name).is_some_and(|current| current.versions.contains(version));
        if !known && !is_there() {
            return;
        }
        if !self.open.contains_key(name) {
            if self.open.len() >= OPEN {
                self.flush();
                self.open.clear();
            }
            match Current::open(&self.root.join(name)) {
                Ok(current) => drop(self.open.insert(name.to_owned(), current)),
                Err(error) => {
                    tell(name, &error);
                    return;
                }
            }
        }
        let Some(current) = self.open.get_mut(name) else { return };
        if !known {
            current.versions.truncate(VERSIONS - 1);
            current.versions.insert(0, version.clone());
        }
        render(&mut current.pending);
        // A batch may be large: write within it, so that not much waits in memory.
        if current.pending.len() as u64 + current.size >= self.rotation.bytes {
            self.flush_one(name);
        }
    }

    /// Writes what is pending.
    pub(super) fn flush(&mut self) {
        let names: Vec<String> = self
            .open
            .iter()
            .filter(|(_, c)| !c.pending.is_empty())
            .map(|(n, _)| n.clone())
            .collect();
        for name in names {
            self.flush_one(&name);
        }
    }

    /// Removes a function's log.
    pub(super) fn remove(&mut self, name: &str) {
        self.open.remove(name);
        drop(fs::remove_dir_all(self.root.join(name)));
    }

    /// Asks anew of whom a function's log is: another of that name has come in its place.
    pub(super) fn doubt(&mut self, name: &str) {
        if let Some(current) = self.open.get_mut(name) {
            current.versions.clear();
        }
    }

    /// Removes the logs that are none of these: what a worker left behind that died amid a removal.
    pub(super) fn keep_only(&self, names: &HashSet<String>) {
        for entry in directories(&self.root) {
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !name.starts_with('@') {
                self.remove_unless_in(names, &name);
                continue;
            }
            for entry in directories(&entry.path()) {
                let Ok(own) = entry.file_name().into_string() else { continue };
                self.remove_unless_in(names, &format!("{name}/{own}"));
            }
            // Stays where a function's log does.
            drop(fs::remove_dir(entry.path()));
        }
    }

    fn remove_unless_in(&self, names: &HashSet<String>, name: &str) {
        if names.contains(name) {
            return;
        }
        match fs::remove_dir_all(self.root.join(name)) {
            Ok(()) => tracing::info!(function = name, "removed the log of a function that is gone"),
            Err(error) => {
                tracing::warn!(function = name, %error, "the log of a function that is gone stays");
            }
        }
    }

    fn flush_one(&mut self, name: &str) {
        let dir = self.root.join(name);
        let Some(current) = self.open.get_mut(name) else { return };
        let wrote = current.flush(&dir, self.rotation);
        if let Err(error) = wrote {
            tell(name, &error);
            // Opened anew next time: the directory may have been removed by hand.
            self.open.remove(name);
        }
    }
}

/// What cannot be listed has none.
fn directories(of: &Path) -> impl Iterator<Item = DirEntry> + use<> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
}

/// A function can print as often as it likes.
fn tell(function: &str, error: &io::Error) {
    static LOST: Seldom = Seldom::new(Duration::from_secs(10));
    if let Some(unsaid) = LOST.now(Instant::now()) {
        tracing::warn!(function, %error, unsaid, "output is lost: its log cannot be written");
    }
}

/// Opens a file of lines to append to, and makes it if there is none; and its bytes.
///
/// # Errors
/// When it cannot be opened, read or written.
pub fn open_lines(options: &mut OpenOptions, path: &Path) -> io::Result<(File, u64)> {
    let mut file = options.create(true).read(true).append(true).open(path)?;
    let mut size = file.metadata()?.len();
    let mut last = [b'\n'];
    if size > 0 {
        file.read_exact_at(&mut last, size - 1)?;
    }
    if last != [b'\n'] {
        // A crash or a full disk cut the last line off: it must not take the next one with it.
        file.write_all(b"\n")?;
        size += 1;
    }
    Ok((file, size))
}

impl Current {
    fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let (file, size) = open_lines(&mut OpenOptions::new(), &dir.join("current.log"))?;
        Ok(Self { file, size, pending: Vec::new(), versions: Vec::new() })
    }

    /// Writes what is pending, and rotates as often as it takes: no file is longer than it may be by more than a line.
    fn flush(&mut self, dir: &Path, rotation: Rotation) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let (mut rest, most) = (&pending[..], rotation.bytes.max(1));
        loop {
            let (now, later) = rest.split_at(whole_lines(rest, most.saturating_sub(self.size)));
            self.file.write_all(now)?;
            self.size += now.len() as u64;
            if self.size < most {
                return Ok(());
            }
            rotate(dir, rotation)?;
            let versions = std::mem::take(&mut self.versions);
            *self = Self { versions, ..Self::open(dir)? };
            rest = later;
        }
    }
}

/// Where the line ends that fills so many bytes; the end of all, where they are fewer.
fn whole_lines(lines: &[u8], bytes: u64) -> usize {
    let Some(before) = bytes.checked_sub(1) else { return 0 };
    let before = usize::try_from(before).unwrap_or(usize::MAX).min(lines.len());
    let end = lines[before..].iter().position(|byte| *byte == b'\n');
    end.map_or(lines.len(), |end| before + end + 1)
}

/// The log's file number `n`: 0 is the current one, larger numbers are older.
pub fn path(dir: &Path, number: usize) -> PathBuf {
    if number == 0 { dir.join("current.log") } else { dir.join(format!("{number}.log")) }
}

/// Makes each file one older; the oldest is overwritten or removed.
pub fn rotate(dir: &Path, rotation: Rotation) -> io::Result<()> {
    if rotation.files <= 1 {
        return fs::remove_file(path(dir, 0));
    }
    for number in (0..rotation.files - 1).rev() {
        match fs::rename(path(dir, number), path(dir, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn version() -> VersionId {
        VersionId(Arc::from("1"))
    }

    #[test]
    fn a_log_never_takes_more_than_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 1000, files: 3 };
        let mut files = Files::new(dir.path().to_owned(), rotation);
        for n in 0..200 {
            files.append(
                "f",
                &version(),
                || true,
                |out| out.extend_from_slice(format!("{n:099}\n").as_bytes()),
            );
            if n % 7 == 0 {
                files.flush();
            }
        }
        files.flush();
        let log = dir.path().join("f");
        let sizes: Vec<u64> =
            fs::read_dir(&log).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).collect();
        assert!(sizes.len() <= 3 && sizes.iter().all(|size| *size <= 1100), "{sizes:?}");
        let newest = [
            fs::read_to_string(path(&log, 0)).unwrap(),
            fs::read_to_string(path(&log, 1)).unwrap(),
        ]
        .join("");
        assert!(newest.contains(&format!("{:099}", 199)));
    }

    #[test]
    fn a_piece_that_is_longer_than_a_file_fills_one_after_the_other() {
        for bytes in [0, 1, 100, 1000, 1050] {
            let dir = tempfile::tempdir().unwrap();
            let mut files = Files::new(dir.path().to_owned(), Rotation { bytes, files: 100 });
            let lines: Vec<String> = (0..30).map(|number| format!("{number:099}\n")).collect();
            let piece = lines.concat();
            for _ in 0..2 {
                files.append(
                    "f",
                    &version(),
                    || true,
                    |out| out.extend_from_slice(piece.as_bytes()),
                );
            }
            files.flush();
            let log = dir.path().join("f");
            let of =
                (0..100).rev().filter_map(|number| fs::read_to_string(path(&log, number)).ok());
            let of: Vec<String> = of.collect();
            assert!(of.iter().all(|file| (file.len() as u64) < bytes.max(1) + 100), "{bytes}");
            assert!(of.iter().rev().skip(1).all(|file| file.len() as u64 >= bytes), "{bytes}");
            assert_eq!(of.concat(), piece.repeat(2), "{bytes}");
        }
    }

    #[test]
    fn a_line_that_was_cut_off_takes_nothing_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("f/current.log");
        fs::create_dir_all(dir.path().join("f")).unwrap();
        fs::write(&log, "whole\nhal").unwrap();
        let mut files = Files::new(dir.path().to_owned(), Rotation { bytes: 1 << 20, files: 2 });
        files.append("f", &version(), || true, |out| out.extend_from_slice(b"next\n"));
        files.flush();
        assert_eq!(fs::read_to_string(&log).unwrap(), "whole\nhal\nnext\n");
    }

    #[test]
    fn more_functions_than_files_held_open_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::new(dir.path().to_owned(), Rotation { bytes: 1 << 20, files: 2 });
        for round in 0..2 {
            for n in 0..OPEN + 10 {
                files.append(
                    &format!("f{n}"),
                    &version(),
                    || true,
                    |out| out.extend_from_slice(format!("{round}\n").as_bytes()),
                );
            }
        }
        files.flush();
        for n in 0..OPEN + 10 {
            assert_eq!(
                fs::read_to_string(dir.path().join(format!("f{n}/current.log"))).unwrap(),
                "0\n1\n"
            );
        }
    }
}
