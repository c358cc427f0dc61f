//! `landfall bench kv`: the key-value store beside Redis, with random keys.
//!
//! [`run`] takes the measurements of `workloads` in turns; `report` writes what came of them.

mod args;
mod campaign;
mod report;
mod workloads;

pub use args::{KvArgs, MediaChoice, WorkloadChoice};
pub(crate) use campaign::run;
pub(crate) use report::Results;
#[cfg(test)]
pub(crate) use report::tests::full_sample;
