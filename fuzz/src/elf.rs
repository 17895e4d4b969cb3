//! ELF files: libraries whose needs are looked up, and programs that are loaded into a guest.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use layers::fuzzed;
use microvm::image::Image;
use microvm::memory::Space;
use microvm::memory::layout::{PROGRAM, USER_END};
use tempfile::TempDir;

use crate::scratch::scratch;

pub(crate) fn fuzz(bytes: &[u8]) {
    static PLACE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PLACE.get_or_init(|| {
        let place = scratch();
        let path = place.path().join("library.so");
        (place, path)
    });
    fs::write(path, bytes).expect("there is room for a file");
    if let Err(error) = fuzzed::library(path) {
        assert!(!error.to_string().is_empty());
    }
    let Ok(image) = Image::parse(bytes) else { return };
    let mut space = Space::new().expect("the host has address space");
    if let Ok(loaded) = image.load(bytes, &mut space, PROGRAM) {
        assert!(loaded.end <= USER_END, "{loaded:x?}");
        for (range, _) in space.regions().iter() {
            assert!(range.end <= USER_END, "{range:x?} lies where no guest's memory is");
        }
    }
}
