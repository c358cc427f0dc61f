//! A reply to send: protocol bytes, and extents of the region, in order.

use landfall_media::Extent;

/// One piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Protocol bytes: `start..end` of [`Outgoing::bytes`].
    Bytes {
        /// First byte.
        start: u32,
        /// One past the last byte.
        end: u32,
    },
    /// Stored bytes, which are sent from their frames.
    Stored(Extent),
}

impl Part {
    /// The extent of stored bytes.
    fn into_stored(self) -> Option<Extent> {
        match self {
            Self::Stored(extent) => Some(extent),
            Self::Bytes { .. } => None,
        }
    }

    /// Bytes that the part has on the wire.
    fn len(&self) -> usize {
        match self {
            Self::Bytes { start, end } => (end - start) as usize,
            Self::Stored(extent) => extent.len() as usize,
        }
    }

    /// The part in two parts, of which the first has at most `len` bytes. Stored bytes are cut at a multiple of `unit`
    /// bytes of the region. `None` if one of the parts would be empty.
    fn cut(self, len: usize, unit: u64) -> Option<(Self, Self)> {
        match self {
            Self::Bytes { start, end } => {
                let at = start + (len as u32).min(end - start);
                (start < at && at < end)
                    .then_some((Self::Bytes { start, end: at }, Self::Bytes { start: at, end }))
            }
            Self::Stored(extent) => {
                let at = (extent.off + len as u64) / unit * unit;
                (extent.off < at && at < extent.end()).then(|| {
                    let first = Extent::new(extent.off, (at - extent.off) as u32);
                    let second = Extent::new(at, (extent.end() - at) as u32);
                    (Self::Stored(first), Self::Stored(second))
                })
            }
        }
    }

    /// One past the last byte, for protocol bytes.
    fn bytes_end(&self) -> Option<u32> {
        match self {
            Self::Bytes { end, .. } => Some(*end),
            Self::Stored(_) => None,
        }
    }
}

/// A reply: protocol bytes in one small buffer, stored values by reference.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Protocol bytes of all [`Part::Bytes`], one after the other.
    pub bytes: Vec<u8>,
    /// The pieces, in sending order. Only this type changes them, so that `sealed` stays consistent.
    parts: Vec<Part>,
    /// Number of protocol bytes that belong to parts; the bytes behind are written but not sealed.
    sealed: u32,
}

