//! The wire between client and server: two hosts on this machine, joined by a veth pair.

use crate::common::error::BenchError;
use crate::common::progress::say;
use landfall_testbed::{Faults, Host, LinkOptions, LossyWire, Middlebox, Testbed};
use std::net::{IpAddr, Ipv4Addr};

/// The server's kernel.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The client.
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The server's own stack.
const OWN: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
/// The congestion control of our own stack, and of Linux unless it was configured otherwise.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";
/// How a machine's hosts may use it.
pub(crate) const ALLOW: &str = "sysctl net.ipv4.tcp_allowed_congestion_control=\"reno cubic\"";
/// Seed of the frames that are lost.
const SEED: u64 = 7;

/// The kind of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quality {
    /// As the kernel has it, but for checksums of what the client sends: our own stack needs them whole.
    Plain,
    /// Without segmentation and receive offloads: each frame is what would be on a wire.
    Bare,
    /// Without offloads, and with so many of 10,000 frames lost.
    Lossy(u32),
}

/// Two hosts and what joins them; gone when dropped.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) server: Host,
    pub(crate) client: Host,
    /// The server's interface.
    pub(crate) interface: String,
    pub(crate) mtu: u32,
    // Ends before the hosts.
    _between: Between,
}

/// What stands between the hosts.
#[derive(Debug)]
enum Between {
    Nothing,
    /// In the kernel: no process has to run for it.
    Wire {
        _wire: LossyWire,
    },
    /// Where the kernel is too old for that.
    Device {
        _device: Middlebox,
    },
}

impl Wire {
    pub(crate) fn new(mtu: u32, quality: Quality) -> Result<Self, BenchError> {
        let testbed = Testbed::new()?;
        let (server, client) = (testbed.host("server")?, testbed.host("client")?);
        // Router solicitations would be the only other traffic.
        server.disable_ipv6()?;
        client.disable_ipv6()?;
        // Where that is not allowed, both use the machine's default.
        for host in [&server, &client] {
            let _ = host.set_congestion_control(CONGESTION_CONTROL);
        }
        let mut options = LinkOptions::between(&format!("{CLIENT}/24"), &format!("{SERVER}/24"));
        options.mtu = mtu;
        let (between, client_end, interface) = match quality {
            Quality::Lossy(lose) => match testbed.lossy_wire(&client, &server, &options, lose) {
                Ok((wire, a, b)) => (Between::Wire { _wire: wire }, a, b),
                Err(reason) => {
                    say(format_args!("  frames are lost by a process: {reason}"));
                    let faults = Faults { seed: SEED, lose, queue_frames: 10_000, ..Faults::default() };
                    let (device, a, b) = testbed.middlebox(&client, &server, &options, faults)?;
                    (Between::Device { _device: device }, a, b)
                }
            },
            Quality::Plain | Quality::Bare => {
                let (a, b) = testbed.link(&client, &server, &options)?;
                (Between::Nothing, a, b)
            }
        };
        match quality {
            // Our own stack needs whole checksums in what it receives; what a server sends is its kernel's affair.
            Quality::Plain => client.disable_checksum_offload(&client_end)?,
            Quality::Bare => {
                client.disable_offloads(&client_end)?;
                server.disable_offloads(&interface)?;
            }
            // Whatever stands between has seen to that.
            Quality::Lossy(_) => {}
        }
        Ok(Self { server, client, interface, mtu, _between: between })
    }

    /// What the kernel's TCP uses at both ends.
    pub(crate) fn congestion_control(&self) -> String {
        self.client.congestion_control()
    }

    /// Where the kernel's TCP serves.
    pub(crate) fn kernel_address() -> IpAddr {
        SERVER.into()
    }

    /// Where our own TCP serves.
    pub(crate) fn own_address() -> IpAddr {
        OWN.into()
    }
}
