//! Floods of unsolicited frames: the server keeps running, and a genuine client is served.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::{Place, Reply, Server, bulk, ok, pattern};
use landfall_testbed::PacketSocket;
use std::net::Ipv4Addr;
use std::time::Instant;
use xdp::{Net, Numbers, RESP_PORT};

/// Frames of a flood; `LANDFALL_FLOOD_FRAMES` sends more.
const COUNT: u64 = 20_000;
const OWN: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 3);
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// A client host that sends frames of any kind.
struct Attacker {
    socket: PacketSocket,
    macs: [[u8; 6]; 2],
    numbers: Numbers,
    sent: u64,
}

impl Attacker {
    fn new(net: &Net) -> Self {
        Self { socket: net.frames(), macs: net.macs(), numbers: Numbers(0x1234_5678_9abc_def1), sent: 0 }
    }

    /// Sends a frame; waits while the queue is full.
    fn send(&mut self, frame: &[u8]) {
        self.sent += 1;
        for _ in 0..1000 {
            match self.socket.send(frame) {
                Ok(()) => return,
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS)
                        || error.kind() == std::io::ErrorKind::WouldBlock =>
                {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                Err(error) => panic!("{} bytes: {error}", frame.len()),
            }
        }
        panic!("the client's queue stays full");
    }

    fn ethernet(&self, ip: &[u8]) -> Vec<u8> {
        [&self.macs[0][..], &self.macs[1], &[0x08, 0x00], ip].concat()
    }

    /// A random address without a host.
    fn somebody(&mut self) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, 10 + self.numbers.below(200) as u8)
    }

    fn tcp(&mut self, from: Ipv4Addr, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (port, seq, ack) = (
            1024 + self.numbers.below(60_000) as u16,
            self.numbers.next() as u32,
            self.numbers.next() as u32,
        );
        let mut segment = [big16(port), big16(RESP_PORT)].concat();
        segment.extend([big32(seq), big32(ack)].concat());
        segment.extend([5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend_from_slice(payload);
        let mut pseudo = [from.octets(), OWN.octets()].concat();
        pseudo.extend([0, 6]);
        pseudo.extend(big16(segment.len() as u16));
        pseudo.extend_from_slice(&segment);
        segment[16..18].copy_from_slice(&checksum(&pseudo));
        self.ethernet(&ipv4(from, 6, 0x4000, &segment))
    }
}

fn big16(number: u16) -> [u8; 2] {
    [(number >> 8) as u8, number as u8]
}

fn big32(number: u32) -> [u8; 4] {
    [(number >> 24) as u8, (number >> 16) as u8, (number >> 8) as u8, number as u8]
}

/// The Internet checksum (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    big16(!sum as u16)
}

fn ipv4(from: Ipv4Addr, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x45, 0];
    ip.extend(big16(20 + payload.len() as u16));
    ip.extend([0, 7]);
    ip.extend(big16(fragment));
    ip.extend([64, protocol, 0, 0]);
    ip.extend([from.octets(), OWN.octets()].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    ip.extend_from_slice(payload);
    ip
}

fn count() -> u64 {
    std::env::var("LANDFALL_FLOOD_FRAMES").ok().and_then(|count| count.parse().ok()).unwrap_or(COUNT)
}