impl Outgoing {
    /// An empty reply.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.bytes.is_empty()
    }

    /// Makes a part of the protocol bytes that were written to `bytes` since the last part.
    ///
    /// Callers call this before each stored part, and before they pass the reply to a transport.
    pub fn seal_bytes(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("callers bound replies below 4 GiB");
        let start = std::mem::replace(&mut self.sealed, end);
        debug_assert!(start <= end, "bytes of a part were taken back");
        if start == end {
            return;
        }
        match self.parts.last_mut() {
            Some(Part::Bytes { end: last, .. }) => *last = end,
            _ => self.parts.push(Part::Bytes { start, end }),
        }
    }

    /// The pieces, in sending order. The list is complete once the bytes are sealed.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Removes the pieces, which another owner has taken over. Afterwards only [`Self::clear`] may be called.
    pub fn forget_parts(&mut self) {
        self.parts.clear();
    }

    /// Appends the contents of `next`.
    pub fn append(&mut self, next: &Self) {
        self.seal_bytes();
        let shift = self.sealed;
        self.bytes.extend_from_slice(&next.bytes);
        self.parts.extend(next.parts.iter().map(|part| match part {
            Part::Bytes { start, end } => Part::Bytes { start: start + shift, end: end + shift },
            stored => *stored,
        }));
        self.sealed = shift + next.sealed;
    }

    /// Removes what was written since there were `bytes` protocol bytes and `parts` parts. Returns the stored extents
    /// among it.
    pub fn rewind(&mut self, bytes: usize, parts: usize) -> impl Iterator<Item = Extent> {
        let taken = self.parts.split_off(parts);
        self.bytes.truncate(bytes);
        if let Some(Part::Bytes { end, .. }) = self.parts.last_mut() {
            *end = (*end).min(bytes as u32);
        }
        // Bytes before that boundary may have been sealed together with removed ones. They are sealed again with the
        // next part.
        self.sealed = self.parts.iter().rev().find_map(Part::bytes_end).unwrap_or(0);
        taken.into_iter().filter_map(Part::into_stored)
    }

    /// Moves what was written since there were `bytes` protocol bytes and `parts` parts to `tail`, which is empty.
    pub fn split_off(&mut self, bytes: usize, parts: usize, mut tail: Self) -> Self {
        self.seal_bytes();
        tail.bytes.extend_from_slice(&self.bytes[bytes..]);
        self.bytes.truncate(bytes);
        let boundary = bytes as u32;
        // The last remaining part may reach past the boundary, if its bytes were not sealed there.
        let kept = parts.checked_sub(1).and_then(|last| self.parts.get_mut(last));
        if let Some(Part::Bytes { end, .. }) = kept
            && *end > boundary
        {
            tail.parts.push(Part::Bytes { start: 0, end: *end - boundary });
            *end = boundary;
        }
        for part in self.parts.split_off(parts) {
            match part {
                Part::Bytes { start, end } => {
                    if start < boundary {
                        self.parts.push(Part::Bytes { start, end: end.min(boundary) });
                    }
                    if end > boundary {
                        let start = start.max(boundary) - boundary;
                        tail.parts.push(Part::Bytes { start, end: end - boundary });
                    }
                }
                stored => tail.parts.push(stored),
            }
        }
        self.sealed = boundary;
        tail.sealed = tail.bytes.len() as u32;
        tail
    }

    /// Moves what follows the first `len_max` bytes to `tail`, which is empty. Stored bytes are cut at a multiple of
    /// `unit` bytes of the region, so that both parts can be released as they were held. If the first part cannot be cut,
    /// all of it stays.
    pub fn cut(&mut self, len_max: usize, unit: u64, tail: Self) -> Self {
        self.seal_bytes();
        let (mut at, mut left) = (0, len_max);
        while let Some(part) = self.parts.get(at).filter(|part| part.len() <= left) {
            left -= part.len();
            at += 1;
        }
        if let Some((first, second)) = self.parts.get(at).and_then(|part| part.cut(left, unit)) {
            self.parts[at] = first;
            self.parts.insert(at + 1, second);
            at += 1;
        }
        let at = at.max(1).min(self.parts.len());
        let bytes = self.parts[..at].iter().rev().find_map(Part::bytes_end).unwrap_or(0);
        self.split_off(bytes as usize, at, tail)
    }

    /// Appends stored bytes by reference. The caller holds the extent; the transport releases it.
    pub fn push_stored(&mut self, extent: Extent) {
        self.seal_bytes();
        self.parts.push(Part::Stored(extent));
    }

    /// The stored extents, to release them.
    pub fn stored(&self) -> impl Iterator<Item = Extent> + '_ {
        self.parts.iter().copied().filter_map(Part::into_stored)
    }

    /// Bytes that the reply has on the wire.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.stored().map(|e| e.len() as usize).sum::<usize>()
    }

    /// Empties both buffers. Their memory is kept unless it has grown large.
    pub fn clear(&mut self) {
        const KEEP_BYTES_MAX: usize = 64 << 10;
        self.parts.clear();
        self.sealed = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a reply sends: protocol bytes as they are, stored bytes as their offsets.
    fn wire(out: &Outgoing) -> Vec<(bool, u64)> {
        let bytes = |start: &u32, end: &u32| {
            let some = out.bytes[*start as usize..*end as usize].iter();
            some.map(|byte| (false, u64::from(*byte))).collect::<Vec<_>>()
        };
        out.parts().iter().fold(Vec::new(), |mut all, part| {
            match part {
                Part::Bytes { start, end } => all.extend(bytes(start, end)),
                Part::Stored(extent) => all.extend((extent.off..extent.end()).map(|off| (true, off))),
            }
            all
        })
    }

    proptest! {
        #[test]
        fn cutting_a_reply_again_and_again_sends_the_same_bytes(
            parts in prop::collection::vec((any::<bool>(), 0_u64..100, 1_u32..60), 1..12),
            len_max in 1_usize..80,
        ) {
            const UNIT: u64 = 16;
            let mut out = Outgoing::new();
            for (is_stored, off, len) in parts {
                if is_stored {
                    out.push_stored(Extent::new(off, len));
                } else {
                    out.bytes.extend((0..len).map(|at| at as u8));
                }
            }
            out.seal_bytes();
            let (whole, mut sent) = (wire(&out), Vec::new());
            while !out.is_empty() {
                let tail = out.cut(len_max, UNIT, Outgoing::new());
                prop_assert!(out.len() <= len_max || out.parts().len() == 1, "{out:?}");
                sent.extend(wire(&out));
                out = tail;
            }
            prop_assert_eq!(sent, whole);
        }
    }

    #[test]
    fn stored_bytes_are_cut_where_frames_begin() {
        let mut out = Outgoing::new();
        out.bytes.extend(b"$90\r\n");
        out.push_stored(Extent::new(20, 90));
        let tail = out.cut(50, 16, Outgoing::new());
        assert_eq!(out.stored().collect::<Vec<_>>(), [Extent::new(20, 44)]);
        assert_eq!(tail.stored().collect::<Vec<_>>(), [Extent::new(64, 46)]);
    }
}
