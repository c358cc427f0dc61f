//! Attaching the steering program.

use crate::bpf::{self, Plan};
use crate::sys::bpf::{AttachFlags, Attachment, Program, Refused, SocketMap};
use crate::{Interface, Rules, Socket, XdpError, sys};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

/// Packets of a larger MTU take several buffers, which the program must be loaded for, bytes: a page less
/// the kernel's headroom (256) and its own struct (320), Ethernet header and VLAN tag, rounded down.
const ONE_BUFFER_MTU: u32 = 3400;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver if it can, otherwise in the kernel's generic receive path.
    #[default]
    Auto,
    /// In the driver, before the kernel spends anything on the packet.
    Native,
    /// In the kernel's receive path: works with every driver, `lo` too; slower.
    Skb,
}

impl AttachMode {
    const fn tries(self) -> &'static [AttachFlags] {
        match self {
            Self::Auto => &[AttachFlags::Driver, AttachFlags::Skb],
            Self::Native => &[AttachFlags::Driver],
            Self::Skb => &[AttachFlags::Skb],
        }
    }
}

/// The steering program on an interface: it gives packets that [`Rules`] name to the socket of the queue
/// that they arrive on, or to the kernel while there is none.
///
/// Dropping it detaches the program, unless it was pinned. A pinned program stays when the process ends, even
/// by SIGKILL; with its sockets gone all packets pass to the kernel, until the next start replaces it.
#[derive(Debug)]
pub struct Steering {
    sockets: SocketMap,
    attachment: Attachment,
    pinned: bool,
    interface: String,
    queues: u32,
    native: bool,
    cookie: Option<u64>,
    /// Shows other processes that the pin is in use.
    _guard: Option<UnixListener>,
    /// Have the device accept what is sent to multicast addresses that the kernel does not listen to.
    _memberships: Vec<OwnedFd>,
}

impl Steering {
    /// Attaches a program for `rules` to `interface`, for its queues below `queues`.
    ///
    /// With `pin`, the attachment is pinned at that path (of at most 90 bytes) of a BPF file system; what a
    /// process that has ended pinned there is replaced. Processes in different network namespaces must
    /// not use one path: they do not see that the other one runs.
    ///
    /// # Errors
    /// [`XdpError::TooManyRules`], [`XdpError::BadAddress`], [`XdpError::NoPrivilege`],
    /// [`XdpError::AlreadyAttached`], [`XdpError::NoNativeXdp`], [`XdpError::MtuForDriver`],
    /// [`XdpError::OtherNamespace`], [`XdpError::PinInUse`], [`XdpError::CannotKeepPin`], [`XdpError::Verifier`], or what else the kernel
    /// said.
    pub fn attach(
        interface: &Interface,
        rules: &Rules,
        queues: u32,
        mode: AttachMode,
        pin: Option<&Path>,
    ) -> Result<Self, XdpError> {
        rules.check()?;
        interface.check_namespace()?;
        let guard = pin.map(take_over).transpose()?;
        let failed = |source| XdpError::from_io(&interface.name, "make a map of sockets", source);
        let sockets = SocketMap::new(queues.max(1)).map_err(failed)?;
        let cookie = rules.stamp.then(new_cookie);
        let plan = Plan { rules, sockets: sockets.fd(), cookie };
        let program = load(interface, plan)?;
        let (attachment, native) = attach(interface, &program, mode)?;
        if let Some(path) = pin {
            attachment
                .pin(path)
                .map_err(|source| XdpError::CannotKeepPin { path: path.to_owned(), source })?;
        }
        Ok(Self {
            sockets,
            attachment,
            pinned: pin.is_some(),
            interface: interface.name.clone(),
            queues,
            native,
            cookie,
            _guard: guard,
            _memberships: listen_for_solicitations(interface, rules),
        })
    }

    /// Gives packets of `queue` to `socket`, which must be bound to it, until the socket is dropped.
    ///
    /// If the rules ask for stamps, the socket expects them from now on. A driver without room for them
    /// leaves packets unstamped; so that old bytes are not taken for a stamp, the program writes
    /// it twice: plain, and XORed with a number drawn when it was attached.
    ///
    /// # Errors
    /// [`XdpError::NoSuchQueue`], or what the kernel said.
    pub fn set_socket(&self, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        if queue >= self.queues {
            let (name, queues) = (self.interface.clone(), self.queues);
            return Err(XdpError::NoSuchQueue { name, queue, queues });
        }
        socket.expect_stamps(self.cookie.unwrap_or(0));
        let set = self.sockets.set(queue, socket.descriptor());
        set.map_err(|source| XdpError::from_io(&self.interface, "steer to a socket", source))
    }

