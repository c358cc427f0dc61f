//! Libraries in a virtual machine whose NVDIMM is the region of `landfall fs serve --nvdimm`, or of a server of a chain: what they
//! say to the server by the holder of their mount. There is no such machine here (`cargo xtask vm host --nvdimm` has one): what
//! stands for its device is a file with the first page of it.

mod common;

use common::chain::Chain;
use common::far::{Far, leaked};
use common::mounts::{END_LIMIT, Site};
use common::{Place, can_mount, has_program, landfall, mount_metric, own_address, pattern, wait_until};
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
const SETTLED: u64 = 105;
/// The lowest number of a client whose operations are executed again.
const FIRST_AGAIN: u64 = 1 << 31;
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

fn region_in(place: &Place) -> PathBuf {
    place.dir().join("region.lf")
}

/// What stands for the device of a machine.
struct Device(tempfile::NamedTempFile);

impl Device {
    fn new() -> Self {
        Self(tempfile::NamedTempFile::new().unwrap())
    }

    /// It is a part of this region, as that is now.
    fn look(&self, place: &Place) {
        let mut page = [0; 4096];
        File::open(region_in(place)).unwrap().read_exact_at(&mut page, BEGIN).unwrap();
        self.0.as_file().write_all_at(&page, 0).unwrap();
    }

    /// The mount of the machine that has this region.
    fn mount(&self, addresses: &[SocketAddr], place: &Place) -> Far {
        let far = Far::mount(addresses, &["--nvdimm", self.0.path().to_str().unwrap()]);
        self.look(place);
        far
    }
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

