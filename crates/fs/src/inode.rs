//! The value of an inode's record: attributes, and the content of small files and links. Byte table:
//! `docs/format/fs.md`, "Inode".

use crate::fields::Fields;
use landfall_heap::Damage;

/// The auxiliary field of the record of an inode without a name. Recovery finds these without reading a value.
pub(crate) const ORPHAN: u32 = 1;
/// Bytes of the attributes. With the key (8 B) they fill the body of a record.
pub const ATTRIBUTE_BYTES: usize = 52;
/// Longest file that is kept in the record of its inode, bytes: one piece.
pub const CONTENT_BYTES_MAX: u64 = 64 << 10;

/// The content of the inode follows its attributes.
const FLAG_CONTENT: u32 = 1;
/// There is a record of extended attributes.
const FLAG_EXTENDED: u32 = 2;

/// The bits of `st_mode` that hold the type.
const TYPE_MASK: u32 = 0o170_000;

/// Type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Character,
    /// A block device.
    Block,
}

impl FileType {
    /// The type of a directory entry: the top four bits of the mode's sixteen (`d_type`).
    pub fn code(self) -> u8 {
        match self {
            Self::Fifo => 1,
            Self::Character => 2,
            Self::Directory => 4,
            Self::Block => 6,
            Self::File => 8,
            Self::Link => 10,
            Self::Socket => 12,
        }
    }

    /// The type with this code.
    pub fn of_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Fifo,
            2 => Self::Character,
            4 => Self::Directory,
            6 => Self::Block,
            8 => Self::File,
            10 => Self::Link,
            12 => Self::Socket,
            _ => return None,
        })
    }
}

/// Type and permissions, as in `st_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u32);

impl Mode {
    /// A type with permission bits. Other bits of `permissions` are dropped.
    pub fn new(file_type: FileType, permissions: u32) -> Self {
        Self(u32::from(file_type.code()) << 12 | permissions & !TYPE_MASK & 0xFFFF)
    }

    /// Reads a mode.
    ///
    /// # Errors
    /// [`Damage::RecordFields`] if there is no such type, or a bit above the type is set.
    pub fn of_bits(bits: u32) -> Result<Self, Damage> {
        let code = u8::try_from(bits >> 12).map_err(|_| Damage::RecordFields)?;
        FileType::of_code(code).map(|_| Self(bits)).ok_or(Damage::RecordFields)
    }

    /// As in `st_mode`.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The type.
    pub fn file_type(self) -> FileType {
        FileType::of_code((self.0 >> 12) as u8).expect("a mode is made with a type")
    }

    /// Permissions, and the bits for set-user-ID, set-group-ID and sticky.
    pub fn permissions(self) -> u32 {
        self.0 & !TYPE_MASK
    }
}

/// The value of an inode's record. Its mtime and ctime are in fields of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Type and permissions.
    pub mode: Mode,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that refer to the inode.
    pub nlink: u32,
    /// Bytes of a file or of a link's target; entries of a directory.
    pub size: u64,
    /// Last access, Unix nanoseconds.
    pub atime_ns: i64,
    /// Creation, Unix nanoseconds.
    pub btime_ns: i64,
    /// Directory: the number of its parent. Device: `st_rdev`. Otherwise 0.
    pub extra: u64,
    /// The content follows the attributes.
    pub has_content: bool,
    /// There is a record of extended attributes.
    pub has_extended: bool,
}

impl Inode {
    /// Encodes the attributes.
    pub fn encode(&self) -> [u8; ATTRIBUTE_BYTES] {
        let mut bytes = [0; ATTRIBUTE_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&self.mode.bits().to_le_bytes());
        put(&self.uid.to_le_bytes());
        put(&self.gid.to_le_bytes());
        put(&self.nlink.to_le_bytes());
        put(&self.size.to_le_bytes());
        put(&self.atime_ns.to_le_bytes());
        put(&self.btime_ns.to_le_bytes());
        put(&self.extra.to_le_bytes());
        let content = if self.has_content { FLAG_CONTENT } else { 0 };
        let extended = if self.has_extended { FLAG_EXTENDED } else { 0 };
        put(&(content | extended).to_le_bytes());
        bytes
    }

