//! A server host and a client host on one link, with the server under test on the first one, over AF_XDP.
//!
//! The client's kernel computes checksums itself, as for a network card without offload: veth otherwise leaves them
//! out.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stderr,
    reason = "each test program uses its part, and says what it skips"
)]

use crate::common::{Place, Refused, Server, binary, wait_until};
use landfall_testbed::{Faults, Host, LinkOptions, Middlebox, PacketSocket, Testbed};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Address of the server host's kernel.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// Address of the client host.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// An address that only the server under test uses.
pub(crate) const OWN: &str = "10.9.0.3/24";
pub(crate) const OWN_V6: &str = "fd09::3/64";
pub(crate) const RESP_PORT: u16 = 6479;
pub(crate) const HTTP_PORT: u16 = 6480;
/// Time limit of expected events, long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The usual link between the hosts.
pub(crate) fn link() -> LinkOptions {
    let addresses = [["10.9.0.1/24", "fd09::1/64"], ["10.9.0.2/24", "fd09::2/64"]];
    LinkOptions { addresses: addresses.map(|of| of.map(str::to_owned).to_vec()), ..LinkOptions::default() }
}

/// Two hosts on one link.
pub(crate) struct Net {
    pub(crate) server: Host,
    pub(crate) client: Host,
    /// Interface of the server host.
    pub(crate) interface: String,
    /// Interface of the client host.
    pub(crate) client_interface: String,
}

impl Net {
    /// Two hosts; `None`, with a message, if they cannot be created here.
    pub(crate) fn new() -> Option<Self> {
        Self::with(&link())
    }

    pub(crate) fn with(options: &LinkOptions) -> Option<Self> {
        let (testbed, server, client) = hosts()?;
        let (interface, client_interface) = testbed.link(&server, &client, options).unwrap();
        client.disable_checksum_offload(&client_interface).unwrap();
        Some(Self { server, client, interface, client_interface })
    }

    /// Two hosts with a device between them.
    pub(crate) fn through(faults: Faults) -> Option<(Self, Middlebox)> {
        let (testbed, server, client) = hosts()?;
        let (middlebox, interface, client_interface) =
            testbed.middlebox(&server, &client, &link(), faults).unwrap();
        Some((Self { server, client, interface, client_interface }, middlebox))
    }

    /// Starts a server with an address of its own.
    pub(crate) fn start(&self, place: &Place, flags: &[&str]) -> Server {
        self.start_at(place, OWN, flags)
    }

    pub(crate) fn start_at(&self, place: &Place, address: &str, flags: &[&str]) -> Server {
        self.must_start(place, &[&["--ip", address], flags].concat())
    }

    /// Starts a server at the address of the host's kernel.
    pub(crate) fn start_shared(&self, place: &Place, flags: &[&str]) -> Server {
        self.must_start(place, flags)
    }

    fn must_start(&self, place: &Place, flags: &[&str]) -> Server {
        self.try_start(place, flags).unwrap_or_else(|why| panic!("the server did not start: {why}"))
    }

    /// Starts a server on this interface with only these flags and a directory.
    pub(crate) fn try_start(&self, place: &Place, flags: &[&str]) -> Result<Server, Refused> {
        self.try_start_on(&self.interface, place, &[&["--insecure-no-password"], flags].concat())
    }

    pub(crate) fn try_start_on(
        &self,
        interface: &str,
        place: &Place,
        flags: &[&str],
    ) -> Result<Server, Refused> {
        let ports = ["--resp", "127.0.0.1:6479", "--http", "127.0.0.1:6480"];
        let ports = if flags.contains(&"--resp") { &ports[2..] } else { &ports[..] };
        let workers = if flags.contains(&"--workers") { &[][..] } else { &["--workers", "1"] };
        let flags = [&["--xdp", interface], ports, workers, flags].concat();
        let command = self.server.command(binary().to_str().unwrap());
        let mut server = place.try_start_by(command, &flags)?;
        server.clients = Some(self.client.clone());
        Ok(server)
    }

    /// A socket for whole frames at the client's end.
    pub(crate) fn frames(&self) -> PacketSocket {
        self.client.enter(|| PacketSocket::open(&self.client_interface)).unwrap()
    }

    /// Hardware addresses of the server's and of the client's interface.
    pub(crate) fn macs(&self) -> [[u8; 6]; 2] {
        [mac(&self.server, &self.interface), mac(&self.client, &self.client_interface)]
    }
}

fn hosts() -> Option<(Testbed, Host, Host)> {
    let testbed = Testbed::new().inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()?;
    let (server, client) = (testbed.host("server").unwrap(), testbed.host("client").unwrap());
    Some((testbed, server, client))
}

/// Reads the hardware address by a program in the host: `ip` knows only the interfaces of its namespace.
fn mac(host: &Host, interface: &str) -> [u8; 6] {
    let output = host.command("ip").args(["-o", "link", "show", interface]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mac = text.split_once("link/ether ").expect("an Ethernet interface").1;
    let bytes: Vec<u8> = mac[..17].split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Address of a server as an `IpAddr`.
pub(crate) fn own() -> IpAddr {
    OWN.split_once('/').unwrap().0.parse().unwrap()
}

/// `LANDFALL_FUZZ_SEED`, or a fixed seed.
pub(crate) fn seed(fixed: u64) -> u64 {
    let given = std::env::var("LANDFALL_FUZZ_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or(fixed)
}

/// A network with all faults: it loses, duplicates, reorders, corrupts and truncates packets.
pub(crate) fn bad(calm: Faults) -> Faults {
    Faults { lose: 100, duplicate: 300, reorder: 500, corrupt: 100, truncate: 100, ..calm }
}

/// Waits until a sample of `/metrics` has the wanted value.
///
/// Counters of the network stack are published periodically: directly after the start they are missing.
pub(crate) fn settles(server: &Server, name: &str, wanted: impl Fn(f64) -> bool) {
    let settled =
        wait_until(PATIENCE, || server.metrics().get(name).copied().filter(|value| wanted(*value)).map(drop));
    assert!(settled.is_some(), "{name} stays {}", server.metric(name));
}

/// A TCP stream from the client's host.
pub(crate) fn stream(server: &Server, to: SocketAddr) -> std::net::TcpStream {
    // Where packets are lost, the kernel gives an address up of which three requests (ARP) were not answered.
    let is_given_up = |error: &std::io::Error| error.kind() == std::io::ErrorKind::HostUnreachable;
    let connect = || server.at_clients(|| std::net::TcpStream::connect_timeout(&to, PATIENCE));
    let connected = wait_until(PATIENCE, || {
        Some(connect()).filter(|connected| !connected.as_ref().is_err_and(is_given_up))
    });
    let stream = connected.expect("its address answers").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// All positions of `needle`.
#[allow(dead_code, reason = "not every test needs it")]
pub(crate) fn positions(hay: &[u8], needle: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some(next) = position(&hay[at..], needle) {
        found.push(at + next);
        at += next + 1;
    }
    found
}

/// The first position of `needle`. The search is by its first byte, because regions are large.
pub(crate) fn position(hay: &[u8], needle: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(next) = hay[at..].iter().position(|byte| *byte == needle[0]) {
        if hay[at + next..].starts_with(needle) {
            return Some(at + next);
        }
        at += next + 1;
    }
    None
}

/// A generator of numbers from a seed (xorshift), so that workloads repeat.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}
