//! The keys of a shard, gathered before they are sorted.

use crate::key::OrderedKey;
use std::collections::BTreeSet;

/// Keys with their spaces, concatenated in one buffer. Sorting them there causes few cache misses, and the nodes of the
/// ordered set are then allocated in order.
#[derive(Debug, Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    pub(super) fn push(&mut self, space: u8, key: &[u8]) {
        self.bytes.push(space);
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Moves the keys of `other` here.
    pub(super) fn append(&mut self, other: &mut Self) {
        let base = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.ends.extend(other.ends.drain(..).map(|end| base + end));
    }

    pub(super) fn into_order(self) -> BTreeSet<OrderedKey> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut keys: Vec<&[u8]> =
            starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end]).collect();
        keys.sort_unstable();
        keys.into_iter().map(OrderedKey::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_several_gatherers_are_ordered_together() {
        let (mut all, mut some) = (Keys::default(), Keys::default());
        all.push(0, b"b");
        some.push(1, b"");
        some.push(0, b"a");
        all.append(&mut some);
        all.push(0, b"aa");
        let order: Vec<OrderedKey> = all.into_order().into_iter().collect();
        assert_eq!(order, [&b"\0a"[..], b"\0aa", b"\0b", b"\x01"].map(OrderedKey::from));
    }
}
