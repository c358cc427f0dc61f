//! Varmail while hosts and servers fail and come back: after LineFS, section 5.5 and Figure 10.
//!
//! Three servers in a chain whose view is in etcd serve their files to other processes (`--files-offload`). What stands for
//! a host is every process beside its server; with `--machine` the host of a replica is a virtual machine whose NVDIMM is the
//! replica's region, as the host of LineFS and its SmartNIC share persistent memory. [`once`] makes hosts fail, and servers,
//! while programs work at one mount.

mod course;
mod replica;
mod report;
mod windows;

pub(super) use course::once;
#[cfg(test)]
pub(super) use report::tests::sample;
pub(super) use report::{FailureSample, Failures};
