#!/bin/bash
# The micro-VM engine on upstream KVM: a stock kernel of Debian's in a machine that has AMD's virtualisation, all of it
# emulated by qemu. Twice: with nested paging, where the guest's page tables are the processor's to read, and with shadow
# paging, where KVM reads them. So it is known that the engine does not depend on one host's KVM.
#
#   test-svm.sh [FILTER]      FILTER: a regular expression: only test programs whose names match it
#
# The machine sees this host's root read only, and what it writes goes into its memory: tests find their compiler and
# their checkout where they are. No KVM is needed here, and no root. VM_MINUTES bounds the life of each of the two machines;
# VM_NPT=1 or =0 boots one only.
#
# Ends with a line `N passed, N failed, N skipped`.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
dir=$checkout/target/svm
minutes=${VM_MINUTES:-40}
filter=${1:-}
command -v cargo >/dev/null || { echo "error: no Rust toolchain; get one from https://rustup.rs"; exit 1; }
"$here/../need.sh" qemu-system-x86_64:qemu-system-x86 xz:xz-utils
mkdir -p "$dir"
"$here/svm-kernel.sh" "$dir"

echo "building the tests"
cd "$checkout"
cargo test --locked --no-run --message-format=json --package=microvm >"$dir/built.json"
# One line a test program: the directory that it runs in, and where it is.
python3 - "$dir/built.json" "$checkout" "$filter" >"$dir/programs" <<'PYTHON'
import json, os, re, sys

built, checkout, wanted = sys.argv[1:]
# An interpreter takes minutes where ring 3 is emulated, too, and needs a base built first.
dear = {"python"}
for line in open(built):
    made = json.loads(line)
    if made.get("reason") != "compiler-artifact" or not made.get("executable"):
        continue
    name = made["target"]["name"]
    if not made["profile"]["test"] or name in dear or not re.search(wanted, name):
        continue
    home = os.path.relpath(os.path.dirname(made["manifest_path"]), checkout)
    print(home, os.path.relpath(made["executable"], checkout))
PYTHON
printf '%s\n' "LAMBSWOOL_REQUIRE=${LAMBSWOOL_REQUIRE:-kvm,pagemap_scan,swap}" PROPTEST_CASES=8 >"$dir/environment"

passed=0 failed=0 skipped=0
# Boots with nested paging or without, and adds up what the tests there said.
boot() {
    local log=$dir/npt-$1.log status=0 summary good bad left
    # No watchdog and no check of timers: on a busy host the machine stands still for longer than they allow.
    echo "booting Debian's kernel with emulated SVM, npt=$1 (at most $minutes minutes)"
    timeout --foreground -k 10 "${minutes}m" nice -n 10 qemu-system-x86_64 \
        -accel tcg -cpu max,+svm,la57=off -smp 2 -m 3072 -no-reboot -nodefaults -display none \
        -kernel "$dir/vmlinuz" -initrd "$dir/initrd" \
        -append "console=ttyS0 quiet loglevel=2 panic=-1 mitigations=off tsc=reliable nowatchdog no_timer_check lambswool.npt=$1 lambswool.checkout=$checkout" \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -serial stdio </dev/null | tee "$log" || status=$?
    # The serial console ends its lines with a carriage return.
    summary=$(tr -d '\r' <"$log" | sed -n 's/^VM-SUMMARY //p' | tail -n1)
    if [ -z "$summary" ]; then
        echo "error: the machine ended before the tests did (qemu: $status); all it said is in $log"
        summary=$(tr -d '\r' <"$log" | awk '/^== .* passed, .* failed, / { passed += $3; failed += $5; skipped += $7 }
            END { printf "%d passed, %d failed, %d skipped\n", passed, failed + 1, skipped }')
    fi
    read -r good _ bad _ left _ <<<"$summary"
    passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left))
}

for npt in ${VM_NPT:-1 0}; do
    boot $npt
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
