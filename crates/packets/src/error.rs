//! Why the AF_XDP transport cannot be opened. Each message says what to do.

use std::net::IpAddr;

/// An error of opening the AF_XDP transport.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PacketsError {
    /// The interface, its driver, the kernel or the memory does not allow this.
    #[error(transparent)]
    Xdp(#[from] landfall_xdp::XdpError),
    /// Misuse: more workers than queues.
    #[error(
        "{interface} has {queues} queue(s), and each of the {workers} workers needs one: start fewer with --workers, \
         or give it more queues (ethtool -L {interface} combined {workers}; for veth: numrxqueues {workers} \
         numtxqueues {workers} when it is created)"
    )]
    TooFewQueues {
        /// The name of the interface.
        interface: String,
        /// The number of its queues.
        queues: u32,
        /// The requested number of workers.
        workers: usize,
    },
    /// Misuse: packets of this size do not fit a chunk.
    #[error(
        "packets of {interface} may have {mtu} bytes, and at most {max} fit a landing chunk: ip link set {interface} \
         mtu {max}, at the other end, too"
    )]
    MtuTooLarge {
        /// The name of the interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
        /// The largest MTU that works.
        max: u32,
    },
    /// Misuse: the interface has no address, and none was given.
    #[error(
        "{interface} has no address: give one of your own with --ip ADDRESS/PREFIX, or ip address add it"
    )]
    NoAddress {
        /// The name of the interface.
        interface: String,
    },
    /// Misuse: the requested address belongs to the kernel.
    #[error(
        "{address} is an address of {interface} in the kernel already: leave --ip away to share it with the kernel, \
         or give an address that is not in use"
    )]
    AddressTaken {
        /// The address.
        address: IpAddr,
        /// The interface.
        interface: String,
    },
    /// The region has no memory that packets can land in.
    #[error("this medium has no memory that packets could land in")]
    NoImage,
    /// Another operation failed.
    #[error("{what} failed: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}
