//! The host: a machine that mounts and writes, whose kernel panics when it is told to, and which boots again.

use crate::error::Error;
use crate::vm::kernel::Kernel;
use crate::vm::machine::option;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the machine calls the one outside.
const OUTSIDE: &str = "10.0.2.2";
/// Interval at which the console is read.
const POLL: Duration = Duration::from_millis(20);
/// How long a boot, or the next file, may take: instructions are emulated.
const LIMIT: Duration = Duration::from_secs(180);

/// A running machine. It is killed when this is dropped.
pub(super) struct Host {
    qemu: Child,
    console: PathBuf,
}

/// What the host has said on its console since it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// How often it has mounted.
    pub(super) mounts: usize,
    /// What it has seen first of the writes beside it, each time.
    pub(super) sights: Vec<u64>,
    /// The numbers of files that are durable, in the order in which they became so.
    pub(super) durable: Vec<u64>,
    /// How many of them were so when it mounted last.
    pub(super) durable_before: usize,
    /// How often a file could not be made durable at first.
    pub(super) again: usize,
}

impl Host {
    /// Builds the machine. It mounts the files of the servers at these ports of the machine outside. It may have the region of
    /// one as its NVDIMM: a file, and its size in MiB.
    ///
    /// # Errors
    /// [`Error::Environment`] where QEMU cannot be started.
    pub(super) fn start(
        kernel: &Kernel,
        initrd: &Path,
        folder: &Path,
        (servers, nvdimm): (&[SocketAddr], Option<(PathBuf, u64)>),
    ) -> Result<Self, Error> {
        let servers: Vec<String> =
            servers.iter().map(|server| format!("{OUTSIDE}:{}", server.port())).collect();
        let (console, log) = (folder.join("console"), folder.join("host.log"));
        let serial = |path: &Path| format!("file:{}", path.display());
        let output = OpenOptions::new().create(true).append(true).open(folder.join("qemu.log"));
        let output = output.map_err(|source| Error::file("open", folder, source))?;
        let errors = output.try_clone().map_err(|source| Error::file("open", folder, source))?;
        let mut qemu = Command::new("qemu-system-x86_64");
        // As the machine of `machine.rs`. An NMI whose reason is unknown is a panic. A kernel that
        // panics where it stands may not come to boot again by itself, so that it is not asked to.
        qemu.args([
            "-M",
            "q35,nvdimm=on",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,cx16=off",
            "-smp",
            "2",
            "-m",
            "768M,slots=2,maxmem=2G",
        ]);
        let medium = nvdimm.map_or("none", |(file, mib)| {
            let file = option(&file);
            qemu.args([
                "-object",
                &format!("memory-backend-file,id=nv0,share=on,mem-path={file},size={mib}M"),
            ]);
            qemu.args(["-device", "nvdimm,id=nvdimm0,memdev=nv0"]);
            "nvdimm"
        });
        qemu.args(["-display", "none", "-nodefaults", "-monitor", "stdio"]);
        qemu.args(["-serial", &serial(&console), "-serial", &serial(&log)]);
        qemu.args(["-netdev", "user,id=net0", "-device", "virtio-net-pci,netdev=net0,romfile="]);
        qemu.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initrd);
        qemu.args([
            "-append",
            &format!(
                "console=ttyS1 quiet panic=0 unknown_nmi_panic rdinit=/host -- {} {medium}",
                servers.join(",")
            ),
        ]);
        let spawned = qemu.stdin(Stdio::piped()).stdout(output).stderr(errors).spawn();
        let qemu = spawned.map_err(|source| Error::file("start", Path::new("qemu-system-x86_64"), source))?;
        Ok(Self { qemu, console })
    }

    /// Lets its kernel panic, in the middle of whatever it does.
    ///
    /// # Errors
    /// [`Error::Environment`] where QEMU takes no command.
    pub(super) fn panic(&mut self) -> Result<(), Error> {
        self.command("nmi")
    }

    /// Boots it again. QEMU, its network and its connections to the outside stay.
    ///
    /// # Errors
    /// As [`Host::panic`].
    pub(super) fn reset(&mut self) -> Result<(), Error> {
        self.command("system_reset")
    }

    fn command(&mut self, command: &str) -> Result<(), Error> {
        let failed = |source| Error::Environment { attempt: format!("tell QEMU to {command}"), source };
        let monitor = self.qemu.stdin.as_mut().expect("it was made with one");
        writeln!(monitor, "{command}").map_err(failed)
    }

    /// What it has said.
    ///
    /// # Errors
    /// [`Error::Found`] where it has given up, [`Error::Environment`] where the console cannot be read.
    pub(super) fn said(&self) -> Result<Said, Error> {
        let bytes = fs::read(&self.console).map_err(|source| Error::file("read", &self.console, source))?;
        Said::read(&String::from_utf8_lossy(&bytes))
    }

    /// Waits until what it has said is enough. `what` that is stands in the message.
    ///
    /// # Errors
    /// As [`Host::said`]; [`Error::Found`] where it takes too long.
    pub(super) fn wait(&mut self, what: &str, is_enough: impl Fn(&Said) -> bool) -> Result<Said, Error> {
        let until = Instant::now() + LIMIT;
        loop {
            let said = if self.console.exists() { self.said()? } else { Said::default() };
            if is_enough(&said) {
                return Ok(said);
            }
            if let Ok(Some(status)) = self.qemu.try_wait() {
                return Err(Error::Found(format!("the host: {what}: QEMU has ended ({status})")));
            }
            if Instant::now() > until {
                return Err(Error::Found(format!("the host: {what}: not within {} s", LIMIT.as_secs())));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

impl Said {
    /// A line that was cut has no full stop at its end, and says nothing.
    fn read(console: &str) -> Result<Self, Error> {
        let mut said = Self::default();
        for line in console.lines().filter_map(|line| line.trim_end().strip_suffix('.')) {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, rest.parse()) {
                ("mounted", _) => {
                    said.mounts += 1;
                    said.durable_before = said.durable.len();
                }
                ("sees", Ok(number)) => said.sights.push(number),
                ("durable", Ok(number)) => said.durable.push(number),
                ("again", Ok(_)) => said.again += 1,
                ("failed:", _) => return Err(Error::Found(format!("the host: {rest}"))),
                _ => {}
            }
        }
        Ok(said)
    }

    /// How many files have become durable since it has mounted last.
    pub(super) fn new_files(&self) -> usize {
        self.durable.len() - self.durable_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_a_panic_has_cut_says_nothing() {
        let console = "\r\nmounted.\r\nsees 7.\r\ndurable 1.\r\ndurable 12\r\n\r\nmounted.\r\nagain 13.\r\ndurable 13.\r\ndurab";
        let said = Said::read(console).unwrap();
        let expected = Said { mounts: 2, sights: vec![7], durable: vec![1, 13], durable_before: 1, again: 1 };
        assert_eq!((said.new_files(), said), (1, expected));
        let gave_up = Said::read("mounted.\nfailed: file 3.\n").unwrap_err().to_string();
        assert_eq!(gave_up, "the host: file 3");
    }
}
