//! Files on the packet heap as a file system of this machine: the service between the kernel's FUSE (`landfall-fuse`) and
//! the files (`landfall-fs`).
//!
//! Read [`Session`] first: it mounts, serves until the mount ends, and leaves the region clean. What each call of a
//! program does is in `docs/fs.md`.
//!
//! - A worker receives the data of a WRITE into frames of the heap, where they stay (`landing`). A READ leaves from stored
//!   extents. No data of 4 KiB or more are copied in user space. Over io_uring ([`TransportKind::Uring`]) each is copied once.
//! - The mount's process owns its region alone. So the kernel may keep names, attributes and data for as long as it
//!   likes. Libraries in other programs change files under leases (`link`); what the kernel keeps is taken from it before.
//! - A mount may be held by another process, which survives the server ([`Hold`], [`Server`]).
//! - One worker at most waits for the medium (`syncs`). A background thread publishes, another one keeps the heap:
//!   a thread of the program where other systems are in the region, too (`keeping`).

mod acl;
mod aside;
mod attributes;
mod background;
mod calls;
mod clock;
mod common;
mod counter;
mod counters;
mod data;
mod detach;
mod directories;
mod effects;
mod errors;
mod execute;
mod extended;
mod forget;
mod household;
mod inspect;
mod interrupts;
mod keeping;
mod landing;
mod leases;
mod ledger;
mod line;
mod link;
mod lives;
mod locking;
mod losses;
mod mailbox;
mod mates;
mod names;
mod notes;
mod offload;
mod panics;
mod peer;
mod queues;
mod ragged;
mod random;
mod rounds;
mod service;
mod session;
mod slices;
mod syncs;
mod sys;
mod transport;
mod turns;
mod values;
mod worker;

pub use common::Sharing;
pub use keeping::{Keeper, Keeping};
/// Version of the link between a mount and the libraries of programs.
pub use landfall_fs_link::VERSION as LINK_VERSION;
pub use link::{EarlierLibraries, end_earlier_libraries};
pub use offload::{
    Addresses, Before, Beside, ChannelError, ClosedSocket, Current, Door, DoorError, Hold, HoldError,
    HoldSettings, HoldStopper, MessageError, MountState, Nvdimm, OFFLOAD_VERSION, ServedAt, Server,
    ServerError, ServerPlace, ServerStopper, Until, check_socket, forget_offloaded,
};
pub use service::SyncMode;
pub use session::{Inspector, Session, SessionError, Settings, Stopper, check_mountpoint};
pub use transport::TransportKind;
pub use values::{OpenValue, Values};
