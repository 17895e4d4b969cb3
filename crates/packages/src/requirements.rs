//! A requirements file as a list of requirements: continuation lines joined, comments gone, includes followed inside the
//! bundle, everything refused that would reach outside it or build something.

use std::path::{Component, Path};

use layers::text;
use thiserror::Error;

use crate::address::plain;

/// Most files that one includes, those that these include counted, and each as often as it is included.
const MOST_INCLUDES: usize = 100;

/// Most lines of a function's requirements, those of files included more than once counted as often.
pub const MOST_LINES: usize = 100_000;

/// Why a requirement is not accepted.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum RequirementError {
    /// An option of pip that is not read.
    #[error("{file}: the option {option:?} is not supported; {}", instead(option))]
    Option {
        /// The requirements file.
        file: String,
        /// The option as it is written.
        option: String,
    },
    /// A local path, a repository, an editable install.
    #[error(
        "{file}: {requirement:?} is not a package of an index; put the code into the function's folder instead"
    )]
    NotPackage {
        /// Where it stands.
        file: String,
        /// As it is written.
        requirement: String,
    },
    /// A reference to an environment variable.
    #[error("{file}: {requirement:?} refers to an environment variable; write the value")]
    Variable {
        /// Where it stands.
        file: String,
        /// As it is written.
        requirement: String,
    },
    /// An address with a name and a password in it. It is not repeated: it holds a secret.
    #[error(
        "{file}: the address of {name:?} holds credentials, which would end up in the lock; put them into the worker's netrc instead"
    )]
    Credentials {
        /// Where it stands.
        file: String,
        /// The package's normalised name.
        name: String,
    },
    /// An address that two programs could read as two.
    #[error(
        "{file}: the address of {name:?} is no plain one; write it without spaces, and other characters than those of RFC 3986 as %XX"
    )]
    Address {
        /// Where it stands.
        file: String,
        /// The package's normalised name.
        name: String,
    },
    /// A setting of `[tool.uv]` that cannot be honoured.
    #[error("{file}: {key}: {reason}")]
    Source {
        /// Where it stands.
        file: String,
        /// The key as it is written.
        key: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// Nothing that names a package.
    #[error("{file}: {requirement:?} names no package; write for example \"pandas==2.2.3\"")]
    NoName {
        /// Where it stands.
        file: String,
        /// As it is written.
        requirement: String,
    },
    /// A name and then nothing that is a version.
    #[error(
        "{file}: {requirement:?} is no requirement; write for example \"pandas==2.2.3\" or \"pandas>=2,<3\""
    )]
    Malformed {
        /// Where it stands.
        file: String,
        /// As it is written.
        requirement: String,
    },
    /// Longer than the limit.
    #[error(
        "{file}: the requirements, those of included files among them, have more than {} MiB or {MOST_LINES} lines", text::MAX_BYTES >> 20
    )]
    TooLong {
        /// The requirements file.
        file: String,
    },
    /// A file in another encoding.
    #[error("{file} is {is}; save it as UTF-8")]
    NotText {
        /// The requirements file.
        file: String,
        /// What it is instead.
        is: &'static str,
    },
    /// More included files than the limit, perhaps one of them again and again.
    #[error(
        "{file}: files include each other without end, more than five deep, or more than {MOST_INCLUDES} of them; list the requirements in one"
    )]
    TooManyIncludes {
        /// The requirements file in which it became too many.
        file: String,
    },
    /// An included file that is not in the bundle.
    #[error("{file}: cannot include {included:?}: there is no such file in the function's folder")]
    Include {
        /// The requirements file.
        file: String,
        /// What it includes.
        included: String,
    },
}

/// What a requirements file lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// One PEP 508 requirement each, its hashes behind it.
    pub requirements: Vec<String>,
    /// Of the files that `-c` names: they limit versions and ask for nothing.
    pub constraints: Vec<String>,
}

