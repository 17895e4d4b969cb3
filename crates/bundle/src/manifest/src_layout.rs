//! Projects whose modules lie in `src/`.
//!
//! ```text
//!   pyproject.toml   [build-system]: a project that is installed, and so imported by its modules' names
//!   src/shop/        what `import shop` finds then
//!   main.py          the entry file; or `handler = "shop.api.handler"` names a function below `src/`
//! ```
//!
//! `uv run` and `pip install -e .` put `src/` on the path of such a project. So does a deploy, by `PYTHONPATH`, and says so. A
//! project that no tool would install is told the setting that does it, when a file of its own imports what is only there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::table::Chosen;

/// An import that the function's folder does not answer: its file, its line, and the module.
pub(super) type Missing = (String, u32, String);

/// The folder of the src layout.
pub(super) const FOLDER: &str = "src";

/// Where it lies inside a sandbox.
const PLACE: &str = "/var/task/src";

/// Where the function's folder lies inside a sandbox.
const TASK: &str = "/var/task";

pub(super) const VARIABLE: &str = "PYTHONPATH";

/// Most modules that are told by name.
const TOLD: usize = 5;

/// Whether a build tool would install the project: uv's own rule, `[build-system]` unless `tool.uv.package` says otherwise.
pub(super) fn is_installed(project: &Table) -> bool {
    let uv = project.get("tool").and_then(|tool| tool.get("uv"));
    let said = uv.and_then(|uv| uv.get("package")).and_then(Value::as_bool);
    said.unwrap_or_else(|| project.contains_key("build-system"))
}

/// Puts `src/` on the path of a project that is installed. Returns what is to be told.
pub(super) fn found(root: &Path, project: &Table, chosen: &mut Chosen) -> Option<String> {
    let modules = modules(root);
    let path = chosen.environment.get(VARIABLE).map_or("", String::as_str);
    if modules.is_empty() || path.split(':').any(names_it) {
        return None;
    }
    let line = setting();
    if is_installed(project) {
        let path = if path.is_empty() { PLACE.to_owned() } else { format!("{path}:{PLACE}") };
        chosen.environment.insert(VARIABLE.to_owned(), path);
        let told = modules.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if modules.len() > TOLD { ", …" } else { "" };
        return Some(format!(
            "{FOLDER}/ is on the path, as if the project were installed ({told}{more}): the same as {line} in [tool.lambswool]"
        ));
    }
    None
}

/// What is imported from `src/` in vain, if no package brings it: modules, and how to find each. `missing` are imports that
/// nothing else in the function's folder answers.
pub(super) fn in_vain(
    root: &Path,
    missing: &[Missing],
    standard: &BTreeSet<String>,
) -> Vec<(String, String)> {
    let modules = modules(root);
    let in_src = missing.iter().filter(|(_, _, module)| modules.contains(module));
    let told = in_src.filter(|(_, _, module)| !standard.contains(module)).take(TOLD);
    told.map(|(file, number, module)| {
        let line = setting();
        let said = format!("{file}:{number}: {FOLDER}/ is not on the path, so {module} is not found: add {line} to [tool.lambswool]");
        (module.clone(), said)
    })
    .collect()
}

/// The line that puts `src/` on the path.
fn setting() -> String {
    format!("environment = {{ {VARIABLE} = \"{FOLDER}\" }}")
}

/// Where an entry of the `PYTHONPATH` stands in the function's folder; none: elsewhere.
pub(super) fn within(entry: &str) -> Option<&str> {
    let below = match entry.strip_prefix(TASK) {
        Some(below) => below.strip_prefix('/')?,
        None => entry,
    };
    let outside = below.starts_with('/') || below.split('/').any(|part| part == "..");
    (!outside && !below.is_empty()).then_some(below)
}

fn names_it(entry: &str) -> bool {
    [FOLDER, "./src", PLACE].contains(&entry.trim_end_matches('/'))
}

