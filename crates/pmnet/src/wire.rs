//! Packets: the header of the authors' public release, and the extensions behind it.
//!
//! Byte tables: `docs/format/pmnet.md`. [`Packet::parse`] is the only way from bytes to a packet and trusts nothing;
//! [`Packet::write`] is the way back.

use crate::error::WireError;
use crc_fast::CrcAlgorithm;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// What clients and servers put into `ack_count`.
pub const FROM_HOSTS: u8 = 0xfb;
/// What a device puts there when it sends an update of a foreign session again.
pub const SENT_AGAIN: u8 = 0xfc;
/// Numbers of devices in their chain are below this.
pub const DEVICES_MAX: u8 = 250;
/// Bypasses are numbered from here on; updates below.
pub const FIRST_BYPASS: u32 = 1 << 31;
/// Most fragments of a request or response.
pub const FRAGMENTS_MAX: u16 = 1024;
/// Packets of a response that a server sends before the client asks for more.
pub const RESPONSE_WINDOW: usize = 32;
/// Bytes of the longest extension: a bypass fragment's.
pub const EXTENSION_BYTES_MAX: usize = 16;
/// Bytes of Ethernet payload that IPv4 and UDP headers take.
pub const IPV4_UDP_BYTES: usize = 28;
/// The same for IPv6.
pub const IPV6_UDP_BYTES: usize = 48;

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What kind of packet; unknown ones are forwarded.
    pub kind: u8,
    /// [`FROM_HOSTS`], or in a PMNet-ACK the device's number; in a joint one that of the device nearest to the client.
    pub ack_count: u8,
    /// The client's number for the session.
    pub session: u16,
    /// Number in the session: its meaning depends on the kind.
    pub seq: u32,
    /// A hint.
    pub hash: u32,
}

impl Header {
    /// A header as clients and servers send it: `ack_count` and hash filled in.
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

    /// Whether the hash is another one than Landfall's clients write: the authors' release writes one of its own.
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

    /// Reads a header; what is behind it is not looked at.
    ///
    /// # Errors
    /// [`WireError::Short`].
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

/// The `type` field.
pub mod kind {
    /// An update that wants an acknowledgement.
    pub const UPDATE: u8 = 1;
    /// A device's acknowledgement.
    pub const PMNET_ACK: u8 = 2;
    /// The server's response to a bypass.
    pub const RESPONSE: u8 = 3;
    /// A request that no device logs.
    pub const BYPASS: u8 = 4;
    /// The server asks for everything after a number.
    pub const RECOVER: u8 = 5;
    /// A response from a device's read cache.
    pub const CACHE_RESPONSE: u8 = 6;
    /// A piece of an update.
    pub const UPDATE_FRAGMENT: u8 = 0x10;
    /// A bypass to be executed behind an update.
    pub const ORDERED_BYPASS: u8 = 0x11;
    /// A piece of a bypass.
    pub const BYPASS_FRAGMENT: u8 = 0x12;
    /// A piece of a response.
    pub const RESPONSE_FRAGMENT: u8 = 0x13;
    /// A piece of a response that is sent window by window.
    pub const RESPONSE_PART: u8 = 0x14;
    /// The client asks for a window of a response.
    pub const RESPONSE_REQUEST: u8 = 0x15;
    /// The server has committed every update up to a number.
    pub const SERVER_ACK: u8 = 0x18;
    /// The server misses updates.
    pub const RETRANSMIT: u8 = 0x19;
    /// Several devices' acknowledgements of one update.
    pub const JOINT_ACK: u8 = 0x1a;
    /// A client tells what it knows to be committed.
    pub const CONFIRMED: u8 = 0x1b;
    /// The server asks devices what they hold of a session.
    pub const HELD_REQUEST: u8 = 0x1c;
    /// A device tells it.
    pub const HELD: u8 = 0x1d;
    /// A client begins a session.
    pub const SESSION_START: u8 = 0x20;
    /// The server has taken it.
    pub const SESSION_STARTED: u8 = 0x21;
    /// A client ends a session.
    pub const SESSION_END: u8 = 0x22;
    /// The server has ended it.
    pub const SESSION_ENDED: u8 = 0x23;
    /// The server does not take a session, or does not know it.
    pub const SESSION_REFUSED: u8 = 0x24;
    /// Are you there?
    pub const HEARTBEAT: u8 = 0x28;
    /// Yes.
    pub const HEARTBEAT_REPLY: u8 = 0x29;
    /// Nothing.
    pub const NO_OP: u8 = 0xff;
}

/// Place of a piece in what it is a piece of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// From 0.
    pub index: u16,
    /// How many there are, at most [`FRAGMENTS_MAX`].
    pub count: u16,
    /// Bytes of the whole.
    pub total: u32,
}

