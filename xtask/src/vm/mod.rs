//! `cargo xtask vm`: the server in a virtual machine with persistent memory, killed repeatedly.
//!
//! Read [`plan`] first: it lists media and networks. `landfall demo` on the host keeps the model, writes over TCP and
//! judges. The server is a script that executes QEMU in its place ([`mod@machine`]), so that killing it kills kernel
//! and server together. What was stored stays in the file behind the emulated NVDIMM, including stores that were never
//! flushed. So this campaign tests ordering, tearing and recovery, but not missing flushes. The simulator tests those.

mod cpio;
mod host;
mod image;
mod kernel;
mod machine;
mod modules;
mod plan;
mod stop;

use crate::args::{Args, Grammar};
use crate::campaign::crash;
use crate::error::Error;
use crate::json::{Json, Members};
use crate::peers::{self, Peer};
use crate::process::{self, Keep};
use crate::workspace::Workspace;
use kernel::Kernel;
use machine::{Machine, address_of};
use plan::{Guest, Medium, Network, guests};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use stop::Stop;

/// The default number of cycles for each guest: some two minutes.
const CYCLES: u64 = 20;
/// The default seed.
const SEED: u64 = 1;
/// The requested capacity of the region. On device-DAX the device decides.
const CAPACITY: &str = "64MiB";
/// Time limit for one cycle: load, kill, boot, check, recover, verify.
const CYCLE_LIMIT: Duration = Duration::from_secs(90);
/// Time limit for asking the binary for its flags.
const HELP_LIMIT: Duration = Duration::from_secs(20);
/// Messages of kernels and servers that indicate a bug.
const COMPLAINTS: &[&str] = &["BUG:", "Oops", "Kernel panic", "Call Trace", "panicked at", "ERROR", "SIGBUS"];
/// Lines of the log: a machine was started, and it started a server.
const BOOT_MARK: &str = "=== boot";
const START_MARK: &str = "=== starting";
/// Maximum number of complaints that are shown.
const COMPLAINTS_SHOWN: usize = 10;

const GRAMMAR: Grammar =
    Grammar { values: &["cycles", "seed", "mode", "transport", "kernel"], switches: &["keep"], words_max: 0 };

/// The programs that build the machine and its first file system.
const TOOLS: &[Peer] = &[
    tool("qemu-system-x86_64", "qemu-system-x86", &["qemu-system-x86_64", "--version"]),
    tool("busybox", "busybox-static", &["busybox", "true"]),
    tool("ndctl", "ndctl", &["ndctl", "--version"]),
    tool("mkfs.ext4", "e2fsprogs", &["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -V"]),
    tool("ip", "iproute2", &["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin ip -V"]),
    tool("ethtool", "ethtool", &["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin ethtool --version"]),
    tool("depmod", "kmod", &["sh", "-c", "PATH=$PATH:/usr/sbin:/sbin depmod --version"]),
    tool("dpkg-deb", "dpkg", &["dpkg-deb", "--version"]),
    tool("xz", "xz-utils", &["xz", "--version"]),
];

const fn tool(name: &'static str, package: &'static str, probe: &'static [&'static str]) -> Peer {
    Peer { name, package, skipped: "virtual machine", probe }
}

