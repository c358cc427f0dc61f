//! Messages of the socket. Byte tables: `docs/format/fs-link.md`, "Connection".

use crate::layout::VERSION;
use crate::lease::Kind;
use landfall_fs::InodeNumber;

/// Bytes of the longest message.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Most parts in one answer.
pub const PARTS_MAX: usize = (MESSAGE_BYTES_MAX - 16) / PART_BYTES;
const PART_BYTES: usize = 20;

/// The bytes are no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the message is none of this version")]
pub struct Malformed;

/// What a library asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message.
    Hello {
        /// The library's version.
        version: u16,
        /// `st_dev` of the mount whose files it wants. That of another version is not known: 0.
        device: u64,
    },
    /// A lease.
    Acquire {
        /// What it is to allow.
        kind: Kind,
        /// Of which inode.
        inode: InodeNumber,
    },
    /// Where bytes of a leased file are.
    Map {
        /// Place of the lease.
        place: u32,
        /// Its generation.
        generation: u32,
        /// First byte in the file.
        offset: u64,
        /// End of the range.
        end: u64,
    },
    /// The library does not need a lease any more.
    Release {
        /// Place of the lease.
        place: u32,
        /// Its generation.
        generation: u32,
    },
    /// Slabs and landing runs, so that the next ones are there.
    Refill,
    /// The first message for a library in a virtual machine, whose NVDIMM is the region.
    HelloFrom {
        /// The library's version.
        version: u16,
        /// The mount whose files it wants.
        mount: [u8; 16],
        /// Names the time from one boot of the machine to the next.
        boot: [u8; 16],
        /// Names the server whose region the machine has, from its start to its end.
        life: [u8; 16],
    },
    /// The library has closed its socket.
    Left,
    /// Its process has ended, too: it comes after [`Self::Left`].
    Ended,
    /// Everything that the library has appended is to be durable, wherever it must be.
    Sync,
}

/// Bytes of a file that lie in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the file.
    pub offset: u64,
    /// First byte in the region.
    pub at: u64,
    /// Bytes.
    pub len: u32,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Another version.
    Version = 1,
    /// The region is not memory that processes can share.
    Medium = 2,
    /// The kernel keeps written data.
    WriteBack = 3,
    /// No such inode, or no file.
    Inode = 4,
    /// The inode is left to the mount for a while.
    Left = 5,
    /// There is no space for runs.
    Space = 6,
    /// The lease has been revoked.
    Revoked = 7,
    /// The client is fenced, or the mount ends.
    Fenced = 8,
    /// Too many clients or leases.
    Many = 9,
    /// The server does not know the message.
    Message = 10,
    /// An error of the region.
    Region = 11,
    /// Every change must be durable before its call returns.
    Always = 12,
    /// The mount is none that the server serves on this machine.
    Mount = 13,
}

impl Reason {
    const ALL: [Self; 13] = [
        Self::Version,
        Self::Medium,
        Self::WriteBack,
        Self::Inode,
        Self::Left,
        Self::Space,
        Self::Revoked,
        Self::Fenced,
        Self::Many,
        Self::Message,
        Self::Region,
        Self::Always,
        Self::Mount,
    ];
}

/// A refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// The error of POSIX that comes nearest.
    pub errno: u32,
    /// Time in which asking again is useless, milliseconds.
    pub wait_ms: u32,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No.
    Refused(Refusal),
    /// To [`Request::Hello`]; the region and the control memory come with it.
    Welcome {
        /// Number of the client.
        client: u32,
        /// Seed of the region's hash: the control memory says the same.
        hash_seed: u64,
        /// Offset in the region of the first byte of the descriptor that comes with it for the region.
        begin: u64,
        /// Offset of the control memory in the descriptor that comes with it for that.
        control: u64,
    },
    /// To [`Request::Acquire`]. The rest is in the control memory.
    Lease {
        /// Its place.
        place: u32,
        /// Its generation.
        generation: u32,
    },
    /// To [`Request::Map`]: at most [`PARTS_MAX`] parts, in order.
    Parts {
        /// All bytes before this offset are in the parts, or zeroes.
        end: u64,
        /// The parts.
        parts: Vec<Part>,
    },
    /// To all others.
    Done,
    /// No answer, but the last word to a library in a virtual machine: the server has ended in good order, and all that it has
    /// done is durable.
    Settled,
}

