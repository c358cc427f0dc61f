//! The way from the client to the server: hosts on this machine, in a row, and others beside them for replicas.

use crate::error::BenchError;
use landfall_testbed::{Host, LinkOptions, Testbed};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
/// PMNet's own port at the server.
pub(crate) const PMNET_PORT: u16 = 51000;
/// Of plain servers: a device forwards what goes there in the kernel.
pub(crate) const PLAIN_PORT: u16 = 40000;
/// Of loggers.
pub(crate) const LOGGER_PORT: u16 = 40001;
/// Of replicas.
pub(crate) const REPLICA_PORT: u16 = 40002;
/// Of servers that speak RESP.
pub(crate) const RESP_PORT: u16 = 7001;

/// A host between two others.
#[derive(Debug)]
pub(crate) struct Between {
    pub(crate) host: Host,
    /// Its interface towards the clients.
    pub(crate) clients: String,
    /// Its interface towards the server.
    pub(crate) server: String,
}

/// Client, devices and server in a row; gone when dropped.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) client: Host,
    pub(crate) server: Host,
    pub(crate) devices: Vec<Between>,
    /// Two hosts beside the client, or the server, and their addresses.
    pub(crate) replicas: Vec<(Host, SocketAddr)>,
}

/// Whose replicas there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nobody,
    Client,
    Server,
}

impl Course {
    pub(crate) fn new(devices: u8, beside: Beside) -> Result<Self, BenchError> {
        let testbed = Testbed::new()?;
        let (client, server) = (testbed.host("client")?, testbed.host("server")?);
        client.disable_ipv6()?;
        server.disable_ipv6()?;
        let addresses = [vec![format!("{CLIENT}/24")], vec![format!("{SERVER}/24")]];
        let (between, ends) = row(&testbed, &client, &server, devices, addresses)?;
        for (host, end) in [(&client, &ends[0]), (&server, &ends[1])] {
            // A device verifies checksums, and what its programs redirect must be taken at the ends.
            host.disable_checksum_offload(end)?;
            host.accept_redirected(end)?;
        }
        let replicas = match beside {
            Beside::Nobody => Vec::new(),
            Beside::Client => neighbours(&testbed, &client, 89)?,
            Beside::Server => neighbours(&testbed, &server, 90)?,
        };
        Ok(Self { client, server, devices: between, replicas })
    }

    /// A port of the server, as the client sees it.
    pub(crate) fn at_server(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(SERVER), port)
    }

    /// A port of the client's own host.
    pub(crate) fn at_client(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(CLIENT), port)
    }
}

/// Links hosts in a row. The devices, and the interfaces of the client and the server.
fn row(
    testbed: &Testbed,
    client: &Host,
    server: &Host,
    devices: u8,
    [of_client, of_server]: [Vec<String>; 2],
) -> Result<(Vec<Between>, [String; 2]), BenchError> {
    let link = |a: &Host, b: &Host, addresses| {
        testbed.link(a, b, &LinkOptions { addresses, ..LinkOptions::default() })
    };
    let mut hosts = Vec::new();
    for number in 0..devices {
        let host = testbed.host(&format!("device {number}"))?;
        host.disable_ipv6()?;
        hosts.push(host);
    }
    let Some(first) = hosts.first() else {
        let (a, b) = link(client, server, [of_client, of_server])?;
        return Ok((Vec::new(), [a, b]));
    };
    let (client_end, mut towards) = link(client, first, [of_client, Vec::new()])?;
    let mut between = Vec::new();
    for (index, host) in hosts.iter().enumerate() {
        let (next, addresses) =
            hosts.get(index + 1).map_or((server, of_server.clone()), |next| (next, Vec::new()));
        let (here, there) = link(host, next, [Vec::new(), addresses])?;
        let clients = std::mem::replace(&mut towards, there);
        between.push(Between { host: host.clone(), clients, server: here });
    }
    Ok((between, [client_end, towards]))
}

/// Two hosts linked to one, each in a network of its own.
fn neighbours(testbed: &Testbed, of: &Host, net: u8) -> Result<Vec<(Host, SocketAddr)>, BenchError> {
    let mut found = Vec::new();
    for number in 1..=2u8 {
        let host = testbed.host(&format!("replica {number}"))?;
        host.disable_ipv6()?;
        let address = Ipv4Addr::new(10, net, number, 2);
        let options = LinkOptions::between(&format!("10.{net}.{number}.1/24"), &format!("{address}/24"));
        testbed.link(of, &host, &options)?;
        found.push((host, SocketAddr::new(address.into(), REPLICA_PORT)));
    }
    Ok(found)
}
