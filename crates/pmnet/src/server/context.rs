//! The state that all sessions of a server share.

use super::config::{ServerConfig, ServerStats};
use super::trouble::Trouble;
use crate::pieces::{Response, Sizes};
use crate::wire::{Body, Packet};
use core::net::SocketAddr;
use landfall_net::Instant;
use std::collections::VecDeque;

/// Most problems that are queued for the operator. A problem that is dropped here is found again.
const TROUBLES_MAX: usize = 1024;

/// A server's state without its sessions.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: ServerConfig,
    pub(super) sizes: Sizes,
    pub(super) incarnation: u64,
    /// The latest time that the server knows.
    pub(super) now: Instant,
    pub(super) stats: ServerStats,
    /// Bytes of packets that wait for other packets, or for the application.
    pub(super) buffered: usize,
    /// Bytes of stored responses that are longer than one window.
    pub(super) long_bytes: usize,
    /// Problems to report to the operator.
    pub(super) troubles: VecDeque<Trouble>,
    /// Datagrams to be sent.
    out: VecDeque<(SocketAddr, Vec<u8>)>,
    tickets: u64,
    /// Counts the ends of sessions, and so orders them.
    pub(super) touched: u64,
}

impl Context {
    pub(super) fn new(config: ServerConfig, incarnation: u64, now: Instant) -> Self {
        Self {
            sizes: Sizes::new(config.mtu, config.ipv6),
            config,
            incarnation,
            now,
            stats: ServerStats::default(),
            buffered: 0,
            long_bytes: 0,
            troubles: VecDeque::new(),
            out: VecDeque::new(),
            tickets: 0,
            touched: 0,
        }
    }

    pub(super) fn send(&mut self, to: SocketAddr, session: u16, seq: u32, body: Body<'_>) {
        self.send_bytes(to, Packet::new(session, seq, body).to_bytes());
    }

    pub(super) fn send_response(&mut self, to: SocketAddr, session: u16, seq: u32, response: &Response) {
        for bytes in self.sizes.first_window(session, seq, response) {
            self.send_bytes(to, bytes);
        }
    }

    pub(super) fn send_bytes(&mut self, to: SocketAddr, bytes: Vec<u8>) {
        if self.out.len() < self.config.transmits_max {
            self.out.push_back((to, bytes));
        } else {
            self.stats.transmits_dropped += 1;
        }
    }

    pub(super) fn next_datagram(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.out.pop_front()
    }

    /// Whether a packet of `len` bytes may be buffered.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.buffered + len <= self.config.buffered_bytes_max
    }

    pub(super) fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    pub(super) fn report(&mut self, trouble: Trouble) {
        if self.troubles.len() < TROUBLES_MAX {
            self.troubles.push_back(trouble);
        }
    }
}
