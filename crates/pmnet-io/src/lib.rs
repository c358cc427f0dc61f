//! PMNet over real sockets.
//!
//! - [`redis`]: side-cars that put PMNet in front of unmodified Redis-protocol servers.

#![forbid(unsafe_code)]

pub mod redis;
