//! State that a zygote's imports leave behind and that its forks would share or miss, whatever the
//! zygote reports.

mod support;

use sandbox::{Imports, InstanceSpec, Provider, ZygoteSpec};
use support::{NONE, World, ask, can_run};

const HANDLER: &str = "def handler(event, context):\n    return 1\n";

/// The remains of a zygote that imports these modules, each with its source: as a root, and derived
/// from another.
async fn left(world: &World, modules: &[(&str, &str)]) -> [Imports; 2] {
    let names: Vec<&str> = modules.iter().map(|(name, _)| *name).collect();
    let packages = Some(world.packages(modules));
    let spec = || ZygoteSpec { packages: packages.clone(), ..world.zygote(&names) };
    let root = world.containers.create_zygote(spec()).await.unwrap();
    let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let derived = honest.derive(spec()).await.unwrap();
    // Whatever was found, the parent zygote is as it was.
    let mut instance = honest.fork(world.instance(HANDLER)).await.unwrap();
    assert_eq!(ask(instance.as_mut(), "{}").await, 1);
    [root.imports().clone(), derived.imports().clone()]
}

fn said(imports: &Imports) -> (u32, u32, u32, Vec<&str>) {
    let by = imports.left_by.iter().map(String::as_str).collect();
    (imports.threads, imports.fds, imports.shared, by)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_whose_imports_map_memory_that_forks_would_share_is_found_out() {
    if !can_run() {
        return;
    }
    let sources = [
        "import mmap\nshared = mmap.mmap(-1, 4096)\n",
        "import multiprocessing\nlock = multiprocessing.Lock()\n",
        "import mmap, tempfile\nwith tempfile.TemporaryFile() as file:\n    file.truncate(4096)\n    shared = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)\n    file.close()\n",
    ];
    let world = World::new(false, NONE).await;
    for source in sources {
        let modules = [("harmless", "value = 1\n"), ("culprit", source), ("after", "value = 2\n")];
        for imports in left(&world, &modules).await {
            let (threads, fds, shared, by) = said(&imports);
            assert_eq!((threads, shared >= 1, by), (0, true, vec!["culprit"]), "{source} {fds}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_python_knows_nothing_of_is_found_out() {
    if !can_run() {
        return;
    }
    // `pause` runs in the thread for ever. Neither a threading library nor a /proc would tell the
    // zygote.
    let native = "
import ctypes
libc = ctypes.CDLL(None)
number = ctypes.c_ulong()
assert libc.pthread_create(ctypes.byref(number), None, libc.pause, None) == 0
";
    let process = "
import os, time
if os.fork() == 0:
    time.sleep(600)
";
    let world = World::new(false, NONE).await;
    for source in [native, process] {
        for imports in left(&world, &[("harmless", "value = 1\n"), ("culprit", source)]).await {
            assert_eq!(said(&imports), (1, 0, 0, vec!["culprit"]), "{source}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_imports_have_added_to_the_path_is_there_in_forks() {
    if !can_run() {
        return;
    }
    let source = "import sys\nsys.path.append('/opt/python/brought')\nsys.path.insert(0, '/opt/python/first')\n";
    let handler =
        "import sys\ndef handler(event, context):\n    return [sys.path[:3], sys.path[-1]]\n";
    let world = World::new(false, NONE).await;
    let packages = Some(world.package("adds", source));
    let spec = ZygoteSpec { packages: packages.clone(), ..world.zygote(&["adds"]) };
    let zygote = world.containers.create_zygote(spec).await.unwrap();
    let spec = InstanceSpec { packages, ..world.instance(handler) };
    let mut instance = zygote.fork(spec).await.unwrap();
    let (own, all) = ("/var/task", "/opt/python");
    assert_eq!(
        ask(instance.as_mut(), "{}").await,
        serde_json::json!([[own, "/opt/python/first", all], "/opt/python/brought"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_forks_would_miss_is_found_out() {
    if !can_run() {
        return;
    }
    let source = "import signal\nsignal.setitimer(signal.ITIMER_PROF, 600)\n";
    let world = World::new(false, NONE).await;
    for imports in left(&world, &[("harmless", "value = 1\n"), ("culprit", source)]).await {
        assert_eq!(said(&imports), (0, 0, 0, vec!["culprit"]));
        assert!(imports.timers && !imports.scratch);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_descriptor_in_the_place_of_one_that_forks_keep_is_found_out() {
    if !can_run() {
        return;
    }
    // Landing closes what is above them. The count stays as it was, and so does the lowest free
    // number.
    let source = "
import os, socket
one, other = socket.socketpair()
os.dup2(one.fileno(), 1)
os.dup2(other.fileno(), 0)
one.close()
other.close()
";
    let world = World::new(false, NONE).await;
    for imports in left(&world, &[("culprit", source)]).await {
        assert_eq!(said(&imports), (0, 2, 0, vec!["culprit"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn state_that_an_import_ends_or_only_reads_is_not_left_behind() {
    if !can_run() {
        return;
    }
    let source = "
import ctypes, mmap, subprocess, tempfile, threading
thread = threading.Thread(target=lambda: None)
thread.start()
thread.join()
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
with open(__file__, 'rb') as file:
    read = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
assert ctypes.string_at(read, 7) == b'\\nimport'
private = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
with tempfile.TemporaryFile() as file:
    file.write(b'x')
subprocess.run(['/usr/bin/python3', '-I', '-c', ''], check=False)
";
    let world = World::new(false, NONE).await;
    for imports in left(&world, &[("careful", source)]).await {
        assert_eq!(imports.failed, []);
        assert_eq!(said(&imports), (0, 0, 0, vec![]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_lies_about_its_time_is_held_to_the_time_that_it_had() {
    if !can_run() {
        return;
    }
    // It replaces the clock of the code that measures it.
    let source = "
import time
real = time.perf_counter
time.perf_counter = lambda: real() * 1e9
";
    let world = World::new(false, NONE).await;
    let begin = std::time::Instant::now();
    let all = left(&world, &[("culprit", source), ("other", "value = 1\n")]).await;
    let elapsed = begin.elapsed().as_secs_f64() * 1e3;
    for imports in all {
        let sum: f64 = imports.files.iter().map(|file| file.milliseconds).sum();
        assert!(imports.milliseconds <= elapsed && sum <= elapsed + 1e-3, "{imports:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_whose_imports_close_its_first_descriptors_is_forked_as_any_other() {
    if !can_run() {
        return;
    }
    let handler = "
import os

def handler(event, context):
    stats = [os.fstat(number) for number in (0, 1, 2)]
    return [stats[0].st_rdev == os.stat('/dev/null').st_rdev, [[s.st_ino, s.st_mode >> 12] for s in stats[1:]]]
";
    for (numbers, staged) in
        [("0, 3", false), ("1, 3", false), ("1, 2", false), ("2, 3", false), ("0, 3", true)]
    {
        let source = format!("import os\nos.closerange({numbers})\n");
        let world = World::new(staged, NONE).await;
        let packages = Some(world.packages(&[("closes", &source)]));
        let spec = ZygoteSpec { packages, ..world.zygote(&["closes"]) };
        let honest = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let root = world.containers.create_zygote(spec.clone()).await.unwrap();
        let derived = honest.derive(spec).await.unwrap();
        for zygote in [root, derived] {
            assert_eq!(said(zygote.imports()), (0, 0, 0, vec![]), "{numbers}");
            let mut instance = zygote.fork(world.instance(handler)).await.unwrap();
            // No path is listed: there is no /proc before Linux 6.17.
            let said = ask(instance.as_mut(), "{}").await;
            let [null, streams] = [&said[0], &said[1]];
            assert_eq!(null, true, "{numbers}");
            assert_eq!(streams[0], streams[1], "{numbers}");
            assert_eq!(streams[0][1], 1, "{numbers}: a pipe: {said}");
        }
    }
}
