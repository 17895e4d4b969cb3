//! CPython, unmodified and linked dynamically, from a base as containers have it.

mod machine;

use layers::{Silent, Store, base, python};
use machine::kvm;
use microvm::linux::{Build, Options, Pause, Process, Template};
use microvm::machine::Hypervisor;
use microvm::memory::Scanner;
use microvm::vfs::{Tree, TreeBuilder};
use sandbox::wire::{Convention, Decoder, Lambda, Load, Reply, Request};
use std::sync::Arc;

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
        .proc()
        .scratch("/tmp")
        .scratch("/dev/shm");
    (tree, spec.interpreter)
}

/// The same with code in it.
fn tree_with(code: &tempfile::TempDir) -> (Tree, String) {
    let (tree, interpreter) = tree();
    (tree.layer("/var/task", code.path()).unwrap().build(64 << 20, 4096), interpreter)
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

#[test]
fn an_event_loop_runs_and_what_needs_a_process_says_that_there_is_none() {
    let script = r#"
import asyncio, concurrent.futures, os, select, signal, socket, subprocess, time

async def part(number):
    await asyncio.sleep(0.01)
    return number

def slow():
    time.sleep(0.02)
    return 'slow'

async def echoes():
    one, other = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=one)
    far_reader, far_writer = await asyncio.open_connection(sock=other)
    async def far():
        far_writer.write((await far_reader.read()).upper())
        far_writer.close()
    task = asyncio.ensure_future(far())
    writer.writelines([b'said ', b'x' * 300000])
    writer.write_eof()
    said = await reader.read()
    await task
    writer.close()
    return len(said), said[:6]

async def main():
    loop = asyncio.get_running_loop()
    print(await asyncio.gather(*map(part, range(4))))
    print(await asyncio.gather(*[loop.run_in_executor(None, slow) for _ in range(3)]))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(await loop.run_in_executor(pool, slow))
    if hasattr(asyncio, 'to_thread'):
        assert await asyncio.to_thread(slow) == 'slow'
    for limit in 0.01, 5:
        try:
            print(await asyncio.wait_for(asyncio.sleep(0.03, 'slept'), limit))
        except asyncio.TimeoutError:
            print('over')
    print(await echoes())

for _ in range(2):
    asyncio.run(main())
one, other = socket.socketpair()
one.settimeout(0.02)
try:
    one.recv(1)
except socket.timeout:
    print('timed out')
other.sendall(b'x')
print(select.select([one], [], [], 5)[0] == [one], one, one.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
for wish in os.fork, lambda: subprocess.run(['true']), lambda: subprocess.Popen(['true'], close_fds=False):
    try:
        wish()
    except OSError as error:
        print(error)
print(signal.alarm(0))
"#;
    let Some((pause, said)) = run(script) else { return };
    let once = "[0, 1, 2, 3]
['slow', 'slow', 'slow']
slow
over
slept
(300005, b'SAID X')
";
    let rest = said.strip_prefix(&once.repeat(2)).unwrap_or_else(|| panic!("{pause:?} {said}"));
    assert!(
        rest.starts_with(
            "timed out
True <socket.socket fd="
        ),
        "{said}"
    );
    assert_eq!(rest.matches("[Errno 38] Function not implemented").count(), 3, "{said}");
    assert!(
        rest.ends_with(
            "
0
"
        ),
        "{said}"
    );
    assert_eq!(pause, Pause::Exited(0));
}

#[test]
fn threads_that_compute_share_the_interpreter_with_those_that_wait() {
    let script = r#"
import threading, time

ends = time.monotonic() + 3
def compute():
    while time.monotonic() < ends:
        pass
computing = threading.Thread(target=compute)
computing.start()
for _ in range(5):
    done = []
    threading.Thread(target=lambda: (time.sleep(0.1), done.append(1))).start()
    while not done:
        pass
print(computing.is_alive())
"#;
    let Some(ended) = run(script) else { return };
    assert_eq!(ended, (Pause::Exited(0), "True\n".into()));
}

#[test]
fn what_machines_do_not_have_yet_fails_by_its_name() {
    let script = r#"
import asyncio, errno, mmap, multiprocessing, os, select, signal, socket, urllib.request
def tries(what, wish):
    try:
        print(what, wish())
    except OSError as error:
        print(what, errno.errorcode.get(getattr(error, 'reason', error).errno, error))
file = open('/tmp/file', 'w+b')
file.write(b'x' * 4096)
file.flush()
shared = mmap.mmap(file.fileno(), 0)
tries('twice', lambda: mmap.mmap(file.fileno(), 0))
tries('to read', lambda: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
shared.close()
tries('copied', lambda: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)[0])
tries('read', lambda: mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[0])
tries('process', lambda: multiprocessing.get_context('fork').Process().start())
tries('waits for a signal', lambda: signal.sigtimedwait([signal.SIGUSR1], 0))
tries('fifo', lambda: os.mkfifo('/tmp/fifo'))
tries('timer', lambda: signal.setitimer(signal.ITIMER_PROF, 1))
tries('epoll', lambda: select.epoll())
tries('memfd', lambda: os.memfd_create('name'))
tries('unix', lambda: socket.socket(socket.AF_UNIX))
tries('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW))
for name, kind in ('tcp', socket.SOCK_STREAM), ('udp', socket.SOCK_DGRAM):
    end = socket.socket(socket.AF_INET, kind)
    tries(name, lambda: end.getsockname())
    tries('bind', lambda: end.bind(('127.0.0.1', 0)))
    tries('connect', lambda: end.connect(('127.0.0.1', 80)))
    tries('listen', lambda: end.listen())
    tries('accept', lambda: end.accept())
    tries('sendto', lambda: end.sendto(b'x', ('127.0.0.1', 80)))
    tries('peer', lambda: end.getpeername())
    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    end.close()
async def serve():
    await asyncio.start_server(lambda reads, writes: None, '127.0.0.1', 8080)
tries('server', lambda: asyncio.run(serve()))
tries('client', lambda: urllib.request.urlopen('http://127.0.0.1/'))
tries('datagrams', lambda: socket.socketpair(type=socket.SOCK_DGRAM))
tries('terminal', lambda: os.openpty())
"#;
    let Some(ended) = run(script) else { return };
    let said = "twice ENODEV\nto read ENODEV\ncopied 120\nread 120\nprocess ENOSYS\nwaits for a signal ENOSYS\n\
        fifo EPERM\ntimer ENOSYS\n\
        epoll ENOSYS\nmemfd ENOSYS\nunix EAFNOSUPPORT\nraw EPROTONOSUPPORT\n\
        tcp ('0.0.0.0', 0)\nbind EACCES\nconnect EACCES\nlisten EACCES\naccept EINVAL\nsendto EPIPE\npeer ENOTCONN\n\
        udp ('0.0.0.0', 0)\nbind EACCES\nconnect EACCES\nlisten EACCES\naccept EINVAL\nsendto EACCES\npeer ENOTCONN\n\
        server EACCES\nclient EACCES\ndatagrams ESOCKTNOSUPPORT\nterminal ENOENT\n";
    assert_eq!(ended, (Pause::Exited(0), said.into()));
}

#[test]
fn code_that_takes_too_long_is_interrupted_by_its_own_alarm() {
    let script = r#"
import signal, threading, time
class Late(Exception):
    pass
def late(number, frame):
    raise Late
signal.signal(signal.SIGALRM, late)
done, lock = threading.Event(), threading.Lock()
def computes():
    while not done.is_set():
        pass
def spin():
    while True:
        pass
lock.acquire()
other = threading.Thread(target=computes, daemon=True)
def limited(name, call, *arguments):
    # On a loaded machine the handler's own lines take more than a few milliseconds.
    signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
    try:
        print(name, call(*arguments))
    except Late:
        print(name, 'is late')
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
for _ in range(2):
    limited('spin', spin)
    limited('sleep', time.sleep, 100)
    limited('lock', lock.acquire)
    limited('pause', signal.pause)
    limited('join', threading.Thread.join, other) if other.ident else other.start()
    limited('sum', sum, range(10))
done.set()
other.join()
print(signal.alarm(100), signal.alarm(0), signal.getitimer(signal.ITIMER_REAL))
"#;
    let Some(ended) = run(script) else { return };
    let late = "spin is late\nsleep is late\nlock is late\npause is late\n";
    let said = format!("{late}sum 45\n{late}join is late\nsum 45\n0 100 (0.0, 0.0)\n");
    assert_eq!(ended, (Pause::Exited(0), said));
}

#[test]
fn files_are_mapped_and_written_and_semaphores_are_made() {
    let script = r#"
import mmap, multiprocessing, os, sqlite3, sys, threading
from multiprocessing.pool import ThreadPool
with open('/tmp/file', 'w+b') as file:
    file.write(b'a' * 8192)
    file.flush()
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as shown:
        os.pwrite(file.fileno(), b'bbbb', 0)
        print(shown[:5])
    with mmap.mmap(file.fileno(), 0) as shared:
        shared[:2] = b'cc'
        print(os.pread(file.fileno(), 5, 0))
        shared.flush()
        shared.resize(16384)
        shared[16383] = 100
    print(os.path.getsize('/tmp/file'), open('/tmp/file', 'rb').read()[-2:])

def counts(where, *wishes):
    base = sqlite3.connect(where, isolation_level=None)
    for wish in wishes:
        base.execute(wish).fetchall()
    base.execute('create table things (number integer, text text)')
    for round in range(5):
        base.execute('begin')
        base.executemany('insert into things values (?, ?)', [(at, 'x' * 100) for at in range(500)])
        base.execute('commit')
        base.execute('delete from things where number % 7 = 0')
    other = sqlite3.connect(where, isolation_level=None)
    other.execute('pragma mmap_size=100000000')
    said = other.execute('select count(*), sum(number) from things').fetchall()
    other.execute('vacuum')
    said += base.execute('pragma integrity_check').fetchall()
    base.close()
    other.close()
    return said
print(counts('/tmp/one', 'pragma mmap_size=100000000'))
print(counts('/tmp/two', 'pragma mmap_size=100000000', 'pragma cache_size=5'))
print(counts('/tmp/three', 'pragma journal_mode=wal'), sqlite3.connect('/tmp/three').execute('pragma journal_mode').fetchall())

context = multiprocessing.get_context('fork')
lock, held = context.Lock(), context.BoundedSemaphore(2)
with lock:
    print(lock.acquire(False), lock.acquire(True, 0.01))
def late():
    held.release()
held.acquire(), held.acquire()
threading.Timer(0.01, late).start()
print(held.acquire(True, 5), os.listdir('/dev/shm'))
multiprocessing.set_start_method('fork', force=True)
with ThreadPool(3) as pool:
    print(pool.map(lambda at: at * at, range(5)))
"#;
    let Some((pause, said)) = run(script) else { return };
    let expected = "b'bbbba'
b'ccbba'
16384 b'\\x00d'
[(2140, 534290), ('ok',)]
[(2140, 534290), ('ok',)]
[(2140, 534290), ('ok',)] [('wal',)]
False False
True []
[0, 1, 4, 9, 16]
";
    assert_eq!((pause, said.as_str()), (Pause::Exited(0), expected));
}

/// A conversation with the guest's own agent, as in a container.
struct Talk {
    process: Process,
    decoder: Decoder,
    /// Kept while the guest may read it.
    code: Option<tempfile::TempDir>,
}

impl Talk {
    /// Starts the agent with a handler of this source.
    fn start(host: &Hypervisor, source: &str) -> Self {
        let code = tempfile::tempdir().unwrap();
        std::fs::write(code.path().join("handler.py"), source).unwrap();
        let (tree, interpreter) = tree_with(&code);
        let agent = "/opt/lambswool/instance.pyc";
        let program = [&interpreter, "-I", "-S", "-B", agent];
        let program = program.map(ToString::to_string).to_vec();
        let environment = vec!["LANG=C.UTF-8".into()];
        let options = Options { program, environment, channel: true };
        let mut talk = Self::with(Process::start(host, tree, &options).unwrap());
        talk.code = Some(code);
        let ready = talk.hear();
        assert!(matches!(ready[..], [(Reply::Ready { pid: 1 }, _)]), "{ready:?}");
        talk
    }

    fn with(process: Process) -> Self {
        Self { process, decoder: Decoder::new(1 << 20), code: None }
    }

    fn say(&mut self, request: &Request, body: &str) {
        let mut bytes = Vec::new();
        request.encode(body.as_bytes(), &mut bytes).unwrap();
        self.process.feed(&bytes);
    }

    /// Everything that it answers until it waits again.
    fn hear(&mut self) -> Vec<(Reply, String)> {
        let pause = self.process.run().unwrap();
        assert_eq!(pause, Pause::Idle, "{:?}", self.process.take_output());
        self.decoder.push(&self.process.take_said());
        let mut replies = Vec::new();
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            let (reply, body) = Reply::decode(frame).unwrap();
            replies.push((reply, String::from_utf8(body).unwrap()));
        }
        replies
    }

    fn load(&mut self) -> Vec<(Reply, String)> {
        self.load_as(None)
    }

    fn load_as(&mut self, lambda: Option<Lambda>) -> Vec<(Reply, String)> {
        let load = Load {
            module: "handler".into(),
            function: "handler".into(),
            convention: Convention::Lambda,
            name: "test".into(),
            version: "1".into(),
            memory_mb: 512,
            environment: Default::default(),
            binary: false,
            observe: false,
            entries: None,
            lambda: lambda.map(Arc::new),
            threads: 1,
        };
        self.say(&Request::Load(load), "");
        self.hear()
    }

    fn invoke(&mut self, id: &str, event: &str) -> Vec<(Reply, String)> {
        let (id, content_type) = (id.to_owned(), "application/json".to_owned());
        self.say(&Request::Invoke { id, remaining_ms: 1000, content_type, lambda: None }, event);
        self.hear()
    }

    /// As the first call of a clone.
    fn wake_and_ask(&mut self, event: &str) -> serde_json::Value {
        self.say(&Request::Wake {}, "");
        let said = self.invoke("i", event);
        let [(Reply::Done { .. }, done)] = &said[..] else { panic!("{said:?}") };
        serde_json::from_str(done).unwrap()
    }
}

#[test]
fn the_guest_loads_a_handler_and_answers_calls() {
    let Some(host) = kvm() else { return };
    let source = "import math\nprint('loading')\ndef handler(event, context):\n    print('called')\n    return {'root': math.sqrt(event['square']), 'id': context.aws_request_id}\n";
    let mut talk = Talk::start(&host, source);
    let loaded = talk.load();
    let [(Reply::Log { .. }, log), (Reply::Loaded { .. }, _)] = &loaded[..] else {
        panic!("{loaded:?}")
    };
    assert_eq!(log, "loading\n");
    for square in [4, 9] {
        let id = format!("call-{square}");
        let said = talk.invoke(&id, &format!("{{\"square\": {square}}}"));
        let [(Reply::Log { .. }, log), (Reply::Done { .. }, done)] = &said[..] else {
            panic!("{said:?}")
        };
        assert_eq!(log, "called\n");
        let root = f64::from(square).sqrt();
        assert_eq!(*done, format!("{{\"root\": {root:.1}, \"id\": \"{id}\"}}"));
    }
    let mut process = talk.process;
    process.hang_up();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
    assert!(process.unknown_calls().is_empty(), "{:?}", process.unknown_calls());
}

/// What a handler is that leaves as much behind as it can, and says what it finds.
const LEAVING: &str = "
import os, random, uuid, decimal
kept = []
def handler(event, context):
    found = len(kept), os.listdir('/tmp'), os.getcwd()
    kept.append(bytearray(event['bytes']))
    with open('/tmp/left', 'w') as left:
        left.write('secret')
    os.chdir('/tmp')
    numbers = [random.random(), uuid.uuid4().hex, uuid.uuid1().hex, os.urandom(8).hex()]
    return {'found': found, 'numbers': numbers, 'sum': str(decimal.Decimal('0.1') + 1)}
";

#[test]
fn clones_draw_different_numbers_and_see_nothing_of_each_other() {
    let Some(host) = kvm() else { return };
    let mut origin = Talk::start(&host, LEAVING);
    assert!(matches!(origin.load().last(), Some((Reply::Loaded { .. }, _))));
    let template = Template::seal(origin.process).unwrap();
    let scanner = Scanner::open().unwrap();
    let mut numbers = Vec::new();
    let mut hear = |answer: serde_json::Value| {
        assert_eq!(answer["found"], serde_json::json!([0, [], "/var/task"]));
        assert_eq!(answer["sum"], "1.1");
        numbers.extend(answer["numbers"].as_array().unwrap().iter().map(ToString::to_string));
    };
    // Side by side, and one after another.
    let mut clones = [0; 3].map(|_| Talk::with(template.spawn(&host).unwrap()));
    for clone in &mut clones {
        hear(clone.wake_and_ask("{\"bytes\": 5000000}"));
    }
    let [clone, ..] = clones;
    let mut process = clone.process;
    for _ in 0..5 {
        process = template.reset(process, &scanner).unwrap().0;
        assert_eq!(template.differences(&mut process, &scanner).unwrap(), Vec::<String>::new());
        let mut talk = Talk::with(process);
        hear(talk.wake_and_ask("{\"bytes\": 20000000}"));
        process = talk.process;
    }
    let count = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), count, "a number was drawn twice: {numbers:?}");
}

