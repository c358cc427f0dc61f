//! Keys, and what identifies requests.

use std::sync::Arc;

/// Most keys of one request that are stored separately. A request with more keys counts as touching all keys.
pub const KEYS_MAX: usize = 64;

/// A key that several tables share.
pub(super) type Key = Arc<[u8]>;

/// Identifies an update or a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id<S> {
    /// The session, such as a [`crate::SessionKey`].
    pub session: S,
    /// The sequence number in the session.
    pub seq: u32,
}
