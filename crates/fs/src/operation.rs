//! The value of an operation's record: everything that a client does but writes. Byte table: `docs/format/fs.md`,
//! "Operations".

use crate::calls::{Call, CallerId};
use crate::fallocate::{COLLAPSE_RANGE, PUNCH_HOLE};
use crate::fields::Fields;
use crate::inode::Mode;
use crate::key::InodeNumber;
use crate::name::{ExtendedName, Name, TARGET_BYTES_MAX};
use landfall_heap::Damage;

/// Longest value of an extended attribute, bytes (`XATTR_SIZE_MAX`).
pub(crate) const EXTENDED_BYTES_MAX: usize = 64 << 10;

const CREATE: u8 = 2;
const SYMLINK: u8 = 3;
const LINK: u8 = 4;
const UNLINK: u8 = 5;
const RENAME: u8 = 6;
const SETATTR: u8 = 7;
const ALLOCATE: u8 = 8;
const CLONE: u8 = 9;
const SET_EXTENDED: u8 = 10;
const REMOVE_EXTENDED: u8 = 11;
const RELEASE: u8 = 12;
const CALL: u8 = 13;
const END_CALLS: u8 = 14;

/// What every operation carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the lease under which it was executed.
    pub lease: u64,
    /// When it was executed, Unix nanoseconds.
    pub time_ns: i64,
}

/// Attributes to change. Those that are `None` stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, without the type.
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length of a file, bytes: it is cut off, or ends in a hole.
    pub size: Option<u64>,
    /// Last access, Unix nanoseconds.
    pub atime_ns: Option<i64>,
    /// Last change of the data, Unix nanoseconds.
    pub mtime_ns: Option<i64>,
}

