//! Reading a log: from some lines before its end, in pieces, and then perhaps what is written from there on.
//!
//! A reader holds a file and one piece: many readers may be idle for long.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::file::{Rotation, path};
use super::line::{Entry, is_entry, stamp};

/// Least time between two looks at the file: a busy neighbour's output wakes every follower.
const PAUSE: Duration = Duration::from_millis(20);

/// Most bytes taken at one look.
const CHUNK: u64 = 64 << 10;

/// Reads a function's log from a certain line on.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    rotation: Rotation,
    written: watch::Receiver<u64>,
    file: Option<File>,
    position: u64,
    partial: Vec<u8>,
    /// Bytes to the end that the log had at the beginning; none: what is written later is read, too.
    left: Option<u64>,
}

impl Reader {
    /// Begins so many entries before the end, and ends there. Blocks on disk.
    pub(super) fn back(
        dir: PathBuf,
        rotation: Rotation,
        mut written: watch::Receiver<u64>,
        entries: usize,
    ) -> io::Result<Self> {
        written.mark_unchanged();
        let file = open(&path(&dir, 0))?;
        let (partial, left) = (Vec::new(), Some(0));
        let mut this = Self { dir, rotation, written, file, position: 0, partial, left };
        this.go_back(entries)?;
        Ok(this)
    }

    /// The same, which goes on with what is written later.
    #[must_use]
    pub fn following(self) -> Self {
        Self { left: None, ..self }
    }

    /// Whether nothing more comes of it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    /// Waits for the next entries; none when it is over, or the logs have ended.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<Vec<Entry>>> {
        while !self.is_over() {
            match self.look()? {
                // A part of a long line.
                Some(entries) if entries.is_empty() => {}
                Some(entries) => return Ok(Some(entries)),
                // What was there was rotated away, or removed.
                None if self.left.is_some() => return Ok(None),
                None if self.written.changed().await.is_err() => return Ok(None),
                None => tokio::time::sleep(PAUSE).await,
            }
        }
        Ok(None)
    }

    fn go_back(&mut self, mut entries: usize) -> io::Result<()> {
        let (mut left, mut number) = (0, 0);
        while let Some(file) = &self.file {
            let size = file.metadata()?.len();
            let (there, _) = pass(file, size, usize::MAX)?;
            (_, self.position) = pass(file, size, there.saturating_sub(entries))?;
            left += size - self.position;
            entries = entries.saturating_sub(there);
            if entries == 0 {
                break;
            }
            let Some(older) = self.older(&mut number)? else { break };
            self.file = Some(older);
        }
        self.left = Some(left);
        Ok(())
    }

    /// The file that was ended before the one that is read: none with a number up to this. It may have got a higher one
    /// since that was opened.
    fn older(&self, number: &mut usize) -> io::Result<Option<File>> {
        let ours = self.file.as_ref().map(identity).transpose()?;
        while *number + 1 < self.rotation.files {
            *number += 1;
            let Some(file) = open(&path(&self.dir, *number))? else { break };
            if Some(identity(&file)?) != ours {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Takes what is there now; none: nothing.
    fn look(&mut self) -> io::Result<Option<Vec<Entry>>> {
        let mut taken = self.read_on()?;
        let mut entries = Vec::new();
        while taken.is_empty() {
            let Newer { file: Some(newer), passed_over } = self.newer()? else { break };
            // The old file grows no more: what it was given before it was rotated comes first.
            taken = self.read_on()?;
            if !taken.is_empty() {
                break;
            }
            if passed_over {
                entries.push(Entry {
                    time: stamp(SystemTime::now()),
                    invocation: "-".to_owned(),
                    stream: "stderr".to_owned(),
                    text: "lambswool: lines were rotated away before they could be shown"
                        .to_owned(),
                });
            }
            (self.file, self.position) = (Some(newer), 0);
            taken = self.read_on()?;
        }
        if taken.is_empty() && entries.is_empty() {
            return Ok(None);
        }
        self.partial.extend_from_slice(&taken);
        let end = self.partial.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let rest = self.partial.split_off(end);
        let whole = std::mem::replace(&mut self.partial, rest);
        let lines = String::from_utf8_lossy(&whole);
        entries.extend(lines.lines().filter_map(|line| line.parse::<Entry>().ok()));
        Ok(Some(entries))
    }

    fn read_on(&mut self) -> io::Result<Vec<u8>> {
        let mut taken = Vec::new();
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(self.position))?;
            let most = self.left.map_or(CHUNK, |left| left.min(CHUNK));
            let read = file.take(most).read_to_end(&mut taken)? as u64;
            self.position += read;
            self.left = self.left.map(|left| left - read);
        }
        Ok(taken)
    }

    /// The file that was begun after the one that is read; of a log that has lost that one, the oldest.
    fn newer(&self) -> io::Result<Newer> {
        let ours = self.file.as_ref().map(identity).transpose()?;
        let mut newer = Newer { file: None, passed_over: false };
        // Files become older meanwhile, never newer: in this order none is missed.
        for number in 0..self.rotation.files.max(1) {
            let Some(file) = open(&path(&self.dir, number))? else { continue };
            if Some(identity(&file)?) == ours {
                return Ok(Newer { passed_over: false, ..newer });
            }
            newer = Newer { file: Some(file), passed_over: ours.is_some() && number > 0 };
        }
        Ok(newer)
    }
}

/// Where a follower goes on.
struct Newer {
    file: Option<File>,
    /// Whether files between are gone.
    passed_over: bool,
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|meta| (meta.dev(), meta.ino()))
}

