//! Hardware addresses of neighbours: ARP (RFC 826) and what neighbour discovery (RFC 4861) shares with it.
//!
//! Connections that peers open need no resolution: replies go to the hardware address that the request came from. The
//! stack asks for a neighbour only to open a connection or to send a datagram first.

use crate::config::Mac;
use crate::event::ConnId;
use crate::time::Instant;
use core::net::IpAddr;
use std::collections::BTreeMap;
use std::time::Duration;

/// Neighbours remembered, and neighbours asked for at once, at most.
const KNOWN_MAX: usize = 4096;
/// How long a resolved address is used to open connections.
const FRESH: Duration = Duration::from_secs(60);
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    /// Hardware addresses that the stack asked for, and when the last answer arrived.
    pub(super) known: BTreeMap<IpAddr, (Mac, Instant)>,
    /// Hardware addresses that datagrams came from; replies to them go there.
    pub(super) senders: BTreeMap<IpAddr, Mac>,
    pub(super) asked: BTreeMap<IpAddr, Asked>,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) waiting: Vec<ConnId>,
    pub(super) again: Instant,
    pub(super) tries: u32,
}

impl Neighbours {
    /// Hardware address for a datagram to `address`.
    pub(super) fn get(&self, address: IpAddr) -> Option<Mac> {
        let known = || self.known.get(&address).map(|(mac, _)| *mac);
        self.senders.get(&address).copied().or_else(known)
    }

    /// Notes the sender of a datagram. Connections are not opened by this address, because it may be forged.
    pub(super) fn note_sender(&mut self, address: IpAddr, mac: Mac) {
        if self.senders.len() >= KNOWN_MAX && !self.senders.contains_key(&address) {
            self.senders.pop_first();
        }
        self.senders.insert(address, mac);
    }

    /// The resolved hardware address, unless it is so old that it may have changed (RFC 1122, 2.3.2.1).
    pub(super) fn fresh(&self, now: Instant, address: IpAddr) -> Option<Mac> {
        self.known.get(&address).filter(|(_, answered)| now.since(*answered) < FRESH).map(|(mac, _)| *mac)
    }

    pub(super) fn learn(&mut self, now: Instant, address: IpAddr, mac: Mac) {
        if self.known.len() >= KNOWN_MAX && !self.known.contains_key(&address) {
            self.known.pop_first();
        }
        self.known.insert(address, (mac, now));
    }

    /// Lets a connection wait for an answer; true if a request has to be sent.
    pub(super) fn wait(&mut self, address: IpAddr, conn: ConnId) -> bool {
        let new = !self.asked.contains_key(&address);
        let asked = Asked { waiting: Vec::new(), again: Instant::default(), tries: 0 };
        self.asked.entry(address).or_insert(asked).waiting.push(conn);
        new
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.again).min()
    }
}
