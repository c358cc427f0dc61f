//! PMNet in front of unmodified Redis-protocol servers.
//!
//! - [`commands`]: which commands may be acknowledged early.
//! - [`client`]: the client's side-car: [`client::run`].
//! - [`server`]: the server's side-car: [`server::run`].
//! - [`reconcile`]: sessions of which a server has lost what it had confirmed.
//! - [`sessions`]: all sessions, to see and to clear.

mod behind;
pub mod client;
pub mod commands;
mod commit;
mod doubts;
mod job;
mod ledger;
pub mod reconcile;
mod rejected;
mod replicas;
mod resp;
pub mod server;
pub mod sessions;
mod upstream;

pub use rejected::Rejection;
pub use resp::RespError;
pub use upstream::UpstreamError;
