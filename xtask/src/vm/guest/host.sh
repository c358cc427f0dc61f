#!/bin/busybox sh
# First process of a guest that is a host: it mounts the files of a server outside, and writes, until its kernel panics.
# Arguments: the addresses of the servers, with commas between; `nvdimm`, if the region of one is the machine's NVDIMM, so
# that programs have the library, or `none`; what it waits between two files, seconds; when it ends itself, seconds.
#
# The first serial port carries what its owner reads (xtask/src/vm/host/guest.rs, crates/bench/src/linefs/machine.rs), the
# second everything else. Each line ends with a
# full stop: a panic may cut it.
set -u
servers=$1 nvdimm=${2:-none} pause=${3:-0} limit=${4:-900}

/bin/busybox mkdir -p /proc /sys /dev /tmp /applets /files
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox --install -s /applets
export PATH=/bin:/applets
exec </dev/null >/dev/ttyS0 2>/dev/ttyS1

# What a panic has cut ends here.
echo

# A guest that was forgotten ends itself.
(sleep "$limit"; poweroff -f) &

fail() {
    echo "failed: $1."
    poweroff -f
}

for module in $(cat /modules/host); do
    insmod "/modules/$module" || fail "cannot load $module"
done
ifconfig lo up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
device=
if [ "$nvdimm" = nvdimm ]; then
    device="--nvdimm /dev/dax0.0"
    # The kernel makes it by and by.
    tries=100
    until [ -c /dev/dax0.0 ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "the kernel makes no device of the NVDIMM"
        sleep 0.1
    done
fi
# shellcheck disable=SC2086
landfall fs mount /files --server "$servers" $device >/dev/ttyS1 &
holder=$!
until grep -q ' /files fuse' /proc/mounts; do
    kill -0 "$holder" || fail "there is no mount"
    sleep 0.1
done
echo "mounted."
# What others have made durable while this host was down.
echo "sees $(cat /files/beside/count)."

mkdir -p /files/host || fail "no directory"
number=$(ls /files/host | sort -n | tail -n 1)
number=${number:-0}
# A file is written once: the library is to ask for a lease of it at once.
export LANDFALL_FS_LIB=/lib/liblandfall_files.so LANDFALL_FS_LEASE_AFTER=0 LANDFALL_FS_STATS=1
with=
[ "$nvdimm" = none ] || with="landfall fs run --"
while :; do
    number=$((number + 1))
    tries=5
    # A server that is killed may lose what is not durable yet; then the next sync fails, once.
    # shellcheck disable=SC2086
    until yes "$number" | $with dd of="/files/host/$number" bs=16384 count=1 iflag=fullblock conv=fsync; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "file $number"
        echo "again $number."
    done
    echo "durable $number."
    [ "$pause" = 0 ] || sleep "$pause"
done
