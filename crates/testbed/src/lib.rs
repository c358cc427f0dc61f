//! Hosts on one machine: network namespaces joined by veth pairs, for tests of everything below TCP.
//!
//! Read [`Testbed`] first. A testbed needs root (`CAP_NET_ADMIN`, `CAP_SYS_ADMIN`) and the program `ip`. A test on a
//! machine without them prints `SKIP:` with the [`Unavailable`] reason and returns.
//!
//! Namespaces have no names. Only file descriptors refer to them, so that the kernel removes them with all their
//! interfaces when the process ends, also after a crash. No cleanup is needed.
//!
//! ```no_run
//! use landfall_testbed::{LinkOptions, Testbed};
//! use std::net::UdpSocket;
//!
//! let testbed = Testbed::new()?;
//! let (client, server) = (testbed.host("client")?, testbed.host("server")?);
//! let options = LinkOptions::between("10.0.0.1/24", "10.0.0.2/24");
//! let (client_end, _server_end) = testbed.link(&client, &server, &options)?;
//! client.disable_checksum_offload(&client_end)?;
//! let socket = client.enter(|| UdpSocket::bind("10.0.0.1:0"));
//! # Ok::<(), landfall_testbed::Unavailable>(())
//! ```

mod host;
mod link;
mod loopback;
mod lossy;
mod middlebox;
mod switch;
mod sys;
mod unavailable;

pub use host::Host;
pub use link::LinkOptions;
pub use loopback::own_loopback_address;
pub use lossy::LossyWire;
pub use middlebox::{Faults, Middlebox, Tally};
pub use switch::Switch;
pub use sys::{Memory, PacketSocket};
pub use unavailable::Unavailable;

use std::process::Command;

/// Creates hosts and connects them.
#[derive(Debug)]
pub struct Testbed(());

impl Testbed {
    /// Checks whether this machine can create hosts.
    ///
    /// # Errors
    /// [`Unavailable`] without root, network namespaces, veth, or the program `ip`.
    pub fn new() -> Result<Self, Unavailable> {
        sys::new_namespace().map_err(|e| Unavailable::new("network namespaces (root is needed)", e))?;
        let version = Command::new("ip").arg("-V").output();
        version.map_err(|e| Unavailable::new("`ip` (package iproute2)", e))?;
        // This pair shows whether the kernel has veth. It is removed with its namespace.
        Host::new("probe")?.ip("link add probe0 type veth peer name probe1\n")?;
        Ok(Self(()))
    }

    /// Creates a host that is not connected to others. Its loopback interface is up. `name` is for messages.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn host(&self, name: &str) -> Result<Host, Unavailable> {
        Host::new(name)
    }

    /// Connects two hosts by a veth pair, both ends up. Returns the names of the interfaces of `a` and of `b`.
    ///
    /// # Errors
    /// [`Unavailable`], with the error output of `ip`.
    pub fn link(&self, a: &Host, b: &Host, options: &LinkOptions) -> Result<(String, String), Unavailable> {
        link::join(a, b, options)
    }

    /// Connects hosts by a switch, each with its address and prefix length (`10.0.0.1/24`). Frames carry whole checksums.
    ///
    /// # Errors
    /// [`Unavailable`] without bridges in the kernel.
    pub fn switch(&self, hosts: &[(&Host, &str)]) -> Result<Switch, Unavailable> {
        Switch::between(hosts)
    }

    /// Connects two hosts through a middlebox that injects faults into their traffic. Offloads are off at both hosts,
    /// so that the middlebox gets frames as they would be on a wire. Returns the names of the interfaces of `a` and of
    /// `b`.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn middlebox(
        &self,
        a: &Host,
        b: &Host,
        options: &LinkOptions,
        faults: Faults,
    ) -> Result<(Middlebox, String, String), Unavailable> {
        Middlebox::between(a, b, options, faults)
    }

    /// Connects two hosts by a wire that loses `lose` of 10,000 frames in each direction. The kernel drops the frames,
    /// so that the wire is fit for measurements. Offloads are off at both hosts. Returns the names of the interfaces of
    /// `a` and of `b`.
    ///
    /// # Errors
    /// [`Unavailable`] on kernels before Linux 6.6.
    pub fn lossy_wire(
        &self,
        a: &Host,
        b: &Host,
        options: &LinkOptions,
        lose: u32,
    ) -> Result<(LossyWire, String, String), Unavailable> {
        LossyWire::between(a, b, options, lose)
    }
}
