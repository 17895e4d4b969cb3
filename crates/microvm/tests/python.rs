//! CPython, unmodified and linked dynamically, from a base as containers have it.

mod machine;

use layers::{Silent, Store, base, python};
use machine::kvm;
use microvm::linux::{Options, Pause, Process};
use microvm::vfs::TreeBuilder;

fn tree() -> (TreeBuilder, String) {
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
        .scratch("/tmp");
    (tree, spec.interpreter)
}

/// Runs a script to its end; returns that and what it printed.
fn run(script: &str) -> Option<(Pause, String)> {
    let host = kvm()?;
    let (tree, interpreter) = tree();
    let program = [&interpreter, "-I", "-S", "-B", "-c", script].map(ToString::to_string).to_vec();
    let environment = vec!["LANG=C.UTF-8".into(), "PYTHONHASHSEED=0".into()];
    let options = Options { program, environment, channel: false };
    let tree = tree.build(64 << 20, 4096);
    let mut process = Process::start(&host, tree, &options).unwrap();
    let pause = process.run().unwrap();
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    eprintln!("calls, patched {:?}, unknown {:?}", process.counts(), process.unknown_calls());
    Some((pause, String::from_utf8(output).unwrap()))
}

#[test]
fn python_computes_and_prints() {
    let Some(ended) =
        run("import json, sys; print(json.dumps({'sum': sum(range(10))}), sys.platform)")
    else {
        return;
    };
    assert_eq!(ended, (Pause::Exited(0), "{\"sum\": 45} linux\n".into()));
}

/// The guest's own agent, spoken to as in a container.
#[test]
fn the_guest_loads_a_handler_and_answers_calls() {
    use sandbox::wire::{Convention, Decoder, Load, Reply, Request};

    let Some(host) = kvm() else { return };
    let (tree, interpreter) = tree();
    let code = tempfile::tempdir().unwrap();
    let source = "import math\nprint('loading')\ndef handler(event, context):\n    print('called')\n    return {'root': math.sqrt(event['square']), 'id': context.aws_request_id}\n";
    std::fs::write(code.path().join("handler.py"), source).unwrap();
    let tree = tree.layer("/var/task", code.path()).unwrap().build(64 << 20, 4096);
    let program =
        [&interpreter, "-I", "-S", "-B", "/opt/lambswool/lambswool_guest/__main__.py", "instance"];
    let program = program.map(ToString::to_string).to_vec();
    let environment = vec!["LANG=C.UTF-8".into()];
    let options = Options { program, environment, channel: true };
    let mut process = Process::start(&host, tree, &options).unwrap();

    let mut decoder = Decoder::new(1 << 20);
    let mut talk = |process: &mut Process, request: Option<(Request, &str)>| {
        if let Some((request, body)) = request {
            let mut bytes = Vec::new();
            request.encode(body.as_bytes(), &mut bytes).unwrap();
            process.feed(&bytes);
        }
        assert_eq!(process.run().unwrap(), Pause::Idle, "{:?}", process.take_output());
        decoder.push(&process.take_said());
        let mut replies = Vec::new();
        while let Some(frame) = decoder.next_frame().unwrap() {
            let (reply, body) = Reply::decode(frame).unwrap();
            replies.push((reply, String::from_utf8(body).unwrap()));
        }
        replies
    };
    let ready = talk(&mut process, None);
    assert!(matches!(ready[..], [(Reply::Ready { pid: 1 }, _)]), "{ready:?}");
    let load = Request::Load(Load {
        module: "handler".into(),
        function: "handler".into(),
        convention: Convention::Lambda,
        name: "test".into(),
        version: "1".into(),
        memory_mb: 512,
        environment: Default::default(),
        binary: false,
        observe: false,
        threads: 1,
    });
    let loaded = talk(&mut process, Some((load, "")));
    assert!(
        matches!(&loaded[..], [(Reply::Log { .. }, text), (Reply::Loaded { .. }, _)] if text == "loading\n"),
        "{loaded:?}"
    );
    for square in [4, 9] {
        let id = format!("call-{square}");
        let content_type = "application/json".to_owned();
        let invoke = Request::Invoke { id: id.clone(), remaining_ms: 1000, content_type };
        let body = format!("{{\"square\": {square}}}");
        let said = talk(&mut process, Some((invoke, &body)));
        let [(Reply::Log { .. }, log), (Reply::Done { .. }, done)] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(log, "called\n");
        let root = f64::from(square).sqrt();
        assert_eq!(*done, format!("{{\"root\": {root:.1}, \"id\": \"{id}\"}}"));
    }
    process.hang_up();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
    assert!(process.unknown_calls().is_empty(), "{:?}", process.unknown_calls());
}
