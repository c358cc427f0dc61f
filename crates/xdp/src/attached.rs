//! What all programs on interfaces share: a map of sockets, an attachment, and the pin that keeps it.

use crate::bpf::Instruction;
use crate::error::XdpError;
use crate::interface::Interface;
use crate::socket::Socket;
use crate::sys::bpf::{AttachFlags, Attachment, Program, Refused, SocketMap};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::time::Duration;

/// Largest MTU, bytes, whose packets fit into one buffer: a page less the kernel's headroom (256) and its own struct
/// (320), the Ethernet header and a VLAN tag, rounded down. For a larger MTU the program must be loaded with support
/// for several buffers.
const ONE_BUFFER_MTU: u32 = 3400;

/// Attempts to claim a pin, a millisecond apart. The guard of a pin that was released may still be open in a child that
/// another thread has forked, until that child executes its program.
const CLAIM_TRIES_MAX: u32 = 200;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver if it supports that, otherwise in the kernel's generic receive path.
    #[default]
    Auto,
    /// In the driver, before the kernel has done any work on the packet.
    Native,
    /// In the kernel's generic receive path. This works with every driver, `lo` too, but is slower.
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

/// The interface and the mode to attach a program with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) interface: &'a Interface,
    /// Number of queues that may get sockets.
    pub(crate) queues: u32,
    pub(crate) mode: AttachMode,
    pub(crate) pin: Option<&'a Path>,
}

/// A program attached to an interface, and the sockets of its queues. Dropping it detaches the program unless it is
/// pinned.
#[derive(Debug)]
pub(crate) struct Attached {
    sockets: SocketMap,
    attachment: Attachment,
    pinned: bool,
    interface: String,
    queues: u32,
    native: bool,
    /// Packets carry stamps with check words that are XORed with this value; 0: packets carry no stamps.
    cookie: u64,
    /// Shows other processes that the pin is in use.
    _guard: Option<UnixListener>,
}

impl Attached {
    /// Loads the program that `write` builds from the descriptor of the map of sockets, and attaches it. A program that
    /// an ended process has pinned at the same path is replaced.
    pub(crate) fn new(
        place: Place<'_>,
        (name, cookie): ([u8; 16], u64),
        write: impl FnOnce(RawFd) -> Vec<Instruction>,
    ) -> Result<Self, XdpError> {
        let Place { interface, queues, pin, .. } = place;
        interface.check_namespace()?;
        let guard = pin.map(claim).transpose()?;
        let failed = |source| XdpError::from_io(&interface.name, "make a map of sockets", source);
        let sockets = SocketMap::new(queues.max(1)).map_err(failed)?;
        let program = load(interface, name, &write(sockets.fd()))?;
        let (attachment, native) = match pin {
            Some(path) => attach_pinned(place, &program, path)?,
            None => attach(place, &program)?,
        };
        Ok(Self {
            sockets,
            attachment,
            pinned: pin.is_some(),
            interface: interface.name.clone(),
            queues,
            native,
            cookie,
            _guard: guard,
        })
    }

    /// Redirects packets of `queue` to `socket`. If packets carry stamps, the socket expects them.
    pub(crate) fn set_socket(&self, queue: u32, socket: &Socket) -> Result<(), XdpError> {
        if queue >= self.queues {
            let (name, queues) = (self.interface.clone(), self.queues);
            return Err(XdpError::NoSuchQueue { name, queue, queues });
        }
        socket.expect_stamps(self.cookie);
        let set = self.sockets.set(queue, socket.descriptor());
        set.map_err(|source| XdpError::from_io(&self.interface, "steer to a socket", source))
    }

    pub(crate) const fn queues(&self) -> u32 {
        self.queues
    }

    pub(crate) const fn is_native(&self) -> bool {
        self.native
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if !self.pinned {
            // Closing the descriptor detaches too, but only with the last copy of it: a child forked by another thread
            // holds a copy until it executes its program. An interface that was removed has no attachment.
            let _ = self.attachment.detach();
        }
    }
}