/// Passes over so many entries from the beginning of a file of that size, or all: how many, and where the next begins.
fn pass(mut file: &File, size: u64, most: usize) -> io::Result<(usize, u64)> {
    file.seek(SeekFrom::Start(0))?;
    let mut reader = BufReader::with_capacity(64 << 10, file.take(size));
    let (mut passed, mut position, mut line) = (0, 0, Vec::new());
    while passed < most && reader.read_until(b'\n', &mut line)? > 0 {
        position += line.len() as u64;
        passed += usize::from(is_entry(&line));
        line.clear();
    }
    Ok((passed, position))
}

#[cfg(test)]
mod tests {
    use super::super::file::Files;
    use super::*;

    fn line(text: &str) -> impl FnOnce(&mut Vec<u8>) {
        let line = format!("t id stdout {text}\n");
        move |out| out.extend_from_slice(line.as_bytes())
    }

    #[tokio::test]
    async fn a_follower_reads_on_across_a_rotation() {
        let root = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 100, files: 3 };
        let mut files = Files::new(root.path().to_owned(), rotation);
        let (moved, written) = watch::channel(0);
        files.append("f", &engine::VersionId("1".into()), || true, line("before"));
        files.flush();
        let begun = Reader::back(root.path().join("f"), rotation, written, 0);
        let mut follower = begun.unwrap().following();
        let mut seen = Vec::new();
        for n in 0..40 {
            files.append("f", &engine::VersionId("1".into()), || true, line(&n.to_string()));
            files.flush();
            moved.send_modify(|count| *count += 1);
            seen.extend(
                follower.next().await.unwrap().unwrap().into_iter().map(|entry| entry.text),
            );
        }
        assert_eq!(seen, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
        drop(moved);
        assert!(follower.next().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_follower_that_falls_behind_reads_every_file_and_tells_what_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 100, files: 4 };
        let mut files = Files::new(root.path().to_owned(), rotation);
        let (moved, written) = watch::channel(0);
        let begun = Reader::back(root.path().join("f"), rotation, written, 0);
        let mut follower = begun.unwrap().following();
        let mut next = 0;
        let mut write = |count: usize| {
            for n in next..next + count {
                files.append("f", &engine::VersionId("1".into()), || true, line(&n.to_string()));
                files.flush();
            }
            next += count;
            moved.send_modify(|count| *count += 1);
        };
        let mut seen = async |last: &str| {
            let mut texts = Vec::new();
            while texts.last().is_none_or(|text| text != last) {
                let entries = follower.next().await.unwrap().unwrap();
                texts.extend(entries.into_iter().map(|entry| entry.text));
            }
            texts
        };
        // Each file takes six lines or seven, so that the first reader is two files behind and the second all of them.
        write(18);
        assert_eq!(seen("17").await, (0..18).map(|n| n.to_string()).collect::<Vec<_>>());
        write(100);
        let texts = seen("117").await;
        let (told, numbers): (Vec<&String>, Vec<&String>) =
            texts.iter().partition(|text| text.contains("rotated away"));
        let kept: Vec<usize> = numbers.iter().map(|text| text.parse().unwrap()).collect();
        let gaps = kept.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
        assert_eq!((told.len(), gaps, kept[0], kept.len() < 100), (1, 1, 18, true), "{texts:?}");
    }

    #[tokio::test]
    async fn a_tail_reaches_back_into_older_files_and_ends_where_it_was_asked_for() {
        let root = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 100, files: 3 };
        let mut files = Files::new(root.path().to_owned(), rotation);
        let (_moved, written) = watch::channel(0);
        let mut write = |numbers: std::ops::Range<usize>| {
            for n in numbers {
                files.append("f", &engine::VersionId("1".into()), || true, line(&n.to_string()));
                files.flush();
            }
        };
        write(0..14);
        let back =
            |lines| Reader::back(root.path().join("f"), rotation, written.clone(), lines).unwrap();
        let texts = async |mut reader: Reader| {
            let mut texts = Vec::new();
            while let Some(entries) = reader.next().await.unwrap() {
                texts.extend(entries.into_iter().map(|entry| entry.text));
            }
            assert!(reader.is_over());
            texts
        };
        assert_eq!(texts(back(3)).await, ["11", "12", "13"]);
        let nine: Vec<String> = (5..14).map(|n| n.to_string()).collect();
        assert_eq!(texts(back(9)).await, nine);
        assert!(texts(back(1000)).await.len() >= 9 && texts(back(0)).await.is_empty());
        // What is written, and rotated, meanwhile is not its.
        let begun = back(9);
        write(14..18);
        assert_eq!(texts(begun).await, nine);
    }

    #[tokio::test]
    async fn a_long_log_is_read_in_pieces_and_a_line_longer_than_one_whole() {
        let root = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 1 << 20, files: 3 };
        let mut files = Files::new(root.path().to_owned(), rotation);
        let (_moved, written) = watch::channel(0);
        let long = "x".repeat(200_000);
        files.append("f", &engine::VersionId("1".into()), || true, line(&long));
        for n in 0..5000 {
            files.append("f", &engine::VersionId("1".into()), || true, line(&format!("{n:0>100}")));
        }
        files.flush();
        let mut reader = Reader::back(root.path().join("f"), rotation, written, 6000).unwrap();
        let (mut texts, mut pieces) = (Vec::new(), 0);
        while let Some(entries) = reader.next().await.unwrap() {
            let size: usize = entries.iter().map(|entry| entry.text.len()).sum();
            assert!(size as u64 <= 4 * CHUNK, "{size} at once");
            texts.extend(entries.into_iter().map(|entry| entry.text));
            pieces += 1;
        }
        assert_eq!(
            (texts.len(), &texts[0], texts[5000].trim_start_matches('0')),
            (5001, &long, "4999")
        );
        assert!(pieces > 5, "{pieces}");
    }
}
