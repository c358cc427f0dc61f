//! Which hardware address an internet address has, and on which side it is: learnt from what passes.

use super::frame::{Frame, Mac};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Addresses that are remembered; beyond, all are learnt anew.
const NEIGHBOURS_MAX: usize = 8192;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    pub(super) mac: Mac,
    pub(super) side: usize,
}

/// All that are known.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    known: BTreeMap<IpAddr, Neighbour>,
    /// What was learnt last: runs of packets come from one host.
    last: Option<(IpAddr, Neighbour)>,
}

impl Neighbours {
    /// A frame has come in on `side`. It names both ends; where it goes counts until something has come from there.
    pub(super) fn learn(&mut self, frame: &Frame<'_>, side: usize) {
        self.note(frame.from.ip(), Neighbour { mac: frame.source, side });
        self.guess(frame.to.ip(), Neighbour { mac: frame.destination, side: 1 - side });
    }

    /// A frame of the log, which came from the clients' side once.
    pub(super) fn recall(&mut self, frame: &Frame<'_>) {
        self.guess(frame.from.ip(), Neighbour { mac: frame.source, side: super::CLIENTS });
        self.guess(frame.to.ip(), Neighbour { mac: frame.destination, side: super::SERVER });
    }

    fn guess(&mut self, address: IpAddr, neighbour: Neighbour) {
        self.known.entry(address).or_insert(neighbour);
    }

    fn note(&mut self, address: IpAddr, neighbour: Neighbour) {
        if self.last == Some((address, neighbour)) {
            return;
        }
        self.last = Some((address, neighbour));
        if self.known.len() >= NEIGHBOURS_MAX {
            self.known.clear();
        }
        self.known.insert(address, neighbour);
    }

    pub(super) fn find(&self, address: &IpAddr) -> Option<Neighbour> {
        self.known.get(address).copied()
    }
}
