//! A base with this machine's C compiler in it: what a build sees, and no function.
//!
//! ```text
//!   base/<id>    every file of a base, linked: no bytes of its own
//!                + gcc, its own directories, binutils, make, a shell and what configure scripts call
//!                + headers: the compiler's, the C library's, Python's
//!                + names to link with, of the libraries that a base has
//! ```
//!
//! The compiler is asked where its parts are, so that a distribution's habits need not be known. A build can link with
//! what is in the base and nothing else: a function would not find more when it runs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::build::merged;
use super::plan::{Item, Plan};
use super::{Base, BaseError};
use crate::elf::{Libraries, Object};
use crate::store::{layer, short};
use crate::text;
use crate::{FileError, Interpreter, Progress, Store, description};

/// Changes whenever the same host would give another one.
const FORMAT: u32 = 1;

const COMPILER: &str = "gcc";

/// What a build may call, as far as the host has it.
const PROGRAMS: [&str; 63] = [
    "gcc", "g++", "cc", "c++", "cpp", "as", "ld", "ld.bfd", "ar", "nm", "ranlib", "strip",
    "objcopy", "objdump", "readelf", "make", "sh", "bash", "env", "awk", "basename", "cat",
    "chmod", "cmp", "comm", "cp", "cut", "date", "diff", "dirname", "echo", "egrep", "expr",
    "false", "find", "grep", "gzip", "head", "id", "install", "ln", "ls", "mkdir", "mktemp", "mv",
    "nproc", "od", "printf", "pwd", "rm", "rmdir", "sed", "sleep", "sort", "tail", "tar", "test",
    "touch", "tr", "true", "uname", "uniq", "wc",
];

/// What is linked into every program or library.
const LINKED: [&str; 16] = [
    "crt1.o",
    "Scrt1.o",
    "gcrt1.o",
    "crti.o",
    "crtn.o",
    "libc.so",
    "libc_nonshared.a",
    "libm.so",
    "libmvec.so",
    "libpthread.a",
    "libpthread.so",
    "libdl.a",
    "libdl.so",
    "librt.a",
    "librt.so",
    "libutil.a",
];

/// Shared libraries of the compiler's own directory that a base has, or that the compiler loads itself.
const OWN_LIBRARIES: [&str; 4] =
    ["libstdc++.so", "libgcc_s.so", "libatomic.so", "liblto_plugin.so"];

/// Compilers of other languages.
const OTHER_LANGUAGES: [&str; 9] =
    ["f951", "cc1obj", "cc1objplus", "d21", "gnat1", "go1", "adalib", "adainclude", "finclude"];

/// What a machine lacks for compiling, in words that say what to do.
pub type Lack = Option<String>;

const HEADERS: &str = "import json, sysconfig\n\
    names = ('CC', 'CXX', 'AR', 'LDSHARED')\n\
    print(json.dumps({'include': sysconfig.get_path('include'), \
    'programs': [(sysconfig.get_config_var(n) or '').split(' ')[0] for n in names]}))";

/// Where a Python's headers are, and which programs it was built with.
#[derive(Debug, Deserialize)]
struct Headers {
    include: PathBuf,
    programs: Vec<String>,
}