/// Takes fields from the front of a message.
struct Taker<'a>(&'a [u8]);

impl Taker<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, left) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = left;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

struct Maker(Vec<u8>);

impl Maker {
    fn new(code: u32) -> Self {
        Self(Vec::new()).u32(code)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }
}

impl Request {
    /// The first message of this version, to the server of the mount with this `st_dev`.
    #[must_use]
    pub fn hello(device: u64) -> Self {
        Self::Hello { version: VERSION, device }
    }

    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let made = match *self {
            Self::Hello { version, device } => Maker::new(1).u32(u32::from(version)).u64(device),
            Self::Acquire { kind, inode } => Maker::new(2).u32(code_of(kind)).u64(inode.0),
            Self::Map { place, generation, offset, end } => {
                Maker::new(3).u32(place).u32(generation).u64(offset).u64(end)
            }
            Self::Release { place, generation } => Maker::new(4).u32(place).u32(generation),
            Self::Refill => Maker::new(5),
            Self::HelloFrom { version, mount, boot, life } => {
                Maker::new(6).u32(u32::from(version)).bytes(&mount).bytes(&boot).bytes(&life)
            }
            Self::Left => Maker::new(7),
            Self::Ended => Maker::new(8),
            Self::Sync => Maker::new(9),
        };
        made.0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Taker(bytes);
        let request = match fields.u32()? {
            1 => match u16::try_from(fields.u32()?).map_err(|_| Malformed)? {
                version @ VERSION => Self::Hello { version, device: fields.u64()? },
                // Whatever else it says, it is to be told that.
                version => return Ok(Self::Hello { version, device: 0 }),
            },
            2 => Self::Acquire { kind: kind_of(fields.u32()?)?, inode: InodeNumber(fields.u64()?) },
            3 => Self::Map {
                place: fields.u32()?,
                generation: fields.u32()?,
                offset: fields.u64()?,
                end: fields.u64()?,
            },
            4 => Self::Release { place: fields.u32()?, generation: fields.u32()? },
            5 => Self::Refill,
            6 => match u16::try_from(fields.u32()?).map_err(|_| Malformed)? {
                version @ VERSION => {
                    let (mount, boot, life) = (fields.array()?, fields.array()?, fields.array()?);
                    Self::HelloFrom { version, mount, boot, life }
                }
                version => {
                    let none = [0; 16];
                    return Ok(Self::HelloFrom { version, mount: none, boot: none, life: none });
                }
            },
            7 => Self::Left,
            8 => Self::Ended,
            9 => Self::Sync,
            _ => return Err(Malformed),
        };
        fields.end(request)
    }
}

fn code_of(kind: Kind) -> u32 {
    match kind {
        Kind::Read => 1,
        Kind::Write => 2,
    }
}

fn kind_of(code: u32) -> Result<Kind, Malformed> {
    [Kind::Read, Kind::Write].into_iter().find(|kind| code_of(*kind) == code).ok_or(Malformed)
}

