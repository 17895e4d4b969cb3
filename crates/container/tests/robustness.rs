//! What limits, deaths, a zygote's end and siblings do to an instance, and what it can do itself.

mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use container::ContainerOptions;
use sandbox::{Death, Limits, Provider, ProviderError, ZygoteSpec};
use support::attack::REPORT;
use support::{Conversation, NONE, World, ask, can_run, host, patience};

const ONE: &str = "def handler(event, context):\n    return 1\n";

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < patience(5), "{what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_subprocesses_and_the_cpus_number_work_in_a_handler() {
    if !can_run() {
        return;
    }
    let source = "
import subprocess, sys, threading
def handler(event, context):
    cpus = []
    for cpu in os.sched_getaffinity(0):
        os.sched_setaffinity(0, {cpu})
        here = ctypes.c_uint()
        raw('getcpu', ctypes.byref(here), None, None)
        cpus.append([cpu, libc.sched_getcpu(), here.value])
    seen = []
    threads = [threading.Thread(target=lambda n=n: seen.append(n)) for n in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    ran = subprocess.run(['/usr/bin/python3', '-I', '-c', 'import os; print(os.getuid(), 6 * 7)'], capture_output=True, text=True)
    null = subprocess.run(['/usr/bin/python3', '-I', '-c', 'print(1)'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return {'cpus': cpus, 'threads': sorted(seen), 'ran': ran.stdout + ran.stderr, 'null': null.returncode, 'pid': os.getpid()}
";
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = root.derive(world.zygote(&["threading"])).await.unwrap();
        let spec = || world.attacker(source);
        for mut instance in [
            root.fork(spec()).await.unwrap(),
            derived.fork(spec()).await.unwrap(),
            world.containers.create_instance(spec()).await.unwrap(),
        ] {
            let said = ask(instance.as_mut(), "{}").await;
            assert_eq!(said["threads"], serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7]));
            // The restartable sequence is registered: the C library's number is the kernel's.
            for cpu in said["cpus"].as_array().unwrap() {
                assert!(cpu[0] == cpu[1] && cpu[1] == cpu[2], "{said}");
            }
            let ran = said["ran"].as_str().unwrap();
            assert!(ran.trim_end().ends_with(" 42"), "{said}");
            assert_eq!(said["null"], 0);
            assert_eq!(said["pid"], 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_stops_at_the_limit_and_dies_with_its_instance() {
    if !can_run() {
        return;
    }
    let source = "
import time
def handler(event, context):
    made, error = 0, None
    while made < 200:
        try:
            if os.fork() == 0:
                # Each leaves its parent, twice.
                os.setsid()
                if os.fork():
                    os._exit(0)
                time.sleep(60)
            made += 1
            time.sleep(0.002)
        except OSError as refused:
            error = errno.errorcode[refused.errno]
            break
    return [made, error]
";
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let fresh = world.containers.create_instance(world.attacker(source)).await.unwrap();
    let forked = root.fork(world.attacker(source)).await.unwrap();
    for mut instance in [forked, fresh] {
        let before = world.processes().len();
        let mut talk = Conversation::load(instance.as_mut()).await;
        let said = talk.ask("{}").await;
        assert_eq!(said[1], "EAGAIN", "{said}");
        assert!(said[0].as_u64().unwrap() < 64, "{said}");
        assert!(world.processes().len() > before + 20);
        drop(instance);
        until("its daemons are gone", || world.processes().len() < before).await;
    }
    // The zygote did not pay for it.
    let mut after = root.fork(world.instance(ONE)).await.unwrap();
    assert_eq!(ask(after.as_mut(), "{}").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_limit_that_is_far_too_small_kills_the_child_and_never_the_zygote() {
    if !can_run() {
        return;
    }
    for options in [NONE, ContainerOptions { slots: 2, spares: 0, ..NONE }] {
        for staged in [false, true] {
            let world = World::new(staged, options).await;
            // Its memory is what a fork's page tables describe: large enough for them not to fit.
            let big = world.package(
                "big",
                "HELD = bytearray(96 << 20)\nHELD[::4096] = b'x' * (len(HELD) // 4096)\n",
            );
            let mut spec = world.zygote(&["big"]);
            spec.packages = Some(big);
            let root = world.containers.create_zygote(spec.clone()).await.unwrap();
            assert_eq!(root.imports().failed, []);
            let derived = root.derive(spec).await.unwrap();
            for zygote in [&root, &derived] {
                let mut outcomes = vec![];
                for kilobytes in [4, 64, 256, 1024, 2048, 4096] {
                    let mut tiny = world.instance(ONE);
                    tiny.limits = Limits { memory_bytes: kilobytes << 10, ..Limits::default() };
                    let forked = zygote.fork(tiny).await;
                    assert!(zygote.alive(), "{kilobytes} KiB: {forked:?}");
                    outcomes.push((kilobytes, forked.err()));
                }
                // Nor does the worker give the zygote up for it. (Below some 100 KiB not even the
                // error message fits.)
                let lost = |(kilobytes, error): &(u64, Option<ProviderError>)| {
                    *kilobytes >= 1024 && matches!(error, Some(ProviderError::ZygoteLost { .. }))
                };
                assert!(!outcomes.iter().any(lost), "{outcomes:?}");
                assert!(
                    outcomes.iter().any(|(_, error)| error.is_some()),
                    "no limit was small enough to show anything: {outcomes:?}"
                );
                let mut after = zygote.fork(world.instance(ONE)).await.unwrap();
                assert_eq!(ask(after.as_mut(), "{}").await, 1);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_takes_too_much_memory_is_killed_alone() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let sibling = root.fork(world.instance(ONE)).await.unwrap();
    let mut spec =
        world.instance("def handler(event, context):\n    return len(bytearray(200 << 20))\n");
    spec.limits.memory_bytes = 64 << 20;
    let mut instance = root.fork(spec).await.unwrap();
    let mut talk = Conversation::load(instance.as_mut()).await;
    assert_eq!(talk.call("{}").await, None);
    assert_eq!(instance.autopsy().await.unwrap(), Death::OutOfMemory);
    assert!(root.alive() && sibling.alive());
    // So is one that fills its scratch, which counts as memory.
    let mut spec = world.instance(
        "
def handler(event, context):
    with open('/tmp/big', 'wb') as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
",
    );
    spec.limits = Limits { memory_bytes: 48 << 20, scratch_bytes: 90 << 20, ..Limits::default() };
    let mut instance = root.fork(spec).await.unwrap();
    let mut talk = Conversation::load(instance.as_mut()).await;
    assert_eq!(talk.call("{}").await, None);
    assert_eq!(instance.autopsy().await.unwrap(), Death::OutOfMemory);
    assert!(root.alive() && sibling.alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_zygote_has_imported_counts_against_none_of_its_forks() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let packages = Some(world.package("big", "HELD = b'x' * (200 << 20)\n"));
    let imported = ZygoteSpec { packages: packages.clone(), ..world.zygote(&["big"]) };
    let with = world.containers.create_zygote(imported).await.unwrap();
    let without = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut spec =
        world.instance("def handler(event, context):\n    import big\n    return len(big.HELD)\n");
    spec.packages = packages;
    spec.limits.memory_bytes = 128 << 20;
    let mut fits = with.fork(spec.clone()).await.unwrap();
    assert_eq!(ask(fits.as_mut(), "{}").await, 200 << 20);
    // The same function, which imports its modules itself.
    let mut dies = without.fork(spec).await.unwrap();
    let mut talk = Conversation::load(dies.as_mut()).await;
    assert_eq!(talk.call("{}").await, None);
    assert_eq!(dies.autopsy().await.unwrap(), Death::OutOfMemory);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_instance_stands_still_and_dies_when_it_is_destroyed() {
    if !can_run() {
        return;
    }
    let source = "
import threading, time
COUNT = [0]
def count():
    while True:
        COUNT[0] += 1
        time.sleep(0.001)
threading.Thread(target=count, daemon=True).start()
def handler(event, context):
    return COUNT[0]
";
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    for round in 0..6 {
        let before = world.processes();
        let mut instance = root.fork(world.instance(source)).await.unwrap();
        let mut talk = Conversation::load(instance.as_mut()).await;
        talk.ask("{}").await;
        let process = world.newcomer(&before);
        instance.pause().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let ticks = |pid: i32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            text.split(' ').next().unwrap().to_owned()
        };
        let stopped = ticks(process.pid);
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert_eq!(ticks(process.pid), stopped, "it runs although it is paused");
        if round % 2 == 0 {
            instance.resume().unwrap();
            talk.ask("{}").await;
            assert_ne!(ticks(process.pid), stopped);
            instance.pause().unwrap();
        }
        drop((talk, instance));
        until("a paused instance dies", || world.processes().len() == before.len()).await;
        world.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instances_cgroup_goes_back_to_its_own_zygote_only() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let one = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let other = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut of_one = BTreeSet::new();
    let mut of_other = BTreeSet::new();
    let mut uids = BTreeSet::new();
    for round in 0..40 {
        let (zygote, seen) =
            if round % 2 == 0 { (&one, &mut of_one) } else { (&other, &mut of_other) };
        let before = world.processes();
        let instance = zygote.fork(world.instance(ONE)).await.unwrap();
        let process = world.newcomer(&before);
        seen.insert(std::fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap());
        assert!(uids.insert(process.uid), "a kernel uid was given again");
        drop(instance);
        world.settle().await;
    }
    assert!(of_one.is_disjoint(&of_other));
    // The control. Few were reused: a cgroup is checked at once, and the kernel takes time to
    // uncharge it.
    assert!(of_one.len() + of_other.len() < 40, "none was reused: {of_one:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_zygote_forked_lives_on_after_its_death() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let world = World::new(staged, NONE).await;
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let root_process = world.processes().remove(0);
        let mut of_root = root.fork(world.instance(ONE)).await.unwrap();
        let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
        let twice = derived.derive(world.zygote(&["zoneinfo"])).await.unwrap();
        let mut of_derived = derived.fork(world.instance(ONE)).await.unwrap();
        let before: BTreeSet<u32> = world.processes().iter().map(|p| p.uid).collect();
        assert_eq!(before.len(), 5, "every sandbox has a kernel uid of its own");

        // Once by a signal, then by dropping it.
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(root_process.pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        until("it is dead", || !root.alive()).await;
        assert!(root.fork(world.instance(ONE)).await.is_err());
        drop(root);
        drop(derived);
        until("both are gone", || world.processes().len() == 3).await;
        for instance in [&mut of_root, &mut of_derived] {
            assert_eq!(ask(instance.as_mut(), "{}").await, 1);
        }
        let mut after = twice.fork(world.instance(ONE)).await.unwrap();
        assert_eq!(ask(after.as_mut(), "{}").await, 1);
        let again = twice.derive(world.zygote(&["graphlib"])).await.unwrap();
        let mut last = again.fork(world.instance(ONE)).await.unwrap();
        assert_eq!(ask(last.as_mut(), "{}").await, 1);
        let fresh = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let side = fresh.derive(world.zygote(&["decimal"])).await.unwrap();
        let now: BTreeSet<u32> = world.processes().iter().map(|p| p.uid).collect();
        // Descendants of the dead live: none of the dead zygote's ids is given to another sandbox.
        let reused: Vec<_> = now.iter().filter(|uid| **uid == root_process.uid).collect();
        assert!(reused.is_empty());
        drop((side, fresh));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sandbox_has_a_privilege_in_the_hosts_eyes() {
    if !can_run() {
        return;
    }
    for staged in [false, true] {
        let world = World::new(staged, ContainerOptions { slots: 1, spares: 1, ..NONE }).await;
        let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
        let derived = root.derive(world.zygote(&["decimal"])).await.unwrap();
        let before = world.processes();
        let _forked = root.fork(world.instance(ONE)).await.unwrap();
        let _second = derived.fork(world.instance(ONE)).await.unwrap();
        let not_fresh: BTreeSet<i32> = world.processes().iter().map(|p| p.pid).collect();
        let _fresh = world.containers.create_instance(world.instance(ONE)).await.unwrap();
        let all = world.processes();
        assert!(all.len() > before.len());
        let uids: BTreeSet<u32> = all.iter().map(|p| p.uid).collect();
        assert_eq!(uids.len(), all.len(), "kernel uids are shared");
        let namespace =
            |pid: i32, kind: &str| std::fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
        let ours = std::process::id() as i32;
        for process in &all {
            let (pid, status) = (process.pid, &process.status);
            for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
                assert_eq!(status[set], "0000000000000000", "{set} of {process:?}");
            }
            assert_eq!(status["NoNewPrivs"], "1");
            assert_eq!(status["Seccomp"], "2");
            assert_eq!(status["Groups"], "");
            assert!(process.uid >= 0x7000_0000);
            let ids: BTreeSet<_> =
                status["Uid"].split_whitespace().chain(status["Gid"].split_whitespace()).collect();
            assert_eq!(ids.len(), 1, "{ids:?}");
            let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
            let core = limits.lines().find(|l| l.starts_with("Max core file size")).unwrap();
            // No core is as short as 1; 0 would have no effect on a host that pipes cores to a
            // program.
            assert_eq!(core.split_whitespace().nth(4), Some("1"), "{core}");
            for kind in ["pid", "mnt", "net", "ipc", "uts"] {
                assert_ne!(namespace(pid, kind), namespace(ours, kind), "{kind} of {process:?}");
            }
            // The files of a process that is not dumpable belong to root.
            let owner = std::os::unix::fs::MetadataExt::uid(
                &std::fs::metadata(format!("/proc/{pid}/environ")).unwrap(),
            );
            let apart = namespace(pid, "user") != namespace(ours, "user");
            // A process that has executed a program, as an instance's own interpreter has, is
            // dumpable again.
            if apart && not_fresh.contains(&pid) {
                assert_eq!(owner, 0, "{process:?} is dumpable");
            }
        }
        let one = host::children(world.warden());
        let one = one.iter().find(|p| p.pid == world.pid_one()).unwrap();
        assert_eq!(one.status["CapEff"], "0000000000000000");
        assert_eq!(one.status["CapPrm"], "0000000000000000");
        assert_eq!(one.uid, 0x7000_0000 - 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn siblings_draw_different_random_numbers() {
    if !can_run() {
        return;
    }
    let source = "
import drawn, hashlib, os, random, secrets, ssl, tempfile, uuid
def handler(event, context):
    return [
        str(random.random()), str(random.Random().random()), ssl.RAND_bytes(16).hex(), str(uuid.uuid4()),
        str(uuid.uuid1().node), os.urandom(16).hex(), secrets.token_hex(16), next(tempfile._get_candidate_names()),
        context.generation_id, drawn.draw(),
    ]
";
    let package = "
import sqlite3, uuid
uuid.uuid1()
def draw():
    return sqlite3.connect(':memory:').execute('select hex(randomblob(16))').fetchone()[0]
draw()
";
    let world = World::new(false, ContainerOptions { slots: 2, spares: 2, ..NONE }).await;
    let modules = ["random", "ssl", "uuid", "secrets", "tempfile", "hashlib", "drawn"];
    let packages = Some(world.package("drawn", package));
    let spec = ZygoteSpec { packages, ..world.zygote(&modules) };
    let warm = world.containers.create_zygote(spec.clone()).await.unwrap();
    assert_eq!(warm.imports().failed, []);
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let derived = root.derive(spec).await.unwrap();
    let mut drawn: Vec<BTreeSet<String>> = vec![BTreeSet::new(); 10];
    let mut count = 0;
    for zygote in [&warm, &derived] {
        for _ in 0..6 {
            let mut instance = zygote.fork(world.instance(source)).await.unwrap();
            let said = ask(instance.as_mut(), "{}").await;
            for (at, value) in said.as_array().unwrap().iter().enumerate() {
                drawn[at].insert(value.as_str().unwrap().to_owned());
            }
            count += 1;
        }
    }
    for (at, values) in drawn.iter().enumerate() {
        assert_eq!(values.len(), count, "source {at} repeats itself: {values:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_worker_ignores_is_not_ignored_in_a_sandbox() {
    if !can_run() {
        return;
    }
    // A shell does this to programs in the background, and the warden inherits it. SAFETY: this
    // process needs no signal.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let world = World::new(false, NONE).await;
    let source = "
import signal
def handler(event, context):
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler
";
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut forked = root.fork(world.instance(source)).await.unwrap();
    let mut fresh = world.containers.create_instance(world.instance(source)).await.unwrap();
    for instance in [&mut forked, &mut fresh] {
        assert_eq!(ask(instance.as_mut(), "{}").await, true);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_that_keeps_silent_is_given_up() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let attack = "
LANDS = False
def attack(fds, uid, flags):
    os.dup(fds[1])
";
    let zygote = world.containers.create_zygote(world.evil(attack)).await.unwrap();
    let begin = Instant::now();
    let error = zygote.fork(world.instance(REPORT)).await.unwrap_err();
    assert!(matches!(error, ProviderError::ZygoteLost { .. }), "{error}");
    assert!(begin.elapsed() > Duration::from_secs(9) && begin.elapsed() < patience(15));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_tells_what_each_import_took_and_which_left_a_file_open() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let source = "import posix, time\ntime.sleep(0.03)\nFD = posix.open('/dev/null', 0)\n";
    let spec = ZygoteSpec {
        packages: Some(world.package("leaky", source)),
        ..world.zygote(&["fractions", "leaky", "decimal"])
    };
    let zygote = world.containers.create_zygote(spec).await.unwrap();
    let imports = zygote.imports();
    assert_eq!(
        (imports.threads, imports.fds, &*imports.left_by),
        (0, 1, &["leaky".to_owned()][..])
    );
    assert_eq!(imports.files.len(), 1, "the standard library is not told of");
    assert!(imports.files[0].milliseconds >= 30.0 && imports.files[0].importer.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_imports_longer_than_a_message_is_imported_whole() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let mut modules: Vec<String> =
        (0..3000).map(|n| format!("a_module_with_a_long_name_that_is_not_there_{n}")).collect();
    modules.push("last".to_owned());
    let spec = ZygoteSpec {
        packages: Some(world.package("last", "")),
        imports: modules,
        ..world.zygote(&[])
    };
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let derived = root.derive(spec).await.unwrap();
    assert_eq!(derived.imports().files[0].module, "last");
    assert!(!derived.imports().failed.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zygote_killed_for_its_memory_is_lost_and_its_parent_serves_on() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let take = "bytearray(b'x' * (200 << 20))";
    // While it imports.
    let greedy = ZygoteSpec {
        packages: Some(world.package("greedy", &format!("HELD = {take}\n"))),
        limits,
        ..world.zygote(&["greedy"])
    };
    let error = root.derive(greedy).await.unwrap_err();
    assert!(matches!(error, ProviderError::ZygoteLost { .. }), "{error}");
    assert!(error.to_string().ends_with("while importing: it reached its memory limit"), "{error}");
    // While it waits to be forked.
    let source = format!("import signal\nsignal.signal(signal.SIGUSR1, lambda *_: {take})\n");
    let later = ZygoteSpec {
        packages: Some(world.package("later", &source)),
        limits,
        ..world.zygote(&["later"])
    };
    let before = world.processes();
    let derived = root.derive(later).await.unwrap();
    assert_eq!(derived.imports().failed, []);
    let process = world.newcomer(&before);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(process.pid).unwrap(),
        rustix::process::Signal::USR1,
    )
    .unwrap();
    until("the kernel kills it", || !derived.alive()).await;
    let error = derived.fork(world.instance(ONE)).await.unwrap_err();
    assert!(matches!(error, ProviderError::ZygoteLost { .. }), "{error}");
    assert!(root.alive());
    let mut after = root.fork(world.instance(ONE)).await.unwrap();
    assert_eq!(ask(after.as_mut(), "{}").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_start_under_a_warden_that_was_given_little() {
    if !can_run() {
        return;
    }
    // limits.conf(5) or a container engine may set this: less than a sandbox gets elsewhere.
    let state = support::empty_state();
    let starter = state.join("starter");
    let warden = support::program();
    let words = format!(
        "#!/bin/bash\nulimit -S -H -c 0; ulimit -i 99; ulimit -n 900; exec {} \"$@\"\n",
        warden.display()
    );
    std::fs::write(&starter, words).unwrap();
    std::fs::set_permissions(&starter, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let world = World::served_by(starter, state, support::rooted(false), NONE).await;
    let root = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let source = "
import resource as r
def handler(event, context):
    return [r.getrlimit(each)[1] for each in (r.RLIMIT_CORE, r.RLIMIT_SIGPENDING, r.RLIMIT_NOFILE)]
";
    let mut instance = root.fork(world.instance(source)).await.unwrap();
    let limits = ask(instance.as_mut(), "{}").await;
    let [core, signals, files] = [0, 1, 2].map(|which| limits[which].as_u64().unwrap());
    assert!(core <= 1 && signals <= 1024 && files <= 1024, "{limits}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_map_too_long_to_read_makes_a_zygote_unfit() {
    if !can_run() {
        return;
    }
    // Some hundred lines with a path of 250 KB each; the kernel can merge no two of them.
    let source = "
import ctypes, os
os.chdir('/tmp')
for _ in range(1000):
    os.mkdir('d' * 250)
    os.chdir('d' * 250)
file = os.open('f', os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4096)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
for _ in range(100):
    assert libc.mmap(None, 4096, 1, 2, file, 0) != 2**64 - 1
os.close(file)
os.chdir('/')
";
    let world = World::new(false, NONE).await;
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", world.warden())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let honest = world.containers.create_zygote(world.zygote(&["decimal"])).await.unwrap();
    let before = peak();
    let long =
        ZygoteSpec { packages: Some(world.package("long", source)), ..world.zygote(&["long"]) };
    let zygote = world.containers.create_zygote(long).await.unwrap();
    assert_eq!(zygote.imports().failed, []);
    assert_eq!(zygote.imports().shared, u32::MAX, "it is not to be forked");
    assert!(peak() < before + (8 << 10), "{before} KiB, then {}", peak());
    assert_eq!(honest.imports().shared, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_leave_a_quarter_of_the_hosts_processes_to_others() {
    if !can_run() {
        return;
    }
    let world = World::new(false, NONE).await;
    let tops = host::cgroups(&world.cgroup_name());
    let named = |dir: &std::path::Path| dir.ends_with(world.cgroup_name());
    let tops = tops.iter().filter(|dir| named(dir)).map(|dir| dir.join("pids.max"));
    let tops: Vec<_> = tops.filter(|file| file.exists()).collect();
    let [top] = &tops[..] else {
        return skips::skip("cgroup", "nothing counts processes here");
    };
    let most: u64 = std::fs::read_to_string(top).unwrap().trim().parse().expect("a number");
    assert_eq!(most, sys::probe::processes() / 4 * 3);

    // The limit holds for all sandboxes together: with room for two more, none gets eight.
    let starts = "
import os, time
def handler(event, context):
    for held in range(8):
        try:
            if event and os.fork() == 0:
                time.sleep(1000)
        except BlockingIOError:
            return held
    return 8
";
    let zygote = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let mut instance = zygote.fork(world.instance(starts)).await.unwrap();
    let mut talk = Conversation::load(instance.as_mut()).await;
    assert_eq!(talk.ask("0").await, 8);
    let current = std::fs::read_to_string(top.with_file_name("pids.current")).unwrap();
    let room = current.trim().parse::<u64>().unwrap() + 2;
    std::fs::write(top, room.to_string()).unwrap();
    assert_eq!(talk.ask("1").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_beside_python_needs_no_scratch_and_comes_whole() {
    if !can_run() {
        return;
    }
    let source = "
import os
def handler(event, context):
    scratch = os.statvfs('/tmp')
    with open('/tmp/full', 'wb', buffering=0) as full:
        try:
            for _ in range(scratch.f_bfree + 1):
                full.write(b'x' * scratch.f_bsize)
        except OSError:
            pass
    for number in range(1000):
        os.write(2, b'%d' % number + b'.' * 996 + bytes([10]))
    for name in ['/dev/stdout', '/dev/stderr', '/proc/self/fd/1']:
        with open(name, 'w') as again:
            again.write(name + chr(10))
    return os.fstat(1) == os.fstat(2)
";
    let world = World::new(false, NONE).await;
    let zygote = world.containers.create_zygote(world.zygote(&[])).await.unwrap();
    let fresh = world.containers.create_instance(world.instance(source));
    let forked = zygote.fork(world.instance(source));
    for mut instance in [fresh.await.unwrap(), forked.await.unwrap()] {
        let mut talk = Conversation::load(instance.as_mut()).await;
        assert_eq!(talk.ask("{}").await, true);
        // The last lines may still be in the pipe.
        talk.ask("{}").await;
        let lines: Vec<_> = talk.output.lines().take(1003).collect();
        let numbered = |(number, line): (usize, &&str)| line.starts_with(&format!("{number}."));
        assert!(lines[..1000].iter().enumerate().all(numbered), "{}", talk.output);
        assert_eq!(lines[1000..], ["/dev/stdout", "/dev/stderr", "/proc/self/fd/1"]);
    }
}
