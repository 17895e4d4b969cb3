//! Making a base from a host's Python: plan, name, copy, compile, verify, rename.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::plan::{Item, Plan};
use super::{Base, BaseError, cache, etc, finder, stdlib, system, verify};
use crate::elf::{Libraries, Object};
use crate::extent::Extent;
use crate::python::HostPython;
use crate::store::{layer, short};
use crate::{FileError, Interpreter, Progress, Store, bytecode};

/// Changes whenever the same host would give another base.
pub(super) const FORMAT: u32 = 4;

/// Makes a base, unless the same one is there already.
///
/// # Errors
/// When the Python's files cannot be read, or what was made of them does not run.
pub fn build(
    store: &Store,
    python: &HostPython,
    progress: &dyn Progress,
) -> Result<Base, BaseError> {
    progress.step(&format!(
        "looking at Python {} ({})",
        python.version,
        python.executable.display()
    ));
    let Planned { plan, libraries, loader, missing } = plan(python)?;
    let id = identity(python, &plan)?;
    if let Some(base) = Base::read(store, &id) {
        return Ok(base);
    }
    let layer = layer("base", &id);
    let mut base = Base {
        id,
        version: python.version.clone(),
        interpreter: "/usr/bin/python3".to_owned(),
        layer: layer.clone(),
        source: python.executable.clone(),
        bytes: 0,
        created: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map(|d| d.as_secs())
            .unwrap_or_default(),
        missing: Vec::new(),
        format: FORMAT,
        libraries,
        loader,
    };
    store.make::<BaseError>(&layer, |root| {
        progress.step(&format!("building a base from Python {}", python.version));
        plan.write(root, &|bytes| progress.bytes(bytes, None))?;
        progress.step("compiling the standard library");
        let library = Path::new("usr").join(&python.libdir).join(&python.libname);
        let prefix = Path::new("/").join(&library);
        bytecode::compile(&base.command_at(root), &root.join(&library), &prefix.to_string_lossy())?;
        // Before the layer gets its name: a process that sees the layer finds its description.
        base.describe(store, root, &missing)
    })?;
    if let Some(other) = Base::read(store, &base.id) {
        base = other;
    } else {
        // The layer is there and its description was lost.
        base.describe(store, &store.layer_path(&layer), &missing)?;
    }
    for (what, reason) in &base.missing {
        progress.line(&format!("not in this base: {what} ({reason})"));
    }
    Ok(base)
}

struct Planned {
    plan: Plan,
    libraries: PathBuf,
    loader: Option<PathBuf>,
    missing: Vec<(String, String)>,
}

fn plan(python: &HostPython) -> Result<Planned, BaseError> {
    let mut plan = Plan::default();
    let mut missing = Vec::new();
    let binary = format!("usr/bin/{}", python.libname);
    plan.put(&binary, Item::Object(python.executable.clone()));
    for name in ["usr/bin/python3", "usr/bin/python"] {
        plan.put(name, Item::Link(PathBuf::from(&python.libname)));
    }
    let library = Path::new("usr").join(&python.libdir).join(&python.libname);
    let extensions = library.join("lib-dynload");
    // First: on some hosts it is not inside the standard library's directory.
    if let Some(dynload) = &python.dynload {
        let wanted = |path: &Path| stdlib::wanted(&Path::new("lib-dynload").join(path));
        plan.put_tree(dynload, &extensions, &wanted)?;
    }
    plan.put_tree(&python.stdlib, &library, &stdlib::wanted)?;
    // The interpreter tells its exec_prefix by this directory, also when it is empty.
    plan.put(&extensions, Item::Directory);

    let executable = Object::read(&python.executable)?;
    let host = Libraries::of_host(&executable);
    let mut roots = vec![python.executable.clone()];
    roots.extend(plan.make_objects(&extensions));
    let expected: Vec<_> =
        system::expected().filter_map(|name| Some((name, host.find(name)?))).collect();
    roots.extend(expected.iter().map(|(_, path)| path.clone()));
    let closure = host.closure(&roots)?;
    for (file, name) in closure.missing {
        let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        missing.push((file, format!("it needs {name}, which is not on this machine")));
    }
    let expected = expected.into_iter().map(|(name, path)| (name.to_owned(), path));
    let found: Vec<(String, PathBuf)> = closure.found.into_iter().chain(expected).collect();
    let libraries = library_directory(&found);
    let names: Vec<&str> =
        found.iter().filter_map(|(name, _)| Path::new(name).file_name()?.to_str()).collect();
    let cache = cache::cache(executable.machine.1, &Path::new("/").join(&libraries), &names);
    if let Some(cache) = cache {
        plan.put("etc/ld.so.cache", Item::Bytes(cache));
    }
    for (name, path) in found {
        let name = Path::new(&name).file_name().unwrap_or_default().to_owned();
        plan.put(libraries.join(name), Item::Object(path));
    }
    finder::put(&mut plan, &python.stdlib, &library, &libraries)?;
    if let Some(loader) = &executable.loader {
        plan.put(
            merged(loader),
            Item::Copy(loader.canonicalize().map_err(FileError::at("resolve", loader))?),
        );
    }

    etc::put(&mut plan);
    if !system::put_authorities(&mut plan, python.cafile.as_deref()) {
        missing
            .push(("certificate authorities".to_owned(), "no bundle on this machine".to_owned()));
    }
    if !system::put_zones(&mut plan)? {
        missing
            .push(("time zones".to_owned(), "no /usr/share/zoneinfo on this machine".to_owned()));
    }
    system::put_locale(&mut plan)?;
    if !system::put_converters(&mut plan, &libraries)? {
        missing.push(("iconv".to_owned(), "no gconv modules on this machine".to_owned()));
    }
    Ok(Planned { plan, libraries, loader: executable.loader, missing })
}

