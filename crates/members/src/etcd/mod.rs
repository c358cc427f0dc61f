//! etcd, through the JSON gateway of its v3 API.
//!
//! [`EtcdClient`] reaches one etcd: it knows the addresses, TLS and the user. [`EtcdClient::within`] gives calls with a
//! time limit, [`EtcdClient::watch_prefix`] the changes of keys. [`Etcd`] is a chain that is kept in one: its document
//! under one key, which is changed by compare-and-swap, and its members under keys that etcd deletes when their leases
//! end.

mod calls;
mod cluster;
mod config;
mod http;
mod keeper;
mod keys;
mod login;
mod poller;
mod prefix_watch;
mod source;
mod stream;
mod tls;
mod txn;
mod wire;

pub use calls::Calls;
pub use cluster::{ENDPOINTS_MAX, EtcdClient};
pub use config::{EtcdConfig, EtcdUser};
pub use keeper::{Keeper, Standing, TTL_MAX, TTL_MIN};
pub use keys::{Entry, Lease, Range, Revision};
pub(crate) use poller::EtcdPoller;
pub use prefix_watch::{Change, PrefixWatch, Seen};
pub use source::Etcd;
pub use txn::{Condition, Op, OpAnswer, Relation, Target, Txn, TxnOutcome};
