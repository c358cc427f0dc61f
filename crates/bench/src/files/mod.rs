//! `landfall bench fs`: files of a mount beside the file system on which its region lies.
//!
//! [`run`] gives both the same loads, in turns; `report` writes what came of them. `landfall bench linefs` gives its loads
//! to several servers.

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
mod sample;
mod trees;

pub use args::{FsArgs, LoadChoice};
pub(crate) use below::{file_system_of, remark_on};
pub(crate) use campaign::run;
pub use child::FsLoadArgs;
pub(crate) use child::{Loaded, check_library, run_by_library, run_here, run_load};
pub(crate) use databases::check_leveldb;
pub(crate) use loads::{Operation, prepare, repeat_during, write_file};
pub(crate) use place::{TMPFS, wait_until_mounted, warm};
#[cfg(test)]
pub(crate) use report::tests::sample;
pub(crate) use report::{Results, Row, draw_rates};
pub(crate) use sample::Sample;
