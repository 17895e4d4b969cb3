//! `.pth` files whose lines name directories: an interpreter with `site` would import from there, and a sandbox's does not.
//!
//! Lines that begin with `import` are code for a start of the interpreter; a package that misses those works mostly, and most
//! `.pth` files are of that kind. What lies in a directory that only a path line names cannot be imported at all.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// A file is read so far; the known ones have a line or two.
const READ: u64 = 16 << 10;

/// Most files, and most paths of a file, that are told.
const MOST: usize = 4;

/// Longest path that is told, in characters.
const LONGEST: usize = 200;

/// For each `.pth` file at the top of a wheel that names directories, its name and these.
pub(super) fn of(wheel: &Path) -> io::Result<Vec<(String, Vec<String>)>> {
    let mut told = Vec::new();
    for entry in fs::read_dir(wheel)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".pth") || !entry.file_type()?.is_file() {
            continue;
        }
        let mut content = Vec::new();
        File::open(entry.path())?.take(READ).read_to_end(&mut content)?;
        let paths = paths(&String::from_utf8_lossy(&content));
        if !paths.is_empty() {
            told.push((name, paths));
        }
    }
    told.sort();
    told.truncate(MOST);
    Ok(told)
}

/// The lines that `site` would take for paths.
fn paths(text: &str) -> Vec<String> {
    // As `site.addpackage` tells them apart.
    let code =
        |line: &&str| ["#", "import ", "import\t"].iter().any(|start| line.starts_with(start));
    let lines = text.trim_start_matches('\u{feff}').lines();
    let lines = lines.filter(|line| !line.trim().is_empty() && !code(line));
    lines.map(|line| line.trim_end().chars().take(LONGEST).collect()).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_are_paths_count() {
        let text = "# a comment\n\nimport sys; sys.x = 1\nimport\tos\nlib \n/opt/elsewhere\r\n";
        assert_eq!(paths(text), ["lib", "/opt/elsewhere"]);
        assert_eq!(paths("import _virtualenv\n"), [""; 0]);
        assert_eq!(paths("\u{feff}important\n"), ["important"]);
        assert_eq!(paths(&"a\n".repeat(1000)).len(), MOST);
    }

    #[test]
    fn files_at_the_top_are_told_and_no_others() {
        let wheel = tempfile::tempdir().unwrap();
        let at = |name: &str| wheel.path().join(name);
        fs::create_dir_all(at("lib")).unwrap();
        fs::create_dir_all(at("odd.pth")).unwrap();
        for (name, text) in
            [("b.pth", "lib\n"), ("a.pth", "import x\n"), ("lib/c.pth", "y\n"), ("d.txt", "z\n")]
        {
            fs::write(at(name), text).unwrap();
        }
        assert_eq!(of(wheel.path()).unwrap(), [("b.pth".to_owned(), vec!["lib".to_owned()])]);
    }
}
