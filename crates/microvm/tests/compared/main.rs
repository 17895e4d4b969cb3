//! Programs that print what their calls return, each in a machine and on the host: both have to
//! print the same.

#[path = "../machine/mod.rs"]
mod machine;
mod mapped_files;
mod memory;
mod names;
mod process;
mod threads;

/// What all programs begin with.
const HEAD: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <limits.h>
    #include <linux/futex.h>
    #include <pthread.h>
    #include <sched.h>
    #include <stdio.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static long futex(unsigned *word, int operation, unsigned value, unsigned long more, unsigned *other, unsigned last) {
        return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, more, other, last);
    }
    static void say(const char *what, long result) {
        printf("%s: %ld %d\n", what, result, result < 0 ? errno : 0);
        fflush(stdout);
    }
"#;

/// What programs about files begin with: a file of their own, and printing the start of a page.
const FILES: &str = r#"
    #include <fcntl.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/stat.h>
    static char name[] = "/tmp/compared-XXXXXX", text[3 * 4096];
    static int make(char letter, int length) {
        int fd = mkstemp(name);
        memset(text, letter, sizeof text);
        if (fd < 0 || write(fd, text, length) != length) _exit(99);
        return fd;
    }
    static void tell(const char *what, volatile char *at) {
        printf("%s: %d %d %d %d %d\n", what, at[0], at[1], at[99], at[4095], at[4096]);
    }
"#;
