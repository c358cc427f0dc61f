//! PMNet in front of unmodified Redis-protocol servers.
//!
//! - [`commands`]: which commands may be acknowledged early.

pub mod commands;
mod resp;

pub use resp::RespError;
