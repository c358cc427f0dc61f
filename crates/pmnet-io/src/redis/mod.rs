//! PMNet in front of unmodified servers of the Redis protocol.
//!
//! - [`commands`] says which commands may be acknowledged early.
//! - [`client`] is the client's side-car: [`client::run`].
//! - [`server`] is the server's side-car: [`server::run`].
//! - [`reconcile`] handles sessions of which a server has lost confirmed updates.
//! - [`sessions`] lists and clears sessions.

mod behind;
pub mod client;
pub mod commands;
mod commit;
mod doubts;
mod job;
mod ledger;
mod noted;
mod poison;
pub mod reconcile;
mod rejected;
mod replicas;
mod resp;
pub mod server;
pub mod sessions;
mod state;
mod upstream;

pub use rejected::Rejection;
pub use resp::RespError;
pub use upstream::UpstreamError;
