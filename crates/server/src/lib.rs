//! The server: transports, protocols and the key-value engine, joined in one event loop for each worker.
//!
//! Read [`Server`] first: [`Server::start`] opens the store of a [`Config`] and serves it until it is told to stop.

mod admission;
mod ahead;
pub mod args;
mod chain;
mod clock;
pub mod config;
mod conn;
pub mod context;
pub mod counters;
pub mod cursors;
pub mod files;
pub mod http;
mod landing;
mod loads;
pub mod logs;
mod lookahead;
mod maintenance;
mod pace;
mod phase;
mod process;
pub mod reply;
pub mod resp;
mod scrubber;
mod secret;
mod server;
pub mod shared;
pub mod store;
mod supervise;
mod tails;
mod walk;
mod worker;
pub mod writes;

pub use config::Config;
pub use server::{Server, ServerError};
