//! Real bundles through real layers; no sandbox is made of them here.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use bundle::manifest::Overrides;
use layers::{Patience, Silent, Store};
use packages::installer::Bounds;
use platform::deploy::installer::Installer;
use platform::deploy::pipeline::Layered;
use platform::deploy::workshop::{Bundle, Made, MakeError, Packing, Workshop as _};
use sandbox::wire::Convention;
use sandbox::{Kind, Reset};

/// One state for all tests and runs: a base takes seconds to make.
fn workshop() -> &'static Layered {
    static SHARED: OnceLock<Layered> = OnceLock::new();
    SHARED.get_or_init(|| {
        let store = Store::open(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("layered")).unwrap();
        let indexes = wool::config::Config::default().indexes().unwrap();
        let installer = Installer::new(store.clone(), None, Bounds::default(), indexes);
        Layered::new(store, sandbox::guest::FILES.to_vec(), None, installer)
    })
}

fn make(source: &str) -> Result<Made, MakeError> {
    make_over(source, Overrides::default())
}

fn make_over(source: &str, over: Overrides) -> Result<Made, MakeError> {
    let mut file: File = tempfile::tempfile().unwrap();
    file.write_all(source.as_bytes()).unwrap();
    file.rewind().unwrap();
    let bundle = Bundle { packing: Packing::Source("hello".to_owned()), file, over };
    workshop().make("deployed-name", bundle, &Arc::new(Patience::endless()), &Silent)
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
        (handler.convention, handler.packages.as_ref(), made.lock.as_str()),
        (Convention::Lambda, None, "")
    );
    for layer in [&handler.python.base, &handler.python.guest, &handler.code] {
        assert!(
            Path::new(env!("CARGO_TARGET_TMPDIR"))
                .join("layered/layers")
                .join(layer.as_path())
                .is_dir(),
            "{layer}"
        );
    }
    assert_eq!(
        make(include_str!("../../../examples/hello/hello.py")).unwrap().handler,
        made.handler
    );
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
        (&made.manifest["kind"], &made.manifest["reset"]),
        (&"microvm".into(), &"always".into())
    );
    let refused = make_over(&source(""), over(Some(Kind::Container), None)).unwrap_err();
    assert!(refused.to_string().contains("cannot be reset"), "{refused}");
    let never = over(Some(Kind::Container), Some(Reset::Never));
    let made = make_over(&source("isolaton = \"microvm\""), never).unwrap();
    assert_eq!((made.handler.kind, made.handler.reset), (Kind::Container, Reset::Never));
    let warning = made.manifest["warnings"][0].as_str().unwrap();
    assert!(warning.contains("did you mean \"isolation\""), "{warning}");
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
        match make(source).unwrap_err() {
            MakeError::Function { message, .. } => assert!(message.contains(words), "{message}"),
            machine => panic!("{machine}"),
        }
    }
}
