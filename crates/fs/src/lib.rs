//! Files in a persistent packet heap.
//!
//! Read [`Files`] first: all threads of a mount share it. A change is executed on the tree in memory ([`Tree`]) and
//! appended to the log, which [`Files::sync`] makes durable. A [`Publisher`] turns a chunk of the log into records of the
//! tree, which refer to the frames in which the bytes landed. [`FilesRecovery`] finds both when a region is opened. The
//! formats, and the argument for each crash point, are in `docs/format/fs.md`. The crate does no I/O of its own, reads no
//! clock and starts no thread.
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

mod acknowledge;
mod apply;
mod build;
#[cfg(test)]
mod by_hand;
mod bytes;
mod callers;
mod calls;
mod change;
mod check;
mod clients;
mod commit;
mod comparing;
mod copying;
mod data_changes;
mod data_map;
mod dead;
mod directory;
mod error;
mod fallocate;
mod fields;
mod files;
mod header;
mod import;
mod inode;
mod kept;
mod key;
mod leases;
mod left;
mod locks;
mod log;
mod moves;
mod name;
mod names;
mod node;
mod open;
mod operation;
mod pace;
mod placed;
mod publish;
mod published;
mod publishing;
mod ranges;
mod received;
mod recover;
mod relocations;
mod repair;
mod replica;
mod scrub;
mod state;
mod stored;
mod tree;
mod waiter;
mod witness;

pub use bytes::{FilePart, Seek};
pub use calls::{CALLING_MOUNTS_MAX, Call, CallerId, Calls};
pub use check::{TREE_FINDINGS_MAX, TreeChecked, check_tree};
pub use clients::{AdoptedWrite, FIRST_CLIENT_AGAIN, ForeignWrite, RefusedWrite};
pub use commit::Advanced;
pub use comparing::{RecordPage, is_compared};
pub use copying::{CopiedRecord, CopyPlace};
pub use data_map::{BLOCK_BYTES, DataMap, Interval, RECORD_BLOCKS_MAX, Removed};
pub use dead::Dead;
pub use directory::{Directory, DirectoryError, NamesChange};
pub use error::FsError;
pub use files::{Files, Stat};
pub use header::{HEADER_BYTES, HEADER_KEY, Header, LOG_BYTES, LOG_ENDED, LogFields};
pub use import::{Imported, NewFile};
pub use inode::{ATTRIBUTE_BYTES, CONTENT_BYTES_MAX, FileType, Inode, Mode};
pub use kept::{Kept, Tombstone};
pub use key::{DataKey, InodeNumber, NamesKey, OperationKey, WritePlace};
pub use leases::{Access, Acquired, Conflicts, Lease, LeaseNumber, Leases};
pub use left::LeftLog;
pub use locks::{
    FileLock, FileLocks, LOCKS_MAX, LockChange, LockEvents, LockFamily, LockOwner, LockRefusal,
    LockRequestNumber, Patience, Released,
};
pub use name::{ExtendedName, NAME_BYTES_MAX, Name, NameError, PATH_BYTES_MAX, TARGET_BYTES_MAX};
pub use names::{Divided, NAMES_BYTES_MAX, NAMES_BYTES_MIN, NameEntry, Names, POSITIONS_OF_A_NAME, Position};
pub use node::{Body, Extended, Node};
pub use open::{OpenFiles, Orphans};
pub use operation::{Attributes, Operation, Stamp};
pub use pace::CHUNK_BYTES;
pub use placed::Placed;
pub use publish::{BACKLOG_BYTES, BACKLOG_OPERATIONS, CHUNK_OPERATIONS, Publisher, Stage};
pub use published::Published;
pub use publishing::{NoPublishing, Publishing};
pub use recover::{
    DamagedRecord, FilesRecovery, HeaderFound, LeftFound, LogDamage, LogFound, OperationSlot, Recovered,
    Settled,
};
pub use replica::{FilesRecord, ReceiveError};
pub use scrub::{FilesScrub, FilesScrubbed};
pub use tree::{FILE_BYTES_MAX, Tree, TreeError, Unread};
pub use waiter::Waiter;
pub use witness::Witness;
