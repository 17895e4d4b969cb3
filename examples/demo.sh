#!/usr/bin/env bash
# Runs the examples on a worker of its own: `make demo`. Leaves the state directory (built base, packages) for the next
# time, and nothing that runs or is mounted.
set -euo pipefail
state=${1:?usage: demo.sh STATE_DIRECTORY}
here=$(cd "$(dirname "$0")" && pwd)
# Nobody else's worker, and nobody's settings.
for setting in "${!WOOL_@}"; do unset "$setting"; done
export WOOL_STATE=$state WOOL_CONFIG=/dev/null
out=$(mktemp -d)

stop() {
    status=$?
    wool down >/dev/null 2>&1 || true
    rm -rf "$out"
    exit $status
}
trap stop EXIT

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }

mounts_before=$(wc -l < /proc/self/mountinfo)
title "Start a worker (any free port, state in $state)"
mkdir -p "$state"
wool up --detach --listen 127.0.0.1:0

title "Deploy three functions"
wool deploy "$here/hello/hello.py" --name hello
wool deploy "$here/thumbnail" --name thumbnail
wool deploy "$here/report/report.py" --name report

call() {
    title "$1: the first call, then the same again"
    wool invoke "$1" "$2" --timings -o "$out/$1.first"
    wool invoke "$1" "$2" --timings -o "$out/$1.again"
}
call hello '{"name": "Ada"}'
call thumbnail "@$here/data/photo.jpg"
call report "@$here/data/sales.csv"

title "What they answered"
cat "$out/hello.first"; echo
printf 'thumbnail: %s bytes of JPEG out of %s\n' "$(stat -c %s "$out/thumbnail.first")" "$(stat -c %s "$here/data/photo.jpg")"
cat "$out/report.first"; echo

# The stages of one call in each kind of sandbox, in two columns; then what was answered.
side_by_side() {
    for kind in container microvm; do
        printf '%s, %s\n' "$kind" "$1" >"$out/$kind"
        wool run --isolation "$kind" "$here/hello/hello.py" '{"name": "Ada"}' --timings \
            >"$out/$kind.answer" 2>>"$out/$kind" || { cat "$out/$kind" >&2 && return 1; }
    done
    pr -mt -w 90 "$out/container" "$out/microvm" | expand
    cat "$out/container.answer" "$out/microvm.answer"
    echo
}
# Not whether the device is there, but whether a machine runs.
if why=$(wool-vmm examine 2>&1 >/dev/null); then
    title "The same function side by side: in a container, and in a micro-VM of its own"
    side_by_side "first call"
    side_by_side "second call"
else
    why=${why%%$'\n'*}
    title "No micro-VM beside the container: ${why#Error: }"
fi

title "Stop"
wool down
mounts_after=$(wc -l < /proc/self/mountinfo)
[ "$mounts_before" = "$mounts_after" ] || { echo "error: mounts were left behind" >&2; exit 1; }
echo "nothing runs, nothing is mounted; the packages stay in $state for the next time"
