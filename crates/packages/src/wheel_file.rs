//! A wheel that a stranger's code made: what it says it is, and whether it may be unpacked.

use std::io::{self, Read, Seek};
use std::path::{Component, Path};
use std::str::FromStr;

use layers::zips;
use pep440_rs::Version;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::requirements;

/// Most bytes that it unpacks to.
const MAX_BYTES: u64 = 4 << 30;

/// Longest text that is understood, in bytes.
const MAX_TEXT: u64 = 4 << 20;

/// Directories of `*.data` that an installer knows.
const SCHEMES: [&str; 5] = ["purelib", "platlib", "headers", "scripts", "data"];

/// Why a wheel is not accepted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum WheelError {
    /// Its file name is not that of a wheel of what was built.
    #[error("the wheel is called {0:?}, which is not a wheel of what was to be built")]
    FileName(String),
    /// It says inside that it is another distribution, or not what it is.
    #[error("the wheel's own metadata are not of what was to be built: {0}")]
    Metadata(String),
    /// It is no archive, or a broken one.
    #[error("the wheel cannot be read: {0}")]
    Archive(String),
    /// A file that would not stay in its place.
    #[error("the wheel holds {0:?}, which may not be unpacked")]
    Path(String),
    /// It is for another Python or machine.
    #[error("the wheel does not fit this Python and machine; uv says:\n{0}")]
    Unfit(String),
    /// Too much of anything.
    #[error("the wheel is too large: {0}")]
    TooLarge(String),
}

/// What a wheel says that resolving needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// `Requires-Dist`, as it is written; packages of an index only.
    pub(crate) requires: Vec<String>,
    /// `Requires-Python`
    pub(crate) python: Option<String>,
    /// `Provides-Extra`
    pub(crate) extras: Vec<String>,
}

/// Reads a wheel of this name and version through, every byte of it.
pub(crate) fn check(
    name: &str,
    version: &str,
    file: &str,
    wheel: impl Read + Seek,
) -> Result<Metadata, WheelError> {
    if !file_name_fits(name, version, file) {
        return Err(WheelError::FileName(file.to_owned()));
    }
    let broken = |error: &dyn std::error::Error| WheelError::Archive(error.to_string());
    let mut archive = zips::open(wheel).map_err(WheelError::Archive)?;
    let mut left = MAX_BYTES;
    let mut described = Vec::new();
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(|error| broken(&error))?;
        let path = entry.name().to_owned();
        if !path_fits(&path) || entry.is_symlink() {
            return Err(WheelError::Path(path));
        }
        // By what comes out, not by what the archive announces.
        let mut content = (&mut entry).take(left + 1);
        let read = match path.rsplit_once('/') {
            Some((directory, file @ ("METADATA" | "entry_points.txt")))
                if is_info(name, version, directory) =>
            {
                let mut text = Vec::new();
                let read = content.take(MAX_TEXT + 1).read_to_end(&mut text);
                if text.len() as u64 > MAX_TEXT {
                    return Err(WheelError::TooLarge(format!("its {file}")));
                }
                let text = String::from_utf8_lossy(&text).into_owned();
                match file {
                    "METADATA" => described.push(text),
                    _ => commands_fit(&text)?,
                }
                read.map(|read| read as u64)
            }
            _ => io::copy(&mut content, &mut io::sink()),
        };
        let read = read.map_err(|error| broken(&error))?;
        left = left.checked_sub(read).ok_or_else(|| {
            WheelError::TooLarge(format!("it unpacks to more than {MAX_BYTES} bytes"))
        })?;
    }
    let [text] = described.as_slice() else {
        let found = format!("{} METADATA of {name} {version}", described.len());
        return Err(WheelError::Metadata(found));
    };
    Metadata::read(name, version, text)
}

