//! Unpacks a tar archive, compressed or not, into a bundle. It is read as a stream: nothing is kept in memory but one
//! buffer, and what one entry says of the next:
//!
//! ```text
//!   L  a name of more than a hundred bytes (GNU)  ┐
//!   x  a name, a size, attributes (pax)           ├─► the file, folder, … behind them
//!   K  where a link leads (GNU): passed over      ┘
//! ```
//!
//! Entries are asked for as they stand in the archive: the reader itself would read the first two, and the list of a sparse file's
//! pieces, whole, however long they are.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::writer::Writer;
use super::{CodeError, MAX_BYTES, MAX_FILES};

/// Longest name that an entry of its own has, in bytes; a file's may have [`super::MAX_PATH`].
const MAX_LONG_NAME: u64 = 8 << 10;

/// Longest attributes of an entry, in bytes.
const MAX_ATTRIBUTES: u64 = 64 << 10;

pub(super) fn unpack(archive: impl Read, writer: &mut Writer) -> Result<(), CodeError> {
    let mut archive = BufReader::with_capacity(64 << 10, archive);
    let start = archive.fill_buf().map_err(unreadable)?;
    if start.starts_with(&[0x1f, 0x8b]) {
        entries(MultiGzDecoder::new(archive), writer)
    } else {
        entries(archive, writer)
    }
}

fn entries(archive: impl Read, writer: &mut Writer) -> Result<(), CodeError> {
    // Headers count too: an archive of nothing but headers would otherwise unpack without end.
    let limit = MAX_BYTES + 2048 * MAX_FILES as u64;
    let mut archive = Archive::new(archive.take(limit));
    let mut said = Said::default();
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        let Some(said) = said.of_next(&mut entry)? else { continue };
        let announced = entry.size();
        if said.size().is_some_and(|size| size != announced) {
            // Two readers would find two archives in it.
            return Err(broken("an entry has two sizes"));
        }
        let path = said.name().unwrap_or_else(|| entry.path_bytes().into_owned());
        let name = String::from_utf8(path).map_err(|error| CodeError::Name {
            entry: String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })?;
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {
                let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                writer.add(&name, executable, &mut entry, Some(announced))?;
            }
            EntryType::Directory => writer.add_folder(&name)?,
            EntryType::Symlink | EntryType::Link => return Err(CodeError::Link { entry: name }),
            // A comment for the whole archive; `git archive` writes one.
            EntryType::XGlobalHeader => {}
            _ => return Err(CodeError::Special { entry: name }),
        }
    }
    match said {
        Said { long_name: None, attributes: None } => Ok(()),
        _ => Err(broken("its last entry is about another, and there is none")),
    }
}

/// What entries say of the one behind them.
#[derive(Debug, Default)]
struct Said {
    long_name: Option<Vec<u8>>,
    attributes: Option<Vec<u8>>,
}

impl Said {
    /// Takes in an entry that is about the next one; for any other, gives what was said of it.
    fn of_next(&mut self, entry: &mut Entry<'_, impl Read>) -> Result<Option<Self>, CodeError> {
        let (header, kind) = (entry.header(), entry.header().entry_type());
        let known = header.as_gnu().is_some() || header.as_ustar().is_some();
        let (place, most, too_long) = match kind {
            EntryType::GNULongName if known => (
                &mut self.long_name,
                MAX_LONG_NAME,
                "an entry's name has more than 8 KiB; shorten it",
            ),
            EntryType::XHeader if known => (
                &mut self.attributes,
                MAX_ATTRIBUTES,
                "an entry's attributes have more than 64 KiB; leave them out (`tar --no-xattrs`)",
            ),
            EntryType::GNULongLink if known => return Ok(None),
            _ => return Ok(Some(std::mem::take(self))),
        };
        if entry.size() > most {
            return Err(broken(too_long));
        }
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).map_err(unreadable)?;
        match place.replace(bytes) {
            None => Ok(None),
            Some(_) => Err(broken("two entries are about the same other one")),
        }
    }

    fn name(&self) -> Option<Vec<u8>> {
        match &self.long_name {
            Some(name) => Some(name.strip_suffix(&[0]).unwrap_or(name).to_vec()),
            None => self.attribute("path").map(<[u8]>::to_vec),
        }
    }

    fn size(&self) -> Option<u64> {
        std::str::from_utf8(self.attribute("size")?).ok()?.parse().ok()
    }

    fn attribute(&self, key: &str) -> Option<&[u8]> {
        let all = PaxExtensions::new(self.attributes.as_deref()?).flatten();
        let mut of_key = all.filter(|attribute| attribute.key_bytes() == key.as_bytes());
        of_key.next().map(|attribute| attribute.value_bytes())
    }
}

fn broken(reason: &str) -> CodeError {
    CodeError::Archive { kind: "tar", reason: reason.to_owned() }
}

