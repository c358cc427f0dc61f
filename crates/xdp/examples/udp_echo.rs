//! Answers UDP datagrams to one port without the kernel's network stack, and counts them.
//!
//! The program swaps the addresses and ports of each packet in the frame that it landed in, and sends the same bytes
//! back. All other packets go to the kernel; when the program ends, so do the packets of this port.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints its result")]

use landfall_xdp::{
    AttachMode, Chunk, Interface, Mode, Piece, Received, RingSizes, Rules, Socket, Steering, Target, Umem,
    XdpError, check_mtu,
};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: udp_echo INTERFACE PORT [SECONDS]

Echoes UDP over IPv4 to PORT of INTERFACE's addresses, on all its queues, for SECONDS (0, the default: until
it is killed). Needs root. Try it between two network namespaces:

  ip netns add far && ip link add near0 type veth peer name far0 netns far
  ip addr add 10.77.0.1/24 dev near0 && ip link set near0 up
  ip -n far addr add 10.77.0.2/24 dev far0 && ip -n far link set far0 up
  cargo run -p landfall-xdp --example udp_echo near0 7007
  ip netns exec far sh -c 'echo hello | nc -u -w1 10.77.0.1 7007'";

const CHUNK: Chunk = Chunk::Bytes2048;
const CHUNKS_PER_QUEUE: u64 = 4096;
const BATCH: u32 = 64;
const PAGE_BYTES: usize = 4096;

/// Memory that the kernel may write at any time, so each byte is an atomic.
struct Memory {
    bytes: Vec<AtomicU8>,
    /// Address of its first page.
    start: usize,
}

impl Memory {
    fn new(bytes: u64) -> Self {
        let bytes: Vec<AtomicU8> = (0..bytes as usize + PAGE_BYTES).map(|_| AtomicU8::new(0)).collect();
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self { bytes, start }
    }

    fn area(&self) -> (usize, u64) {
        (self.bytes[self.start..].as_ptr().expose_provenance(), (self.bytes.len() - PAGE_BYTES) as u64)
    }

    fn at(&self, addr: u64) -> &AtomicU8 {
        &self.bytes[self.start + addr as usize]
    }

    fn swap(&self, a: u64, b: u64, len: u64) {
        for n in 0..len {
            let old = self.at(a + n).swap(self.at(b + n).load(Ordering::Relaxed), Ordering::Relaxed);
            self.at(b + n).store(old, Ordering::Relaxed);
        }
    }

    /// Swaps the ends of an Ethernet, IPv4 and UDP packet.
    fn turn_around(&self, packet: Received) {
        let (ethernet, ip) = (packet.addr, packet.addr + 14);
        let udp = ip + u64::from(self.at(ip).load(Ordering::Relaxed) & 15) * 4;
        self.swap(ethernet, ethernet + 6, 6);
        self.swap(ip + 12, ip + 16, 4);
        self.swap(udp, udp + 2, 2);
        // The kernel of a veth peer leaves checksums to the receiver unless it is configured otherwise (`ethtool -K
        // far0 tx off`). IPv4 allows UDP without a checksum; the swap does not change the IPv4 header's checksum.
        self.at(udp + 6).store(0, Ordering::Relaxed);
        self.at(udp + 7).store(0, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(name), Some(Ok(port))) = (arguments.first(), arguments.get(1).map(|port| port.parse())) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let seconds = arguments.get(2).and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    match echo(name, port, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("udp_echo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn echo(name: &str, port: u16, seconds: u64) -> Result<(), XdpError> {
    let interface = Interface::find(name)?;
    check_mtu(CHUNK, 0, interface.mtu)?;
    let queues = interface.queues();
    let memory = Memory::new(u64::from(queues) * CHUNKS_PER_QUEUE * u64::from(CHUNK.bytes()));
    let umem = Umem::register(memory.area(), CHUNK, 0)?;
    let steering = Steering::attach(&interface, &rules(&interface, port), queues, AttachMode::Auto, None)?;
    let mut sockets = Vec::new();
    for queue in 0..queues {
        let mut socket = Socket::open(&umem, &interface, queue, RingSizes::default(), Mode::Auto)?;
        let first = u64::from(queue) * CHUNKS_PER_QUEUE;
        socket.fill((first..first + CHUNKS_PER_QUEUE).map(|n| n * u64::from(CHUNK.bytes())));
        steering.set_socket(queue, &socket)?;
        sockets.push(socket);
    }
    println!("echoing UDP port {port} of {interface:?}; native: {}", steering.is_native());
    serve(&memory, &mut sockets, seconds)
}

fn rules(interface: &Interface, port: u16) -> Rules {
    let v4 = interface.addresses.iter().filter(|address| address.is_ipv4());
    let targets = v4.map(|address| Target::Ports { address: *address, ports: vec![port] }).collect();
    Rules { targets, stamp: false }
}

fn serve(memory: &Memory, sockets: &mut [Socket], seconds: u64) -> Result<(), XdpError> {
    let (started, mut total, mut shown) = (Instant::now(), 0, Duration::ZERO);
    while seconds == 0 || started.elapsed().as_secs() < seconds {
        let mut busy = 0;
        for socket in &mut *sockets {
            busy += round(memory, socket)?;
        }
        total += u64::from(busy);
        if busy == 0 {
            std::thread::sleep(Duration::from_micros(50));
        }
        if started.elapsed() > shown + Duration::from_secs(1) {
            shown = started.elapsed();
            println!("{:>6} s {total:>12} datagrams", shown.as_secs());
        }
    }
    for socket in sockets {
        println!("queue {}: {:?}", socket.queue(), socket.statistics()?);
    }
    Ok(())
}

/// Receives, answers, and fills the chunks of answers that were sent back into the fill ring.
fn round(memory: &Memory, socket: &mut Socket) -> Result<u32, XdpError> {
    let mut received = Vec::with_capacity(BATCH as usize);
    let room = socket.transmit_room();
    let count = socket.receive(BATCH.min(room), &mut received);
    for packet in received {
        memory.turn_around(packet);
        let piece = Piece { addr: packet.addr, len: packet.len };
        socket.transmit(&[piece]).expect("there was room, and what was received lies in one chunk");
    }
    socket.kick()?;
    let mut free = Vec::new();
    socket.completed(|addr| free.push(addr));
    // The fill ring holds all chunks of the queue.
    socket.fill(free.into_iter());
    Ok(count)
}
