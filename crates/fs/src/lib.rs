//! Files in a persistent packet heap.
//!
//! The crate is being built. It has what `docs/format/fs.md` defines for the medium: the keys and values of inodes
//! ([`Inode`]), directories ([`Names`]) and operations ([`Operation`]); and the tree in memory that operations change
//! ([`Tree`]); and [`FilesRecovery`], which finds its records in a region. Nothing writes them yet. It does no I/O, reads no clock and starts no thread.
//!
//! ```
//! use landfall_fs::{InodeNumber, Name, Operation, Stamp};
//!
//! let name = Name::new(b"report.txt").expect("a good name");
//! let unlink = Operation::Unlink { parent: InodeNumber::ROOT, name, is_directory: false };
//! let value = unlink.encode(Stamp { lease: 1, time_ns: 0 });
//! let (_, decoded) = Operation::decode(&value).expect("no damage");
//! assert_eq!(decoded, unlink);
//! ```
//!
//! Bytes from the medium or from a client are not trusted: whatever cannot have been encoded is
//! [`landfall_heap::Damage`].

#![forbid(unsafe_code)]

mod data_map;
mod directory;
mod fields;
mod header;
mod inode;
mod kept;
mod key;
mod name;
mod names;
mod node;
mod operation;
mod recover;
mod tree;

pub use data_map::{BLOCK_BYTES, DataMap, Interval, RECORD_BLOCKS_MAX, Removed};
pub use directory::{Directory, DirectoryError, NamesChange};
pub use header::{HEADER_BYTES, HEADER_KEY, Header, LOG_BYTES, LOG_ENDED, LogFields};
pub use inode::{ATTRIBUTE_BYTES, CONTENT_BYTES_MAX, FileType, Inode, Mode};
pub use kept::{Kept, Tombstone};
pub use key::{DataKey, InodeNumber, NamesKey, OperationKey, WritePlace};
pub use name::{NAME_BYTES_MAX, Name, NameError, PATH_BYTES_MAX, TARGET_BYTES_MAX};
pub use names::{Divided, NAMES_BYTES_MAX, NAMES_BYTES_MIN, NameEntry, Names, POSITIONS_OF_A_NAME, Position};
pub use node::{Body, Extended, Node};
pub use operation::{Attributes, Operation, Stamp};
pub use recover::{
    DamagedRecord, FilesRecovery, HeaderFound, LogDamage, LogFound, OperationSlot, Recovered, Settled,
};
pub use tree::{FILE_BYTES_MAX, Tree, TreeError, Unread};
