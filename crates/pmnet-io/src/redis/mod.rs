//! PMNet in front of unmodified Redis-protocol servers.
//!
//! - [`commands`]: which commands may be acknowledged early.
//! - [`client`]: the client's side-car: [`client::run`].
//! - [`server`]: the server's side-car: [`server::run`].

pub mod client;
pub mod commands;
mod commit;
mod job;
mod ledger;
mod rejected;
mod replicas;
mod resp;
pub mod server;
mod upstream;

pub use rejected::Rejection;
pub use resp::RespError;
pub use upstream::UpstreamError;
