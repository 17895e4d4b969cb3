//! Real bundles through real layers; no sandbox is made of them here.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bundle::code::Bundle as Code;
use bundle::manifest::{Declared, Overrides, Runtime};
use engine::Handler;
use function::{AttachedLayer, VersionRecord, WholeName};
use layers::{Patience, Silent, Store};
use packages::installer::Bounds;
use platform::deploy::installer::Installer;
use platform::deploy::pipeline::Layered;
use platform::deploy::workshop::{
    Admitted, Bundle, Files, KeptLayer, MakeError, Packing, SettingsFrom, Workshop as _,
};
use sandbox::wire::Convention;
use sandbox::{Kind, Limits, Network, Reset};
use store_sqlite::FileBundles;

fn state() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("layered")
}

/// One state for all tests and runs: a base takes seconds to make.
fn workshop() -> &'static Layered {
    static SHARED: OnceLock<Layered> = OnceLock::new();
    SHARED.get_or_init(|| workshop_in(&state()))
}

fn workshop_in(state: &Path) -> Layered {
    let store = Store::open(state).unwrap();
    let indexes = wool::config::Config::default().indexes().unwrap();
    let installer = Installer::new(store.clone(), None, Bounds::default(), indexes);
    let bundles = Arc::new(FileBundles::open(&state.join("bundles")).unwrap());
    Layered::new(store, bundles, sandbox::guest::FILES.to_vec(), None, installer)
}

struct Version {
    record: VersionRecord,
    handler: Handler,
    warnings: Vec<String>,
}

fn make(source: &str) -> Result<Version, MakeError> {
    make_over(source, Overrides::default())
}

fn make_over(source: &str, over: Overrides) -> Result<Version, MakeError> {
    let packing = Packing::Source("hello".to_owned());
    make_of(packing, source.as_bytes(), SettingsFrom::Files(over))
}

fn make_of(packing: Packing, bytes: &[u8], settings: SettingsFrom) -> Result<Version, MakeError> {
    let mut file: File = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let bundle = Bundle { files: Files::Sent { packing, file }, settings };
    let name = WholeName::new(&"acme".parse().unwrap(), &"deployed-name".parse().unwrap());
    let patience = Arc::new(Patience::endless());
    let Admitted { record, warnings, opened } =
        workshop().admit(&name, bundle, &patience, &Silent)?;
    let made = workshop().materialise(&record, opened, &patience, &Silent)?;
    Ok(Version { record, handler: made.handler, warnings: [warnings, made.warnings].concat() })
}

fn make_again(record: &VersionRecord) -> Result<Handler, MakeError> {
    let patience = Arc::new(Patience::endless());
    Ok(workshop().materialise(record, None, &patience, &Silent)?.handler)
}

#[test]
fn the_hello_example_becomes_a_handler() {
    let made = make(include_str!("../../../examples/hello/hello.py")).unwrap();
    let handler = &made.handler;
    assert_eq!(
        (handler.name.as_str(), handler.module.as_str(), handler.function.as_str()),
        ("deployed-name", "hello", "handler")
    );
    assert_eq!(
        (handler.convention, handler.packages.as_ref(), made.record.lock.as_ref()),
        (Convention::Lambda, None, None)
    );
    assert_eq!((&*handler.tenant, &handler.id), ("acme", &made.record.id()));
    for layer in [&handler.python.base, &handler.python.guest, &handler.code] {
        assert!(state().join("layers").join(layer.as_path()).is_dir(), "{layer}");
    }
    let again = make(include_str!("../../../examples/hello/hello.py")).unwrap();
    assert_eq!((again.handler, again.record), (made.handler, made.record));
}

#[test]
fn a_version_is_made_again_from_its_record() {
    let over = Overrides { kind: Some(Kind::Microvm), reset: Some(Reset::Always) };
    let made = make_over("def f(event):\n    return 'again'\n", over).unwrap();
    let code = state().join("layers").join(made.handler.code.as_path());
    std::fs::remove_dir_all(&code).unwrap();
    assert_eq!(make_again(&made.record).unwrap(), made.handler);
    assert!(code.join("hello.py").is_file());
}

