//! The Linux personality, by C programs that are linked statically and know nothing of us.

mod machine;

use std::path::Path;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process, Stream};
use microvm::vfs::{Tree, TreeBuilder};

/// A tree with one program, `/program`, and what programs expect besides.
fn tree(program: &[u8], directory: &Path) -> Tree {
    std::fs::write(directory.join("program"), program).unwrap();
    let tree = TreeBuilder::default().layer("/", directory).unwrap();
    tree.devices().scratch("/tmp").text("/etc/motd", "hello\n").build(1 << 20, 64)
}

/// Runs a static C program to its end; returns that and what it printed.
fn run(source: &str) -> Option<(Pause, String)> {
    let host = kvm()?;
    let program = compile(source, &["-static"]);
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        program: vec!["/program".into(), "argument".into()],
        environment: vec!["NAME=value".into()],
        channel: false,
    };
    let mut process = Process::start(&host, tree(&program, directory.path()), &options).unwrap();
    let pause = process.run().unwrap();
    let output: Vec<u8> = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(process.unknown_calls().iter().collect::<Vec<_>>(), Vec::<&u64>::new());
    Some((pause, String::from_utf8(output).unwrap()))
}

#[test]
fn a_program_gets_its_arguments_and_environment_and_prints() {
    let ended = run(r#"
        #include <stdio.h>
        #include <stdlib.h>
        int main(int count, char **arguments) {
            printf("%d %s %s %s\n", count, arguments[0], arguments[1], getenv("NAME"));
            return 7;
        }"#);
    let Some(ended) = ended else { return };
    assert_eq!(ended, (Pause::Exited(7), "2 /program argument value\n".into()));
}

#[test]
fn optional_calls_are_noted_apart_from_missing_ones() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <unistd.h>
        #include <sys/syscall.h>
        int main() { return syscall(SYS_epoll_create1, 0) + syscall(SYS_eventfd2, 0, 0) != -2; }"#;
    let directory = tempfile::tempdir().unwrap();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let tree = tree(&compile(source, &["-static"]), directory.path());
    let mut process = Process::start(&host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
    assert_eq!(process.unknown_calls().iter().collect::<Vec<_>>(), [&290]);
    assert!(process.optional_calls().contains(&291), "{:?}", process.optional_calls());
    assert!(!process.optional_calls().contains(&334), "who only starts has missed nothing");
}

#[test]
fn streams_are_told_apart() {
    let Some(host) = kvm() else { return };
    let source =
        "#include <unistd.h>\nint main() { write(2, \"b\", 1); write(1, \"a\", 1); return 0; }";
    let directory = tempfile::tempdir().unwrap();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let tree = tree(&compile(source, &["-static"]), directory.path());
    let mut process = Process::start(&host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
    let expected = vec![(Stream::Stderr, b"b".to_vec()), (Stream::Stdout, b"a".to_vec())];
    assert_eq!(process.take_output(), expected);
}

#[test]
fn an_abort_and_a_fault_are_deaths_by_signal() {
    let Some((ended, _)) = run("#include <stdlib.h>\nint main() { abort(); }") else { return };
    assert_eq!(ended, Pause::Killed(6, None));
    let Some((ended, _)) = run("int main() { return *(volatile int *)8; }") else { return };
    let Pause::Killed(11, Some(fault)) = ended else { panic!("{ended:?}") };
    assert_eq!((fault.vector, fault.address), (14, 8));
}

#[test]
fn what_a_handler_leaves_of_its_frame_is_the_guests_own_matter() {
    // Where the extended states are said to be, and what they are: the program goes on, or a signal
    // ends it.
    let program = |change: &str| {
        format!(
            r#"
            #define _GNU_SOURCE
            #include <signal.h>
            #include <stdint.h>
            #include <string.h>
            #include <sys/mman.h>
            #include <ucontext.h>
            static void handler(int number, siginfo_t *info, void *context) {{
                ucontext_t *it = context;
                uint32_t *states = (uint32_t *)it->uc_mcontext.fpregs;
                char *end = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                munmap(end + 4096, 4096);
                {change};
            }}
            int main() {{
                struct sigaction action = {{.sa_sigaction = handler, .sa_flags = SA_SIGINFO}};
                sigaction(SIGUSR1, &action, 0);
                return raise(SIGUSR1);
            }}"#
        )
    };
    for (change, end) in [
        ("it->uc_mcontext.fpregs = 0", Pause::Exited(0)),
        ("it->uc_mcontext.fpregs = (void *)64", Pause::Killed(11, None)),
        ("it->uc_mcontext.fpregs = (void *)-64", Pause::Killed(11, None)),
        ("it->uc_mcontext.fpregs = (void *)(end + 4096 - 64)", Pause::Killed(11, None)),
        // As long as the old form, at the end of what can be read.
        (
            "memcpy(end + 3584, states, 512); memset(end + 3584 + 464, 0, 48); it->uc_mcontext.fpregs = (void *)(end + 3584)",
            Pause::Exited(0),
        ),
        ("states[464 / 4 + 4] = 0xffffffff; states[464 / 4 + 1] = 3", Pause::Exited(0)),
        ("states[464 / 4 + 2] = states[464 / 4 + 3] = 0xffffffff", Pause::Exited(0)),
        ("memset(states + 128, 0xff, 64)", Pause::Exited(0)),
        ("states[6] |= 0xffff0000", Pause::Exited(0)),
        ("it->uc_mcontext.gregs[REG_RIP] = -1", Pause::Killed(11, None)),
    ] {
        let Some((ended, _)) = run(&program(change)) else { return };
        assert_eq!(ended, end, "{change}");
    }
}

#[test]
fn a_frame_that_does_not_fit_on_its_stack_is_not_written_below_it() {
    let ended = run(r#"
        #include <signal.h>
        #include <unistd.h>
        static char memory[3 * 8192];
        static void handler(int number, siginfo_t *info, void *context) {
            if ((char *)context < memory + 8192) _exit(3);
            raise(SIGUSR1);
        }
        int main() {
            stack_t stack = {.ss_sp = memory + 8192, .ss_size = 2 * 8192};
            sigaltstack(&stack, 0);
            struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
            sigaction(SIGUSR1, &action, 0);
            return raise(SIGUSR1);
        }"#);
    let Some((ended, _)) = ended else { return };
    assert_eq!(ended, Pause::Killed(11, None));
}

#[test]
fn a_conversation_pauses_where_nothing_was_said_yet() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <unistd.h>
        int main() {
            char byte;
            while (read(3, &byte, 1) == 1) { byte++; write(3, &byte, 1); }
            return 5;
        }"#;
    let directory = tempfile::tempdir().unwrap();
    let program = vec!["/program".into()];
    let options = Options { program, channel: true, ..Options::default() };
    let tree = tree(&compile(source, &["-static"]), directory.path());
    let mut process = Process::start(&host, tree, &options).unwrap();
    for _ in 0..3 {
        assert_eq!(process.run().unwrap(), Pause::Idle);
        assert_eq!(process.take_said(), b"");
        process.feed(b"HAL");
        assert_eq!(process.run().unwrap(), Pause::Idle);
        assert_eq!(process.take_said(), b"IBM");
    }
    process.hang_up();
    assert_eq!(process.run().unwrap(), Pause::Exited(5));
}

#[test]
fn a_program_that_spins_or_sleeps_is_stopped_from_outside() {
    let Some(host) = kvm() else { return };
    for body in ["for (;;) {}", "for (;;) sleep(1000);", "for (;;) getpid();"] {
        let source = format!("#include <unistd.h>\nint main() {{ {body} }}");
        let directory = tempfile::tempdir().unwrap();
        let options = Options { program: vec!["/program".into()], ..Options::default() };
        let tree = tree(&compile(&source, &["-static"]), directory.path());
        let mut process = Process::start(&host, tree, &options).unwrap();
        let stopper = process.stopper();
        let outside = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            stopper.stop();
        });
        let begin = std::time::Instant::now();
        assert_eq!(process.run().unwrap(), Pause::Stopped, "{body}");
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "{body}");
        outside.join().unwrap();
    }
}

