//! Commands that wheels bring (`bin/`): the installer writes into them the path of the interpreter that it was given,
//! a path of the host's. They get the path inside the sandbox; a wheel is then the same on every host.

use std::fs;
use std::io;
use std::path::Path;

/// The interpreter inside every base.
const INTERPRETER: &str = "/usr/bin/python3";

/// Rewrites the first lines of the commands in `root/bin` and takes their hashes, which no longer hold, out of the
/// `RECORD` of `info`.
pub(super) fn rehome(root: &Path, info: &Path) -> io::Result<()> {
    let directory = root.join("bin");
    if !directory.is_dir() {
        return Ok(());
    }
    let mut changed = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        let Some(content) = rehomed(&fs::read(&path)?) else { continue };
        replace(&path, &content)?;
        if let Some(name) = path.file_name() {
            changed.push(format!("bin/{}", name.to_string_lossy()));
        }
    }
    let record = info.join("RECORD");
    let text = fs::read_to_string(&record)?;
    let unhashed = |line: &str| {
        let path = line.split(',').next().unwrap_or_default();
        if changed.iter().any(|name| name == path) {
            format!("{path},,\n")
        } else {
            format!("{line}\n")
        }
    };
    replace(&record, text.lines().map(unhashed).collect::<String>().as_bytes())
}

/// A command with its interpreter named anew; none when it is not a Python command.
pub(crate) fn rehomed(content: &[u8]) -> Option<Vec<u8>> {
    // An interpreter whose path is too long for the kernel, or has a space, is named on three lines.
    let named = if content.starts_with(b"#!/bin/sh\n'''exec' ") { 3 } else { 1 };
    let ends = content.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let (head, rest) = content.split_at(ends.map(|(at, _)| at + 1).nth(named - 1)?);
    if !head.starts_with(b"#!") || !String::from_utf8_lossy(head).contains("python") {
        return None;
    }
    Some([format!("#!{INTERPRETER}\n").as_bytes(), rest].concat())
}

/// Writes beside and renames: the file may be a link to one in the installer's cache.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions();
    let beside = path.with_extension("new");
    fs::write(&beside, content)?;
    fs::set_permissions(&beside, mode)?;
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
}
