//! Chains in etcd: what is kept there, the agent of each server, and the commands of people. The keys and the rules are in
//! `docs/format/chain.md`, "With etcd".

mod agent;
mod commands;
mod registry;
mod views;

pub(crate) use commands::{Commands, CommandsError};
pub(crate) use views::{EtcdPlace, EtcdViews, PlaceError};
