//! Commands that wheels bring (`bin/`): the installer writes into them the path of the interpreter that it was given,
//! a path of the host's. They get the path inside the sandbox; a wheel is then the same on every host.
//!
//! A command may be as large as a package may be: only its beginning is read, the rest is copied by the kernel.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::imports;

/// The interpreter inside every base.
pub(super) const INTERPRETER: &str = "/usr/bin/python3";

/// Most bytes of a command that its interpreter's name stands in: a path has at most 4096.
const MAX_HEAD: u64 = 16 << 10;

/// Rewrites the first lines of the commands in `root/bin` and takes their hashes, which no longer hold, out of the
/// `RECORD` of `info`.
pub(super) fn rehome(root: &Path, info: &Path) -> io::Result<()> {
    let directory = root.join("bin");
    if !directory.is_dir() {
        return Ok(());
    }
    let mut changed = BTreeSet::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        let mut command = File::open(&path)?;
        let mut head = Vec::new();
        (&command).take(MAX_HEAD).read_to_end(&mut head)?;
        let Some(named) = names_interpreter(&head) else { continue };
        command.seek(SeekFrom::Start(named as u64))?;
        replace(&path, |file| {
            writeln!(file, "#!{INTERPRETER}")?;
            io::copy(&mut command, file).map(drop)
        })?;
        if let Some(name) = path.file_name() {
            changed.insert(format!("bin/{}", name.to_string_lossy()));
        }
    }
    let record = imports::record(info)?;
    replace(&info.join("RECORD"), |file| {
        let mut file = BufWriter::new(file);
        for line in record.lines() {
            let path = line.split(',').next().unwrap_or_default();
            match changed.contains(path) {
                true => writeln!(file, "{path},,")?,
                false => writeln!(file, "{line}")?,
            }
        }
        file.flush()
    })
}

/// A command with its interpreter named anew; none when it is not a Python command.
pub(crate) fn rehomed(content: &[u8]) -> Option<Vec<u8>> {
    let rest = &content[names_interpreter(content)?..];
    Some([format!("#!{INTERPRETER}\n").as_bytes(), rest].concat())
}

/// How many bytes at a command's beginning name its interpreter; none when it is not a Python command.
fn names_interpreter(head: &[u8]) -> Option<usize> {
    // An interpreter whose path is too long for the kernel, or has a space, is named on three lines.
    let lines = if head.starts_with(b"#!/bin/sh\n'''exec' ") { 3 } else { 1 };
    let ends = head.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let named = ends.map(|(at, _)| at + 1).nth(lines - 1)?;
    let head = &head[..named];
    (head.starts_with(b"#!") && String::from_utf8_lossy(head).contains("python")).then_some(named)
}

/// Writes beside and renames: the file may be a link to one in the installer's cache.
pub(super) fn replace(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".rewritten");
    // A new one: what the wheel has of this name may be such a link, too.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    write(&mut file)?;
    file.set_permissions(mode)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_python_get_the_sandboxs_interpreter_and_others_stay() {
        let of = |text: &str| rehomed(text.as_bytes()).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(
            of("#!/state/base/x/usr/bin/python3\nimport sys\n").unwrap(),
            "#!/usr/bin/python3\nimport sys\n"
        );
        let long = "#!/bin/sh\n'''exec' '/a b/python3' \"$0\" \"$@\"\n' '''\nimport sys\n";
        assert_eq!(of(long).unwrap(), "#!/usr/bin/python3\nimport sys\n");
        assert_eq!(of("#!/bin/sh\nexec true\n"), None);
        assert_eq!(of("\x7fELF"), None);
    }

    #[test]
    fn the_record_no_longer_vouches_for_what_was_rewritten() {
        let root = tempfile::tempdir().unwrap();
        let info = root.path().join("a-1.dist-info");
        for directory in [&info, &root.path().join("bin")] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(root.path().join("bin/a"), "#!/x/python\n").unwrap();
        fs::write(info.join("RECORD"), "a.py,sha256=x,1\nbin/a,sha256=y,12\n").unwrap();
        let before = fs::File::open(root.path().join("bin/a")).unwrap();
        rehome(root.path(), &info).unwrap();
        let record = fs::read_to_string(info.join("RECORD")).unwrap();
        assert_eq!(record, "a.py,sha256=x,1\nbin/a,,\n");
        let before = io::read_to_string(before).unwrap();
        assert_eq!(before, "#!/x/python\n", "a link in a cache stays as it was");
    }

    #[test]
    fn of_a_large_command_only_the_beginning_is_read() {
        // More than this machine has: a reader that takes it whole ends here.
        const LARGE: u64 = 1 << 42;
        let root = tempfile::tempdir().unwrap();
        let info = root.path().join("a-1.dist-info");
        for directory in [&info, &root.path().join("bin")] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(info.join("RECORD"), "bin/large,sha256=y,12\nbin/python,sha256=x,1\n").unwrap();
        let large = File::create(root.path().join("bin/large")).unwrap();
        large.set_len(LARGE).unwrap();
        let python = root.path().join("bin/python");
        let text = format!("#!/x/python\nimport sys\n{}end", "#\n".repeat(100_000));
        fs::write(&python, &text).unwrap();
        rehome(root.path(), &info).unwrap();
        assert_eq!(large.metadata().unwrap().len(), LARGE);
        let expected = text.replace("/x/python", INTERPRETER);
        assert_eq!(fs::read_to_string(&python).unwrap(), expected);
        let record = fs::read_to_string(info.join("RECORD")).unwrap();
        assert_eq!(record, "bin/large,sha256=y,12\nbin/python,,\n");
    }
}