#[test]
fn clones_of_a_function_that_expects_awss_runtime_have_log_streams_of_their_own() {
    let Some(host) = kvm() else { return };
    let source = "import os, sys, logging, time\ndef handler(event, context):\n    if event: sys.exit(event)\n    logging.warning('said')\n    return [context.log_stream_name, os.environ['AWS_LAMBDA_LOG_STREAM_NAME'], time.tzname[0]]\n";
    let mut origin = Talk::start(&host, source);
    let (handler, runtime) = ("handler.handler".to_owned(), "python3.12".to_owned());
    let loaded = origin.load_as(Some(Lambda { handler, runtime, json_level: None }));
    assert!(matches!(loaded.last(), Some((Reply::Loaded { .. }, _))), "{loaded:?}");
    let template = Template::seal(origin.process).unwrap();
    let streams = [0; 2].map(|_| {
        let mut clone = Talk::with(template.spawn(&host).unwrap());
        clone.say(&Request::Wake {}, "");
        let said = clone.invoke("i", "0");
        let [(Reply::Log { .. }, log), (Reply::Done { .. }, done)] = &said[..] else {
            panic!("{said:?}")
        };
        assert!(log.starts_with("[WARNING]\t") && log.ends_with("\ti\tsaid\n"), "{log}");
        let [stream, variable, zone]: [String; 3] = serde_json::from_str(done).unwrap();
        assert_eq!((&stream, &*zone), (&variable, "UTC"));
        let ended = clone.invoke("j", "3");
        let [(Reply::Failed { failure, .. }, _)] = &ended[..] else { panic!("{ended:?}") };
        assert_eq!(failure.message, "Runtime exited with error: exit status 3");
        stream
    });
    assert_ne!(streams[0], streams[1]);
}

