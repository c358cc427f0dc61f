//! An inode in memory.

use crate::data_map::DataMap;
use crate::directory::Directory;
use crate::fields::Fields;
use crate::inode::{FileType, Inode, Mode};
use crate::key::InodeNumber;
use landfall_heap::Damage;
use std::collections::BTreeMap;

/// Extended attributes: names and values.
pub type Extended = BTreeMap<Box<[u8]>, Box<[u8]>>;

/// The value of the record of extended attributes. Byte table: `docs/format/fs.md`, "Extended attributes".
pub(crate) fn encode_extended(extended: &Extended) -> Vec<u8> {
    let mut value = Vec::new();
    for (name, bytes) in extended {
        value.push(u8::try_from(name.len()).expect("a name has at most 255 bytes"));
        value.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        value.extend_from_slice(name);
        value.extend_from_slice(bytes);
    }
    value
}

/// Bytes that an attribute takes in this value.
pub(crate) fn extended_len(name: &[u8], value: &[u8]) -> usize {
    1 + 4 + name.len() + value.len()
}

/// Reads such a value.
///
/// # Errors
/// [`Damage::RecordFields`]: names that are empty, or not in order, or lengths that do not fit.
pub(crate) fn decode_extended(value: &[u8]) -> Result<Extended, Damage> {
    let (mut fields, mut extended) = (Fields(value), Extended::new());
    while !fields.is_empty() {
        let (name_len, len) = (fields.u8()?, fields.u32()?);
        let (name, bytes) = (fields.bytes(usize::from(name_len))?, fields.bytes(len as usize)?);
        let follows = extended.last_key_value().is_none_or(|(last, _)| **last < *name);
        if name.is_empty() || !follows {
            return Err(Damage::RecordFields);
        }
        extended.insert(name.into(), bytes.into());
    }
    Ok(extended)
}

/// What an inode is made of besides its attributes.
#[derive(Clone, Debug)]
pub enum Body {
    /// The blocks of a file.
    File(DataMap),
    /// The entries of a directory.
    Directory(Directory),
    /// What a symbolic link refers to.
    Link(Box<[u8]>),
    /// A device, pipe or socket has nothing.
    Special,
}

/// An inode in memory.
#[derive(Clone, Debug)]
pub struct Node {
    /// The attributes that its record holds.
    pub inode: Inode,
    /// Last change of the data, Unix nanoseconds.
    pub mtime_ns: i64,
    /// Last change of the inode, Unix nanoseconds.
    pub ctime_ns: i64,
    /// What it is made of.
    pub body: Body,
    /// Its extended attributes.
    pub extended: Extended,
    /// The extended attributes were changed since they were read or published.
    pub extended_changed: bool,
}

/// Owner of a new inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Node {
    /// A new inode without a name.
    pub(crate) fn new(mode: Mode, ids: Ids, extra: u64, time_ns: i64) -> Self {
        let body = match mode.file_type() {
            FileType::File => Body::File(DataMap::default()),
            FileType::Directory => Body::Directory(Directory::default()),
            FileType::Link => Body::Link(Box::default()),
            _ => Body::Special,
        };
        let inode = Inode {
            mode,
            uid: ids.uid,
            gid: ids.gid,
            nlink: 0,
            size: 0,
            atime_ns: time_ns,
            btime_ns: time_ns,
            extra,
            has_content: false,
            has_extended: false,
        };
        Self {
            inode,
            mtime_ns: time_ns,
            ctime_ns: time_ns,
            body,
            extended: Extended::new(),
            extended_changed: false,
        }
    }

    /// A root directory without entries.
    pub(crate) fn root(mode: u32, ids: Ids, time_ns: i64) -> Self {
        let mode = Mode::new(FileType::Directory, mode);
        let mut root = Self::new(mode, ids, InodeNumber::ROOT.0, time_ns);
        root.inode.nlink = 2;
        root
    }

    /// A symbolic link.
    pub(crate) fn link(target: &[u8], ids: Ids, time_ns: i64) -> Self {
        let mut link = Self::new(Mode::new(FileType::Link, 0o777), ids, 0, time_ns);
        link.inode.size = target.len() as u64;
        link.inode.has_content = true;
        link.body = Body::Link(target.into());
        link
    }

    /// The type.
    pub fn file_type(&self) -> FileType {
        self.inode.mode.file_type()
    }

    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        self.file_type() == FileType::Directory
    }

    /// The entries of a directory.
    pub fn directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// The blocks of a file.
    pub fn data(&self) -> Option<&DataMap> {
        match &self.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn data_mut(&mut self) -> Option<&mut DataMap> {
        match &mut self.body {
            Body::File(data) => Some(data),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// The parent of a directory.
    pub fn parent(&self) -> Option<InodeNumber> {
        self.is_directory().then_some(InodeNumber(self.inode.extra))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those of `docs/format/fs.md`: later versions must read what earlier versions wrote.
    #[test]
    fn extended_attributes_are_frozen() {
        let all = Extended::from([
            (Box::from(&b"user.a"[..]), Box::from(&b"12"[..])),
            (Box::from(&b"user.b"[..]), Box::from(&b""[..])),
        ]);
        let value = encode_extended(&all);
        assert_eq!(value, b"\x06\x02\0\0\0user.a12\x06\0\0\0\0user.b");
        assert_eq!(decode_extended(&value), Ok(all));
        assert_eq!(decode_extended(&value[..value.len() - 1]), Err(Damage::RecordFields));
        let twice = [&value[..], &value[..]].concat();
        assert_eq!(decode_extended(&twice), Err(Damage::RecordFields), "not in order");
    }
}
