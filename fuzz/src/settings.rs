//! What a function says of itself: the files of a bundle that are read before anything is run.

use std::cell::OnceCell;
use std::fs;

use bundle::manifest::{Overrides, Settings};
use tempfile::TempDir;

use crate::scratch::scratch;

/// The files; the first is always there, the others when there is anything for them.
const FILES: [&str; 4] = ["main.py", "pyproject.toml", "requirements.txt", "more.txt"];
/// Between two files: in no UTF-8 text.
const NEXT: u8 = 0xff;

pub(crate) fn fuzz(bytes: &[u8]) {
    thread_local!(static PLACE: OnceCell<TempDir> = const { OnceCell::new() });
    PLACE.with(|place| {
        let root = place.get_or_init(scratch).path();
        let mut parts = bytes.splitn(FILES.len(), |byte| *byte == NEXT);
        for name in FILES {
            let (path, part) = (root.join(name), parts.next().unwrap_or_default());
            if part.is_empty() && name != FILES[0] {
                // It may not be there.
                drop(fs::remove_file(path));
            } else {
                fs::write(path, part).expect("there is room for a file");
            }
        }
        match Settings::read(root, Overrides::default()) {
            Ok(settings) => {
                if let Ok(python) = settings.python() {
                    let _ = (python.accepts("3.12.1"), python.to_string());
                }
                let finding = settings.sources().for_finding();
                assert_eq!(finding, finding.for_finding(), "nothing more is left out");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}
