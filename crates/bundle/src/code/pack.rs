//! Writes a bundle's files as one tar archive, in which nothing depends on when or where they were
//! packed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tar::{Builder, EntryType, Header};

use super::skipped;

/// Packs all files below `root`, sorted by path, without owners and times. A folder has an entry of
/// its own only when it is empty.
pub(super) fn write(root: &Path, archive: impl Write) -> io::Result<()> {
    let mut archive = Builder::new(archive);
    add_folder(&mut archive, root, "")?;
    archive.into_inner()?.flush()
}

/// Adds what is in a folder; `below` is its path in the archive: empty, or with a slash at its end.
fn add_folder(archive: &mut Builder<impl Write>, folder: &Path, below: &str) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        // The writer took no other names.
        let name = name.into_string().map_err(|_| io::ErrorKind::InvalidData)?;
        if !skipped(&name) {
            names.push(name);
        }
    }
    if names.is_empty() && !below.is_empty() {
        let mut header = plain(EntryType::Directory, 0o755, 0);
        return archive.append_data(&mut header, below, io::empty());
    }
    names.sort();
    for name in names {
        let (path, inside) = (folder.join(&name), format!("{below}{name}"));
        let metadata = fs::symlink_metadata(&path)?;
        if metadata.is_dir() {
            add_folder(archive, &path, &format!("{inside}/"))?;
        } else {
            let executable = metadata.permissions().mode() & 0o111 != 0;
            let mode = if executable { 0o755 } else { 0o644 };
            let mut header = plain(EntryType::Regular, mode, metadata.len());
            archive.append_data(&mut header, inside, File::open(&path)?)?;
        }
    }
    Ok(())
}

fn plain(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use layers::Store;
    use tempfile::TempDir;

    use super::super::Bundle;
    use super::*;

    fn store() -> (TempDir, Store) {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        (state, store)
    }

    fn packed(bundle: &Bundle) -> Vec<u8> {
        let mut bytes = Vec::new();
        bundle.pack(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_packed_bundle_is_the_same_bundle_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("data/empty/inside")).unwrap();
        fs::create_dir(path("__pycache__")).unwrap();
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(200));
        fs::create_dir(path(&"d".repeat(120))).unwrap();
        for (name, text) in [
            ("main.py", "x = 1"),
            ("data/ä ö.txt", "ü"),
            ("data.txt", ""),
            (&*long, "long"),
            ("__pycache__/main.pyc", "left out"),
        ] {
            fs::write(path(name), text).unwrap();
        }
        fs::set_permissions(path("data.txt"), fs::Permissions::from_mode(0o700)).unwrap();
        let (_state, store) = store();
        let first = Bundle::from_dir(&store, folder.path()).unwrap();
        let bytes = packed(&first);
        let again = Bundle::from_tar(&store, &*bytes).unwrap();
        assert_eq!(again.digest(), first.digest());
        assert_eq!((again.files, again.bytes), (first.files, first.bytes));
        assert!(again.path().join("data/empty/inside").is_dir());
        let (_elsewhere, other) = self::store();
        assert_eq!(packed(&Bundle::from_tar(&other, &*bytes).unwrap()), bytes);
    }

    #[test]
    fn a_bundle_without_some_files_is_the_bundle_that_never_had_them() {
        let folder = |more: bool| {
            let folder = tempfile::tempdir().unwrap();
            let path = |name: &str| folder.path().join(name);
            fs::create_dir_all(path("out/empty")).unwrap();
            fs::create_dir(path("both")).unwrap();
            fs::write(path("main.py"), "x = 1").unwrap();
            fs::write(path("both/own.py"), "own").unwrap();
            fs::set_permissions(path("main.py"), fs::Permissions::from_mode(0o755)).unwrap();
            if more {
                fs::create_dir(path("six")).unwrap();
                fs::write(path("six/__init__.py"), "six").unwrap();
                fs::write(path("both/six.py"), "six").unwrap();
            }
            folder
        };
        let (_state, store) = store();
        let [whole, never] =
            [true, false].map(|more| Bundle::from_dir(&store, folder(more).path()).unwrap());
        let before = packed(&whole);
        let rest = whole.without(&store, &["six/__init__.py", "both/six.py"].into()).unwrap();
        assert_eq!(rest.digest(), never.digest());
        assert_eq!((rest.files, rest.bytes), (never.files, never.bytes));
        assert_eq!(packed(&rest), packed(&never));
        assert!(!rest.path().join("six").exists());
        assert_eq!(packed(&whole), before);
    }

    #[test]
    fn one_file_has_one_digest_in_whatever_it_came() {
        let (_state, store) = store();
        let plain = Bundle::from_py(&store, "main", &b"x = 1"[..]).unwrap();
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.start_file("main.py", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(b"x = 1").unwrap();
        let zipped = Bundle::from_zip(&store, zip.finish().unwrap()).unwrap();
        assert_eq!(plain.digest(), zipped.digest());
        assert_eq!(packed(&plain), packed(&zipped));
    }
}