/// What a clone answers that loads the code of its own and is called twice; the numbers that it
/// drew are apart.
fn loads_and_answers(
    host: &Hypervisor,
    template: &Template,
) -> (Vec<serde_json::Value>, Vec<String>) {
    let mut clone = Talk::with(template.spawn(host).unwrap());
    clone.say(&Request::Wake {}, "");
    assert!(matches!(clone.load().last(), Some((Reply::Loaded { .. }, _))));
    let mut numbers = Vec::new();
    let answers = [1, 2].map(|count| {
        let mut answer = clone.wake_and_ask(&format!("{{\"bytes\": {count}}}"));
        let drawn = answer["numbers"].take();
        numbers.extend(drawn.as_array().unwrap().iter().map(ToString::to_string));
        answer
    });
    (answers.to_vec(), numbers)
}

#[test]
fn a_restored_python_answers_like_the_saved_one_with_other_randomness() {
    let Some(host) = kvm() else { return };
    let mut origin = Talk::start(&host, LEAVING);
    let code = origin.code.take().unwrap();
    let template = Template::seal(origin.process).unwrap();
    let program = std::fs::File::open("/proc/self/exe").unwrap();
    let build = Build::of(&program).unwrap();
    let mut snapshot = Vec::new();
    template.save(&host, build, &mut snapshot).unwrap();
    eprintln!("{} bytes", snapshot.len());
    let began = std::time::Instant::now();
    let (tree, _) = tree_with(&code);
    let restored = Template::restore(&host, build, tree, &snapshot[..]).unwrap();
    eprintln!("restored in {:?}", began.elapsed());
    assert_eq!(restored.given(), template.given());
    let (expected, before) = loads_and_answers(&host, &template);
    let (answers, after) = loads_and_answers(&host, &restored);
    assert_eq!(answers, expected);
    assert!(before.iter().all(|number| !after.contains(number)), "{before:?} {after:?}");
    // A clone of it is reset as any other.
    let scanner = Scanner::open().unwrap();
    let mut clone = Talk::with(restored.spawn(&host).unwrap());
    clone.say(&Request::Wake {}, "");
    drop(clone.load());
    let mut process = restored.reset(clone.process, &scanner).unwrap().0;
    assert_eq!(restored.differences(&mut process, &scanner).unwrap(), Vec::<String>::new());
}

