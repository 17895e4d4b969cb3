//! Pairs of sockets, `select`, `flock` and `pause`: each program in a machine and on the host.

mod machine;

const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/file.h>
    #include <sys/ioctl.h>
    #include <sys/select.h>
    #include <sys/socket.h>
    #include <sys/time.h>
    #include <sys/un.h>
    #include <time.h>
    #include <unistd.h>
    static void say(const char *what, long result) {
        printf("%s: %ld %d\n", what, result, result < 0 ? errno : 0);
        fflush(stdout);
    }
    static void nap(void) { struct timespec time = {0, 20000000}; nanosleep(&time, 0); }
"#;

fn assert_same(source: &str, last: &str) {
    machine::assert_same(&format!("{HEAD}{source}"), last);
}

#[test]
fn a_socket_pair_refuses_and_tells_what_linux_does() {
    let source = r#"
        static int heard;
        static void handler(int number) { heard++; }
        int main() {
            int ends[2], other[2], value, *volatile nowhere = (int *)8; char bytes[64]; socklen_t length;
            say("flags", socketpair(AF_UNIX, SOCK_STREAM | 0x100, 0, ends));
            say("no type", socketpair(AF_UNIX, 9, 0, ends));
            say("protocol", socketpair(AF_UNIX, SOCK_STREAM, 5, ends));
            say("nowhere", socketpair(AF_UNIX, SOCK_STREAM, 0, nowhere));
            say("pair", socketpair(AF_UNIX, SOCK_STREAM, AF_UNIX, ends));
            say("no socket", send(0, "x", 1, 0));
            say("not open", recv(99, bytes, 1, 0));
            struct sockaddr_un to = {AF_UNIX, "name"};
            say("addressed", sendto(ends[0], "x", 1, 0, (void *)&to, sizeof to));
            say("no address", sendto(ends[0], "x", 1, 0, (void *)&to, 0));
            length = sizeof to;
            say("without an address", recvfrom(ends[1], bytes, 8, 0, (void *)&to, &length));
            say("of no length", length);
            /* In parts, with a look at them before. */
            struct iovec parts[3] = {{"ab", 2}, {"", 0}, {"cdef", 4}}, into[2] = {{bytes, 3}, {bytes + 10, 9}};
            struct msghdr message = {.msg_name = &to, .msg_namelen = 0, .msg_iov = parts, .msg_iovlen = 3};
            say("sent", sendmsg(ends[0], &message, MSG_NOSIGNAL));
            for (int round = 0; round < 2; round++) {
                memset(bytes, 0, sizeof bytes);
                struct msghdr taken = {.msg_name = &to, .msg_namelen = 50, .msg_iov = into, .msg_iovlen = 2, .msg_flags = 77};
                say("taken", recvmsg(ends[1], &taken, round ? 0 : MSG_PEEK));
                printf("%s %s %d %ld %d\n", bytes, bytes + 10, taken.msg_namelen, (long)taken.msg_controllen, taken.msg_flags);
            }
            message.msg_iovlen = 2000;
            say("too many parts", sendmsg(ends[0], &message, 0));
            say("nothing there", recv(ends[1], bytes, 8, MSG_DONTWAIT));
            say("nothing of nothing", recv(ends[1], bytes, 0, MSG_DONTWAIT));
            length = -1;
            say("less than no room", getsockopt(ends[0], SOL_SOCKET, SO_TYPE, &value, &length));
            length = 4;
            say("of another layer", getsockopt(ends[0], 6, 1, &value, &length));
            say("no option", getsockopt(ends[0], SOL_SOCKET, 200, &value, &length));
            say("hint", setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &length, 4));
            say("short hint", setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &length, 3));
            /* The other side goes away, and has read everything, or has not. */
            signal(SIGPIPE, handler);
            close(ends[1]);
            say("end", recv(ends[0], bytes, 8, 0));
            say("gone", write(ends[0], "x", 1));
            say("gone, quietly", send(ends[0], "x", 1, MSG_NOSIGNAL));
            say("heard", heard);
            say("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, other));
            write(other[0], "unread", 6); write(other[1], "last", 4);
            close(other[1]);
            say("last words", recv(other[0], bytes, 64, 0));
            say("reset", recv(other[0], bytes, 64, 0));
            say("end", recv(other[0], bytes, 64, 0));
            say("pair", socketpair(AF_UNIX, SOCK_STREAM, 0, other));
            write(other[0], "unread", 6);
            close(other[1]);
            say("told", getsockopt(other[0], SOL_SOCKET, SO_ERROR, &value, &length)); say("as", value);
            say("end", recv(other[0], bytes, 64, 0));
            return 0;
        }"#;
    assert_same(source, "as: 104 0\nend: 0 0\n");
}

#[test]
fn threads_talk_through_a_pair_and_wait_for_one_another() {
    // More than fits, both ways at once; then one side says that it has no more.
    let source = r#"
        enum { BYTES = 3000000 };
        static int ends[2];
        static void *echo(void *argument) {
            static char block[10000];
            long count, total = 0;
            while ((count = read(ends[1], block, sizeof block)) > 0) {
                total += count;
                for (long at = 0; at < count;) {
                    long more = send(ends[1], block + at, count - at, 0);
                    if (more < 0) exit(3);
                    at += more;
                }
            }
            shutdown(ends[1], SHUT_WR);
            return (void *)total;
        }
        static void *listen_to(void *argument) {
            static unsigned char block[7777];
            long count, total = 0, wrong = 0;
            while ((count = recv(ends[0], block, sizeof block, 0)) > 0)
                for (long at = 0; at < count; at++) wrong += block[at] != total++ % 251;
            return (void *)(wrong ? -wrong : total);
        }
        int main() {
            static unsigned char all[BYTES];
            pthread_t echoes, listens; void *echoed, *heard;
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
            for (int at = 0; at < BYTES; at++) all[at] = at % 251;
            pthread_create(&echoes, 0, echo, 0); pthread_create(&listens, 0, listen_to, 0);
            for (long at = 0; at < BYTES;) {
                long more = write(ends[0], all + at, BYTES - at);
                if (more <= 0) return 2;
                at += more;
            }
            shutdown(ends[0], SHUT_WR);
            pthread_join(echoes, &echoed); pthread_join(listens, &heard);
            say("echoed", (long)echoed); say("heard", (long)heard);
            return 0;
        }"#;
    assert_same(source, "heard: 3000000 0\n");
}

