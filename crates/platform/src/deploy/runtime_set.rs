//! Packages that AWS's own Python runtimes bring: boto3 and what it needs.
//!
//! Many archives leave them out, because AWS has them. Such a function gets the newest boto3 of the worker's index, as if it
//! had listed it: its packages are shared with every other function that does, and imported in the same zygotes. An archive
//! that brings any package itself has what it needs, and gets none.

use std::fs;
use std::path::Path;

/// What such a function gets.
pub(crate) const REQUIREMENT: &str = "boto3";

/// Modules of boto3 and of what it needs.
const MODULES: [&str; 7] =
    ["boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six"];

/// No more files and bytes of an archive are read: what is longer brings its packages.
const MOST_FILES: usize = 1000;
const MOST_BYTES: u64 = 8 << 20;

/// Whether the code of an archive imports one of these modules, and the archive brings no packages.
pub(crate) fn is_used(root: &Path) -> bool {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let top = names(root);
    if top.iter().any(|name| name.ends_with(".dist-info") || name.ends_with(".egg-info")) {
        return false;
    }
    let is_own =
        |module: &str| top.iter().any(|name| name.strip_suffix(".py").unwrap_or(name) == module);
    let mut left = (MOST_FILES, MOST_BYTES);
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder) {
            let path = folder.join(&name);
            let Ok(about) = fs::symlink_metadata(&path) else { continue };
            if about.is_dir() {
                folders.push(path);
                continue;
            }
            if !about.is_file() || !name.ends_with(".py") {
                continue;
            }
            left = match (left.0.checked_sub(1), left.1.checked_sub(about.len())) {
                (Some(files), Some(bytes)) => (files, bytes),
                _ => return false,
            };
            let text = fs::read(&path).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let uses =
                |line| imported(line).any(|module| MODULES.contains(&module) && !is_own(module));
            if text.lines().any(uses) {
                return true;
            }
        }
    }
    false
}

/// The top-level names of the modules that a line imports.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start();
    let several = line.strip_prefix("import ").map(|rest| rest.split(','));
    let one = line.strip_prefix("from ");
    let names = several.into_iter().flatten().chain(one);
    names.map(|name| {
        let name = name.trim_start();
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(files: &[(&str, &str)]) -> bool {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        is_used(root.path())
    }

    #[test]
    fn code_that_imports_what_awss_runtimes_bring_uses_it() {
        for text in [
            "import boto3",
            "import os, json, boto3",
            "import boto3.session as s\n",
            "from botocore.exceptions import ClientError",
            "def handler(event, context):\n    import   urllib3\n",
            "\u{feff}\nimport six;x = 1",
        ] {
            assert!(uses(&[("app.py", text)]), "{text}");
            assert!(uses(&[("app.py", ""), ("deep/er/part.py", text)]), "{text}");
        }
        for text in ["import boto", "import my.boto3", "from . import boto3", "# import boto3", ""]
        {
            assert!(!uses(&[("app.py", text)]), "{text}");
        }
        assert!(!uses(&[("notes.txt", "import boto3")]));
    }

    #[test]
    fn an_archive_that_brings_packages_has_what_it_needs() {
        let code = ("app.py", "import boto3");
        assert!(!uses(&[code, ("boto3/__init__.py", "")]));
        assert!(!uses(&[code, ("boto3.py", "")]));
        assert!(!uses(&[code, ("requests-2.dist-info/METADATA", "")]));
        // Its own module of another name changes nothing.
        assert!(uses(&[code, ("six.py", "")]));
    }
}
