//! Helpers for the AF_XDP tests: a host with AF_XDP sockets that is linked to a host with only kernel sockets.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a skipped test reports why, and a child process its state"
)]

pub mod wire;

use landfall_testbed::{Faults, Host, LinkOptions, Memory, Middlebox, Testbed};
use landfall_xdp::{
    AttachMode, Chunk, Interface, Mode, Received, RingSizes, Rules, Socket, Steering, Target, Umem, XdpError,
};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const CHUNK: u64 = 2048;
pub const CHUNKS: u64 = 512;
/// Chunks from here on are for transmission.
pub const SEND_FROM: u64 = CHUNK * CHUNKS / 2;
pub const XDP_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const PEER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// An address of the AF_XDP host that is not configured in its kernel.
pub const OWN_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 77);
pub const PATIENCE: Duration = Duration::from_secs(10);
pub const RINGS: RingSizes = RingSizes { fill: 256, rx: 256, tx: 256, completion: 256 };

/// The testbed. If this machine lacks something that the tests need, prints the reason and returns `None`.
pub fn testbed() -> Option<Testbed> {
    let testbed = Testbed::new().inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()?;
    let memory = Memory::new(CHUNK as usize * 2).unwrap();
    match Umem::register(memory.area(), Chunk::Bytes2048, 0) {
        Err(reason @ (XdpError::KernelLacks { .. } | XdpError::NoPrivilege { .. })) => {
            eprintln!("SKIP: {reason}");
            None
        }
        _ => Some(testbed),
    }
}

/// Two hosts on one link: `xdp` opens AF_XDP sockets, `peer` has only kernel sockets.
pub struct Pair {
    pub xdp: Host,
    pub peer: Host,
    pub interface: Interface,
    pub peer_interface: Interface,
}

impl Pair {
    pub fn new(testbed: &Testbed, queues: u32) -> Self {
        let (xdp, peer) = (testbed.host("xdp").unwrap(), testbed.host("peer").unwrap());
        let between = LinkOptions::between("10.9.0.1/24", "10.9.0.2/24");
        let options = LinkOptions { queues, checksum_offload: false, ..between };
        let names = testbed.link(&xdp, &peer, &options).unwrap();
        Self::of(xdp, peer, names)
    }

    /// Two hosts with a middlebox on the link between them.
    pub fn through(testbed: &Testbed, faults: Faults) -> (Self, Middlebox) {
        let (xdp, peer) = (testbed.host("xdp").unwrap(), testbed.host("peer").unwrap());
        let options = LinkOptions::between("10.9.0.1/24", "10.9.0.2/24");
        let (middlebox, name, peer_name) = testbed.middlebox(&xdp, &peer, &options, faults).unwrap();
        (Self::of(xdp, peer, (name, peer_name)), middlebox)
    }

    fn of(xdp: Host, peer: Host, (name, peer_name): (String, String)) -> Self {
        let interface = xdp.enter(|| Interface::find(&name)).unwrap();
        let peer_interface = peer.enter(|| Interface::find(&peer_name)).unwrap();
        Self { xdp, peer, interface, peer_interface }
    }

    pub fn open(&self, umem: &Umem, queue: u32) -> Socket {
        self.xdp.enter(|| Socket::open(umem, &self.interface, queue, RINGS, Mode::Auto)).unwrap()
    }

    pub fn steer(&self, rules: &Rules) -> Steering {
        let queues = self.interface.rx_queues;
        self.xdp.enter(|| Steering::attach(&self.interface, rules, queues, AttachMode::Auto, None)).unwrap()
    }

    /// Enters the hardware address of `address` into the peer's neighbour table, so that the peer need not resolve it.
    pub fn add_neighbour(&self, address: IpAddr) {
        let [a, b, c, d, e, f] = self.interface.mac;
        let line = format!(
            "neigh replace {address} lladdr {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} dev {}\n",
            self.peer_interface.name
        );
        self.peer.ip(&line).unwrap();
    }
}

