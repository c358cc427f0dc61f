//! What the measurements share: clients, peers, counts of processes and samples, tables and plots. It knows none of
//! them.

pub(crate) mod clients;
pub(crate) mod command;
pub(crate) mod error;
pub(crate) mod measure;
pub(crate) mod peers;
pub(crate) mod plots;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod sys;
pub(crate) mod tables;
pub(crate) mod targets;
pub(crate) mod turns;
