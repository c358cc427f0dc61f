//! The steps that request a flush or a fence.

/// The step of a protocol that requests a flush or a fence.
///
/// The crash simulator can skip the steps of one site; its checker must detect that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Site {
    /// Value and key bytes that a record refers to.
    Data,
    /// The fence between data that only their sums verify and the record that refers to them.
    Order,
    /// A record itself.
    Record,
    /// The fence that lets a batch of records be acknowledged.
    Commit,
    /// The fence that makes the records of a transaction durable, before its commit record is written.
    Transaction,
    /// Data copied by the compactor.
    MoveData,
    /// A record rewritten by the compactor.
    MoveRecord,
    /// The fence before the compactor's moved records replace the old ones.
    MoveCommit,
    /// The epoch of a run that will become a record slab.
    SlabEpoch,
    /// The fence before a run with its next epoch is declared a slab.
    SlabEpochFence,
    /// A word of the run table.
    RunTable,
    /// The fence after a word of the run table.
    RunTableFence,
    /// A record slot cleared by recovery or repair.
    Erase,
    /// The fence after cleared slots.
    EraseFence,
    /// A superblock copy.
    Superblock,
    /// The fence after a superblock copy.
    SuperblockFence,
}

impl Site {
    /// Every site, for tests that leave out one at a time.
    pub const ALL: [Self; 16] = [
        Self::Data,
        Self::Order,
        Self::Record,
        Self::Commit,
        Self::Transaction,
        Self::MoveData,
        Self::MoveRecord,
        Self::MoveCommit,
        Self::SlabEpoch,
        Self::SlabEpochFence,
        Self::RunTable,
        Self::RunTableFence,
        Self::Erase,
        Self::EraseFence,
        Self::Superblock,
        Self::SuperblockFence,
    ];
}