pub fn memory() -> (Memory, Umem) {
    let memory = Memory::new((CHUNK * CHUNKS) as usize).unwrap();
    let umem = Umem::register(memory.area(), Chunk::Bytes2048, 0).unwrap();
    (memory, umem)
}

pub fn own(address: impl Into<IpAddr>) -> Rules {
    Rules { targets: vec![Target::Own(address.into())], stamp: false }
}

pub fn ports(address: impl Into<IpAddr>, ports: &[u16]) -> Rules {
    let target = Target::Ports { address: address.into(), ports: ports.to_vec() };
    Rules { targets: vec![target], stamp: false }
}

/// Chunks `from..to`, by number.
pub fn chunks(from: u64, to: u64) -> impl Iterator<Item = u64> {
    (from..to).map(|n| n * CHUNK)
}

/// Receives until `count` descriptors have arrived.
pub fn receive(socket: &mut Socket, count: usize) -> Vec<Received> {
    let (mut received, started) = (Vec::new(), Instant::now());
    while received.len() < count {
        let missing = (count - received.len()) as u32;
        if socket.receive(missing, &mut received) == 0 {
            let so_far = received.len();
            assert!(started.elapsed() < PATIENCE, "{so_far} of {count}; {:?}", socket.statistics());
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    received
}

/// Takes completions until `count` have been reported.
pub fn complete(socket: &mut Socket, count: usize) -> Vec<u64> {
    let (mut done, started) = (Vec::new(), Instant::now());
    while done.len() < count {
        if socket.completed(|addr| done.push(addr)) == 0 {
            assert!(started.elapsed() < PATIENCE, "{} of {count}", done.len());
            socket.kick().unwrap();
        }
    }
    done
}

/// Ethernet, IPv4 and UDP headers for a payload of `payload` bytes. They have no UDP checksum, which IPv4 allows.
pub fn udp_headers(
    macs: ([u8; 6], [u8; 6]),
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    payload: usize,
) -> Vec<u8> {
    let length = |bytes: usize| [(bytes >> 8) as u8, bytes as u8];
    let mut ip = vec![0x45, 0];
    ip.extend(length(28 + payload));
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(from.0.octets());
    ip.extend(to.0.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let mut frame = [macs.1.as_slice(), &macs.0, &[0x08, 0x00]].concat();
    frame.extend(ip);
    frame.extend(length(from.1.into()));
    frame.extend(length(to.1.into()));
    frame.extend(length(8 + payload));
    frame.extend([0, 0]);
    frame
}

/// The Internet checksum (RFC 1071).
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum: u32 =
        bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !sum;
    [(sum >> 8) as u8, sum as u8]
}

/// A mounted BPF file system, unmounted and removed on drop.
pub struct BpfFolder(PathBuf);

impl BpfFolder {
    pub fn new(name: &str) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("landfall-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&folder).status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        eprintln!("SKIP: cannot mount a BPF file system");
        std::fs::remove_dir(&folder).unwrap();
        None
    }

    pub fn path(&self) -> &std::path::Path {
        &self.0
    }

    pub fn pin(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for BpfFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// The line that a child process prints when it is set up.
const READY: &str = "ready to be killed";

/// A child process that runs a test of this program until it is killed.
pub struct Killed(Child);

impl Killed {
    /// Starts the test `name` inside `host` and waits until the child has printed [`READY`].
    pub fn start(host: &Host, name: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let program = std::env::current_exe().unwrap();
        let mut command = host.command(program.to_str().unwrap());
        command.args(["--exact", name, "--nocapture"]);
        prepare(&mut command);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains(READY));
        let killed = Self(child);
        assert!(ready, "the child ended");
        killed
    }

    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reports that the child is set up, and waits until the child is killed.
pub fn report_ready_and_wait() -> ! {
    println!("{READY}");
    loop {
        std::thread::park();
    }
}
