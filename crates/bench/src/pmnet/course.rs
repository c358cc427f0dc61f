//! The way from the client to the server: hosts on this machine, in a row, and others beside them for replicas.

use crate::common::error::BenchError;
use landfall_testbed::{Host, LinkOptions, Testbed};
use landfall_xdp::{AttachMode, Bridge, Interface, Wanted, XdpError};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 88, 0, 2);
/// Second octet of the networks of hosts beside the client, and beside the server.
const BESIDE_CLIENT: u8 = 89;
const BESIDE_SERVER: u8 = 90;
/// PMNet's own port at the server.
pub(crate) const PMNET_PORT: u16 = 51000;
/// The port of plain servers. A device forwards packets to this port in the kernel.
pub(crate) const PLAIN_PORT: u16 = 40000;
/// The port of loggers.
pub(crate) const LOGGER_PORT: u16 = 40001;
/// The port of replicas.
pub(crate) const REPLICA_PORT: u16 = 40002;
/// The port of servers that speak RESP.
pub(crate) const RESP_PORT: u16 = 7001;

/// Where devices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This many devices, each on a host between the client and the server.
    Between(u8),
    /// One device, the server's own network card. A switch in front of it forwards in the kernel, as a device does with
    /// packets that are not PMNet's.
    AtServer,
}

/// A host that a device runs on.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) host: Host,
    /// The device's flag that names its interfaces, and their names.
    pub(crate) interfaces: [String; 2],
}

/// A host between two others, and its interfaces towards the clients and the server.
#[derive(Debug)]
struct Between {
    host: Host,
    clients: String,
    server: String,
}

/// Client, devices and server in a row. Dropping it removes the hosts.
#[derive(Debug)]
pub(crate) struct Course {
    pub(crate) client: Host,
    pub(crate) server: Host,
    pub(crate) devices: Vec<Seat>,
    /// Interfaces of the client and of the server.
    pub(crate) ends: [String; 2],
    /// Forwards on a host without a device.
    _switch: Option<Switch>,
    /// Two hosts beside the client, or the server, and their addresses.
    pub(crate) replicas: Vec<(Host, SocketAddr)>,
}

/// The end of the course whose replicas there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Nobody,
    Client,
    Server,
}

impl Course {
    pub(crate) fn new(place: Place, beside: Beside) -> Result<Self, BenchError> {
        let testbed = Testbed::new()?;
        let (client, server) = (testbed.host("client")?, testbed.host("server")?);
        client.disable_ipv6()?;
        server.disable_ipv6()?;
        let addresses = [vec![format!("{CLIENT}/24")], vec![format!("{SERVER}/24")]];
        let hosts = if let Place::Between(devices) = place { devices } else { 1 };
        let (between, ends) = row(&testbed, &client, &server, hosts, addresses)?;
        for (host, end) in [(&client, &ends[0]), (&server, &ends[1])] {
            // A device verifies checksums, and the ends must accept the packets that its XDP programs redirect.
            host.disable_checksum_offload(end)?;
            host.accept_redirected(end)?;
        }
        let replicas = match beside {
            Beside::Nobody => Vec::new(),
            Beside::Client => neighbours(&testbed, &client, BESIDE_CLIENT)?,
            Beside::Server => neighbours(&testbed, &server, BESIDE_SERVER)?,
        };
        let mut switch = None;
        let devices = match place {
            Place::Between(_) => between.into_iter().map(Seat::between).collect(),
            Place::AtServer => {
                switch = between.into_iter().next().map(Switch::start).transpose()?;
                vec![Seat { host: server.clone(), interfaces: ["--nic".into(), ends[1].clone()] }]
            }
        };
        Ok(Self { client, server, devices, ends, _switch: switch, replicas })
    }

    /// Where a replica beside the server finds the server's redis.
    pub(crate) fn primary_for(replica: u8) -> SocketAddr {
        SocketAddr::new(Ipv4Addr::new(10, BESIDE_SERVER, replica + 1, 1).into(), RESP_PORT)
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

impl Seat {
    fn between(Between { host, clients, server }: Between) -> Self {
        Self { host, interfaces: ["--between".into(), format!("{clients},{server}")] }
    }
}

/// A switch that forwards everything in the kernel. Dropping it ends it.
#[derive(Debug)]
struct Switch {
    _bridges: [Bridge; 2],
    _host: Host,
}

impl Switch {
    fn start(on: Between) -> Result<Self, BenchError> {
        let attach = || -> Result<_, XdpError> {
            let (clients, server) = (Interface::find(&on.clients)?, Interface::find(&on.server)?);
            let forward = |from: &Interface, to| {
                let nothing = Wanted { ports: Bridge::PMNET_PORTS, kinds: Some(Vec::new()) };
                Bridge::attach(from, Some(to), nothing, AttachMode::Auto, None)
            };
            Ok([forward(&clients, &server)?, forward(&server, &clients)?])
        };
        let bridges = on.host.enter(attach).map_err(|error| BenchError::Missing(error.to_string()))?;
        Ok(Self { _bridges: bridges, _host: on.host })
    }
}

/// Links hosts in a row. Returns the devices and the interfaces of the client and the server.
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

/// Links two hosts to one, each in a network of its own.
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