impl Metadata {
    fn read(name: &str, version: &str, text: &str) -> Result<Self, WheelError> {
        let headers = || text.lines().take_while(|line| !line.is_empty());
        let all = |key: &'static str| {
            headers()
                .filter_map(move |line| line.strip_prefix(key)?.strip_prefix(':'))
                .map(|v| v.trim().to_owned())
        };
        let wrong = |what: String| Err(WheelError::Metadata(what));
        match (all("Name").next(), all("Version").next()) {
            (Some(n), Some(v))
                if requirements::normalise(&n) == name && same_version(&v, version) => {}
            (n, v) => {
                let (n, v) = (n.unwrap_or_default(), v.unwrap_or_default());
                return wrong(format!("they are of {n:?} {v:?}, not of {name} {version}"));
            }
        }
        let requires: Vec<String> = all("Requires-Dist").collect();
        // They go to the resolver: an address would make it fetch, a path make it read.
        if let Some(bad) =
            requires.iter().find(|one| requirements::check_indexed("METADATA", one).is_err())
        {
            return wrong(format!("they require {bad:?}, which is no package of an index"));
        }
        Ok(Self {
            requires,
            python: all("Requires-Python").next(),
            extras: all("Provides-Extra").collect(),
        })
    }
}

/// `name-version(-build)?-python-abi-platform.whl`; whether the tags fit, the installer says.
fn file_name_fits(name: &str, version: &str, file: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._-+!".contains(c);
    let Some(stem) = file.strip_suffix(".whl").filter(|stem| stem.chars().all(known)) else {
        return false;
    };
    let parts: Vec<&str> = stem.split('-').collect();
    matches!(parts.len(), 5 | 6)
        && file.starts_with(|c: char| c.is_ascii_alphanumeric())
        && requirements::normalise(parts[0]) == name
        && same_version(parts[1], version)
}

fn is_info(name: &str, version: &str, directory: &str) -> bool {
    let named = directory.strip_suffix(".dist-info").and_then(|stem| stem.split_once('-'));
    named.is_some_and(|(n, v)| requirements::normalise(n) == name && same_version(v, version))
}

/// Versions may be written in several ways: `1.0` is `1.0.0`, and `-` stands as `_` in file names.
fn same_version(said: &str, wanted: &str) -> bool {
    let parse = |text: &str| Version::from_str(&text.replace('_', "-")).ok();
    said == wanted || parse(said).zip(parse(wanted)).is_some_and(|(a, b)| a == b)
}

/// The installer makes a file of each command's name.
fn commands_fit(entry_points: &str) -> Result<(), WheelError> {
    let names = entry_points.lines().filter_map(|line| Some(line.split_once('=')?.0.trim()));
    match names.into_iter().find(|name| name.contains(['/', '\\'])) {
        Some(bad) => Err(WheelError::Path(bad.to_owned())),
        None => Ok(()),
    }
}

