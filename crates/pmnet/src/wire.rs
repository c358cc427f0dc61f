//! The packet format: the header of the authors' public release, and Landfall's extensions after it.
//!
//! Byte tables: `docs/format/pmnet.md`. [`Packet::parse`] is the only function that turns bytes into a packet, and
//! it trusts none of them; [`Packet::write`] turns a packet into bytes.

use crate::error::WireError;
use crc_fast::CrcAlgorithm;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Value of `ack_count` in packets from clients and servers.
pub const FROM_HOSTS: u8 = 0xfb;
/// Value of `ack_count` in an update of a foreign session that a device sends from its log.
pub const SENT_AGAIN: u8 = 0xfc;
/// Limit of the device numbers in a chain: each number is below it.
pub const DEVICES_MAX: u8 = 250;
/// First number of bypasses. Updates have numbers below it.
pub const FIRST_BYPASS: u32 = 1 << 31;
/// Most fragments of one request or response.
pub const FRAGMENTS_MAX: u16 = 1024;
/// Packets of a long response that a server sends before the client requests more.
pub const RESPONSE_WINDOW: usize = 32;
/// Bytes of the longest extension, which a bypass fragment has.
pub const EXTENSION_BYTES_MAX: usize = 16;
/// Bytes of an Ethernet payload that the IPv4 and UDP headers take.
pub const IPV4_UDP_BYTES: usize = 28;
/// Bytes of an Ethernet payload that the IPv6 and UDP headers take.
pub const IPV6_UDP_BYTES: usize = 48;

/// The fields of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The packet's type, one of [`kind`]. Packets of unknown types are forwarded.
    pub kind: u8,
    /// [`FROM_HOSTS`]. In a PMNet-ACK it is the device's number; in a joint ACK it is the number of the device
    /// nearest to the client.
    pub ack_count: u8,
    /// The client's number for the session.
    pub session: u16,
    /// Sequence number in the session. Its meaning depends on the type.
    pub seq: u32,
    /// A hint: it identifies nothing. In pieces of a response it is the check of the whole response.
    pub hash: u32,
}

impl Header {
    /// A header as clients and servers send it, with `ack_count` and hash filled in.
    pub fn new(kind: u8, session: u16, seq: u32) -> Self {
        let mut header = Self { kind, ack_count: FROM_HOSTS, session, seq, hash: 0 };
        header.hash = header.crc();
        header
    }

    /// CRC-32 (IEEE 802.3) of the header's bytes with the hash field zero.
    pub fn crc(&self) -> u32 {
        let bytes = Self { hash: 0, ..*self }.to_bytes();
        crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, &bytes) as u32
    }

    /// Whether the hash differs from the one that Landfall's clients write. The authors' release computes another
    /// hash.
    pub fn is_foreign(&self) -> bool {
        self.hash != self.crc()
    }

    /// The header's bytes.
    #[expect(clippy::big_endian_bytes, reason = "the release's hash field is in network order")]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind;
        bytes[1] = self.ack_count;
        bytes[2..4].copy_from_slice(&self.session.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.hash.to_be_bytes());
        bytes
    }

    /// Parses a header. Bytes after the header are ignored.
    ///
    /// # Errors
    /// [`WireError::Short`]: `bytes` is shorter than a header.
    #[expect(clippy::big_endian_bytes, reason = "the release's hash field is in network order")]
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(WireError::Short { len: bytes.len(), needed: HEADER_BYTES });
        };
        Ok(Self {
            kind: head[0],
            ack_count: head[1],
            session: u16::from_le_bytes([head[2], head[3]]),
            seq: u32::from_le_bytes([head[4], head[5], head[6], head[7]]),
            hash: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
        })
    }
}

