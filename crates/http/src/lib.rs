//! HTTP/1.1 over chains of frames: the server's side.
//!
//! Read [`Parser`] first. It takes the bytes of a connection as they lie in frames (a [`Chain`]) and yields
//! [`Request`]s whose bodies are *ranges* of that chain, so that a value is stored by reference to where it landed.
//! [`ResponseWriter`] encodes replies; a stored value follows [`ResponseWriter::content_length`] by reference, or lies
//! between [`ResponseWriter::chunk_header`] and [`ResponseWriter::chunk_end`].
//!
//! Nothing here does I/O, reads a clock, starts a thread or draws entropy. The peer is not trusted. What could be read
//! in two ways (both framings, folded lines, bare CR or LF, blanks before a colon) is refused, because an intermediary
//! may have read it the other way. [`Limits`] bounds every length.
//!
//! Source: RFC 9110 (semantics) and RFC 9112 (HTTP/1.1).
//!
//! [`Chain`]: landfall_media::Chain
#![forbid(unsafe_code)]

mod chunked;
mod date;
mod error;
mod etag;
mod framing;
mod head;
mod limits;
mod method;
mod parser;
mod percent;
mod request;
mod response;
mod span;
mod stream;
mod target;

pub use chunked::{CHUNK_LINE_BYTES_MAX, CHUNKS_MAX, EXTENSION_BYTES_MAX, TRAILER_BYTES_MAX};
pub use date::{DATE_LEN, format_date, parse_date};
pub use error::HttpError;
pub use etag::{EntityTag, EntityTags};
pub use limits::{HEAD_BYTES_CAP, HEADERS_CAP, Limits};
pub use method::Method;
pub use parser::{Parser, Progress};
pub use percent::{QueryPairs, decode_path, encode_path, query_pairs};
pub use request::{Request, Version};
pub use response::{CONTINUE, Connection, ResponseWriter};
