#!/bin/bash
# The tests on Debian's stock kernel, in a virtual machine: what most users have (pure cgroup v2, mounts staged). Built
# here, copied in, run there as root; the machine has no network.
#
#   test-vm.sh [FILTER]      FILTER: a regular expression: only test programs whose names match it
#
# It boots twice: for the test programs, with nothing else running; and with systemd as pid 1, for the unit of `packaging`
# (`systemd_unit` to the filter).
#
# Ends with a line `N passed, N failed, N skipped`. KVM where it works, else emulation: VM_ACCEL=kvm or =tcg decides
# otherwise. VM_MINUTES bounds the machine's life: emulated, on two busy processors, all of it takes three quarters of an
# hour.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
checkout=$(cd "$here/../.." && pwd)
dir=$checkout/target/vm
minutes=${VM_MINUTES:-100}
filter=${1:-}
export PATH=$PATH:/sbin:/usr/sbin
command -v cargo >/dev/null || { echo "error: no Rust toolchain; get one from https://rustup.rs"; exit 1; }
"$here/../need.sh" qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs depmod:kmod cpio:cpio
mkdir -p "$dir"
"$here/system.sh" "$dir"

# Some KVMs (a host's that is itself a guest) open and run nothing but kernels made for them: this one must come up.
comes_up() {
    timeout 20 qemu-system-x86_64 -accel kvm -cpu max -m 512 -no-reboot -nodefaults -display none \
        -kernel "$dir/vmlinuz" -initrd "$dir/initrd" -append "console=ttyS0 quiet panic=-1 lambswool.probe" \
        -serial stdio </dev/null 2>/dev/null | grep -q "the kernel is up"
}
accelerated=${VM_ACCEL:-}
if [ -z "$accelerated" ]; then
    known=$dir/accelerated-$(uname -r)
    if [ ! -e "$known" ]; then
        if [ -w /dev/kvm ] && comes_up; then echo kvm; else echo tcg; fi >"$known"
    fi
    accelerated=$(cat "$known")
fi

echo "building the tests"
cd "$checkout"
packages=(sys warden container)
[ ! -e tests/Cargo.toml ] || packages+=(e2e)
# With optimisation: under emulation everything takes ten times as long as here. With switches for defences: `escape`
# attacks without each.
cargo build --profile ablation --locked -p wool -p warden -p egress -p vmm
built=$dir/built.json
cargo test --locked --no-run --message-format=json "${packages[@]/#/--package=}" >"$built"

# The tests carry absolute paths of this checkout: the disk has the same names below it.
echo "copying"
tree=$dir/tree
rm -rf "$tree"
mkdir -p "$tree/target/debug/deps" "$tree/target/tmp" "$tree/tests/vm" "$tree/mnt"
install -s target/ablation/{wool,wool-warden,wool-egress,wool-vmm} -t "$tree/target/debug"
install "$here"/{guest.sh,unit.sh,unit-test.service} -t "$tree/tests/vm"
cp -r README.md docs examples packaging "$tree/"
# There is no index to fetch it from: with it, tests that have an index of their own run.
version=$(sed -n 's/.*VERSION: &str = "\(.*\)";/\1/p' crates/packages/src/uv/fetch.rs)
uv=$dir/uv-$version
[ -x "$uv/bin/uv" ] || python3 -m pip install --quiet --no-deps --target "$uv" "uv==$version"
cp "$uv/bin/uv" "$tree/target/"
for package in crates/sys crates/warden crates/container tests; do
    mkdir -p "$tree/$package"
done
for data in tests/data tests/tests/data tests/functions; do
    [ ! -e "$data" ] || cp -r --parents "$data" "$tree/"
done
# One line a test program: the directory that it runs in, and where it is.
python3 - "$built" "$checkout" "$filter" >"$dir/programs" <<'PYTHON'
import json, os, re, sys

built, checkout, wanted = sys.argv[1:]
# What is read from the sources does not depend on the kernel.
elsewhere = {"architecture", "documentation", "specification"}
for line in open(built):
    made = json.loads(line)
    if made.get("reason") != "compiler-artifact" or not made.get("executable"):
        continue
    if not made["profile"]["test"] or made["target"]["name"] in elsewhere:
        continue
    home = os.path.relpath(os.path.dirname(made["manifest_path"]), checkout)
    if re.search(wanted, made["target"]["name"]):
        print(home, os.path.relpath(made["executable"], checkout))
PYTHON
while read -r _ program; do
    install -s "$program" -t "$tree/target/debug/deps"
done <"$dir/programs"
cp "$dir/programs" "$tree/"
printf 'LAMBSWOOL_REQUIRE=%s\n' "${LAMBSWOOL_REQUIRE:-root,cgroup2}" >"$tree/environment"
[ "$accelerated" = kvm ] || echo LAMBSWOOL_SLOW=4 >>"$tree/environment"
rm -f "$dir/tests.img"
mke2fs -q -t ext4 -d "$tree" -E root_owner=0:0 -L tests "$dir/tests.img" 6G
rm -rf "$tree"

cpu=max options=
if [ "$accelerated" = tcg ]; then
    # What emulation does one by one is left out: wide registers, string copies byte after byte, a second page table for
    # the kernel, clocks that are read through the machine.
    cpu=Nehalem options="mitigations=off tsc=reliable"
fi
passed=0 failed=0 skipped=0
# Boots, with further words to the kernel, and adds up what the tests there said.
boot() {
    local log=$dir/$1.log status=0 summary good bad left
    shift
    echo "booting Debian's kernel ($accelerated, at most $minutes minutes)"
    # The system disk is the same for every run: what the guest writes to it goes into a temporary file.
    timeout --foreground -k 10 "${minutes}m" nice -n 19 qemu-system-x86_64 \
        -accel "$accelerated" -cpu "$cpu" -smp 2 -m 3072 -no-reboot -nodefaults -display none \
        -kernel "$dir/vmlinuz" -initrd "$dir/initrd" \
        -append "console=ttyS0 quiet loglevel=2 panic=-1 $options lambswool.checkout=$checkout $*" \
        -drive "file=$dir/system.img,format=raw,if=virtio,snapshot=on" \
        -drive "file=$dir/tests.img,format=raw,if=virtio,cache=unsafe" \
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

[ ! -s "$dir/programs" ] || boot console
if [[ systemd_unit =~ $filter ]]; then
    if debugfs -R "stat /usr/lib/systemd/systemd" "$dir/system.img" 2>/dev/null | grep -q "Type: regular"; then
        boot systemd lambswool.systemd systemd.wants=unit-test.service \
            systemd.mask=systemd-tmpfiles-setup.service systemd.getty_auto=no systemd.show_status=0
    else
        echo "SKIPPED: systemd_unit: there is no package systemd to be had here"
        skipped=$((skipped + 1))
    fi
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
