#!/bin/busybox sh
# First process of the guest. Arguments: MEDIUM NETWORK, then flags of `landfall serve`.
#
# The first serial port carries what crates/landfall/src/demo/child.rs reads; the second everything else.
set -u
medium=$1 network=$2
shift 2

/bin/busybox mkdir -p /proc /sys /dev /tmp /run /applets
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox --install -s /applets
export PATH=/bin:/applets
exec </dev/null >/dev/ttyS0 2>/dev/ttyS1

# A guest that was forgotten ends itself.
(sleep 900; poweroff -f) &

fail() {
    echo "check: guest: $1"
    poweroff -f
}

for module in $(cat /modules/base "/modules/$network"); do
    insmod "/modules/$module" || fail "cannot load $module"
done

# Each fragment is one choice: the medium sets `dir` and `old`, the network `reach`.
. "/guest/$medium.sh"
. "/guest/$network.sh"
ifconfig lo up
medium_up || fail "no medium of kind $medium"
network_up || fail "no network of kind $network"

check() {
    if landfall check "$dir" >/tmp/check 2>&1; then
        echo "check: clean"
    elif grep -q '^!' /tmp/check; then
        sed -n 's/^! /check: /p' /tmp/check
    else
        sed 's/^/check: /' /tmp/check
    fi
}

# What the kernel has mapped must be what the server says that it serves.
mapping() {
    grep -q "$mapped" "/proc/$server/smaps" || echo "check: /proc/PID/smaps shows no $mapped"
}

[ "$old" = no ] || check
# In the log, this tells complaints of the emulator's boot from those that count.
echo "=== starting" >&2
echo starting
mkfifo /tmp/lines
# shellcheck disable=SC2086
landfall serve --dir "$dir" $reach "$@" >/tmp/lines &
server=$!
# The addresses are the guest's: the host has printed its own.
while read -r line; do
    case $line in
        resp:* | http:*) ;;
        ready) mapping; echo ready ;;
        *) echo "$line" && echo "$line" >&2 ;;
    esac
done </tmp/lines
wait "$server" || fail "the server ended with $?"
check
medium_down
poweroff -f