/// CPython's own tests, one suite after the other: how many ran, how many were skipped, and which
/// failed, with the last line of why.
const SUITES: &str = r#"
import os, sys, unittest
os.chdir('/tmp')
for name in sys.argv[1:]:
    suite = unittest.defaultTestLoader.loadTestsFromName('test.test_' + name)
    with open('/dev/null', 'w') as null:
        result = unittest.TextTestRunner(stream=null).run(suite)
    print('SUITE', name, result.testsRun, len(result.skipped))
    for case, text in result.errors + result.failures:
        print('FAILED', case.id(), '|', text.strip().splitlines()[-1])
"#;

/// Each suite, and how many tests it has at least: fewer than any Python has that a base can be
/// made of.
const WANTED: [(&str, u32); 11] = [
    ("math", 60),
    ("dict", 80),
    ("list", 40),
    ("float", 40),
    ("re", 100),
    ("struct", 20),
    ("json", 100),
    ("decimal", 200),
    ("datetime", 500),
    ("zlib", 40),
    ("hashlib", 40),
];

/// Whether a failed test wanted a process of its own, which no guest gets: most say so. `test_tool`
/// runs a tool that way, and then looks for what the tool has written.
fn wants_a_process(failed: &str) -> bool {
    failed.contains("Function not implemented") || failed.starts_with("test.test_json.test_tool.")
}