    /// It ends its connection, and waits until the holder does, too.
    fn leave(&mut self) {
        self.ask = None;
        assert!(self.answer().is_empty());
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
fn clients(place: &Place) -> usize {
    let bytes = fs::read(place.dir().join("files.sock.clients")).unwrap();
    bytes.chunks(PLACE_BYTES).filter(|place| place.iter().any(|byte| *byte != 0)).count()
}

fn leases(far: &Far) -> u64 {
    mount_metric(far.point.path(), "landfall_fs_leases").expect("they are counted")
}

#[test]
fn a_library_in_a_virtual_machine_shares_the_region_until_its_process_ends() {
    let Some((site, address)) = served(&["--nvdimm"]) else { return };
    let server = site.server();
    let device = Device::new();
    let far = device.mount(&[address], &site.place);
    fs::write(far.at("file"), pattern(1, 10_000)).unwrap();
    let found = fs::metadata(far.at("file")).unwrap();
    let mut library = Library::start(&socket(&far), found.dev());
    let welcome = library.answer();
    let [WELCOME, client, _, BEGIN, control, 2] = welcome[..] else { panic!("{welcome:?}") };
    let mut words = [0; 16];
    File::open(region_in(&site.place)).unwrap().read_exact_at(&mut words, BEGIN + control).unwrap();
    assert_eq!(&words[..6], b"LFLINK", "the control memory is in the region");
    assert_eq!(u64::from_le_bytes(words[8..].try_into().unwrap()), client);
    let answer = library.acquire(found.ino());
    assert_eq!((answer[0], leases(&far), clients(&site.place)), (LEASE, 1, 1), "{answer:?}");
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
    wait_until(END_LIMIT, || (clients(&site.place) == 0).then_some(()))
        .expect("what was granted is used again");
    far.stop();
    server.stop();
    assert_eq!(site.place.check(&[]).status.code(), Some(0));
}

#[test]
fn a_library_joins_the_next_server_by_the_mount_that_has_stayed() {
    let Some((site, address)) = served(&["--nvdimm"]) else { return };
    let server = site.server();
    let device = Device::new();
    let far = device.mount(&[address], &site.place);
    // What is lost the kernel has to tell first: nothing is.
    fs::write(far.at("file"), b"bytes").unwrap();
    File::open(far.at("file")).unwrap().sync_all().unwrap();
    let found = fs::metadata(far.at("file")).unwrap();
    let mut library = Library::start(&socket(&far), found.dev());
    assert_eq!(library.answer()[0], WELCOME);
    assert_eq!(library.acquire(found.ino())[0], LEASE);
    server.kill();
    let server = site.server();
    assert_eq!(fs::read(far.at("file")).unwrap(), b"bytes");
    assert!(library.acquire(found.ino()).is_empty(), "its server is gone");
    let refused = Library::start(&socket(&far), found.dev()).answer();
    assert_eq!(refused[..2], [REFUSED, NO_MOUNT], "what is in the device is not the region of that server");
    device.look(&site.place);
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
    let device = Device::new();
    let far = device.mount(&[address], &site.place);
    let st_dev = fs::metadata(far.point.path()).unwrap().dev();
    let refused = Library::start(&socket(&far), st_dev + 1).answer();
    assert_eq!(refused[..2], [REFUSED, NO_MOUNT], "it uses another mount");
    far.stop();
    server.stop();
    let Some((site, address)) = served(&[]) else { return };
    let server = site.server();
    let device = Device::new();
    let far = device.mount(&[address], &site.place);
    let st_dev = fs::metadata(far.point.path()).unwrap().dev();
    assert!(Library::start(&socket(&far), st_dev).answer().is_empty(), "the server shares it with nobody");
    far.stop();
    server.stop();
}

/// A chain whose regions are in memory, each the NVDIMM of a machine, and where its servers listen.
fn chained() -> Option<(Chain, Vec<SocketAddr>)> {
    if !can_mount() || !has_program("python3", &["--version"]) {
        return None;
    }
    drop(Place::in_memory()?);
    let flags = ["--capacity", "96MiB", "--workers", "2", "--nvdimm"];
    let mut chain = Chain::at(3, &flags, || Place::in_memory().expect("there was memory"));
    let addresses = chain.serve_mounts();
    chain.start_all();
    Some((chain, addresses))
}

#[test]
fn libraries_are_those_of_the_server_whose_region_the_machine_has() {
    let Some((mut chain, addresses)) = chained() else { return };
    // Each node has a machine, and both mount at the first one.
    let devices = [Device::new(), Device::new()];
    let fars = [0, 1].map(|node| devices[node].mount(&addresses, &chain.nodes[node].place));
    let file = File::create(fars[0].at("file")).unwrap();
    file.write_all_at(&pattern(1, 10_000), 0).unwrap();
    file.sync_all().unwrap();
    let inode = file.metadata().unwrap().ino();
    let start = |far: &Far| Library::start(&socket(far), fs::metadata(far.point.path()).unwrap().dev());
    assert_eq!(start(&fars[1]).answer()[..2], [REFUSED, NO_MOUNT], "that is the other one's region");
    let mut library = start(&fars[0]);
    let welcome = library.answer();
    assert!(welcome[0] == WELCOME && welcome[1] >= FIRST_AGAIN, "{welcome:?}");
    assert_eq!(library.acquire(inode)[0], LEASE);
    assert_eq!(start(&fars[1]).answer()[..2], [REFUSED, NO_MOUNT]);
    assert_eq!(library.acquire(inode)[0], LEASE, "what the other machine asks ends nobody");
    let removed = chain.remove_later(0);
    chain.kill(0);
    removed();
    chain.wait_until_in_step();
    // The mounts have followed. What the machine of the first server has shared is not in this one's region.
    assert_eq!(fs::read(fars[0].at("file")).unwrap(), pattern(1, 10_000));
    assert_eq!(fs::read(fars[1].at("file")).unwrap(), pattern(1, 10_000));
    assert!(library.acquire(inode).is_empty(), "its server is gone");
    assert_eq!(start(&fars[0]).answer()[..2], [REFUSED, NO_MOUNT]);
    devices[1].look(&chain.nodes[1].place);
    let mut library = start(&fars[1]);
    let welcome = library.answer();
    assert!(welcome[0] == WELCOME && welcome[1] >= FIRST_AGAIN, "{welcome:?}");
    assert_eq!(library.acquire(inode)[0], LEASE);
    drop((library, file));
    fars.into_iter().for_each(Far::stop);
    chain.end(&[1, 2]);
}

#[test]
fn a_library_is_told_that_its_server_has_ended_in_good_order() {
    let Some((mut chain, addresses)) = chained() else { return };
    let device = Device::new();
    let far = device.mount(&addresses, &chain.nodes[0].place);
    let found = fs::metadata(far.point.path()).unwrap();
    let file = File::create(far.at("file")).unwrap();
    let inode = file.metadata().unwrap().ino();
    let start = || {
        let mut library = Library::start(&socket(&far), found.dev());
        assert_eq!(library.answer()[0], WELCOME);
        library
    };
    let mut library = start();
    assert_eq!(library.acquire(inode)[0], LEASE);
    let next = chain.stand_by(0);
    assert!(chain.take(0).stop().success());
    let words = chain.words();
    assert!(!words.contains("not served any more"), "whoever stops it knows that: {words}");
    assert_eq!(library.acquire(inode), [SETTLED, 0], "its last word");
    assert!(library.acquire(inode).is_empty());
    chain.put(0, next.start().unwrap_or_else(|why| panic!("{why}")));
    file.sync_all().expect("nothing is lost");
    device.look(&chain.nodes[0].place);
    let mut library = start();
    let next = chain.stand_by(0);
    chain.kill(0);
    assert!(library.acquire(inode).is_empty(), "it has said nothing");
    chain.put(0, next.start().unwrap_or_else(|why| panic!("{why}")));
    file.sync_all().expect("nothing was written since");
    drop((file, library));
    far.stop();
    chain.end(&[0, 1, 2]);
}

/// How the first server is lost.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Killed,
    /// Its connections stay.
    Stopped,
}

#[test]
fn what_a_library_that_has_ended_may_have_written_is_durable_or_said_to_be_lost() {
    for loss in [Loss::Killed, Loss::Stopped] {
        lose_what_an_ended_library_has_written(loss);
    }
}

fn lose_what_an_ended_library_has_written(loss: Loss) {
    let Some((mut chain, addresses)) = chained() else { return };
    let device = Device::new();
    let far = device.mount(&addresses, &chain.nodes[0].place);
    let files = ["kept", "lost", "later", "other"].map(|name| {
        let file = File::create(far.at(name)).unwrap();
        file.write_all_at(&pattern(1, 10_000), 0).unwrap();
        file.sync_all().unwrap();
        file
    });
    let inodes = files.each_ref().map(|file| file.metadata().unwrap().ino());
    let start = || {
        let mut library = Library::start(&socket(&far), fs::metadata(far.point.path()).unwrap().dev());
        assert_eq!(library.answer()[0], WELCOME);
        library
    };
    let mut library = start();
    assert_eq!(library.acquire(inodes[0])[0], LEASE);
    library.leave();
    drop(library);
    let place = &chain.nodes[0].place;
    wait_until(END_LIMIT, || (clients(place) == 0).then_some(()))
        .expect("it is durable, and its end was told");
    let (mut library, mut later, mut staying) = (start(), start(), start());
    for (library, inode) in [&mut library, &mut later, &mut staying].into_iter().zip(&inodes[1..]) {
        assert_eq!(library.acquire(*inode)[0], LEASE);
    }
    let removed = chain.remove_later(0);
    // Nothing becomes durable any more.
    chain.server(2).signal("STOP");
    files[3].write_all_at(b"more", 0).unwrap();
    library.leave();
    match loss {
        Loss::Killed => chain.kill(0),
        Loss::Stopped => chain.server(0).signal("STOP"),
    }
    drop(later);
    removed();
    chain.server(2).signal("CONT");
    // The mount goes to the next server.
    let said = files.each_ref().map(|file| file.sync_all().map_err(|error| error.raw_os_error()));
    assert_eq!(said, [Ok(()), Err(Some(5)), Err(Some(5)), Err(Some(5))], "{loss:?}");
    files.iter().for_each(|file| file.sync_all().expect("it is said once"));
    assert_eq!(fs::read(far.at("lost")).unwrap(), pattern(1, 10_000));
    assert!(staying.acquire(inodes[0]).is_empty(), "its server is gone");
    drop((files, staying));
    far.stop();
    if loss == Loss::Stopped {
        chain.kill(0);
    }
    chain.end(&[1, 2]);
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
