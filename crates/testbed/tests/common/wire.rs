//! Three hosts for the tests of a device on the wire: client, device and server in a row.

use super::PATIENCE;
use landfall_testbed::{Host, LinkOptions, Testbed};
use landfall_xdp::{AttachMode, Bridge, Interface, XdpError};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub const CLIENT6: &str = "fd09::1";
pub const SERVER6: &str = "fd09::2";
/// One of PMNet's ports.
pub const PORT: u16 = 51000;

/// Three hosts in a row, one subnet.
pub struct Wire {
    pub client: Host,
    pub device: Host,
    pub server: Host,
    /// The device's interfaces, towards the client and towards the server.
    pub sides: [Interface; 2],
    /// The client's interface and the server's.
    pub ends: [Interface; 2],
}

impl Wire {
    pub fn new(testbed: &Testbed) -> Self {
        let [client, device, server] = ["client", "device", "server"].map(|name| testbed.host(name).unwrap());
        // The device's kernel must send nothing of its own.
        device.disable_ipv6().unwrap();
        let (left, left_end) = join(testbed, &device, &client, [CLIENT.to_string().as_str(), CLIENT6]);
        let (right, right_end) = join(testbed, &device, &server, [SERVER.to_string().as_str(), SERVER6]);
        Self { client, device, server, sides: [left, right], ends: [left_end, right_end] }
    }

    pub fn bridge(&self, side: usize, pin: Option<&Path>) -> Result<Bridge, XdpError> {
        let (here, there) = (&self.sides[side], &self.sides[1 - side]);
        let ports = Bridge::PMNET_PORTS;
        self.device.enter(|| Bridge::attach(here, Some(there), ports, AttachMode::Auto, pin))
    }

    pub fn bridges(&self) -> [Bridge; 2] {
        [0, 1].map(|side| self.bridge(side, None).unwrap())
    }

    pub fn udp(&self, host: &Host, address: impl Into<SocketAddr>) -> UdpSocket {
        let address = address.into();
        let socket = host.enter(|| UdpSocket::bind(address)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// A UDP socket of the client, and one of the server on a port of PMNet.
    pub fn udp_sockets(&self) -> [UdpSocket; 2] {
        [self.udp(&self.client, (CLIENT, 40_000)), self.udp(&self.server, (SERVER, PORT))]
    }
}

/// Links the device to another host, which gets the addresses. Returns the interface of each.
fn join(testbed: &Testbed, device: &Host, end: &Host, addresses: [&str; 2]) -> (Interface, Interface) {
    let addresses = [format!("{}/24", addresses[0]), format!("{}/64", addresses[1])].to_vec();
    let addresses = [Vec::new(), addresses];
    let options = LinkOptions { addresses, checksum_offload: false, ..LinkOptions::default() };
    let (here, there) = testbed.link(device, end, &options).unwrap();
    end.accept_redirected(&there).unwrap();
    (device.enter(|| Interface::find(&here)).unwrap(), end.enter(|| Interface::find(&there)).unwrap())
}
