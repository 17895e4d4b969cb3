#!/bin/bash
# Whether all that is shipped compiles for aarch64: `cargo check`, with that processor's standard library. Nothing runs there,
# and nothing is linked: the monitor of micro-VMs is for x86-64 alone, as are `bench` and `fuzz`, which drive it.
#
#   check.sh        as root: the compiler comes from Debian, into a chroot below target/aarch64, which stays for the next time
#
# A toolchain of rustup's would do, too: `rustup target add aarch64-unknown-linux-gnu` and a C compiler for it, then the last
# commands of this file. `DEBIAN_MIRROR` and `DEBIAN_SUITE` say where the chroot comes from; the suite's rustc must be as new as
# `rust-version` in Cargo.toml.
set -euo pipefail
checkout=$(cd "$(dirname "$0")/../.." && pwd)
work=$checkout/target/aarch64
root=$work/root
mirror=${DEBIAN_MIRROR:-}
suite=${DEBIAN_SUITE:-sid}
target=aarch64-unknown-linux-gnu
export PATH=$PATH:/sbin:/usr/sbin
[ "$(id -u)" = 0 ] || { echo "error: a chroot takes root"; exit 1; }
"$checkout/tests/need.sh" debootstrap:debootstrap

# What is mounted here goes with this namespace: no path below the chroot ever leads out of it for anybody else.
if [ -z "${LAMBSWOOL_OWN_MOUNTS:-}" ]; then
    LAMBSWOOL_OWN_MOUNTS=1 exec unshare --mount --propagation private "$0" "$@"
fi

if [ ! -e "$work/made" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates "$suite" "$root" ${mirror:+"$mirror"}
fi
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
# Resolvers and certificates are the machine's.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "$@"; }
if [ ! -e "$work/made" ]; then
    inside dpkg --add-architecture arm64
    # A mirror may be older than it says it may be.
    inside apt-get -q -o Acquire::Check-Valid-Until=false update
    inside env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install \
        rustc cargo gcc libc6-dev libstd-rust-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross
    touch "$work/made"
fi

# The sources as they are, and what cargo has fetched already.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$root/src" "$root/build" "$root/root/.cargo" "$cargo_home/registry" "$work/build"
mount --bind -o ro "$checkout" "$root/src"
mount --bind "$work/build" "$root/build"
for kept in registry config.toml; do
    [ ! -e "$cargo_home/$kept" ] || {
        [ -d "$cargo_home/$kept" ] && mkdir -p "$root/root/.cargo/$kept" || touch "$root/root/.cargo/$kept"
        mount --bind "$cargo_home/$kept" "$root/root/.cargo/$kept"
    }
done
check() {
    inside env CARGO_TARGET_DIR=/build CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        cargo check --manifest-path /src/Cargo.toml --locked --target "$target" --workspace --exclude bench --exclude fuzz "$@"
}
check
# The tests of micro-VMs are for x86-64, too.
check --all-targets --exclude microvm --exclude vmm
