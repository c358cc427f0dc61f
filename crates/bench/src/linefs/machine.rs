//! A virtual machine that is the host of a server: the server's region is its NVDIMM. `cargo xtask vm image` makes what it boots.

use crate::common::error::BenchError;
use crate::common::peers::{end_of_log, spawn_with_input};
use crate::common::progress::check_stop;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// How long it may take to boot, and to panic: instructions are emulated, on processors that others use.
const LIMIT: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(20);
/// What the machine calls the one outside, of which it reaches the loopback address alone.
const OUTSIDE: &str = "10.0.2.2";
/// What a region's size is a multiple of.
pub(super) const PART_BYTES: u64 = 2 << 20;
/// The machine's other memory, MiB.
const MIB: u64 = 512;
/// What a program in the machine waits between two files that it makes durable, seconds.
const PAUSE: u64 = 1;
/// When a machine that was forgotten ends itself, seconds after its boot.
const END: u64 = 7200;
/// What the machine says when it has mounted, and what its kernel says at its end.
const MOUNTED: &str = "mounted.";
const PANIC: &str = "Kernel panic";

/// A running machine, in which a program makes a file durable now and then. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Machine {
    qemu: Child,
    /// What it says, and what its kernel does.
    console: PathBuf,
    log: PathBuf,
    /// What belongs to it has this path.
    place: PathBuf,
    /// How often it has mounted, and panicked.
    mounts: usize,
    panics: usize,
}

impl Machine {
    /// Boots what is in `image`. It mounts the files of these servers. Its NVDIMM is this region, of so many bytes. What it says
    /// lies beside `place`.
    pub(super) fn start(
        image: &Path,
        (region, bytes): (&Path, u64),
        servers: &[SocketAddr],
        place: &Path,
    ) -> Result<Self, BenchError> {
        let (console, log) = (place.with_extension("console"), place.with_extension("kernel"));
        for file in [&image.join("kernel"), &image.join("initrd")] {
            fs::metadata(file).map_err(BenchError::file(file))?;
        }
        let servers: Vec<String> =
            servers.iter().map(|server| format!("{OUTSIDE}:{}", server.port())).collect();
        let servers = servers.join(",");
        let region = option(region);
        let mut qemu = Command::new("qemu-system-x86_64");
        // An NMI whose reason is unknown is a panic.
        qemu.args(["-M", "q35,nvdimm=on", "-accel", "tcg", "-cpu", "max,cx16=off", "-smp", "1"]);
        qemu.args(["-m", &format!("{MIB}M,slots=2,maxmem={}M", 2 * MIB + (bytes >> 20))]);
        qemu.args([
            "-object",
            &format!("memory-backend-file,id=nv0,share=on,mem-path={region},size={bytes}"),
            "-device",
            "nvdimm,id=nvdimm0,memdev=nv0",
        ]);
        qemu.args(["-display", "none", "-nodefaults", "-monitor", "stdio"]);
        for path in [&console, &log] {
            qemu.args(["-serial", &format!("file:{}", path.display())]);
        }
        qemu.args(["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="]);
        qemu.arg("-kernel").arg(image.join("kernel")).arg("-initrd").arg(image.join("initrd"));
        let arguments = format!("rdinit=/host -- {servers} nvdimm {PAUSE} {END}");
        qemu.args(["-append", &format!("console=ttyS1 quiet panic=0 unknown_nmi_panic {arguments}")]);
        let qemu = spawn_with_input(qemu, place)?;
        let mut machine = Self { qemu, console, log, place: place.into(), mounts: 0, panics: 0 };
        machine.wait_until_mounted()?;
        Ok(machine)
    }

    /// Its kernel panics, in the middle of whatever it does. Then its processors stop: they would only turn.
    pub(super) fn fail(&mut self) -> Result<(), BenchError> {
        self.command("nmi")?;
        self.panics += 1;
        self.wait_for("a virtual machine's panic", |machine| {
            Ok(read(&machine.log)?.matches(PANIC).count() >= machine.panics)
        })?;
        self.command("stop")
    }

    /// Boots it again, and waits until it has mounted.
    pub(super) fn boot(&mut self) -> Result<(), BenchError> {
        self.command("system_reset")?;
        self.command("cont")?;
        self.wait_until_mounted()
    }

    fn wait_until_mounted(&mut self) -> Result<(), BenchError> {
        self.mounts += 1;
        self.wait_for("a virtual machine until it has mounted", |machine| {
            Ok(machine.console.exists()
                && read(&machine.console)?.lines().filter(|line| line.trim() == MOUNTED).count()
                    >= machine.mounts)
        })
    }

    fn wait_for(
        &mut self,
        what: &str,
        is_so: impl Fn(&Self) -> Result<bool, BenchError>,
    ) -> Result<(), BenchError> {
        let began = Instant::now();
        while !is_so(self)? {
            check_stop()?;
            if let Ok(Some(status)) = self.qemu.try_wait() {
                let said = read(&self.console).unwrap_or_default() + &end_of_log(&self.place);
                return Err(BenchError::Client {
                    program: "qemu-system-x86_64",
                    status: status.to_string(),
                    output: said,
                });
            }
            if began.elapsed() > LIMIT {
                return Err(BenchError::TooLong { what: what.into(), seconds: LIMIT.as_secs() });
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    fn command(&mut self, command: &str) -> Result<(), BenchError> {
        let monitor = self.qemu.stdin.as_mut().expect("it was made with one");
        writeln!(monitor, "{command}").map_err(BenchError::file(&self.place))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn read(path: &Path) -> Result<String, BenchError> {
    let bytes = fs::read(path).map_err(BenchError::file(path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A path in an option of QEMU: a comma ends it, two are one.
fn option(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
