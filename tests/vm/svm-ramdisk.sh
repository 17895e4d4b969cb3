#!/bin/busybox sh
# Pid 1 of the initial ramdisk: loads KVM, mounts the host's root read only with a layer above that takes what is written,
# and runs the tests there.
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
word() { sed -n "s/.*lambswool\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
while read -r module; do
    parameters=
    [ "$module" != kvm_amd.ko ] || parameters="npt=$(word npt)"
    # shellcheck disable=SC2086 # none, or one word
    insmod "/lib/modules/$module" $parameters || echo "ramdisk: $module was not loaded"
done </lib/modules/order
# Swap, for tests of what is there.
echo 128M >/sys/block/zram0/disksize && mkswap /dev/zram0 >/dev/null && swapon /dev/zram0
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /lower || poweroff -f
mount -t tmpfs none /written
mkdir /written/upper /written/work
mount -t overlay -o lowerdir=/lower,upperdir=/written/upper,workdir=/written/work none /root || poweroff -f
for place in dev proc sys; do mount --move /$place /root/$place; done
mount -t tmpfs none /root/run
mkdir -p /root/dev/shm
mount -t tmpfs none /root/dev/shm
checkout=$(sed -n "s/.*lambswool\.checkout=\([^ ]*\).*/\1/p" /root/proc/cmdline)
chroot /root "$checkout/tests/vm/svm-guest.sh" "$checkout"
poweroff -f
