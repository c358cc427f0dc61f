//! The machine: a script that executes QEMU in its place, so that killing the process kills the machine.

use super::plan::Guest;
use std::net::Ipv4Addr;
use std::path::Path;

/// Ports on the host, below the kernel's ephemeral range. The guest's ports are in the fragments of its networks.
const RESP_PORT: u16 = 16_479;
const HTTP_PORT: u16 = 16_480;

/// The configuration of a machine.
#[derive(Debug)]
pub(super) struct Machine<'m> {
    /// The kernel.
    pub(super) kernel: &'m Path,
    /// Its first file system.
    pub(super) initrd: &'m Path,
    /// The file with the NVDIMM's contents. It is kept when the machine is killed.
    pub(super) nvdimm: &'m Path,
    /// The file that the kernel's and the server's messages are appended to.
    pub(super) log: &'m Path,
    /// The host's address for the server.
    pub(super) address: Ipv4Addr,
    /// Medium and network.
    pub(super) guest: Guest,
}

/// An address on loopback for a process id. No two running processes share one, so that ports can be fixed.
pub(super) fn address_of(process: u32) -> Ipv4Addr {
    let [low, middle, high, _] = process.to_le_bytes();
    Ipv4Addr::new(127, 64 | (high & 63), middle, low)
}

impl Machine<'_> {
    /// The script. Its arguments are appended to the guest's `landfall serve`.
    pub(super) fn script(&self) -> String {
        let (medium, network) = self.guest;
        let address = self.address;
        let forward = |port: u16, to: u16| format!("hostfwd=tcp:{address}:{port}-10.0.2.15:{to}");
        let nvdimm = format!("id=nv0,share=on,mem-path={},size={}M", option(self.nvdimm), medium.size_mib);
        let boot = format!("console=ttyS1 quiet panic=-1 -- {} {}", medium.name, network.name);
        let words = [
            // TCG runs wherever QEMU does; nested KVM does not. QEMU 7.2 computes wrong flags for `cmpxchg16b`, which
            // the memory allocator of later kernels uses. Without the instruction they use a fallback.
            format!("-M q35,nvdimm=on,nvdimm-persistence={}", medium.domain),
            "-accel tcg,thread=multi -cpu max,cx16=off -smp 2 -m 768M,slots=2,maxmem=2G".to_owned(),
            "-display none -nodefaults -no-reboot -serial stdio".to_owned(),
            format!("-chardev {}", quoted(&format!("file,id=log,append=on,path={}", option(self.log)))),
            "-serial chardev:log".to_owned(),
            format!("-object {}", quoted(&format!("memory-backend-file,{nvdimm}"))),
            "-device nvdimm,id=nvdimm0,memdev=nv0".to_owned(),
            format!("-netdev user,id=net0,{},{}", forward(RESP_PORT, 6479), forward(HTTP_PORT, 6480)),
            "-device virtio-net-pci,netdev=net0,romfile=".to_owned(),
            format!("-kernel {}", quoted(&self.kernel.display().to_string())),
            format!("-initrd {}", quoted(&self.initrd.display().to_string())),
            format!("-append {}\" $*\"", quoted(&boot)),
        ];
        let log = quoted(&self.log.display().to_string());
        let words = words.join(" \\\n    ");
        format!(
            "#!/bin/sh\n# Flags of `landfall serve`, such as --workers 2, may follow.\n\
             echo '=== boot' >>{log}\necho 'resp: {address}:{RESP_PORT}'\necho 'http: {address}:{HTTP_PORT}'\n\
             exec qemu-system-x86_64 \\\n    {words}\n"
        )
    }
}

/// A shell word.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A path as the value of a QEMU option: commas are doubled.
pub(super) fn option(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::super::plan::guests;
    use super::*;

    #[test]
    fn special_characters_in_paths_reach_qemu_unchanged() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(option(Path::new("a,b")), "a,,b");
    }

    #[test]
    fn addresses_differ_by_process_and_stay_on_loopback() {
        assert_eq!(address_of(0x0001_0203), Ipv4Addr::new(127, 65, 2, 3));
        assert_ne!(address_of(4_194_303), address_of(4_194_302));
    }

    #[test]
    fn script_is_one_that_a_shell_accepts() {
        let path = Path::new("x y");
        for guest in guests(None, None).unwrap() {
            let machine = Machine {
                kernel: path,
                initrd: path,
                nvdimm: path,
                log: path,
                address: address_of(7),
                guest,
            };
            let script = machine.script();
            assert!(script.contains("'console=ttyS1 quiet panic=-1 -- ") && script.contains("'x y'"));
            let mut shell = std::process::Command::new("sh");
            assert!(shell.args(["-n", "-c", &script]).status().unwrap().success(), "{script}");
        }
    }
}
