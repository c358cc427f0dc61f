//! What a request without room has waited for.

/// What one request has waited for. Before a request is told that the region is full, it waits for one search of the
/// compactor and one answer of the successor that begin after it has found no room; and for no more, as others take and
/// release space meanwhile. So this belongs to the request, and not to its writer: what another one has waited for, and
/// given up, says nothing about the room that there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// Number of searches of the compactor when the request asked for another one.
    pub(crate) search: Option<u64>,
    /// Number of returns of unfinished requests that had begun when it first found no room.
    pub(crate) returns: Option<u64>,
    /// The question that the successor has not answered: see [`crate::Successor::take_room`].
    pub(crate) question: Option<u64>,
}
