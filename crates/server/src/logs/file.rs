//! The files of a log: the current one and its older siblings.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::seldom::Seldom;

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
}

impl Files {
    pub(super) fn new(root: PathBuf, rotation: Rotation) -> Self {
        Self { root, rotation, open: HashMap::new() }
    }

    /// Has `render` append to what is to be written to a function's log.
    pub(super) fn append(&mut self, name: &str, render: impl FnOnce(&mut Vec<u8>)) {
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
        render(&mut current.pending);
        // A batch may be large: rotate within it, so that no file grows far beyond its size.
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

    fn flush_one(&mut self, name: &str) {
        let dir = self.root.join(name);
        let Some(current) = self.open.get_mut(name) else { return };
        let wrote = current.flush().and_then(|()| {
            if current.size < self.rotation.bytes {
                return Ok(());
            }
            rotate(&dir, self.rotation)?;
            *current = Current::open(&dir)?;
            Ok(())
        });
        if let Err(error) = wrote {
            tell(name, &error);
            // Opened anew next time: the directory may have been removed by hand.
            self.open.remove(name);
        }
    }
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
pub(crate) fn open_lines(options: &mut OpenOptions, path: &Path) -> io::Result<(File, u64)> {
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
        Ok(Self { file, size, pending: Vec::new() })
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        self.file.write_all(&pending)?;
        self.size += pending.len() as u64;
        Ok(())
    }
}

/// The log's file number `n`: 0 is the current one, larger numbers are older.
pub(crate) fn path(dir: &Path, number: usize) -> PathBuf {
    if number == 0 { dir.join("current.log") } else { dir.join(format!("{number}.log")) }
}

/// Makes each file one older; the oldest is overwritten or removed.
pub(crate) fn rotate(dir: &Path, rotation: Rotation) -> io::Result<()> {
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
    use super::*;

    #[test]
    fn a_log_never_takes_more_than_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 1000, files: 3 };
        let mut files = Files::new(dir.path().to_owned(), rotation);
        for n in 0..200 {
            files.append("f", |out| out.extend_from_slice(format!("{n:099}\n").as_bytes()));
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
    fn a_line_that_was_cut_off_takes_nothing_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("f/current.log");
        fs::create_dir_all(dir.path().join("f")).unwrap();
        fs::write(&log, "whole\nhal").unwrap();
        let mut files = Files::new(dir.path().to_owned(), Rotation { bytes: 1 << 20, files: 2 });
        files.append("f", |out| out.extend_from_slice(b"next\n"));
        files.flush();
        assert_eq!(fs::read_to_string(&log).unwrap(), "whole\nhal\nnext\n");
    }

    #[test]
    fn more_functions_than_files_held_open_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Files::new(dir.path().to_owned(), Rotation { bytes: 1 << 20, files: 2 });
        for round in 0..2 {
            for n in 0..OPEN + 10 {
                files.append(&format!("f{n}"), |out| {
                    out.extend_from_slice(format!("{round}\n").as_bytes())
                });
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
