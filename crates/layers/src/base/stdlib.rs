//! Which files of a standard library a function can use.

use std::path::Path;

/// Top-level packages and modules that are left out: installed packages, windows, development, tests, Python 2.
const UNWANTED: [&str; 13] = [
    "site-packages",
    "dist-packages",
    "EXTERNALLY-MANAGED",
    "sitecustomize.py",
    "test",
    "idlelib",
    "tkinter",
    "turtle.py",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "__phello__",
    "LICENSE.txt",
];

/// Extension modules that are left out, by the start of their names.
const UNWANTED_EXTENSIONS: [&str; 7] =
    ["_tkinter", "_test", "_ctypes_test", "_xxtest", "xxlimited", "_xxsubinterp", "_xxinterp"];

/// Whether a file or directory of the standard library, named relative to it, goes into the base.
pub(super) fn wanted(path: &Path) -> bool {
    let names: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    let (Some(first), Some(last)) = (names.first(), names.last()) else {
        return true;
    };
    if UNWANTED.contains(&&**first) || first.starts_with("config-") {
        return false;
    }
    // The host's own bytecode tells the host's paths; tests sit inside packages too (`unittest/test`, `ctypes/test`).
    if names.iter().any(|name| name == "__pycache__")
        || names.iter().skip(1).any(|n| n == "test" || n == "tests")
    {
        return false;
    }
    if first == "lib-dynload" {
        return wanted_extension(last);
    }
    let static_library =
        path.extension().is_some_and(|extension| extension == "a" || extension == "o");
    !static_library
}

/// Whether an extension module goes into the base, by its file name.
pub(super) fn wanted_extension(name: &str) -> bool {
    !UNWANTED_EXTENSIONS.iter().any(|unwanted| name.starts_with(unwanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_windows_and_installed_packages_stay_out() {
        for out in [
            "site-packages",
            "site-packages/pip",
            "dist-packages/x.py",
            "test/test_os.py",
            "unittest/test",
            "sqlite3/test/x.py",
            "json/__pycache__",
            "config-3.11-x86_64-linux-gnu/libpython3.11.a",
            "tkinter/__init__.py",
            "lib-dynload/_tkinter.cpython-311-x86_64-linux-gnu.so",
            "lib-dynload/_testcapi.cpython-311-x86_64-linux-gnu.so",
        ] {
            assert!(!wanted(Path::new(out)), "{out}");
        }
        for in_ in [
            "os.py",
            "unittest/case.py",
            "lib-dynload",
            "lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so",
            "encodings/utf_8.py",
            "_sysconfigdata__linux_x86_64-linux-gnu.py",
            "doctest.py",
            "distutils/core.py",
            "pydoc_data/topics.py",
        ] {
            assert!(wanted(Path::new(in_)), "{in_}");
        }
    }
}