fn unreadable(error: std::io::Error) -> CodeError {
    CodeError::Archive { kind: "tar", reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, content) in entries {
            let mut header = tar::Header::new_gnu();
            // Set as bytes: the builder itself refuses bad names.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.set_link_name("target").unwrap();
            }
            header.set_cksum();
            builder.append(&header, *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpacked(bytes: &[u8]) -> Result<tempfile::TempDir, CodeError> {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(directory.path())?;
        unpack(bytes, &mut writer)?;
        writer.finish()?;
        Ok(directory)
    }

    #[test]
    fn files_and_folders_are_unpacked_with_and_without_gzip() {
        let plain = archive(&[
            ("d/", EntryType::Directory, b""),
            ("./d/a.py", EntryType::Regular, b"x = 1\n"),
        ]);
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &plain).unwrap();
        for bytes in [plain, encoder.finish().unwrap()] {
            let directory = unpacked(&bytes).unwrap();
            assert_eq!(
                std::fs::read_to_string(directory.path().join("d/a.py")).unwrap(),
                "x = 1\n"
            );
        }
    }

    #[test]
    fn links_devices_and_escapes_are_refused_by_name() {
        for (name, kind) in [
            ("evil-link", EntryType::Symlink),
            ("evil-hard", EntryType::Link),
            ("evil-null", EntryType::Char),
            ("evil-disk", EntryType::Block),
            ("evil-pipe", EntryType::Fifo),
            ("../evil", EntryType::Regular),
            ("/evil", EntryType::Regular),
            ("../evil/", EntryType::Directory),
        ] {
            let error = unpacked(&archive(&[(name, kind, b"")])).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn what_is_no_archive_or_is_cut_short_is_refused() {
        assert!(matches!(unpacked(b"hello"), Err(CodeError::Archive { .. } | CodeError::Empty)));
        let whole = archive(&[("a", EntryType::Regular, &[7; 4000])]);
        assert!(unpacked(&whole[..2000]).is_err());
        assert!(unpacked(&[0x1f, 0x8b, 0, 0]).is_err());
    }

    /// An archive of zeros that goes on for ever, behind its beginning. Counts what is read of it.
    struct Endless<'a>(&'a [u8], u64);

    impl Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.chain(std::io::repeat(0)).read(buffer)?;
            self.0 = &self.0[read.min(self.0.len())..];
            self.1 += read as u64;
            Ok(read)
        }
    }

    #[test]
    fn what_an_entry_says_of_the_next_is_not_read_beyond_a_length() {
        for (kind, most) in
            [(EntryType::GNULongName, MAX_LONG_NAME), (EntryType::XHeader, MAX_ATTRIBUTES)]
        {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(500 << 20);
            header.set_cksum();
            let mut archive = Endless(header.as_bytes(), 0);
            let directory = tempfile::tempdir().unwrap();
            let mut writer = Writer::open(directory.path()).unwrap();
            let error = unpack(&mut archive, &mut writer).unwrap_err().to_string();
            assert!(error.contains(&format!("more than {} KiB", most >> 10)), "{error}");
            assert!(archive.1 <= 128 << 10, "{}", archive.1);
        }
    }

    #[test]
    fn the_pieces_of_a_sparse_file_are_not_read() {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_path("sparse").unwrap();
        header.set_size(0);
        header.as_gnu_mut().unwrap().isextended[0] = 1;
        header.set_cksum();
        let mut archive = header.as_bytes().to_vec();
        // Each says that another one follows.
        let mut more = [0; 512];
        more[504] = 1;
        for _ in 0..10_000 {
            archive.extend(more);
        }
        let error = unpacked(&archive).unwrap_err();
        assert!(matches!(&error, CodeError::Special { entry } if entry == "sparse"), "{error}");
    }

    #[test]
    fn long_names_of_both_kinds_are_those_of_the_next_entry() {
        let long = |last: &str| format!("{}{last}", "d/".repeat(100));
        let (gnu, pax) = (long("gnu.py"), long("pax.py"));
        let mut builder = tar::Builder::new(Vec::new());
        let header = |size| {
            let mut header = tar::Header::new_ustar();
            header.set_size(size);
            header.set_mode(0o644);
            header
        };
        // The builder writes the first with an entry of its own.
        let mut first = tar::Header::new_gnu();
        first.set_size(1);
        first.set_mode(0o644);
        builder.append_data(&mut first, &gnu, &b"1"[..]).unwrap();
        let attributes = [("path", pax.as_bytes()), ("size", b"2"), ("mtime", b"1.5")];
        builder.append_pax_extensions(attributes).unwrap();
        builder.append_data(&mut header(2), "short", &b"22"[..]).unwrap();
        builder.append_data(&mut header(3), "last", &b"333"[..]).unwrap();
        let directory = unpacked(&builder.into_inner().unwrap()).unwrap();
        for (name, content) in [(gnu.as_str(), "1"), (&pax, "22"), ("last", "333")] {
            assert_eq!(std::fs::read_to_string(directory.path().join(name)).unwrap(), content);
        }
    }

    #[test]
    fn what_is_said_twice_of_an_entry_in_two_ways_or_of_none_is_refused() {
        let attributes = |builder: &mut tar::Builder<Vec<u8>>, size: &[u8]| {
            builder.append_pax_extensions([("size", size)]).unwrap();
        };
        let mut header = tar::Header::new_ustar();
        header.set_size(1);
        let cases: [(&[&[u8]], bool, &str); 3] = [
            (&[b"512"], true, "two sizes"),
            (&[b"1", b"1"], true, "two entries are about"),
            (&[b"1"], false, "there is none"),
        ];
        for (sizes, file, words) in cases {
            let mut builder = tar::Builder::new(Vec::new());
            for size in sizes {
                attributes(&mut builder, size);
            }
            if file {
                builder.append_data(&mut header.clone(), "a", &b"1"[..]).unwrap();
            }
            let error = unpacked(&builder.into_inner().unwrap()).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
