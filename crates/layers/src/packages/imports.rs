//! Which modules a distribution brings, by what its `RECORD` lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use crate::requirements::{name, normalise};

/// Top-level names that distributions ship by mistake or for themselves.
const NOISE: [&str; 11] = [
    "test",
    "tests",
    "testing",
    "doc",
    "docs",
    "example",
    "examples",
    "benchmarks",
    "scripts",
    "setup",
    "conftest",
];

/// Modules of the distributions `direct` in an installed set; of those that no other one needs when it is empty.
pub(super) fn of(root: &Path, direct: &[String]) -> io::Result<Vec<String>> {
    let installed = installed(root)?;
    let needed: BTreeSet<&String> = installed.values().flat_map(|d| &d.needs).collect();
    let wanted = |name: &String| {
        if direct.is_empty() { !needed.contains(name) } else { direct.contains(name) }
    };
    let chosen = installed.iter().filter(|(name, _)| wanted(name));
    let modules: BTreeSet<String> = chosen.flat_map(|(_, d)| modules(&d.files)).collect();
    Ok(modules.into_iter().collect())
}

#[derive(Debug, Default)]
struct Distribution {
    files: Vec<String>,
    needs: Vec<String>,
}

fn installed(root: &Path) -> io::Result<BTreeMap<String, Distribution>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "dist-info") {
            continue;
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let own = stem.split_once('-').map_or(stem.as_str(), |(name, _)| name);
        let record = fs::read_to_string(path.join("RECORD")).unwrap_or_default();
        let metadata = fs::read(path.join("METADATA")).unwrap_or_default();
        let metadata = String::from_utf8_lossy(&metadata);
        // A body may follow the headers; what needs an extra is not needed by itself.
        let headers = metadata.lines().take_while(|line| !line.is_empty());
        let needs = headers.filter_map(|line| line.strip_prefix("Requires-Dist:").map(str::trim));
        let needs = needs.filter(|need| !need.contains("extra ==")).filter_map(name).collect();
        // A path with a comma is quoted; no module has one.
        let files =
            record.lines().filter_map(|line| line.split(',').next()).map(str::to_owned).collect();
        found.insert(normalise(own), Distribution { files, needs });
    }
    Ok(found)
}

/// The outermost importable modules among a distribution's files; private ones only when there are no others.
fn modules(files: &[String]) -> Vec<String> {
    let packages: BTreeSet<&str> =
        files.iter().filter_map(|file| file.strip_suffix("/__init__.py")).collect();
    let mut found: BTreeSet<String> = BTreeSet::new();
    for file in files {
        let Some(module) = module(file) else { continue };
        let parts: Vec<&str> = module.split('/').collect();
        if !parts.iter().all(|part| identifier(part)) || NOISE.contains(&parts[0]) {
            continue;
        }
        // Down through namespace packages to the first one that can be imported for something.
        let outermost =
            (1..parts.len()).map(|n| parts[..n].join("/")).find(|p| packages.contains(p.as_str()));
        found.insert(outermost.unwrap_or(module).replace('/', "."));
    }
    let public: Vec<String> = found.iter().filter(|m| !m.starts_with('_')).cloned().collect();
    if public.is_empty() { found.into_iter().collect() } else { public }
}

/// The module that a file is: `a/b.py` → `a/b`, `a/__init__.py` → `a`, `a.cpython-311-….so` → `a`.
fn module(file: &str) -> Option<String> {
    if let Some(package) = file.strip_suffix("/__init__.py") {
        return Some(package.to_owned());
    }
    if let Some(module) = file.strip_suffix(".py") {
        return Some(module.to_owned());
    }
    let (directory, last) = file.rsplit_once('/').unwrap_or(("", file));
    let (stem, tag) = last.split_once('.')?;
    let extension = tag == "so"
        || tag.ends_with(".so") && (tag.starts_with("cpython-") || tag.starts_with("abi3"));
    let path = if directory.is_empty() { stem.to_owned() } else { format!("{directory}/{stem}") };
    extension.then_some(path)
}

fn identifier(name: &str) -> bool {
    name.starts_with(|c: char| c == '_' || c.is_alphabetic())
        && name.chars().all(|c| c == '_' || c.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_files(files: &[&str]) -> Vec<String> {
        modules(&files.iter().map(|&f| f.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_distribution_brings_its_outermost_packages() {
        let pillow = [
            "PIL/__init__.py",
            "PIL/Image.py",
            "pillow.libs/libjpeg.so",
            "pillow-1.dist-info/RECORD",
        ];
        assert_eq!(of_files(&pillow), ["PIL"]);
        assert_eq!(of_files(&["six.py", "../../bin/six"]), ["six"]);
        assert_eq!(
            of_files(&["google/cloud/storage/__init__.py", "google/cloud/storage/blob.py"]),
            ["google.cloud.storage"]
        );
        assert_eq!(
            of_files(&["_cffi_backend.cpython-311-x86_64-linux-gnu.so", "cffi/__init__.py"]),
            ["cffi"]
        );
        assert_eq!(of_files(&["_only.abi3.so"]), ["_only"]);
        assert_eq!(of_files(&["tests/__init__.py", "a/__init__.py", "a/tests/__init__.py"]), ["a"]);
    }

    #[test]
    fn without_direct_names_those_count_that_no_other_needs() {
        let root = tempfile::tempdir().unwrap();
        for (name, record, metadata) in [
            (
                "big-1.0",
                "big/__init__.py,,\n",
                "Name: big\nRequires-Dist: small_one>=1\nRequires-Dist: x ; extra == 'y'\n",
            ),
            ("small_one-2.0", "small/__init__.py,,\n", "Name: small-one\n"),
            ("x-1", "x.py,,\n", "Name: x\n\nRequires-Dist: big\n"),
        ] {
            let directory = root.path().join(format!("{name}.dist-info"));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("RECORD"), record).unwrap();
            fs::write(directory.join("METADATA"), metadata).unwrap();
        }
        assert_eq!(of(root.path(), &[]).unwrap(), ["big", "x"]);
        assert_eq!(of(root.path(), &["small-one".to_owned()]).unwrap(), ["small"]);
    }
}