/// Detaches the program pinned at `path` and removes the pin; false if there is none.
pub(crate) fn remove_pin(path: &Path) -> Result<bool, XdpError> {
    let Some(attachment) = pinned(path)? else { return Ok(false) };
    // The interface may have been removed, and then there is nothing to detach.
    let _ = attachment.detach();
    std::fs::remove_file(path).map_err(|source| cannot_keep(path, source))?;
    Ok(true)
}

/// A random number, never zero, that bytes of earlier runs do not contain by chance.
pub(crate) fn new_cookie() -> u64 {
    RandomState::new().hash_one(std::process::id()) | 1
}

fn cannot_keep(path: &Path, source: io::Error) -> XdpError {
    XdpError::CannotKeepPin { path: path.to_owned(), source }
}

/// Shows other processes that the pin is in use from now on.
fn claim(pin: &Path) -> Result<UnixListener, XdpError> {
    // The guard is an abstract socket address: only one live process of a network namespace can have it, and the kernel
    // frees it when the process is killed.
    let folder = pin.parent().unwrap_or(pin).canonicalize();
    let name = folder.map(|folder| folder.join(pin.file_name().unwrap_or_default()));
    let address = name.and_then(|name| {
        SocketAddr::from_abstract_name([b"landfall-xdp-", name.as_os_str().as_bytes()].concat())
    });
    let guard = address.and_then(|address| bind(&address));
    guard.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => XdpError::PinInUse { path: pin.to_owned() },
        _ => cannot_keep(pin, source),
    })
}

fn bind(address: &SocketAddr) -> io::Result<UnixListener> {
    for _ in 1..CLAIM_TRIES_MAX {
        match UnixListener::bind_addr(address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(Duration::from_millis(1));
            }
            bound => return bound,
        }
    }
    UnixListener::bind_addr(address)
}

/// The attachment pinned at `path`, if any.
fn pinned(path: &Path) -> Result<Option<Attachment>, XdpError> {
    match Attachment::pinned(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        attachment => attachment.map(Some).map_err(|source| cannot_keep(path, source)),
    }
}

fn load(interface: &Interface, name: [u8; 16], code: &[Instruction]) -> Result<Program, XdpError> {
    const ACTION: &str = "load the steering program";
    let fragments = interface.mtu > ONE_BUFFER_MTU;
    Program::load(name, code, fragments).map_err(|Refused { source, log }| match source.raw_os_error() {
        _ if !log.is_empty() => XdpError::Verifier { source, log },
        Some(libc::EINVAL) => XdpError::KernelLacks { action: ACTION, needs: "XDP of Linux 6.6", source },
        _ => XdpError::from_io(&interface.name, ACTION, source),
    })
}

/// Replaces the program that an ended process has pinned, or attaches the program and pins it.
fn attach_pinned(place: Place<'_>, program: &Program, path: &Path) -> Result<(Attachment, bool), XdpError> {
    let (index, wanted) = (place.interface.index, place.mode.tries()[0]);
    if let Some(old) = pinned(path)?
        && old.ifindex().is_ok_and(|at| at == Some(index))
        && is_taken(index, program, wanted)
        && old.replace(program).is_ok()
    {
        return Ok((old, wanted == AttachFlags::Driver));
    }
    remove_pin(path)?;
    let (attachment, native) = attach(place, program)?;
    if let Err(source) = attachment.pin(path) {
        // As in `Attached::drop`: closing alone may leave the program attached for a moment.
        let _ = attachment.detach();
        return Err(cannot_keep(path, source));
    }
    Ok((attachment, native))
}

/// True if a program is attached in exactly this mode; the kernel returns another error for another mode.
fn is_taken(index: u32, program: &Program, flags: AttachFlags) -> bool {
    let tried = Attachment::new(program, index, flags);
    tried.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Attaches the program; true with the attachment if it runs in the driver.
fn attach(place: Place<'_>, program: &Program) -> Result<(Attachment, bool), XdpError> {
    let mut last = None;
    for flags in place.mode.tries() {
        match Attachment::new(program, place.interface.index, *flags) {
            Ok(attachment) => return Ok((attachment, *flags == AttachFlags::Driver)),
            Err(error) => last = Some((error, *flags)),
        }
    }
    let (source, flags) = last.expect("every mode tries something");
    Err(refusal(place.interface, flags, source))
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
