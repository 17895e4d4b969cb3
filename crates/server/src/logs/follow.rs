//! Reading a log: its end, and then what is written from there on.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::file::{Rotation, path};
use super::line::{Entry, stamp};

/// Least time between two looks at the file: a busy neighbour's output wakes every follower.
const PAUSE: Duration = Duration::from_millis(20);

/// Most bytes taken at one look.
const CHUNK: u64 = 1 << 20;

/// Reads what is written to a function's log from a certain moment on.
#[derive(Debug)]
pub struct Follower {
    dir: PathBuf,
    rotation: Rotation,
    written: watch::Receiver<u64>,
    file: Option<File>,
    position: u64,
    partial: Vec<u8>,
}

impl Follower {
    pub(super) fn at_end(
        dir: PathBuf,
        rotation: Rotation,
        mut written: watch::Receiver<u64>,
    ) -> io::Result<Self> {
        written.mark_unchanged();
        let file = open(&path(&dir, 0))?;
        let position = file.as_ref().map_or(Ok(0), |f| f.metadata().map(|m| m.len()))?;
        Ok(Self { dir, rotation, written, file, position, partial: Vec::new() })
    }

    /// Waits for the next entries; none when the logs have ended.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn next(&mut self) -> io::Result<Option<Vec<Entry>>> {
        loop {
            let entries = self.look()?;
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
            if self.written.changed().await.is_err() {
                return Ok(None);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Takes what is there now.
    fn look(&mut self) -> io::Result<Vec<Entry>> {
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
        self.partial.extend_from_slice(&taken);
        let end = self.partial.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let rest = self.partial.split_off(end);
        let whole = std::mem::replace(&mut self.partial, rest);
        let lines = String::from_utf8_lossy(&whole);
        entries.extend(lines.lines().filter_map(|line| line.parse::<Entry>().ok()));
        Ok(entries)
    }

    fn read_on(&mut self) -> io::Result<Vec<u8>> {
        let mut taken = Vec::new();
        if let Some(file) = &mut self.file {
            file.seek(SeekFrom::Start(self.position))?;
            self.position += file.take(CHUNK).read_to_end(&mut taken)? as u64;
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

/// The last entries before a follower's beginning, oldest first.
pub(super) fn tail(
    dir: &Path,
    rotation: Rotation,
    lines: usize,
    follower: &Follower,
) -> io::Result<Vec<Entry>> {
    let mut newest_first: Vec<Entry> = Vec::new();
    for number in 0..rotation.files.max(1) {
        if newest_first.len() >= lines {
            break;
        }
        // The follower's own file, not the path: it may have been rotated between the two.
        let file = match (number, &follower.file) {
            (0, Some(file)) => file.try_clone()?,
            (0, None) => continue,
            _ => match File::open(path(dir, number)) {
                Ok(file) => file,
                Err(_) => break,
            },
        };
        let limit = if number == 0 { follower.position } else { u64::MAX };
        let mut reader = BufReader::new(file);
        reader.seek(SeekFrom::Start(0))?;
        let mut entries: std::collections::VecDeque<Entry> = std::collections::VecDeque::new();
        let mut line = Vec::new();
        let mut reader = reader.take(limit);
        while reader.read_until(b'\n', &mut line)? > 0 {
            if let Ok(entry) = String::from_utf8_lossy(&line).trim_end_matches('\n').parse() {
                entries.push_back(entry);
            }
            if entries.len() > lines - newest_first.len() {
                entries.pop_front();
            }
            line.clear();
        }
        newest_first.extend(entries.into_iter().rev());
    }
    newest_first.reverse();
    Ok(newest_first)
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
        files.append("f", line("before"));
        files.flush();
        let mut follower = Follower::at_end(root.path().join("f"), rotation, written).unwrap();
        let mut seen = Vec::new();
        for n in 0..40 {
            files.append("f", line(&n.to_string()));
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
        let mut follower = Follower::at_end(root.path().join("f"), rotation, written).unwrap();
        let mut next = 0;
        let mut write = |count: usize| {
            for n in next..next + count {
                files.append("f", line(&n.to_string()));
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

    #[test]
    fn a_tail_reaches_back_into_older_files() {
        let root = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 100, files: 3 };
        let mut files = Files::new(root.path().to_owned(), rotation);
        for n in 0..14 {
            files.append("f", line(&n.to_string()));
            files.flush();
        }
        let dir = root.path().join("f");
        let (_moved, written) = watch::channel(0);
        let follower = Follower::at_end(dir.clone(), rotation, written).unwrap();
        let texts = |lines| -> Vec<String> {
            tail(&dir, rotation, lines, &follower)
                .unwrap()
                .into_iter()
                .map(|entry| entry.text)
                .collect()
        };
        assert_eq!(texts(3), ["11", "12", "13"]);
        assert_eq!(texts(9), (5..14).map(|n| n.to_string()).collect::<Vec<_>>());
        assert!(texts(1000).len() >= 9 && texts(0).is_empty());
    }
}
