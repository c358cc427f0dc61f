//! Libraries in a virtual machine whose NVDIMM is the region of `landfall fs serve --nvdimm`: what they say to the server by the
//! holder of their mount. There is no such machine here (`cargo xtask vm host --nvdimm` has one): what stands for its device is
//! the region's file, which begins earlier.

mod common;

use common::far::{Far, leaked};
use common::mounts::{END_LIMIT, Site};
use common::{Place, can_mount, has_program, landfall, own_address, pattern, wait_until};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Offset in the region of the first byte of a machine's device.
const BEGIN: u64 = 8192;
/// Codes of answers, and reasons of refusals.
const REFUSED: u64 = 100;
const WELCOME: u64 = 101;
const LEASE: u64 = 102;
const NO_MOUNT: u64 = 13;
/// Bytes of a client in the note of clients.
const PLACE_BYTES: usize = 24;

/// Files of a region in memory, and where their server listens. `None` where there can be no mount, or no library.
fn served(flags: &[&'static str]) -> Option<(Site, SocketAddr)> {
    let place = Place::in_memory().filter(|_| can_mount() && has_program("python3", &["--version"]))?;
    let address = own_address();
    let flags = [&["--listen", leaked(address.to_string())], flags].concat();
    Some((Site::new(place, &flags), address))
}

fn region(site: &Site) -> PathBuf {
    site.place.dir().join("region.lf")
}

/// The mount of a machine.
fn mounted(site: &Site, address: SocketAddr) -> Far {
    Far::mount(&[address], &["--nvdimm", region(site).to_str().unwrap()])
}

/// What a mount's files name as the socket of libraries.
fn socket(far: &Far) -> PathBuf {
    let mut path = [0; 256];
    let len = rustix::fs::lgetxattr(far.point.path(), "landfall.link", &mut path[..]).expect("it is named");
    String::from_utf8(path[..len].to_vec()).unwrap().into()
}

/// A library in a process of its own.
struct Library {
    child: Child,
    said: BufReader<ChildStdout>,
    ask: Option<ChildStdin>,
}

impl Library {
    fn start(socket: &Path, device: u64) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/library.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(socket).arg(device.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let ask = child.stdin.take();
        Self { child, said, ask }
    }

    /// The next answer: its code, its fields, and how many descriptors came with it; empty: there is none.
    fn answer(&mut self) -> Vec<u64> {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    fn acquire(&mut self, inode: u64) -> Vec<u64> {
        writeln!(self.ask.as_mut().unwrap(), "acquire {inode}").unwrap();
        self.answer()
    }

    /// Asks for a lease, and takes no answer.
    fn post(&mut self, inode: u64) {
        writeln!(self.ask.as_mut().unwrap(), "post {inode}").unwrap();
        assert!(self.answer().is_empty());
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many clients the server has noted, and how many leases they have.
fn clients(site: &Site) -> usize {
    let bytes = fs::read(site.place.dir().join("files.sock.clients")).unwrap();
    bytes.chunks(PLACE_BYTES).filter(|place| place.iter().any(|byte| *byte != 0)).count()
}

fn leases(far: &Far) -> u64 {
    let mut page = vec![0; 1 << 16];
    let len = rustix::fs::lgetxattr(far.point.path(), "landfall.metrics", &mut page[..]).unwrap();
    let page = String::from_utf8_lossy(&page[..len]).into_owned();
    let mut lines = page.lines().filter_map(|line| line.strip_prefix("landfall_fs_leases "));
    lines.next().expect("they are counted").parse().unwrap()
}

#[test]
fn a_library_in_a_virtual_machine_shares_the_region_until_its_process_ends() {
    let Some((site, address)) = served(&["--nvdimm"]) else { return };
    let server = site.server();
    let far = mounted(&site, address);
    fs::write(far.at("file"), pattern(1, 10_000)).unwrap();
    let found = fs::metadata(far.at("file")).unwrap();
    let mut library = Library::start(&socket(&far), found.dev());
    let welcome = library.answer();
    let [WELCOME, client, _, BEGIN, control, 2] = welcome[..] else { panic!("{welcome:?}") };
    let mut words = [0; 16];
    File::open(region(&site)).unwrap().read_exact_at(&mut words, BEGIN + control).unwrap();
    assert_eq!(&words[..6], b"LFLINK", "the control memory is in the region");
    assert_eq!(u64::from_le_bytes(words[8..].try_into().unwrap()), client);
    let answer = library.acquire(found.ino());
    assert_eq!((answer[0], leases(&far), clients(&site)), (LEASE, 1, 1), "{answer:?}");
    // What the mount asks takes the lease back, as with a library on the server's machine.
    assert_eq!(fs::read(far.at("file")).unwrap(), pattern(1, 10_000));
    assert_eq!(leases(&far), 0);
    // Some are killed before their answer comes.
    for _ in 0..5 {
        let mut other = Library::start(&socket(&far), found.dev());
        assert_eq!(other.answer()[0], WELCOME);
        other.post(found.ino());
    }
    drop(library);
    wait_until(END_LIMIT, || (clients(&site) == 0).then_some(())).expect("what was granted is used again");
    far.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn a_library_joins_the_next_server_by_the_mount_that_has_stayed() {
    let Some((site, address)) = served(&["--nvdimm"]) else { return };
    let server = site.server();
    let far = mounted(&site, address);
    fs::write(far.at("file"), b"bytes").unwrap();
    let found = fs::metadata(far.at("file")).unwrap();
    let mut library = Library::start(&socket(&far), found.dev());
    assert_eq!(library.answer()[0], WELCOME);
    assert_eq!(library.acquire(found.ino())[0], LEASE);
    server.kill();
    let server = site.server();
    assert_eq!(fs::read(far.at("file")).unwrap(), b"bytes");
    assert!(library.acquire(found.ino()).is_empty(), "its server is gone");
    let mut library = Library::start(&socket(&far), found.dev());
    assert_eq!(library.answer()[0], WELCOME);
    assert_eq!(library.acquire(found.ino())[0], LEASE);
    drop(library);
    far.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn who_may_not_share_the_region_is_refused() {
    let Some((site, address)) = served(&["--nvdimm"]) else { return };
    let server = site.server();
    let far = mounted(&site, address);
    let device = fs::metadata(far.point.path()).unwrap().dev();
    let refused = Library::start(&socket(&far), device + 1).answer();
    assert_eq!(refused[..2], [REFUSED, NO_MOUNT], "it uses another mount");
    far.stop();
    server.stop();
    let Some((site, address)) = served(&[]) else { return };
    let server = site.server();
    let far = mounted(&site, address);
    assert!(Library::start(&socket(&far), device).answer().is_empty(), "the server shares it with nobody");
    far.stop();
    server.stop();
}

#[test]
fn region_that_is_no_nvdimm_is_refused_with_what_to_do() {
    let refused = |dir: &Path, size: &str| {
        let (dir, address) = (dir.to_str().unwrap(), own_address().to_string());
        let flags = ["fs", "serve", "--nvdimm", "--listen", &address, "--size", size, "--dir", dir];
        let output = landfall(&flags);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    // Where the system's temporary files are in memory, cargo's are not.
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let said = refused(on_disk.path(), "64MiB");
    assert!(said.contains("the region is not in memory: give it a directory on tmpfs"), "{said}");
    let Some(place) = Place::in_memory() else { return };
    let said = refused(&place.dir(), "65MiB");
    assert!(said.contains("the size of an NVDIMM is a multiple of 2 MiB"), "{said}");
}
