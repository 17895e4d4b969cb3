//! Limits, /proc and small calls, compared with Linux.

use crate::machine::in_machine_and_on_host;
use crate::{FILES, HEAD};

#[test]
fn calls_that_ask_little_answer_as_linux_does() {
    let source = r#"
        #include <poll.h>
        #include <signal.h>
        #include <time.h>
        int main() {
            unsigned ids[3], processor = 7, node = 7; struct timespec none = {0, 0}, wrong = {0, -1};
            say("users", getresuid(ids, ids + 1, ids + 2)); printf("%d\n", ids[0] == getuid() && ids[1] == geteuid() && ids[2] == getuid());
            say("groups", getresgid(ids, ids + 1, ids + 2)); printf("%d\n", ids[0] == getgid() && ids[1] == getegid() && ids[2] == getgid());
            say("nowhere", syscall(SYS_getresuid, 0, ids, ids));
            for (int policy = -1; policy < 7; policy++) { say("highest", sched_get_priority_max(policy)); say("lowest", sched_get_priority_min(policy)); }
            say("processor", syscall(SYS_getcpu, &processor, &node, 0)); printf("%d %d\n", processor < 4096, node < 64); say("no target", syscall(SYS_getcpu, 0, 0, 0));
            say("system", syncfs(1)); say("no system", syncfs(77));
            int ends[2]; pipe(ends); struct pollfd ask = {ends[0], POLLIN, 0}; sigset_t set; sigemptyset(&set);
            say("nothing", ppoll(&ask, 1, &none, &set)); write(ends[1], "x", 1);
            say("something", ppoll(&ask, 1, 0, 0)); say("never", ppoll(&ask, 1, &wrong, 0));
            unsigned long base = 0; say("base", syscall(SYS_arch_prctl, 0x1003, &base)); printf("%d\n", base == (unsigned long)pthread_self());
            say("base nowhere", syscall(SYS_arch_prctl, 0x1003, 64));
            static char page[4096]; say("lock", mlock(page, 4096)); say("unlock", munlock(page, 4096)); say("unlock all", munlockall()); sync();
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn small_calls_about_files_and_the_process_answer_as_linux_does() {
    let source = r#"
        #include <sys/resource.h>
        #include <sys/uio.h>
        int main() {
            int fd = make('a', 100), only = open(name, O_RDONLY), ends[2];
            pipe(ends);
            char one[8] = {0}, two[8] = {0};
            struct iovec parts[3] = {{one, 3}, {0, 0}, {two, 4}}, none = {one, 0};
            memcpy(one, "123", 3); memcpy(two, "4567", 4);
            say("pwritev", pwritev(fd, parts, 3, 10)); say("over the end", pwritev(fd, parts, 3, 98));
            memset(one, 0, 8); memset(two, 0, 8);
            say("preadv", preadv(fd, parts, 3, 10)); printf("%s %s\n", one, two);
            say("at the end", preadv(fd, parts, 3, 102)); say("behind", preadv(fd, parts, 3, 1000));
            say("negative", preadv(fd, parts, 3, -1)); say("nothing", preadv(fd, &none, 1, 0)); say("none", preadv(fd, parts, 0, 0));
            say("a pipe", preadv(ends[0], parts, 3, 0)); say("a reader", pwritev(only, parts, 3, 0)); say("closed", preadv(77, parts, 3, 0));
            say("where it stands", lseek(fd, 0, SEEK_CUR));
            say("second", preadv2(fd, parts, 3, 10, 0)); say("its own place", pwritev2(fd, parts, 3, -1, 0)); say("moved", lseek(fd, 0, SEEK_CUR));
            say("longer", fallocate(fd, 0, 100, 50)); say("is", lseek(fd, 0, SEEK_END)); say("not shorter", fallocate(fd, 0, 0, 5)); say("is", lseek(fd, 0, SEEK_END));
            say("kept", fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 5000)); say("is", lseek(fd, 0, SEEK_END));
            say("negative", fallocate(fd, 0, -1, 5)); say("empty", fallocate(fd, 0, 0, 0)); say("a reader", fallocate(only, 0, 0, 5)); say("a pipe", fallocate(ends[1], 0, 0, 5));
            say("posix", posix_fallocate(fd, 0, 300)); say("is", lseek(fd, 0, SEEK_END));
            say("data", lseek(fd, 5, SEEK_DATA)); say("hole", lseek(fd, 5, SEEK_HOLE)); say("behind", lseek(fd, 300, SEEK_DATA)); say("behind", lseek(fd, 300, SEEK_HOLE)); say("negative", lseek(fd, -1, SEEK_DATA));
            say("owner", fchown(fd, getuid(), getgid())); say("owner", chown(name, -1, -1)); say("owner", lchown(name, getuid(), -1)); say("owner", fchownat(AT_FDCWD, name, -1, getgid(), 0));
            say("of nothing", chown("/tmp/no-such", -1, -1)); say("closed", fchown(77, -1, -1));
            say("group", getpgid(0) == getpgrp()); say("of another", getpgid(99999999)); say("priority", getpriority(PRIO_PROCESS, 0) < -20); say("of what", getpriority(7, 0));
            say("scheduler", sched_getscheduler(0)); say("of another", sched_getscheduler(99999999));
            struct rlimit limit;
            say("limit", getrlimit(RLIMIT_RSS, &limit)); limit.rlim_cur = limit.rlim_max = 0; say("lower", setrlimit(RLIMIT_RSS, &limit));
            limit.rlim_cur = 1; say("above its own", setrlimit(RLIMIT_RSS, &limit));
            unlink(name);
            strcpy(strrchr(name, '-'), "-XXXXXX");
            char where[200];
            mkdtemp(name); chdir(name); say("there", getcwd(where, sizeof where) == 0); rmdir(name);
            say("gone", syscall(SYS_getcwd, where, sizeof where)); say("makes nothing", open("file", O_CREAT | O_WRONLY, 0600)); chdir("/"); say("back", getcwd(where, sizeof where) == 0);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}

#[test]
fn what_proc_tells_of_a_process_agrees_with_what_it_knows_itself() {
    let source = r#"
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/prctl.h>
        #include <sys/stat.h>
        static char text[1 << 20];
        static long get(const char *path) {
            int file = open(path, O_RDONLY);
            if (file < 0) return -1;
            long length = read(file, text, sizeof text - 1);
            text[length < 0 ? 0 : length] = 0;
            close(file);
            return length;
        }
        /* The rights of what is mapped there, and whether it ends where it should. */
        static void mapping(const char *what, void *place) {
            get("/proc/self/maps");
            for (char *line = strtok(text, "\n"); line; line = strtok(0, "\n")) {
                unsigned long start, end, offset, inode;
                char rights[8], name[256] = "";
                int found = sscanf(line, "%lx-%lx %7s %lx %*s %lu %255s", &start, &end, rights, &offset, &inode, name);
                if ((unsigned long)place < start || (unsigned long)place >= end) continue;
                const char *last = strrchr(name, '/');
                printf("%s: %d %s at %lx, %d %s\n", what, found > 4, rights, offset, inode > 0, last ? last : "");
                fflush(stdout);
                return;
            }
            printf("%s: no mapping\n", what);
        }
        int main() {
            prctl(PR_SET_NAME, "of a guest");
            char path[64], name[32], state;
            long pid, parent;
            int local;
            for (int way = 0; way < 2; way++) {
                snprintf(path, sizeof path, way ? "/proc/%d/stat" : "/proc/self/stat", getpid());
                get(path);
                printf("%d %c", sscanf(text, "%ld (%31[^)]) %c %ld", &pid, name, &state, &parent), state);
                char *field = text;
                for (int number = 1; field; number++) field = strchr(field + 1, ' ') ? : (printf(" of %d fields\n", number - 2), (char *)0);
                say(name, pid == getpid());
            }
            say("name", get("/proc/thread-self/comm"));
            say(text, 0);
            get("/proc/self/status");
            char *line = strstr(text, "\nPid:");
            say("pid", line && atol(line + 5) == getpid());
            say("threads", (line = strstr(text, "\nThreads:")) ? atol(line + 9) : -1);
            say("umask", (line = strstr(text, "\nUmask:")) ? strtol(line + 7, 0, 8) : -1);
            long size, resident;
            get("/proc/self/statm");
            say("statm", sscanf(text, "%ld %ld", &size, &resident) == 2 && size >= resident && resident > 0);
            get("/proc/meminfo");
            long total = atol(strstr(text, "MemTotal:") + 9), left = atol(strstr(text, "MemAvailable:") + 13);
            say("memory", total > left && left > 0);
            double up, idle;
            get("/proc/uptime");
            say("uptime", sscanf(text, "%lf %lf", &up, &idle) == 2 && up > 1);
            get("/proc/stat");
            say("since", (line = strstr(text, "\nbtime ")) && atol(line + 7) > 1500000000);
            double load[3];
            get("/proc/loadavg");
            say("load", sscanf(text, "%lf %lf %lf", load, load + 1, load + 2));

            mapping("stack", &local);
            mapping("code", (void *)main);
            int file = open("/tmp/shown", O_RDWR | O_CREAT, 0600);
            ftruncate(file, 8192);
            mapping("private", mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 4096));
            mapping("shared", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
            mapping("anonymous", mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            unlink("/tmp/shown");

            struct stat it;
            say("size", stat("/proc/self/maps", &it) ? -1 : it.st_size);
            say("kind", (it.st_mode & S_IFMT) == S_IFREG);
            say("made", open("/proc/self/other", O_RDONLY));
            say("another's", get("/proc/999999999/stat"));
            say("none", get("/proc/1x/stat"));
            file = open("/proc/self/comm", O_RDONLY);
            say("from", pread(file, text, 3, 3));
            say("behind", pread(file, text, 3, 300));
            say("part", read(file, text, 2));
            say("rest", read(file, text, sizeof text));
            say("end", read(file, text, sizeof text));
            say("again", lseek(file, 1, SEEK_SET) + read(file, text, sizeof text));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    for expected in
        ["4 R of 52 fields\n", "stack: 1 rw-p", "code: 1 r-xp", "r--p at 1000, 1 /shown"]
    {
        assert!(inside.contains(expected), "{expected}: {inside}");
    }
}

#[test]
fn limits_that_a_program_sets_for_itself_hold_as_on_linux() {
    let source = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <pthread.h>
        #include <signal.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <sys/resource.h>
        #include <sys/stat.h>
        #include <time.h>
        static volatile int got;
        static void note(int number) { got = number; }
        static void set(const char *what, int kind, long soft, long hard) {
            struct rlimit it = {soft, hard};
            say(what, setrlimit(kind, &it));
            getrlimit(kind, &it);
            printf("%ld %ld\n", (long)it.rlim_cur, (long)it.rlim_max);
        }
        static void *nothing(void *unused) { return unused; }
        int main() {
            /* Root may do more. */
            if (getuid() == 0 && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))) return 1;
            const int kinds[] = {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_RSS, RLIMIT_AS, RLIMIT_LOCKS, RLIMIT_MEMLOCK};
            for (int place = 0; place < 7; place++) {
                int kind = kinds[place];
                struct rlimit it;
                if (getrlimit(kind, &it)) return 2;
                long before = it.rlim_max;
                it.rlim_cur = 5; it.rlim_max = 3;
                say("soft above hard", setrlimit(kind, &it));
                it.rlim_cur = it.rlim_max = before;
                say("as it is", setrlimit(kind, &it));
            }
            set("locks", RLIMIT_LOCKS, 0, 0); set("locks again", RLIMIT_LOCKS, 1, 1); set("locks wrong", RLIMIT_LOCKS, 1, 0);
            set("memlock", RLIMIT_MEMLOCK, 4096, 8192); set("memlock up", RLIMIT_MEMLOCK, 8192, 8192);
            set("memlock above", RLIMIT_MEMLOCK, 8193, 8193);
            struct rlimit it = {1, 1};
            say("no such kind", setrlimit(16, &it)); say("no such kind", getrlimit(16, &it)); say("negative", getrlimit(-1, &it));
            say("of nowhere", prlimit(0, RLIMIT_CORE, (void *)8, 0)); say("both", prlimit(getpid(), RLIMIT_RSS, &it, &it));
            say("of another", prlimit(99999999, RLIMIT_CORE, 0, &it));

            int file = open("/tmp/limited-" "file", O_CREAT | O_RDWR | O_TRUNC, 0600), more;
            unlink("/tmp/limited-file");
            set("files", RLIMIT_NOFILE, 12, 20);
            while ((more = dup(file)) >= 0) ;
            say("no more", dup(file)); say("number", dup2(file, 12)); say("from", fcntl(file, F_DUPFD, 12)); say("opened", open("/dev/null", O_RDONLY));
            int ends[2]; say("pipe", pipe(ends));
            set("more files", RLIMIT_NOFILE, 14, 20); say("one more", dup(file)); say("that one", dup2(file, 13));
            set("fewer", RLIMIT_NOFILE, 3, 20); say("still there", fcntl(13, F_GETFD)); close(5); say("none", dup(file));
            set("many again", RLIMIT_NOFILE, 20, 20);

            set("length", RLIMIT_FSIZE, 100, 1000);
            signal(SIGXFSZ, note);
            char bytes[200] = {0};
            say("a part", write(file, bytes, 200)); say("signal", got);
            say("none", write(file, bytes, 1)); say("signal", got); got = 0;
            say("behind", pwrite(file, bytes, 1, 150)); say("signal", got); got = 0;
            say("longer", ftruncate(file, 101)); say("signal", got); got = 0;
            say("as long", ftruncate(file, 100)); say("shorter", ftruncate(file, 50)); say("up to it", pwrite(file, bytes, 100, 20)); say("signal", got);
            signal(SIGXFSZ, SIG_IGN); say("ignored", pwrite(file, bytes, 1, 100));
            int pipes[2]; close(6); close(7); say("pipe", pipe(pipes)); say("a pipe has no length", write(pipes[1], bytes, 200));
            set("long again", RLIMIT_FSIZE, 1000, 1000); say("long", pwrite(file, bytes, 200, 100));

            set("address space", RLIMIT_AS, 1 << 20, RLIM_INFINITY);
            say("no room", mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
            say("nor for what is not touched", mmap(0, 2 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);
            set("room again", RLIMIT_AS, RLIM_INFINITY, RLIM_INFINITY);
            say("room", mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0);

            signal(SIGXCPU, note); got = 0;
            set("a second of the processor", RLIMIT_CPU, 1, 10);
            while (!got) ;
            say("over", got);
            struct timespec used; clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
            say("after one", used.tv_sec + used.tv_nsec / 1e9 > 0.9);
            set("shorter", RLIMIT_CPU, 5, 5); set("no longer", RLIMIT_CPU, 6, 6);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}
