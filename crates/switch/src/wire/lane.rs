//! The sockets of one queue number on both sides of a device.

use landfall_packets::{Departures, Landing};
use landfall_pmnet::device::Side;
use landfall_xdp::Socket;

/// Index of the clients' side in arrays with one element for each side.
pub(super) const CLIENTS: usize = at(Side::Clients);
/// Index of the server's side in arrays with one element for each side.
pub(super) const SERVER: usize = at(Side::Server);

/// Index of a side in arrays with one element for each side.
pub(super) const fn at(side: Side) -> usize {
    match side {
        Side::Clients => 0,
        Side::Server => 1,
    }
}

/// The sockets of one queue number on both sides.
pub(super) struct Lane {
    pub(super) sockets: [Socket; 2],
    pub(super) departures: [Departures; 2],
    pub(super) landing: Landing,
}
