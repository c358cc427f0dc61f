//! Attaches the steering program to an interface.

use crate::attached::{self, AttachMode, Attached, Place};
use crate::bpf::{self, Plan};
use crate::error::XdpError;
use crate::interface::Interface;
use crate::rules::Rules;
use crate::socket::Socket;
use crate::sys;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The steering program on an interface. It redirects packets that [`Rules`] select to the socket of the queue that
/// they arrive on, or passes them to the kernel while there is no socket.
///
/// Dropping this detaches the program, unless it is pinned. A pinned program stays when the process ends, even by
/// SIGKILL. Its sockets are then closed, so all packets pass to the kernel until the next start replaces the program.
#[derive(Debug)]
pub struct Steering {
    attached: Attached,
    /// Make the device accept packets to multicast addresses that the kernel has not joined.
    _memberships: Vec<OwnedFd>,
}

impl Steering {
    /// Attaches a program for `rules` to `interface`, for its queues below `queues`.
    ///
    /// With `pin`, the attachment is pinned at that path (of at most 90 bytes) in a BPF file system, and replaces what
    /// a process that has ended pinned there. Processes in different network namespaces must not use one path: neither
    /// can see that the other one runs.
    ///
    /// # Errors
    /// [`XdpError::TooManyRules`], [`XdpError::BadAddress`], [`XdpError::NoPrivilege`],
    /// [`XdpError::AlreadyAttached`], [`XdpError::NoNativeXdp`], [`XdpError::MtuForDriver`],
    /// [`XdpError::OtherNamespace`], [`XdpError::PinInUse`], [`XdpError::CannotKeepPin`], [`XdpError::Verifier`], or
    /// another error of the kernel.
    pub fn attach(
        interface: &Interface,
        rules: &Rules,
        queues: u32,
        mode: AttachMode,
        pin: Option<&Path>,
    ) -> Result<Self, XdpError> {
        rules.check()?;
        let cookie = rules.stamp.then(attached::new_cookie);
        let place = Place { interface, queues, mode, pin };
        let name = *b"landfall_steer\0\0";
        let attached = Attached::new(place, (name, cookie.unwrap_or(0)), |sockets| {
            bpf::steering(Plan { rules, sockets, cookie })
        })?;
        Ok(Self { attached, _memberships: listen_for_solicitations(interface, rules) })
    }

    /// Redirects packets of `queue` to `socket`, which must be bound to that queue, until the socket is dropped.
    ///
    /// If the rules ask for stamps, the socket expects them from now on. A driver without room for stamps leaves
    /// packets unstamped. So that other bytes are not taken for a stamp, the program writes the stamp twice: plain, and
    /// XORed with a number that was drawn at the attachment.
    ///
    /// # Errors
    /// [`XdpError::NoSuchQueue`], or an error of the kernel.
    pub fn set_socket(&self, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        self.attached.set_socket(queue, socket)
    }

    /// True if the program runs in the driver.
    pub const fn is_native(&self) -> bool {
        self.attached.is_native()
    }

    /// Detaches the program pinned at `path` and removes the pin; false if there is none.
    ///
    /// # Errors
    /// [`XdpError::CannotKeepPin`].
    pub fn remove_pin(path: &Path) -> Result<bool, XdpError> {
        attached::remove_pin(path)
    }
}

/// Best effort: without this, a device that filters multicast drops solicitations for the own addresses.
fn listen_for_solicitations(interface: &Interface, rules: &Rules) -> Vec<OwnedFd> {
    let mac = |address| {
        // RFC 2464, 7: the last four bytes of the multicast address.
        let [.., a, b, c, d] = bpf::solicited_node(address).octets();
        [0x33, 0x33, a, b, c, d]
    };
    let join = |address| sys::join_multicast(interface.index, mac(address)).ok();
    rules.own_v6().into_iter().filter_map(join).collect()
}