#[test]
fn a_version_without_its_files_or_with_others_is_not_made_again() {
    let made = make("def f(event):\n    return 'its own'\n").unwrap();
    let kept = state().join(format!("bundles/{}.tar", made.record.bundle));
    let other = make("def f(event):\n    return 'another'\n").unwrap();
    std::fs::copy(state().join(format!("bundles/{}.tar", other.record.bundle)), &kept).unwrap();
    let error = make_again(&made.record).unwrap_err().to_string();
    assert!(error.contains("changed on disk: deploy the function again"), "{error}");
    // That helps.
    assert_eq!(make("def f(event):\n    return 'its own'\n").unwrap().record, made.record);
    assert_eq!(make_again(&made.record).unwrap(), made.handler);
    std::fs::write(&kept, "torn").unwrap();
    let error = make_again(&made.record).unwrap_err().to_string();
    assert!(error.contains("changed on disk: deploy the function again"), "{error}");
    assert!(!kept.exists());
    let error = make_again(&made.record).unwrap_err().to_string();
    assert!(error.contains("deploy the function again"), "{error}");
}

#[test]
fn what_a_deploy_says_instead_is_in_the_handler_and_in_what_is_told_of_it() {
    let source = |more: &str| {
        format!(
            "# /// script\n# {more}\n# [tool.lambswool]\n# reset = \"always\"\n# ///\ndef f(event): pass\n"
        )
    };
    let over = |kind, reset| Overrides { kind, reset };
    let made = make_over(&source(""), over(Some(Kind::Microvm), None)).unwrap();
    assert_eq!((made.handler.kind, made.handler.reset), (Kind::Microvm, Reset::Always));
    assert_eq!(
        (made.record.manifest.kind, made.record.manifest.reset),
        (Kind::Microvm, Reset::Always)
    );
    let refused = make_over(&source(""), over(Some(Kind::Container), None)).err().unwrap();
    assert!(refused.to_string().contains("cannot be reset"), "{refused}");
    let never = over(Some(Kind::Container), Some(Reset::Never));
    let made = make_over(&source("isolaton = \"microvm\""), never).unwrap();
    assert_eq!((made.handler.kind, made.handler.reset), (Kind::Container, Reset::Never));
    let warning = &made.warnings[0];
    assert!(warning.contains("did you mean \"isolation\""), "{warning}");
}

/// The Python that this machine has: `3.12`.
fn minor() -> String {
    let python = layers::python::discover().next().unwrap().version;
    python.rsplit_once('.').unwrap().0.to_owned()
}

/// A layer of these files, kept.
fn kept_layer(files: &[(&str, &str)]) -> AttachedLayer {
    let mut archive = zip::ZipWriter::new(tempfile::tempfile().unwrap());
    for (name, text) in files {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(text.as_bytes()).unwrap();
    }
    let mut archive = archive.finish().unwrap();
    archive.rewind().unwrap();
    let KeptLayer { bundle, bytes, modules, uses_runtime_set } =
        workshop().keep_layer(archive).unwrap();
    AttachedLayer { arn: "arn".to_owned(), code_size: 1, bytes, bundle, modules, uses_runtime_set }
}

#[test]
fn layers_are_merged_in_their_order_once_and_made_again_from_the_record() {
    let first = kept_layer(&[("python/a.py", "X = 1\n"), ("python/b.py", "X = 1\n")]);
    let second = kept_layer(&[("python/b.py", "X = 2\n"), ("bin/tool", "t")]);
    let files = [("pkg/web.py", "def run(event, context): ...\n")];
    let make = |layers: &[&AttachedLayer]| {
        let layers = layers.iter().map(|layer| (*layer).clone()).collect();
        make_declared_over(&files, &minor(), |declared| declared.layers = layers).unwrap()
    };
    let made = make(&[&first, &second]);
    let place = |version: &Version| {
        state().join("layers").join(version.handler.opt.as_ref().unwrap().as_path())
    };
    let read =
        |version: &Version, name: &str| std::fs::read_to_string(place(version).join(name)).unwrap();
    assert_eq!(
        (read(&made, "python/a.py"), read(&made, "python/b.py")),
        ("X = 1\n".into(), "X = 2\n".into())
    );
    assert!(place(&made).join("python/__pycache__").is_dir());
    let other = make(&[&second, &first]);
    assert_ne!(place(&other), place(&made));
    assert_eq!(read(&other, "python/b.py"), "X = 1\n");
    assert_eq!(
        (&*first.modules, &*second.modules),
        (&["a".to_owned(), "b".to_owned()][..], &["b".to_owned()][..])
    );
    std::fs::remove_dir_all(place(&made)).unwrap();
    assert_eq!(make_again(&made.record).unwrap(), made.handler);
    assert_eq!(read(&made, "python/b.py"), "X = 2\n");
}