/// All libraries go into one directory: the one that holds the C library, because its loader searches that one without
/// being told (`/usr/lib/x86_64-linux-gnu` on Debian, `/usr/lib64` on Fedora, `/usr/lib` on Arch).
fn library_directory(found: &[(String, PathBuf)]) -> PathBuf {
    let libc =
        found.iter().find(|(name, _)| name.starts_with("libc.so") || name.starts_with("libc.musl"));
    let directory = libc.and_then(|(_, path)| path.parent());
    directory.map_or_else(|| PathBuf::from("usr/lib"), merged)
}

/// Where an absolute path is in the merged layout, relative to the root.
pub(super) fn merged(path: &Path) -> PathBuf {
    let relative = path.strip_prefix("/").unwrap_or(path);
    if relative.starts_with("usr") { relative.to_owned() } else { Path::new("usr").join(relative) }
}

fn identity(python: &HostPython, plan: &Plan) -> Result<String, FileError> {
    let mut hasher = blake3::Hasher::new();
    let head = format!("{FORMAT}\0{}\0{}\0", python.version, python.executable.display());
    hasher.update(head.as_bytes());
    plan.identify(&mut hasher)?;
    Ok(short(&hasher.finalize()))
}

impl Base {
    /// Verifies the base at `root` and writes down what it is. `absent` is what the host did not have.
    fn describe(
        &mut self,
        store: &Store,
        root: &Path,
        absent: &[(String, String)],
    ) -> Result<(), BaseError> {
        self.missing = absent.to_vec();
        self.missing.extend(verify::verify(&self.command_at(root), root)?);
        self.bytes = Extent::of(root).map_err(FileError::at("measure", root))?.bytes;
        self.write(store)
    }

    /// How to run the interpreter of a base that lies at `root`: by its own loader with its own libraries, so that it
    /// runs the same after an upgrade of the host.
    pub(super) fn command_at(&self, root: &Path) -> Interpreter {
        let inside =
            |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path)).into_os_string();
        let program = inside(Path::new(&self.interpreter));
        let Some(loader) = &self.loader else {
            return Interpreter::at(program);
        };
        // The program by its full path: from that path the interpreter finds its library.
        let words =
            [inside(loader), OsString::from("--library-path"), inside(&self.libraries), program];
        Interpreter::of(words.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_go_where_the_loader_looks_by_itself() {
        let of = |path: &str| library_directory(&[("libc.so.6".to_owned(), PathBuf::from(path))]);
        assert_eq!(
            of("/usr/lib/x86_64-linux-gnu/libc.so.6"),
            Path::new("usr/lib/x86_64-linux-gnu")
        );
        assert_eq!(of("/lib/x86_64-linux-gnu/libc-2.31.so"), Path::new("usr/lib/x86_64-linux-gnu"));
        assert_eq!(of("/usr/lib64/libc.so.6"), Path::new("usr/lib64"));
    }
}
