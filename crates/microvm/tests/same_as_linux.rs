//! The same program here and on the host: what every call returns, and what is in every buffer, has
//! to be equal.
//!
//! The program is an interpreter of scripts; the scripts are random. Left out is what differs on
//! purpose: inode numbers, times, users.

mod machine;

use std::path::Path;
use std::process::Command;

use machine::{compile, kvm};
use microvm::linux::{Options, Pause, Process};
use microvm::machine::Hypervisor;
use microvm::vfs::TreeBuilder;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Each four characters of a script are one call: its letter and three digits to choose arguments
/// by.
const PROGRAM: &str = r##"
    #define _GNU_SOURCE
    #include <dirent.h>
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/file.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/select.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/statfs.h>
    #include <sys/uio.h>
    #include <unistd.h>
    static const char *names[] = {"a", "b", "d", "d/a", "d/../b", "./a", "d/", "a/x", "missing/x", "", "l", "d/l", "loop", ".", "..x", "d/d", "b/"};
    #define NAMES (sizeof names / sizeof *names)
    /* Only ever opened: on the host they are everybody's. */
    static const char *devices[] = {"/dev/null", "/dev/full", "/dev/zero"};
    static const int opens[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_EXCL, O_RDWR | O_TRUNC,
        O_RDWR | O_APPEND | O_CREAT, O_RDONLY | O_DIRECTORY, O_RDONLY | O_NOFOLLOW, O_WRONLY | O_CREAT | O_TRUNC};
    static char buffer[70000];
    static int fds[10];
    static char *map; static int map_pages, map_file, map_shared, map_changed, map_writes[16];
    static long say(char letter, long result) {
        printf("%c %ld %d\n", letter, result, result < 0 ? errno : 0);
        return result;
    }
    static const char *name(int a, int b) { return names[(a * 10 + b) % NAMES]; }
    static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
    static void list(const char *path) {
        DIR *open = opendir(path);
        if (!open) { say('L', -1); return; }
        char *found[64]; int count = 0; struct dirent *entry;
        while (count < 64 && (entry = readdir(open))) {
            found[count] = malloc(300); sprintf(found[count++], "%s:%d", entry->d_name, entry->d_type);
        }
        closedir(open); qsort(found, count, sizeof *found, by_name);
        for (int at = 0; at < count; at++) printf("  %s\n", found[at]);
    }
    static void status(char letter, int result, struct stat *it) {
        if (say(letter, result) == 0)
            printf("  %o %ld %ld\n", it->st_mode, S_ISREG(it->st_mode) || S_ISLNK(it->st_mode) ? (long)it->st_size : 0, S_ISREG(it->st_mode) ? (long)it->st_nlink : 0);
    }
    static void call(char letter, int a, int b, int c) {
        int fd = fds[a]; struct stat it; int ends[2];
        errno = 0;
        switch (letter) {
        case 'o': { int got = say('o', open(name(a, b), opens[c], 0640)); if (got >= 0) fds[c] = got; break; }
        case 'O': { int got = say('O', open(devices[a % 3], b % 3)); if (got >= 0) fds[c] = got; break; }
        case 'c': say('c', close(fd)); break;
        case 'r': { memset(buffer, 0, sizeof buffer); long got = say('r', read(fd, buffer, b * 7));
            for (long at = 0; at < got; at++) printf("%02x", buffer[at] & 255); puts(""); break; }
        case 'w': for (int at = 0; at < b * 5; at++) buffer[at] = c + at; say('w', write(fd, buffer, b * 5)); break;
        /* Where a directory ends is its file system's own number. */
        case 's': { int from_end = c % 3 == 2 && fstat(fd, &it) == 0 && S_ISDIR(it.st_mode);
            say('s', lseek(fd, (b - 3) * 4, from_end ? 0 : c % 3)); break; }
        case 'p': { memset(buffer, 0, 64); long got = say('p', pread(fd, buffer, 9, (b - 1) * 3)); if (got > 0) puts(buffer); break; }
        case 'P': say('P', pwrite(fd, "pwritten", 8, (b - 1) * 3)); break;
        case 't': say('t', ftruncate(fd, (b - 1) * 10)); break;
        case 'd': { int got = say('d', dup(fd)); if (got >= 0) fds[b] = got; break; }
        case 'D': { int to = fds[b]; if (to > 2) say('D', dup2(fd, to)); break; }
        case '3': { int to = fds[b]; if (to > 2) say('3', dup3(fd, to, c & 1 ? O_CLOEXEC : c & 2)); break; }
        case 'f': say('f', fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND | O_NONBLOCK)); break;
        /* A pipe, or a pair of sockets, that blocked would do so for ever, on either side. */
        case 'F': { int pipe = fstat(fd, &it) == 0 && (S_ISFIFO(it.st_mode) || S_ISSOCK(it.st_mode));
            say('F', fcntl(fd, F_SETFL, c & 1 ? O_APPEND | (pipe ? O_NONBLOCK : 0) : O_NONBLOCK)); break; }
        case 'e': say('e', fcntl(fd, F_GETFD)); say('E', fcntl(fd, F_SETFD, c & 1)); break;
        case 'u': { int got = say('u', fcntl(fd, F_DUPFD_CLOEXEC, 20 + b)); if (got >= 0) fds[c] = got; break; }
        case 'm': say('m', mkdir(name(a, b), 0755)); break;
        case 'R': say('R', rmdir(name(a, b))); break;
        case 'U': say('U', unlink(name(a, b))); break;
        case 'n': say('n', rename(name(0, a), name(b, c))); break;
        case 'N': say('N', syscall(SYS_renameat2, AT_FDCWD, name(0, a), AT_FDCWD, name(b, c), 1)); break;
        /* Which error comes first of a file that is made through a link to "b/" is Linux's own affair. */
        case 'l': { const char *to = name(b, c); if (*to && to[strlen(to) - 1] == '/') to = "b";
            say('l', symlink(to, a % 3 == 0 ? "l" : a % 3 == 1 ? "d/l" : "loop")); break; }
        case 'k': { memset(buffer, 0, 64); long got = say('k', readlink(name(a, b), buffer, c)); if (got > 0) puts(buffer); break; }
        case 'S': status('S', stat(name(a, b), &it), &it); break;
        case 'T': status('T', lstat(name(a, b), &it), &it); break;
        case 'h': status('h', fstat(fd, &it), &it); break;
        case 'x': say('x', access(name(a, b), c)); break;
        /* Whatever the owner may be left; but that the script can go back to where it began. */
        case 'M': { static const int bits[] = {0, 0100, 0200, 0300, 0400, 0444, 0555, 0600, 0700, 0755}; struct stat home;
            int is_home = stat(getenv("HOME"), &home) == 0 && stat(name(a, b), &it) == 0 && it.st_dev == home.st_dev && it.st_ino == home.st_ino;
            say('M', chmod(name(a, b), is_home ? 0700 | c : bits[c])); break; }
        case 'L': list(name(a, b)); break;
        case 'C': if (say('C', chdir(c & 1 ? "d" : "..")) == 0 && !(c & 1)) chdir(getenv("HOME")); break;
        case 'i': if (say('i', pipe2(ends, O_NONBLOCK)) == 0) { fds[b] = ends[0]; fds[c] = ends[1]; } break;
        case 'v': { struct iovec parts[3] = {{buffer, b}, {buffer + 100, 0}, {buffer + 200, c}};
            say('v', a & 1 ? writev(fd, parts, 3) : readv(fd, parts, 3)); break; }
        case 'b': say('b', read(fd, (void *)8, b)); say('q', open((void *)8, 0)); break;
        case 'y': { struct pollfd ask[2] = {{fd, POLLIN | POLLOUT, 0}, {fds[b], POLLIN, 0}};
            say('y', poll(ask, 2, 0)); printf("  %x %x\n", ask[0].revents, ask[1].revents); break; }
        /* Bytes of a file that two can see and one can write are the machines' one gap. */
        case 'g': if (map && map_shared) break; { char *at = mmap(0, 8192, c & 1 ? 3 : 1, c & 2 ? MAP_PRIVATE : MAP_SHARED, fd, b == 9 ? 100 : 0);
            if (at == MAP_FAILED) say('g', -1);
            else {
                say('g', 0); struct stat size;
                if (fstat(fd, &size) == 0 && size.st_size > 0 && S_ISREG(size.st_mode)) {
                    printf("  %02x\n", at[0] & 255);
                    if (c & 1) at[b * 3 % (size.st_size < 8192 ? size.st_size : 8192)] = 'm';
                }
                munmap(at, 8192);
            }
            break; }
        /* One mapping, that stays: of a shared file, or of none. */
        case 'Z': if (map) munmap(map, map_pages * 4096);
            map_file = fd; map_pages = 1 + b % 4; map_changed = 0; map_shared = c & 1 && fstat(fd, &it) == 0 && S_ISREG(it.st_mode);
            map = mmap(0, map_pages * 4096, c & 2 ? 1 : 3, map_shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, map_shared ? fd : -1, 0);
            for (int at = 0; at < 8; at++) map_writes[at] = !(c & 2);
            if (map == MAP_FAILED) { map = 0; say('Z', -1); }
            else { if (map_shared) map_file = dup(fd); say('Z', 0); }
            break;
        case 'E': if (map) {
            /* What can be looked at: pages that the file has, to its end. */
            long room = map_pages * 4096;
            if (map_shared) { fstat(map_file, &it); if (it.st_size < room) room = it.st_size; }
            long page = c % map_pages, at = page * 4096 + a * 7;
            map_changed |= b < 3;
            switch (b) {
            case 0: case 1: { int got = say('E', mprotect(map + page * 4096, 4096, b ? 3 : 1)); if (got == 0) map_writes[page] = b; break; }
            case 2: say('E', mprotect(map + page * 4096 + a % 2, 4096 * (map_pages - page), 1)); if (!(a % 2)) for (int at = page; at < map_pages; at++) map_writes[at] = 0; break;
            /* Linux still tells parts apart that could once be written and can no more, since they were promised memory. */
            case 3: case 4: if (!map_shared && map_changed) break;
                { int more = 1 + a % 6; char *got = mremap(map, map_pages * 4096, more * 4096, MREMAP_MAYMOVE);
                if (got == MAP_FAILED) say('E', -1);
                else { say('E', 0); for (int at = map_pages; at < more; at++) map_writes[at] = map_writes[0]; map = got; map_pages = more; } break; }
            case 5: { static const int advice[] = {MADV_NORMAL, MADV_DONTNEED, MADV_DONTNEED, MADV_WILLNEED, 99};
                say('E', madvise(map + page * 4096, 4096 * (a % 2 ? 1 : map_pages - page), advice[c % 5])); break; }
            case 6: say('E', msync(map + page * 4096, 4096, MS_SYNC)); break;
            case 7: case 8: if (map_writes[page] && at < room) map[at] = 'A' + a; break;
            case 9: say('E', madvise(map + 1, 4096, MADV_DONTNEED)); break;
            }
            if (room > map_pages * 4096) room = map_pages * 4096;
            if (map_shared && it.st_size > room) room = it.st_size < map_pages * 4096 ? it.st_size : map_pages * 4096;
            for (at = 0; at < room; at += 7) if (map[at]) printf("%ld:%d ", at, map[at]);
            puts(""); }
            break;
        /* The break, above what is the C library's. */
        case 'q': { static long grown; long more = (b - 4) * 2000;
            if (grown + more < 0) more = -grown;
            char *was = sbrk(more);
            if (was == (char *)-1) { say('q', -1); break; }
            grown += more; say('q', grown);
            long old = 0; for (long at = 0; at < more; at++) old += was[at] != 0;
            if (more > 0) { printf("  %ld\n", old); memset(was, 'q', more); } break; }
        case 'a': { const char *to = name(b, c); if (*to && to[strlen(to) - 1] == '/') to = "b"; say('a', link(name(0, a), to)); break; }
        case 'X': say('X', truncate(name(a, b), (c - 1) * 10)); break;
        /* Moments to a nanosecond, some that are none, and some left as they are. */
        case 'A': case 'B': {
            struct timespec times[2] = {{a, a == 8 ? UTIME_OMIT : b * 12345}, {1000 * b + c, b == 7 ? UTIME_OMIT : b == 8 ? 2000000000 : c * 98765432}};
            /* Devices are the host's own. */
            if (letter == 'B' && fstat(fd, &it) == 0 && S_ISCHR(it.st_mode)) break;
            int got = letter == 'A' ? utimensat(AT_FDCWD, name(a, b), times, c & 1 ? AT_SYMLINK_NOFOLLOW : 0) : futimens(fd, times);
            if (say(letter, got) == 0 && b < 7) {
                if (letter == 'B') fstat(fd, &it); else if (c & 1) lstat(name(a, b), &it); else stat(name(a, b), &it);
                if (!S_ISFIFO(it.st_mode) && !S_ISSOCK(it.st_mode)) printf("  %ld %ld\n", (long)it.st_mtime, it.st_mtim.tv_nsec);
                if (S_ISREG(it.st_mode) && a != 8) printf("  %ld %ld\n", (long)it.st_atime, it.st_atim.tv_nsec); }
            break; }
        case 'Q': { struct statfs system; say('Q', c & 1 ? fstatfs(fd, &system) : statfs(name(a, b), &system)); break; }
        case 'j': if (say('j', socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | (a & 1 ? SOCK_CLOEXEC : 0), 0, ends)) == 0) { fds[b] = ends[0]; fds[c] = ends[1]; } break;
        case 'J': say('J', send(fd, "something that is sent", b * 2, c & 1 ? MSG_NOSIGNAL : MSG_DONTWAIT)); break;
        case 'V': { memset(buffer, 0, sizeof buffer); long got = say('V', recv(fd, buffer, b * 4, c & 1 ? MSG_PEEK : 0));
            for (long at = 0; at < got; at++) printf("%02x", buffer[at] & 255); puts(""); break; }
        case 'H': say('H', shutdown(fd, b < 7 ? b % 3 : 3)); break;
        case 'G': { static const int which[] = {SO_TYPE, SO_ERROR, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN};
            int value = 0; socklen_t length = b; say('G', getsockopt(fd, c == 9 ? 77 : SOL_SOCKET, which[c % 5], &value, &length)); printf("  %d %d\n", value, length);
            struct sockaddr_storage name; memset(&name, 0, sizeof name); length = b;
            say('G', c & 1 ? getsockname(fd, (void *)&name, &length) : getpeername(fd, (void *)&name, &length)); printf("  %d %d\n", name.ss_family, length); break; }
        case 'Y': { fd_set sets[3]; struct timeval now = {0, 0}; int more = fds[b];
            for (int at = 0; at < 3; at++) { FD_ZERO(sets + at); if (c >> at & 1) FD_SET(fd, sets + at); FD_SET(more, sets + at); }
            say('Y', select((fd > more ? fd : more) + 1, sets, c == 9 ? 0 : sets + 1, sets + 2, &now));
            for (int at = 0; at < 3; at++) printf("  %d %d\n", !!FD_ISSET(fd, sets + at), !!FD_ISSET(more, sets + at)); break; }
        /* Devices are the host's own. */
        case 'K': { static const int how[] = {LOCK_SH, LOCK_EX, LOCK_UN, 0, LOCK_SH | LOCK_EX};
            if (fstat(fd, &it) == 0 && !S_ISCHR(it.st_mode)) say('K', flock(fd, how[b % 5] | LOCK_NB)); break; }
        case 'I': { int unread = 7; if (fstat(fd, &it) == 0 && (S_ISFIFO(it.st_mode) || S_ISSOCK(it.st_mode))) { say('I', ioctl(fd, FIONREAD, &unread)); printf("  %d\n", unread); } break; }
        case 'W': say('W', ftruncate(fd, -1)); say('z', lseek(fd, 0, 9)); break;
        }
    }
    int main(int count, char **arguments) {
        setvbuf(stdout, 0, _IOFBF, 1 << 16);
        /* What the host's process inherits. */
        syscall(SYS_close_range, 3, ~0u, 0);
        if (chdir(getenv("HOME"))) return 1;
        umask(022); signal(SIGPIPE, SIG_IGN);
        for (int at = 0; at < 10; at++) fds[at] = 30 + at;
        for (char *at = arguments[1]; *at; at += 4) call(at[0], at[1] - '0', at[2] - '0', at[3] - '0');
        fflush(stdout);
        return 0;
    }