/// Values of the header's `type` field.
pub mod kind {
    /// An update, which is to be acknowledged.
    pub const UPDATE: u8 = 1;
    /// A device's acknowledgement.
    pub const PMNET_ACK: u8 = 2;
    /// The server's response to a bypass.
    pub const RESPONSE: u8 = 3;
    /// A request that no device logs.
    pub const BYPASS: u8 = 4;
    /// The server asks for everything after a number. In the release's form: for the update with this number.
    pub const RECOVER: u8 = 5;
    /// A response from a device's read cache.
    pub const CACHE_RESPONSE: u8 = 6;
    /// A piece of an update.
    pub const UPDATE_FRAGMENT: u8 = 0x10;
    /// A bypass to be executed after an update.
    pub const ORDERED_BYPASS: u8 = 0x11;
    /// A piece of a bypass.
    pub const BYPASS_FRAGMENT: u8 = 0x12;
    /// A piece of a response.
    pub const RESPONSE_FRAGMENT: u8 = 0x13;
    /// A piece of a response that is sent in windows.
    pub const RESPONSE_PART: u8 = 0x14;
    /// The client asks for bytes of a response.
    pub const RESPONSE_REQUEST: u8 = 0x15;
    /// The server has committed every update up to a number.
    pub const SERVER_ACK: u8 = 0x18;
    /// The server has not received some updates.
    pub const RETRANSMIT: u8 = 0x19;
    /// Several devices' acknowledgements of one update.
    pub const JOINT_ACK: u8 = 0x1a;
    /// The client says up to which update a server-ACK has confirmed its session.
    pub const CONFIRMED: u8 = 0x1b;
    /// The server asks devices how many updates of a session are in their logs.
    pub const HELD_REQUEST: u8 = 0x1c;
    /// A device answers a held request.
    pub const HELD: u8 = 0x1d;
    /// A client begins a session.
    pub const SESSION_START: u8 = 0x20;
    /// The server has accepted a session.
    pub const SESSION_STARTED: u8 = 0x21;
    /// A client ends a session.
    pub const SESSION_END: u8 = 0x22;
    /// The server has ended a session.
    pub const SESSION_ENDED: u8 = 0x23;
    /// The server does not accept a session, or does not know it.
    pub const SESSION_REFUSED: u8 = 0x24;
    /// Asks whether the receiver is alive.
    pub const HEARTBEAT: u8 = 0x28;
    /// Answers a heartbeat.
    pub const HEARTBEAT_REPLY: u8 = 0x29;
    /// A packet without content, which is forwarded.
    pub const NO_OP: u8 = 0xff;
}

/// Position of a piece in its request or response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Index of the piece, from 0 on.
    pub index: u16,
    /// Number of pieces, at most [`FRAGMENTS_MAX`].
    pub count: u16,
    /// Bytes of the whole request or response.
    pub total: u32,
}

/// Position of a piece in a response that is sent in windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes of the response before this piece.
    pub offset: u32,
    /// Bytes of the whole response.
    pub total: u32,
}

/// A range of a response that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Offset of the first byte.
    pub offset: u32,
    /// Number of bytes. With 0 the client wants no more of the response, and the server may delete it.
    pub len: u32,
    /// CRC-32 (IEEE) of the response of which the bytes are wanted.
    pub check: u32,
}

/// The party that sends or answers a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// A client.
    Client = 1,
    /// A device.
    Device = 2,
    /// A server.
    Server = 3,
}

/// Number in a *session started* that continues a session. The number is 0 if the session begins.
pub const RESUMED: u32 = 1;

/// What a session start asks the server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Start {
    /// A session without a lease. The server never ends it on its own.
    Plain = 0,
    /// A session with a lease.
    Leased = 1,
    /// To continue a session whose lease has expired. The server must not begin a session for this request.
    Resumes = 2,
}

/// Why a server refuses a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The identity is in use. The client should choose another session number.
    InUse = 1,
    /// The server has no such session.
    Unknown = 2,
    /// The server has as many sessions as it accepts.
    NoRoom = 3,
    /// The server has lost updates of the session that it has confirmed.
    Behind = 4,
}

