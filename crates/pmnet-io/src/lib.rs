//! PMNet over kernel sockets.
//!
//! - [`runtime`] runs clients and servers of any service: [`runtime::Session`], [`runtime::serve`].
//! - [`generic`] makes the state of a service durable in a file: [`generic::Durable`].
//! - [`redis`] has the side-cars that put PMNet in front of unmodified servers of the Redis protocol.

#![forbid(unsafe_code)]

pub mod generic;
pub mod redis;
pub mod runtime;
