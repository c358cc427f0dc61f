//! Hosts of a testbed: network namespaces in which tests open sockets, run commands and set up interfaces.

use crate::sys;
use crate::unavailable::Unavailable;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// A network namespace. The kernel removes it once the last clone of this value is dropped and the last process and
/// socket in it have ended.
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

    /// The name of the host, for messages.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Runs `work` on a thread inside the host and returns its result. A panic of `work` is resumed in the caller.
    /// Sockets that `work` opens belong to the host and may be used from any thread.
    ///
    /// # Panics
    /// If the namespace cannot be entered.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let inside = || {
            sys::enter(&self.0.namespace).expect("a namespace that was created can be entered");
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join())
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A command that runs inside the host when it is started.
    ///
    /// # Panics
    /// If the process has no free file descriptor.
    pub fn command(&self, program: &str) -> Command {
        let namespace = self.0.namespace.try_clone().expect("a descriptor can be copied");
        let mut command = Command::new(program);
        sys::run_inside(&mut command, namespace);
        command
    }

    /// Runs lines of `ip -batch` inside the host.
    ///
    /// # Errors
    /// [`Unavailable`], with the error output of `ip`.
    pub fn ip(&self, lines: &str) -> Result<(), Unavailable> {
        let failed = |why: &dyn std::fmt::Display| Unavailable::new(format!("ip on {}", self.name()), why);
        let mut command = self.command("ip");
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        // The pipe is dropped at the end of the statement, so that `ip` reads the end of its input.
        let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(lines.as_bytes()));
        let output = child.wait_with_output().map_err(|e| failed(&e))?;
        if output.status.success() && written.is_ok() {
            return Ok(());
        }
        Err(failed(&format_args!("`{}`: {}", lines.trim(), String::from_utf8_lossy(&output.stderr).trim())))
    }

    /// Makes the host compute the checksums of frames that it sends on `interface`. By default, frames to a veth peer
    /// carry partial TCP and UDP checksums, which only a kernel understands.
    ///
    /// # Errors
    /// [`Unavailable`], if the driver refuses.
    pub fn disable_checksum_offload(&self, interface: &str) -> Result<(), Unavailable> {
        self.disable(interface, &[sys::Offload::TransmitChecksum])
    }

    /// Switches checksum, segmentation and receive offloads off, so that each frame is as it would be on a wire.
    ///
    /// # Errors
    /// [`Unavailable`], if the driver refuses.
    pub fn disable_offloads(&self, interface: &str) -> Result<(), Unavailable> {
        use sys::Offload::{Receive, Segmentation, TcpSegmentation, TransmitChecksum};
        self.disable(interface, &[TransmitChecksum, TcpSegmentation, Segmentation, Receive])
    }

    /// Makes `interface`, one end of a veth pair, accept frames that an XDP program at the other end sends to it
    /// (`XDP_TX`, `XDP_REDIRECT`), by switching receive offload on. Without receive offload or an XDP program of its
    /// own, the interface drops such frames.
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

    /// Disables IPv6 on the host's interfaces, present and future. With IPv6, the kernel sends router solicitations and
    /// multicast reports on each interface by itself.
    ///
    /// # Errors
    /// [`Unavailable`].
    pub fn disable_ipv6(&self) -> Result<(), Unavailable> {
        let paths = ["all", "default"].map(|which| format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"));
        // If the files do not exist, the kernel has no IPv6.
        let exists = |path: &&String| fs::exists(path).unwrap_or(false);
        let set = || paths.iter().filter(exists).try_for_each(|path| fs::write(path, "1"));
        self.enter(set).map_err(|e| Unavailable::new(format!("IPv6 of {}", self.name()), e))
    }

    /// Sets the congestion control of connections that the host's kernel creates from now on, whatever this machine's
    /// default is. The algorithm of RFC 9438 is `cubic`.
    ///
    /// # Errors
    /// [`Unavailable`] if the kernel does not know the algorithm, or does not let namespaces use it: they may use the
    /// machine's default and the algorithms in the sysctl `net.ipv4.tcp_allowed_congestion_control`.
    pub fn set_congestion_control(&self, name: &str) -> Result<(), Unavailable> {
        let failed = |e| Unavailable::new(format!("congestion control {name} of {}", self.name()), e);
        self.enter(|| fs::write(CONGESTION_CONTROL, name)).map_err(failed)
    }

    /// The congestion control of connections that the host's kernel creates. Empty if the kernel does not report it.
    pub fn congestion_control(&self) -> String {
        let text = self.enter(|| fs::read_to_string(CONGESTION_CONTROL)).unwrap_or_default();
        text.trim().to_owned()
    }

    /// The name of the host's next interface.
    pub(crate) fn next_interface(&self) -> String {
        format!("eth{}", self.0.interfaces.fetch_add(1, Ordering::Relaxed))
    }

    /// A path by which programs that this process starts can open the namespace.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.namespace.as_raw_fd())
    }
}
