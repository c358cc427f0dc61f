# AF_XDP on one end of a veth pair, whose other end is bridged to the virtual network card. Sourced by init.sh.
#
# The server's stack owns 10.0.2.15; the kernel has no address of its own. Frames reach it from the host's
# TCP through the card, the bridge and the pair, as they would from a neighbour on a wire.

# By its path: busybox has an `ip` of its own, and prefers it.
network_up() {
    reach="--xdp veth0 --ip 10.0.2.15/24 --resp 10.0.2.15:6479 --http 10.0.2.15:6480 --insecure-no-password"
    # The demonstration asks for at most two workers, and each needs a queue.
    queues="numrxqueues 2 numtxqueues 2"
    # shellcheck disable=SC2086
    /bin/ip link add veth0 $queues type veth peer name veth1 $queues || return
    /bin/ip link add br0 type bridge || return
    # No frame that the kernel makes may leave without its checksum: the server's stack verifies them.
    ethtool -K veth1 tx off >&2
    for port in eth0 veth1; do
        /bin/ip link set "$port" master br0 || return
    done
    for port in eth0 veth0 veth1 br0; do
        /bin/ip link set "$port" up || return
    done
}
