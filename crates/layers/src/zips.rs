//! Opening strangers' zip archives.
//!
//! ```text
//!   ZipArchive::new ──read, seek──► Watched ──► the archive
//!                                      └ refuses once too much was read, or an end record tells of too many entries
//! ```
//!
//! `ZipArchive` reads the whole list of entries before a caller can look at it: some six hundred
//! bytes for each. There may be several end records, of which it tries one after the other. So the
//! limits are not taken from what one of them says but from what the reader sees, whichever it
//! follows.
//!
//! Of several entries with one name it keeps one, and does not say so. So the list that it read is
//! counted again, header by header, from where it began. Where both counts agree each name stands
//! there once, and nothing lies behind what the end record tells of.

use std::cell::{Cell, RefCell, RefMut};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

use zip::ZipArchive;

/// Most entries, folders and those that are left out included. Without the 64-bit end record there
/// are at most 65 535.
pub const MAX_ENTRIES: u64 = 100_000;

/// Most bytes that are read to learn which entries there are. A hundred thousand paths of two
/// hundred bytes have as many.
const MAX_LIST: u64 = 32 << 20;

/// Begins the 64-bit end record; the number of entries stands in it.
const END: &[u8] = b"PK\x06\x06";
const ENTRIES: std::ops::Range<usize> = 32..40;

/// Begins what the list says of one entry: its fixed part, and where in that the lengths of name,
/// extra fields and comment stand.
const HEADER: &[u8] = b"PK\x01\x02";
const HEADER_LENGTH: usize = 46;
const LENGTHS: [usize; 3] = [28, 30, 32];

/// Other readers would find something else in it.
const AMBIGUOUS: &str =
    "its list of entries names one of them twice, or has more than its end record tells";

/// The archive's reader, with limits while the list of entries is read.
#[derive(Debug)]
pub struct Watched<R> {
    archive: Rc<RefCell<R>>,
    watch: Rc<Watch>,
}

#[derive(Debug)]
struct Watch {
    /// How many bytes may still be read; none once there is no limit any more.
    left: Cell<Option<u64>>,
    refused: Cell<Option<Refused>>,
}

#[derive(Clone, Copy, Debug)]
enum Refused {
    Long,
    Many,
}

/// Opens an archive that has at most [`MAX_ENTRIES`] entries, each name once.
///
/// # Errors
/// With the reason, as a clause about the archive.
pub fn open<R: Read + Seek>(archive: R) -> Result<ZipArchive<Watched<R>>, String> {
    let watch = Rc::new(Watch { left: Cell::new(Some(MAX_LIST)), refused: Cell::new(None) });
    let archive = Rc::new(RefCell::new(archive));
    let opened =
        ZipArchive::new(Watched { archive: Rc::clone(&archive), watch: Rc::clone(&watch) });
    match (watch.refused.get(), opened) {
        (Some(Refused::Long), _) => Err(format!(
            "its list of entries has more than {} MiB; put fewer files into it",
            MAX_LIST >> 20
        )),
        (Some(Refused::Many), _) => {
            Err(format!("it has more than {MAX_ENTRIES} entries; put fewer files into it"))
        }
        (None, Err(error)) => Err(error.to_string()),
        (None, Ok(opened)) => {
            watch.left.set(None);
            let start = opened.central_directory_start();
            let listed = exclusive(&archive)
                .and_then(|mut archive| listed(&mut *archive, start, opened.len()));
            match listed {
                Ok(listed) if listed == opened.len() => Ok(opened),
                Ok(_) => Err(AMBIGUOUS.to_owned()),
                Err(error) => Err(error.to_string()),
            }
        }
    }
}

/// How many entries stand in the list that begins there, at most one more than were kept.
fn listed(mut archive: impl Read + Seek, start: u64, kept: usize) -> io::Result<usize> {
    archive.seek(SeekFrom::Start(start))?;
    let mut list = BufReader::new(archive);
    let mut found = 0;
    while found <= kept {
        let mut header = [0; HEADER_LENGTH];
        match list.read_exact(&mut header) {
            Ok(()) if header.starts_with(HEADER) => {}
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
            _ => break,
        }
        let lengths = LENGTHS.map(|at| i64::from(u16::from_le_bytes([header[at], header[at + 1]])));
        list.seek_relative(lengths.iter().sum())?;
        found += 1;
    }
    Ok(found)
}

