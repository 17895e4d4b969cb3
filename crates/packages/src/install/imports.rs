//! Which modules a distribution brings, by what its `RECORD` lists, and which of them are worth importing ahead.
//!
//! These files are a stranger's, and the worker itself reads them: up to a length only.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use layers::text;

use super::wheel::Wheel;
use crate::requirements::{name, normalise};

/// Longest `RECORD` in bytes: a package may have 50 000 files, and a line has some hundred bytes.
const MAX_RECORD: u64 = 32 << 20;

/// Longest `METADATA` in bytes; it holds a description.
const MAX_METADATA: u64 = 16 << 20;

/// Most modules of a distribution, which are kept in memory for as long as a function has it.
const MAX_MODULES: usize = 50_000;

/// Longest path that a file can have, in bytes.
const MAX_PATH: usize = 4096;

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

/// What replaces `distutils` of Python's by being imported: for those alone who import it themselves.
const REPLACING: [&str; 3] = ["setuptools", "pkg_resources", "_distutils_hack"];

/// What the files of one unpacked distribution say of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) modules: Vec<String>,
    pub(crate) needs: Vec<String>,
    /// Its `.dist-info`.
    pub(crate) info: PathBuf,
}

/// Reads the distribution in `root`; none when there is none.
pub(crate) fn read(root: &Path) -> io::Result<Option<Distribution>> {
    let mut entries = fs::read_dir(root)?.filter_map(|entry| Some(entry.ok()?.path()));
    let Some(info) = entries.find(|path| path.extension().is_some_and(|e| e == "dist-info")) else {
        return Ok(None);
    };
    read_info(&info).map(Some)
}

/// Reads the distribution whose `.dist-info` this is.
pub(super) fn read_info(info: &Path) -> io::Result<Distribution> {
    let record = record(info)?;
    let metadata = bounded(MAX_METADATA, info, "METADATA")?;
    let metadata = String::from_utf8_lossy(&metadata);
    // A body may follow the headers.
    let headers = || metadata.lines().take_while(|line| !line.is_empty());
    let header = |key: &str| headers().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // What needs an extra is not needed by itself.
    let needs = headers().filter_map(|line| line.strip_prefix("Requires-Dist:").map(str::trim));
    let needs = needs.filter(|need| !need.contains("extra ==")).filter_map(name);
    // A path with a comma is quoted; no module has one.
    let files = record.lines().filter_map(|line| line.split(',').next());
    let modules = modules(files.filter(|path| path.len() <= MAX_PATH))?;
    // They become a directory's name.
    let plain = |text: &&str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "._-+!".contains(c);
        text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(known)
    };
    let wrong = || invalid("METADATA has no Name or Version".to_owned());
    Ok(Distribution {
        name: normalise(header("Name:").filter(plain).ok_or_else(wrong)?),
        version: header("Version:").filter(plain).ok_or_else(wrong)?.to_owned(),
        modules,
        needs: needs.collect::<BTreeSet<_>>().into_iter().collect(),
        info: info.to_owned(),
    })
}

/// The list of a distribution's files.
pub(super) fn record(info: &Path) -> io::Result<String> {
    let bytes = bounded(MAX_RECORD, info, "RECORD")?;
    String::from_utf8(bytes).map_err(|_| invalid("RECORD is not UTF-8 text".to_owned()))
}

fn bounded(most: u64, info: &Path, file: &str) -> io::Result<Vec<u8>> {
    let too_long = || invalid(format!("{file} has more than {} MiB", most >> 20));
    text::read_up_to(most, &info.join(file))?.ok_or_else(too_long)
}

/// What is wrong with a wheel, not with the machine.
fn invalid(words: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words)
}

