//! Hosts.

use crate::{Unavailable, sys};
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// A network namespace, gone when the last clone, and the last process and socket in it, are.
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: String,
    namespace: OwnedFd,
    interfaces: AtomicU32,
}

impl Host {
    pub(crate) fn new(name: &str) -> Result<Self, Unavailable> {
        let namespace = sys::new_namespace().map_err(|e| Unavailable::new("network namespaces", e))?;
        let inner = Inner { name: name.to_owned(), namespace, interfaces: AtomicU32::new(0) };
        let host = Self(Arc::new(inner));
        host.ip("link set lo up\n")?;
        Ok(host)
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs `work` on a thread inside the host and returns its result; a panic goes on in the caller.
    /// Sockets opened there stay the host's and may be used from anywhere.
    ///
    /// # Panics
    /// If the namespace cannot be entered, which it could when it was made.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            sys::enter(&self.0.namespace).expect("a namespace that was made can be entered");
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A command that will run inside the host.
    ///
    /// # Panics
    /// If no descriptor is left.
    pub fn command(&self, program: &str) -> Command {
        let namespace = self.0.namespace.try_clone().expect("a descriptor can be copied");
        let mut command = Command::new(program);
        sys::run_inside(&mut command, namespace);
        command
    }

    /// Runs lines of `ip -batch` inside the host.
    ///
    /// # Errors
    /// [`Unavailable`], with what `ip` said.
    pub fn ip(&self, lines: &str) -> Result<(), Unavailable> {
        let failed = |why: &dyn std::fmt::Display| Unavailable::new(format!("ip on {}", self.name()), why);
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        // Dropped at the end of the statement: `ip` sees the end of its input.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(lines.as_bytes()));
        let output = child.wait_with_output().map_err(|e| failed(&e))?;
        if output.status.success() && written.is_ok() {
            return Ok(());
        }
        Err(failed(&format_args!("`{}`: {}", lines.trim(), String::from_utf8_lossy(&output.stderr).trim())))
    }

    /// Has the host compute checksums of what it sends on `interface`: without this, frames to a veth
    /// peer carry partial TCP and UDP checksums, which only a kernel understands.
    ///
    /// # Errors
    /// [`Unavailable`], if the driver refuses.
    pub fn disable_checksum_offload(&self, interface: &str) -> Result<(), Unavailable> {
        self.disable(interface, &[sys::Offload::TransmitChecksum])
    }

    /// Also switches segmentation and receive offloads off: each frame is what would be on a wire.
    ///
    /// # Errors
    /// [`Unavailable`], if the driver refuses.
    pub fn disable_offloads(&self, interface: &str) -> Result<(), Unavailable> {
        use sys::Offload::{Receive, Segmentation, TcpSegmentation, TransmitChecksum};
        self.disable(interface, &[TransmitChecksum, TcpSegmentation, Segmentation, Receive])
    }

    /// Has `interface`, one end of a veth pair, take frames that an XDP program at the other host passes on to its end
    /// (`XDP_TX`, `XDP_REDIRECT`) by switching receive offload on: without this or a program of its own, such frames vanish.
    ///
    /// # Errors
    /// [`Unavailable`], if the driver refuses.
    pub fn accept_redirected(&self, interface: &str) -> Result<(), Unavailable> {
        self.switch(interface, &[sys::Offload::Receive], true)
    }

    fn disable(&self, interface: &str, offloads: &[sys::Offload]) -> Result<(), Unavailable> {
        self.switch(interface, offloads, false)
    }

    fn switch(&self, interface: &str, offloads: &[sys::Offload], on: bool) -> Result<(), Unavailable> {
        let switch_all = || offloads.iter().try_for_each(|offload| sys::switch(interface, *offload, on));
        let failed = |e| Unavailable::new(format!("offloads of {interface} on {}", self.name()), e);
        self.enter(switch_all).map_err(failed)
    }

    /// Keeps the host's kernel from using IPv6 on interfaces that it has or will get: without this, each one
    /// sends router solicitations and multicast reports by itself.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn disable_ipv6(&self) -> Result<(), Unavailable> {
        let paths = ["all", "default"].map(|which| format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"));
        // Without the files the kernel has no IPv6.
        let there = |path: &&String| fs::exists(path).unwrap_or(false);
        let set = || paths.iter().filter(there).try_for_each(|path| fs::write(path, "1"));
        self.enter(set).map_err(|e| Unavailable::new(format!("IPv6 of {}", self.name()), e))
    }

    /// Has connections that the host's kernel makes from now on use this congestion control (RFC 9438's is `cubic`),
    /// whatever this machine's default is.
    ///
    /// # Errors
    /// [`Unavailable`]: the kernel does not know it, or lets namespaces use none but the machine's default and what
    /// the sysctl `net.ipv4.tcp_allowed_congestion_control` names.
    pub fn set_congestion_control(&self, name: &str) -> Result<(), Unavailable> {
        let failed = |e| Unavailable::new(format!("congestion control {name} of {}", self.name()), e);
        self.enter(|| fs::write(CONGESTION_CONTROL, name)).map_err(failed)
    }

    /// The congestion control of connections that the host's kernel makes; nothing where the kernel does not tell.
    pub fn congestion_control(&self) -> String {
        let text = self.enter(|| fs::read_to_string(CONGESTION_CONTROL)).unwrap_or_default();
        text.trim().to_owned()
    }

    /// A name for the host's next interface.
    pub(crate) fn next_interface(&self) -> String {
        format!("eth{}", self.0.interfaces.fetch_add(1, Ordering::Relaxed))
    }

    /// A path that names the namespace to programs started from here.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.namespace.as_raw_fd())
    }
}