/// The content after the header, by type of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A whole update.
    Update(&'a [u8]),
    /// A piece of an update.
    UpdateFragment(Fragment, &'a [u8]),
    /// A device has logged an update.
    PmnetAck,
    /// The device of the header's number and the devices with these numbers have logged an update.
    JointAck(&'a [u8]),
    /// A whole response to a bypass.
    Response(&'a [u8]),
    /// A piece of a response.
    ResponseFragment(Fragment, &'a [u8]),
    /// A piece of a response that is sent in windows. The header's hash is the check of the whole response.
    ResponsePart(Part, &'a [u8]),
    /// The client asks for these bytes of a response.
    ResponseRequest(Wanted),
    /// A response from a device's cache.
    CacheResponse(&'a [u8]),
    /// A bypass. With `after`, it is executed only when every update up to that number is applied.
    Bypass {
        /// The update after which the bypass is executed.
        after: Option<u32>,
        /// The request.
        request: &'a [u8],
    },
    /// A piece of a bypass. With an `after` of 0 the bypass waits for no update.
    BypassFragment {
        /// The piece's position.
        fragment: Fragment,
        /// The update after which the bypass is executed.
        after: u32,
        /// The bytes of the piece.
        request: &'a [u8],
    },
    /// The server asks for every update after the header's number or, in the release's form, for exactly that
    /// number.
    Recover {
        /// The server's incarnation; 0 in the release's form, which has none.
        incarnation: u64,
    },
    /// Every update up to the header's number is committed.
    ServerAck,
    /// Updates have not arrived. The first has the header's number.
    Retransmit {
        /// Number of missing updates, at least 1.
        count: u32,
    },
    /// A server-ACK has covered everything up to the header's number.
    Confirmed,
    /// Asks devices how many updates above the header's number are in their logs.
    HeldRequest {
        /// Returned in the answer.
        nonce: u64,
    },
    /// The answer to a held request.
    Held {
        /// The nonce of the held request.
        nonce: u64,
        /// The device's number.
        number: u8,
        /// Number of updates in the log above the number in the request.
        count: u32,
    },
    /// A session begins.
    SessionStart {
        /// Distinguishes a retransmission from another client's request.
        nonce: u64,
        /// Which kind of session is wanted.
        asks: Start,
    },
    /// The server has accepted the session.
    SessionStarted {
        /// The nonce of the session start.
        nonce: u64,
        /// Number of the session's first update.
        first_update: u32,
        /// Number of the session's first bypass.
        first_bypass: u32,
        /// The server's incarnation.
        incarnation: u64,
        /// Seconds after the server has last received a packet of the client during which the client may rely on
        /// devices' acknowledgements. 0: without limit.
        lease: u16,
    },
    /// A session ends.
    SessionEnd,
    /// The server has ended the session.
    SessionEnded,
    /// The server has refused the session.
    SessionRefused(Refusal),
    /// Asks whether the receiver is alive.
    Heartbeat {
        /// Returned in the reply.
        nonce: u64,
        /// Role of the sender.
        role: Role,
        /// The sender's device number, if it is a device.
        number: u8,
    },
    /// The answer to a heartbeat.
    HeartbeatReply {
        /// The nonce of the heartbeat.
        nonce: u64,
        /// Role of the answering party.
        role: Role,
        /// The answering party's device number, if it is a device.
        number: u8,
        /// True if the device takes no updates into its log.
        declines: bool,
        /// The answering party's incarnation.
        incarnation: u64,
    },
    /// A no-op, or a packet of an unknown type. It is forwarded.
    Other(&'a [u8]),
}

/// A packet: the payload of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The first 16 bytes.
    pub header: Header,
    /// The content after the header.
    pub body: Body<'a>,
}

impl<'a> Packet<'a> {
    /// A packet as clients and servers send it. The header's type is that of the body.
    pub fn new(session: u16, seq: u32, body: Body<'a>) -> Self {
        Self { header: Header::new(body.kind(), session, seq), body }
    }

    /// Parses a datagram. No byte of it is trusted.
    ///
    /// # Errors
    /// [`WireError`]: the bytes are no valid packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::parse(bytes)?;
        let mut unread = Reader { unread: &bytes[HEADER_BYTES..], len: bytes.len() };
        Ok(Self { header, body: unread.body(header.kind)? })
    }

    /// The datagram as bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + EXTENSION_BYTES_MAX + self.body.bytes().len());
        self.write(&mut bytes);
        bytes
    }

    /// Appends the datagram to `into`.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.header.to_bytes());
        self.body.write_extension(into);
        into.extend_from_slice(self.body.bytes());
    }
}

impl<'a> Body<'a> {
    /// Index of a piece of a bypass; 0 for every packet that has a number of its own.
    pub fn piece(&self) -> u16 {
        match self {
            Self::BypassFragment { fragment, .. } => fragment.index,
            _ => 0,
        }
    }

    /// The header's `type` for this body.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Update(_) => kind::UPDATE,
            Self::UpdateFragment(..) => kind::UPDATE_FRAGMENT,
            Self::PmnetAck => kind::PMNET_ACK,
            Self::JointAck(_) => kind::JOINT_ACK,
            Self::Response(_) => kind::RESPONSE,
            Self::ResponseFragment(..) => kind::RESPONSE_FRAGMENT,
            Self::ResponsePart(..) => kind::RESPONSE_PART,
            Self::ResponseRequest(_) => kind::RESPONSE_REQUEST,
            Self::CacheResponse(_) => kind::CACHE_RESPONSE,
            Self::Bypass { after: None, .. } => kind::BYPASS,
            Self::Bypass { after: Some(_), .. } => kind::ORDERED_BYPASS,
            Self::BypassFragment { .. } => kind::BYPASS_FRAGMENT,
            Self::Recover { .. } => kind::RECOVER,
            Self::ServerAck => kind::SERVER_ACK,
            Self::Retransmit { .. } => kind::RETRANSMIT,
            Self::Confirmed => kind::CONFIRMED,
            Self::HeldRequest { .. } => kind::HELD_REQUEST,
            Self::Held { .. } => kind::HELD,
            Self::SessionStart { .. } => kind::SESSION_START,
            Self::SessionStarted { .. } => kind::SESSION_STARTED,
            Self::SessionEnd => kind::SESSION_END,
            Self::SessionEnded => kind::SESSION_ENDED,
            Self::SessionRefused(_) => kind::SESSION_REFUSED,
            Self::Heartbeat { .. } => kind::HEARTBEAT,
            Self::HeartbeatReply { .. } => kind::HEARTBEAT_REPLY,
            Self::Other(_) => kind::NO_OP,
        }
    }

    /// The bytes of variable length in the body: a request, a response, a piece of one, or numbers of devices.
    pub fn bytes(&self) -> &'a [u8] {
        match self {
            Self::Update(bytes)
            | Self::UpdateFragment(_, bytes)
            | Self::Response(bytes)
            | Self::ResponseFragment(_, bytes)
            | Self::ResponsePart(_, bytes)
            | Self::CacheResponse(bytes)
            | Self::JointAck(bytes)
            | Self::Bypass { request: bytes, .. }
            | Self::BypassFragment { request: bytes, .. }
            | Self::Other(bytes) => bytes,
            _ => &[],
        }
    }

    fn write_extension(&self, into: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| into.extend_from_slice(bytes);
        let place = |fragment: &Fragment| {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&fragment.index.to_le_bytes());
            bytes[2..4].copy_from_slice(&fragment.count.to_le_bytes());
            bytes[4..].copy_from_slice(&fragment.total.to_le_bytes());
            bytes
        };
        match self {
            Self::UpdateFragment(fragment, _) | Self::ResponseFragment(fragment, _) => put(&place(fragment)),
            Self::ResponsePart(Part { offset, total }, _) => {
                put(&offset.to_le_bytes());
                put(&total.to_le_bytes());
            }
            Self::ResponseRequest(Wanted { offset, len, check }) => {
                put(&offset.to_le_bytes());
                put(&len.to_le_bytes());
                put(&check.to_le_bytes());
            }
            Self::Bypass { after: Some(after), .. } => {
                put(&after.to_le_bytes());
                put(&[0; 4]);
            }
            Self::BypassFragment { fragment, after, .. } => {
                put(&place(fragment));
                put(&after.to_le_bytes());
                put(&[0; 4]);
            }
            Self::Recover { incarnation } => put(&incarnation.to_le_bytes()),
            Self::Retransmit { count } => put(&count.to_le_bytes()),
            Self::HeldRequest { nonce } => put(&nonce.to_le_bytes()),
            Self::Held { nonce, number, count } => {
                put(&nonce.to_le_bytes());
                put(&[*number]);
                put(&count.to_le_bytes());
            }
            Self::SessionStart { nonce, asks } => {
                put(&nonce.to_le_bytes());
                if *asks != Start::Plain {
                    put(&[*asks as u8]);
                }
            }
            Self::SessionStarted { nonce, first_update, first_bypass, incarnation, lease } => {
                put(&nonce.to_le_bytes());
                put(&first_update.to_le_bytes());
                put(&first_bypass.to_le_bytes());
                put(&incarnation.to_le_bytes());
                if *lease > 0 {
                    put(&lease.to_le_bytes());
                }
            }
            Self::SessionRefused(refusal) => put(&[*refusal as u8]),
            Self::Heartbeat { nonce, role, number } => {
                put(&nonce.to_le_bytes());
                put(&[*role as u8, *number]);
            }
            Self::HeartbeatReply { nonce, role, number, declines, incarnation } => {
                put(&nonce.to_le_bytes());
                put(&[*role as u8, *number, u8::from(*declines)]);
                put(&incarnation.to_le_bytes());
            }
            _ => {}
        }
    }
}

