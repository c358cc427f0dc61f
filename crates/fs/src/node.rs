//! An inode in memory.

use crate::data_map::DataMap;
use crate::directory::Directory;
use crate::inode::{FileType, Inode, Mode};
use crate::key::InodeNumber;
use std::collections::BTreeMap;

/// Extended attributes: names and values.
pub type Extended = BTreeMap<Box<[u8]>, Box<[u8]>>;

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
        Self { inode, mtime_ns: time_ns, ctime_ns: time_ns, body, extended: Extended::new() }
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
