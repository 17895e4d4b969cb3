#!/bin/bash
# Pid 1 of the test machine: a system of one cgroup hierarchy, version 2, and nothing else running; then the tests.
checkout=$1
export PATH=/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb RUST_BACKTRACE=1
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t tmpfs none /run
# Unless the checkout is there.
[[ $checkout = /tmp/* ]] || mount -t tmpfs -o size=1G none /tmp
mount -t cgroup2 none /sys/fs/cgroup
mount -t securityfs none /sys/kernel/security 2>/dev/null
mount -o remount,rw /
ln -sfn /proc/self/fd /dev/fd
ip link set lo up
echo lambswool >/proc/sys/kernel/hostname
ulimit -n 65536
# As systemd has it: controllers are on for the groups at the top, and this process is in one of them.
echo '+memory +pids +cpu' >/sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/tests
echo $$ >/sys/fs/cgroup/tests/cgroup.procs
cd "$checkout" || exit 1
while IFS= read -r line; do export "${line?}"; done <environment
export LAMBSWOOL_BIN=$checkout/target/debug
ln -s "$checkout/target/uv" /usr/bin/uv
echo "$(uname -sr), $(stat -fc %T /sys/fs/cgroup), $(python3 --version), $(nproc) processors, up $(cut -d' ' -f1 /proc/uptime) s"
/usr/bin/env PATH="$PATH" target/debug/wool doctor || true

# One base for all: byte-compiling the library is the longest single work.
tmp=$checkout/target/tmp
mkdir -p "$tmp/e2e" || exit 1
target/debug/wool base build --state "$tmp/e2e/template" --json
cp -a --link "$tmp/e2e/template" "$tmp/layers-for-tests"

# Emulated, on a busy machine, a program of tests takes half an hour or more.
patience=3600
passed=0 failed=0 skipped=0
while read -r home program; do
    name=$(basename "$program")
    name=${name%-*}
    echo "== $name"
    SECONDS=0
    # Tests' own output comes with the names of those that passed too: a skip must be seen. One that hangs shows who
    # was there.
    (
        cd "$home" || exit
        exec timeout -k 5 "$patience" "$checkout/$program" --show-output
    ) >/run/said 2>&1
    status=$?
    result=$(grep -a '^test result:' /run/said | tail -n1)
    skips=$(grep -ac '^SKIPPED' /run/said)
    count() { sed -n "s/.*[ .]\([0-9]*\) $1.*/\1/p" <<<"$result"; }
    good=$(count passed) bad=$(count failed) left=$(count ignored)
    if [ -z "$result" ]; then
        good=$(grep -ac '^test .*\.\.\. ok$' /run/said) bad=1 left=0
        echo "$name ended with $status before it was done; still there:"
        ps -eo pid,ppid,uid,stat,wchan:24,args --cols 160 | grep -v '\]$' | tail -n 40
    fi
    # A program that ends badly after its last test has failed too; a test that was skipped has not passed.
    [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
    good=$((good - skips)) left=$((left + skips))
    if [ "$bad" != 0 ]; then
        cat /run/said
    else
        # With the table of attacks, which is looked at.
        grep -aE '^(test .*\.\.\. |SKIPPED|\||[0-9]+ (attacks|pairs))' /run/said
    fi
    echo "== $name: $good passed, $bad failed, $left skipped, $SECONDS s"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
done <programs
dmesg --level=emerg,alert,crit,err 2>/dev/null | tail -n 20
echo "VM-SUMMARY $passed passed, $failed failed, $skipped skipped"
sync
# Nobody is left to reap us: the machine goes off at once.
echo o >/proc/sysrq-trigger
sleep 60
