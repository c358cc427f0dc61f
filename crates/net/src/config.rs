//! Settings of a stack. Limits are configuration; every queue and table has one.

use core::net::IpAddr;
use std::time::Duration;

/// A hardware address.
pub type Mac = [u8; 6];

/// Packets without a connection (resets, ARP, ICMP, datagrams) in the send queue, at most.
pub(crate) const UNCONNECTED_MAX: usize = 1024;

/// Settings of a [`crate::Stack`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Hardware address of this host.
    pub mac: Mac,
    /// IP addresses of this host.
    pub addresses: Vec<IpAddr>,
    /// The stack answers ARP, neighbour solicitations and echo requests, and refuses connections to unknown ports,
    /// because no other host or kernel uses its addresses. If false, the kernel shares the addresses and does all of
    /// that.
    pub owns_addresses: bool,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Distinguishes the connection numbers of several stacks of one process; below 64.
    pub stack_id: u8,
    /// Connections at once, at most.
    pub connections_max: usize,
    /// Half-open connections kept, at most. Beyond this number, SYNs are answered with cookies.
    pub backlog_max: usize,
    /// Connections kept in TIME-WAIT, at most; the oldest is removed first.
    pub time_wait_max: usize,
    /// Largest receive window of a connection, bytes.
    pub receive_window: u32,
    /// Bytes queued for sending at which [`crate::Stack::is_writable`] becomes false.
    pub send_queue: usize,
    /// Bytes of memory that out-of-order data of all connections may occupy together. When the limit is exceeded, the
    /// connection that keeps most drops the data that are furthest from its first hole.
    pub waiting_bytes_max: usize,
    /// Frames that all connections together may hold for applications that have paused reception.
    pub waiting_frames_max: usize,
    /// Frames that one connection may hold for its application and for out-of-order data together.
    pub waiting_frames_per_connection: usize,
    /// Out-of-order data that wait longer than this are copied out of their frames.
    pub set_aside_after: Duration,
    /// Lower bound of the retransmission timeout. RFC 6298 (2.4) says one second, because clocks were coarse then; 200
    /// ms is what Linux uses.
    pub rto_min: Duration,
    /// A connection ends when the data it sent are not acknowledged for this long (RFC 9293, 3.8.3).
    pub user_timeout: Duration,
    /// Idle time after which the stack probes a connection (RFC 9293, 3.8.4); `None`: never.
    pub keep_alive: Option<Duration>,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Routers may mark packets of congested paths instead of dropping them (RFC 3168).
    pub ecn: bool,
    /// The driver or device takes long packets and segments them ([`crate::Packet::cut`]): TCP segmentation offload.
    /// The stack then sends consecutive segments of new data as one packet.
    pub long_packets: bool,
}

/// The congestion control algorithm of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
}

impl Config {
    /// The usual settings for a host that alone uses this hardware address and these IP addresses.
    pub fn new(mac: Mac, addresses: Vec<IpAddr>) -> Self {
        Self {
            mac,
            addresses,
            owns_addresses: true,
            mtu: 1500,
            stack_id: 0,
            connections_max: 16_384,
            backlog_max: 1024,
            time_wait_max: 16_384,
            receive_window: 1 << 20,
            send_queue: 1 << 20,
            waiting_bytes_max: 32 << 20,
            waiting_frames_max: 16_384,
            waiting_frames_per_connection: 2048,
            set_aside_after: Duration::from_millis(500),
            rto_min: Duration::from_millis(200),
            user_timeout: Duration::from_secs(120),
            keep_alive: Some(Duration::from_secs(300)),
            congestion: CongestionControl::default(),
            ecn: true,
            long_packets: false,
        }
    }
}
