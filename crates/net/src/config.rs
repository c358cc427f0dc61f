//! What a stack is told when it is made. Limits are configuration; none is unbounded.

use core::net::IpAddr;
use std::time::Duration;

/// A hardware address.
pub type Mac = [u8; 6];

/// Settings of a [`crate::Stack`].
#[derive(Clone, Debug)]
pub struct Config {
    /// Our hardware address.
    pub mac: Mac,
    /// Our addresses.
    pub addresses: Vec<IpAddr>,
    /// Answer ARP, neighbour solicitations and echo requests, and refuse unknown ports: the addresses are ours
    /// alone. Otherwise the kernel, with which they are shared, does that.
    pub owns_addresses: bool,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// Distinguishes the connection numbers of several stacks of one process; below 64.
    pub stack_id: u8,
    /// Connections at once.
    pub connections_max: usize,
    /// Half-open connections kept; when there are more, SYNs are answered with cookies.
    pub backlog_max: usize,
    /// Connections in TIME-WAIT kept; the oldest goes first.
    pub time_wait_max: usize,
    /// Largest receive window of a connection, bytes.
    pub receive_window: u32,
    /// Bytes queued for sending at which [`crate::Stack::is_writable`] becomes false.
    pub send_queue: usize,
    /// Bytes that data behind holes may occupy, all connections together. Beyond, the connection that keeps most drops what
    /// is furthest from its hole.
    pub waiting_bytes_max: usize,
    /// Frames that all connections together may hold for applications that are paused.
    pub waiting_frames_max: usize,
    /// Frames that one connection may hold for its application, and pieces behind holes, together.
    pub waiting_frames_per_connection: usize,
    /// Data that waits for a hole to be filled for longer than this is copied out of its frames.
    pub set_aside_after: Duration,
    /// Lower bound of the retransmission timeout. RFC 6298 (2.4) says one second and gives its reason in clock
    /// granularities of its time; 200 ms is what Linux uses.
    pub rto_min: Duration,
    /// A connection ends when sent data are not acknowledged for this long (RFC 9293, 3.8.3).
    pub user_timeout: Duration,
    /// Idle time after which a connection is probed (RFC 9293, 3.8.4); `None`: never.
    pub keep_alive: Option<Duration>,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// Whether packets may be marked by congested routers instead of dropped (RFC 3168).
    pub ecn: bool,
    /// Whether whoever sends packets takes long ones and cuts them ([`crate::Packet::cut`]): TCP segmentation offload.
    /// Consecutive segments of new data then come as one packet.
    pub long_packets: bool,
}

/// Which congestion control connections use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
}

impl Config {
    /// Usual settings for a host with this hardware address and these addresses, which are its own.
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
