//! A region of persistent bytes, and the media that can back it.
//!
//! Read [`Media`] first: it is the one persistence seam of the project. `docs/format/media.md` states what may be
//! assumed of a medium; nothing above this crate assumes more.
//!
//! Calling contract: *store* into the image, *flush* what must become durable, *fence*. Once the fence that covers a
//! flush has succeeded, the flushed bytes are durable. Before that they may be durable in part, in any order, or not at
//! all.

mod batch;
mod dirty;
mod error;
mod extent;
mod file_write;
mod in_flight;
mod kind;
mod media;
mod pages;
pub mod sim;
mod site;
mod standing;
mod sum;
mod sys;
mod units;

pub use batch::Batch;
pub use dirty::Dirty;
pub use error::MediaError;
pub use extent::{Chain, Extent, Segment};
pub use file_write::FileWrite;
pub use kind::MediaKind;
pub use media::{CommitMode, Media, persist};
pub use pages::{CHUNK_SIZE, ChunkSet, EventFd, Evict, PIN_UNIT, Pages, ReadQueue, Started};
pub use site::Site;
pub use standing::Standing;
pub use sum::Sum;
pub use sys::{
    Attached, FlushInstruction, MediaRequest, NVDIMM_BEGIN, OpenOptions, Opened, open, prefetch, prefetch_at,
    prefetch_line, write_nvdimm_info,
};
pub use units::{BLOCK_SIZE, LINE_SIZE, RUN_SIZE};