#[test]
fn select_waits_for_a_thread_or_for_its_time() {
    let source = r#"
        static int ends[2];
        static void *late(void *argument) { nap(); write(ends[1], "x", 1); return 0; }
        static void *spins(void *argument) { nap(); nap(); return 0; }
        int main() {
            pthread_t thread; fd_set reads, writes; struct timeval time = {0, 30000};
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
            /* Alone, and beside another thread that ends first, or later. */
            for (int round = 0; round < 3; round++) {
                if (round) pthread_create(&thread, 0, round == 1 ? spins : late, 0);
                FD_ZERO(&reads); FD_SET(ends[round == 2], &reads);
                time.tv_sec = 0; time.tv_usec = 30000;
                say("over", select(ends[1] + 1, &reads, 0, 0, &time));
                printf("%d %d %ld %ld\n", FD_ISSET(ends[0], &reads), FD_ISSET(ends[1], &reads), time.tv_sec, time.tv_usec);
                if (round) pthread_join(thread, 0);
            }
            char byte; read(ends[0], &byte, 1);
            pthread_create(&thread, 0, late, 0);
            FD_ZERO(&reads); FD_SET(ends[0], &reads);
            time.tv_sec = 60; time.tv_usec = 5000000;
            say("came", select(ends[0] + 1, &reads, 0, 0, &time));
            printf("%d %d %d\n", FD_ISSET(ends[0], &reads), time.tv_sec > 60, time.tv_sec <= 65);
            pthread_join(thread, 0); read(ends[0], &byte, 1);
            pthread_create(&thread, 0, late, 0);
            say("came without a limit", select(ends[0] + 1, &reads, 0, 0, 0));
            pthread_join(thread, 0);
            FD_ZERO(&writes); FD_SET(ends[0], &writes); FD_SET(1, &writes); FD_SET(0, &reads);
            say("both", select(ends[1] + 1, &reads, &writes, 0, 0));
            time.tv_sec = -1;
            say("less than no time", select(1, 0, 0, 0, &time));
            say("less than none", select(-1, 0, 0, 0, 0));
            FD_SET(60, &reads);
            say("not open", select(61, &reads, 0, 0, 0));
            time.tv_sec = 0; time.tv_usec = 0;
            say("more than there are", select(1024, 0, &writes, 0, &time));
            struct timespec soon = {0, 30000000};
            FD_ZERO(&reads); FD_SET(ends[1], &reads);
            say("over", pselect(ends[1] + 1, &reads, 0, 0, &soon, 0));
            say("found", FD_ISSET(ends[1], &reads));
            return 0;
        }"#;
    assert_same(source, "found: 0 0\n");
}

#[test]
fn locks_of_two_open_files_exclude_each_other_and_are_waited_for() {
    let source = r#"
        static int first, second;
        static volatile int released;
        static void *holds(void *argument) { nap(); released = 1; flock(first, LOCK_UN); return 0; }
        int main() {
            pthread_t thread;
            char name[] = "/tmp/lock-XXXXXX";
            first = mkstemp(name); second = open(name, O_RDONLY);
            say("shared", flock(first, LOCK_SH)); say("by both", flock(second, LOCK_SH));
            say("alone", flock(first, LOCK_EX | LOCK_NB));
            /* Who asked for more and did not get it has lost what it had. */
            say("the other", flock(second, LOCK_EX | LOCK_NB));
            say("gone", flock(second, LOCK_UN));
            say("alone", flock(first, LOCK_EX)); say("again", flock(first, LOCK_EX));
            int same = dup(first);
            say("by a duplicate", flock(same, LOCK_EX | LOCK_NB));
            pthread_create(&thread, 0, holds, 0);
            say("waits", flock(second, LOCK_EX)); say("until", released);
            pthread_join(thread, 0);
            close(second);
            say("closed", flock(first, LOCK_EX | LOCK_NB));
            say("no such", flock(first, 5)); say("not open", flock(99, LOCK_SH));
            unlink(name);
            return 0;
        }"#;
    assert_same(source, "not open: -1 9\n");
}

#[test]
fn a_paused_thread_goes_on_when_a_signal_comes() {
    let source = r#"
        static volatile int heard, done;
        static void handler(int number) { heard++; }
        static void *sends(void *argument) {
            sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, 0);
            while (!done) { nap(); kill(getpid(), SIGUSR1); }
            return 0;
        }
        int main() {
            pthread_t thread; struct itimerval now = {{1, 1}, {1, 1}}, none = {{0}};
            signal(SIGUSR1, handler);
            pthread_create(&thread, 0, sends, 0);
            say("pause", pause());
            done = 1;
            pthread_join(thread, 0);
            say("heard", heard > 0);
            say("no alarm", alarm(0));
            say("timer", getitimer(ITIMER_REAL, &now));
            say("never", now.it_value.tv_sec + now.it_interval.tv_sec);
            say("no such", getitimer(3, &now));
            say("cleared", setitimer(ITIMER_PROF, &none, &now)); say("no such", setitimer(7, &none, 0));
            return 0;
        }"#;
    assert_same(source, "no such: -1 22\n");
}
