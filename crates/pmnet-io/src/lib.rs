//! PMNet over kernel sockets.
//!
//! - [`runtime`]: clients and servers of any service: [`runtime::Session`], [`runtime::serve`].
//! - [`generic`]: makes a service's state durable, in a file: [`generic::Durable`].
//! - [`redis`]: side-cars that put PMNet in front of unmodified servers of the Redis protocol.

#![forbid(unsafe_code)]

pub mod generic;
pub mod redis;
pub mod runtime;
