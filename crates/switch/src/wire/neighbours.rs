//! The neighbour table: which hardware address an internet address has on each side. It is learnt from packets.
//!
//! Each side is learnt separately. A packet that arrives on the clients' side with a server's source address does not
//! change the destination of packets to that server.

use super::frame::{Frame, Mac};
use landfall_pmnet::Flow;
use landfall_pmnet::device::Side;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Most addresses of one side. When the table of a side is full, it is cleared and learnt anew.
const NEIGHBOURS_MAX: usize = 4096;

/// The addresses of one side.
#[derive(Debug, Default)]
struct OneSide {
    known: BTreeMap<IpAddr, Mac>,
    /// The pair that was learnt last, because consecutive packets often come from one host.
    last: Option<(IpAddr, Mac)>,
}

impl OneSide {
    /// Learns the source of a packet.
    fn note(&mut self, address: IpAddr, mac: Mac) {
        if self.last != Some((address, mac)) {
            self.last = Some((address, mac));
            self.put(address, mac);
        }
    }

    /// Learns the destination of a packet. It holds until a packet from that address arrives.
    fn guess(&mut self, address: IpAddr, mac: Mac) {
        if !self.known.contains_key(&address) {
            self.put(address, mac);
        }
    }

    fn put(&mut self, address: IpAddr, mac: Mac) {
        if self.known.len() >= NEIGHBOURS_MAX {
            self.known.clear();
        }
        self.known.insert(address, mac);
    }
}

/// The addresses of both sides.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    clients: OneSide,
    servers: OneSide,
}

impl Neighbours {
    fn at(&mut self, side: Side) -> &mut OneSide {
        match side {
            Side::Clients => &mut self.clients,
            Side::Server => &mut self.servers,
        }
    }

    /// Learns both ends of a frame that has arrived on `side`.
    pub(super) fn learn(&mut self, frame: &Frame<'_>, side: Side) {
        self.at(side).note(frame.from.ip(), frame.source);
        self.at(side.across()).guess(frame.to.ip(), frame.destination);
    }

    /// Learns both ends of a frame in the log, which arrived on the clients' side in the past.
    pub(super) fn recall(&mut self, flow: Flow, (source, destination): (Mac, Mac)) {
        self.clients.guess(flow.client.ip(), source);
        self.servers.guess(flow.server.ip(), destination);
    }

    /// The hardware address of an internet address on `side`.
    pub(super) fn find(&self, side: Side, address: &IpAddr) -> Option<Mac> {
        let known = match side {
            Side::Clients => &self.clients.known,
            Side::Server => &self.servers.known,
        };
        known.get(address).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    const CLIENT: &str = "10.0.0.1:40000";
    const SERVER: &str = "10.0.0.2:51000";

    fn pass(neighbours: &mut Neighbours, side: Side, macs: (u8, u8), (from, to): (&str, &str)) {
        let macs = ([macs.0; 6], [macs.1; 6]);
        let bytes = frame::make(macs, from.parse().unwrap(), to.parse().unwrap(), b"").unwrap();
        neighbours.learn(&Frame::parse(&bytes).unwrap(), side);
    }

    #[test]
    fn a_servers_address_is_not_learnt_from_the_clients_side() {
        let server: IpAddr = "10.0.0.2".parse().unwrap();
        let mut neighbours = Neighbours::default();
        pass(&mut neighbours, Side::Clients, (1, 3), (CLIENT, SERVER));
        assert_eq!(neighbours.find(Side::Server, &server), Some([3; 6]), "the destination that clients use");
        pass(&mut neighbours, Side::Server, (2, 1), (SERVER, CLIENT));
        assert_eq!(neighbours.find(Side::Server, &server), Some([2; 6]));
        pass(&mut neighbours, Side::Clients, (9, 1), (SERVER, CLIENT));
        assert_eq!(neighbours.find(Side::Server, &server), Some([2; 6]));
    }
}
