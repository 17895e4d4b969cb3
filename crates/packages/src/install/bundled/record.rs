//! The rows of a `RECORD`, and which of them are a distribution's own files.

use std::collections::BTreeSet;

use super::Reason;
use crate::install::shipped_bytecode::is_bytecode;

/// Longest `RECORD` in bytes.
pub(super) const MAX_RECORD: u64 = 8 << 20;

/// Most rows of all `RECORD`s of a bundle together: a bundle has 20 000 files, and bytecode has rows, too.
pub(super) const MAX_ROWS: usize = 100_000;

/// Longest path of a file, in bytes: longer than any of a bundle.
const MAX_PATH: usize = 1024;

/// What installers write into `.dist-info`.
const RECEIPTS: [&str; 5] =
    ["RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"];

/// A file of a distribution, as its row has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) path: String,
    /// `sha256=` and 43 characters.
    pub(super) hash: String,
    /// Decimal digits, or empty.
    pub(super) size: String,
}

/// What a `RECORD` lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) rows: Vec<Row>,
    /// Names of commands that were installed.
    pub(super) commands: BTreeSet<String>,
}

impl Record {
    /// Reads the `RECORD` of `info`.
    pub(super) fn parse(text: &str, info: &str) -> Result<Self, Reason> {
        let mut record = Self::default();
        let mut seen = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            // A quoted field has a comma or a quote in it, which no module's file has.
            let fields: Vec<&str> = line.split(',').collect();
            let [path, hash, size] = fields[..] else { return Err(Reason::Row(number + 1)) };
            if path.len() > MAX_PATH || line.contains('"') {
                return Err(Reason::Row(number + 1));
            }
            let named = || path.to_owned();
            if is_receipt(path, info) || is_bytecode(path) {
                continue;
            }
            if let Some(command) = command(path) {
                record.commands.insert(command.to_owned());
                continue;
            }
            if !is_inside(path, info) {
                return Err(Reason::Outside(named()));
            }
            if !seen.insert(path) {
                return Err(Reason::Twice(named()));
            }
            if !hash.starts_with("sha256=") {
                return Err(Reason::Unhashed(named()));
            }
            record.rows.push(Row { path: named(), hash: hash.to_owned(), size: size.to_owned() });
        }
        Ok(record)
    }
}

/// Whether an installer wrote this file of `info` itself, or a tool signed the list.
pub(super) fn is_receipt(path: &str, info: &str) -> bool {
    let name = path.strip_prefix(info).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| {
        let signature = name.ends_with(".jws") || name.ends_with(".p7s");
        RECEIPTS.contains(&name) || signature && !name.contains('/')
    })
}

/// The name of a command: pip writes it beside the target and then moves it, uv writes it into the target.
fn command(path: &str) -> Option<&str> {
    let name = path.strip_prefix("../../bin/").or_else(|| path.strip_prefix("bin/"))?;
    (!name.is_empty() && name != ".." && !name.contains('/')).then_some(name)
}

/// Whether a path is in a directory that has the name of a file of `info`.
fn is_below(path: &str, info: &str, file: &str) -> bool {
    let inside = path.strip_prefix(info).and_then(|rest| rest.strip_prefix('/'));
    inside.and_then(|rest| rest.strip_prefix(file)).is_some_and(|rest| rest.starts_with('/'))
}

/// Whether a file is one of a module's, of its libraries or of `.dist-info`.
fn is_inside(path: &str, info: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..");
    let top = path.split('/').next().unwrap_or_default();
    path.split('/').all(plain)
        && !path.contains(|c: char| c.is_control() || c == '\\')
        && !top.ends_with(".data")
        && (top == info || !top.ends_with(".dist-info"))
        && top != "bin"
        // What is written while a wheel is made.
        && !path.ends_with(".rewritten")
        && !RECEIPTS.iter().any(|receipt| is_below(path, info, receipt))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Record, Reason> {
        Record::parse(text, "a-1.dist-info")
    }

    #[test]
    fn what_an_installer_wrote_bytecode_and_commands_are_no_files_of_it() {
        let text = "../../bin/a,sha256=x,1\r\nbin/b,sha256=x,1\na/__init__.py,sha256=x,1\n\
            a/__pycache__/__init__.cpython-311.pyc,,\na/sourceless.pyc,sha256=x,\n\
            a-1.dist-info/RECORD,,\na-1.dist-info/INSTALLER,sha256=x,4\n\
            a-1.dist-info/RECORD.jws,,\na-1.dist-info/WHEEL,sha256=x,1\n";
        let record = parse(text).unwrap();
        let paths: Vec<_> = record.rows.iter().map(|row| &*row.path).collect();
        assert_eq!(paths, ["a/__init__.py", "a/sourceless.pyc", "a-1.dist-info/WHEEL"]);
        assert_eq!(record.commands.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_path_that_is_not_a_modules_is_refused() {
        for bad in [
            "../x.py",
            "../../share/x",
            "../../bin/../x",
            "../../bin/..",
            "/etc/passwd",
            "a/../x.py",
            "a//x.py",
            "./a.py",
            "a\\x.py",
            "a\tx.py",
            "a-1.data/scripts/x",
            "bin/a/b",
            "",
        ] {
            let refused = parse(&format!("{bad},sha256=x,1\n")).unwrap_err();
            assert_eq!(refused, Reason::Outside(bad.to_owned()));
        }
    }

    #[test]
    fn a_row_of_another_form_is_refused() {
        assert_eq!(parse("a.py,sha256=x,1\na.py\n").unwrap_err(), Reason::Row(2));
        assert_eq!(parse("\"a,b.py\",sha256=x,1\n").unwrap_err(), Reason::Row(1));
        assert_eq!(parse(&format!("{},sha256=x,1", "a".repeat(1025))), Err(Reason::Row(1)));
        assert_eq!(parse("a.py,,\n").unwrap_err(), Reason::Unhashed("a.py".to_owned()));
        assert_eq!(parse("a.py,md5=x,1\n").unwrap_err(), Reason::Unhashed("a.py".to_owned()));
        let twice = "a.py,sha256=x,1\na.py,sha256=x,1\n";
        assert_eq!(parse(twice).unwrap_err(), Reason::Twice("a.py".to_owned()));
    }
}
