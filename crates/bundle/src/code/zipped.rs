//! Unpacks a zip archive into a bundle.

use std::io::{Read, Seek};

use layers::zips;

use super::CodeError;
use super::writer::Writer;

/// An entry beyond this size that is this many times smaller in the archive is no code.
const RATIO: u64 = 250;
const RATIO_FROM: u64 = 16 << 20;

const FORMAT_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;

pub(super) fn unpack(archive: impl Read + Seek, writer: &mut Writer) -> Result<(), CodeError> {
    let mut archive =
        zips::open(archive).map_err(|reason| CodeError::Archive { kind: "zip", reason })?;
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).map_err(|error| unreadable(&error))?;
        let name = entry.name().to_owned();
        let mode = entry.unix_mode().unwrap_or_default();
        if entry.is_symlink() {
            return Err(CodeError::Link { entry: name });
        }
        if ![0, REGULAR, DIRECTORY].contains(&(mode & FORMAT_BITS)) {
            return Err(CodeError::Special { entry: name });
        }
        if entry.is_dir() {
            writer.add_folder(&name)?;
            continue;
        }
        let (announced, packed) = (entry.size(), entry.compressed_size());
        if announced > RATIO_FROM && announced / packed.max(1) > RATIO {
            return Err(CodeError::Bomb { entry: name, reason: "it expands more than 250 times" });
        }
        writer.add(&name, mode & 0o111 != 0, &mut entry, Some(announced))?;
    }
    Ok(())
}

fn unreadable(error: &dyn std::error::Error) -> CodeError {
    CodeError::Archive { kind: "zip", reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn archive(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, mode, content) in entries {
            zip.start_file(*name, SimpleFileOptions::default().unix_permissions(*mode)).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// Replaces bytes by as many others, wherever they are: names stand twice in an archive.
    fn patched(mut bytes: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
        for at in 0..bytes.len() - from.len() {
            if &bytes[at..at + from.len()] == from {
                bytes[at..at + to.len()].copy_from_slice(to);
            }
        }
        bytes
    }

    fn unpacked(bytes: Vec<u8>) -> Result<tempfile::TempDir, CodeError> {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(directory.path())?;
        unpack(Cursor::new(bytes), &mut writer)?;
        writer.finish()?;
        Ok(directory)
    }

    #[test]
    fn files_are_unpacked_with_their_executable_bit() {
        use std::os::unix::fs::MetadataExt;
        let directory =
            unpacked(archive(&[("main.py", 0o644, b"x"), ("bin/tool", 0o755, b"y")])).unwrap();
        let mode =
            |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().mode() & 0o111;
        assert_eq!((mode("main.py"), mode("bin/tool") != 0), (0, true));
    }

    #[test]
    fn an_entry_that_leaves_the_bundle_is_refused_by_name() {
        for name in ["../evil.py", "a/../../evil.py", "/evil.py", "..\\evil.py"] {
            let placeholder = "x".repeat(name.len());
            let bytes = patched(
                archive(&[(&placeholder, 0o644, b"1")]),
                placeholder.as_bytes(),
                name.as_bytes(),
            );
            let error = unpacked(bytes).unwrap_err();
            assert!(matches!(error, CodeError::Outside { .. } | CodeError::Name { .. }), "{error}");
            assert!(error.to_string().contains("evil"), "{error}");
        }
    }

    #[test]
    fn a_link_is_refused_by_name() {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        zip.add_symlink("evil-link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        let error = unpacked(zip.finish().unwrap().into_inner()).unwrap_err();
        assert!(matches!(&error, CodeError::Link { entry } if entry == "evil-link"), "{error}");
    }

    #[test]
    fn two_entries_with_one_name_are_refused() {
        let bytes =
            patched(archive(&[("a.py", 0o644, b"1"), ("b.py", 0o644, b"2")]), b"b.py", b"a.py");
        let error = unpacked(bytes).unwrap_err().to_string();
        assert!(error.contains("twice"), "{error}");
    }

    #[test]
    fn a_bomb_is_refused_before_it_goes_off() {
        let error = unpacked(archive(&[("zeros.bin", 0o644, &vec![0; 32 << 20])])).unwrap_err();
        assert!(matches!(&error, CodeError::Bomb { entry, .. } if entry == "zeros.bin"), "{error}");
    }

    #[test]
    fn an_entry_that_announces_less_than_it_holds_is_refused() {
        let content = [7; 5000];
        let size = 5000u32.to_le_bytes();
        let bytes = patched(archive(&[("a.bin", 0o644, &content)]), &size, &40u32.to_le_bytes());
        assert!(unpacked(bytes).is_err());
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert!(matches!(unpacked(b"hello".to_vec()), Err(CodeError::Archive { .. })));
        assert!(matches!(unpacked(Vec::new()), Err(CodeError::Archive { .. })));
    }
}
