//! Segments as tests write and read them. The bytes are put together by hand, so that the stack's own code is checked
//! against an independent reading of the RFCs.

use std::net::{IpAddr, SocketAddr};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;
pub const ECE: u8 = 64;
pub const CWR: u8 = 128;

/// Hardware addresses of a test's peer and of the host under test.
pub const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const OUR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A TCP segment in its IP packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seg {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    /// Padded to whole words.
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    /// The two ECN bits of the IP header.
    pub ecn: u8,
}

pub fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from(bytes[at]) << 8 | u16::from(bytes[at + 1])
}

pub fn long(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) << 16 | u32::from(word(bytes, at + 2))
}

pub fn put_word(out: &mut Vec<u8>, word: u16) {
    out.extend([(word >> 8) as u8, word as u8]);
}

pub fn put_long(out: &mut Vec<u8>, long: u32) {
    put_word(out, (long >> 16) as u16);
    put_word(out, long as u16);
}

/// RFC 1071, word by word.
pub fn checksum(parts: &[&[u8]]) -> u16 {
    let mut total: u32 = 0;
    for pair in parts.concat().chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xffff) + (total >> 16);
    }
    !(total as u16)
}

pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

pub fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> Vec<u8> {
    let mut out = [octets(from), octets(to)].concat();
    put_long(&mut out, len as u32);
    put_long(&mut out, u32::from(protocol));
    out
}

/// An Ethernet frame with this IP payload, from the peer to the host under test.
pub fn ip_frame(from: IpAddr, to: IpAddr, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = [&OUR_MAC[..], &PEER_MAC].concat();
    if from.is_ipv4() {
        put_word(&mut out, 0x0800);
        let mut header = vec![0x45, ecn];
        put_word(&mut header, 20 + payload.len() as u16);
        header.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        header.extend(octets(from));
        header.extend(octets(to));
        let sum = checksum(&[&header]);
        (header[10], header[11]) = ((sum >> 8) as u8, sum as u8);
        out.extend(header);
    } else {
        put_word(&mut out, 0x86dd);
        out.extend([0x60, ecn << 4, 0, 0]);
        put_word(&mut out, payload.len() as u16);
        out.extend([protocol, 255]);
        out.extend(octets(from));
        out.extend(octets(to));
    }
    out.extend(payload);
    out
}

/// Corrects the IPv4 header checksum and the TCP checksum of a changed frame.
pub fn fix_checksums(frame: &mut [u8]) {
    let v4 = frame.len() >= 34 && word(frame, 12) == 0x0800;
    let at = if v4 { 14 + usize::from(frame[14] & 15) * 4 } else { 54 };
    if frame.len() < at.max(34) + 20 {
        return;
    }
    let addresses = if v4 { 26..34 } else { 22..54 };
    if v4 {
        frame[24..26].fill(0);
        let sum = checksum(&[&frame[14..at]]);
        (frame[24], frame[25]) = ((sum >> 8) as u8, sum as u8);
    }
    let end = if v4 { 14 + usize::from(word(frame, 16)) } else { 54 + usize::from(word(frame, 18)) };
    if end < at + 20 || end > frame.len() {
        return;
    }
    frame[at + 16..at + 18].fill(0);
    let len = (end - at) as u16;
    let rest = [(len >> 8) as u8, len as u8, 0, 6];
    let sum = checksum(&[&frame[addresses], &rest, &frame[at..end]]);
    (frame[at + 16], frame[at + 17]) = ((sum >> 8) as u8, sum as u8);
}

impl Seg {
    /// The IP payload with a correct checksum.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_word(&mut out, self.from.port());
        put_word(&mut out, self.to.port());
        put_long(&mut out, self.seq);
        put_long(&mut out, self.ack);
        out.push((((20 + self.options.len()) / 4) << 4) as u8);
        out.push(self.flags);
        put_word(&mut out, self.window);
        put_word(&mut out, 0);
        put_word(&mut out, self.urgent);
        out.extend(&self.options);
        out.extend(&self.payload);
        let sum = checksum(&[&pseudo_header(self.from.ip(), self.to.ip(), 6, out.len()), &out]);
        (out[16], out[17]) = ((sum >> 8) as u8, sum as u8);
        out
    }

    pub fn frame(&self) -> Vec<u8> {
        ip_frame(self.from.ip(), self.to.ip(), 6, self.ecn, &self.bytes())
    }

    /// Parses a frame that the stack sent; `None` if it is not TCP. Panics if a length or checksum is wrong.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (from, to, ecn, protocol, at) = match word(frame, 12) {
            0x0800 => {
                assert_eq!(checksum(&[&frame[14..34]]), 0, "IPv4 header checksum");
                assert_eq!(usize::from(word(frame, 16)), frame.len() - 14, "IPv4 total length");
                assert_eq!(word(frame, 20), 0x4000, "never fragmented");
                let address = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).unwrap());
                (address(26), address(30), frame[15] & 3, frame[23], 34)
            }
            0x86dd => {
                assert_eq!(usize::from(word(frame, 18)), frame.len() - 54, "IPv6 payload length");
                let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).unwrap());
                (address(22), address(38), frame[15] >> 4 & 3, frame[20], 54)
            }
            _ => return None,
        };
        if protocol != 6 {
            return None;
        }
        let tcp = &frame[at..];
        assert_eq!(checksum(&[&pseudo_header(from, to, 6, tcp.len()), tcp]), 0, "TCP checksum");
        let header = usize::from(tcp[12] >> 4) * 4;
        Some(Self {
            from: SocketAddr::new(from, word(tcp, 0)),
            to: SocketAddr::new(to, word(tcp, 2)),
            seq: long(tcp, 4),
            ack: long(tcp, 8),
            flags: tcp[13],
            window: word(tcp, 14),
            urgent: word(tcp, 18),
            options: tcp[20..header].to_vec(),
            payload: tcp[header..].to_vec(),
            ecn,
        })
    }

    /// The options, each with kind and value.
    pub fn option_list(&self) -> Vec<(u8, Vec<u8>)> {
        let mut out = Vec::new();
        let mut rest = &self.options[..];
        while let Some(kind) = rest.first().copied() {
            match kind {
                0 => break,
                1 => rest = &rest[1..],
                _ => {
                    let len = usize::from(rest[1]);
                    out.push((kind, rest[2..len].to_vec()));
                    rest = &rest[len..];
                }
            }
        }
        out
    }

    pub fn timestamps(&self) -> Option<(u32, u32)> {
        self.option_list().into_iter().find(|(kind, _)| *kind == 8).map(|(_, v)| (long(&v, 0), long(&v, 4)))
    }

    /// The SACK blocks (RFC 2018).
    pub fn sack_blocks(&self) -> Vec<(u32, u32)> {
        let option = self.option_list().into_iter().find(|(kind, _)| *kind == 5);
        let blocks = option.map_or(Vec::new(), |(_, bytes)| bytes);
        blocks.chunks_exact(8).map(|block| (long(block, 0), long(block, 4))).collect()
    }

    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }
}

/// Encodes options, padded in front to whole words.
pub fn encode_options(list: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let len: usize = list.iter().map(|(_, value)| 2 + value.len()).sum();
    let mut out = vec![1; len.next_multiple_of(4) - len];
    for (kind, value) in list {
        out.extend([*kind, 2 + value.len() as u8]);
        out.extend(value);
    }
    out
}
