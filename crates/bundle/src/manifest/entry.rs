//! Which file of a bundle is run.

use std::fs;
use std::path::Path;

use layers::FileError;

use super::{ManifestError, src_layout};

/// Names that a folder's entry file may have, in the order of preference.
const NAMES: [&str; 4] = ["main.py", "app.py", "handler.py", "lambda_function.py"];

/// The entry file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Relative to the bundle.
    pub(super) file: String,
    /// The module's dotted name.
    pub(super) module: String,
    /// The function, when a setting names it.
    pub(super) function: Option<String>,
}

/// Finds it by its name, when no setting names one.
pub(super) fn find(root: &Path) -> Result<Entry, ManifestError> {
    let mut sources = Vec::new();
    let mut folders = Vec::new();
    for entry in fs::read_dir(root).map_err(FileError::at("list", root))?.flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        if entry.path().is_dir() {
            folders.push(name);
        } else if name.strip_suffix(".py").is_some_and(|stem| !stem.contains('.')) {
            sources.push(name);
        }
    }
    sources.sort();
    let by_name = NAMES.iter().find(|name| sources.iter().any(|source| source == *name));
    let file = match (sources.as_slice(), by_name) {
        ([only], _) => only.clone(),
        (_, Some(name)) => (*name).to_owned(),
        _ => return Err(no_entry(&sources, &folders)),
    };
    let module = file.trim_end_matches(".py").to_owned();
    Ok(Entry { file, module, function: None })
}

fn no_entry(sources: &[String], folders: &[String]) -> ManifestError {
    let found = match (sources, folders) {
        ([], [folder]) => format!("only the folder {folder}/ (deploy what is inside it)"),
        ([], _) => "no .py file".to_owned(),
        _ => sources.join(", "),
    };
    ManifestError::NoEntry { looked_for: NAMES.join(", "), found }
}

/// Finds it by a setting `module.function`, where the module may be dotted itself; in `src/`, too, where that is on the path.
pub(super) fn named(root: &Path, handler: &str, in_src: bool) -> Result<Entry, ManifestError> {
    let form = || ManifestError::HandlerForm(handler.to_owned());
    let (module, function) = handler.rsplit_once('.').ok_or_else(form)?;
    if !is_identifier(function) || !module.split('.').all(is_identifier) {
        return Err(form());
    }
    let mut files = files_of(module).to_vec();
    if in_src {
        let below = |file: &String| format!("{}/{file}", src_layout::FOLDER);
        files.extend(files.iter().map(below).collect::<Vec<_>>());
    }
    match files.iter().find(|file| root.join(file).is_file()) {
        Some(file) => Ok(Entry {
            file: file.clone(),
            module: module.to_owned(),
            function: Some(function.to_owned()),
        }),
        None => Err(ManifestError::HandlerMissing {
            handler: handler.to_owned(),
            file: files[0].clone(),
        }),
    }
}

/// The file of a dotted module, when the bundle has it as a source.
pub(super) fn source_of(root: &Path, module: &str) -> Option<String> {
    let plain = module.split('.').all(is_identifier);
    files_of(module).into_iter().find(|file| plain && root.join(file).is_file())
}

fn is_identifier(part: &str) -> bool {
    part.starts_with(|c: char| c == '_' || c.is_alphabetic())
        && part.chars().all(|c| c == '_' || c.is_alphanumeric())
}

/// Where the source of a dotted module may be.
fn files_of(module: &str) -> [String; 2] {
    let path = module.replace('.', "/");
    [format!("{path}.py"), format!("{path}/__init__.py")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn the_only_file_or_the_usual_name_is_the_entry() {
        let found = |files: &[&str]| find(folder(files).path()).map(|entry| entry.module);
        assert_eq!(found(&["thumb.py", "data.json"]).unwrap(), "thumb");
        assert_eq!(found(&["a.py", "app.py", "handler.py"]).unwrap(), "app");
        let error = found(&["a.py", "b.py"]).unwrap_err().to_string();
        assert!(error.contains("main.py, app.py") && error.contains("a.py, b.py"), "{error}");
        let error = found(&["function/main.py"]).unwrap_err().to_string();
        assert!(error.contains("function/"), "{error}");
    }

    #[test]
    fn a_named_handler_may_sit_in_a_package() {
        let root = folder(&["pkg/__init__.py", "pkg/web.py"]);
        assert_eq!(named(root.path(), "pkg.web.run", false).unwrap().file, "pkg/web.py");
        let root_of_src = folder(&["src/shop/api.py"]);
        let found = named(root_of_src.path(), "shop.api.run", true).unwrap();
        assert_eq!((&*found.file, &*found.module), ("src/shop/api.py", "shop.api"));
        assert!(named(root_of_src.path(), "shop.api.run", false).is_err());
        assert_eq!(named(root.path(), "pkg.run", false).unwrap().file, "pkg/__init__.py");
        for bad in ["run", "../x.run", "pkg.", ".run", "/etc/x.run"] {
            assert!(
                matches!(named(root.path(), bad, false), Err(ManifestError::HandlerForm(_))),
                "{bad}"
            );
        }
        assert!(
            named(root.path(), "absent.run", false).unwrap_err().to_string().contains("absent.py")
        );
    }
}
