//! PMNet over real sockets.
//!
//! - [`runtime`]: clients and servers of any service: [`runtime::Session`], [`runtime::serve`].
//! - [`generic`]: a service's state made durable, in a file: [`generic::Durable`].
//! - [`redis`]: side-cars that put PMNet in front of unmodified Redis-protocol servers.

#![forbid(unsafe_code)]

pub mod generic;
pub mod redis;
pub mod runtime;
