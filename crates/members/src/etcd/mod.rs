//! A chain in etcd: its document under one key, which is changed by compare-and-swap, and its members under keys that
//! etcd deletes when their leases end.

mod api;
mod cluster;
mod config;
mod http;
mod keeper;
mod login;
mod poller;
mod source;
mod tls;
mod wire;

pub use cluster::{ENDPOINTS_MAX, EtcdClient};
pub use config::{EtcdConfig, EtcdUser};
pub use keeper::{Keeper, Standing, TTL_MAX, TTL_MIN};
pub(crate) use poller::EtcdPoller;
pub use source::Etcd;
