//! Taking measurements: CPU and memory of a process, statistics of samples.

pub(crate) mod callgrind;
pub(crate) mod core;
pub(crate) mod cpu;
pub(crate) mod proc;
pub(crate) mod stats;
