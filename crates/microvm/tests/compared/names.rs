//! Directories, paths, descriptors and times, compared with Linux.

use crate::machine::in_machine_and_on_host;
use crate::{FILES, HEAD};

#[test]
fn a_directory_is_listed_once_and_all_of_it_while_it_changes() {
    let source = r#"
        #include <dirent.h>
        static char told[3000];
        static DIR *directory;
        static void path(char *to, const char *kind, int number) { sprintf(to, "%s-%d", kind, number); }
        /* Reads so many more; counts what was told twice. */
        static int next(int most) {
            int twice = 0;
            for (struct dirent *it; most-- > 0 && (it = readdir(directory)); )
                if (*it->d_name == 'o') twice += told[atoi(it->d_name + 4)]++ > 0;
            return twice;
        }
        int main() {
            char one[40], other[40];
            if (!mkdtemp(name) || chdir(name)) return 9;
            for (int at = 0; at < 2900; at++) { path(one, "old", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            /* As a tree is taken away: each as soon as it is told. */
            directory = opendir(".");
            int count = 0;
            for (struct dirent *it; (it = readdir(directory)); ) if (*it->d_name != '.') { unlink(it->d_name); count++; }
            printf("all %d\n", count);
            say("empty", rmdir(name));
            closedir(directory);
            if (mkdir(name, 0700) || chdir(name)) return 8;
            /* Those that stay are told once, whatever comes, goes and gets another name. */
            for (int at = 0; at < 2900; at++) { path(one, "old", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            directory = opendir(".");
            int twice = next(100);
            for (int at = 0; at < 2900; at += 3) { path(one, "old", at); unlink(one); path(one, "a", at); close(open(one, O_WRONLY | O_CREAT, 0600)); }
            for (int at = 1; at < 2900; at += 3) { path(one, "old", at); path(other, "z", at); rename(one, other); rename(other, one); }
            twice += next(99999);
            int missed = 0;
            /* What got its name back may be missed: tmpfs of Linux 6.12 does. */
            for (int at = 2; at < 2900; at += 3) missed += !told[at];
            printf("twice %d missed %d\n", twice, missed);
            /* To where it was, and to the beginning. */
            memset(told, 0, sizeof told); rewinddir(directory);
            next(50);
            long place = telldir(directory);
            char first[300]; strcpy(first, readdir(directory)->d_name);
            next(500); seekdir(directory, place);
            printf("again %d\n", !strcmp(first, readdir(directory)->d_name));
            rewinddir(directory); memset(told, 0, sizeof told);
            twice = next(99999); missed = 0;
            for (int at = 0; at < 2900; at++) missed += at % 3 && !told[at];
            printf("twice %d missed %d end %d\n", twice, missed, !readdir(directory));
            rewinddir(directory);
            while (1) { struct dirent *it = readdir(directory); if (!it) break; unlink(it->d_name); }
            say("gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
    let said =
        "all 2900\nempty: 0 0\ntwice 0 missed 0\nagain 1\ntwice 0 missed 0 end 1\ngone: 0 0\n";
    assert_eq!(inside, said);
}

#[test]
fn a_loop_over_a_directory_ends_whatever_it_does_with_each_name() {
    let source = r#"
        #include <dirent.h>
        enum { FILES = 5, MANY = 60 };
        static int made;
        static void touch(const char *path) { close(open(path, O_WRONLY | O_CREAT, 0600)); }
        static void suffix(const char *path) { char other[300]; sprintf(other, "%s.done", path); rename(path, other); }
        static void create(const char *path) { char other[40]; sprintf(other, "new-%d", made++); touch(other); }
        static void replace(const char *path) { touch("../staged"); rename("../staged", path); }
        static void take_away(const char *path) { unlink(path); create(path); }
        static void another_name(const char *path) { char other[300]; sprintf(other, "%s+", path); link(path, other); rename(other, "moved"); rename("moved", other); }
        /* How often it goes round: with all names read at once as C libraries do, or each by itself. */
        static int loop(void (*what)(const char *path), int each) {
            int rounds = 0; char one[40], bytes[32768];
            mkdir("d", 0700); chdir("d");
            for (int at = 0; at < FILES; at++) { sprintf(one, "old-%d", at); touch(one); }
            link("old-0", "older");
            int fd = open(".", O_RDONLY | O_DIRECTORY);
            for (long got; (got = syscall(SYS_getdents64, fd, bytes, each ? 40 : sizeof bytes)) > 0; )
                for (long at = 0; at < got && rounds < MANY; at += *(unsigned short *)(bytes + at + 16))
                    if (bytes[at + 19] != '.' && ++rounds < MANY) what(bytes + at + 19);
                    else if (rounds >= MANY) got = -1;
            /* And all that is there then, from the beginning. */
            lseek(fd, 0, SEEK_SET); int there = 0;
            for (long got; (got = syscall(SYS_getdents64, fd, bytes, sizeof bytes)) > 0; )
                for (long at = 0; at < got; at += *(unsigned short *)(bytes + at + 16)) {
                    there += bytes[at + 19] != '.'; unlink(bytes + at + 19);
                }
            close(fd); chdir(".."); say("gone", rmdir("d"));
            /* Where names are read one by one file systems differ in whether they tell what came meanwhile, and some never end. */
            return each ? rounds >= FILES && rounds < MANY : rounds * 100 + there;
        }
        int main() {
            if (!mkdtemp(name) || chdir(name)) return 9;
            void (*all[])(const char *path) = {suffix, create, replace, take_away, another_name};
            for (int which = 0; which < 5; which++) printf("%d: %d %d\n", which, loop(all[which], 0), getpid() == 1 ? loop(all[which], 1) : 1);
            chdir("/"); say("all gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    let said = |line: &str| inside.lines().filter(|it| *it == line).count();
    assert_eq!(said("gone: 0 0"), 10, "{inside}");
    let lines = |said: &str| {
        let lines = said.lines().filter(|line| *line != "gone: 0 0");
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&inside), lines(&outside));
    let all = ["0: 606 1", "1: 612 1", "2: 606 1", "3: 606 1", "4: 612 1", "all gone: 0 0"];
    assert_eq!(lines(&inside), all);
}

#[test]
fn a_place_is_neither_read_nor_written_and_paths_begin_there() {
    let source = r#"
        #include <dirent.h>
        #include <sys/ioctl.h>
        #include <sys/statfs.h>
        int main() {
            char bytes[1000]; struct stat it; struct statfs system; struct timespec times[2] = {{1, 0}, {1, 0}};
            if (!mkdtemp(name) || chdir(name)) return 9;
            int fd = open("file", O_RDWR | O_CREAT, 0600); write(fd, "text", 4); close(fd);
            mkdir("d", 0700); close(open("d/inside", O_CREAT | O_WRONLY, 0600)); symlink("file", "link"); symlink("nowhere", "lost");
            const char *all[] = {"file", "d", "link", "lost", "missing", "file/"};
            for (int at = 0; at < 12; at++) {
                fd = open(all[at / 2], O_PATH | O_WRONLY | O_TRUNC | O_CREAT | (at % 2 ? O_NOFOLLOW : 0), 0600);
                printf("%s: %d %d\n", all[at / 2], fd >= 0, fd < 0 ? errno : 0);
                if (fd < 0) continue;
                say("read", read(fd, bytes, 4)); say("pread", pread(fd, bytes, 4, 0)); say("write", write(fd, "new", 3));
                say("truncate", ftruncate(fd, 1)); say("seek", lseek(fd, 0, SEEK_SET)); say("ioctl", ioctl(fd, FIONREAD, bytes));
                say("list", syscall(SYS_getdents64, fd, bytes, sizeof bytes)); say("sync", fsync(fd)); say("mode", fchmod(fd, 0755));
                say("owner", fchown(fd, -1, -1)); say("times", futimens(fd, times)); say("map", mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED ? -1 : 0);
                say("flags", fcntl(fd, F_GETFL) & (O_PATH | O_ACCMODE)); say("set flags", fcntl(fd, F_SETFL, O_APPEND));
                say("close on exec", fcntl(fd, F_SETFD, FD_CLOEXEC)); say("closes", fcntl(fd, F_GETFD));
                say("status", fstat(fd, &it)); printf("%o %d\n", it.st_mode & S_IFMT, it.st_size == 4);
                say("itself", fstatat(fd, "", &it, AT_EMPTY_PATH)); say("system", fstatfs(fd, &system));
                memset(bytes, 0, sizeof bytes); say("link", readlinkat(fd, "", bytes, sizeof bytes)); puts(bytes);
                int other = dup(fd); say("read other", read(other, bytes, 1)); say("close other", close(other));
                int inside = openat(fd, "inside", O_RDONLY); say("inside", inside >= 0 ? close(inside) : -1);
                say("enter", fchdir(fd)); chdir(name);
                say("close", close(fd)); say("closed", close(fd));
            }
            say("is still", stat("file", &it)); printf("%ld %o\n", (long)it.st_size, it.st_mode);
            say("no directory", open("file", O_PATH | O_DIRECTORY));
            say("truncated directory", open("d", O_RDONLY | O_TRUNC)); say("and so", open("d", O_RDONLY | O_DIRECTORY | O_TRUNC));
            say("mode of a file", fchmodat(AT_FDCWD, "file", 0640, AT_SYMLINK_NOFOLLOW));
            stat("file", &it); printf("%o\n", it.st_mode);
            say("mode of a link", fchmodat(AT_FDCWD, "link", 0640, AT_SYMLINK_NOFOLLOW));
            /* Held by it, though nothing else has it. */
            fd = open("file", O_PATH); unlink("file"); say("gone", fstat(fd, &it)); printf("%ld\n", (long)it.st_nlink); close(fd);
            unlink("link"); unlink("lost"); unlink("d/inside"); rmdir("d"); chdir("/"); say("all gone", rmdir(name));
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{FILES}{source}")) else {
        return;
    };
    assert!(outside.ends_with("all gone: 0 0\n"), "{outside}");
    assert_eq!(inside, outside);
}

#[test]
fn a_files_times_are_kept_to_the_nanosecond() {
    let source = r#"
        static void times(const char *what, int fd) {
            struct stat it; fstat(fd, &it);
            printf("%s: %ld %ld, %ld %ld\n", what, it.st_atime, it.st_atim.tv_nsec, it.st_mtime, it.st_mtim.tv_nsec);
        }
        int main() {
            int fd = make('a', 10);
            struct timespec both[2] = {{1234567890, 123456789}, {-5, 999999999}};
            say("set", futimens(fd, both)); times("both", fd);
            both[0].tv_nsec = UTIME_OMIT; both[1].tv_sec = 7;
            say("set", utimensat(AT_FDCWD, name, both, 0)); times("one", fd);
            both[0] = (struct timespec){1, 1}; both[1].tv_nsec = UTIME_OMIT;
            say("set", futimens(fd, both)); times("other", fd);
            struct stat it; struct timespec before, after;
            /* Files go by the clock's ticks. */
            clock_gettime(CLOCK_REALTIME_COARSE, &before); write(fd, "b", 1); clock_gettime(CLOCK_REALTIME_COARSE, &after);
            fstat(fd, &it);
            long long low = before.tv_sec * 1000000000ll + before.tv_nsec, high = after.tv_sec * 1000000000ll + after.tv_nsec;
            long long at = it.st_mtime * 1000000000ll + it.st_mtim.tv_nsec;
            printf("written now: %d; %ld %ld\n", low <= at && at <= high + 20000000, it.st_atime, it.st_atim.tv_nsec);
            unlink(name);
            return 0;
        }"#;
    let source = format!("{HEAD}{FILES}#include <time.h>\n{source}");
    let Some([inside, outside]) = in_machine_and_on_host(&source) else { return };
    assert_eq!(inside, outside);
}

#[test]
fn descriptors_are_found_by_name_as_on_linux() {
    let source = r#"
        #define _GNU_SOURCE
        #include <dirent.h>
        #include <errno.h>
        #include <fcntl.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/socket.h>
        #include <sys/stat.h>
        int main() {
            char name[64], text[300], *at;
            struct stat it, other;
            int file = open("/tmp/by-number", O_CREAT | O_RDWR | O_TRUNC, 0600), ends[2], both[2];
            say("written", write(file, "hello", 5)); pipe(ends); socketpair(AF_UNIX, SOCK_STREAM, 0, both);
            const char *ways[] = {"/dev/fd/%d", "/proc/self/fd/%d", "/proc/thread-self/fd/%d"};
            for (int way = 0; way < 3; way++) {
                sprintf(name, ways[way], file);
                int again = open(name, O_RDONLY);
                say("again", again >= 0); memset(text, 0, 10); say("from its beginning", read(again, text, 9)); puts(text); close(again);
                say("of it", stat(name, &it) || fstat(file, &other) || it.st_ino != other.st_ino);
                say("a link", lstat(name, &it) || !S_ISLNK(it.st_mode));
                say("access", access(name, R_OK)); say("to", readlink(name, text, sizeof text)); text[14] = 0; puts(text);
            }
            sprintf(name, "/dev/fd/%d", file);
            say("not followed", open(name, O_NOFOLLOW)); say("not made", open(name, O_CREAT | O_EXCL | O_WRONLY, 0600));
            say("longer name", open("/dev/fd/3/more", O_RDONLY)); int below = open("/tmp", O_RDONLY | O_DIRECTORY); sprintf(text, "/dev/fd/%d/by-number", below); say("below one", open(text, O_RDONLY) >= 0); say("no number", open("/dev/fd/x", O_RDONLY)); say("zeros", open("/dev/fd/003", O_RDONLY)); say("closed", open("/dev/fd/77", O_RDONLY)); say("closed", stat("/dev/fd/77", &it));
            unlink("/tmp/by-number");
            say("still", open(name, O_RDONLY) >= 0); say("length", (int)readlink(name, text, sizeof text) > 10);
            say("emptied", open(name, O_WRONLY | O_TRUNC) >= 0); say("empty", fstat(file, &it) || it.st_size != 0);
            sprintf(name, "/dev/fd/%d", ends[0]);
            int writes = open(name, O_WRONLY);
            say("other end", writes >= 0); say("through it", write(writes, "abc", 3)); say("comes", read(ends[0], text, 3));
            say("a pipe", stat(name, &it) || !S_ISFIFO(it.st_mode)); readlink(name, text, sizeof text); text[6] = 0; puts(text);
            sprintf(name, "/dev/fd/%d", both[0]);
            say("no socket", open(name, O_RDWR)); readlink(name, text, sizeof text); text[8] = 0; puts(text);
            DIR *all = opendir("/proc/self/fd");
            int count = 0, right = 1;
            for (struct dirent *entry; (entry = readdir(all)); ) {
                if (entry->d_name[0] == '.') continue;
                count++; right &= fcntl(atoi(entry->d_name), F_GETFD) >= 0 && entry->d_type == DT_LNK;
            }
            say("each is open", right); say("some", count >= 8);
            say("a directory", open("/dev/fd/", O_WRONLY)); say("its own", chdir("/proc/self/fd")); say("from there", openat(AT_FDCWD, "0", O_RDONLY) >= 0);
            say("changes", chdir("/")); say("bits", fchmodat(AT_FDCWD, "/proc/self/fd/3", 0640, 0)); say("are", fstat(3, &it) ? -1 : it.st_mode & 0777);
            FILE *out = fopen("/dev/stdout", "w");
            fflush(stdout); fputs("by its name\n", out); fclose(out); puts("and by its number");
            say("input", open("/dev/stdin", O_RDONLY) >= 0);
            return 0;
        }"#;
    let Some([inside, outside]) = in_machine_and_on_host(&format!("{HEAD}{source}")) else {
        return;
    };
    assert_eq!(inside, outside);
}
