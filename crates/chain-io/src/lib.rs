//! A node of a chain over TCP: its connections to the node behind it, its view, and its state.
//!
//! A server opens a [`Node`], gives the [`Link`] of each worker to that worker's writer, and passes what arrives from the
//! node before to [`Node::hello`], [`Node::admit`] and the others. The rules: `docs/format/chain.md`.
#![forbid(unsafe_code)]

mod answer_wait;
mod answers;
mod beats;
mod clients;
mod comparison;
mod connection;
mod copier;
mod counters;
mod directory;
mod error;
mod health;
mod lease;
mod line;
mod link;
mod node;
mod outgoing;
mod packer;
mod pages;
mod progress;
mod room;
mod settings;
mod slot;
mod spare_room;
mod start;
mod state_file;
mod troubles;
mod unpacker;
mod view_file;
mod views;

pub use answers::Answers;
pub use clients::{BadClientAddress, ClientAddress};
pub use counters::Counters;
pub use directory::{Directory, Listed, NoFirst};
pub use error::NodeError;
pub use lease::{Lease, boot_time};
pub use line::Prepare;
pub use link::Link;
pub use node::{LogKey, NextOperation, Node, Role, full};
pub use pages::{
    AddRecord, CopiedPart, CopiedRecord, Pages, Position, digest_of_files, entry_place, parse_entry_place,
    record_of,
};
pub use progress::CopyProgress;
pub use settings::Settings;
pub use state_file::{STATE_NAME, check_version, fall_behind, in_step_for, initialise, membership};
pub use unpacker::{UnpackError, Unpacked, Unpacker};
pub use view_file::{ViewDocument, parse_view, read_document, view_text, write_document};
pub use views::{ViewFile, Views};