/// Place of a piece in a response that is sent window by window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Bytes in front of it.
    pub offset: u32,
    /// Bytes of the whole.
    pub total: u32,
}

/// Bytes of a response that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first.
    pub offset: u32,
    /// How many; none: all has arrived, or nothing more is wanted, and the server may forget the response.
    pub len: u32,
    /// CRC-32 (IEEE) of the response that is meant.
    pub check: u32,
}

/// Who sends or answers a heartbeat.
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

/// The number of a *session started* that says that a session goes on; one that begins bears 0.
pub const RESUMED: u32 = 1;

/// What a session start asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Start {
    /// A session without a lease: the server never ends it by itself.
    Plain = 0,
    /// A session with a lease.
    Leased = 1,
    /// To go on with a session whose lease has run out; for no other.
    Resumes = 2,
}

/// Why a session was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// The identity is in use: choose another number.
    InUse = 1,
    /// No such session.
    Unknown = 2,
    /// The server has as many sessions as it takes.
    NoRoom = 3,
    /// The server has lost updates of the session that it has confirmed.
    Behind = 4,
}

/// What is behind the header, by the packet's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A whole update.
    Update(&'a [u8]),
    /// A piece of one.
    UpdateFragment(Fragment, &'a [u8]),
    /// A device has logged an update.
    PmnetAck,
    /// That device has, and so have these: their numbers.
    JointAck(&'a [u8]),
    /// A whole response to a bypass.
    Response(&'a [u8]),
    /// A piece of one.
    ResponseFragment(Fragment, &'a [u8]),
    /// A piece of one that is sent window by window. The header's hash is the check of the whole.
    ResponsePart(Part, &'a [u8]),
    /// These bytes of a response are wanted.
    ResponseRequest(Wanted),
    /// A response from a device's cache.
    CacheResponse(&'a [u8]),
    /// A bypass. With `after`: to be executed once every update up to it is applied.
    Bypass {
        /// The update to wait for.
        after: Option<u32>,
        /// The request.
        request: &'a [u8],
    },
    /// A piece of one. An `after` of 0 waits for nothing.
    BypassFragment {
        /// Which piece.
        fragment: Fragment,
        /// The update to wait for.
        after: u32,
        /// The piece.
        request: &'a [u8],
    },
    /// Everything after the header's number is wanted again; or, as the release asks, exactly that number.
    Recover {
        /// The server's; 0 in the release's form, which has none.
        incarnation: u64,
    },
    /// Everything up to the header's number is committed.
    ServerAck,
    /// So many updates from the header's number on have not arrived.
    Retransmit {
        /// How many, at least one.
        count: u32,
    },
    /// A server-ACK has covered everything up to the header's number.
    Confirmed,
    /// How much of the session is in the logs of devices, above the header's number?
    HeldRequest {
        /// Comes back.
        nonce: u64,
    },
    /// So much.
    Held {
        /// The asker's.
        nonce: u64,
        /// The device's number.
        number: u8,
        /// Updates above the asker's number.
        count: u32,
    },
    /// A session begins.
    SessionStart {
        /// Tells a repetition from another client's.
        nonce: u64,
        /// What it asks for.
        asks: Start,
    },
    /// It may begin.
    SessionStarted {
        /// The client's.
        nonce: u64,
        /// Number of its first update.
        first_update: u32,
        /// Number of its first bypass.
        first_bypass: u32,
        /// The server's.
        incarnation: u64,
        /// Seconds for which the client may believe devices after the server has heard it; 0: for ever.
        lease: u16,
    },
    /// A session ends.
    SessionEnd,
    /// It has ended.
    SessionEnded,
    /// It is refused.
    SessionRefused(Refusal),
    /// Are you there?
    Heartbeat {
        /// Comes back.
        nonce: u64,
        /// Who asks.
        role: Role,
        /// The asker's number, for devices.
        number: u8,
    },
    /// Yes.
    HeartbeatReply {
        /// The asker's.
        nonce: u64,
        /// Who answers.
        role: Role,
        /// The answerer's number, for devices.
        number: u8,
        /// True if it takes no updates into its log.
        declines: bool,
        /// The answerer's.
        incarnation: u64,
    },
    /// Another kind, or a no-op: to be forwarded.
    Other(&'a [u8]),
}

/// A packet: the payload of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The first 16 bytes.
    pub header: Header,
    /// The rest.
    pub body: Body<'a>,
}

impl<'a> Packet<'a> {
    /// A packet as clients and servers send it: the header's kind is the body's.
    pub fn new(session: u16, seq: u32, body: Body<'a>) -> Self {
        Self { header: Header::new(body.kind(), session, seq), body }
    }

    /// Reads a datagram, trusting none of it.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let header = Header::parse(bytes)?;
        let mut rest = Reader { rest: &bytes[HEADER_BYTES..], len: bytes.len() };
        Ok(Self { header, body: rest.body(header.kind)? })
    }

    /// The datagram's bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + EXTENSION_BYTES_MAX + self.body.bytes().len());
        self.write(&mut bytes);
        bytes
    }

    /// Appends the datagram's bytes.
    pub fn write(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(&self.header.to_bytes());
        self.body.write_extension(into);
        into.extend_from_slice(self.body.bytes());
    }
}

impl<'a> Body<'a> {
    /// Which piece of a bypass it is; 0 for all that has a number of its own.
    pub fn piece(&self) -> u16 {
        match self {
            Self::BypassFragment { fragment, .. } => fragment.index,
            _ => 0,
        }
    }

    /// The `type` that goes with it.
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

    /// The request, response, piece of one, or numbers that it carries.
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

/// What has not been read of a datagram of `len` bytes.
struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    fn body(&mut self, kind: u8) -> Result<Body<'a>, WireError> {
        Ok(match kind {
            kind::UPDATE => Body::Update(self.rest),
            kind::PMNET_ACK => Body::PmnetAck,
            kind::RESPONSE => Body::Response(self.rest),
            kind::BYPASS => Body::Bypass { after: None, request: self.rest },
            kind::RECOVER => Body::Recover { incarnation: self.optional_u64() },
            kind::CACHE_RESPONSE => Body::CacheResponse(self.rest),
            kind::UPDATE_FRAGMENT => Body::UpdateFragment(self.fragment()?, self.rest),
            kind::ORDERED_BYPASS => {
                let after = Some(self.u32()?);
                self.take::<4>()?;
                Body::Bypass { after, request: self.rest }
            }
            kind::BYPASS_FRAGMENT => {
                let (fragment, after) = (self.fragment()?, self.u32()?);
                self.take::<4>()?;
                Body::BypassFragment { fragment, after, request: self.rest }
            }
            kind::RESPONSE_FRAGMENT => Body::ResponseFragment(self.fragment()?, self.rest),
            kind::RESPONSE_PART => Body::ResponsePart(self.part()?, self.rest),
            kind::RESPONSE_REQUEST => {
                Body::ResponseRequest(Wanted { offset: self.u32()?, len: self.u32()?, check: self.u32()? })
            }
            kind::SERVER_ACK => Body::ServerAck,
            kind::JOINT_ACK => Body::JointAck(self.rest),
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
                lease: if self.rest.is_empty() { 0 } else { self.u16()? },
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
            _ => Body::Other(self.rest),
        })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            let needed = self.len - self.rest.len() + N;
            return Err(WireError::Short { len: self.len, needed });
        };
        self.rest = rest;
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

    /// The release's recovery request has no body.
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
        let end = part.offset as usize + self.rest.len();
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
        let byte = if self.rest.is_empty() { 0 } else { self.u8()? };
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

    /// One packet of every kind.
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
