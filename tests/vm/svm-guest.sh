#!/bin/bash
# In the machine: runs the engine's tests, one program after another. Ends with the line that the host waits for.
checkout=$1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb RUST_BACKTRACE=1
ip link set lo up 2>/dev/null
while IFS= read -r line; do export "${line?}"; done <"$checkout/target/svm/environment"
echo "$(uname -sr), kvm_amd with npt=$(cat /sys/module/kvm_amd/parameters/npt), $(nproc) processors, up $(cut -d' ' -f1 /proc/uptime) s"

# A machine that is there throughout. With the first one's coming and the last one's going KVM has the kernel rewrite code that
# runs, which an emulated second processor may execute from its cache half rewritten.
python3 -c '
import fcntl, signal
CREATE_VM, CREATE_VCPU = 0xAE01, 0xAE41
machine = fcntl.ioctl(open("/dev/kvm", "rb+", 0), CREATE_VM, 0)
processor = fcntl.ioctl(machine, CREATE_VCPU, 0)
signal.pause()
' &

passed=0 failed=0 skipped=0
while read -r home program; do
    name=$(basename "$program")
    name=${name%-*}
    echo "== $name"
    SECONDS=0
    (
        cd "$checkout/$home" || exit
        # Output of tests that passed, too: a skip must be seen.
        exec timeout -k 5 "${PATIENCE:-900}" "$checkout/$program" --show-output --test-threads 1
    ) >/run/said 2>&1
    status=$?
    # `fork` has no harness, and no tests that are left out.
    result=$(grep '^test result:' /run/said | tail -n1)
    count() { sed -n "s/.*[ .]\([0-9]*\) $1.*/\1/p" <<<"$result"; }
    good=$(count passed) bad=$(count failed) skips=$(grep -c '^SKIPPED' /run/said)
    # One that was cut off, or ended badly after its last test, has failed too; a test that was skipped has not passed.
    [ -n "$result" ] || good=0 bad=1
    [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
    good=$((good - skips))
    if [ "$bad" != 0 ]; then cat /run/said; else grep -E '^(test .*\.\.\. |SKIPPED)' /run/said; fi
    echo "== $name: $good passed, $bad failed, $skips skipped, $SECONDS s"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + skips))
done <"$checkout/target/svm/programs"
dmesg --level=emerg,alert,crit,err 2>/dev/null | tail -n 20
echo "VM-SUMMARY $passed passed, $failed failed, $skipped skipped"
