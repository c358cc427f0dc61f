//! `landfall bench linefs`: files of three servers in a chain beside GlusterFS with three copies, after the evaluation of
//! LineFS (SOSP 2021, section 5).
//!
//! [`run`] gives every system the loads of `landfall bench fs`, in turns; `report` writes what came of them, and names what
//! of that evaluation is not measured. All servers are on this machine and talk over loopback.

mod applications;
mod args;
mod beside;
mod busy;
mod campaign;
mod clients;
mod compression;
mod corunner;
mod elsewhere;
mod etcd;
mod failures;
mod gluster;
mod hosts;
mod machine;
mod model;
mod overdue;
mod place;
mod published;
mod publishing;
mod report;
mod scaling;
mod servers;
mod sets;
mod stages;

pub use args::{LinefsArgs, LinefsLoad};
pub(crate) use campaign::run;
pub(crate) use report::Results;
#[cfg(test)]
pub(crate) use report::tests::sample;
