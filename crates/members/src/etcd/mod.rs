//! A chain in etcd: its document under one key, changed by compare-and-swap, and its members under keys that go
//! when they die.

mod api;
mod http;
mod keeper;
mod look;
mod source;

pub use keeper::{Keeper, Standing, TTL_MAX, TTL_MIN};
pub(crate) use look::EtcdLook;
pub use source::{ENDPOINTS_MAX, Etcd};