/// A base with the host's compiler, made when it is not there; the base itself when the host has none. The second value
/// says what is missing: most builds need no compiler, so only a build that fails passes it on.
///
/// # Errors
/// When files cannot be read or written.
pub fn with_toolchain(
    store: &Store,
    base: &Base,
    progress: &dyn Progress,
) -> Result<(Base, Lack), BaseError> {
    let Some(compiler) = program(COMPILER) else {
        let lack = "there is no C compiler on this machine: install gcc (for example `apt install build-essential`)";
        return Ok((base.clone(), Some(lack.to_owned())));
    };
    let below = store.layer_path(&base.layer);
    let headers: Headers = match Interpreter::at(&base.source).ask(HEADERS, &[]) {
        Ok(headers) => headers,
        Err(_) => Headers { include: PathBuf::new(), programs: Vec::new() },
    };
    let lack = (!headers.include.join("Python.h").is_file()).then(|| {
        format!(
            "the headers of Python {} are not on this machine: install them (for example `apt install python3-dev`)",
            base.minor()
        )
    });
    let mut plan = plan(base, &below, &compiler, &headers)?;
    plan.leave_out(&|path| below.join(path).symlink_metadata().is_ok());
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{FORMAT}\0{}\0", base.id).as_bytes());
    plan.identify(&mut hasher)?;
    let layer = layer("base", &short(&hasher.finalize()));
    store.make::<FileError>(&layer, |root| {
        progress.step("copying this machine's compiler and headers");
        link_tree(&below, root)?;
        plan.write(root, &|bytes| progress.bytes(bytes, None)).map(drop)
    })?;
    description::touch(&store.layer_path(&layer));
    Ok((Base { layer, ..base.clone() }, lack))
}

fn plan(base: &Base, below: &Path, gcc: &Path, headers: &Headers) -> Result<Plan, BaseError> {
    let mut plan = Plan::default();
    let named = headers.programs.iter().map(String::as_str);
    for name in PROGRAMS.into_iter().chain(named).filter(|name| !name.contains('/')) {
        if let Some(path) = program(name) {
            plan.put(Path::new("usr/bin").join(name), Item::Copy(path));
        }
    }
    for directory in own_directories(gcc) {
        plan.put_tree(&directory, &merged(&directory), &wanted)?;
    }
    put_linked(&mut plan, gcc)?;
    put_headers(&mut plan, gcc, headers)?;
    let libraries = below.join(&base.libraries);
    let entries = fs::read_dir(&libraries).map_err(FileError::at("list", &libraries))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        // `libz.so.1` can be linked with as `libz.so`.
        if let Some((stem, _)) = name.split_once(".so.")
            && !OWN_LIBRARIES.contains(&format!("{stem}.so").as_str())
        {
            let link = base.libraries.join(format!("{stem}.so"));
            plan.put(link, Item::Link(PathBuf::from(&name)));
        }
    }
    put_closure(&mut plan, base)?;
    Ok(plan)
}

/// Where the compiler keeps its passes and what it links by itself.
fn own_directories(gcc: &Path) -> BTreeSet<PathBuf> {
    let passes = answer(gcc, &["-print-prog-name=cc1"]);
    let runtime = answer(gcc, &["-print-libgcc-file-name"]);
    [passes, runtime].into_iter().flatten().filter_map(|file| directory_of(&file)).collect()
}

fn wanted(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if name.ends_with(".so") || name.contains(".so.") {
        return OWN_LIBRARIES.contains(&name);
    }
    let sanitizer = name.ends_with("san.a");
    !sanitizer && name != "libgfortran.a" && !OTHER_LANGUAGES.contains(&name)
}

fn put_linked(plan: &mut Plan, gcc: &Path) -> Result<(), FileError> {
    for name in LINKED {
        let Some(found) = answer(gcc, &[&format!("-print-file-name={name}")]) else { continue };
        let Some(directory) = directory_of(&found) else { continue };
        // What is too long for a script is none.
        let content = text::read(&found).map_err(FileError::at("read", &found))?;
        let content = content.unwrap_or_default();
        plan.put(merged(&directory).join(name), Item::Copy(found));
        // A linker's script names the files that it stands for.
        let script = content.starts_with(b"/*").then(|| String::from_utf8_lossy(&content));
        let words = script.iter().flat_map(|text| text.split_whitespace());
        for file in words.map(Path::new).filter(|file| file.is_absolute() && file.is_file()) {
            plan.put(merged(file), Item::Copy(file.to_owned()));
        }
    }
    Ok(())
}

