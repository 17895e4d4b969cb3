//! CPython, unmodified and linked dynamically, from a base as containers have it.

mod machine;

use layers::{Silent, Store, base, python};
use machine::kvm;
use microvm::linux::{Options, Pause, Process};
use microvm::vfs::{Tree, TreeBuilder};

fn tree() -> (Tree, String) {
    let state = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("layers-for-microvm");
    let store = Store::open(&state).unwrap();
    let base = base::default_or_build(&store, &python::PythonRequest::any(), &Silent).unwrap();
    let guest = layers::guest::install(&store, &base, sandbox::guest::FILES).unwrap();
    let spec = base.python(guest);
    let tree = TreeBuilder::default()
        .layer("/", &store.layer_path(&spec.base))
        .unwrap()
        .layer("/opt/lambswool", &store.layer_path(&spec.guest))
        .unwrap()
        .devices()
        .scratch("/tmp")
        .build(64 << 20, 4096);
    (tree, spec.interpreter)
}

/// Runs a script to its end; returns that and what it printed.
fn run(script: &str) -> Option<(Pause, String)> {
    let host = kvm()?;
    let (tree, interpreter) = tree();
    let program = [&interpreter, "-I", "-S", "-B", "-c", script].map(ToString::to_string).to_vec();
    let environment = vec!["LANG=C.UTF-8".into(), "PYTHONHASHSEED=0".into()];
    let options = Options { program, environment, channel: false };
    let mut process = Process::start(&host, tree, &options).unwrap();
    let pause = process.run().unwrap();
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    eprintln!("calls, patched {:?}, unknown {:?}", process.counts(), process.unknown_calls());
    Some((pause, String::from_utf8(output).unwrap()))
}

#[test]
fn python_computes_and_prints() {
    let Some(ended) = run("import json, sys; print(json.dumps({'sum': sum(range(10))}), sys.platform)")
    else {
        return;
    };
    assert_eq!(ended, (Pause::Exited(0), "{\"sum\": 45} linux\n".into()));
}
