//! Headers of messages.

use landfall_heap::crc;

/// The stream of a copy. Other streams are numbered by their writers.
pub const COPY_STREAM: u8 = 255;
/// The stream of questions for room.
pub const ROOM_STREAM: u8 = 254;
/// The stream of heartbeats.
pub const HEARTBEAT_STREAM: u8 = 253;
/// Length of a header, bytes.
pub const HEADER_BYTES: usize = 48;
/// Longest head, bytes: a transaction is whole in one message, and its keys are in the head.
const HEAD_BYTES_MAX: u32 = 2 << 30;
/// Longest payload, bytes: the largest region.
const PAYLOAD_BYTES_MAX: u64 = 512 << 30;
const LETTERS: &[u8; 4] = b"LFCH";
const VERSION: u8 = 5;

/// What is wrong with a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The peer speaks something else.
    #[error("this is no message of a chain")]
    Letters,
    /// The peer is of another release.
    #[error(
        "the peer's messages are of version {0}, and this program knows version {VERSION}: run one release at all nodes"
    )]
    Version(u8),
    /// Bytes were changed on the way.
    #[error("a message does not match its checksum")]
    Checksum,
    /// A code, a kind or a reason that is not known.
    #[error("{what} {value} is not known")]
    Unknown {
        /// What it is.
        what: &'static str,
        /// Its value.
        value: u8,
    },
    /// A length beyond its limit.
    #[error("{what} of {len} bytes is too long")]
    TooLong {
        /// What it is.
        what: &'static str,
        /// Its length.
        len: u64,
    },
    /// A head ends within a field, or behind the last one.
    #[error("a message has the wrong length")]
    Length,
    /// A message that is not expected here.
    #[error("a message {0:?} is not expected here")]
    Unexpected(Code),
}

/// Version of the messages: two nodes exchange none unless theirs is the same.
pub const MESSAGES_VERSION: u8 = VERSION;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// A node opens a stream.
    Hello = 1,
    /// The stream is open.
    Welcome = 2,
    /// The connection is of no use.
    Refused = 3,
    /// Records of a batch.
    Chunk = 4,
    /// Everything up to a number is durable here and behind.
    Acknowledged = 5,
    /// A copy begins. The receiver keeps its keys, to be compared, or begins from nothing.
    CopyBegins = 6,
    /// Records that were there before.
    Copied = 7,
    /// The receiver is in step.
    CopyEnds = 8,
    /// How much room is there?
    Ask = 9,
    /// Are these records there?
    Check = 10,
    /// The sender asks whether the view still counts.
    Heartbeat = 11,
    /// It does, here and behind.
    Proof = 12,
    /// What does the receiver have of a range of keys?
    Compare = 13,
    /// That differs.
    Compared = 14,
}

impl Code {
    const ALL: [Self; 14] = [
        Self::Hello,
        Self::Welcome,
        Self::Refused,
        Self::Chunk,
        Self::Acknowledged,
        Self::CopyBegins,
        Self::Copied,
        Self::CopyEnds,
        Self::Ask,
        Self::Check,
        Self::Heartbeat,
        Self::Proof,
        Self::Compare,
        Self::Compared,
    ];

    /// True if the payload has values.
    fn has_values(self) -> bool {
        matches!(self, Self::Chunk | Self::Copied)
    }

    fn from_byte(value: u8) -> Result<Self, WireError> {
        let known = Self::ALL.into_iter().find(|code| *code as u8 == value);
        known.ok_or(WireError::Unknown { what: "a message", value })
    }
}

/// How a payload is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Packing {
    /// It is as its values are stored.
    None = 0,
    /// Blocks of LZ4.
    Lz4 = 1,
}

impl Packing {
    fn from_byte(value: u8) -> Result<Self, WireError> {
        match value {
            0 => Ok(Self::None),
            1 => Ok(Self::Lz4),
            value => Err(WireError::Unknown { what: "a packing", value }),
        }
    }
}

/// The header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub code: Code,
    /// How the payload is packed: of a chunk and a copied chunk only.
    pub packing: Packing,
    /// Version of the sender's view.
    pub version: u64,
    /// Number of the message, or the number that is acknowledged.
    pub number: u64,
    /// Length of the head, bytes.
    pub head_len: u32,
    /// Length of the payload as it is sent, bytes.
    pub payload_len: u64,
    /// CRC-32C of the head.
    pub head_crc: u32,
}

