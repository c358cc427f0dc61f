//! What a free run has on the medium and in memory.

/// Which resources a free run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// No space on the medium. Claiming the run allocates space, which fails on a full medium.
    Bare,
    /// Space on the medium. Page faults allocate its memory.
    Backed,
    /// Space, and memory if it has been used.
    Warm,
}
