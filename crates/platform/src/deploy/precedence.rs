//! Where a function and a zygote with its packages would import different files under one name.
//!
//! ```text
//!   a function looks in   its code, PYTHONPATH, its layers    │ its packages                       │ Python's library
//!   a zygote looks in                                         │ those of them that it has imported │ Python's library
//! ```
//! Where both find something, and not the same, what the zygote has loaded is not the function's. Such a function comes from zygotes
//! that have imported no package. Where only the function finds something, it comes from none that has looked for that in vain.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use bundle::code;
use packages::{Clash, is_noise};

/// The name of a function's code in its sandbox.
const TASK: &str = "/var/task";

/// Modules of its own that are told apart.
const MOST_OWN: usize = 256;

/// How many of those that stand in each other's way are told.
const TOLD: usize = 5;

/// What of a function's own stands before what a zygote has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Precedence {
    /// Modules that only its own files have.
    pub(crate) own: Vec<String>,
    /// Distributions of which the first has files in the place of the second's.
    pub(crate) clashes: Vec<(String, String)>,
    /// Why none of its packages may be imported ahead, if there is a reason.
    pub(crate) conflict: Option<String>,
}

impl Precedence {
    /// Of a function with its code in `root`, its `PYTHONPATH`, modules of its layers, and its packages' modules and clashes, on a Python that has
    /// `standard` modules.
    pub(crate) fn of<'a>(
        root: &Path,
        python_path: &str,
        of_layers: impl Iterator<Item = String>,
        standard: &BTreeSet<String>,
        modules: impl Iterator<Item = &'a String>,
        clashes: &[Clash],
    ) -> Self {
        let named = python_path.split(':').filter_map(|entry| within(root, entry));
        let own: BTreeSet<String> = std::iter::once(root.to_owned())
            .chain(named)
            .flat_map(|it| code::modules(&it))
            .chain(of_layers)
            .collect();
        let locked: BTreeSet<String> = modules.map(|module| first(module)).collect();
        let of_python = |name: &&String| standard.contains(*name);
        let twice = own.iter().filter(|name| locked.contains(*name) || of_python(name));
        let twice = twice.chain(locked.iter().filter(of_python)).filter(|name| !is_noise(name));
        let twice: BTreeSet<&str> = twice.map(String::as_str).collect();
        let conflict = if own.len() > MOST_OWN {
            Some(format!("it brings {} modules itself", own.len()))
        } else if twice.is_empty() {
            None
        } else {
            let told: Vec<&str> = twice.iter().copied().take(TOLD).collect();
            let more = twice.len() - told.len();
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            Some(format!("{}{more} would hide others of that name", told.join(", ")))
        };
        let of_code = |path: &Path| {
            let ends = path.extension().is_some_and(|end| end == "py" || end == "so");
            ends && path
                .to_str()
                .is_some_and(|path| !is_noise(path.split('/').next().unwrap_or("")))
        };
        let clashes = clashes.iter().filter(|clash| of_code(&clash.path));
        let clashes: BTreeSet<_> =
            clashes.map(|clash| (clash.kept.clone(), clash.hidden.clone())).collect();
        let own = if conflict.is_none() { own.into_iter().collect() } else { Vec::new() };
        Self { own, clashes: clashes.into_iter().collect(), conflict }
    }
}

fn first(module: &str) -> String {
    module.split('.').next().unwrap_or_default().to_owned()
}

/// Where an entry of the `PYTHONPATH` stands in the code; none: elsewhere.
fn within(root: &Path, entry: &str) -> Option<PathBuf> {
    let path = Path::new(entry);
    let below = if path.is_absolute() { path.strip_prefix(TASK).ok()? } else { path };
    let plain =
        below.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (plain && !entry.is_empty()).then(|| root.join(below))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(files: &[&str], path: &str, modules: &[&str]) -> Precedence {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let standard = ["ipaddress", "calendar", "test"].map(str::to_owned).into();
        let modules: Vec<String> = modules.iter().map(|module| (*module).to_owned()).collect();
        Precedence::of(root.path(), path, std::iter::empty(), &standard, modules.iter(), &[])
    }

    #[test]
    fn what_a_function_brings_that_nobody_has_is_its_own() {
        let files = [
            "main.py",
            "helper/__init__.py",
            "fast.cpython-311-x.so",
            "data/a.csv",
            "vendor/six.py",
            "a-b.py",
        ];
        let found = of(&files, "", &["requests"]);
        assert_eq!(
            (found.own, found.conflict),
            (["fast", "helper", "main"].map(str::to_owned).into(), None)
        );
        for path in ["/var/task/vendor", "vendor", "/elsewhere:./vendor"] {
            let found = of(&files, path, &["requests"]);
            assert_eq!(found.own, ["fast", "helper", "main", "six"], "{path}");
        }
        for path in ["/vendor", "../vendor", "/var/task/../vendor", ""] {
            assert_eq!(of(&files, path, &["requests"]).own.len(), 3, "{path}");
        }
    }

    #[test]
    fn what_stands_before_something_else_keeps_packages_from_being_imported_ahead() {
        let conflict =
            |files: &[&str], path: &str, modules: &[&str]| of(files, path, modules).conflict;
        let hide = |names: &str| Some(format!("{names} would hide others of that name"));
        assert_eq!(conflict(&["certifi.py"], "", &["certifi", "requests"]), hide("certifi"));
        assert_eq!(conflict(&["google/__init__.py"], "", &["google.auth"]), hide("google"));
        assert_eq!(conflict(&["google/own.py"], "", &["google.auth"]), None, "it gives way");
        assert_eq!(conflict(&["calendar.py"], "", &["requests"]), hide("calendar"));
        assert_eq!(conflict(&["main.py"], "", &["requests", "ipaddress"]), hide("ipaddress"));
        assert_eq!(conflict(&["vendor/six.py"], "vendor", &["six"]), hide("six"));
        assert_eq!(conflict(&["vendor/six.py"], "", &["six"]), None);
        assert_eq!(
            conflict(&["test/__init__.py"], "", &["test", "requests"]),
            None,
            "nobody imports it"
        );
        let many: Vec<String> = (0..MOST_OWN).map(|n| format!("m{n}.py")).collect();
        let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(conflict(&many, "", &["requests"]), None);
        many.push("one_more.py");
        assert!(conflict(&many, "", &["requests"]).is_some());
    }

    #[test]
    fn distributions_clash_by_code_that_may_be_imported() {
        let clash = |path: &str, kept: &str, hidden: &str| Clash {
            path: path.into(),
            kept: kept.to_owned(),
            hidden: hidden.to_owned(),
        };
        let clashes = [
            clash("jwt/__init__.py", "pyjwt", "jwt"),
            clash("jwt/api.py", "pyjwt", "jwt"),
            clash("tests/__init__.py", "a", "b"),
            clash("LICENSE", "c", "d"),
        ];
        let none = BTreeSet::new();
        let found = Precedence::of(
            Path::new("/nowhere"),
            "",
            std::iter::empty(),
            &none,
            none.iter(),
            &clashes,
        );
        assert_eq!(found.clashes, [("pyjwt".to_owned(), "jwt".to_owned())]);
    }
}
