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
    /// A frame has come in on `side`.
    pub(super) fn learn(&mut self, frame: &Frame<'_>, side: usize) {
        self.note(frame.from.ip(), Neighbour { mac: frame.source, side });
    }

    /// A frame of the log, which came from the clients' side: it names both ends.
    pub(super) fn learn_both(&mut self, frame: &Frame<'_>) {
        for (address, mac, side) in
            [(frame.from.ip(), frame.source, super::CLIENTS), (frame.to.ip(), frame.destination, super::SERVER)]
        {
            self.known.entry(address).or_insert(Neighbour { mac, side });
        }
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