/// An operation other than a write, with what was decided when it was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Makes a file, directory, device, pipe or socket.
    Create {
        /// The directory; `None`: the inode has no name (`O_TMPFILE`).
        place: Option<(InodeNumber, Name<'a>)>,
        /// The new inode.
        number: InodeNumber,
        /// Type and permissions.
        mode: Mode,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// `st_rdev` of a device; otherwise 0.
        rdev: u64,
    },
    /// Makes a symbolic link.
    Symlink {
        /// The directory.
        parent: InodeNumber,
        /// The name in it.
        name: Name<'a>,
        /// The new inode.
        number: InodeNumber,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// What it refers to: 1 to [`TARGET_BYTES_MAX`] bytes.
        target: &'a [u8],
    },
    /// Gives an inode a further name.
    Link {
        /// The directory.
        parent: InodeNumber,
        /// The name in it.
        name: Name<'a>,
        /// The inode.
        number: InodeNumber,
        /// What has the name loses it to the inode, unless that is a directory.
        replaces: bool,
    },
    /// Removes a name.
    Unlink {
        /// The directory.
        parent: InodeNumber,
        /// The name in it.
        name: Name<'a>,
        /// It names a directory, which must be empty.
        is_directory: bool,
    },
    /// Gives a name's inode another name.
    Rename {
        /// The directory of the old name.
        parent: InodeNumber,
        /// The old name.
        name: Name<'a>,
        /// The directory of the new name.
        new_parent: InodeNumber,
        /// The new name.
        new_name: Name<'a>,
        /// The new name must not exist (`RENAME_NOREPLACE`).
        no_replace: bool,
        /// The two names exchange their inodes (`RENAME_EXCHANGE`).
        exchange: bool,
    },
    /// Changes attributes.
    SetAttributes {
        /// The inode.
        number: InodeNumber,
        /// What changes.
        attributes: Attributes,
    },
    /// Reserves, punches, zeroes, collapses or inserts a range (`fallocate`).
    Allocate {
        /// The file.
        number: InodeNumber,
        /// `FALLOC_FL_*`.
        mode: u32,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Makes a range refer to the bytes of another one.
    Clone {
        /// The file that changes.
        number: InodeNumber,
        /// First byte in it.
        offset: u64,
        /// The file whose bytes it gets.
        source: InodeNumber,
        /// First byte in that.
        source_offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Sets an extended attribute.
    SetExtended {
        /// The inode.
        number: InodeNumber,
        /// Name of the attribute.
        name: ExtendedName<'a>,
        /// Its value, 64 KiB at most.
        value: &'a [u8],
    },
    /// Removes an extended attribute.
    RemoveExtended {
        /// The inode.
        number: InodeNumber,
        /// Name of the attribute.
        name: ExtendedName<'a>,
    },
    /// Deletes an inode without a name that nobody has open any more.
    Release {
        /// The inode.
        number: InodeNumber,
    },
    /// The group that this ends is what a call of a mount on another machine has done.
    Call(Call),
    /// A mount on another machine has ended, and asks for no call any more.
    EndCalls {
        /// The mount.
        mount: CallerId,
    },
}

/// Builds a value.
struct Builder(Vec<u8>);

impl Builder {
    fn new(code: u8, flags: u8, stamp: Stamp) -> Self {
        Self(vec![code, flags]).u64(stamp.lease).u64(stamp.time_ns.cast_unsigned())
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn number(self, number: InodeNumber) -> Self {
        self.u64(number.0)
    }

    /// Appends bytes of which the length is known from what is before them, or which end the value.
    fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn sized(mut self, bytes: &[u8]) -> Self {
        let len = u16::try_from(bytes.len()).expect("names and targets are short");
        self.0.extend_from_slice(&len.to_le_bytes());
        self.rest(bytes)
    }

    fn name(self, name: Name<'_>) -> Self {
        self.sized(name.bytes())
    }
}

impl Operation<'_> {
    /// The code, and the flags.
    fn head(&self) -> (u8, u8) {
        match self {
            Self::Create { place, .. } => (CREATE, u8::from(place.is_none())),
            Self::Symlink { .. } => (SYMLINK, 0),
            Self::Link { replaces, .. } => (LINK, u8::from(*replaces)),
            Self::Unlink { is_directory, .. } => (UNLINK, u8::from(*is_directory)),
            Self::Rename { no_replace, exchange, .. } => {
                (RENAME, u8::from(*no_replace) | u8::from(*exchange) << 1)
            }
            Self::SetAttributes { .. } => (SETATTR, 0),
            Self::Allocate { .. } => (ALLOCATE, 0),
            Self::Clone { .. } => (CLONE, 0),
            Self::SetExtended { .. } => (SET_EXTENDED, 0),
            Self::RemoveExtended { .. } => (REMOVE_EXTENDED, 0),
            Self::Release { .. } => (RELEASE, 0),
            Self::Call(_) => (CALL, 0),
            Self::EndCalls { .. } => (END_CALLS, 0),
        }
    }

    /// True if the operation is about calls of mounts on other machines, and no file.
    pub(crate) fn is_of_calls(&self) -> bool {
        matches!(self, Self::Call(_) | Self::EndCalls { .. })
    }

    /// True if the operation takes no space once it is published, so that it must be possible when there is none: it removes
    /// something, cuts a file off or punches it, or changes attributes, whose record replaces one that is as long.
    pub(crate) fn keeps_space(&self) -> bool {
        match self {
            Self::Unlink { .. }
            | Self::RemoveExtended { .. }
            | Self::Release { .. }
            | Self::EndCalls { .. }
            | Self::SetAttributes { .. } => true,
            Self::Allocate { mode, .. } => mode & (PUNCH_HOLE | COLLAPSE_RANGE) != 0,
            _ => false,
        }
    }

    /// The record's value.
    ///
    /// # Panics
    /// If a link's target is longer than [`TARGET_BYTES_MAX`].
    pub fn encode(&self, stamp: Stamp) -> Vec<u8> {
        let (code, flags) = self.head();
        let to = Builder::new(code, flags, stamp);
        let built = match *self {
            Self::Create { place, number, mode, uid, gid, rdev } => {
                let to = to.number(number).u32(mode.bits()).u32(uid).u32(gid).u64(rdev);
                match place {
                    Some((parent, name)) => to.number(parent).name(name),
                    None => to,
                }
            }
            Self::Symlink { parent, name, number, uid, gid, target } => {
                assert!(target.len() <= TARGET_BYTES_MAX, "the caller has checked the target");
                to.number(parent).number(number).u32(uid).u32(gid).name(name).sized(target)
            }
            Self::Link { parent, name, number, .. } => to.number(parent).number(number).name(name),
            Self::Unlink { parent, name, .. } => to.number(parent).name(name),
            Self::Rename { parent, name, new_parent, new_name, .. } => {
                to.number(parent).number(new_parent).name(name).name(new_name)
            }
            Self::SetAttributes { number, attributes } => encode_attributes(to.number(number), &attributes),
            Self::Allocate { number, mode, offset, len } => to.number(number).u32(mode).u64(offset).u64(len),
            Self::Clone { number, offset, source, source_offset, len } => {
                to.number(number).u64(offset).number(source).u64(source_offset).u64(len)
            }
            Self::SetExtended { number, name, value } => to.number(number).sized(name.bytes()).rest(value),
            Self::RemoveExtended { number, name } => to.number(number).sized(name.bytes()),
            Self::Release { number } => to.number(number),
            Self::Call(Call { mount, queue, id, numbers }) => {
                to.rest(&mount).rest(&[queue]).u64(id).u64(numbers[0]).u64(numbers[1])
            }
            Self::EndCalls { mount } => to.rest(&mount),
        };
        built.0
    }
}

/// One bit for each attribute that changes, in the order of the fields, then the values of all.
fn encode_attributes(to: Builder, attributes: &Attributes) -> Builder {
    let Attributes { permissions, uid, gid, size, atime_ns, mtime_ns } = *attributes;
    let is_set = [
        permissions.is_some(),
        uid.is_some(),
        gid.is_some(),
        size.is_some(),
        atime_ns.is_some(),
        mtime_ns.is_some(),
    ];
    let mask = (0..).zip(is_set).map(|(bit, is_set)| u32::from(is_set) << bit).sum();
    let time = |time: Option<i64>| time.unwrap_or(0).cast_unsigned();
    let to = to.u32(mask).u32(permissions.unwrap_or(0)).u32(uid.unwrap_or(0)).u32(gid.unwrap_or(0));
    to.u64(size.unwrap_or(0)).u64(time(atime_ns)).u64(time(mtime_ns))
}

fn decode_attributes(fields: &mut Fields<'_>) -> Result<Attributes, Damage> {
    let mask = fields.u32()?;
    // A value whose bit is not set is 0: each operation has one encoding.
    fn field<T: Default + PartialEq>(mask: u32, bit: u32, value: T) -> Result<Option<T>, Damage> {
        match mask & 1 << bit != 0 {
            true => Ok(Some(value)),
            false if value == T::default() => Ok(None),
            false => Err(Damage::RecordFields),
        }
    }
    let attributes = Attributes {
        permissions: field(mask, 0, fields.u32()?)?,
        uid: field(mask, 1, fields.u32()?)?,
        gid: field(mask, 2, fields.u32()?)?,
        size: field(mask, 3, fields.u64()?)?,
        atime_ns: field(mask, 4, fields.i64()?)?,
        mtime_ns: field(mask, 5, fields.i64()?)?,
    };
    if mask < 1 << 6 { Ok(attributes) } else { Err(Damage::RecordFields) }
}

fn number(fields: &mut Fields<'_>) -> Result<InodeNumber, Damage> {
    fields.u64().map(InodeNumber)
}

fn name<'a>(fields: &mut Fields<'a>) -> Result<Name<'a>, Damage> {
    Name::new(fields.sized()?).map_err(|_| Damage::RecordFields)
}

