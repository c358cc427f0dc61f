//! Several machines with the same data: views, messages, and what a node knows of its neighbours.
//!
//! A [`View`] is the chain at one version. A node before another one sends [`Record`]s in messages ([`Header`],
//! [`Parser`]), and [`Compressor`] decides which of these are packed. [`Downstream`] is what it knows of the node behind it, and decides when a batch is complete; [`Upstream`]
//! is what a node knows of the one before it, and decides what it applies. [`Manager`] decides which view follows, by who
//! is registered and who is silent; [`Heartbeat`] is how a first node knows by the chain alone that no other one has
//! begun. The rules and the argument: `docs/format/chain.md`.
//!
//! Nothing here does I/O, reads a clock, starts a thread or draws entropy. The peer is not trusted: every malformed byte
//! is a [`WireError`], after which the connection is to be closed.
#![forbid(unsafe_code)]

mod bits;
mod compare;
mod compressor;
mod downstream;
mod heartbeat;
mod hello;
mod manager;
mod packing;
mod parser;
mod record;
mod replicate;
mod room;
mod sending;
mod upstream;
mod view;
mod wire;

pub use bits::Bits;
pub use compare::{Compare, Compared, Difference, Digest, Digester, KeyRange};
pub use compressor::{Compression, Compressor, Plan, UnknownCompression, most_packed};
pub use downstream::{Copying, Downstream, Standing};
pub use heartbeat::{Heartbeat, Proof};
pub use hello::{Acknowledged, Hello, Reason, Refusal, Welcome};
pub use manager::{Candidate, Change, Heard, Manager, Registration};
pub use packing::{
    BLOCK_BYTES, BLOCK_HEADER_BYTES, BlockHeader, PACKED_BYTES_MAX, PACKED_BYTES_MIN, block_lens, values_len,
};
pub use parser::{Message, Parser};
pub use record::{Record, RecordKind, Records};
pub use replicate::{Replicate, UnknownReplicate};
pub use room::{Ask, Question, Report, Round, Verdict};
pub use sending::{Sending, UnknownSending, Window};
pub use upstream::{Copied, Upstream};
pub use view::{MEMBERS_MAX, Member, NAME_BYTES_MAX, View, ViewError, check_name};
pub use wire::{
    COPY_STREAM, Code, HEADER_BYTES, HEARTBEAT_STREAM, Header, MESSAGES_VERSION, Packing, ROOM_STREAM,
    WireError, message, packed_message,
};
