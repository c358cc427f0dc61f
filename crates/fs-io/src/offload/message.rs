//! Messages between the holder of a mount and a server. Byte tables: `docs/format/fs-offload.md`, "Messages".

use crate::common::Sharing;
pub(super) use crate::link::ServerLife;
use crate::lives::MountId;
use crate::mates::{Gone, Why};
use crate::service::SyncMode;
use landfall_fs::{Access, FileLock, InodeNumber, LockFamily, LockOwner};
use landfall_fuse::{Errno, Unique};

/// Version of the messages and of the ledger.
pub(super) const VERSION: u16 = 10;
/// Bytes of the longest message: the longest path, and what is before it.
pub(super) const MESSAGE_BYTES_MAX: usize = 4096 + 256;
/// Descriptors of one message: the ledger, and a queue for each worker.
pub(super) const DESCRIPTORS_MAX: usize = 65;
/// "LFOF"
const MAGIC: u32 = u32::from_le_bytes(*b"LFOF");

const OFFER: u16 = 1;
const ATTACH: u16 = 2;
const ACCEPTED: u16 = 3;
const REFUSED: u16 = 4;
const ENDED: u16 = 5;
const FORGET: u16 = 6;
const FORGOTTEN: u16 = 7;
const GONE: u16 = 8;
const ASK: u16 = 9;
const ALIVE: u16 = 10;
const POINT: u16 = 11;
const DURABLE: u16 = 12;
const LOCKS: u16 = 13;
const LOCK_DECIDED: u16 = 14;
const LOCK_LOST: u16 = 15;
const RECALL: u16 = 16;
const RECALLED: u16 = 17;
const ASK_KNOWN: u16 = 18;
const NOT_KNOWN: u16 = 19;

/// Locks of one message.
pub(super) const LOCKS_OF_A_MESSAGE: usize = 64;

/// The number in [`Message::Durable`] of a server that ends: everything is durable that it has done.
pub(super) const EVERYTHING: u64 = u64::MAX;

/// Identity of the files.
pub(super) type Region = [u8; 16];

/// Whether a mount has had a server before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// It is new.
    New,
    /// Its server has died, or the connection to it has ended.
    Resumed,
}

/// Whether a refusal may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    Later,
    Never,
}

/// How the requests of a mount come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// From queues of the kernel's device.
    Device,
    /// From connections: the mount is on another machine.
    Connections,
}

/// What the holder says of its mount. The descriptors of the ledger and of the queues go with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attach {
    pub(super) since: Since,
    /// Random bytes that name the mount.
    pub(super) mount: MountId,
    /// What the kernel has agreed to.
    pub(super) minor: u32,
    pub(super) features: u64,
    pub(super) max_write: u32,
    pub(super) max_readahead: u32,
    pub(super) sharing: Sharing,
    pub(super) over: Over,
    /// A mount on another machine: [`Message::Accepted::forgotten`] of the server that has accepted it last.
    pub(super) heard: u64,
    /// What the kernel's table of mounts calls it.
    pub(super) id: String,
    /// The mountpoint.
    pub(super) point: Vec<u8>,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The server's first word: it has the region with this identity, so many workers, and answers calls when it says.
    Offer { workers: u32, sync: SyncMode, region: Region, life: ServerLife },
    /// The holder's answer.
    Attach(Attach),
    /// The mount is served from now on. On another machine: whether the server knows which of its calls were done, and how many
    /// mounts it knows nothing of any more ([`landfall_fs::Calls::knows`]).
    Accepted { knows: bool, forgotten: u64 },
    /// It is not, and why. Asking again helps, or never does.
    Refused { ever: Again, why: String },
    /// The holder makes the kernel drop what it keeps of an inode.
    Forget { question: u64, inode: u64 },
    /// It has done so, for the questions up to this one.
    Forgotten { question: u64 },
    /// A name is gone by another mount: the kernel need not keep it.
    Gone(Gone),
    /// The server asks whether the holder is there. `heard` is the number of the last question that it has heard the answer to
    /// (0: none).
    Ask { number: u64, heard: u64 },
    /// It is: the answer to the question with this number.
    Alive { number: u64 },
    /// A holder on another machine loses its leases of these inodes, of which there are as many as one request changes.
    Recall { number: u64, inodes: Vec<u64> },
    /// It keeps nothing of them any more, nor of those of the recalls before this one.
    Recalled { number: u64 },
    /// A holder on another machine is asked which of these inodes its kernel does not know: a server before this one, or a
    /// connection before this one, may have told it of them.
    AskKnown { inodes: Vec<u64> },
    /// These, of those that were asked about.
    NotKnown { inodes: Vec<u64> },
    /// The holder asks whether everything is durable that was done before.
    Point(u64),
    /// It is.
    Durable(u64),
    /// Before it attaches, a holder on another machine claims locks that its mount had. Clients of owners are 0.
    Locks(Vec<(InodeNumber, FileLock)>),
    /// What has become of a request for a lock that waited: 0, or an error number.
    LockDecided { unique: u64, errno: u32 },
    /// Before the mount is accepted: an open file has lost its locks to others.
    LockLost { handle: u64 },
    /// The mount has ended, and everything is durable; otherwise what went wrong. From a holder on another machine: it has
    /// ended, and does not come back.
    Ended(String),
}

