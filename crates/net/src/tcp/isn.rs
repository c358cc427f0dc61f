//! Numbers that no peer can predict: initial sequence numbers (RFC 6528) and timestamp offsets.

use super::seq::Seq;
use crate::address::Tuple;
use crate::time::Instant;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Keyed hashes of connections. The driver draws the key at each start.
#[derive(Clone, Copy)]
pub(crate) struct Secret([u64; 2]);

impl Secret {
    pub(crate) const fn new(key: [u64; 2]) -> Self {
        Self(key)
    }

    /// A hash of a tuple; each `purpose` gives another hash.
    pub(crate) fn hash(&self, tuple: &Tuple, purpose: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
        hasher.write(&tuple.key());
        hasher.write_u64(purpose);
        hasher.finish()
    }

    /// A hash of a number.
    pub(crate) fn number(&self, number: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.0[0], self.0[1]);
        hasher.write_u64(number);
        hasher.finish()
    }

    /// RFC 6528, 3: a clock of 4 microseconds plus a hash of the connection.
    pub(crate) fn isn(&self, now: Instant, tuple: &Tuple) -> Seq {
        Seq((now.nanos() / 4000) as u32) + self.hash(tuple, 1) as u32
    }

    /// Offset that a connection adds to its timestamps (RFC 7323, 7.1).
    pub(crate) fn timestamp_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(tuple, 2) as u32
    }

    /// Seed of hash tables whose keys peers choose.
    pub(crate) fn table_seed(&self) -> u64 {
        self.0[0].rotate_left(17) ^ self.0[1]
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