    /// True if the program runs in the driver.
    pub const fn is_native(&self) -> bool {
        self.native
    }

    /// Detaches what is pinned at `path` and removes the pin; false if there is none.
    ///
    /// # Errors
    /// [`XdpError::CannotKeepPin`].
    pub fn remove_pin(path: &Path) -> Result<bool, XdpError> {
        let failed = |source| XdpError::CannotKeepPin { path: path.to_owned(), source };
        match Attachment::pinned(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // An interface that is gone has nothing to detach.
            attachment => drop(attachment.map_err(failed)?.detach()),
        }
        std::fs::remove_file(path).map_err(failed)?;
        Ok(true)
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        if !self.pinned {
            // Closing detaches too, but only with the last copy of the descriptor: a child forked by another
            // thread holds one until it executes its program. An interface that is gone is detached.
            let _ = self.attachment.detach();
        }
    }
}

/// Best effort: without it, a device that filters multicast hides solicitations for our addresses.
fn listen_for_solicitations(interface: &Interface, rules: &Rules) -> Vec<OwnedFd> {
    let mac = |address| {
        // RFC 2464, 7: the last four bytes of the multicast address.
        let [.., a, b, c, d] = bpf::solicited_node(address).octets();
        [0x33, 0x33, a, b, c, d]
    };
    let join = |address| sys::join_multicast(interface.index, mac(address)).ok();
    rules.own_v6().into_iter().filter_map(join).collect()
}

/// Removes a stale pin and shows that the path is in use from now on.
fn take_over(pin: &Path) -> Result<UnixListener, XdpError> {
    // An abstract socket address: one live process of a network namespace can have it, and a process that
    // is killed gives it up.
    let folder = pin.parent().unwrap_or(pin).canonicalize();
    let name = folder.map(|folder| folder.join(pin.file_name().unwrap_or_default()));
    let address = name.and_then(|name| {
        SocketAddr::from_abstract_name([b"landfall-xdp-", name.as_os_str().as_bytes()].concat())
    });
    let guard = address.and_then(|address| UnixListener::bind_addr(&address));
    let guard = guard.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => XdpError::PinInUse { path: pin.to_owned() },
        _ => XdpError::CannotKeepPin { path: pin.to_owned(), source },
    })?;
    Steering::remove_pin(pin)?;
    Ok(guard)
}

fn load(interface: &Interface, plan: Plan<'_>) -> Result<Program, XdpError> {
    const ACTION: &str = "load the steering program";
    let fragments = interface.mtu > ONE_BUFFER_MTU;
    Program::load(&bpf::steering(plan), fragments).map_err(|Refused { source, log }| {
        match source.raw_os_error() {
            _ if !log.is_empty() => XdpError::Verifier { source, log },
            Some(libc::EINVAL) => XdpError::KernelLacks { action: ACTION, needs: "XDP of Linux 6.6", source },
            _ => XdpError::from_io(&interface.name, ACTION, source),
        }
    })
}

/// Returns true with an attachment in the driver.
fn attach(
    interface: &Interface,
    program: &Program,
    mode: AttachMode,
) -> Result<(Attachment, bool), XdpError> {
    let mut last = None;
    for flags in mode.tries() {
        match Attachment::new(program, interface.index, *flags) {
            Ok(attachment) => return Ok((attachment, *flags == AttachFlags::Driver)),
            Err(error) => last = Some((error, *flags)),
        }
    }
    let (source, flags) = last.expect("every mode tries something");
    Err(refusal(interface, flags, source))
}

fn refusal(interface: &Interface, flags: AttachFlags, source: io::Error) -> XdpError {
    let (name, mtu) = (interface.name.clone(), interface.mtu);
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => XdpError::AlreadyAttached { name, source },
        Some(libc::EOPNOTSUPP) if flags == AttachFlags::Driver => XdpError::NoNativeXdp { name, source },
        Some(libc::ERANGE) => XdpError::MtuForDriver { name, mtu, source },
        _ => XdpError::from_io(&name, "attach the steering program", source),
    }
}

/// A number that bytes left over from earlier runs do not hold by chance; never zero.
fn new_cookie() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}