/// Reads the requirements `file` of the bundle in `root`, and what it includes.
///
/// # Errors
/// With the line that is not accepted, and what to write instead.
pub fn read(root: &Path, file: &str) -> Result<Listed, RequirementError> {
    let (mut listed, mut taken) = (Listed::default(), Taken::default());
    read_into(root, file, 0, &mut taken, &mut listed)?;
    Ok(listed)
}

/// What was read of a file and all that it includes.
#[derive(Default)]
struct Taken {
    includes: usize,
    bytes: u64,
    lines: usize,
}

fn read_into(
    root: &Path,
    file: &str,
    depth: u8,
    taken: &mut Taken,
    into: &mut Listed,
) -> Result<(), RequirementError> {
    let missing = |included: &str| RequirementError::Include {
        file: file.to_owned(),
        included: included.to_owned(),
    };
    let bytes = text::read(&root.join(file)).map_err(|_| missing(file))?;
    let too_long = || RequirementError::TooLong { file: file.to_owned() };
    let bytes = bytes.ok_or_else(too_long)?;
    taken.bytes += bytes.len() as u64;
    taken.lines += bytes.iter().filter(|byte| **byte == b'\n').count();
    if taken.bytes > text::MAX_BYTES || taken.lines > MOST_LINES {
        return Err(too_long());
    }
    let not_text = |is| RequirementError::NotText { file: file.to_owned(), is };
    let text = text::decoded(bytes).map_err(not_text)?;
    for line in logical_lines(&text) {
        let option = |names: [&str; 2]| names.iter().find_map(|name| line.strip_prefix(name));
        let (requirements, constraints) =
            (option(["--requirement", "-r"]), option(["--constraint", "-c"]));
        if let Some(included) = requirements.or(constraints) {
            let included = included.trim_start_matches('=').trim();
            taken.includes += 1;
            if taken.includes > MOST_INCLUDES || depth > 4 {
                return Err(RequirementError::TooManyIncludes { file: file.to_owned() });
            }
            let included = &beside(file, included).ok_or_else(|| missing(included))?;
            if requirements.is_some() {
                read_into(root, included, depth + 1, taken, into)?;
            } else {
                let mut limits = Listed::default();
                read_into(root, included, depth + 1, taken, &mut limits)?;
                into.constraints.extend(limits.requirements);
                into.constraints.extend(limits.constraints);
            }
        } else if line == "--require-hashes" || names_the_usual_index(&line) {
            // Always so, unless the operator says otherwise.
        } else {
            check(file, &line)?;
            into.requirements.push(line);
        }
    }
    Ok(())
}

