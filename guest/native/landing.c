/*
 * lambswool_landing: the few system calls that CPython cannot make by itself.
 *
 * A zygote receives a prepared slot (descriptors) and lands a copy of itself in it:
 *
 *   zygote ── vfork, own stack ──► intermediate          shares the zygote's memory: system calls only
 *     │ waits                        │ write "0" into each cgroup.procs
 *     │                              │ setns(user namespace)          now it has capabilities, in there only
 *     │                              │ unshare(CLONE_NEWPID)          instances; never derived zygotes
 *     │                              │                                and what else the isolation says
 *     │                              │ fchdir + chroot(root)
 *     │                              └── one fork ──► child
 *     │ ◄───────────────────────────── exits            │ output to 1 and 2 (a zygote: nowhere), channel to 3, everything else closed
 *     ▼ next request                   ┊                │ ids, no capability, not dumpable
 *                                      ┊                │ Landlock scope, stacked filter
 *                                      └┄┄ pidfd ┄┄┄┄┄► │ waits for the intermediate's end
 *                                                       │ READY, when asked to say it
 *                                                       ▼ returns into Python
 *
 * The intermediate is the zygote's own child, never CLONE_PARENT: the kernel spares a vfork child from a memory
 * cgroup's OOM killer only while its real parent shares its memory; otherwise a small limit would kill the zygote.
 * It enters the cgroup itself, so that the child's page tables are charged to the child's cgroup; and it must have left
 * before anybody can pause that cgroup: frozen on its way out, it would leave the zygote in its vfork until the thaw.
 * A step that fails is told on the channel as a `failed` frame (crates/sandbox/src/wire) and nothing lands.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "python.h"

/* ---- what a slot asks for; crates/container/src/fork.rs has the same numbers ---- */
/* Beside these stand the kernel's own CLONE_NEW* bits: the namespaces to make. */
enum {
    LAND_NAMESPACES = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET,
    LAND_STACK_FILTER = 2,  /* setns, unshare, chroot, further filters refused from here on */
    LAND_SCOPE = 4,         /* a Landlock scope of its own: Linux >= 6.12 */
    LAND_USER_NS = 8,       /* a user namespace with the child's own kernel uid */
    LAND_INSTANCE = 16,     /* READY in a frame on the channel once all that holds: sooner than Python can say it */
    LAND_REHEARSE = 32,     /* the Python side's: nobody waits yet */
    LAND_UNPRIVILEGED = 64, /* every capability dropped */
    LAND_CLOSE = 256,       /* every descriptor closed but the channel */
    LAND_UNDUMPABLE = 512,  /* neither traced nor read through /proc, by programs that it runs either */
};
enum { MAX_FDS = 16, CHANNEL = 3, INTERMEDIATE = 4 };
enum { FD_ROOT, FD_CHANNEL, FD_USER_NS, FD_CGROUPS }; /* order of a slot's descriptors; an instance's output is the last */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_restrict_self 446
#endif
#if defined(__x86_64__)
#define RSEQ_SIGNATURE 0x53053053
#elif defined(__aarch64__)
#define RSEQ_SIGNATURE 0xd428bc00
#endif

struct slot {
    int fds[MAX_FDS];
    int count;
    unsigned uid, flags;
    int intermediate; /* its pidfd */
    jmp_buf child; /* where the child goes on: the zygote's own stack, copied */
};

/* glibc >= 2.35 registers a restartable sequence per thread and tells where. */
extern __attribute__((weak)) const ptrdiff_t __rseq_offset;
extern __attribute__((weak)) const unsigned __rseq_size;
/* glibc >= 2.34: a fork that runs no atfork handlers, and so is safe while memory is shared. */
extern __attribute__((weak)) pid_t _Fork(void);

/* One frame without a body. */
static ssize_t say(int channel, const char *header, size_t length) {
    char frame[256];
    uint32_t lengths[2] = {(uint32_t)length, 0};
    memcpy(frame, lengths, sizeof lengths);
    memcpy(frame + sizeof lengths, header, length);
    return write(channel, frame, sizeof lengths + length);
}

/* Tells which step failed, and why. */
static void fail(int channel, const char *step) {
    char header[240];
    int n = snprintf(header, sizeof header,
                     "{\"kind\":\"failed\",\"id\":\"\",\"error_type\":\"landing\",\"message\":\"%s: errno %d\",\"traceback\":[]}",
                     step, errno);
    if (say(channel, header, (size_t)n) < 0) { /* the worker is gone: nobody left to tell */
    }
}

static void refuse(int channel, const char *step) {
    fail(channel, step);
    syscall(SYS_exit_group, 1);
}

static int cgroups_end(const struct slot *slot) {
    return slot->flags & LAND_INSTANCE ? slot->count - 1 : slot->count;
}

