//! Taking in a tar archive, compressed or not. Read as a stream: nothing is kept in memory but one buffer.

use std::io::{BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, EntryType};

use super::writer::Writer;
use super::{CodeError, MAX_BYTES, MAX_FILES};

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
    for entry in archive.entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let path = entry.path_bytes().into_owned();
        let name = String::from_utf8(path).map_err(|error| CodeError::Name {
            entry: String::from_utf8_lossy(error.as_bytes()).into_owned(),
        })?;
        let announced = entry.size();
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
    Ok(())
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
}
