//! Projects whose modules lie in `src/`.
//!
//! ```text
//!   pyproject.toml   [build-system]: a project that is installed, and so imported by its modules' names
//!   src/shop/        what `import shop` finds then
//!   main.py          the entry file; or `handler = "shop.api.handler"` names a function below `src/`
//! ```
//!
//! `uv run` and `pip install -e .` put `src/` on the path of such a project. So does a deploy, by `PYTHONPATH`, and says so. A
//! project that no tool would install is told the setting that does it.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

use super::table::Chosen;

/// The folder.
pub(super) const FOLDER: &str = "src";

/// Where it lies inside a sandbox.
const PLACE: &str = "/var/task/src";

const VARIABLE: &str = "PYTHONPATH";

/// Most modules that are told by name.
const TOLD: usize = 5;

/// Whether a build tool would install the project: uv's own rule, `[build-system]` unless `tool.uv.package` says otherwise.
pub(super) fn is_installed(project: &Table) -> bool {
    let uv = project.get("tool").and_then(|tool| tool.get("uv"));
    let said = uv.and_then(|uv| uv.get("package")).and_then(Value::as_bool);
    said.unwrap_or_else(|| project.contains_key("build-system"))
}

/// Puts `src/` on the path of a project that is installed, or tells how `source`, its entry file, would find what it imports
/// from there. Returns what is to be told.
pub(super) fn found(
    root: &Path,
    project: &Table,
    source: &str,
    chosen: &mut Chosen,
) -> Option<String> {
    let modules = modules(root);
    let path = chosen.environment.get(VARIABLE).map_or("", String::as_str);
    if modules.is_empty() || path.split(':').any(names_it) {
        return None;
    }
    let line = format!("environment = {{ {VARIABLE} = \"{FOLDER}\" }}");
    if is_installed(project) {
        let path = if path.is_empty() { PLACE.to_owned() } else { format!("{path}:{PLACE}") };
        chosen.environment.insert(VARIABLE.to_owned(), path);
        let told = modules.iter().take(TOLD).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if modules.len() > TOLD { ", …" } else { "" };
        return Some(format!(
            "{FOLDER}/ is on the path, as if the project were installed ({told}{more}): the same as {line} in [tool.lambswool]"
        ));
    }
    let imported = modules.iter().find(|module| imports(source, module))?;
    let elsewhere = root.join(imported).is_dir() || root.join(format!("{imported}.py")).is_file();
    (!elsewhere && !source.contains("sys.path")).then(|| {
        format!("{FOLDER}/ is not on the path, so {imported} is not found: add {line} to [tool.lambswool]")
    })
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

/// Whether a line of a source imports a module.
fn imports(source: &str, module: &str) -> bool {
    source.lines().any(|line| {
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let begins = matches!(words.next(), Some("import" | "from"));
        let is = |word: &str| word == module || word.starts_with(&format!("{module}."));
        begins && words.take_while(|word| *word != "import").any(is)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUILT: &str = "[build-system]\nrequires = [\"hatchling\"]\n";

    fn told(files: &[&str], project: &str, source: &str, path: &str) -> (Option<String>, String) {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        let mut chosen = Chosen::over(super::super::Overrides::default());
        if !path.is_empty() {
            chosen.environment.insert(VARIABLE.to_owned(), path.to_owned());
        }
        let told = found(root.path(), &project.parse().unwrap(), source, &mut chosen);
        (told, chosen.environment.remove(VARIABLE).unwrap_or_default())
    }

    #[test]
    fn a_project_that_is_installed_finds_its_modules_in_src() {
        let files = ["main.py", "src/shop/__init__.py", "src/one.py"];
        let (said, path) = told(&files, BUILT, "", "");
        assert!(said.unwrap().contains("(one, shop): the same as environment = "));
        assert_eq!(path, PLACE);
        assert_eq!(told(&files, BUILT, "", "lib").1, format!("lib:{PLACE}"));
        for own in ["src", "lib:./src/", PLACE] {
            assert_eq!(told(&files, BUILT, "", own), (None, own.to_owned()));
        }
        assert_eq!(told(&files, "[tool.uv]\npackage = true\n", "", "").1, PLACE);
        let not = format!("{BUILT}[tool.uv]\npackage = false\n");
        assert_eq!(told(&files, &not, "", ""), (None, String::new()));
        assert_eq!(told(&["src/data.json", "src/x/y.txt"], BUILT, "", "").1, "");
    }

    #[test]
    fn what_is_imported_from_src_in_vain_is_told_with_the_line_that_mends_it() {
        let files = ["main.py", "src/shop/api.py"];
        for source in ["from shop import z\n", "    import json, shop.api as api\n"] {
            let (said, path) = told(&files, "", source, "");
            let said = said.unwrap();
            assert!(said.contains("shop is not found: add environment = { PYTHONPATH = \"src\" }"));
            assert_eq!(path, "");
        }
        for source in
            ["import json\n", "from json import shop\n", "sys.path.insert(0, 'src')\nimport shop\n"]
        {
            assert_eq!(told(&files, "", source, "").0, None, "{source}");
        }
        assert_eq!(told(&["src/shop/a.py", "shop/a.py"], "", "import shop", "").0, None);
    }
}
