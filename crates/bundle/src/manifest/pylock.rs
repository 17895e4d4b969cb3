//! `pylock.toml` (PEP 751): every package with its version and hashes, as `uv export`, `uv pip compile`, pip and PDM write it.
//!
//! It is read as the requirements that it comes to, one a package, with the hashes of all its files: what is installed is
//! looked for where the function's packages come from, and must be one of these files.

use packages::requirements;
use toml::{Table, Value};

use super::ManifestError;

/// The file of PEP 751.
pub(super) const FILE: &str = "pylock.toml";

/// Most characters of a lock that are part of no word, a link or a hash: as many values, keys and tables can it have at most.
/// It is they that take memory, and the words that make a lock long. Measured: 1 MiB that uv wrote, of 82 packages with 3200
/// files, has 141 Ki of them and takes 13 MiB while it is parsed. The worst that can be written with as many takes 130 MiB,
/// which is what the worst 256 KiB of any other TOML take.
const MOST_MARKS: usize = 144 << 10;

/// Words that a marker may have there and nowhere else.
const OF_LOCKS: [&str; 2] = ["extras", "dependency_groups"];

/// What a lock asks for.
pub(super) fn requirements(text: &str) -> Result<Vec<String>, ManifestError> {
    let file = || FILE.to_owned();
    if marks(text) > MOST_MARKS {
        return Err(ManifestError::LongTable { file: file() });
    }
    // With the parser's own words and no line: a line may be as long as the lock.
    let lock: Table = text.parse().map_err(|error: toml::de::Error| ManifestError::Toml {
        file: file(),
        message: error.message().to_owned(),
    })?;
    let version = lock.get("lock-version").and_then(Value::as_str).unwrap_or_default();
    if version.split('.').next() != Some("1") {
        return Err(wrong("lock-version", version, "only version 1 is known"));
    }
    let packages = lock.get("packages").and_then(Value::as_array);
    packages.into_iter().flatten().filter(|package| !is_project(package)).map(requirement).collect()
}

fn marks(text: &str) -> usize {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_/:%".contains(byte);
    text.bytes().filter(|byte| !is_of_word(byte)).count()
}

/// The folder of the lock itself, which `uv export` and PDM list unless they are told not to: the function has it.
fn is_project(package: &Value) -> bool {
    let Some(directory) = package.get("directory") else { return false };
    let path = directory.get("path").and_then(Value::as_str).unwrap_or_default();
    matches!(path, "." | "./") && directory.get("subdirectory").is_none()
}

fn requirement(package: &Value) -> Result<String, ManifestError> {
    let text = |key: &str| package.get(key).and_then(Value::as_str);
    let name = text("name").ok_or_else(|| wrong("packages", "", "one has no name"))?;
    let Some(version) = text("version").filter(|_| package.get("vcs").is_none()) else {
        let reason =
            "it is not a package of an index; put the code into the function's folder instead";
        return Err(wrong("packages.name", name, reason));
    };
    let marker = text("marker").unwrap_or_default();
    if marker
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .any(|word| OF_LOCKS.contains(&word))
    {
        let reason = "what only an extra or a group wants is not told apart; write the lock without extras and groups";
        return Err(wrong("packages.marker", marker, reason));
    }
    let wheels = package.get("wheels").and_then(Value::as_array).into_iter().flatten();
    let files = wheels.chain(package.get("sdist"));
    let hashes: Option<Vec<&str>> = files.map(sha256).collect();
    let Some(hashes) = hashes.filter(|hashes| !hashes.is_empty()) else {
        return Err(wrong("packages.name", name, "each of its files needs a sha256"));
    };
    let marker = if marker.is_empty() { String::new() } else { format!(" ; {marker}") };
    let hashes: String = hashes.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
    let line = format!("{name}=={version}{marker}{hashes}");
    requirements::check(FILE, &line)?;
    Ok(line)
}