impl Header {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..4].copy_from_slice(LETTERS);
        out[4] = VERSION;
        out[5] = self.code as u8;
        out[6] = self.packing as u8;
        out[8..16].copy_from_slice(&self.version.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..28].copy_from_slice(&self.head_len.to_le_bytes());
        out[32..40].copy_from_slice(&self.payload_len.to_le_bytes());
        out[40..44].copy_from_slice(&self.head_crc.to_le_bytes());
        let crc = crc::of(&out[..44]);
        out[44..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header. Of other versions, only a refusal is understood, which says why: its place and its form stay.
    ///
    /// # Errors
    /// [`WireError`] says what is wrong.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        if bytes[..4] != *LETTERS {
            return Err(WireError::Letters);
        }
        let is_ours = bytes[4] == VERSION;
        let is_whole = u32_at(bytes, 44) == crc::of(&bytes[..44]);
        if !is_ours && (bytes[5] != Code::Refused as u8 || !is_whole) {
            return Err(WireError::Version(bytes[4]));
        }
        if !is_whole {
            return Err(WireError::Checksum);
        }
        let header = Self {
            code: Code::from_byte(bytes[5])?,
            packing: Packing::from_byte(bytes[6])?,
            version: u64_at(bytes, 8),
            number: u64_at(bytes, 16),
            head_len: u32_at(bytes, 24),
            payload_len: u64_at(bytes, 32),
            head_crc: u32_at(bytes, 40),
        };
        if header.packing != Packing::None && !header.code.has_values() {
            return Err(WireError::Unexpected(header.code));
        }
        if header.head_len > HEAD_BYTES_MAX {
            return Err(WireError::TooLong { what: "a head", len: u64::from(header.head_len) });
        }
        if header.payload_len > PAYLOAD_BYTES_MAX {
            return Err(WireError::TooLong { what: "a payload", len: header.payload_len });
        }
        Ok(header)
    }

    /// Length of the whole message, bytes.
    pub fn message_len(&self) -> usize {
        HEADER_BYTES + self.head_len as usize + self.payload_len as usize
    }
}

/// Header and head of a message whose payload has `payload_len` bytes.
///
/// # Panics
/// If the head is longer than a message takes.
pub fn message(code: Code, version: u64, number: u64, head: &[u8], payload_len: u64) -> Vec<u8> {
    message_with(Packing::None, (code, version, number), head, payload_len)
}

/// As [`message`], for a payload that is packed, and has `payload_len` bytes then.
///
/// # Panics
/// As [`message`].
pub fn packed_message(code: Code, version: u64, number: u64, head: &[u8], payload_len: u64) -> Vec<u8> {
    message_with(Packing::Lz4, (code, version, number), head, payload_len)
}

fn message_with(
    packing: Packing,
    (code, version, number): (Code, u64, u64),
    head: &[u8],
    payload_len: u64,
) -> Vec<u8> {
    let head_len = u32::try_from(head.len()).expect("a head has less than 4 GiB");
    let head_crc = crc::of(head);
    let header = Header { code, packing, version, number, head_len, payload_len, head_crc };
    [&header.encode()[..], head].concat()
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header(code: usize, version: u64, number: u64, head_len: u32, payload_len: u64) -> Header {
        let code = Code::ALL[code % Code::ALL.len()];
        let packing =
            if code.has_values() && number.is_multiple_of(2) { Packing::Lz4 } else { Packing::None };
        Header { code, packing, version, number, head_len, payload_len, head_crc: 77 }
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(
            code in 0_usize..14, version: u64, number: u64, head in 0..=HEAD_BYTES_MAX, payload in 0..=PAYLOAD_BYTES_MAX,
        ) {
            let header = header(code, version, number, head, payload);
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn a_flipped_bit_is_seen(bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header(3, 1, 2, 3, 4).encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Header::decode(&bytes).is_err());
        }
    }

    #[test]
    fn only_values_are_packed_and_only_in_known_ways() {
        let packed = |code| Header { packing: Packing::Lz4, ..header(code, 1, 1, 0, 0) }.encode();
        for code in 0..Code::ALL.len() {
            let expected = matches!(Code::ALL[code], Code::Chunk | Code::Copied);
            assert_eq!(Header::decode(&packed(code)).is_ok(), expected, "{:?}", Code::ALL[code]);
        }
        let mut bytes = packed(3);
        bytes[6] = 2;
        let crc = crc::of(&bytes[..44]);
        bytes[44..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(WireError::Unknown { what: "a packing", value: 2 }));
    }

    #[test]
    fn of_another_version_a_refusal_is_read_and_nothing_else() {
        let of = |code: usize, version: u8| {
            let mut bytes = header(code, 1, 0, 3, 0).encode();
            bytes[4] = version;
            let crc = crc::of(&bytes[..44]);
            bytes[44..].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        for version in [VERSION - 1, VERSION + 1, u8::MAX] {
            for code in 0..Code::ALL.len() {
                let read = Header::decode(&of(code, version)).map(|header| header.code);
                let expected = match Code::ALL[code] {
                    Code::Refused => Ok(Code::Refused),
                    _ => Err(WireError::Version(version)),
                };
                assert_eq!(read, expected, "{:?}", Code::ALL[code]);
            }
            let mut changed = of(2, version);
            changed[44] ^= 1;
            assert_eq!(Header::decode(&changed), Err(WireError::Version(version)));
        }
    }

    #[test]
    fn lengths_have_limits() {
        let long = header(3, 1, 1, HEAD_BYTES_MAX + 1, 0).encode();
        assert_eq!(
            Header::decode(&long),
            Err(WireError::TooLong { what: "a head", len: u64::from(HEAD_BYTES_MAX) + 1 })
        );
        let long = header(3, 1, 1, 0, u64::MAX).encode();
        assert!(matches!(Header::decode(&long), Err(WireError::TooLong { what: "a payload", .. })));
    }
}
