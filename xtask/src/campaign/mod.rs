//! Campaigns: the checks of continuous integration, for any length of time.

pub(crate) mod attack;
pub(crate) mod crash;
mod folder;
pub(crate) mod fuzz;
pub(crate) mod programs;
pub(crate) mod sim;
pub(crate) mod suites;
mod table;
