#!/bin/bash
# The unit of `packaging` under a real systemd: installed as its first lines say, started, used, restarted, killed,
# stopped. Ends with the line that the host waits for.
checkout=$(cd "$(dirname "$0")/../.." && pwd)
export PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8 TERM=dumb
unit=lambswool.service
group=/sys/fs/cgroup/system.slice/$unit
passed=0 failed=0
cd "$checkout" || exit 1

# test WHAT COMMAND...: one test, whose output is shown when it fails
test() {
    local what=$1 said
    shift
    if said=$("$@" 2>&1); then
        passed=$((passed + 1))
        echo "test $what ... ok"
    else
        failed=$((failed + 1))
        echo "test $what ... FAILED"
        echo "$said"
        systemctl status --full --no-pager --lines=30 $unit
    fi
}
# Emulated, on a busy machine, the first answer may take minutes.
eventually() {
    for _ in $(seq 600); do
        ! "$@" >/dev/null 2>&1 || return 0
        sleep 0.5
    done
    echo "not within 300 s: $*"
    return 1
}
main_pid() { systemctl show --value -p MainPID $unit; }
healthy() { wool ls --json; }
group_of() { cut -d: -f3 "/proc/$1/cgroup"; }

install_it() {
    install -D target/debug/wool target/debug/wool-warden target/debug/wool-egress target/debug/wool-vmm -t /usr/local/bin
    install -D -m 0644 packaging/$unit -t /etc/systemd/system
    install -D -m 0644 packaging/lambswool.sysusers /etc/sysusers.d/lambswool.conf
    install -D -m 0644 packaging/lambswool.tmpfiles /etc/tmpfiles.d/lambswool.conf
    systemd-sysusers && systemd-tmpfiles --create lambswool.conf || return
    systemctl daemon-reload
    # Unknown to systemd before 254, as the unit says.
    systemd-analyze verify --man=no /etc/systemd/system/$unit 2>&1 | grep -v "'DelegateSubgroup'" >/run/verified
    cat /run/verified
    [ ! -s /run/verified ] && systemctl enable --now lambswool && eventually healthy
}
answers() {
    local answer
    answer=$(wool invoke "$1" '{}')
    echo "$answer"
    [ "$answer" = "$2" ]
}
only_the_warden_is_root() {
    local status
    status=$(cat "/proc/$(main_pid)/status")
    echo "$status"
    grep -qP "^Uid:\t$(id -u lambswool)\t" <<<"$status" && ! grep -qP '^Gid:\t0\t' <<<"$status" || return
    [ "$(grep -cP '^(Cap(Inh|Prm|Eff|Bnd|Amb):\t0{16}|NoNewPrivs:\t1)$' <<<"$status")" = 6 ] || return
    [ "$(stat -c '%U %a' /var/lib/lambswool)" = "lambswool 700" ]
}
deploys_and_calls() {
    printf 'def handler(event, context):\n    return "hello"\n' >/run/hello.py
    wool deploy /run/hello.py --name hello && answers hello '"hello"'
}
groups_are_below_the_units() {
    systemctl show -p Delegate -p DelegateControllers $unit
    find $group -maxdepth 2 -type d
    [ "$(group_of "$(main_pid)")" = "/system.slice/$unit/supervisor" ] || return
    local sandbox
    sandbox=$(cat $group/lambswool-*/s*/self/cgroup.procs | head -n 1)
    [[ $(group_of "$sandbox") == /system.slice/$unit/lambswool-*/s*/self ]] || return
    [ -z "$(find /sys/fs/cgroup -maxdepth 1 -name 'lambswool-*')" ]
}
limits_are_enforced() {
    printf '# /// script\n# [tool.lambswool]\n# memory = "64MB"\n# ///\ndef handler(e, c):\n    return len(b"x" * (1 << 30))\n' >/run/greedy.py
    wool deploy /run/greedy.py --name greedy && ! wool invoke greedy '{}' 2>/run/said
    cat /run/said
    grep -q "it reached its memory limit" /run/said
}
restarts() { systemctl restart lambswool && eventually healthy && answers hello '"hello"'; }
comes_back_when_killed() {
    local before
    before=$(main_pid)
    kill -9 "$before"
    eventually is_another "$before" && eventually healthy && answers hello '"hello"'
}
is_another() { [ "$(main_pid)" != 0 ] && [ "$(main_pid)" != "$1" ]; }
stops_and_leaves_nothing() {
    systemctl stop lambswool
    systemctl show -p ActiveState -p Result $unit
    [ "$(systemctl show --value -p ActiveState $unit)" = inactive ] || return
    [ "$(systemctl show --value -p Result $unit)" = success ] || return
    pgrep -a '^(wool|python)' && return 1
    find /sys/fs/cgroup -name 'lambswool*' | grep . && return 1
    grep lambswool /proc/self/mountinfo | grep -v "$checkout" && return 1
    [ ! -e /run/lambswool ]
}
says_nothing_bad() {
    journalctl --no-pager -u $unit
    # But for what the kernel lacks, which is said once.
    ! journalctl --no-pager -u $unit | grep -v "not everything is enforced on this host" |
        grep -E "WARN|ERROR|panicked|Failed to|left-over process"
}

echo "$(systemctl --version | head -n1), $(uname -sr), up $(cut -d' ' -f1 /proc/uptime) s"
SECONDS=0
echo "== systemd_unit"
test the_unit_is_valid_and_starts install_it
test the_worker_has_an_account_and_no_privilege only_the_warden_is_root
test a_function_is_deployed_and_answers deploys_and_calls
test sandboxes_groups_are_below_the_units groups_are_below_the_units
test limits_are_enforced_in_delegated_groups limits_are_enforced
test a_restart_keeps_what_was_deployed restarts
test a_stop_is_clean_and_leaves_nothing stops_and_leaves_nothing
test a_whole_life_says_nothing_bad says_nothing_bad
test it_starts_again systemctl start lambswool
test a_killed_worker_comes_back comes_back_when_killed
test a_stop_after_that_is_clean_too stops_and_leaves_nothing
systemd-analyze security --no-pager $unit 2>/dev/null | tail -n 1
echo "== systemd_unit: $passed passed, $failed failed, 0 skipped, $SECONDS s"
echo "VM-SUMMARY $passed passed, $failed failed, 0 skipped"
sync