/// Peer: bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Another program, perhaps.
    #[error("what listens there is no server of files")]
    Magic,
    /// The other side is of another version.
    #[error(
        "it speaks version {0} of the offload protocol, and this program version {VERSION}: install one release"
    )]
    Version(u16),
    /// The bytes make no sense.
    #[error("it sends a malformed message")]
    Malformed,
}

impl Message {
    /// To the holder of a mount that is back, before it is accepted: the server has no descriptor, thread or memory for it yet,
    /// and tries again. No answer: no question has this number.
    pub(super) const WAIT: Self = Self::Ask { number: 0, heard: 0 };

    /// What has become of a request for a lock that waited.
    pub(super) fn lock_decided(unique: Unique, errno: Option<Errno>) -> Self {
        let errno = errno.map_or(0, |errno| errno.raw().unsigned_abs());
        Self::LockDecided { unique: unique.0, errno }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, body) = match self {
            Self::Offer { workers, sync, region, life } => {
                let sync: u32 = if *sync == SyncMode::Always { 1 } else { 0 };
                (OFFER, [&workers.to_le_bytes()[..], &sync.to_le_bytes(), region, life].concat())
            }
            Self::Attach(attach) => (ATTACH, attach.encode()),
            Self::Accepted { knows, forgotten } => {
                (ACCEPTED, [&u32::from(*knows).to_le_bytes()[..], &[0; 4], &forgotten.to_le_bytes()].concat())
            }
            Self::Refused { ever, why } => {
                let ever: u32 = if *ever == Again::Later { 0 } else { 1 };
                (REFUSED, [&ever.to_le_bytes()[..], why.as_bytes()].concat())
            }
            Self::Forget { question, inode } => {
                (FORGET, [question.to_le_bytes(), inode.to_le_bytes()].concat())
            }
            Self::Forgotten { question } => (FORGOTTEN, question.to_le_bytes().to_vec()),
            Self::Gone(gone) => (GONE, encode_gone(gone)),
            Self::Ask { number, heard } => (ASK, [number.to_le_bytes(), heard.to_le_bytes()].concat()),
            Self::Alive { number } => (ALIVE, number.to_le_bytes().to_vec()),
            Self::Recall { number, inodes } => {
                let all = std::iter::once(number).chain(inodes);
                (RECALL, all.flat_map(|number| number.to_le_bytes()).collect())
            }
            Self::Recalled { number } => (RECALLED, number.to_le_bytes().to_vec()),
            Self::AskKnown { inodes } => (ASK_KNOWN, encode_numbers(inodes)),
            Self::NotKnown { inodes } => (NOT_KNOWN, encode_numbers(inodes)),
            Self::Point(number) => (POINT, number.to_le_bytes().to_vec()),
            Self::Durable(number) => (DURABLE, number.to_le_bytes().to_vec()),
            Self::Locks(locks) => (LOCKS, locks.iter().flat_map(encode_lock).collect()),
            Self::LockDecided { unique, errno } => {
                (LOCK_DECIDED, [&unique.to_le_bytes()[..], &errno.to_le_bytes(), &[0; 4]].concat())
            }
            Self::LockLost { handle } => (LOCK_LOST, handle.to_le_bytes().to_vec()),
            Self::Ended(what) => (ENDED, what.as_bytes().to_vec()),
        };
        let mut bytes = [&MAGIC.to_le_bytes()[..], &VERSION.to_le_bytes(), &kind.to_le_bytes()].concat();
        bytes.extend_from_slice(&body);
        bytes.truncate(MESSAGE_BYTES_MAX);
        bytes
    }

    /// Reads a message. Of other versions, only what says why they refuse is understood.
    ///
    /// # Errors
    /// [`MessageError`].
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut fields = Fields(bytes);
        if fields.array().map(u32::from_le_bytes) != Ok(MAGIC) {
            return Err(MessageError::Magic);
        }
        let version = u16::from_le_bytes(fields.array()?);
        let kind = u16::from_le_bytes(fields.array()?);
        if kind == REFUSED {
            let ever = if fields.u32()? == 0 { Again::Later } else { Again::Never };
            return Ok(Self::Refused { ever, why: fields.text() });
        }
        if version != VERSION {
            return Err(MessageError::Version(version));
        }
        let message = match kind {
            OFFER => {
                let workers = fields.u32()?;
                let sync = match fields.u32()? {
                    0 => SyncMode::Fsync,
                    1 => SyncMode::Always,
                    _ => return Err(MessageError::Malformed),
                };
                Self::Offer { workers, sync, region: fields.array()?, life: fields.array()? }
            }
            ATTACH => return Attach::decode(fields).map(Self::Attach),
            ACCEPTED => match (fields.u32()?, fields.u32()?) {
                (knows @ (0 | 1), 0) => Self::Accepted { knows: knows == 1, forgotten: fields.u64()? },
                _ => return Err(MessageError::Malformed),
            },
            FORGET => Self::Forget { question: fields.u64()?, inode: fields.u64()? },
            FORGOTTEN => Self::Forgotten { question: fields.u64()? },
            ASK => Self::Ask { number: fields.u64()?, heard: fields.u64()? },
            ALIVE => Self::Alive { number: fields.u64()? },
            RECALL => Self::Recall { number: fields.u64()?, inodes: fields.numbers()? },
            RECALLED => Self::Recalled { number: fields.u64()? },
            ASK_KNOWN => Self::AskKnown { inodes: fields.numbers()? },
            NOT_KNOWN => Self::NotKnown { inodes: fields.numbers()? },
            POINT => Self::Point(fields.u64()?),
            DURABLE => Self::Durable(fields.u64()?),
            LOCKS => return decode_locks(fields),
            LOCK_DECIDED => {
                let (decided, zero) =
                    (Self::LockDecided { unique: fields.u64()?, errno: fields.u32()? }, fields.u32()?);
                if zero == 0 { decided } else { return Err(MessageError::Malformed) }
            }
            LOCK_LOST => Self::LockLost { handle: fields.u64()? },
            GONE => return decode_gone(fields).map(Self::Gone),
            ENDED => return Ok(Self::Ended(fields.text())),
            _ => return Err(MessageError::Malformed),
        };
        if fields.0.is_empty() { Ok(message) } else { Err(MessageError::Malformed) }
    }
}