fn extended_name<'a>(fields: &mut Fields<'a>) -> Result<ExtendedName<'a>, Damage> {
    ExtendedName::new(fields.sized()?).map_err(|_| Damage::RecordFields)
}

impl<'a> Operation<'a> {
    /// Reads a record's value.
    ///
    /// # Errors
    /// [`Damage::RecordFields`]: whatever [`Self::encode`] does not write.
    pub fn decode(value: &'a [u8]) -> Result<(Stamp, Self), Damage> {
        let mut fields = Fields(value);
        let (code, flags) = (fields.u8()?, fields.u8()?);
        let stamp = Stamp { lease: fields.u64()?, time_ns: fields.i64()? };
        let operation = Self::decode_fields(code, flags, &mut fields)?;
        fields.end()?;
        // Flags that the operation does not have.
        if operation.head() == (code, flags) { Ok((stamp, operation)) } else { Err(Damage::RecordFields) }
    }

    fn decode_fields(code: u8, flags: u8, fields: &mut Fields<'a>) -> Result<Self, Damage> {
        Ok(match code {
            CREATE => Self::decode_create(flags, fields)?,
            SYMLINK => Self::decode_symlink(fields)?,
            LINK => {
                let (parent, number) = (number(fields)?, number(fields)?);
                Self::Link { parent, number, name: name(fields)?, replaces: flags & 1 != 0 }
            }
            UNLINK => {
                let parent = number(fields)?;
                Self::Unlink { parent, name: name(fields)?, is_directory: flags & 1 != 0 }
            }
            RENAME => {
                let (parent, new_parent) = (number(fields)?, number(fields)?);
                let (name, new_name) = (name(fields)?, name(fields)?);
                let (no_replace, exchange) = (flags & 1 != 0, flags & 2 != 0);
                Self::Rename { parent, name, new_parent, new_name, no_replace, exchange }
            }
            SETATTR => {
                let number = number(fields)?;
                Self::SetAttributes { number, attributes: decode_attributes(fields)? }
            }
            ALLOCATE => {
                let (number, mode) = (number(fields)?, fields.u32()?);
                Self::Allocate { number, mode, offset: fields.u64()?, len: fields.u64()? }
            }
            CLONE => {
                let (file, offset) = (number(fields)?, fields.u64()?);
                let (source, source_offset) = (number(fields)?, fields.u64()?);
                Self::Clone { number: file, offset, source, source_offset, len: fields.u64()? }
            }
            SET_EXTENDED => {
                let (number, name) = (number(fields)?, extended_name(fields)?);
                let len = fields.0.len();
                if len > EXTENDED_BYTES_MAX {
                    return Err(Damage::RecordFields);
                }
                Self::SetExtended { number, name, value: fields.bytes(len)? }
            }
            REMOVE_EXTENDED => {
                let number = number(fields)?;
                Self::RemoveExtended { number, name: extended_name(fields)? }
            }
            RELEASE => Self::Release { number: number(fields)? },
            CALL => {
                let (mount, queue, id) = (fields.array()?, fields.u8()?, fields.u64()?);
                Self::Call(Call { mount, queue, id, numbers: [fields.u64()?, fields.u64()?] })
            }
            END_CALLS => Self::EndCalls { mount: fields.array()? },
            _ => return Err(Damage::RecordFields),
        })
    }

