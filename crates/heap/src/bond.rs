//! Which other records a record counts together with.

/// A group: records of one slab that count together or not at all, in order of `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Version of the group's first record.
    pub first_seq: u64,
    /// Records in the group.
    pub count: u32,
    /// Index of this record in the group, from 0.
    pub place: u32,
}

/// A transaction: records of any slabs that count together or not at all. They count if there is a
/// [`crate::Kind::Commit`] record with the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// The key of the commit record.
    pub fn key(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The inverse of [`Self::key`].
    pub(crate) fn from_key(key: &[u8]) -> Option<Self> {
        Some(Self(u64::from_le_bytes(key.try_into().ok()?)))
    }
}

/// Which other records a record counts together with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// The record counts alone.
    Alone,
    /// The record counts with its group.
    Group(Group),
    /// The record counts with its transaction.
    Transaction(TransactionId),
}

impl Bond {
    pub(crate) fn transaction(self) -> Option<TransactionId> {
        match self {
            Self::Transaction(id) => Some(id),
            _ => None,
        }
    }
}