fn encode_numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn encode_lock((inode, lock): &(InodeNumber, FileLock)) -> Vec<u8> {
    let numbers = [inode.0, lock.owner.id, lock.handle, lock.first, lock.last].map(u64::to_le_bytes).concat();
    let (access, family) =
        (u8::from(lock.access == Access::Write), u8::from(lock.owner.family == LockFamily::Whole));
    [&numbers[..], &lock.process.to_le_bytes(), &[access, family, 0, 0]].concat()
}

fn decode_locks(mut fields: Fields<'_>) -> Result<Message, MessageError> {
    let mut locks = Vec::new();
    while !fields.0.is_empty() {
        let inode = InodeNumber(fields.u64()?);
        let [id, handle, first, last] = [fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?];
        let process = fields.u32()?;
        let (access, family) = match fields.array()? {
            [0, family, 0, 0] => (Access::Read, family),
            [1, family, 0, 0] => (Access::Write, family),
            _ => return Err(MessageError::Malformed),
        };
        let family = match family {
            0 => LockFamily::Range,
            1 => LockFamily::Whole,
            _ => return Err(MessageError::Malformed),
        };
        let owner = LockOwner { client: 0, family, id };
        if inode.0 == 0 || first > last || locks.len() == LOCKS_OF_A_MESSAGE {
            return Err(MessageError::Malformed);
        }
        locks.push((inode, FileLock { owner, handle, access, first, last, process }));
    }
    Ok(Message::Locks(locks))
}

fn encode_gone(gone: &Gone) -> Vec<u8> {
    let why: u64 = if gone.why == Why::Removed { 0 } else { 1 };
    let numbers = [why, gone.parent.0, gone.inode.0].map(u64::to_le_bytes).concat();
    [&numbers[..], &gone.name].concat()
}

fn decode_gone(mut fields: Fields<'_>) -> Result<Gone, MessageError> {
    let why = match fields.u64()? {
        0 => Why::Removed,
        1 => Why::Renamed,
        _ => return Err(MessageError::Malformed),
    };
    let (parent, inode) = (InodeNumber(fields.u64()?), InodeNumber(fields.u64()?));
    Ok(Gone { why, parent, inode, name: fields.0.to_vec() })
}