"##;

const CALLS: &str = "ooooOcrrwwwspPtdD3fFeumRUnNlkSThxMLCivbygWXABQjjJVHGYKIaZ";

struct Both {
    host: Hypervisor,
    directory: tempfile::TempDir,
}

impl Both {
    fn new() -> Option<Self> {
        let (host, directory) = (kvm()?, tempfile::tempdir().unwrap());
        let program = directory.path().join("program");
        std::fs::write(&program, compile(PROGRAM, &["-static"])).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        Some(Self { host, directory })
    }

    fn here(&self, script: &str) -> String {
        let tree = TreeBuilder::default().layer("/", self.directory.path()).unwrap().devices();
        let options = Options {
            program: vec!["/program".into(), script.into()],
            environment: vec!["HOME=/tmp".into()],
            channel: false,
        };
        let tree = tree.scratch("/tmp").build(1 << 20, 1000);
        let mut process = Process::start(&self.host, tree, &options).unwrap();
        assert_eq!(process.run().unwrap(), Pause::Exited(0), "{script}");
        let unknown = process.unknown_calls();
        assert!(unknown.is_empty(), "{unknown:?}");
        let output = process.take_output().into_iter().flat_map(|(_, bytes)| bytes).collect();
        String::from_utf8(output).unwrap()
    }

