//! Whether a zygote may be forked, as a plain function.

use sandbox::Imports;

/// Why a zygote must not be forked; none if it may be.
///
/// Threads do not survive a fork, and locks that they hold stay locked for ever. Open files do not
/// survive ours, which closes all but the first three descriptors; interval timers survive no fork.
/// Shared memory would join functions that must stay apart: each would read what the others write
/// there. A file from outside the zygote's own package set may hold anything, and would reach
/// handlers that never asked for it (DESIGN §6).
pub(crate) fn unfit(imports: &Imports) -> Option<String> {
    if imports.threads > 0 {
        return Some(format!("its imports left {} threads or processes running", imports.threads));
    }
    if imports.shared == u32::MAX {
        return Some("its imports left more of a memory map than is looked at".to_owned());
    }
    if imports.shared > 0 {
        return Some(format!(
            "its imports left {} mappings of memory that all forks would write to",
            imports.shared
        ));
    }
    if imports.fds > 0 {
        return Some(format!("its imports left {} files open", imports.fds));
    }
    if imports.scratch {
        return Some("its imports left more in /tmp than forks can be given".to_owned());
    }
    if imports.timers {
        return Some("its imports left a timer set, which forks do not have".to_owned());
    }
    let trusted = ["/opt/python/", "/opt/lambswool/", "/usr/"];
    let sealed =
        |file: &str| trusted.iter().any(|place| file.starts_with(place)) && !file.contains("/../");
    let stray = imports.files.iter().find(|file| !sealed(&file.path));
    stray.map(|file| {
        format!("module {} was loaded from {}, outside its package set", file.module, file.path)
    })
}

#[cfg(test)]
mod tests {
    use sandbox::LoadedFile;

    use super::*;

    #[test]
    fn a_zygote_with_threads_open_files_or_a_file_from_elsewhere_is_unfit() {
        let file = |path: &str| Imports {
            files: vec![LoadedFile { path: path.to_owned(), ..LoadedFile::default() }],
            ..Imports::default()
        };
        assert_eq!(unfit(&Imports::default()), None);
        assert_eq!(unfit(&file("/opt/python/numpy/__init__.py")), None);
        assert_eq!(unfit(&file("/usr/lib/python3.12/json/__init__.py")), None);
        assert!(unfit(&file("/tmp/m.py")).is_some());
        assert!(unfit(&file("/var/task/m.py")).is_some());
        assert!(unfit(&file("/opt/python/../../tmp/m.py")).is_some());
        assert!(unfit(&file("m.py")).is_some());
        assert!(unfit(&Imports { scratch: true, ..Imports::default() }).is_some());
        assert!(unfit(&Imports { threads: 1, ..Imports::default() }).is_some());
        assert!(unfit(&Imports { fds: 1, ..Imports::default() }).is_some());
        assert!(unfit(&Imports { shared: 1, ..Imports::default() }).is_some());
        assert!(unfit(&Imports { timers: true, ..Imports::default() }).is_some());
    }

    #[test]
    fn a_failed_import_does_not_make_a_zygote_unfit() {
        let failed = vec![("extra".to_owned(), "ImportError: libGL.so.1".to_owned())];
        assert_eq!(unfit(&Imports { failed, ..Imports::default() }), None);
    }
}