/* A network namespace of one's own begins with loopback down. */
static int bring_up_loopback(void) {
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (any < 0 || ioctl(any, SIOCSIFFLAGS, &loopback)) return -1;
    return close(any); /* the descriptors are the intermediate's own copy */
}

/* Runs in the intermediate, in the zygote's memory: system calls only. */
static int intermediate(void *argument) {
    struct slot *slot = argument;
    int channel = slot->fds[FD_CHANNEL];
    for (int i = FD_CGROUPS; i < cgroups_end(slot); i++)
        if (write(slot->fds[i], "0", 1) != 1) refuse(channel, "enter cgroup");
    if (slot->flags & LAND_USER_NS && setns(slot->fds[FD_USER_NS], CLONE_NEWUSER)) refuse(channel, "enter user namespace");
    unsigned namespaces = slot->flags & LAND_NAMESPACES;
    if (namespaces && unshare((int)namespaces)) refuse(channel, "make namespaces");
    if (namespaces & CLONE_NEWNET && bring_up_loopback()) refuse(channel, "bring up loopback");
    if (fchdir(slot->fds[FD_ROOT]) || chroot(".")) refuse(channel, "enter root");
    slot->intermediate = (int)syscall(SYS_pidfd_open, (pid_t)syscall(SYS_getpid), 0);
    if (slot->intermediate < 0) refuse(channel, "open own pidfd");
    pid_t pid = _Fork ? _Fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid < 0) refuse(channel, "fork");
    if (pid > 0) syscall(SYS_exit_group, 0);
    _longjmp(slot->child, 1);
}

static int drop_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    return (int)syscall(SYS_capset, &header, none);
}

/* A child of a CLONE_VM process has no restartable sequence registered: sched_getcpu() would be stale. */
static void register_rseq(void) {
#ifdef RSEQ_SIGNATURE
    if (!&__rseq_offset || !&__rseq_size || !__rseq_size) return;
    char *area = (char *)__builtin_thread_pointer() + __rseq_offset;
    unsigned size = __rseq_size < 32 ? 32 : __rseq_size;
    syscall(SYS_rseq, area, size, 0, RSEQ_SIGNATURE);
#endif
}

static int scope(void) {
    struct { uint64_t fs, net, scoped; } attributes = {0, 0, 3}; /* abstract sockets, signals */
    int ruleset = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0)) return -1;
    return close(ruleset);
}

/* On top of the inherited allow-list, which lets a zygote do these four. Another filter than this one would be memory that the
 * kernel charges to nobody: as on a kernel without filters. */
static int stack_filter(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setns, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_chroot, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

/* An instance's output is a file of its own. A zygote's is nowhere: its parent's standard error is a pipe, which one package could
 * fill for the packages of all others, and where its words would pass for theirs. */
static int arrange_output(const struct slot *slot) {
    int instance = slot->flags & LAND_INSTANCE;
    int output = instance ? slot->fds[slot->count - 1] : open("/dev/null", O_RDWR | O_CLOEXEC);
    if (output < 0 || dup2(output, 1) != 1 || dup2(output, 2) != 2) return -1;
    return instance ? 0 : close(output);
}

/* Runs in the child, after the fork, before any Python. Returns only when the child is confined. */
static void confine(struct slot *slot) {
    int channel = slot->fds[FD_CHANNEL];
    if (arrange_output(slot)) refuse(channel, "arrange output");
    if (channel != CHANNEL && dup2(channel, CHANNEL) != CHANNEL) refuse(channel, "move channel");
    channel = slot->fds[FD_CHANNEL] = CHANNEL;
    if (fcntl(CHANNEL, F_SETFD, FD_CLOEXEC)) refuse(channel, "mark channel");
    if (slot->intermediate != INTERMEDIATE && dup2(slot->intermediate, INTERMEDIATE) != INTERMEDIATE) refuse(channel, "move pidfd");
    if (slot->flags & LAND_CLOSE && syscall(SYS_close_range, INTERMEDIATE + 1, ~0u, 0)) refuse(channel, "close descriptors");
    if (slot->flags & LAND_USER_NS) {
        if (syscall(SYS_setresgid, slot->uid, slot->uid, slot->uid)) refuse(channel, "take group id");
        if (syscall(SYS_setresuid, slot->uid, slot->uid, slot->uid)) refuse(channel, "take user id");
    }
    if (slot->flags & LAND_UNPRIVILEGED && drop_capabilities()) refuse(channel, "drop capabilities");
    /* A change of ids has made it so already, where fs.suid_dumpable is as it should be. */
    if (prctl(PR_SET_DUMPABLE, !(slot->flags & LAND_UNDUMPABLE), 0, 0, 0)) refuse(channel, "become undumpable");
    register_rseq();
    if (slot->flags & LAND_SCOPE && scope()) refuse(channel, "enter Landlock scope");
    if (slot->flags & LAND_STACK_FILTER && stack_filter()) refuse(channel, "stack filter");
    struct pollfd end = {INTERMEDIATE, POLLIN, 0};
    while (poll(&end, 1, -1) < 0)
        if (errno != EINTR) refuse(channel, "wait for the intermediate");
    close(INTERMEDIATE);
    static const char ready[] = "{\"kind\":\"ready\",\"pid\":1}"; /* its number in a namespace of its own; only a claim */
    if (slot->flags & LAND_INSTANCE && say(channel, ready, sizeof ready - 1) < 0) syscall(SYS_exit_group, 1);
}

/* Returns 0 in the child, the intermediate's pid in the zygote, -1 with errno when nothing was started. */
static pid_t land(struct slot *slot) {
    static char stack[65536] __attribute__((aligned(64)));
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before); /* no handler of the zygote's may run in the shared memory */
    pid_t pid = 0;
    if (_setjmp(slot->child) == 0) {
        pid = clone(intermediate, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, slot);
    } else {
        pid = 0;
        confine(slot);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

/* One packet; its descriptors go to the slot. 0 at the end of the stream, -1 with a Python exception. */
static ssize_t receive(int socket, char *bytes, size_t room, struct slot *slot) {
    union { struct cmsghdr align; char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)]; } control;
    struct iovec io = {bytes, room};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got;
    do {
        void *thread = PyEval_SaveThread();
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
        int error = errno;
        PyEval_RestoreThread(thread);
        errno = error;
    } while (got < 0 && errno == EINTR && PyErr_CheckSignals() == 0);
    slot->count = 0;
    if (got < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    struct cmsghdr *header = got ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        slot->count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(slot->fds, CMSG_DATA(header), (size_t)slot->count * sizeof(int));
    }
    return got;
}

