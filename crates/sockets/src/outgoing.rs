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
