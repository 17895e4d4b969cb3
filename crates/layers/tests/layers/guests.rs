//! The guest layer.

use layers::guest;

use crate::machine::{BASE, STORE, told};

#[test]
fn the_guest_is_written_once_and_compiled() {
    let files: [(&str, &[u8]); 3] = [
        ("lambswool_guest/__init__.py", b"NAME = 'guest'\n"),
        ("lambswool_guest/__main__.py", b"import lambswool_guest\nprint(lambswool_guest.NAME, lambswool_guest.__spec__.cached)\n"),
        ("lambswool_landing.abi3.so", b"\x7fELF"),
    ];
    let layer = guest::install(&STORE, &BASE, &files).unwrap();
    assert_eq!(guest::install(&STORE, &BASE, &[files[2], files[0], files[1]]).unwrap(), layer);
    let root = STORE.layer_path(&layer);
    let script = format!(
        "import sys; sys.path.insert(0, {:?}); import runpy; runpy.run_module('lambswool_guest')",
        root.display().to_string()
    );
    let output = told(&BASE.command(&STORE).command().args(["-c", &script]).output().unwrap());
    assert!(output.starts_with("guest ") && output.trim_end().ends_with(".pyc"), "{output}");
    assert!(guest::install(&STORE, &BASE, &[("../x.py", b"")]).is_err());
}