/// A path that stays below where it is unpacked, on one line, and in a scheme that the installer knows.
fn path_fits(path: &str) -> bool {
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_));
    let inside = !path.is_empty()
        && !path.contains(|c: char| c.is_control() || c == '\\')
        && Path::new(path).components().all(plain);
    let mut parts = path.split('/');
    let data = parts.next().is_some_and(|first| first.ends_with(".data"));
    inside
        && (!data
            || parts.next().is_none_or(|scheme| scheme.is_empty() || SCHEMES.contains(&scheme)))
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use zip::write::SimpleFileOptions;

    use super::*;

    const METADATA: &str = "Metadata-Version: 2.1\nName: My.Pack\nVersion: 1.0\n\
        Requires-Dist: six>=1; extra == 'x'\nProvides-Extra: x\nRequires-Python: >=3.8\n\nName: body\n";

    fn wheel(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (path, text) in files {
            archive.start_file(*path, SimpleFileOptions::default()).unwrap();
            archive.write_all(text.as_bytes()).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    fn checked(file: &str, files: &[(&str, &str)]) -> Result<Metadata, WheelError> {
        check("my-pack", "1.0", file, Cursor::new(wheel(files)))
    }

    const INFO: (&str, &str) = ("my_pack-1.0.dist-info/METADATA", METADATA);
    const FILE: &str = "my_pack-1.0.0-py3-none-any.whl";

    #[test]
    fn a_wheel_of_what_was_asked_for_is_taken_with_its_requirements() {
        let metadata = checked(FILE, &[("my_pack.py", "x"), INFO]).unwrap();
        assert_eq!(metadata.requires, ["six>=1; extra == 'x'"]);
        assert_eq!((metadata.python.as_deref(), metadata.extras.len()), (Some(">=3.8"), 1));
    }

    #[test]
    fn a_file_that_would_leave_its_place_is_refused() {
        for bad in [
            "../x.py",
            "/etc/cron.d/x",
            "a/../../x",
            "a\\..\\x",
            "a\nb",
            "./../x",
            "my_pack-1.0.data/etc/x",
        ] {
            let refused = checked(FILE, &[INFO, (bad, "x")]).unwrap_err();
            assert!(matches!(refused, WheelError::Path(_)), "{bad}: {refused}");
        }
        let mut archive = zip::ZipWriter::new(Cursor::new(wheel(&[INFO])));
        archive.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap();
        let linked = archive.finish().unwrap().into_inner();
        assert!(matches!(
            check("my-pack", "1.0", FILE, Cursor::new(linked)),
            Err(WheelError::Path(_) | WheelError::Metadata(_) | WheelError::Archive(_))
        ));
    }

    #[test]
    fn a_wheel_that_lists_a_file_twice_is_refused() {
        let mut bytes = wheel(&[INFO, ("one.py", "x"), ("two.py", "y")]);
        while let Some(at) = bytes.windows(6).position(|name| name == b"two.py") {
            bytes[at..at + 3].copy_from_slice(b"one");
        }
        let refused = check("my-pack", "1.0", FILE, Cursor::new(bytes)).unwrap_err();
        assert!(matches!(&refused, WheelError::Archive(why) if why.contains("twice")), "{refused}");
    }

    #[test]
    fn a_wheel_of_another_name_or_version_is_refused() {
        for file in [
            "six-1.0-py3-none-any.whl",
            "my_pack-2.0-py3-none-any.whl",
            "../my_pack-1.0-py3-none-any.whl",
            "my_pack-1.0.whl",
            "my_pack-1.0-py3-none-any.tar",
        ] {
            assert_eq!(checked(file, &[INFO]).unwrap_err(), WheelError::FileName(file.to_owned()));
        }
        let other = METADATA.replace("My.Pack", "six");
        for files in [
            vec![],
            vec![("six-1.0.dist-info/METADATA", METADATA)],
            vec![(INFO.0, other.as_str())],
            vec![INFO, ("My_Pack-1.0.dist-info/METADATA", METADATA)],
        ] {
            let refused = checked(FILE, &files).unwrap_err();
            assert!(matches!(refused, WheelError::Metadata(_)), "{refused}");
        }
    }

    #[test]
    fn a_requirement_that_reaches_outside_an_index_is_refused() {
        for bad in ["x @ file:///etc/passwd", "x @ git+https://example.org/x", "-r /etc/passwd"] {
            let text = METADATA.replace("six>=1; extra == 'x'", bad);
            let refused = checked(FILE, &[(INFO.0, &text)]).unwrap_err();
            assert!(refused.to_string().contains(bad), "{refused}");
        }
    }

    #[test]
    fn a_command_that_would_be_written_elsewhere_is_refused() {
        let commands = |name: &str| {
            let text = format!("[console_scripts]\n{name} = my_pack:main\n");
            checked(FILE, &[INFO, ("my_pack-1.0.dist-info/entry_points.txt", &text)])
        };
        assert!(commands("my-pack").is_ok());
        let refused = commands("../../usr/bin/x").unwrap_err();
        assert_eq!(refused, WheelError::Path("../../usr/bin/x".to_owned()));
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        let none = check("my-pack", "1.0", FILE, Cursor::new(b"PK not"));
        assert!(matches!(none, Err(WheelError::Archive(_))));
    }
}
