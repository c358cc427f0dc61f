//! `landfall bench fs`: files of a mount beside the file system on which its region lies.
//!
//! [`run`] gives both the same loads, in turns; `report` writes what came of them.

mod args;
mod below;
mod campaign;
mod child;
mod databases;
mod loads;
mod place;
mod ran;
mod random;
mod report;
mod restart;
mod trees;

pub use args::{FsArgs, LoadChoice};
pub(crate) use campaign::run;
pub use child::FsLoadArgs;
pub(crate) use child::run_load;
pub(crate) use report::Results;
#[cfg(test)]
pub(crate) use report::tests::sample;
