//! Files that may be Pythons.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::request::numbers;

/// All candidates in the order of preference; some twice, some broken. Lists directories as the iterator goes on.
pub(super) fn all() -> impl Iterator<Item = PathBuf> {
    managed()
        .into_iter()
        .chain(on_path(|name| name == "python3"))
        .chain(Lazy(Some(pyenv)))
        .chain(Lazy(Some(versioned)))
}

/// Runs a listing only when it is reached.
struct Lazy<F>(Option<F>);

impl<F: FnOnce() -> Vec<PathBuf>> IntoIterator for Lazy<F> {
    type Item = PathBuf;
    type IntoIter = std::vec::IntoIter<PathBuf>;

    fn into_iter(mut self) -> Self::IntoIter {
        self.0.take().map(|list| list()).unwrap_or_default().into_iter()
    }
}

fn home() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute())
}

fn managed() -> Vec<PathBuf> {
    let data = || {
        env::var_os("XDG_DATA_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join(".local/share")))
    };
    let root = env::var_os("UV_PYTHON_INSTALL_DIR")
        .map(PathBuf::from)
        .or_else(|| Some(data()?.join("uv/python")));
    root.map(|root| installations(&root)).unwrap_or_default()
}

fn pyenv() -> Vec<PathBuf> {
    let root =
        env::var_os("PYENV_ROOT").map(PathBuf::from).or_else(|| Some(home()?.join(".pyenv")));
    root.map(|root| installations(&root.join("versions"))).unwrap_or_default()
}

fn versioned() -> Vec<PathBuf> {
    let mut found = on_path(|name| minor(name).is_some());
    found
        .extend(matching(Path::new("/usr/bin"), |name| name == "python3" || minor(name).is_some()));
    found
}

/// `ROOT/*/bin/python3.X`, the newest version first.
fn installations(root: &Path) -> Vec<PathBuf> {
    let directories = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = directories
        .flat_map(|entry| matching(&entry.path().join("bin"), |name| minor(name).is_some()))
        .collect();
    found.sort_by_cached_key(|path| std::cmp::Reverse(version_in(path)));
    found
}

/// The version that a path such as `…/cpython-3.12.1-linux-x86_64-gnu/bin/python3.12` tells.
fn version_in(path: &Path) -> Vec<u64> {
    let name =
        path.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let version = name.split('-').find(|part| part.starts_with(|c: char| c.is_ascii_digit()));
    numbers(version.unwrap_or_default())
}

/// Whether a file name is `python3.X`.
fn minor(name: &str) -> Option<u64> {
    name.strip_prefix("python3.")?.parse().ok()
}

fn on_path(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|p| p.is_absolute())
        .flat_map(|p| matching(&p, &wanted))
        .collect()
}

fn matching(directory: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    found.sort_by_cached_key(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        std::cmp::Reverse((minor(&name), name))
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_installation_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for version in ["3.9.18", "3.12.1", "3.11.7"] {
            let bin = root.path().join(version).join("bin");
            fs::create_dir_all(&bin).unwrap();
            let minor = version.rsplit_once('.').unwrap().0;
            for name in
                [format!("python{minor}"), "python3".to_owned(), format!("python{minor}-config")]
            {
                fs::write(bin.join(name), "").unwrap();
            }
        }
        let names: Vec<_> = installations(root.path())
            .into_iter()
            .map(|p| p.strip_prefix(root.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(
            names,
            ["3.12.1/bin/python3.12", "3.11.7/bin/python3.11", "3.9.18/bin/python3.9"]
        );
    }

    #[test]
    fn a_managed_installation_tells_its_version_by_its_name() {
        let path = Path::new("/x/cpython-3.12.10-linux-x86_64-gnu/bin/python3.12");
        assert_eq!(version_in(path), [3, 12, 10]);
    }
}