/// The bytes of a datagram of `len` bytes that are still to be parsed.
struct Reader<'a> {
    unread: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    fn body(&mut self, kind: u8) -> Result<Body<'a>, WireError> {
        Ok(match kind {
            kind::UPDATE => Body::Update(self.unread),
            kind::PMNET_ACK => Body::PmnetAck,
            kind::RESPONSE => Body::Response(self.unread),
            kind::BYPASS => Body::Bypass { after: None, request: self.unread },
            kind::RECOVER => Body::Recover { incarnation: self.optional_u64() },
            kind::CACHE_RESPONSE => Body::CacheResponse(self.unread),
            kind::UPDATE_FRAGMENT => Body::UpdateFragment(self.fragment()?, self.unread),
            kind::ORDERED_BYPASS => {
                let after = Some(self.u32()?);
                self.take::<4>()?;
                Body::Bypass { after, request: self.unread }
            }
            kind::BYPASS_FRAGMENT => {
                let (fragment, after) = (self.fragment()?, self.u32()?);
                self.take::<4>()?;
                Body::BypassFragment { fragment, after, request: self.unread }
            }
            kind::RESPONSE_FRAGMENT => Body::ResponseFragment(self.fragment()?, self.unread),
            kind::RESPONSE_PART => Body::ResponsePart(self.part()?, self.unread),
            kind::RESPONSE_REQUEST => {
                Body::ResponseRequest(Wanted { offset: self.u32()?, len: self.u32()?, check: self.u32()? })
            }
            kind::SERVER_ACK => Body::ServerAck,
            kind::JOINT_ACK => Body::JointAck(self.unread),
            kind::RETRANSMIT => match self.u32()? {
                0 => return Err(WireError::Field { what: "a count of missing updates" }),
                count => Body::Retransmit { count },
            },
            kind::CONFIRMED => Body::Confirmed,
            kind::HELD_REQUEST => Body::HeldRequest { nonce: self.u64()? },
            kind::HELD => Body::Held { nonce: self.u64()?, number: self.u8()?, count: self.u32()? },
            kind::SESSION_START => Body::SessionStart { nonce: self.u64()?, asks: self.asks()? },
            kind::SESSION_STARTED => Body::SessionStarted {
                nonce: self.u64()?,
                first_update: self.u32()?,
                first_bypass: self.u32()?,
                incarnation: self.u64()?,
                lease: if self.unread.is_empty() { 0 } else { self.u16()? },
            },
            kind::SESSION_END => Body::SessionEnd,
            kind::SESSION_ENDED => Body::SessionEnded,
            kind::SESSION_REFUSED => Body::SessionRefused(self.refusal()?),
            kind::HEARTBEAT => Body::Heartbeat { nonce: self.u64()?, role: self.role()?, number: self.u8()? },
            kind::HEARTBEAT_REPLY => Body::HeartbeatReply {
                nonce: self.u64()?,
                role: self.role()?,
                number: self.u8()?,
                declines: self.u8()? != 0,
                incarnation: self.u64()?,
            },
            _ => Body::Other(self.unread),
        })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.unread.split_first_chunk::<N>() else {
            let needed = self.len - self.unread.len() + N;
            return Err(WireError::Short { len: self.len, needed });
        };
        self.unread = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        Ok(self.take::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16, WireError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    fn u32(&mut self) -> Result<u32, WireError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// A recover packet of the release has no body.
    fn optional_u64(&mut self) -> u64 {
        self.u64().unwrap_or(0)
    }

    fn fragment(&mut self) -> Result<Fragment, WireError> {
        let fragment = Fragment { index: self.u16()?, count: self.u16()?, total: self.u32()? };
        if !(1..=FRAGMENTS_MAX).contains(&fragment.count) || fragment.index >= fragment.count {
            return Err(WireError::Field { what: "the place of a fragment" });
        }
        Ok(fragment)
    }

    fn part(&mut self) -> Result<Part, WireError> {
        let part = Part { offset: self.u32()?, total: self.u32()? };
        let end = part.offset as usize + self.unread.len();
        if end > part.total as usize {
            return Err(WireError::Field { what: "the place of a response part" });
        }
        Ok(part)
    }

    fn role(&mut self) -> Result<Role, WireError> {
        let byte = self.u8()?;
        let known = [Role::Client, Role::Device, Role::Server].into_iter().find(|role| *role as u8 == byte);
        known.ok_or(WireError::Field { what: "the role in a heartbeat" })
    }

    fn asks(&mut self) -> Result<Start, WireError> {
        let byte = if self.unread.is_empty() { 0 } else { self.u8()? };
        let known =
            [Start::Plain, Start::Leased, Start::Resumes].into_iter().find(|start| *start as u8 == byte);
        known.ok_or(WireError::Field { what: "what a session start asks for" })
    }

    fn refusal(&mut self) -> Result<Refusal, WireError> {
        let byte = self.u8()?;
        let known = [Refusal::InUse, Refusal::Unknown, Refusal::NoRoom, Refusal::Behind];
        let known = known.into_iter().find(|refusal| *refusal as u8 == byte);
        known.ok_or(WireError::Field { what: "the reason of a refusal" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One packet of each type.
    fn packets() -> Vec<Packet<'static>> {
        let fragment = Fragment { index: 1, count: 3, total: 4000 };
        let bodies = [
            Body::Update(b"set"),
            Body::UpdateFragment(fragment, b"piece"),
            Body::PmnetAck,
            Body::JointAck(&[1, 2]),
            Body::Response(b"+OK"),
            Body::ResponseFragment(fragment, b"piece"),
            Body::ResponsePart(Part { offset: 5, total: 10 }, b"piece"),
            Body::ResponseRequest(Wanted { offset: 5, len: 9, check: 0x0102_0304 }),
            Body::CacheResponse(b"value"),
            Body::Bypass { after: None, request: b"get" },
            Body::Bypass { after: Some(9), request: b"get" },
            Body::BypassFragment { fragment, after: 8, request: b"piece" },
            Body::Recover { incarnation: 0x1122_3344_5566_7788 },
            Body::ServerAck,
            Body::Retransmit { count: 3 },
            Body::Confirmed,
            Body::HeldRequest { nonce: 5 },
            Body::Held { nonce: 5, number: 2, count: 9 },
            Body::SessionStart { nonce: 5, asks: Start::Plain },
            Body::SessionStart { nonce: 5, asks: Start::Leased },
            Body::SessionStart { nonce: 5, asks: Start::Resumes },
            Body::SessionStarted {
                nonce: 5,
                first_update: 1,
                first_bypass: FIRST_BYPASS,
                incarnation: 6,
                lease: 0,
            },
            Body::SessionStarted {
                nonce: 5,
                first_update: 1,
                first_bypass: FIRST_BYPASS,
                incarnation: 6,
                lease: 9,
            },
            Body::SessionEnd,
            Body::SessionEnded,
            Body::SessionRefused(Refusal::InUse),
            Body::SessionRefused(Refusal::Behind),
            Body::Heartbeat { nonce: 1, role: Role::Device, number: 2 },
            Body::HeartbeatReply { nonce: 1, role: Role::Server, number: 0, declines: true, incarnation: 3 },
            Body::Other(b"anything"),
        ];
        bodies.map(|body| Packet::new(0x0102, 0x0304_0506, body)).to_vec()
    }

    #[test]
    fn every_kind_survives_its_bytes() {
        for packet in packets() {
            let bytes = packet.to_bytes();
            assert_eq!(Packet::parse(&bytes), Ok(packet));
        }
    }

    #[test]
    fn every_packet_that_is_cut_short_is_refused_or_another_whole_one() {
        for packet in packets() {
            let bytes = packet.to_bytes();
            for len in 0..bytes.len() {
                match Packet::parse(&bytes[..len]) {
                    Err(WireError::Short { len: told, needed }) => assert!(told == len && needed > len),
                    Ok(shorter) => assert!(shorter.to_bytes().len() >= len, "{packet:?} at {len}"),
                    Err(error) => panic!("{packet:?} at {len}: {error}"),
                }
            }
        }
    }

    #[test]
    fn the_header_is_the_one_of_the_authors_release() {
        let header =
            Header { kind: 1, ack_count: 0xfb, session: 0x0201, seq: 0x0605_0403, hash: 0x0708_090a };
        let bytes = [1, 0xfb, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0, 0, 0];
        assert_eq!(header.to_bytes(), bytes);
        assert_eq!(Header::parse(&bytes), Ok(header));
    }

    #[test]
    fn the_hash_is_the_crc_32_of_the_header_without_it() {
        let header = Header::new(kind::UPDATE, 1, 2);
        let mut bytes = header.to_bytes();
        bytes[8..12].fill(0);
        assert_eq!(header.hash, reference_crc32(&bytes));
        assert_eq!(reference_crc32(b"123456789"), 0xcbf4_3926);
    }

    /// Bit by bit, as the polynomial says.
    fn reference_crc32(bytes: &[u8]) -> u32 {
        let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
    }

    #[test]
    fn acknowledgements_of_the_release_carry_more_bytes_which_are_ignored() {
        let mut bytes = Packet::new(7, 8, Body::PmnetAck).to_bytes();
        bytes.extend_from_slice(&[1; 6]);
        assert_eq!(Packet::parse(&bytes).unwrap().body, Body::PmnetAck);
    }

    #[test]
    fn parts_beyond_the_end_of_their_response_are_refused() {
        let part = Part { offset: 4, total: 6 };
        assert!(Packet::parse(&Packet::new(1, 1, Body::ResponsePart(part, b"xy")).to_bytes()).is_ok());
        let bytes = Packet::new(1, 1, Body::ResponsePart(part, b"xyz")).to_bytes();
        assert!(matches!(Packet::parse(&bytes), Err(WireError::Field { .. })));
    }

    #[test]
    fn fragments_out_of_range_are_refused() {
        for fragment in [
            Fragment { index: 3, count: 3, total: 1 },
            Fragment { index: 0, count: 0, total: 1 },
            Fragment { index: 0, count: FRAGMENTS_MAX + 1, total: 1 },
        ] {
            let bytes = Packet::new(1, 1, Body::UpdateFragment(fragment, b"x")).to_bytes();
            assert!(matches!(Packet::parse(&bytes), Err(WireError::Field { .. })), "{fragment:?}");
        }
    }
}
