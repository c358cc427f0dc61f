//! Campaigns: the checks of continuous integration, for any length of time.

pub(crate) mod attack;
pub(crate) mod crash;
pub(crate) mod fuzz;
pub(crate) mod sim;
mod table;