/// What a zygote for these wheels imports: the modules of those that were asked for; of a whole list, of those that
/// no other one needs. Private modules and what is shipped by mistake are left out.
pub(super) fn worthwhile(wheels: &[Wheel], direct: &[String]) -> Vec<String> {
    let needed: BTreeSet<&String> = wheels.iter().flat_map(|wheel| &wheel.needs).collect();
    let wanted = |wheel: &&Wheel| {
        if direct.is_empty() { !needed.contains(&wheel.name) } else { direct.contains(&wheel.name) }
    };
    let chosen = wheels.iter().filter(wanted);
    chosen.flat_map(public).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Whether a module has a name of what is shipped by mistake, such as `tests`: no function imports it.
#[must_use]
pub fn is_noise(module: &str) -> bool {
    NOISE.contains(&module.split('.').next().unwrap_or_default())
}

/// A wheel's modules without private ones, unless it has no others.
fn public(wheel: &Wheel) -> Vec<String> {
    let unwanted = |module: &str| is_noise(module) || REPLACING.contains(&module);
    let useful = wheel.modules.iter().filter(|module| !unwanted(module));
    let (private, public): (Vec<String>, Vec<String>) =
        useful.cloned().partition(|module| module.starts_with('_'));
    if public.is_empty() { private } else { public }
}

/// The outermost importable modules among a distribution's files.
fn modules<'a>(files: impl Iterator<Item = &'a str> + Clone) -> io::Result<Vec<String>> {
    let packages: BTreeSet<&str> =
        files.clone().filter_map(|file| file.strip_suffix("/__init__.py")).collect();
    let mut found: BTreeSet<String> = BTreeSet::new();
    for file in files {
        let Some(module) = module(file) else { continue };
        if !module.split('/').all(identifier) {
            continue;
        }
        // Down through namespace packages to the first one that can be imported for something.
        let mut above = module.match_indices('/').map(|(end, _)| &module[..end]);
        let outermost = above.find(|package| packages.contains(package));
        found.insert(outermost.unwrap_or(&module).replace('/', "."));
        if found.len() > MAX_MODULES {
            return Err(invalid(format!("RECORD lists more than {MAX_MODULES} modules")));
        }
    }
    Ok(found.into_iter().collect())
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

    fn modules(files: &[&str]) -> Vec<String> {
        super::modules(files.iter().copied()).unwrap()
    }

    #[test]
    fn a_distribution_brings_its_outermost_modules() {
        let pillow = [
            "PIL/__init__.py",
            "PIL/Image.py",
            "pillow.libs/libjpeg.so",
            "pillow-1.dist-info/RECORD",
        ];
        assert_eq!(modules(&pillow), ["PIL"]);
        assert_eq!(modules(&["six.py", "../../bin/six"]), ["six"]);
        assert_eq!(
            modules(&["google/cloud/storage/__init__.py", "google/cloud/storage/blob.py"]),
            ["google.cloud.storage"]
        );
        assert_eq!(
            modules(&["_cffi_backend.cpython-311-x86_64-linux-gnu.so", "cffi/__init__.py"]),
            ["_cffi_backend", "cffi"]
        );
        assert_eq!(modules(&["_only.abi3.so"]), ["_only"]);
        assert_eq!(
            modules(&["tests/__init__.py", "a/__init__.py", "a/tests/__init__.py"]),
            ["a", "tests"]
        );
    }

    fn wheel(name: &str, modules: &[&str], needs: &[&str]) -> Wheel {
        let owned = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect();
        Wheel { modules: owned(modules), needs: owned(needs), ..Wheel::named(name, "3.11") }
    }

    #[test]
    fn what_was_asked_for_is_worthwhile_or_else_what_no_other_needs() {
        let wheels = [
            wheel("big", &["_big", "big", "tests"], &["small-one"]),
            wheel("small-one", &["_small"], &[]),
            wheel("x", &["x"], &[]),
        ];
        assert_eq!(worthwhile(&wheels, &[]), ["big", "x"]);
        assert_eq!(worthwhile(&wheels, &["small-one".to_owned()]), ["_small"]);
    }

    #[test]
    fn a_distribution_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read(root.path()).unwrap(), None);
        let info = root.path().join("Big_one-1.0.dist-info");
        fs::create_dir(&info).unwrap();
        fs::write(info.join("RECORD"), "big/__init__.py,,\n").unwrap();
        let metadata = "Name: Big_one\nVersion: 1.0\nRequires-Dist: small_one>=1\nRequires-Dist: x ; extra == 'y'\n\nRequires-Dist: z\n";
        fs::write(info.join("METADATA"), metadata).unwrap();
        let found = read(root.path()).unwrap().unwrap();
        assert_eq!((found.name.as_str(), found.version.as_str()), ("big-one", "1.0"));
        for bad in ["Name: a/../b\nVersion: 1\n", "Name: a\nVersion: ../1\n", "Name: a\n"] {
            fs::write(info.join("METADATA"), bad).unwrap();
            assert!(read(root.path()).is_err(), "{bad}");
        }
        assert_eq!(
            (found.modules, found.needs),
            (vec!["big".to_owned()], vec!["small-one".to_owned()])
        );
    }

    #[test]
    fn what_a_distribution_says_of_itself_is_read_up_to_a_length() {
        let root = tempfile::tempdir().unwrap();
        let info = root.path().join("a-1.dist-info");
        fs::create_dir(&info).unwrap();
        let write = |name: &str, text: &str| fs::write(info.join(name), text).unwrap();
        // Holes: a wheel brings a gigabyte of zeros in one megabyte.
        let grow = |name: &str| {
            let file = fs::OpenOptions::new().write(true).open(info.join(name)).unwrap();
            file.set_len(64 << 30).unwrap();
        };
        let refused = || {
            let error = read(root.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            error.to_string()
        };
        for (name, words) in [("RECORD", "32 MiB"), ("METADATA", "16 MiB")] {
            write("RECORD", "a.py,,\n");
            write("METADATA", "Name: a\nVersion: 1\n");
            assert!(read(root.path()).is_ok());
            grow(name);
            let words = format!("{name} has more than {words}");
            assert_eq!(refused(), words);
        }
        write("METADATA", "Name: a\nVersion: 1\n");
        let many: String = (0..=MAX_MODULES).map(|n| format!("m{n}.py\n")).collect();
        write("RECORD", &many);
        assert_eq!(refused(), "RECORD lists more than 50000 modules");
        // In steps as many as the square of its length, this would not end today.
        write("RECORD", &format!("{}b.py,,\nc.py,,\n", "a/".repeat(8 << 20)));
        assert_eq!(read(root.path()).unwrap().unwrap().modules, ["c"]);
    }
}
