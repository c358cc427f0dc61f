//! Random seeds.

use std::time::{SystemTime, UNIX_EPOCH};

/// A random seed, for campaigns that were given none. Each campaign prints its seed.
pub(crate) fn fresh_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() ^ u64::from(now.subsec_nanos())
}
