//! Connections to servers by names, which may have several addresses.

use landfall_chain_io::ClientAddress;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Connects to a server at the first of its addresses where it can be reached. If there is none, the error is that of the
/// last one.
pub(super) fn reach<C>(
    server: &ClientAddress,
    connect: impl FnMut(SocketAddr) -> io::Result<C>,
) -> io::Result<C> {
    reach_any((server.host.as_str(), server.port).to_socket_addrs()?, connect)
}

fn reach_any<C>(
    addresses: impl Iterator<Item = SocketAddr>,
    mut connect: impl FnMut(SocketAddr) -> io::Result<C>,
) -> io::Result<C> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for address in addresses {
        outcome = connect(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(ports: &[u16], is_there: impl Fn(u16) -> bool) -> (Vec<u16>, Result<u16, io::ErrorKind>) {
        let mut tried = Vec::new();
        let connect = |address: SocketAddr| -> io::Result<u16> {
            tried.push(address.port());
            if is_there(address.port()) { Ok(address.port()) } else { Err(io::ErrorKind::TimedOut.into()) }
        };
        let addresses = ports.iter().map(|port| SocketAddr::from(([10, 0, 0, 1], *port)));
        let outcome = reach_any(addresses, connect).map_err(|error| error.kind());
        (tried, outcome)
    }

    #[test]
    fn addresses_are_tried_in_turn_until_one_is_reached() {
        assert_eq!(reached(&[1, 2, 3, 4], |port| port >= 3), (vec![1, 2, 3], Ok(3)));
        assert_eq!(reached(&[1, 2], |_| false), (vec![1, 2], Err(io::ErrorKind::TimedOut)));
        assert_eq!(reached(&[], |_| true), (vec![], Err(io::ErrorKind::NotFound)));
    }
}