fn put_headers(plan: &mut Plan, gcc: &Path, headers: &Headers) -> Result<(), FileError> {
    if headers.include.is_dir() {
        let name = headers.include.file_name().unwrap_or_default();
        let inside = Path::new("usr/include").join(name);
        plan.put_tree(&headers.include, &inside, &|_| true)?;
        // Where this Python says that they are, when that is elsewhere.
        let said = headers.include.strip_prefix("/").unwrap_or(&headers.include);
        if said != inside {
            plan.put(said, Item::Link(Path::new("/").join(&inside)));
        }
    }
    // Headers of other Pythons: no compiler looks there first, and one that finds them finds the wrong ones.
    let of_python = |path: &Path| {
        path.iter().next().is_some_and(|first| first.to_string_lossy().starts_with("python"))
    };
    for directory in searched(gcc) {
        plan.put_tree(&directory, &merged(&directory), &|path| !of_python(path))?;
    }
    Ok(())
}

/// Directories of headers that the compiler looks into, without those inside others.
fn searched(gcc: &Path) -> Vec<PathBuf> {
    let mut found = BTreeSet::new();
    for language in ["c", "c++"] {
        let output = Command::new(gcc)
            .args(["-E", "-v", "-x", language, "/dev/null"])
            .env("LC_ALL", "C")
            .output();
        let words = output.map(|output| output.stderr).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        let listed = words.split("search starts here:").last().unwrap_or_default();
        let listed = listed.split("End of search list").next().unwrap_or_default();
        let directories = listed.lines().map(|line| Path::new(line.trim()));
        found.extend(directories.filter(|d| d.is_absolute()).filter_map(|d| d.canonicalize().ok()));
    }
    let inside = |directory: &PathBuf| directory.ancestors().skip(1).any(|a| found.contains(a));
    found.iter().filter(|directory| !inside(directory)).cloned().collect()
}

/// The shared libraries that the programs themselves need.
fn put_closure(plan: &mut Plan, base: &Base) -> Result<(), BaseError> {
    let programs = plan.sources_below(Path::new("usr/bin"));
    let passes = plan.sources_below(Path::new("usr")).into_iter().filter(|path| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        ["cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "liblto_plugin.so"].contains(&name)
    });
    // Some programs are scripts.
    let objects = programs.into_iter().chain(passes).filter_map(|path| {
        let object = Object::read(&path).ok()?;
        Some((path, object))
    });
    let (files, objects): (Vec<_>, Vec<_>) = objects.unzip();
    let Some(first) = objects.first() else { return Ok(()) };
    for (name, path) in Libraries::of_host(first).closure(&files)?.found {
        let name = Path::new(&name).file_name().unwrap_or_default().to_owned();
        plan.put(base.libraries.join(name), Item::Copy(path));
    }
    Ok(())
}

/// A file that the compiler names; none when it does not know it.
fn answer(gcc: &Path, words: &[&str]) -> Option<PathBuf> {
    let output = Command::new(gcc).args(words).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (path.is_absolute() && path.is_file()).then_some(path)
}

fn directory_of(file: &Path) -> Option<PathBuf> {
    file.parent()?.canonicalize().ok()
}

/// A program of the host's, its real file.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|directory| directory.join(name));
    found.filter(|path| !name.is_empty() && path.is_file()).find_map(|p| p.canonicalize().ok())
}

/// The same tree, of hard links.
fn link_tree(from: &Path, to: &Path) -> Result<(), FileError> {
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        let directory = from.join(&relative);
        for entry in fs::read_dir(&directory).map_err(FileError::at("list", &directory))? {
            let entry = entry.map_err(FileError::at("list", &directory))?;
            let (source, path) = (entry.path(), relative.join(entry.file_name()));
            let target = to.join(&path);
            let link = || -> io::Result<()> {
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    fs::create_dir(&target)
                } else if kind.is_symlink() {
                    symlink(fs::read_link(&source)?, &target)
                } else {
                    fs::hard_link(&source, &target)
                }
            };
            link().map_err(FileError::at("link", &source))?;
            if target.symlink_metadata().is_ok_and(|m| m.is_dir()) {
                open.push(path);
            }
        }
    }
    Ok(())
}