#[test]
fn a_layer_whose_kept_files_are_gone_or_changed_is_told() {
    let layer = kept_layer(&[("python/gone.py", "")]);
    let kept = state().join(format!("bundles/{}.tar", layer.bundle));
    std::fs::write(&kept, "torn").unwrap();
    let files = [("pkg/web.py", "")];
    for words in ["changed on disk", "are gone"] {
        let layers = vec![layer.clone()];
        let made = make_declared_over(&files, &minor(), |declared| declared.layers = layers);
        let error = made.err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_machine_has_no_layers() {
    let layers = vec![kept_layer(&[("python/a.py", "")])];
    let made = make_declared_over(&[("pkg/web.py", "")], &minor(), |declared| {
        (declared.kind, declared.layers) = (Kind::Microvm, layers);
    });
    let error = made.err().unwrap().to_string();
    assert!(error.contains("layers are for containers"), "{error}");
}

/// The deploy of a function with these files, of which none says anything.
fn make_declared(files: &[(&str, &str)], python: &str) -> Result<Version, MakeError> {
    make_declared_over(files, python, |_| {})
}

fn make_declared_over(
    files: &[(&str, &str)],
    python: &str,
    change: impl FnOnce(&mut Declared),
) -> Result<Version, MakeError> {
    let (folder, mut archive) = (tempfile::tempdir().unwrap(), Vec::new());
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let store = Store::open(&state()).unwrap();
    Code::from_dir(&store, folder.path()).unwrap().pack(&mut archive).unwrap();
    let mut declared = Declared {
        handler: "pkg/web.run".to_owned(),
        python: python.to_owned(),
        kind: Kind::Container,
        reset: Reset::Never,
        limits: Limits { memory_bytes: 128 << 20, ..Limits::default() },
        network: Network::None,
        egress: Vec::new(),
        timeout: Duration::from_secs(3),
        concurrency: 10,
        environment: [("MODE".to_owned(), "fast".to_owned())].into(),
        told: None,
        layers: Vec::new(),
        runtime: Some(Runtime { name: format!("python{python}"), json_level: None }),
    };
    change(&mut declared);
    make_of(Packing::Tar, &archive, SettingsFrom::Declared(Box::new(declared)))
}

#[test]
fn a_declared_version_is_made_of_any_code_and_made_again_without_reading_it() {
    let minor = &*minor();
    let files = [
        ("pkg/web.py", "def run(event, context\n"),
        ("numpy/__init__.py", "value = 1\n"),
        ("requirements.txt", "no-such-distribution-anywhere\n"),
        ("pyproject.toml", "this is no TOML\n"),
        (".python-version", "2.7\n"),
    ];
    let Version { record, handler, .. } = make_declared(&files, minor).unwrap();
    assert_eq!((&*handler.module, &*handler.function), ("pkg.web", "run"));
    assert_eq!(handler.lambda.as_ref().unwrap().handler, "pkg/web.run");
    assert_eq!((&*record.python, &record.lock, &handler.packages), (minor, &None, &None));
    assert_eq!((handler.limits.memory_bytes, handler.timeout.as_secs()), (128 << 20, 3));
    assert_eq!((&*handler.environment["MODE"], &*handler.sets), ("fast", &["*".to_owned()][..]));
    let code = state().join("layers").join(handler.code.as_path());
    // A package at the root is compiled; what does not compile is left as it is.
    assert!(code.join("numpy/__pycache__").is_dir() && !code.join("pkg/__pycache__").is_dir());
    std::fs::remove_dir_all(&code).unwrap();
    assert_eq!(make_again(&record).unwrap(), handler);
    for (name, text) in files {
        assert_eq!(std::fs::read_to_string(code.join(name)).unwrap(), text);
    }
}

#[test]
fn a_declared_python_that_is_not_here_is_the_functions_and_names_those_that_are() {
    let refused = make_declared(&[("main.py", "")], "3.99").err().unwrap();
    let MakeError::Function { message, .. } = refused else { panic!("{refused}") };
    let here = layers::python::discover().next().unwrap().version;
    assert!(message.contains("3.99") && message.contains(&here), "{message}");
}

#[test]
fn what_the_author_must_change_is_told_as_the_authors() {
    for (source, words) in [
        ("def other(): pass\n", "no handler in hello.py"),
        ("def handler(event, context\n", "hello.py:1"),
        ("# /// script\n# [tool.lambswool]\n# memroy = 1\n# ///\ndef f(event): pass\n", "memory"),
        (
            "# /// script\n# [tool.lambswool]\n# network = \"hots\"\n# ///\ndef f(event): pass\n",
            "network",
        ),
    ] {
        match make(source).err().unwrap() {
            MakeError::Function { message, .. } => assert!(message.contains(words), "{message}"),
            machine => panic!("{machine}"),
        }
    }
}