impl Attach {
    fn encode(&self) -> Vec<u8> {
        let since: u32 = if self.since == Since::New { 0 } else { 1 };
        let len = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_le_bytes();
        [
            &since.to_le_bytes()[..],
            &self.minor.to_le_bytes(),
            &self.mount,
            &self.features.to_le_bytes(),
            &self.max_write.to_le_bytes(),
            &self.max_readahead.to_le_bytes(),
            &len(self.id.len()),
            &len(self.point.len()),
            &self.served_how().to_le_bytes(),
            &self.heard.to_le_bytes(),
            self.id.as_bytes(),
            &self.point,
        ]
        .concat()
    }

    fn served_how(&self) -> u32 {
        match (self.over, self.sharing) {
            (Over::Connections, _) => 2,
            (Over::Device, Sharing::Shared) => 1,
            (Over::Device, Sharing::Alone) => 0,
        }
    }

    fn decode(mut fields: Fields<'_>) -> Result<Self, MessageError> {
        let since = match fields.u32()? {
            0 => Since::New,
            1 => Since::Resumed,
            _ => return Err(MessageError::Malformed),
        };
        let (minor, mount) = (fields.u32()?, fields.array()?);
        let features = u64::from_le_bytes(fields.array()?);
        let (max_write, max_readahead) = (fields.u32()?, fields.u32()?);
        let id_len = usize::from(u16::from_le_bytes(fields.array()?));
        let point_len = usize::from(u16::from_le_bytes(fields.array()?));
        let (sharing, over) = match fields.u32()? {
            0 => (Sharing::Alone, Over::Device),
            1 => (Sharing::Shared, Over::Device),
            2 => (Sharing::Shared, Over::Connections),
            _ => return Err(MessageError::Malformed),
        };
        let heard = fields.u64()?;
        let id = String::from_utf8(fields.take(id_len)?.to_vec()).map_err(|_| MessageError::Malformed)?;
        let point = fields.take(point_len)?.to_vec();
        let attach =
            Self { since, mount, minor, features, max_write, max_readahead, sharing, over, heard, id, point };
        fields.0.is_empty().then_some(attach).ok_or(MessageError::Malformed)
    }
}