/// Runs a flood beside a genuine client, both to their ends. The client's connection is never cut, and every connection
/// that it opens is accepted.
fn under(flood: impl FnOnce(&mut Attacker) + Send) -> Option<(Net, Place, Server)> {
    let net = Net::new()?;
    let place = Place::new();
    let server = net.start(&place, &[]);
    let mut attacker = Attacker::new(&net);
    let mut kept = server.resp();
    std::thread::scope(|threads| {
        let (begun, mut index) = (Instant::now(), 0u64);
        let flood = threads.spawn(move || {
            flood(&mut attacker);
            attacker.sent as f64 / begun.elapsed().as_secs_f64()
        });
        while !flood.is_finished() || index < 20 {
            let (key, value) = (format!("k{}", index % 100), pattern(index, 1024));
            assert_eq!(kept.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
            let mut anew = server.resp();
            assert!(anew.call(&[b"GET", key.as_bytes()]).unwrap() == Reply::Bulk(value));
            index += 1;
        }
        let rate = flood.join().unwrap();
        eprintln!("{index} genuine connections beside the flood, {rate:.0} frames a second");
    });
    assert_eq!(server.call(&["SET", "after", "1"]), ok());
    assert_eq!(server.call(&["GET", "after"]), bulk("1"));
    Some((net, place, server))
}

#[test]
fn genuine_clients_are_served_during_a_flood_of_syns_from_everywhere() {
    under(|attacker| {
        for _ in 0..count() {
            let from = attacker.somebody();
            let frame = attacker.tcp(from, SYN, b"");
            attacker.send(&frame);
        }
    });
}

#[test]
fn genuine_clients_are_served_during_floods_of_resets_acknowledgements_and_data() {
    under(|attacker| {
        for index in 0..count() {
            let flags = [RST, ACK, RST | ACK, SYN | ACK, FIN | ACK, PUSH | ACK, 0, 0xff][index as usize % 8];
            // Some frames have the address of the genuine client's host, whose kernel gets the answers.
            let from = if index % 3 == 0 { xdp::CLIENT } else { attacker.somebody() };
            let frame = attacker.tcp(from, flags, &pattern(index, index as usize % 1000));
            attacker.send(&frame);
        }
    });
}

#[test]
fn genuine_clients_are_served_during_floods_of_fragments_and_bad_checksums() {
    under(|attacker| {
        for index in 0..count() {
            let from = attacker.somebody();
            let frame = match index % 4 {
                0 => attacker.ethernet(&ipv4(from, 6, 0x2000, &pattern(index, 200))),
                1 => attacker.ethernet(&ipv4(from, 17, 0x0010, &pattern(index, 200))),
                2 => damaged(attacker.tcp(from, SYN, b""), 24),
                _ => damaged(attacker.tcp(from, PUSH | ACK, &pattern(index, 100)), 60),
            };
            attacker.send(&frame);
        }
    });
}

fn damaged(mut frame: Vec<u8>, at: usize) -> Vec<u8> {
    frame[at] ^= 0x10;
    frame
}

#[test]
fn genuine_clients_are_served_during_a_flood_of_garbage_of_all_lengths() {
    under(|attacker| {
        for index in 0..count() {
            let len = 14 + (index % 1500) as usize;
            let mut frame = pattern(index, len);
            frame[..6].copy_from_slice(&attacker.macs[0]);
            frame[6..12].copy_from_slice(&attacker.macs[1]);
            let kind = [[0x08, 0x00], [0x08, 0x06], [0x86, 0xdd], [0x81, 0x00]][index as usize % 4];
            frame[12..14].copy_from_slice(&kind);
            // Half of the IP packets are for the server, with a header that is correct except for its lengths.
            if kind == [0x08, 0x00] && index % 8 == 0 && len >= 34 {
                frame[14] = 0x45;
                frame[30..34].copy_from_slice(&OWN.octets());
            }
            attacker.send(&frame);
        }
    });
}

#[test]
fn dropped_packets_are_counted_by_reason_in_the_metrics() {
    let floods = |attacker: &mut Attacker| {
        for index in 0..2000 {
            let from = attacker.somebody();
            let frames = [
                attacker.ethernet(&ipv4(from, 6, 0x2000, &pattern(index, 200))),
                damaged(attacker.tcp(from, SYN, b""), 36),
                damaged(attacker.tcp(from, SYN, b""), 24),
                attacker.tcp(from, ACK, b""),
                attacker.ethernet(&ipv4(from, 99, 0x4000, b"what is this")),
            ];
            frames.iter().for_each(|frame| attacker.send(frame));
        }
    };
    let Some((_net, _place, server)) = under(floods) else { return };
    for reason in ["fragment", "checksum", "ip_checksum", "no_connection", "protocol"] {
        let name = format!("landfall_net_dropped_packets_total{{reason=\"{reason}\"}}");
        xdp::settles(&server, &name, |count| count >= 100.0);
    }
}