/// Never contended: one thread opens an archive and reads it.
fn exclusive<R>(archive: &RefCell<R>) -> io::Result<RefMut<'_, R>> {
    archive.try_borrow_mut().map_err(io::Error::other)
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // What is refused is not read first: the reader makes room for whatever a record tells of.
        let most = self.watch.left.get().and_then(|left| usize::try_from(left + 1).ok());
        let most = most.map_or(buffer.len(), |most| most.min(buffer.len()));
        let read = exclusive(&self.archive)?.read(&mut buffer[..most])?;
        match self.watch.look(&buffer[..read]) {
            None => Ok(read),
            Some(_) => Err(io::ErrorKind::QuotaExceeded.into()),
        }
    }
}

impl<R: Seek> Seek for Watched<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        exclusive(&self.archive)?.seek(to)
    }
}

impl Watch {
    /// Why no more is read, if so: for good, as the reader goes on to another end record after an
    /// error.
    fn look(&self, bytes: &[u8]) -> Option<Refused> {
        let left = self.left.get()?;
        let told = bytes.starts_with(END).then(|| bytes.get(ENTRIES)).flatten();
        let told = told.and_then(|number| Some(u64::from_le_bytes(number.try_into().ok()?)));
        // One more than may be read is read, and then none.
        let rest = left.checked_sub(bytes.len() as u64);
        if told.is_some_and(|entries| entries > MAX_ENTRIES) {
            self.refused.set(Some(Refused::Many));
        } else if rest.is_none() && self.refused.get().is_none() {
            self.refused.set(Some(Refused::Long));
        }
        self.left.set(Some(rest.unwrap_or(0)));
        self.refused.get()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// As many entries, and how long each one's comment is; nothing is in them.
    fn list(entries: u32, comment: u16) -> Vec<u8> {
        list_of((0..entries).map(|number| format!("{number:07}")), comment)
    }

    /// Entries of these names, seven letters each.
    fn list_of(names: impl IntoIterator<Item = String>, comment: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        for name in names {
            bytes.extend(b"PK\x01\x02");
            bytes.extend([0; 24]);
            bytes.extend(7u16.to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend(comment.to_le_bytes());
            bytes.extend([0; 12]);
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + usize::from(comment), b'c');
        }
        bytes
    }

    /// The end record that tells of up to 65 535 entries, from `at` on.
    fn end(told: u16, at: u32) -> Vec<u8> {
        let mut bytes = b"PK\x05\x06\0\0\0\0".to_vec();
        bytes.extend(told.to_le_bytes());
        bytes.extend(told.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(at.to_le_bytes());
        bytes.extend([0; 2]);
        bytes
    }

    /// Puts the 64-bit one behind a list that is at `at`, its locator, and the other that sends
    /// there.
    fn end64(bytes: &mut Vec<u8>, told: u64, at: u64) {
        let here = bytes.len() as u64;
        bytes.extend(b"PK\x06\x06");
        bytes.extend(44u64.to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(told.to_le_bytes());
        bytes.extend(told.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend(at.to_le_bytes());
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(here.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(end(u16::MAX, u32::MAX));
    }

    /// Counts what is read.
    struct Counted(Cursor<Vec<u8>>, Rc<Cell<u64>>);

    impl Read for Counted {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1.set(self.1.get() + read as u64);
            Ok(read)
        }
    }

    impl Seek for Counted {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.0.seek(to)
        }
    }

    /// How many entries there are, or why not; and how much was read.
    fn opened(bytes: Vec<u8>) -> (Result<usize, String>, u64) {
        let read = Rc::new(Cell::new(0));
        let opened = open(Counted(Cursor::new(bytes), Rc::clone(&read)));
        (opened.map(|archive| archive.len()), read.get())
    }

    #[test]
    fn an_archive_of_many_entries_is_opened_and_one_of_too_many_is_not_read() {
        for (entries, fits) in [(70_000, true), (100_001, false)] {
            let mut bytes = list(entries, 0);
            end64(&mut bytes, entries.into(), 0);
            let (opened, read) = opened(bytes);
            match opened {
                Ok(found) => assert!(fits && found == 70_000),
                Err(words) => {
                    assert!(!fits && words.contains("more than 100000 entries"), "{words}");
                    assert!(read < 8192, "{read}");
                }
            }
        }
    }

    /// Three entries, and two of them with one name.
    fn doubled() -> Vec<u8> {
        list_of(["main.py", "help.py", "main.py"].map(str::to_owned), 9)
    }

    #[test]
    fn an_entry_that_is_listed_twice_is_found_whatever_the_end_records_say() {
        let mut plain = doubled();
        plain.extend(end(3, 0));
        let mut wide = doubled();
        end64(&mut wide, 3, 0);
        // In the real one's comment another stands, for what looks at the last.
        let mut forged = doubled();
        forged.extend(end(3, 0));
        let comment = forged.len() - 2;
        forged[comment] = 23;
        let mut other = end(2, 0);
        other[20] = 77;
        forged.extend(other);
        forged.push(b'x');
        // What is read is the first two.
        let mut short = doubled();
        short.extend(end(2, 0));
        for (kind, bytes) in
            [("plain", plain), ("wide", wide), ("forged", forged), ("short", short)]
        {
            let words = opened(bytes).0.expect_err(kind);
            assert!(words.contains("names one of them twice"), "{kind}: {words}");
        }
    }

    #[test]
    fn archives_with_comments_and_something_before_them_are_opened() {
        for before in [0, 100_000] {
            let mut bytes = vec![b'#'; before];
            bytes.extend(list(3, 9));
            bytes.extend(end(3, 0));
            let at = bytes.len() - 2;
            bytes[at..].copy_from_slice(&60_000u16.to_le_bytes());
            bytes.resize(bytes.len() + 60_000, b'c');
            // The end record says how long the list is, by which the reader finds where it begins.
            bytes[at - 8..at - 4].copy_from_slice(&(3 * (46 + 7 + 9u32)).to_le_bytes());
            assert_eq!(opened(bytes).0, Ok(3), "{before}");
        }
        let mut empty = Vec::new();
        empty.extend(end(0, 0));
        assert_eq!(opened(empty).0, Ok(0));
    }

    #[test]
    fn too_many_entries_do_not_hide_behind_an_end_record_that_does_not_hold() {
        let mut bytes = list(150_000, 0);
        end64(&mut bytes, 150_000, 0);
        let at = u32::try_from(bytes.len()).unwrap();
        bytes.extend(list(1, 0));
        bytes.extend(end(2, at));
        let (opened, read) = opened(bytes);
        let words = opened.unwrap_err();
        assert!(words.contains("more than 100000 entries"), "{words}");
        assert!(read < 8192, "{read}");
    }

    #[test]
    fn a_list_that_is_too_long_is_not_read_to_its_end() {
        let mut bytes = list(1000, u16::MAX);
        bytes.extend(end(1000, 0));
        let (opened, read) = opened(bytes);
        let words = opened.unwrap_err();
        assert!(words.contains("more than 32 MiB"), "{words}");
        assert!(read < MAX_LIST + (1 << 20), "{read}");
    }

    #[test]
    fn what_is_in_an_archive_is_read_without_these_limits() {
        use std::io::Write as _;
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default();
        let stored = options.compression_method(zip::CompressionMethod::Stored);
        archive.start_file("large", stored).unwrap();
        let large = vec![7; 40 << 20];
        archive.write_all(&large).unwrap();
        let mut archive = open(Cursor::new(archive.finish().unwrap().into_inner())).unwrap();
        let mut content = Vec::new();
        archive.by_index(0).unwrap().read_to_end(&mut content).unwrap();
        assert!(content == large);
    }
}
