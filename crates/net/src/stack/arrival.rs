//! A packet that has arrived.

use crate::ip::IpPacket;

/// A received packet whose Ethernet and IP headers were checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'a> {
    /// Source hardware address.
    pub(super) from_mac: [u8; 6],
    pub(super) ip: IpPacket<'a>,
    /// Region offset of the IP payload.
    pub(super) off: u64,
    /// When the packet arrived, Unix nanoseconds.
    pub(super) arrival_ns: u64,
}
