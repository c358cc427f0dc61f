//! Codecs: how requests change keys. This is all that the cache must know about an application.

mod commands;
mod effect;
mod plain;
mod resp;

pub use effect::{Effect, KeyCodec, KeyRanges, Query};
pub use plain::PlainCodec;
pub use resp::RespCodec;