/// The bytes that have not been read yet.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn take(&mut self, len: usize) -> Result<&'b [u8], MessageError> {
        let (taken, left) = self.0.split_at_checked(len).ok_or(MessageError::Malformed)?;
        self.0 = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], MessageError> {
        self.take(N)?.try_into().map_err(|_| MessageError::Malformed)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(self.0).into_owned()
    }

    fn u32(&mut self) -> Result<u32, MessageError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, MessageError> {
        self.array().map(u64::from_le_bytes)
    }

    /// All that are left.
    fn numbers(&mut self) -> Result<Vec<u64>, MessageError> {
        let mut numbers = Vec::new();
        while !self.0.is_empty() {
            numbers.push(self.u64()?);
        }
        Ok(numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attach() -> Attach {
        Attach {
            since: Since::Resumed,
            mount: *b"0123456789abcdef",
            minor: 45,
            features: 0x0102,
            max_write: 1 << 20,
            max_readahead: 3,
            sharing: Sharing::Shared,
            over: Over::Device,
            heard: 0x0506,
            id: "0:41".to_owned(),
            point: b"/mnt/f".to_vec(),
        }
    }

    /// The bytes are those of `docs/format/fs-offload.md`.
    #[test]
    fn messages_are_frozen() {
        let head = |kind: u8| [b'L', b'F', b'O', b'F', 10, 0, kind, 0].to_vec();
        let (region, life) = (*b"0123456789abcdef", *b"ABCDEFGHIJKLMNOP");
        let offer = Message::Offer { workers: 4, sync: SyncMode::Always, region, life };
        let bytes = [&head(1)[..], &[4, 0, 0, 0, 1, 0, 0, 0], &region, &life].concat();
        assert_eq!(offer.encode(), bytes);
        let mut bytes = [&head(2)[..], &[1, 0, 0, 0, 45, 0, 0, 0], b"0123456789abcdef"].concat();
        bytes.extend([2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 3, 0, 0, 0, 4, 0, 6, 0, 1, 0, 0, 0]);
        bytes.extend([6, 5, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"0:41/mnt/f");
        assert_eq!(Message::Attach(attach()).encode(), bytes);
        let accepted = Message::Accepted { knows: true, forgotten: 258 };
        let bytes = [&head(3)[..], &[1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(accepted.encode(), bytes);
        let refused = Message::Refused { ever: Again::Never, why: "no".into() };
        assert_eq!(refused.encode(), [&head(4)[..], &[1, 0, 0, 0], b"no"].concat());
        assert_eq!(Message::Ended(String::new()).encode(), head(5));
        let (forget, forgotten) =
            (Message::Forget { question: 3, inode: 258 }, Message::Forgotten { question: 3 });
        let bytes = [&head(6)[..], &[3, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(forget.encode(), bytes);
        assert_eq!(forgotten.encode(), [&head(7)[..], &[3, 0, 0, 0, 0, 0, 0, 0]].concat());
        let (parent, inode) = (InodeNumber(1), InodeNumber(258));
        let gone = Message::Gone(Gone { why: Why::Renamed, parent, inode, name: b"ab".to_vec() });
        let bytes =
            [&head(8)[..], &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0], b"ab"]
                .concat();
        assert_eq!(gone.encode(), bytes);
        let (asked, alive) = (Message::Ask { number: 258, heard: 3 }, Message::Alive { number: 258 });
        assert_eq!(
            asked.encode(),
            [&head(9)[..], &[2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
        assert_eq!(alive.encode(), [&head(10)[..], &[2, 1, 0, 0, 0, 0, 0, 0]].concat());
        let (point, durable) = (Message::Point(258), Message::Durable(258));
        let number = [2, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(point.encode(), [&head(11)[..], &number].concat());
        assert_eq!(durable.encode(), [&head(12)[..], &number].concat());
        let remote = Message::Attach(Attach { over: Over::Connections, ..attach() });
        assert_eq!(remote.encode()[52..56], [2, 0, 0, 0]);
        let ended = Message::Ended("why".into());
        let attach = Message::Attach(attach());
        let owner = LockOwner { client: 0, family: LockFamily::Whole, id: 258 };
        let lock = FileLock { owner, handle: 3, access: Access::Write, first: 0, last: u64::MAX, process: 9 };
        let locks = Message::Locks(vec![(inode, lock)]);
        let bytes =
            [&number[..], &number, &[3, 0, 0, 0, 0, 0, 0, 0], &[0; 8], &[255; 8], &[9, 0, 0, 0, 1, 1, 0, 0]];
        assert_eq!(locks.encode(), [&head(13)[..], &bytes.concat()].concat());
        let decided = Message::lock_decided(Unique(258), Some(Errno::INTR));
        assert_eq!(decided.encode(), [&head(14)[..], &number, &[4, 0, 0, 0, 0, 0, 0, 0]].concat());
        let lost = Message::LockLost { handle: 258 };
        assert_eq!(lost.encode(), [&head(15)[..], &number].concat());
        let recall = Message::Recall { number: 3, inodes: vec![258, 9] };
        let bytes = [&[3, 0, 0, 0, 0, 0, 0, 0][..], &number, &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(recall.encode(), [&head(16)[..], &bytes].concat());
        let recalled = Message::Recalled { number: 258 };
        assert_eq!(recalled.encode(), [&head(17)[..], &number].concat());
        let (asked_known, not_known) =
            (Message::AskKnown { inodes: vec![258, 9] }, Message::NotKnown { inodes: vec![258] });
        let bytes = [&number[..], &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(asked_known.encode(), [&head(18)[..], &bytes].concat());
        assert_eq!(not_known.encode(), [&head(19)[..], &number].concat());
        let noted =
            [point, durable, remote, alive, locks, decided, lost, recall, recalled, asked_known, not_known];
        let all = [offer, attach, accepted, ended, forget, forgotten, gone, asked].into_iter().chain(noted);
        all.for_each(|message| assert_eq!(Message::decode(&message.encode()), Ok(message)));
    }

    #[test]
    fn other_versions_are_named_and_their_refusals_understood() {
        let with_version = |message: &Message| {
            let mut bytes = message.encode();
            bytes[4] = 11;
            Message::decode(&bytes)
        };
        assert_eq!(
            with_version(&Message::Accepted { knows: false, forgotten: 0 }),
            Err(MessageError::Version(11))
        );
        let refused = Message::Refused { ever: Again::Later, why: "I am newer".into() };
        assert_eq!(with_version(&refused), Ok(refused));
        assert_eq!(Message::decode(b"HTTP/1.1 200 OK"), Err(MessageError::Magic));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_none(kind in 0_u8..20, body in prop::collection::vec(any::<u8>(), 0..96)) {
            let bytes = [&[b'L', b'F', b'O', b'F', 10, 0, kind, 0][..], &body].concat();
            if let Ok(message) = Message::decode(&bytes)
                && !matches!(message, Message::Refused { .. } | Message::Ended(_))
            {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
