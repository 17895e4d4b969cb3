#!/bin/bash
# Makes what `test-svm.sh` boots: a stock kernel of Debian's, new enough for PAGEMAP_SCAN, and an initial ramdisk with KVM
# and what mounts this host's own root. Both come through apt, from the mirror that this host's own packages come
# from, and are only unpacked: nothing is installed here.
#
#   svm-kernel.sh DIR     leaves DIR/{vmlinuz,initrd}; quick when they are there already
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1
release=trixie
modules=(virtio_pci 9pnet_virtio 9p overlay zram kvm_amd)

stamp=$(cat "$here/svm-kernel.sh" "$here/svm-ramdisk.sh" | sha256sum)
if [ -e "$dir/stamp" ] && [ "$(cat "$dir/stamp")" = "$stamp" ]; then
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "error: $tool is missing: a Debian host is needed" >&2 && exit 1; }
done
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || {
    echo "error: $keys is missing: install the package debian-archive-keyring" >&2
    exit 1
}
mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)
[ -n "$mirror" ] || {
    echo "error: apt has no lists of packages: run apt-get update" >&2
    exit 1
}
rm -rf "$dir/unpacked" "$dir/ramdisk" "$dir/stamp"
mkdir -p "$dir"/{lists/partial,debs,unpacked}
mkdir -p "$dir/ramdisk"/{bin,dev,proc,sys,lower,written,root,lib/modules}

echo "fetching Debian's kernel (about 110 MB, once)"
echo "deb [signed-by=$keys] $mirror $release main" >"$dir/sources.list"
: >"$dir/status"
options=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$dir/lists"
    -o Dir::State::status="$dir/status" -o Dir::Cache="$dir" -o Debug::NoLocking=1 -o APT::Sandbox::User=root)
apt-get "${options[@]}" -qq update
# The package without a version names the one with it.
image=$(apt-cache "${options[@]}" depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')
(cd "$dir/debs" && apt-get "${options[@]}" -qq download "$image" busybox-static)

echo "unpacking"
for deb in "$dir/debs/$image"_*.deb "$dir"/debs/busybox-static_*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner -C "$dir/unpacked"
done
version=${image#linux-image-}
cp "$dir/unpacked/boot/vmlinuz-$version" "$dir/vmlinuz"
cp "$dir/unpacked/usr/bin/busybox" "$dir/ramdisk/bin/busybox"
cp "$here/svm-ramdisk.sh" "$dir/ramdisk/init"
chmod 0755 "$dir/ramdisk/init"
# add MODULE: unpacks it behind those that it needs. What is not there is built in.
add() {
    local file into needed
    into=$dir/ramdisk/lib/modules/$1.ko
    file=$(find "$dir/unpacked" -name "${1//_/[-_]}.ko*" -print -quit)
    [ -n "$file" ] && [ ! -e "$into" ] || return 0
    case $file in
        *.xz) xz -dc "$file" >"$into" ;;
        *) cp "$file" "$into" ;;
    esac
    for needed in $(tr '\0' '\n' <"$into" | sed -n 's/^depends=//p' | tr ',-' ' _'); do add "$needed"; done
    echo "$1.ko" >>"$dir/ramdisk/lib/modules/order"
}
for module in "${modules[@]}"; do add "$module"; done
(cd "$dir/ramdisk" && find . | bin/busybox cpio -o -H newc -R 0:0 2>/dev/null) >"$dir/initrd"
rm -rf "$dir/unpacked" "$dir/ramdisk"
echo "$stamp" >"$dir/stamp"
