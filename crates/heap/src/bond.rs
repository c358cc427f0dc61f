//! With which others a record counts.

/// A group: records that count together or not at all. They lie in one slab, in order of `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Sequence number of the group's first record.
    pub first_seq: u64,
    /// Records in the group.
    pub count: u32,
    /// This record's place, from 0.
    pub place: u32,
}

/// A transaction: records that count together or not at all, wherever they lie. They count if there is a
/// [`crate::Kind::Commit`] record of the id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionId(pub u64);

impl TransactionId {
    /// The key of the commit record.
    pub fn key(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// From [`Self::key`].
    pub(crate) fn from_key(key: &[u8]) -> Option<Self> {
        Some(Self(u64::from_le_bytes(key.try_into().ok()?)))
    }
}

/// With which others a record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bond {
    /// By itself.
    Alone,
    /// With its group.
    Group(Group),
    /// With its transaction.
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