/// A file that another one names, as pip finds it: from the folder of the one that names it. None outside of the bundle.
fn beside(file: &str, included: &str) -> Option<String> {
    let mut folders: Vec<&str> = file.split('/').collect();
    folders.pop();
    for component in Path::new(included).components() {
        match component {
            Component::Normal(name) => folders.push(name.to_str()?),
            Component::CurDir => {}
            Component::ParentDir => drop(folders.pop()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(folders.join("/"))
}

/// Whether a line names the public index, as exported lists do.
fn names_the_usual_index(line: &str) -> bool {
    let address = ["--index-url", "-i"].iter().find_map(|option| line.strip_prefix(option));
    let address = address.map(|rest| rest.trim_start_matches('=').trim().trim_end_matches('/'));
    address == Some("https://pypi.org/simple")
}

/// What to write in place of one of the installer's options.
fn instead(option: &str) -> &'static str {
    let name = option.split(['=', ' ']).next().unwrap_or_default();
    match name {
        "--pre" => {
            "to allow a package's pre-releases, name one in its version, as in \"package>=2.0rc1\""
        }
        "-i" | "--index-url" | "--extra-index-url" | "-f" | "--find-links" | "--no-index"
        | "--trusted-host" => {
            "an index that the worker's operator allows is named in [[tool.uv.index]]"
        }
        _ => "leave it out",
    }
}

/// Joins continued lines, drops comments and empty lines, as pip does: a comment ends with its line.
pub(crate) fn logical_lines(text: &str) -> Vec<String> {
    let (mut lines, mut begun) = (Vec::new(), String::new());
    for line in text.lines() {
        let (part, goes_on) = match line.strip_suffix('\\') {
            Some(part) if !line.trim_start().starts_with('#') => (part, true),
            _ => (line, false),
        };
        begun.push(' ');
        begun.push_str(part);
        if !goes_on {
            lines.push(std::mem::take(&mut begun));
        }
    }
    lines.push(begun);
    let words = lines.iter().map(|line| {
        line.split_whitespace().take_while(|word| !word.starts_with('#')).collect::<Vec<_>>()
    });
    words.filter(|words| !words.is_empty()).map(|words| words.join(" ")).collect()
}

/// Whether a requirement of `file` is one that may be resolved: a package of an index, or a wheel by https.
///
/// # Errors
/// With what is wrong with it, and what to write instead.
pub fn check(file: &str, requirement: &str) -> Result<(), RequirementError> {
    let (file, text) = (file.to_owned(), requirement.to_owned());
    if requirement.starts_with("-e") || requirement.starts_with("--editable") {
        return Err(RequirementError::NotPackage { file, requirement: text });
    }
    if requirement.starts_with('-') {
        return Err(RequirementError::Option { file, option: text });
    }
    let option =
        requirement.split(' ').find(|word| word.starts_with('-') && !word.starts_with("--hash="));
    if let Some(option) = option {
        return Err(RequirementError::Option { file, option: option.to_owned() });
    }
    // The installer would fill in the worker's environment.
    if requirement.contains("${") {
        return Err(RequirementError::Variable { file, requirement: text });
    }
    let target = requirement.split_once('@').map(|(_, target)| target.trim());
    let local =
        requirement.starts_with(['.', '/']) || requirement.contains("://") && target.is_none();
    if local || target.is_some_and(|target| !target.starts_with("https://")) {
        return Err(RequirementError::NotPackage { file, requirement: text });
    }
    let authority = target.and_then(|target| target.strip_prefix("https://"));
    let authority = authority.and_then(|rest| rest.split('/').next()).unwrap_or_default();
    if authority.contains('@') {
        return Err(RequirementError::Credentials {
            file,
            name: name(requirement).unwrap_or_default(),
        });
    }
    if address(requirement).is_some_and(|address| !plain(address)) {
        return Err(RequirementError::Address {
            file,
            name: name(requirement).unwrap_or_default(),
        });
    }
    // One line is one requirement: a line break would smuggle in another, or an option.
    if name(requirement).is_none() || requirement.contains(['\n', '\r']) {
        return Err(RequirementError::NoName { file, requirement: text });
    }
    match target.is_some() || is_versioned(requirement) {
        true => Ok(()),
        false => Err(RequirementError::Malformed { file, requirement: text }),
    }
}

/// Whether what follows the name is what PEP 508 has there: extras, versions, a marker. Versions and markers themselves are
/// read by the installer.
fn is_versioned(requirement: &str) -> bool {
    const OPERATORS: [&str; 8] = ["===", "~=", "==", "!=", "<=", ">=", "<", ">"];
    let named = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let rest = requirement.trim_start_matches(named).trim_start();
    let rest = match rest.strip_prefix('[').map(|extras| extras.split_once(']')) {
        Some(Some((_, rest))) => rest.trim_start(),
        Some(None) => return false,
        None => rest,
    };
    let end = rest.find(';').or_else(|| rest.find(" --hash=")).unwrap_or(rest.len());
    let versions = rest[..end].trim();
    let versions =
        versions.strip_prefix('(').map_or(versions, |inside| inside.trim_end_matches(')'));
    let versions = versions.trim().trim_end_matches(',');
    versions.starts_with("--hash=")
        || versions.is_empty()
        || versions.split(',').all(|one| {
            let version = OPERATORS.iter().find_map(|operator| one.trim().strip_prefix(operator));
            let version = version.map(str::trim).unwrap_or_default();
            version.starts_with(|c: char| c.is_ascii_alphanumeric()) && !version.contains(' ')
        })
}

/// The same, without an address: what an unexamined package may ask for.
pub(crate) fn check_indexed(file: &str, requirement: &str) -> Result<(), RequirementError> {
    check(file, requirement)?;
    match address(requirement) {
        Some(_) => Err(RequirementError::NotPackage {
            file: file.to_owned(),
            requirement: requirement.to_owned(),
        }),
        None => Ok(()),
    }
}

/// The address of which a requirement is, if it names one: up to its marker and its hashes, as the installer reads it.
pub(crate) fn address(requirement: &str) -> Option<&str> {
    let (_, target) = requirement.split_once('@')?;
    let ends = [" ;", " --hash="].into_iter().filter_map(|end| target.find(end));
    Some(target[..ends.min().unwrap_or(target.len())].trim())
}

/// The normalised name (PEP 503) of the package that a requirement is about.
pub(crate) fn name(requirement: &str) -> Option<String> {
    let end = requirement.find(|c: char| !(c.is_ascii_alphanumeric() || "._-".contains(c)));
    let name = &requirement[..end.unwrap_or(requirement.len())];
    let name = name.trim_end_matches(['.', '-', '_']);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()).then(|| normalise(name))
}

/// PEP 503: lower case, runs of `-`, `_` and `.` as one hyphen.
pub(crate) fn normalise(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

/// Whether a requirement names one version, without a wildcard.
pub(crate) fn exact(requirement: &str) -> bool {
    let constraint = requirement.split([';', '#']).next().unwrap_or_default();
    let constraint = constraint.split(" --hash=").next().unwrap_or_default();
    let version = constraint.split_once("==").map(|(_, version)| version.trim());
    version.is_some_and(|version| !version.contains(['*', ',', '=']))
}

/// The same without the hashes of its files.
pub(crate) fn without_hashes(requirement: &str) -> String {
    let words = requirement.split_whitespace().filter(|word| !word.starts_with("--hash="));
    words.collect::<Vec<_>>().join(" ").trim_end_matches([';', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn bundle(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn comments_continuations_and_includes_are_resolved() {
        let root = bundle(&[
            ("requirements.txt", "# all\npandas==2.2.3 \\\n  --hash=sha256:aa\n-r more.txt\n\n"),
            (
                "more.txt",
                "Pillow  # images\r\n-c limits.txt\npython_dateutil ; python_version > '3'\n",
            ),
            ("limits.txt", "six<2\n"),
        ]);
        let Listed { requirements, constraints } = read(root.path(), "requirements.txt").unwrap();
        assert_eq!(constraints, ["six<2"]);
        assert_eq!(
            requirements,
            ["pandas==2.2.3 --hash=sha256:aa", "Pillow", "python_dateutil ; python_version > '3'"]
        );
        assert!(exact(&requirements[0]) && !exact(&requirements[1]));
        assert_eq!(name(&requirements[2]).unwrap(), "python-dateutil");
    }

    #[test]
    fn a_comment_ends_with_its_line_and_begins_after_any_space() {
        let lines =
            logical_lines("# note \\\nsix==1.16.0\t# tab\nidna \\\n# between\nurllib3#egg \\");
        assert_eq!(lines, ["six==1.16.0", "idna", "urllib3#egg"]);
    }

    #[test]
    fn what_is_no_version_is_told_with_an_example() {
        for good in [
            "six",
            "six == 1.16.0",
            "six[a, b] (>=1, <2) ; python_version > '3'",
            "six~=1.0,!=1.5",
            "six>=1.0;python_version>'3'",
            "six===1!2.0+local",
            "six==1.* --hash=sha256:00",
            "six --hash=sha256:00",
            "six>=1,",
        ] {
            assert_eq!(check("f", good), Ok(()), "{good}");
        }
        for bad in ["six=1.16.0", "this is none", "six==", "six 1.0", "six[a", "six>1 <2", "six@"] {
            let error = check("f", bad).unwrap_err().to_string();
            assert!(error.contains("f: "), "{bad}: {error}");
        }
        let error = check("requirements.txt", "six=1.16.0").unwrap_err().to_string();
        assert!(error.contains("pandas==2.2.3"), "{error}");
    }

    #[test]
    fn what_reaches_outside_the_bundle_is_refused() {
        for bad in [
            "-e .",
            "./local",
            "/abs/x.whl",
            "git+https://example.org/x",
            "x @ git+https://example.org/x",
            "x @ file:///etc/passwd",
            "--index-url https://example.org",
            "-f /wheels",
            "file:///x.whl",
            "-c c.txt",
        ] {
            let root = bundle(&[("requirements.txt", bad)]);
            assert!(read(root.path(), "requirements.txt").is_err(), "{bad}");
        }
        for bad in ["../up.txt", "/etc/passwd", "absent.txt", "a/../../up.txt", ".", ""] {
            let root = bundle(&[("requirements.txt", &format!("-r {bad}\n"))]);
            let error = read(root.path(), "requirements.txt").unwrap_err();
            assert!(matches!(error, RequirementError::Include { .. }), "{bad}: {error}");
        }
        assert!(check("f", "pandas\n--index-url https://example.org").is_err());
        assert!(check("f", "x @ https://example.org/${HOME}.whl").is_err());
        assert!(check("f", "x==1 --config-settings=a=b --hash=sha256:00").is_err());
        assert!(check("f", "x==1 --hash=sha256:00").is_ok());
        let secret = check("f", "x @ https://me:hunter2@example.org/x.whl").unwrap_err();
        assert!(!secret.to_string().contains("hunter2"), "{secret}");
        assert!(check("f", "x @ https://example.org/x-1-py3-none-any.whl").is_ok());
        // A program that drops the blank, or takes the backslash for a slash, sees another host.
        assert!(check("f", r"x @ https://a.example\@b.example/x.whl").is_err());
        for odd in [r"https://a.example\.b.example/x.whl", "https://a.example .b.example/x.whl"] {
            let refused = check("f", &format!("x @ {odd}")).unwrap_err();
            assert!(matches!(refused, RequirementError::Address { .. }), "{odd}: {refused}");
        }
        assert!(check_indexed("f", "x @ https://example.org/x-1-py3-none-any.whl").is_err());
        assert!(check_indexed("f", "x==1").is_ok());
    }

    #[test]
    fn a_file_is_included_from_the_folder_of_the_one_that_names_it() {
        let root = bundle(&[
            ("requirements.txt", "-r lists/web.txt\n"),
            ("lists/web.txt", "-r ./base.txt\n-c ../limits.txt\n"),
            ("lists/base.txt", "six\n"),
            ("base.txt", "another\n"),
            ("limits.txt", "six<2\n"),
        ]);
        let Listed { requirements, constraints } = read(root.path(), "requirements.txt").unwrap();
        assert_eq!((requirements, constraints), (vec!["six".to_owned()], vec!["six<2".to_owned()]));
    }

    #[test]
    fn files_that_include_each_other_again_and_again_are_given_up() {
        let root = bundle(&[("requirements.txt", "-r requirements.txt\n")]);
        let error = read(root.path(), "requirements.txt").unwrap_err();
        assert!(matches!(error, RequirementError::TooManyIncludes { .. }), "{error}");
        // Three deep, each as often as the one above: a million of them.
        let [first, second, third] =
            ["a", "b", "c"].map(|name| format!("-r {name}.txt\n").repeat(100));
        let files = [("requirements.txt", &first), ("a.txt", &second), ("b.txt", &third)];
        let root = bundle(&files.map(|(name, text)| (name, text.as_str())));
        fs::write(root.path().join("c.txt"), "six\n").unwrap();
        let error = read(root.path(), "requirements.txt").unwrap_err();
        assert!(matches!(error, RequirementError::TooManyIncludes { .. }), "{error}");
        let flat = "-c a.txt\n".repeat(MOST_INCLUDES + 1);
        let root = bundle(&[("requirements.txt", &flat), ("a.txt", "six\n")]);
        let error = read(root.path(), "requirements.txt").unwrap_err();
        assert!(matches!(error, RequirementError::TooManyIncludes { .. }), "{error}");
        let root = bundle(&[("requirements.txt", &flat[9..]), ("a.txt", "six\n")]);
        assert_eq!(read(root.path(), "requirements.txt").unwrap().constraints.len(), MOST_INCLUDES);
    }

    #[test]
    fn a_file_of_requirements_has_an_end() {
        let long = "# nothing\n".repeat(1 << 20);
        let root = bundle(&[("requirements.txt", &long)]);
        let error = read(root.path(), "requirements.txt").unwrap_err();
        assert!(matches!(error, RequirementError::TooLong { .. }), "{error}");
    }

    #[test]
    fn an_option_is_answered_with_what_to_write_and_the_usual_index_is_none() {
        let read = |line: &str| {
            let text = format!("{line}\nsix==1.17.0\n");
            read(bundle(&[("requirements.txt", &text)]).path(), "requirements.txt")
        };
        for usual in [
            "-i https://pypi.org/simple",
            "-i https://pypi.org/simple/",
            "--index-url https://pypi.org/simple",
            "--index-url=https://pypi.org/simple/",
        ] {
            assert_eq!(read(usual).unwrap().requirements, ["six==1.17.0"], "{usual}");
        }
        for (option, instead) in [
            ("-i https://pypi.org.example/simple", "[[tool.uv.index]]"),
            ("--extra-index-url https://pypi.org/simple", "[[tool.uv.index]]"),
            ("--pre", "package>=2.0rc1"),
            ("--prefer-binary", "leave it out"),
        ] {
            let error = read(option).unwrap_err().to_string();
            assert!(error.contains(option) && error.contains(instead), "{error}");
        }
    }

    #[test]
    fn what_is_included_again_and_again_counts_as_often() {
        let many = "six\n".repeat(MOST_LINES / 8);
        let includes =
            |count| bundle(&[("requirements.txt", &"-r b.txt\n".repeat(count)), ("b.txt", &many)]);
        assert_eq!(
            read(includes(7).path(), "requirements.txt").unwrap().requirements.len(),
            MOST_LINES / 8 * 7
        );
        let error = read(includes(9).path(), "requirements.txt").unwrap_err();
        assert!(matches!(error, RequirementError::TooLong { .. }), "{error}");
    }

    #[test]
    fn a_mark_in_front_is_no_requirement_and_another_encoding_is_named() {
        let root = bundle(&[("requirements.txt", "\u{feff}six==1.17.0\n")]);
        assert_eq!(read(root.path(), "requirements.txt").unwrap().requirements, ["six==1.17.0"]);
        let utf16: Vec<u8> = "\u{feff}six\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        for (bytes, is) in [(utf16, "UTF-16"), (b"caf\xe9\n".to_vec(), "not UTF-8")] {
            fs::write(root.path().join("requirements.txt"), bytes).unwrap();
            let error = read(root.path(), "requirements.txt").unwrap_err().to_string();
            assert!(error.contains(is) && error.contains("save it as UTF-8"), "{error}");
        }
    }

    #[test]
    fn only_one_plain_version_is_exact() {
        assert!(exact("pandas==2.2.3") && exact("pandas[excel] == 2.2.3 ; python_version > '3'"));
        assert!(
            !exact("pandas==2.*")
                && !exact("pandas==2.* --hash=sha256:00")
                && !exact("pandas>=2")
                && !exact("pandas")
                && !exact("pandas; extra == 'x'")
        );
    }
}
