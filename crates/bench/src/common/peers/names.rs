//! Names of the peers in reports.

pub(crate) const LANDFALL: &str = "landfall";
pub(crate) const DISCARD: &str = "landfall, discarding";
pub(crate) const REDIS_ALWAYS: &str = "redis always";
pub(crate) const REDIS_EVERYSEC: &str = "redis everysec";
pub(crate) const REDIS_NO: &str = "redis no";
pub(crate) const REDIS_NONE: &str = "redis, no AOF";