impl Reply {
    /// The message's bytes.
    ///
    /// # Panics
    /// If there are more than [`PARTS_MAX`] parts.
    pub fn encode(&self) -> Vec<u8> {
        let made = match self {
            Self::Refused(Refusal { reason, errno, wait_ms }) => {
                Maker::new(100).u32(*reason as u32).u32(*errno).u32(*wait_ms)
            }
            Self::Welcome { client, hash_seed, begin, control } => {
                Maker::new(101).u32(*client).u64(*hash_seed).u64(*begin).u64(*control)
            }
            Self::Lease { place, generation } => Maker::new(102).u32(*place).u32(*generation),
            Self::Parts { end, parts } => {
                assert!(parts.len() <= PARTS_MAX, "the caller has cut the parts");
                let made = Maker::new(103).u32(parts.len() as u32).u64(*end);
                parts.iter().fold(made, |made, part| made.u64(part.offset).u64(part.at).u32(part.len))
            }
            Self::Done => Maker::new(104),
            Self::Settled => Maker::new(105),
        };
        made.0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Taker(bytes);
        let reply = match fields.u32()? {
            100 => {
                let code = fields.u32()?;
                let reason =
                    Reason::ALL.into_iter().find(|reason| *reason as u32 == code).ok_or(Malformed)?;
                Self::Refused(Refusal { reason, errno: fields.u32()?, wait_ms: fields.u32()? })
            }
            101 => Self::Welcome {
                client: fields.u32()?,
                hash_seed: fields.u64()?,
                begin: fields.u64()?,
                control: fields.u64()?,
            },
            102 => Self::Lease { place: fields.u32()?, generation: fields.u32()? },
            103 => {
                let (count, end) = (fields.u32()? as usize, fields.u64()?);
                if count > PARTS_MAX {
                    return Err(Malformed);
                }
                let mut part = || Ok(Part { offset: fields.u64()?, at: fields.u64()?, len: fields.u32()? });
                Self::Parts { end, parts: (0..count).map(|_| part()).collect::<Result<_, _>>()? }
            }
            104 => Self::Done,
            105 => Self::Settled,
            _ => return Err(Malformed),
        };
        fields.end(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requests() -> impl Strategy<Value = Request> {
        let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write)];
        prop_oneof![
            any::<u64>().prop_map(Request::hello),
            any::<([u8; 16], [u8; 16], [u8; 16])>().prop_map(|(mount, boot, life)| Request::HelloFrom {
                version: VERSION,
                mount,
                boot,
                life
            }),
            Just(Request::Left),
            Just(Request::Ended),
            Just(Request::Sync),
            (kind, any::<u64>())
                .prop_map(|(kind, inode)| Request::Acquire { kind, inode: InodeNumber(inode) }),
            any::<(u32, u32, u64, u64)>().prop_map(|(place, generation, offset, end)| Request::Map {
                place,
                generation,
                offset,
                end
            }),
            any::<(u32, u32)>().prop_map(|(place, generation)| Request::Release { place, generation }),
            Just(Request::Refill),
        ]
    }

    fn replies() -> impl Strategy<Value = Reply> {
        let refused = (prop::sample::select(Reason::ALL.to_vec()), any::<u32>(), any::<u32>());
        let part = any::<(u64, u64, u32)>().prop_map(|(offset, at, len)| Part { offset, at, len });
        prop_oneof![
            refused.prop_map(|(reason, errno, wait_ms)| Reply::Refused(Refusal { reason, errno, wait_ms })),
            any::<(u32, u64, u64, u64)>().prop_map(|(client, hash_seed, begin, control)| Reply::Welcome {
                client,
                hash_seed,
                begin,
                control
            }),
            any::<(u32, u32)>().prop_map(|(place, generation)| Reply::Lease { place, generation }),
            (any::<u64>(), prop::collection::vec(part, 0..=PARTS_MAX))
                .prop_map(|(end, parts)| Reply::Parts { end, parts }),
            Just(Reply::Done),
            Just(Reply::Settled),
        ]
    }

    proptest! {
        #[test]
        fn messages_decode_to_what_was_encoded_and_other_lengths_are_refused(
            request in requests(), reply in replies(),
        ) {
            let bytes = request.encode();
            prop_assert_eq!(Request::decode(&bytes), Ok(request));
            prop_assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), Err(Malformed));
            prop_assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), Err(Malformed));
            let bytes = reply.encode();
            prop_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
            prop_assert_eq!(Reply::decode(&bytes), Ok(reply));
            prop_assert_eq!(Reply::decode(&[&bytes[..], &[0]].concat()), Err(Malformed));
        }

        #[test]
        fn fuzz_any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..64), code in 0..10_u32) {
            let _ = Request::decode(&bytes);
            let _ = Reply::decode(&bytes);
            let coded = [&code.to_le_bytes()[..], &bytes].concat();
            match Request::decode(&coded) {
                Ok(Request::Hello { version, .. } | Request::HelloFrom { version, .. }) if version != VERSION => {}
                Ok(request) => prop_assert_eq!(request.encode(), coded),
                Err(Malformed) => {}
            }
            let _ = Reply::decode(&[&(code + 99).to_le_bytes()[..], &bytes].concat());
        }
    }
}
