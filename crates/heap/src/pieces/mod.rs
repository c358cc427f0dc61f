//! Long values in pieces, each with a checksum of its own: `docs/format/records.md`.

mod certified;
mod join;
pub(crate) mod list;
mod part;
pub(crate) mod patch;
pub(crate) mod piece;
pub(crate) mod read;

pub(crate) use certified::Certified;
pub use join::Joined;
pub use part::{ItemPart, slice};
pub use patch::{Change, Patch};
pub use piece::{ArrivingCrcs, Crcs, KeptCrcs, PIECE_BYTES_MAX, PIECES_FROM, PieceCrc};
pub(crate) use read::HeldPieces;