    fn decode_create(flags: u8, fields: &mut Fields<'a>) -> Result<Self, Damage> {
        let (file, mode) = (number(fields)?, Mode::of_bits(fields.u32()?)?);
        let (uid, gid, rdev) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let place = match flags & 1 {
            0 => Some((number(fields)?, name(fields)?)),
            _ => None,
        };
        Ok(Self::Create { place, number: file, mode, uid, gid, rdev })
    }

    fn decode_symlink(fields: &mut Fields<'a>) -> Result<Self, Damage> {
        let (parent, number) = (number(fields)?, number(fields)?);
        let (uid, gid) = (fields.u32()?, fields.u32()?);
        let (name, target) = (name(fields)?, fields.sized()?);
        if target.is_empty() || target.len() > TARGET_BYTES_MAX {
            return Err(Damage::RecordFields);
        }
        Ok(Self::Symlink { parent, name, number, uid, gid, target })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::FileType;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp { lease: 3, time_ns: -2 };
    const A: InodeNumber = InodeNumber(0x0A);
    const B: InodeNumber = InodeNumber(0x0B);

    fn all() -> Vec<Operation<'static>> {
        let (name, new_name) = (Name::new(b"n").unwrap(), Name::new(b"new").unwrap());
        let attribute = ExtendedName::new(b"n").unwrap();
        let mode = Mode::new(FileType::File, 0o640);
        let create = |place| Operation::Create { place, number: B, mode, uid: 1, gid: 2, rdev: 5 };
        let rename = |no_replace, exchange| Operation::Rename {
            parent: A,
            name,
            new_parent: B,
            new_name,
            no_replace,
            exchange,
        };
        let attributes = Attributes {
            permissions: Some(0o600),
            size: Some(9),
            mtime_ns: Some(-7),
            ..Attributes::default()
        };
        vec![
            create(Some((A, name))),
            create(None),
            Operation::Symlink { parent: A, name, number: B, uid: 1, gid: 2, target: b"../t" },
            Operation::Link { parent: A, name, number: B, replaces: false },
            Operation::Link { parent: A, name, number: B, replaces: true },
            Operation::Unlink { parent: A, name, is_directory: false },
            Operation::Unlink { parent: A, name, is_directory: true },
            rename(true, false),
            rename(false, true),
            Operation::SetAttributes { number: A, attributes },
            Operation::Allocate { number: A, mode: 3, offset: 4096, len: 8192 },
            Operation::Clone { number: A, offset: 1, source: B, source_offset: 2, len: 3 },
            Operation::SetExtended { number: A, name: attribute, value: b"value" },
            Operation::RemoveExtended { number: A, name: attribute },
            Operation::Release { number: A },
            Operation::Call(Call { mount: *b"0123456789abcdef", queue: 2, id: 9, numbers: [10, 11] }),
            Operation::EndCalls { mount: *b"0123456789abcdef" },
        ]
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn operations_are_frozen() {
        const HEAD: &str = "0300000000000000feffffffffffffff";
        let (a, b) = ("0a00000000000000", "0b00000000000000");
        let fields = [
            ("0200", format!("{b}a0810000010000000200000005000000000000000a00000000000000{}", "01006e")),
            ("0201", format!("{b}a081000001000000020000000500000000000000")),
            ("0300", format!("{a}{b}010000000200000001006e04002e2e2f74")),
            ("0400", format!("{a}{b}01006e")),
            ("0401", format!("{a}{b}01006e")),
            ("0500", format!("{a}01006e")),
            ("0501", format!("{a}01006e")),
            ("0601", format!("{a}{b}01006e03006e6577")),
            ("0602", format!("{a}{b}01006e03006e6577")),
            (
                "0700",
                format!(
                    "{a}290000008001000000000000000000000900000000000000{}{}",
                    "0000000000000000", "f9ffffffffffffff"
                ),
            ),
            ("0800", format!("{a}0300000000100000000000000020000000000000")),
            ("0900", format!("{a}0100000000000000{b}02000000000000000300000000000000")),
            ("0a00", format!("{a}01006e76616c7565")),
            ("0b00", format!("{a}01006e")),
            ("0c00", a.to_owned()),
            ("0d00", format!("{}020900000000000000{a}{b}", hex(b"0123456789abcdef"))),
            ("0e00", hex(b"0123456789abcdef")),
        ];
        let operations = all();
        assert_eq!(operations.len(), fields.len());
        for (operation, (head, fields)) in operations.iter().zip(&fields) {
            assert_eq!(hex(&operation.encode(STAMP)), format!("{head}{HEAD}{fields}"), "{operation:?}");
        }
    }

    #[test]
    fn operations_decode_to_what_was_encoded_and_other_lengths_are_damage() {
        for operation in all() {
            let bytes = operation.encode(STAMP);
            assert_eq!(Operation::decode(&bytes), Ok((STAMP, operation)));
            // The value of an extended attribute is what is left: it may have any length.
            if !matches!(operation, Operation::SetExtended { .. }) {
                let longer = [&bytes[..], &[0]].concat();
                assert_eq!(Operation::decode(&longer), Err(Damage::RecordFields), "{operation:?}");
                let shorter = &bytes[..bytes.len() - 1];
                assert_eq!(Operation::decode(shorter), Err(Damage::RecordFields), "{operation:?}");
            }
        }
    }

    #[test]
    fn unknown_flags_codes_and_names_that_cannot_be_are_damage() {
        for operation in all() {
            for (at, bit) in [(0, 0x40), (1, 0x80)] {
                let mut bytes = operation.encode(STAMP);
                bytes[at] |= bit;
                assert_eq!(Operation::decode(&bytes), Err(Damage::RecordFields), "{operation:?}, byte {at}");
            }
        }
        let mut unlink = all()[5].encode(STAMP);
        *unlink.last_mut().unwrap() = b'/';
        assert_eq!(Operation::decode(&unlink), Err(Damage::RecordFields));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_operation_or_damage(
            code in 0..16_u8, flags in 0..4_u8, rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let bytes = [&[code, flags][..], &rest].concat();
            if let Ok((stamp, operation)) = Operation::decode(&bytes) {
                prop_assert_eq!(operation.encode(stamp), bytes);
            }
        }

        #[test]
        fn changes_of_attributes_keep_which_ones_they_are(
            permissions: Option<u32>, uid: Option<u32>, gid: Option<u32>, size: Option<u64>,
            atime_ns: Option<i64>, mtime_ns: Option<i64>,
        ) {
            let attributes = Attributes { permissions, uid, gid, size, atime_ns, mtime_ns };
            let operation = Operation::SetAttributes { number: A, attributes };
            let bytes = operation.encode(STAMP);
            prop_assert_eq!(Operation::decode(&bytes), Ok((STAMP, operation)));
        }
    }
}