static void close_all(const struct slot *slot) {
    for (int i = 0; i < slot->count; i++) close(slot->fds[i]);
}

/* The first three numbers stand for something, whatever a package has closed: a slot's descriptors would else come to stand where
 * the child's streams go. No other number is taken, not for a moment: the warden may be counting them just then. */
static void fill_streams(void) {
    for (int stream = 0; stream < CHANNEL; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
    }
}

/* What a fork is asked for with: the letter, then uid and flags in the host's byte order. */
enum { FORK = 'F', FORK_BYTES = 1 + 2 * sizeof(uint32_t) };

/* Serves forks until something else comes. All of it is here, and nothing in Python, so that a zygote writes to hardly a
 * page between two forks: each page that it writes to is one more that the kernel must copy. */
static PyObject *py_serve(PyObject *self, PyObject *arguments) {
    (void)self;
    static char bytes[65536];
    static struct slot slot;
    int socket;
    if (!PyArg_ParseTuple(arguments, "i", &socket)) return NULL;
    fill_streams();
    for (;;) {
        ssize_t got = receive(socket, bytes, sizeof bytes, &slot);
        if (got < 0) return NULL;
        if (got == 0) return none();
        if (bytes[0] != FORK || got != FORK_BYTES || slot.count < FD_CGROUPS) {
            close_all(&slot);
            return PyBytes_FromStringAndSize(bytes, got);
        }
        memcpy(&slot.uid, bytes + 1, sizeof slot.uid);
        memcpy(&slot.flags, bytes + 1 + sizeof slot.uid, sizeof slot.flags);
        PyOS_BeforeFork();
        pid_t pid = land(&slot);
        if (pid == 0) {
            PyOS_AfterFork_Child();
            return PyLong_FromLong((long)slot.flags);
        }
        if (pid < 0) fail(slot.fds[FD_CHANNEL], "fork");
        PyOS_AfterFork_Parent();
        close_all(&slot);
    }
}

static PyObject *py_send(PyObject *self, PyObject *arguments) {
    (void)self;
    int socket;
    PyObject *data;
    char *bytes;
    ptrdiff_t length;
    if (!PyArg_ParseTuple(arguments, "iO", &socket, &data) || PyBytes_AsStringAndSize(data, &bytes, &length)) return NULL;
    if (send(socket, bytes, (size_t)length, MSG_NOSIGNAL) < 0) return PyErr_SetFromErrno(PyExc_OSError);
    return none();
}

static PyMethodDef methods[] = {
    {"serve", py_serve, METH_VARARGS,
     "serve(socket) -> the flags, in a confined child; in the zygote a packet that asks for no fork, or None at the end."},
    {"send", py_send, METH_VARARGS, "send(socket, bytes): one packet."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {
    .base = {.head = {.refcount = 1}}, .name = "lambswool_landing", .doc = "Lands forks of a zygote in prepared slots.", .size = -1, .methods = methods};

__attribute__((visibility("default"))) PyObject *PyInit_lambswool_landing(void) {
    return PyModule_Create2(&definition, STABLE_ABI);
}