    fn on_the_host(&self, script: &str) -> String {
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(home.path(), mode).unwrap();
        let mut program = Command::new(self.directory.path().join("program"));
        if rustix::process::geteuid().is_root() {
            // A script never may touch what is not its own.
            std::os::unix::process::CommandExt::uid(&mut program, 65534);
            std::os::unix::fs::chown(home.path(), Some(65534), None).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.directory.path(), mode).unwrap();
        }
        let program = program.arg(script).env_clear().env("HOME", home.path());
        let said = program.stdin(std::process::Stdio::null()).output().unwrap();
        assert!(said.status.success(), "{script}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    }
}

fn scripts(calls: &str) -> impl Strategy<Value = String> + use<> {
    let letters: Vec<char> = calls.chars().collect();
    let call = (prop::sample::select(letters), 0..10, 0..10, 0..10);
    let call = call.prop_map(|(letter, a, b, c)| format!("{letter}{a}{b}{c}"));
    prop::collection::vec(call, 10..60).prop_map(|calls| calls.concat())
}

/// Files, directories and links to begin with.
const BEGIN: &str = "o003m020o031l000o013w393";

#[test]
fn system_calls_answer_as_linux_does() {
    assert!(Path::new("/dev/full").exists());
    compare(CALLS, BEGIN);
}

#[test]
fn permissions_answer_as_those_of_linux() {
    // Little but names, and what may be done with them: in a directory, and with a file and a
    // directory in that.
    compare("MMMMMMooooxxxxmRUnnNlkSTLCXaAQtrwc", "o003m020m150o031C001o003C000l000");
}

#[test]
fn mappings_answer_as_those_of_linux() {
    // One mapping, mostly of a file that is written, cut and given another name meanwhile.
    compare("oorwpPtgXUnaSZZEEEEEEEEEEEEqc", "o003w393Z023");
}

#[test]
fn pairs_of_sockets_answer_as_those_of_linux() {
    // Two pairs and a pipe, and little that is about anything else: what one end does the other one
    // finds.
    compare("rwwvcdDFfhyYbIjiJJJVVVHG", "j012j134i056");
}

/// Compares scripts of these calls that begin like this.
fn compare(calls: &str, begin: &str) {
    let Some(both) = Both::new() else { return };
    // The same scripts each time, unless a seed for further ones is given.
    let wanted = std::env::var("PROPTEST_CASES").ok().and_then(|wanted| wanted.parse().ok());
    let cases = wanted.unwrap_or(300);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = match wanted {
        Some(_) => TestRunner::new(config),
        None => {
            let known = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
            TestRunner::new_with_rng(config, known)
        }
    };
    let ran = runner.run(&scripts(calls), |script| {
        let script = format!("{begin}{script}");
        let (here, there) = (both.here(&script), both.on_the_host(&script));
        prop_assert_eq!(here, there, "{}", script);
        Ok(())
    });
    ran.unwrap();
}
