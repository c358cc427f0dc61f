//! RESP2 and RESP3 over chains of frames.
//!
//! Read [`Parser`] first. It takes the bytes of a connection as they lie in frames (a [`Chain`]) and yields
//! [`Command`]s whose arguments are *ranges* of that chain: a value is stored by reference to where it landed.
//! [`Writer`] encodes replies; a stored value goes between [`Writer::bulk_header`] and [`Writer::crlf`] by reference,
//! without passing through this crate. The other side of a connection encodes with [`Writer::command`] and reads with
//! [`Reply`], whole replies in one buffer; [`ReplyScanner`] finds the end of one that arrives in pieces.
//!
//! Nothing here does I/O, reads a clock, starts a thread or draws entropy. The peer is not trusted: [`Limits`] bounds
//! every count, and every malformed byte is a [`ProtocolError`], after which the connection is to be closed.
//!
//! Source: the RESP specification, <https://redis.io/docs/latest/develop/reference/protocol-spec/>, and the behaviour
//! of Redis 7 where the specification says nothing.
//!
//! [`Chain`]: landfall_media::Chain
#![forbid(unsafe_code)]

mod command;
mod double;
mod error;
mod glob;
mod inline;
mod number;
mod parser;
mod reply;
mod stream;
mod writer;

pub use command::{Arg, Command};
pub use error::ProtocolError;
pub use glob::glob_match;
pub use number::{parse_f64, parse_i64, parse_u64};
pub use parser::{Limits, Parser, UNAUTHENTICATED_ARGS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX};
pub use reply::{Reply, ReplyError, ReplyScanner, elements};
pub use writer::{Protocol, Writer};