/// What can be imported from `src/`, sorted.
fn modules(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let mut modules: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            if entry.path().is_dir() {
                let holds = fs::read_dir(entry.path()).ok()?.flatten();
                let python = |name: String| name.ends_with(".py") || name.ends_with(".so");
                let mut names = holds.filter_map(|entry| entry.file_name().into_string().ok());
                return names.any(python).then_some(name);
            }
            name.strip_suffix(".py").map(str::to_owned)
        })
        .filter(|name| !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric()))
        .collect();
    modules.sort();
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: &str = "[build-system]\nrequires = [\"hatchling\"]\n";

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let (file, text) = file.split_once(' ').unwrap_or((file, ""));
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    fn told(files: &[&str], project: &str, path: &str) -> (Option<String>, String) {
        let mut chosen = Chosen::over(super::super::Overrides::default());
        if !path.is_empty() {
            chosen.environment.insert(VARIABLE.to_owned(), path.to_owned());
        }
        let told = found(folder(files).path(), &project.parse().unwrap(), &mut chosen);
        (told, chosen.environment.remove(VARIABLE).unwrap_or_default())
    }

    #[test]
    fn a_project_that_is_installed_finds_its_modules_in_src() {
        let files = ["main.py", "src/shop/__init__.py", "src/one.py"];
        let (said, path) = told(&files, BUILT, "");
        assert!(said.unwrap().contains("(one, shop): the same as environment = "));
        assert_eq!(path, PLACE);
        assert_eq!(told(&files, BUILT, "lib").1, format!("lib:{PLACE}"));
        for own in ["src", "lib:./src/", PLACE] {
            assert_eq!(told(&files, BUILT, own), (None, own.to_owned()));
        }
        assert_eq!(told(&files, "[tool.uv]\npackage = true\n", "").1, PLACE);
        let not = format!("{BUILT}[tool.uv]\npackage = false\n");
        assert_eq!(told(&files, &not, ""), (None, String::new()));
        assert_eq!(told(&["src/data.json", "src/x/y.txt"], BUILT, "").1, "");
    }

    /// What is told of a function whose entry file is `source`.
    fn in_vain_of(source: &str, files: &[&str]) -> Vec<String> {
        let main = format!("main.py {source}\ndef handler(event, context): ...\n");
        let root = folder(&[&[&*main], files].concat());
        let python = layers::python::discover().next().unwrap();
        let python = layers::Interpreter::at(python.executable);
        let manifest = super::super::inspect(root.path(), &python).unwrap();
        manifest.in_src.into_iter().map(|(_, said)| said).collect()
    }

    #[test]
    fn what_is_imported_from_src_in_vain_is_told_with_the_line_that_mends_it() {
        let files = ["src/shop/api.py", "src/json.py", "src/yaml.py"];
        let line =
            "shop is not found: add environment = { PYTHONPATH = \"src\" } to [tool.lambswool]";
        for source in [
            "from shop import z",
            "def f():\n    import json, shop.api as api",
            "if __name__ != '__main__':\n    import shop",
            "try:\n    import shop\nexcept ValueError: ...",
            "with open(f) as g:\n    import shop",
            "class A:\n    import shop",
        ] {
            let said = in_vain_of(source, &files);
            assert!(matches!(&said[..], [one] if one.ends_with(line)), "{source}: {said:?}");
        }
        let helper = [&files[..], &["helper.py \nimport shop", "unused.py import yaml"]].concat();
        let said = in_vain_of("import helper", &helper);
        assert!(matches!(&said[..], [one] if one.starts_with("helper.py:2: ")), "{said:?}");
    }

    #[test]
    fn nothing_is_told_of_src_where_an_import_may_be_found_or_may_be_in_vain() {
        let files = ["src/shop/api.py", "src/json.py"];
        for source in [
            "import json",
            "from json import shop",
            "import sys\nsys.path.insert(0, 'src')\nimport shop",
            "from sys import path\npath.append('src')\nimport shop",
            "import sys as s\ns.path.append('src')\nimport shop",
            "from importlib.util import find_spec\nif find_spec('shop'):\n    import shop",
            "import site\nsite.addsitedir('src')\nimport shop",
            "import sys, x\nsys.modules['shop'] = x\nimport shop",
            "try:\n    import shop\nexcept ImportError: ...",
            "try:\n    import shop\nexcept (OSError, ModuleNotFoundError): ...",
            "try:\n    import shop\nexcept: ...",
            "try:\n    import a\nexcept ImportError:\n    import shop",
            "import contextlib\nwith contextlib.suppress(ImportError):\n    import shop",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shop",
            "if __name__ == '__main__':\n    import shop",
            "import sys\nif sys.version_info < (3,):\n    import shop",
            "from .shop import x",
            "from src import shop",
            "text = \"\"\"\nimport shop\n\"\"\"",
        ] {
            assert_eq!(in_vain_of(source, &files), [""; 0], "{source}");
        }
        for own in ["shop/a.py", "shop.py", "shop.cpython-311-x86_64-linux-gnu.so", "shop/data.txt"]
        {
            assert_eq!(in_vain_of("import shop", &["src/shop/a.py", own]), [""; 0], "{own}");
        }
        let path = "pyproject.toml [tool.lambswool]\nenvironment = { PYTHONPATH = \"./src/\" }";
        assert_eq!(in_vain_of("import shop", &["src/shop/a.py", path]), [""; 0]);
    }
}