/// `cargo xtask vm`, `cargo xtask vm host` and `cargo xtask vm image`.
///
/// # Errors
/// [`Error::Found`] or [`Error::Program`] where a campaign found a broken promise, or where a network was requested
/// that the build does not have.
pub(crate) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Error> {
    let outcome = match line.split_first() {
        Some((word, rest)) if word == "host" => host::command(workspace, rest),
        Some((word, rest)) if word == "image" => image::command(workspace, rest),
        _ => Campaign::read(&GRAMMAR.parse(line)?)?.run(workspace),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(Stop::Skip(why)) => {
            println!("SKIPPED, nothing was tested: {why}");
            Ok(())
        }
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// The kernel of the guests, `given` or Debian's, and the binary that they run, with the programs that both need.
///
/// # Errors
/// [`Stop::Skip`] without a program or a kernel; [`Stop::Failed`] where the binary cannot be built.
fn obtain(workspace: &Workspace, given: Option<&Path>, profile: &[&str]) -> Result<(Kernel, PathBuf), Stop> {
    if let Some(missing) = peers::ensure(TOOLS) {
        return Err(Stop::Skip(missing));
    }
    let kernel = kernel::obtain(&folder(workspace).join("kernel"), given)?;
    println!("  kernel {}", kernel.image.display());
    let binary = PathBuf::from(crash::build(workspace, profile)?);
    Ok((kernel, binary))
}

/// What belongs to these commands is there.
fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("vm")
}

struct Campaign {
    cycles: u64,
    seed: u64,
    guests: Vec<Guest>,
    /// The network was requested by name: a build without it is an error, not a reason to skip.
    insists: bool,
    kernel: Option<PathBuf>,
    keep: bool,
}

impl Campaign {
    fn read(args: &Args) -> Result<Self, Error> {
        let last = |flag| args.list(flag).last().copied();
        let transport = last("transport");
        Ok(Self {
            cycles: args.number("cycles")?.unwrap_or(CYCLES),
            seed: args.number("seed")?.unwrap_or(SEED),
            guests: guests(last("mode"), transport)?,
            insists: transport.is_some_and(|name| name != "all"),
            kernel: last("kernel").map(PathBuf::from),
            keep: args.has("keep"),
        })
    }

    fn run(&self, workspace: &Workspace) -> Result<(), Stop> {
        let (kernel, binary) = obtain(workspace, self.kernel.as_deref(), &[])?;
        let folder = folder(workspace).join(format!("run-{}", std::process::id()));
        let outcome = self.run_in(&folder, &kernel, &binary);
        if self.keep || outcome.is_err() {
            println!("  kept: {}", folder.display());
        } else {
            fs::remove_dir_all(&folder).map_err(|e| Error::file("remove", &folder, e))?;
        }
        outcome
    }

    fn run_in(&self, folder: &Path, kernel: &Kernel, binary: &Path) -> Result<(), Stop> {
        fs::create_dir_all(folder).map_err(|e| Error::file("create", folder, e))?;
        let initrd = folder.join("initrd");
        image::build(kernel, binary, folder, &initrd)?;
        for (medium, network) in &self.guests {
            if let Err(why) = in_build(network, binary)?.and_then(|()| in_kernel(network, kernel)) {
                match self.insists {
                    true => return Err(Error::Found(why).into()),
                    false => println!("\nSKIPPED {} over {}: {why}", medium.name, network.name),
                }
                continue;
            }
            self.run_guest((medium, network), &folder.join(medium.name), kernel, &initrd, binary)?;
        }
        Ok(())
    }

    fn run_guest(
        &self,
        guest: Guest,
        folder: &Path,
        kernel: &Kernel,
        initrd: &Path,
        binary: &Path,
    ) -> Result<(), Stop> {
        let (medium, network) = guest;
        println!("\n{} over {}, {} cycles; {}", medium.name, network.name, self.cycles, self.again(guest));
        let (cycles, seed) = (self.cycles.to_string(), self.seed.to_string());
        let (server, log) = machine(guest, folder, kernel, initrd)?;
        let mut demo = Command::new(binary);
        demo.args(["demo", "--json", "--media", "dax", "--capacity", CAPACITY, "--cycles", &cycles]);
        demo.args(["--seed", &seed, "--server"]).arg(server);
        let limit = CYCLE_LIMIT.saturating_mul(u32::try_from(self.cycles.max(2)).unwrap_or(u32::MAX));
        let report = crash::demonstrate(&mut demo, limit)?;
        served_from(medium, &report)?;
        Ok(quiet(&log)?)
    }

    fn again(&self, (medium, network): Guest) -> String {
        let Self { cycles, seed, .. } = self;
        let (mode, transport) = (medium.name, network.name);
        let kernel = self.kernel.as_ref().map_or_else(String::new, |k| format!(" --kernel {}", k.display()));
        format!(
            "again with: cargo xtask vm --cycles {cycles} --seed {seed} --mode {mode} --transport {transport}{kernel}"
        )
    }
}

/// Writes the machine of a guest, with blank memory. Returns the paths of its script and its log.
fn machine(guest: Guest, folder: &Path, kernel: &Kernel, initrd: &Path) -> Result<(PathBuf, PathBuf), Error> {
    let folder = folder.join(guest.1.name);
    fs::create_dir_all(&folder).map_err(|e| Error::file("create", &folder, e))?;
    let (nvdimm, log, path) = (folder.join("nvdimm"), folder.join("guest.log"), folder.join("start"));
    let blank = File::create(&nvdimm).and_then(|file| file.set_len(u64::from(guest.0.size_mib) << 20));
    blank.map_err(|e| Error::file("create", &nvdimm, e))?;
    let machine = Machine {
        kernel: &kernel.image,
        initrd,
        nvdimm: &nvdimm,
        log: &log,
        address: address_of(std::process::id()),
        guest,
    };
    let written = fs::write(&path, machine.script())
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
    written.map_err(|e| Error::file("write", &path, e))?;
    Ok((path, log))
}

/// Whether the binary supports the network; if not, the message.
fn in_build(network: &Network, binary: &Path) -> Result<Result<(), String>, Error> {
    let Some(flag) = network.flag else { return Ok(Ok(())) };
    let help = process::must(Command::new(binary).args(["serve", "--help"]), Keep::Both, HELP_LIMIT)?.stdout;
    let has = help.split_whitespace().any(|word| word == flag);
    Ok(if has { Ok(()) } else { Err(format!("not in this build: `landfall serve` has no {flag}")) })
}

/// Whether the guest's kernel is new enough for the network; if not, the message.
fn in_kernel(network: &Network, kernel: &Kernel) -> Result<(), String> {
    let ((major, minor), (its_major, its_minor)) = (network.linux, kernel.version());
    if (its_major, its_minor) >= (major, minor) {
        return Ok(());
    }
    Err(format!(
        "it needs Linux {major}.{minor}, and the guest has {its_major}.{its_minor}: give a later one with --kernel"
    ))
}

/// Checks that the server found the medium that the guest was made for, and uses the flush instruction required there.
/// Otherwise the campaign would test nothing.
fn served_from(meant: &Medium, report: &Json) -> Result<(), Error> {
    let found = report.text("medium").unwrap_or("nothing");
    if found.starts_with(meant.kind) && found.ends_with(meant.flush) {
        return Ok(());
    }
    let Medium { kind, flush, .. } = meant;
    Err(Error::Found(format!("the region should have been on `{kind} …{flush}` but was on `{found}`")))
}

/// Checks that neither the guest's kernel nor the server reported a bug, even if it had no visible effect.
fn quiet(log: &Path) -> Result<(), Error> {
    let bytes = fs::read(log).map_err(|e| Error::file("read", log, e))?;
    let text = String::from_utf8_lossy(&bytes);
    let complaints = complaints(&text);
    complaints.iter().take(COMPLAINTS_SHOWN).for_each(|line| println!("  guest: {line}"));
    match complaints.len() {
        0 => Ok(()),
        n => Err(Error::Found(format!("{n} complaints in {}", log.display()))),
    }
}

/// Complaints of boots that started a server. Where the emulator crashed before that, `landfall demo` has tried again,
/// and reports it (`silent_starts`).
fn complaints(log: &str) -> Vec<&str> {
    let boots = log.split(BOOT_MARK).filter(|boot| boot.contains(START_MARK));
    boots.flat_map(str::lines).filter(|line| COMPLAINTS.iter().any(|word| line.contains(word))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn campaign(line: &str) -> Result<Campaign, Error> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Campaign::read(&GRAMMAR.parse(&words)?)
    }

    #[test]
    fn command_to_repeat_a_guest_names_everything_that_was_chosen() {
        let all = campaign("--cycles 3 --seed 9 --kernel k.deb").unwrap();
        let again = all.again(all.guests[1]);
        let words = again.strip_prefix("again with: cargo xtask vm ").unwrap();
        let one = campaign(words).unwrap();
        assert_eq!((one.cycles, one.seed, one.kernel.clone()), (3, 9, Some(PathBuf::from("k.deb"))));
        assert_eq!(one.guests, [all.guests[1]]);
        assert!(one.insists && !all.insists);
    }

    #[test]
    fn region_on_another_medium_is_a_failure() {
        let report = |medium: &str| json::parse(&format!("{{\"medium\": \"{medium}\"}}")).unwrap();
        let fsdax = plan::MEDIA.iter().find(|medium| medium.name == "fsdax").unwrap();
        assert!(served_from(fsdax, &report("fs-dax: survives; flush clwb")).is_ok());
        for other in
            ["file: survives", "fs-dax: survives; flush clflush", "device-dax: survives; flush clwb", ""]
        {
            assert!(served_from(fsdax, &report(other)).is_err(), "{other}");
        }
    }

    #[test]
    fn panics_in_the_guest_are_complaints_and_progress_is_not() {
        let boot = |line: &str| format!("=== boot\n=== starting\n{line}\n");
        for line in ["[    3.1] BUG: unable to handle page fault", "thread 'main' panicked at src/x.rs:1:1"] {
            assert_eq!(complaints(&boot(line)), [line]);
        }
        assert!(complaints(&boot("2026 INFO recovered keys=399 damaged=0")).is_empty());
        let crashed_early = format!("=== boot\n[    2.0] Oops: int3\n{}", boot("ready"));
        assert!(complaints(&crashed_early).is_empty());
    }

    #[test]
    fn kernel_that_is_too_old_for_a_network_is_reported_with_advice() {
        let xdp = plan::NETWORKS.iter().find(|network| network.name == "xdp").unwrap();
        let kernel = |name: &str| Kernel { image: PathBuf::new(), modules: PathBuf::from(name) };
        assert!(in_kernel(xdp, &kernel("6.12.95+deb12-cloud-amd64")).is_ok());
        let why = in_kernel(xdp, &kernel("6.1.0-56-cloud-amd64")).unwrap_err();
        assert!(why.contains("6.6") && why.contains("--kernel"), "{why}");
    }

    #[test]
    fn network_without_a_flag_in_the_binary_is_not_in_the_build() {
        let network = |name| plan::NETWORKS.iter().find(|network| network.name == name).unwrap();
        let echo = Path::new("echo");
        assert!(in_build(network("sockets"), echo).unwrap().is_ok());
        let why = in_build(network("xdp"), echo).unwrap().unwrap_err();
        assert!(why.contains("not in this build") && why.contains("--xdp"), "{why}");
    }
}
