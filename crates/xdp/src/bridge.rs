//! One side of a device on the wire.

use crate::attached::{self, AttachMode, Attached, Place};
use crate::bpf::{self, BridgePlan};
use crate::error::XdpError;
use crate::interface::Interface;
use crate::socket::Socket;
use crate::sys;
use crate::sys::bpf::{Counter, DeviceMap};
use crate::wanted::Wanted;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The bridge program on an interface. Received UDP packets of some ports (and, optionally, of some kinds) go to the
/// socket of their queue. Everything else goes to the peer interface within the kernel, or to the kernel itself if
/// there is no peer. While a queue has no socket, all its packets go there, so that traffic continues without this
/// process.
///
/// *UDP packets of some ports* are those over IPv4 (with or without options) or IPv6 (without extension headers) that
/// are unfragmented, complete up to the end of their UDP header and without a VLAN tag, and whose source or destination
/// port is in the range. The first bytes of the payload are its kind ([`crate::Kind`]). The program stamps their
/// arrival ([`crate::Received::stamp_ns`]).
///
/// A device on the wire has two bridges, one for each direction, and sockets over one [`crate::Umem`] on both
/// interfaces: a packet received on one interface is transmitted on the other from the chunk that it lies in. An
/// interface that has a bridge with a peer is promiscuous. The far end of a veth must accept redirected frames
/// (`ethtool -K INTERFACE gro on`, or an XDP program there); otherwise frames to it are lost.
///
/// Dropping the bridge detaches the program, and so interrupts the wire, unless the program is pinned. A pinned program
/// stays when the process ends, even by SIGKILL: the kernel forwards everything until the next start replaces the
/// program.
#[derive(Debug)]
pub struct Bridge {
    attached: Attached,
    /// Counts packets of the ports whose kind is not selected.
    others: Option<Counter>,
    /// Keeps the interface promiscuous.
    _promiscuous: Option<OwnedFd>,
}

impl Bridge {
    /// The ports of PMNet (docs/format/pmnet.md).
    pub const PMNET_PORTS: RangeInclusive<u16> = 51000..=52000;

    /// Attaches a program to `interface` that passes everything but the selected packets to `peer`.
    ///
    /// With `pin`, the attachment is pinned at that path (of at most 90 bytes; each bridge has its own) in a BPF file
    /// system, and the interface stays promiscuous. The program of a process that has ended is replaced; in driver
    /// mode, no packet is missed meanwhile. Processes in different network namespaces must not use one path: neither
    /// can see that the other one runs.
    ///
    /// # Errors
    /// [`XdpError::NoPorts`], [`XdpError::BadPeer`], [`XdpError::NoPrivilege`], [`XdpError::AlreadyAttached`],
    /// [`XdpError::NoNativeXdp`], [`XdpError::MtuForDriver`], [`XdpError::OtherNamespace`], [`XdpError::PinInUse`],
    /// [`XdpError::CannotKeepPin`], [`XdpError::Verifier`], or another error of the kernel.
    pub fn attach(
        interface: &Interface,
        peer: Option<&Interface>,
        wanted: impl Into<Wanted>,
        mode: AttachMode,
        pin: Option<&Path>,
    ) -> Result<Self, XdpError> {
        let Wanted { ports, kinds } = wanted.into();
        let ports = (*ports.start(), *ports.end());
        if ports.0 > ports.1 {
            return Err(XdpError::NoPorts { first: ports.0, last: ports.1 });
        }
        let peer = peer.map(|peer| other_side(interface, peer)).transpose()?;
        let promiscuous = peer.as_ref().map(|_| accept_all(interface, pin.is_some())).transpose()?;
        let cookie = attached::new_cookie();
        let place = Place { interface, queues: interface.queues(), mode, pin };
        let failed = |source| XdpError::from_io(&interface.name, "make a map to count with", source);
        let others = kinds.as_ref().map(|_| Counter::new()).transpose().map_err(failed)?;
        let attached = Attached::new(place, (*b"landfall_bridge\0", cookie), |sockets| {
            let peer = peer.as_ref().map(DeviceMap::fd);
            let kinds = kinds.as_deref().zip(others.as_ref().map(Counter::fd));
            bpf::bridge(BridgePlan { ports, kinds, sockets, peer, cookie })
        })?;
        Ok(Self { attached, others, _promiscuous: promiscuous })
    }

    /// Redirects packets of `queue` to `socket`, which must be bound to that queue, until the socket is dropped. The
    /// socket expects stamps from now on, see [`crate::Steering::set_socket`].
    ///
    /// # Errors
    /// [`XdpError::NoSuchQueue`], or an error of the kernel.
    pub fn set_socket(&self, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        self.attached.set_socket(queue, socket)
    }

    /// Number of packets of the ports that stayed in the kernel since the attachment, because their kind is not
    /// selected.
    pub fn others(&self) -> u64 {
        self.others.as_ref().and_then(|counter| counter.get().ok()).unwrap_or_default()
    }

    /// Number of queues that may have sockets.
    pub const fn queues(&self) -> u32 {
        self.attached.queues()
    }

    /// True if the program runs in the driver.
    pub const fn is_native(&self) -> bool {
        self.attached.is_native()
    }

    /// Detaches the program pinned at `path` and removes the pin; false if there is none. The interface stays
    /// promiscuous.
    ///
    /// # Errors
    /// [`XdpError::CannotKeepPin`].
    pub fn remove_pin(path: &Path) -> Result<bool, XdpError> {
        attached::remove_pin(path)
    }
}

/// A map with `peer` as its entry. The program keeps the map alive.
fn other_side(interface: &Interface, peer: &Interface) -> Result<DeviceMap, XdpError> {
    interface.check_namespace()?;
    peer.check_namespace()?;
    // Packets longer than the MTU of the peer would be lost.
    if peer.index == interface.index || peer.mtu < interface.mtu {
        let (name, mtu) = (interface.name.clone(), interface.mtu);
        return Err(XdpError::BadPeer { name, mtu, peer: peer.name.clone(), peer_mtu: peer.mtu });
    }
    let filled = DeviceMap::new().and_then(|map| map.set(peer.index).map(|()| map));
    filled.map_err(|source| XdpError::from_io(&peer.name, "redirect to the other side", source))
}

/// Makes the interface promiscuous until the result is dropped, or for good.
fn accept_all(interface: &Interface, for_good: bool) -> Result<OwnedFd, XdpError> {
    let kept = if for_good { sys::set_promiscuous(&interface.name) } else { Ok(()) };
    let joined = kept.and_then(|()| sys::join_all(interface.index));
    joined.map_err(|source| XdpError::from_io(&interface.name, "make the interface promiscuous", source))
}
