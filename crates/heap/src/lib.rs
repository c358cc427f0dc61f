//! The persistent packet heap: received packets kept as data, packet metadata kept as records.
//!
//! Read [`Heap`] first, then [`Writer`], which appends records with one fence a batch. The heap does no I/O of its own:
//! it stores, flushes and fences through [`landfall_media::Media`], reads no clock and starts no thread. It depends
//! neither on the transport that filled a frame nor on the system that owns a record. [`Region`] opens a region for the
//! systems that keep records in it.
//!
//! The formats, and the argument for each crash point, are in `docs/format/`. `docs/glossary.md` explains the project's
//! own words.

#![forbid(unsafe_code)]

mod bond;
mod check;
mod clock;
mod committed;
mod compact;
mod copies;
mod copying;
mod coverage;
pub mod crc;
mod damaged;
mod entry;
mod error;
mod evict;
mod extents;
mod features;
mod fill;
mod filled;
mod foreign;
mod forwards;
mod free;
mod goal;
mod heap;
mod item;
mod lanes;
pub mod layout;
mod load;
mod long_key;
mod moved;
mod new_patches;
mod owner;
mod patience;
mod pieces;
mod pin;
mod place;
mod policy;
mod reader;
mod record;
mod recover;
mod referrers;
mod region;
mod run;
mod run_table;
mod runs;
mod scan;
mod scrub;
mod slab_directory;
mod slabs;
mod space;
pub mod spaces;
mod stale;
mod successor;
mod superblock;
mod superseded;
mod table;
mod tenant;
mod ticket;
mod transactions;
mod uncounted;
mod unfinished;
mod until;
mod victims;
mod writer;

pub use bond::{Group, TransactionId};
pub use check::{Checked, FINDINGS_MAX, Finding, RegionCheck};
pub use compact::{Compacted, Compactor};
pub use copies::{Copies, CopyPath};
pub use entry::{Entry, Source};
pub use error::{Damage, HeapError};
pub use extents::Extents;
pub use filled::Filled;
pub use foreign::{ForeignData, ForeignSlab};
pub use free::FreeGoal;
pub use goal::CompactGoal;
pub use heap::Heap;
pub use item::Item;
pub use lanes::Ticket;
pub use layout::{
    FRAME_SIZE, KEY_BYTES_MAX, MACHINE_AREA, RECORD_SIZE, RunId, SLOTS_PER_RUN, SlotId, VALUE_BYTES_MAX,
};
pub use load::{LoadId, Loader};
pub use long_key::LongKey;
pub use owner::{Gone, Named, Owner};
pub use patience::Patience;
pub use pieces::{
    ArrivingCrcs, Change, Crcs, ItemPart, Joined, KeptCrcs, PIECE_BYTES_MAX, PIECES_FROM, Patch, PieceCrc,
    slice,
};
pub use pin::{MemoryUse, Pinned};
pub use policy::Integrity;
pub use record::{
    Check, Draft, ExtentList, Fields, KeyPlace, Kind, PieceDepth, PieceList, RecordView, Seal, Slot,
    ValuePlace,
};
pub use recover::{
    DamagedCopies, DamagedSlot, Found, Judge, NewRegion, Opening, Resolved, ScanUnit, Scanned, create,
};
pub use region::{Recovered, Region};
pub use run::{Run, RunUse};
pub use runs::{RunCounts, Runs};
pub use scrub::MediumScrub;
pub use space::{COMPACTOR_RESERVE_RUNS, LANDING_RESERVE_RUNS, check_transports, transports_in};
pub use stale::{InlineCounts, NoInlineCounts, StaleCounts};
pub use successor::{Successor, TakenRoom};
pub use superblock::{
    FEATURE_CALLS, FEATURE_FILES, FEATURE_LOGS, FEATURE_PIECES, FEATURE_PMNET, FEATURE_SHARED, Geometry,
    VERSION, decode as decode_superblock, hash_of,
};
pub use tenant::{Keeper, OwnerBySpace, SlabTaker, Tenant};
pub use ticket::{Gate, Gated, Tickets};
pub use transactions::Transaction;
pub use unfinished::Return;
pub use until::Until;
pub use writer::Writer;
