//! Which shared libraries a set of ELF files needs, and where they are (ld.so(8), without running anything).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use goblin::elf::Elf;
use goblin::elf::dynamic::{DT_RPATH, DT_RUNPATH};
use goblin::elf::program_header::PT_DYNAMIC;
use thiserror::Error;

/// Why a file's needs are not known.
#[derive(Debug, Error)]
pub enum ElfError {
    /// It could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not ELF, or broken.
    #[error("{} is no readable ELF file", path.display())]
    Parse {
        /// The file's path.
        path: PathBuf,
        /// The error of the ELF reader.
        source: goblin::error::Error,
    },
}

/// What one ELF file says.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// Its loader: `/lib64/ld-linux-x86-64.so.2`.
    pub(crate) loader: Option<PathBuf>,
    needed: Vec<String>,
    /// DT_RUNPATH, else DT_RPATH, `$ORIGIN` filled in.
    search: Vec<PathBuf>,
    /// Whether it is of 64 bits, and `e_machine`.
    pub(crate) machine: (bool, u16),
}

impl Object {
    pub(crate) fn read(path: &Path) -> Result<Self, ElfError> {
        let read = |source| ElfError::Read { path: path.to_owned(), source };
        let parse = |source| ElfError::Parse { path: path.to_owned(), source };
        // A program or a library of the machine's own.
        let bytes = fs::read(path).map_err(read)?;
        let elf = Elf::parse(&bytes).map_err(parse)?;
        // $ORIGIN is the directory of the real file, as the loader has it.
        let real = path.canonicalize().map_err(read)?;
        let origin = real.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let paths = if elf.runpaths.is_empty() { &elf.rpaths } else { &elf.runpaths };
        let search = paths.iter().flat_map(|list| list.split(':')).filter(|p| !p.is_empty());
        let search = search
            .map(|p| PathBuf::from(p.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin)));
        Ok(Self {
            loader: elf.interpreter.map(PathBuf::from),
            needed: elf.libraries.iter().map(|&name| name.to_owned()).collect(),
            search: search.collect(),
            machine: (elf.is_64, elf.header.e_machine),
        })
    }
}

/// The file without DT_RUNPATH and DT_RPATH, so that the loader searches only its own places. A file
/// that is not little-endian ELF of 64 bits stays as it is.
pub(crate) fn without_search_paths(mut bytes: Vec<u8>) -> Vec<u8> {
    for range in tables(&bytes) {
        let Some(table) = bytes.get_mut(range) else { continue };
        let mut kept: Vec<u8> = Vec::with_capacity(table.len());
        for entry in table.chunks_exact(ENTRY_BYTES) {
            let tag = entry.first_chunk().map(|tag| u64::from_le_bytes(*tag));
            if !matches!(tag, Some(DT_RPATH | DT_RUNPATH)) {
                kept.extend_from_slice(entry);
            }
        }
        // Entries of zeros end the table.
        kept.resize(table.len(), 0);
        table.copy_from_slice(&kept);
    }
    bytes
}

/// Of an entry of the dynamic table: a tag and a value.
const ENTRY_BYTES: usize = 16;

/// Where the dynamic table is, if the file has one.
fn tables(bytes: &[u8]) -> Vec<Range<usize>> {
    let Ok(elf) = Elf::parse(bytes) else { return Vec::new() };
    if !elf.is_64 || !elf.little_endian {
        return Vec::new();
    }
    let dynamic = elf.program_headers.iter().filter(|header| header.p_type == PT_DYNAMIC);
    dynamic.map(goblin::elf::ProgramHeader::file_range).collect()
}

/// The libraries that some files need, theirs included.
#[derive(Debug, Default)]
pub(crate) struct Closure {
    /// Name as it is asked for → real file.
    pub(crate) found: BTreeMap<String, PathBuf>,
    /// Who needs what that is nowhere.
    pub(crate) missing: Vec<(PathBuf, String)>,
}

/// Finds libraries as the host's loader does for files of one machine type.
#[derive(Debug)]
pub(crate) struct Libraries {
    machine: (bool, u16),
    directories: Vec<PathBuf>,
    /// The executable's own search path: it also serves what the executable loads later.
    executable: Vec<PathBuf>,
}

