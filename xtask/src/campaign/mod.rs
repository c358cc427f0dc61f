//! Campaigns: the same checks as in continuous integration, for as long as one likes.

pub(crate) mod attack;
pub(crate) mod crash;
pub(crate) mod fuzz;
pub(crate) mod sim;
mod table;

use std::time::{SystemTime, UNIX_EPOCH};

/// A seed nobody chose, for campaigns that were given none. Each prints the seed it uses.
fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() ^ u64::from(now.subsec_nanos())
}