    /// Decodes a record's value, or its first [`ATTRIBUTE_BYTES`] bytes. `len` is the length of the whole value.
    ///
    /// # Errors
    /// [`Damage::Newer`]: unknown flags. [`Damage::RecordFields`]: too short, no such type, or a length that is not that of
    /// the content.
    pub fn decode(bytes: &[u8], len: u64) -> Result<Self, Damage> {
        let mut fields = Fields(bytes);
        let mode = Mode::of_bits(fields.u32()?)?;
        let (uid, gid, nlink) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (size, atime_ns, btime_ns) = (fields.u64()?, fields.i64()?, fields.i64()?);
        let (extra, flags) = (fields.u64()?, fields.u32()?);
        let has_content = flags & FLAG_CONTENT != 0;
        let content = if has_content { size } else { 0 };
        if flags & !(FLAG_CONTENT | FLAG_EXTENDED) != 0 {
            return Err(Damage::Newer);
        }
        if content > CONTENT_BYTES_MAX || len != ATTRIBUTE_BYTES as u64 + content {
            return Err(Damage::RecordFields);
        }
        let has_extended = flags & FLAG_EXTENDED != 0;
        Ok(Self { mode, uid, gid, nlink, size, atime_ns, btime_ns, extra, has_content, has_extended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inode(size: u64, has_content: bool) -> Inode {
        Inode {
            mode: Mode::new(FileType::File, 0o4_755),
            uid: 1000,
            gid: 100,
            nlink: 2,
            size,
            atime_ns: -1,
            btime_ns: 5,
            extra: 0,
            has_content,
            has_extended: true,
        }
    }

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn attributes_are_frozen() {
        let bytes = inode(0x0102, true).encode();
        assert_eq!(bytes[..16], [0xED, 0x89, 0, 0, 0xE8, 3, 0, 0, 100, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[16..32], [2, 1, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(bytes[32..], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    }

    #[test]
    fn modes_have_a_type_and_sixteen_bits() {
        for code in 0..16 {
            let bits = code << 12 | 0o644;
            let mode = Mode::of_bits(bits);
            assert_eq!(mode.is_ok(), FileType::of_code(code as u8).is_some(), "{code}");
            if let Ok(mode) = mode {
                assert_eq!((mode.bits(), mode.permissions()), (bits, 0o644));
                assert_eq!(Mode::new(mode.file_type(), 0o644), mode);
            }
        }
        assert_eq!(Mode::of_bits(0x10_000 | 8 << 12), Err(Damage::RecordFields));
        assert_eq!(Mode::new(FileType::Link, u32::MAX).bits(), 10 << 12 | 0o7_777);
    }

    proptest! {
        #[test]
        fn attributes_decode_to_what_was_encoded(size in 0..=CONTENT_BYTES_MAX, has_content: bool) {
            let inode = inode(size, has_content);
            let len = ATTRIBUTE_BYTES as u64 + if has_content { size } else { 0 };
            prop_assert_eq!(Inode::decode(&inode.encode(), len), Ok(inode));
            prop_assert_eq!(Inode::decode(&inode.encode(), len + 1), Err(Damage::RecordFields));
            prop_assert_eq!(Inode::decode(&inode.encode()[1..], len), Err(Damage::RecordFields));
        }

        #[test]
        fn any_bytes_are_attributes_or_damage(bytes: [u8; ATTRIBUTE_BYTES], len: u64) {
            if let Ok(inode) = Inode::decode(&bytes, len) {
                prop_assert_eq!(inode.encode(), bytes);
            }
        }
    }

    #[test]
    fn content_beyond_one_piece_is_damage_and_unknown_flags_are_newer() {
        let long = inode(CONTENT_BYTES_MAX + 1, true);
        let len = ATTRIBUTE_BYTES as u64 + long.size;
        assert_eq!(Inode::decode(&long.encode(), len), Err(Damage::RecordFields));
        let mut bytes = inode(0, false).encode();
        bytes[48] |= 4;
        assert_eq!(Inode::decode(&bytes, ATTRIBUTE_BYTES as u64), Err(Damage::Newer));
    }
}
