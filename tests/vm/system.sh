#!/bin/bash
# Makes what the machine boots: Debian's stock kernel, an initial ramdisk with the few modules that find the disks, and
# a disk with Debian's python3 and little else. Everything comes from this host's apt, by package name, and is only
# unpacked: nothing is installed here, no maintainer script runs, no root is needed.
#
#   system.sh DIR     leaves DIR/{vmlinuz,initrd,system.img}; quick when they are there already
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1

# What the tests call for: a Python that can be a base (its wheels of pip for venv), and a system's usual tools.
packages=(linux-image-amd64 busybox-static base-files base-passwd bash ca-certificates coreutils curl dash findutils grep gzip
    iproute2 kmod libc-bin libgcc-s1 libstdc++6 mount openssl procps python3 python3-venv sed sudo tar tzdata
    util-linux xz-utils)
# For the second boot, with systemd as pid 1: without it that one is skipped.
! apt-cache show systemd >/dev/null 2>&1 || packages+=(systemd)
modules=(virtio_pci virtio_blk ext4 crc32c_generic)

stamp=$(cat "$here/system.sh" "$here/ramdisk.sh" | sha256sum)
if [ -e "$dir/system.stamp" ] && [ "$(cat "$dir/system.stamp")" = "$stamp" ]; then
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || { echo "error: $tool is missing: a Debian host is needed" >&2 && exit 1; }
done
PATH=$PATH:/sbin:/usr/sbin
rm -rf "$dir/system" "$dir/ramdisk" "$dir/system.stamp"
mkdir -p "$dir/debs/partial" "$dir/system" "$dir/ramdisk"

# An empty dpkg status: apt then names the whole closure, whatever this host has. Kept, so that a change of the scripts
# does not download again.
echo "fetching Debian's kernel and python3 (about 115 MB, once)"
: >"$dir/status"
apt=(apt-get -qq -y -o Dir::State::status="$dir/status" -o Debug::NoLocking=1 -o APT::Sandbox::User=root
    -o APT::Install-Recommends=0)
# Only what is not yet there is listed: so of an empty place.
mkdir -p "$dir/nothing/partial"
"${apt[@]}" -o Dir::Cache::archives="$dir/nothing" --print-uris install "${packages[@]}" >"$dir/wanted" || {
    echo "error: apt does not know these packages: a Debian host is needed, and its lists (apt-get update)" >&2
    exit 1
}
"${apt[@]}" -o Dir::Cache::archives="$dir/debs" --download-only install "${packages[@]}" >/dev/null || {
    echo "error: apt could not fetch them; its lists may be old: apt-get update" >&2
    exit 1
}

echo "unpacking"
# Debian's layout: the packages' /bin and /lib land in /usr.
for name in bin sbin lib lib64; do
    mkdir -p "$dir/system/usr/$name"
    ln -s "usr/$name" "$dir/system/$name"
done
awk '{print $2}' "$dir/wanted" | while read -r deb; do
    dpkg-deb --fsys-tarfile "$dir/debs/$deb" |
        tar -x --keep-directory-symlink --no-same-owner -C "$dir/system"
done
version=$(ls "$dir/system/lib/modules")
cp "$dir/system/boot/vmlinuz-$version" "$dir/vmlinuz"

depmod -b "$dir/system" "$version"
mkdir -p "$dir/ramdisk"/{bin,dev,proc,sys,root,lib/modules}
cp "$dir/system/usr/bin/busybox" "$dir/ramdisk/bin/busybox"
cp "$here/ramdisk.sh" "$dir/ramdisk/init"
chmod 0755 "$dir/ramdisk/init"
# In the order in which they are to be loaded: what each needs first.
for module in "${modules[@]}"; do
    modprobe -d "$dir/system" -S "$version" --show-depends "$module" | awk '$1 == "insmod" {print $2}'
done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$dir/ramdisk/lib/modules/"
    basename "$file" >>"$dir/ramdisk/lib/modules/order"
done
(cd "$dir/ramdisk" && find . | cpio --quiet -o -H newc -R 0:0) >"$dir/initrd"

# Weight: no test documents, draws, plays or drives a device. What an attack may have the kernel load stays.
rm -rf "$dir/system/boot" "$dir/system/usr/share/"{doc,man,locale,info}
(cd "$dir/system/lib/modules/$version/kernel" && rm -rf sound drivers/{gpu,infiniband,media,net,scsi,staging,usb})
# What the packages' scripts would have made.
cp "$dir/system/usr/share/base-passwd/passwd.master" "$dir/system/etc/passwd"
cp "$dir/system/usr/share/base-passwd/group.master" "$dir/system/etc/group"
sed -i 's/^root:\*:/root::/' "$dir/system/etc/passwd"
mkdir -p "$dir/system/etc/ssl/certs"
find "$dir/system/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$dir/system/etc/ssl/certs/ca-certificates.crt"
echo 'lambswool' >"$dir/system/etc/hostname"
# Otherwise systemd would take it for its first boot.
printf '%032d\n' 1 >"$dir/system/etc/machine-id"
echo '127.0.0.1 localhost lambswool' >"$dir/system/etc/hosts"
echo 'nameserver 127.0.0.1' >"$dir/system/etc/resolv.conf"
cp "$dir/system/usr/share/libc-bin/nsswitch.conf" "$dir/system/etc/nsswitch.conf"
mkdir -p "$dir/system"/{dev,proc,sys,run,tmp,root}
rm -f "$dir/system.img"
mke2fs -q -t ext4 -d "$dir/system" -E root_owner=0:0,lazy_itable_init=0 -L system "$dir/system.img" 2G
rm -rf "$dir/system" "$dir/ramdisk"
echo "$stamp" >"$dir/system.stamp"