#[test]
fn as_much_is_written_as_there_is_room_for_and_then_nothing() {
    let ended = run(r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static char much[3 << 20];
        int main() {
            struct stat it;
            int file = open("/tmp/file", O_RDWR | O_CREAT, 0600);
            ssize_t first = write(file, much, sizeof much);
            if (first < 1 << 19 || first > 1 << 20) return 1;
            if (fstat(file, &it) || it.st_size != first) return 2;
            if (write(file, much, 1) != -1 || errno != ENOSPC) return 3;
            /* What is there already takes no more. */
            if (pwrite(file, much, sizeof much, first - 10) != 10) return 4;
            if (pwrite(file, much, 1, first + 10) != -1 || errno != ENOSPC) return 5;
            return 0;
        }"#);
    let Some(ended) = ended else { return };
    assert_eq!(ended, (Pause::Exited(0), String::new()));
}

#[test]
fn a_mapping_is_whole_when_its_process_is_stopped_before_it_looks_at_it() {
    const TEXT: &[u8] = b"a text that no program has in it";
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <fcntl.h>
        #include <sys/mman.h>
        int main() {
            int file = open("/text", O_RDONLY);
            if (mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED) return 1;
            for (;;) {}
        }"#;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("text"), TEXT).unwrap();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let tree = tree(&compile(source, &["-static"]), directory.path());
    let mut process = Process::start(&host, tree, &options).unwrap();
    let stopper = process.stopper();
    let outside = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        stopper.stop();
    });
    assert_eq!(process.run().unwrap(), Pause::Stopped);
    outside.join().unwrap();
    let space = process.space();
    let shows = |start| space.read(start, TEXT.len() as u64).is_ok_and(|bytes| bytes == TEXT);
    assert_eq!(space.regions().iter().filter(|(region, _)| shows(region.start)).count(), 1);
}