#[test]
fn pythons_own_tests_pass() {
    let (Some(host), (tree, interpreter)) = (kvm(), tree()) else { return };
    let mut python = std::process::Command::new("python3");
    let python =
        python.args(["-c", "import sys, test; print(sys.version_info[:2], test.__path__[0])"]);
    let found = python.output().ok().filter(|found| found.status.success());
    let found = found.and_then(|found| String::from_utf8(found.stdout).ok());
    let path = found.as_deref().and_then(|found| found.trim().split_once(") "));
    let Some((_, path)) = path.filter(|(version, _)| {
        let version = version.trim_start_matches('(').replace(", ", ".");
        interpreter.ends_with(&version) || interpreter.ends_with("/python3")
    }) else {
        skips::skip("python_tests", &format!("no tests that belong to {interpreter}"));
        return;
    };
    let tree = tree.layer("/opt/tests/test", std::path::Path::new(path)).unwrap();
    let names = WANTED.iter().map(|(name, _)| (*name).to_owned());
    let program = [&interpreter, "-S", "-B", "-c", SUITES].map(ToString::to_string);
    let program = program.into_iter().chain(names).collect();
    let environment = vec!["LANG=C.UTF-8".into(), "PYTHONPATH=/opt/tests".into()];
    let options = Options { program, environment, channel: false };
    let mut process = Process::start(&host, tree.build(64 << 20, 4096), &options).unwrap();
    let pause = process.run().unwrap();
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    let output = String::from_utf8_lossy(&output);
    assert_eq!(pause, Pause::Exited(0), "{output}");
    eprintln!("{output}");
    for (name, least) in WANTED {
        let head = format!("SUITE {name} ");
        let ran = output.lines().find_map(|line| line.strip_prefix(&head)?.split(' ').next());
        let ran = ran.and_then(|ran| ran.parse::<u32>().ok());
        assert!(ran.is_some_and(|ran| ran >= least), "{name}: {ran:?} of {least}: {output}");
    }
    let failed = output.lines().filter_map(|line| line.strip_prefix("FAILED "));
    let unexpected: Vec<_> = failed.filter(|line| !wants_a_process(line)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}
