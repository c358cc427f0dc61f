//! Errors of this crate, distinguished by what the user can do about them.

use std::io;
use std::path::PathBuf;

/// An error of this crate. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum XdpError {
    /// Environment: the process lacks a capability.
    #[error(
        "cannot {action}: {source}; it needs {needs}: run as root, or give the program these capabilities (setcap, AmbientCapabilities=)"
    )]
    NoPrivilege {
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The capabilities.
        needs: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: the kernel was built without something.
    #[error(
        "cannot {action}: {source}; the kernel lacks {needs}: use one that has it, or the sockets transport"
    )]
    KernelLacks {
        /// The action that failed.
        action: &'static str,
        /// What the kernel lacks.
        needs: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Misuse: there is no such interface.
    #[error("no network interface `{name}` in this network namespace: `ip link` lists them")]
    NoInterface {
        /// The requested name.
        name: String,
    },
    /// Misuse: the calling thread has left the network namespace that the interface is in.
    #[error(
        "interface {name} is in another network namespace than the calling thread: look it up and use it in one"
    )]
    OtherNamespace {
        /// The interface.
        name: String,
    },
    /// Environment: the link layer is not Ethernet, so the steering program cannot parse its packets.
    #[error("interface {name} has link type {link_type}, not Ethernet: choose an Ethernet interface")]
    NotEthernet {
        /// The interface.
        name: String,
        /// `ARPHRD_*` number of `linux/if_arp.h`.
        link_type: u16,
    },
    /// Environment: the interface has no such queue.
    #[error(
        "interface {name} has {queues} queues, so no queue {queue}: use fewer workers, or `ethtool -L {name}`"
    )]
    NoSuchQueue {
        /// The interface.
        name: String,
        /// The requested queue.
        queue: u32,
        /// Queues that can both receive and transmit.
        queues: u32,
    },
    /// Environment: the driver does not support XDP.
    #[error("the driver of {name} has no native XDP ({source}): attach with the mode `auto` or `skb`")]
    NoNativeXdp {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: an XDP program is attached already.
    #[error(
        "another XDP program is attached to {name} ({source}): stop its owner, or see `ip link show {name}` and `ip link set {name} xdp off`"
    )]
    AlreadyAttached {
        /// The interface.
        name: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: the MTU is too large for the driver's native XDP.
    #[error(
        "the MTU of {name} ({mtu}) is too large for XDP in its driver ({source}): lower it, or attach with the mode `skb`"
    )]
    MtuForDriver {
        /// The interface.
        name: String,
        /// Its MTU, bytes.
        mtu: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// Misuse: a packet of the link would not fit into one chunk.
    #[error(
        "an MTU of {mtu} does not fit chunks of {chunk} bytes, which hold {max}: lower the MTU, or use larger chunks"
    )]
    MtuForChunk {
        /// The MTU, bytes.
        mtu: u32,
        /// Chunk size, bytes.
        chunk: u32,
        /// Largest MTU that fits, bytes.
        max: u32,
    },
    /// Environment: another AF_XDP socket uses the queue.
    #[error(
        "queue {queue} of {name} has an AF_XDP socket already: stop the other process, or use another queue"
    )]
    QueueBusy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
    },
    /// Environment: zero-copy was required, and the driver does not support it, or not with scatter-gather.
    #[error(
        "queue {queue} of {name} cannot do zero-copy with scatter-gather ({source}): use the mode `auto` or `copy`"
    )]
    NoZeroCopy {
        /// The interface.
        name: String,
        /// The queue.
        queue: u32,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: the kernel cannot pin this memory: an ext4 mapping (`EFAULT`) or fs-DAX (`EOPNOTSUPP`).
    #[error(
        "this medium cannot be pinned as packet memory ({source}): use tmpfs, hugetlbfs, device-DAX or anonymous memory, or copy out of a landing zone"
    )]
    CannotPin {
        /// The kernel's error.
        source: io::Error,
    },
    /// Misuse: address, size or headroom do not fit the chunks.
    #[error(
        "{bytes} bytes at {address:#x} with a headroom of {headroom} cannot be cut into chunks of {chunk}: the address must be aligned to a page, the size at least one chunk, the headroom below the chunk less 256"
    )]
    BadArea {
        /// Address of the area.
        address: usize,
        /// Its size, bytes.
        bytes: u64,
        /// Chunk size, bytes.
        chunk: u32,
        /// Headroom, bytes.
        headroom: u32,
    },
    /// Environment: pinning would exceed a limit.
    #[error(
        "cannot pin {bytes} bytes ({source}): raise RLIMIT_MEMLOCK (`ulimit -l`, LimitMEMLOCK=), or give the program CAP_IPC_LOCK"
    )]
    MemoryLimit {
        /// Size of the area, bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// Misuse: ring sizes are powers of two from 1 to [`crate::RING_ENTRIES_MAX`].
    #[error("a {ring} ring of {entries} entries: the number must be a power of two, at most {max}")]
    BadRingSize {
        /// Which ring.
        ring: &'static str,
        /// Entries requested.
        entries: u32,
        /// The maximum.
        max: u32,
    },
    /// Misuse: the rules exceed the capacity of the program.
    #[error("{found} {what} in the steering rules, at most {max}")]
    TooManyRules {
        /// Which items: addresses, or ports of an address.
        what: &'static str,
        /// Number of items.
        found: usize,
        /// The maximum.
        max: usize,
    },
    /// Misuse: an address that no host can own: unspecified, multicast or broadcast.
    #[error("{address} in the steering rules is not a unicast address that packets arrive for")]
    BadAddress {
        /// The address.
        address: std::net::IpAddr,
    },
    /// Misuse: an empty range of ports.
    #[error("there is no port from {first} to {last}: give the lower one first")]
    NoPorts {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// Misuse or environment: packets of one interface cannot be forwarded to the other one.
    #[error(
        "packets of {name} (MTU {mtu}) cannot be forwarded to {peer} (MTU {peer_mtu}): the two sides of a bridge are \
         different interfaces with the same MTU"
    )]
    BadPeer {
        /// The receiving interface.
        name: String,
        /// Its MTU, bytes.
        mtu: u32,
        /// The interface to forward packets to.
        peer: String,
        /// Its MTU, bytes.
        peer_mtu: u32,
    },
    /// Defect or old kernel: the verifier refused the steering program.
    #[error("the kernel refused the steering program ({source}); please report it with this log:\n{log}")]
    Verifier {
        /// The kernel's error.
        source: io::Error,
        /// The verifier's log.
        log: String,
    },
    /// Environment: the path for the pin is not in a BPF file system.
    #[error(
        "cannot pin the steering program at {}: {source}; the folder must exist in a BPF file system: `mount -t bpf bpf {}`",
        path.display(), path.parent().unwrap_or(path).display()
    )]
    CannotKeepPin {
        /// The pin's path.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Environment: another live process uses this pin.
    #[error("{}: a running process uses this pin: stop it first", path.display())]
    PinInUse {
        /// The pin's path.
        path: PathBuf,
    },
    /// Environment: the interface is down.
    #[error("interface {name} is down: `ip link set {name} up`")]
    LinkDown {
        /// The interface.
        name: String,
    },
    /// Environment: any other error of the kernel.
    #[error("{name}: cannot {action}: {source}")]
    Io {
        /// The interface, or another subject of the error.
        name: String,
        /// The action that failed, as a verb phrase.
        action: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

impl XdpError {
    /// The error that `source` indicates for `action` on `name`, when nothing more is known.
    pub(crate) fn from_io(name: &str, action: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::NoPrivilege { action, needs: "CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF", source }
            }
            Some(libc::ENETDOWN) => Self::LinkDown { name: name.to_owned() },
            Some(libc::ENODEV) => Self::NoInterface { name: name.to_owned() },
            _ => Self::Io { name: name.to_owned(), action, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_thing_and_say_what_to_do() {
        let denied = XdpError::from_io("eth7", "open a socket", io::Error::from_raw_os_error(libc::EPERM));
        assert!(denied.to_string().contains("CAP_NET_RAW"), "{denied}");
        let down = XdpError::from_io("eth7", "send", io::Error::from_raw_os_error(libc::ENETDOWN));
        assert!(down.to_string().contains("ip link set eth7 up"), "{down}");
        let pin = XdpError::CannotKeepPin {
            path: PathBuf::from("/run/x/pin"),
            source: io::Error::from_raw_os_error(libc::EPERM),
        };
        assert!(pin.to_string().contains("mount -t bpf bpf /run/x"), "{pin}");
    }
}