impl Libraries {
    pub(crate) fn of_host(executable: &Object) -> Self {
        let mut directories: Vec<PathBuf> = Vec::new();
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            directories.extend(std::env::split_paths(&path).filter(|p| p.is_absolute()));
        }
        directories.extend(configured(Path::new("/etc/ld.so.conf"), 0));
        let triplets =
            fs::read_dir("/usr/lib").into_iter().flatten().flatten().map(|entry| entry.path());
        let triplets: Vec<PathBuf> =
            triplets.filter(|p| p.to_string_lossy().contains("-linux-") && p.is_dir()).collect();
        directories.extend(triplets);
        directories.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib"].map(PathBuf::from));
        Self { machine: executable.machine, directories, executable: executable.search.clone() }
    }

    /// Where a library is that is asked for by name alone.
    pub(crate) fn find(&self, name: &str) -> Option<PathBuf> {
        self.find_for(name, &[])
    }

    fn find_for(&self, name: &str, first: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return self.fitting(Path::new(name));
        }
        let places = first.iter().chain(&self.executable).chain(&self.directories);
        places.map(|directory| directory.join(name)).find_map(|path| self.fitting(&path))
    }

    /// The real file, if it is of the right machine type: 32-bit libraries live in the same places.
    fn fitting(&self, path: &Path) -> Option<PathBuf> {
        let real = path.canonicalize().ok()?;
        (Object::read(&real).ok()?.machine == self.machine).then_some(real)
    }

    /// Everything that `roots` need, directly or not.
    pub(crate) fn closure(&self, roots: &[PathBuf]) -> Result<Closure, ElfError> {
        let mut closure = Closure::default();
        let mut read = BTreeSet::new();
        let mut open: Vec<PathBuf> = roots.to_vec();
        while let Some(path) = open.pop() {
            if !read.insert(path.clone()) {
                continue;
            }
            let object = Object::read(&path)?;
            for name in object.needed {
                if closure.found.contains_key(&name) {
                    continue;
                }
                match self.find_for(&name, &object.search) {
                    Some(library) => {
                        closure.found.insert(name, library.clone());
                        open.push(library);
                    }
                    None => closure.missing.push((path.clone(), name)),
                }
            }
        }
        Ok(closure)
    }
}

/// The directories of an `ld.so.conf`, `include` lines followed.
fn configured(file: &Path, depth: u8) -> Vec<PathBuf> {
    let Ok(text) = fs::read_to_string(file) else {
        return Vec::new();
    };
    let mut directories = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(pattern) = line.strip_prefix("include").map(str::trim) {
            if depth < 4 {
                directories
                    .extend(included(file, pattern).iter().flat_map(|f| configured(f, depth + 1)));
            }
        } else if line.starts_with('/') {
            directories.push(PathBuf::from(line));
        }
    }
    directories
}

/// The files of `include DIRECTORY/*.conf`, the only pattern in use, or of one plain name.
fn included(file: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = file.parent().unwrap_or(Path::new("/")).join(pattern);
    let name = pattern.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let Some(suffix) = name.strip_prefix('*') else {
        return vec![pattern];
    };
    let entries =
        fs::read_dir(pattern.parent().unwrap_or(Path::new("/"))).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(suffix));
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closure_of_this_test_holds_the_c_library() {
        let executable = std::env::current_exe().unwrap();
        let object = Object::read(&executable).unwrap();
        let closure = Libraries::of_host(&object).closure(&[executable]).unwrap();
        assert!(closure.found.keys().any(|name| name.starts_with("libc.")), "{closure:?}");
        assert!(closure.missing.is_empty(), "{closure:?}");
    }

    #[test]
    fn a_configuration_follows_its_includes() {
        let directory = tempfile::tempdir().unwrap();
        let main = directory.path().join("ld.so.conf");
        fs::create_dir(directory.path().join("d")).unwrap();
        fs::write(&main, "include d/*.conf\n# no\n/last\n").unwrap();
        fs::write(directory.path().join("d/b.conf"), "/b # comment\n").unwrap();
        fs::write(directory.path().join("d/a.conf"), "/a\n").unwrap();
        fs::write(directory.path().join("d/c.old"), "/c\n").unwrap();
        assert_eq!(configured(&main, 0), ["/a", "/b", "/last"].map(PathBuf::from));
    }

    #[test]
    fn a_file_without_search_paths_is_otherwise_the_same() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let needed = |bytes: &[u8]| -> Vec<String> {
            Elf::parse(bytes).unwrap().libraries.iter().map(|&name| name.to_owned()).collect()
        };
        // The first library that it needs, as if it were a directory to search in.
        let mut searching = own.clone();
        let table = tables(&own).remove(0);
        let first =
            table.clone().step_by(ENTRY_BYTES).find(|at| own[*at..*at + 8] == 1_u64.to_le_bytes());
        searching[first.unwrap()] = u8::try_from(DT_RUNPATH).unwrap();
        assert_eq!(Elf::parse(&searching).unwrap().runpaths, [&needed(&own)[0]]);

        let plain = without_search_paths(searching);
        assert_eq!(Elf::parse(&plain).unwrap().runpaths, Vec::<&str>::new());
        assert_eq!(needed(&plain), needed(&own)[1..]);
        assert_eq!(plain.len(), own.len());
        assert_eq!(without_search_paths(own.clone()), own);
        assert_eq!(without_search_paths(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
    }

    #[test]
    fn a_text_is_no_elf_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        assert!(matches!(Object::read(file.path()), Err(ElfError::Parse { .. })));
    }
}