#[test]
fn nothing_is_made_in_a_directory_that_was_removed_and_is_held_open() {
    let ended = run(r#"
        #include <errno.h>
        #include <fcntl.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main() {
            mkdir("/tmp/p", 0700);
            mkdir("/tmp/p/q", 0700);
            int q = open("/tmp/p/q", O_RDONLY | O_DIRECTORY);
            if (rmdir("/tmp/p/q")) return 1;
            if (mkdirat(q, "r", 0700) != -1 || errno != ENOENT) return 2;
            if (openat(q, "f", O_CREAT | O_WRONLY, 0600) != -1 || errno != ENOENT) return 3;
            close(open("/tmp/f", O_CREAT | O_WRONLY, 0600));
            if (fchdir(q)) return 4;
            if (rename("/tmp/f", "f") != -1 || errno != ENOENT) return 5;
            return 0;
        }"#);
    let Some(ended) = ended else { return };
    assert_eq!(ended.0, Pause::Exited(0));
}

#[test]
fn bytes_cut_from_a_file_are_given_back() {
    let Some(host) = kvm() else { return };
    let source = r#"
        #include <fcntl.h>
        #include <unistd.h>
        static char block[1 << 19];
        int main() {
            for (int round = 0; round < 4; round++) {
                char name[] = { '/', 't', 'm', 'p', '/', 'a' + round, 0 };
                int file = open(name, O_CREAT | O_WRONLY, 0600);
                if (write(file, block, sizeof block) != sizeof block) return 1;
                if (ftruncate(file, 0)) return 2;
            }
            return 0;
        }"#;
    let directory = tempfile::tempdir().unwrap();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let tree = tree(&compile(source, &["-static"]), directory.path());
    let mut process = Process::start(&host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Exited(0));
    assert!(process.scratch_held() < 1 << 19, "{}", process.scratch_held());
}

#[test]
fn one_call_moves_no_more_than_linux_also_with_overlapping_parts() {
    let source = r#"
        #include <fcntl.h>
        #include <sys/mman.h>
        #include <sys/uio.h>
        #include <unistd.h>
        int main(void) {
            /* Five gigabytes, all of them in the same five megabytes. */
            enum { PARTS = 1024, BYTES = 5 << 20 };
            char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            struct iovec parts[PARTS];
            for (int at = 0; at < PARTS; at++) parts[at] = (struct iovec){memory, BYTES};
            const long most = 0x7ffff000;
            if (writev(open("/dev/null", O_WRONLY), parts, PARTS) != most) return 1;
            if (readv(open("/dev/zero", O_RDONLY), parts, PARTS) != most) return 2;
            return 0;
        }"#;
    let Some((ended, _)) = run(source) else { return };
    assert_eq!(ended, Pause::Exited(0));
    // And what Linux does, so that it is not our own idea.
    let program = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (file, path) = program.keep().unwrap();
    drop(file);
    std::fs::write(&path, compile(source, &["-static"])).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    let status = std::process::Command::new(&path).status().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn the_list_of_mappings_is_read_in_parts_of_which_each_is_short() {
    let source = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/stat.h>
        #include <unistd.h>
        static char text[64 << 20], name[256];
        int main() {
            chdir("/tmp");
            memset(name, 'd', 255);
            for (int depth = 0; depth < 15; depth++) { mkdir(name, 0700); chdir(name); }
            int near = open("near", O_CREAT | O_RDWR, 0600);
            for (int depth = 0; depth < 5; depth++) { mkdir(name, 0700); chdir(name); }
            int far = open("far", O_CREAT | O_RDWR, 0600);
            ftruncate(near, 1 << 16); ftruncate(far, 1 << 16);
            for (int round = 0; round < 2000; round++)
                if (mmap(0, 4096, PROT_NONE, MAP_PRIVATE, round % 5 ? near : far, round % 2 * 8192) == MAP_FAILED) return 1;
            int maps = open("/proc/self/maps", O_RDONLY);
            long length = 0, most = 0, got, nears = 0, fars = 0;
            while ((got = read(maps, text + length, sizeof text - 1 - length)) > 0) { length += got; if (got > most) most = got; }
            if (most < 1000 || most > 64 << 10 || length < 4000000) return 2;
            for (char *end = text; (end = strchr(end, '\n')); end++) {
                nears += !memcmp(end - 5, "/near", 5); fars += !memcmp(end - 10, "(too long)", 10);
            }
            if (nears != 1600 || fars != 400 || text[length - 1] != '\n') return 3;
            char part[1000];
            for (long at = 0; at < length; at += 777777) {
                got = pread(maps, part, sizeof part, at);
                if (got <= 0 || memcmp(part, text + at, got)) return 4;
            }
            return 7;
        }"#;
    let Some(host) = kvm() else { return };
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("program"), compile(source, &["-static"])).unwrap();
    let tree = TreeBuilder::default().layer("/", directory.path()).unwrap().devices().proc();
    let options = Options { program: vec!["/program".into()], ..Options::default() };
    let tree = tree.scratch("/tmp").build(1 << 20, 64);
    let mut process = Process::start(&host, tree, &options).unwrap();
    assert_eq!(process.run().unwrap(), Pause::Exited(7));
}
