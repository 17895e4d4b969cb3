#!/bin/busybox sh
# Pid 1 of the initial ramdisk: finds the two disks, mounts them, hands over to the guest's own pid 1.
/bin/busybox --install -s /bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
# Whether this kernel comes up at all on the host's KVM.
if grep -q lambswool.probe /proc/cmdline; then
    echo "the kernel is up"
    poweroff -f
fi
while read -r module; do
    insmod "/lib/modules/$module" || echo "ramdisk: $module was not loaded"
done </lib/modules/order
for _ in $(seq 100); do
    [ -b /dev/vda ] && [ -b /dev/vdb ] && break
    sleep 0.1
done
mount -t ext4 /dev/vda /root || { echo "ramdisk: no system disk"; poweroff -f; }
# Where the checkout is on the host, it is here: the tests carry its paths.
checkout=$(sed -n 's/.*lambswool\.checkout=\([^ ]*\).*/\1/p' /proc/cmdline)
mkdir -p "/root$checkout"
mount -t ext4 /dev/vdb "/root$checkout" || { echo "ramdisk: no disk of tests"; poweroff -f; }
if grep -q lambswool.systemd /proc/cmdline; then
    # A service of the test's own starts the test, once the system is up.
    sed "s|@checkout@|$checkout|" "/root$checkout/tests/vm/unit-test.service" >/root/etc/systemd/system/unit-test.service
    umount /proc /sys
    exec switch_root /root /lib/systemd/systemd
fi
umount /proc /sys
exec switch_root /root "$checkout/tests/vm/guest.sh" "$checkout"
