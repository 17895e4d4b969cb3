/*
 * mounts WAY PRESENT CLIENTS MILLISECONDS DIRECTORY
 *
 * What a root file system costs, and what it costs a bystander, beside PRESENT others. In a mount namespace of its own;
 * nothing of it is left. Prints the microseconds that each operation took.
 *
 *   unshare-table     bystander: a new mount namespace, the one before let go; the others are bind mounts in the table
 *   unshare-detached  the same; the others are detached trees, held by descriptors
 *   bind              a root by bind mount, and away again; the others are bind mounts in the table
 *   tree              a root as a detached tree, and away again; the others are detached trees
 *   chroot            into a directory that is there
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
enum { CLONE_TREE = 1 | 0x8000, MOST = 20000 }; /* OPEN_TREE_CLONE | AT_RECURSIVE */

struct samples { long count; float microseconds[MOST]; };

static void die(const char *what) { perror(what); exit(1); }

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e6 + at.tv_nsec / 1e3;
}

static int tree(const char *path) {
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, CLONE_TREE | O_CLOEXEC);
    if (fd < 0) die("open_tree");
    return fd;
}

static void operate(const char *way, const char *root, const char *own) {
    if (!strncmp(way, "unshare", 7)) { if (unshare(CLONE_NEWNS)) die("unshare"); }
    else if (!strcmp(way, "bind")) {
        if (mount(root, own, 0, MS_BIND | MS_REC, 0) || umount2(own, MNT_DETACH)) die("bind");
    } else if (!strcmp(way, "tree")) close(tree(root));
    else if (chroot("/")) die("chroot");
}

int main(int count, char **words) {
    if (count != 6) return 2;
    const char *way = words[1], *dir = words[5];
    int present = atoi(words[2]), clients = atoi(words[3]);
    double time = atof(words[4]) * 1e3;
    int in_table = !strcmp(way, "unshare-table") || !strcmp(way, "bind");
    struct rlimit files = {present + 64, present + 64};
    if (setrlimit(RLIMIT_NOFILE, &files)) die("setrlimit");
    if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0)) die("unshare");
    if (mount("mounts", dir, "tmpfs", 0, "nr_inodes=0") || chdir(dir)) die("tmpfs");
    if (mkdir("root", 0755)) die("mkdir");
    char path[64];
    for (int n = 0; n < present; n++) {
        if (!in_table) { tree("root"); continue; } /* held until the process ends */
        snprintf(path, sizeof path, "%d", n);
        if (mkdir(path, 0755) || mount("root", path, 0, MS_BIND, 0)) die("bind");
    }
    struct samples *all = mmap(0, sizeof *all * clients, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int start[2];
    if (all == MAP_FAILED || pipe(start)) die("prepare");
    for (int client = 0; client < clients; client++) {
        snprintf(path, sizeof path, "own%d", client);
        if (mkdir(path, 0755)) die("mkdir");
        pid_t pid = fork();
        if (pid < 0) die("fork");
        if (pid) continue;
        char byte;
        close(start[1]);
        operate(way, "root", path); /* the first one copies, the others replace */
        if (read(start[0], &byte, 1)) die("start");
        struct samples *mine = all + client;
        for (double begin = now(), end = begin + time, at = begin; at < end && mine->count < MOST;) {
            operate(way, "root", path);
            double then = now();
            mine->microseconds[mine->count++] = (float)(then - at);
            at = then;
        }
        _exit(0);
    }
    close(start[0]);
    usleep(20000);
    double begin = now();
    close(start[1]);
    for (int client = 0, status; client < clients; client++)
        if (wait(&status) < 0 || status) die("wait");
    printf("%.0f\n", now() - begin);
    for (int client = 0; client < clients; client++)
        for (long n = 0; n < all[client].count; n++) printf("%.2f\n", all[client].microseconds[n]);
    return 0;
}