fn sha256(file: &Value) -> Option<&str> {
    let hash = file.get("hashes")?.get("sha256")?.as_str()?;
    (hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

fn wrong(key: &str, value: &str, reason: &str) -> ManifestError {
    ManifestError::Value {
        file: FILE.to_owned(),
        key: key.to_owned(),
        value: format!("{value:?}"),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(packages: &str) -> Result<Vec<String>, String> {
        let text = format!("lock-version = \"1.0\"\ncreated-by = \"uv\"\n{packages}");
        requirements(&text).map_err(|error| error.to_string())
    }

    fn file(digit: char) -> String {
        let hash = digit.to_string().repeat(64);
        format!(
            "{{ url = \"https://example.org/x\", size = 7, hashes = {{ sha256 = \"{hash}\" }} }}"
        )
    }

    #[test]
    fn each_package_is_required_with_its_version_and_the_hashes_of_all_its_files() {
        let (source, one, other) = (file('a'), file('b'), file('c'));
        let read = lock(&format!(
            "[[packages]]\nname = \"numpy\"\nversion = \"2.1.0\"\nindex = \"https://index.example.org/simple\"\n\
             sdist = {source}\nwheels = [{one}, {other}]\n\
             [[packages]]\nname = \"tzdata\"\nversion = \"2025.2\"\nmarker = \"sys_platform == 'win32'\"\nwheels = [{one}]\n"
        ));
        let hash = |digit: &str| format!(" --hash=sha256:{}", digit.repeat(64));
        let (a, b, c) = (hash("a"), hash("b"), hash("c"));
        assert_eq!(
            read.unwrap(),
            [
                format!("numpy==2.1.0{b}{c}{a}"),
                format!("tzdata==2025.2 ; sys_platform == 'win32'{b}"),
            ]
        );
        assert_eq!(lock("").unwrap(), [""; 0]);
    }

    #[test]
    fn what_a_lock_says_that_cannot_be_followed_is_named() {
        let wheels = format!("wheels = [{}]", file('a'));
        for (package, words) in [
            ("name = \"x\"\nversion = \"1\"\nwheels = [{ url = \"x\" }]", "sha256"),
            ("name = \"x\"\nversion = \"1\"", "sha256"),
            ("name = \"x\"\ndirectory = { path = \"../x\" }", "the function's folder"),
            (
                "name = \"x\"\ndirectory = { path = \".\", subdirectory = \"x\" }",
                "the function's folder",
            ),
            ("name = \"x\"\nversion = \"1\"\nvcs = { type = \"git\" }", "the function's folder"),
            (
                &format!(
                    "name = \"x\"\nversion = \"1\"\nmarker = \"'dev' in dependency_groups\"\n{wheels}"
                ),
                "without extras",
            ),
            (&format!("name = \"x\"\nversion = \"1 --pre\"\n{wheels}"), "--pre"),
            (&format!("name = \"x\"\nversion = \"1\\n-r y\"\n{wheels}"), "pylock.toml"),
        ] {
            let error = lock(&format!("[[packages]]\n{package}\n")).unwrap_err();
            assert!(error.starts_with("pylock.toml: ") && error.contains(words), "{error}");
        }
        let newer = requirements("lock-version = \"2.0\"").unwrap_err();
        assert!(newer.to_string().contains("only version 1"), "{newer}");
        let error = lock("[[packages]\n").unwrap_err();
        assert!(error.starts_with("pylock.toml: "), "{error}");
    }

    #[test]
    fn the_project_itself_is_passed_over_since_the_function_is_its_folder() {
        let six = format!("name = \"six\"\nversion = \"1.16.0\"\nwheels = [{}]", file('a'));
        for path in [".", "./"] {
            let read = lock(&format!(
                "[[packages]]\nname = \"x\"\ndirectory = {{ path = \"{path}\", editable = true }}\n[[packages]]\n{six}\n"
            ));
            assert_eq!(read.unwrap().len(), 1);
        }
    }

    #[test]
    fn a_lock_of_a_megabyte_is_read_and_one_that_takes_more_memory_to_parse_is_not() {
        // As long as PyPI's are, in the form of uv's.
        let url = format!("https://files.example.org/packages/{}", "0123456789abcdef/".repeat(7));
        let file = format!(
            "    {{ url = \"{url}-3.14.5-cp311-cp311-macosx_10_9_universal2.whl\", upload-time = 2026-10-11T00:59:42Z, size = 832358, hashes = {{ sha256 = \"{}\" }} }},\n",
            "a".repeat(64)
        );
        let package = |number: usize| {
            let files = file.repeat(40);
            format!("[[packages]]\nname = \"p{number}\"\nversion = \"1\"\nwheels = [\n{files}]\n\n")
        };
        let packages: String = (0..80).map(package).collect();
        assert!(packages.len() > 1 << 20);
        assert_eq!(lock(&packages).unwrap().len(), 80);
        // The most memory for a character.
        let most = format!("x = [{}]\n", "{a.b.c.d.e.f.g.h=1},".repeat(MOST_MARKS / 10));
        assert!(most.len() < packages.len());
        let error = requirements(&most).unwrap_err();
        assert!(matches!(error, ManifestError::LongTable { .. }), "{error}");
    }
}
