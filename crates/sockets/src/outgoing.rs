//! A reply as it is sent: small protocol bytes, and extents of the region, in order.

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
    /// Stored bytes, sent from where they lie.
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

    /// One past its last byte, of protocol bytes.
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
    /// The pieces, in the order in which they are sent. Only this type changes them, so that `sealed` holds.
    parts: Vec<Part>,
    /// Protocol bytes that are in parts: all but the last ones written.
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

    /// Closes the run of protocol bytes written to `bytes` since the last part, making it a part.
    ///
    /// Call it before handing the reply to a transport and before each stored part.
    pub fn seal_bytes(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("whoever writes replies bounds them below 4 GiB");
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

    /// The pieces, in the order in which they are sent: all of them, once the bytes are sealed.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Forgets the pieces, which somebody else has now. What is left is of use for [`Self::clear`] alone.
    pub fn forget_parts(&mut self) {
        self.parts.clear();
    }

    /// Appends what is in `next`.
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

    /// Takes back what was written since there were so many protocol bytes and parts. Yields the stored extents among it.
    pub fn rewind(&mut self, bytes: usize, parts: usize) -> impl Iterator<Item = Extent> {
        let taken = self.parts.split_off(parts);
        self.bytes.truncate(bytes);
        if let Some(Part::Bytes { end, .. }) = self.parts.last_mut() {
            *end = (*end).min(bytes as u32);
        }
        // Bytes from before that were sealed together with what is taken back are sealed again with what comes next.
        self.sealed = self.parts.iter().rev().find_map(Part::bytes_end).unwrap_or(0);
        taken.into_iter().filter_map(Part::into_stored)
    }

    /// Moves what was written since there were so many protocol bytes and parts to `tail`, which is empty.
    pub fn split_off(&mut self, bytes: usize, parts: usize, mut tail: Self) -> Self {
        self.seal_bytes();
        tail.bytes.extend_from_slice(&self.bytes[bytes..]);
        self.bytes.truncate(bytes);
        let boundary = bytes as u32;
        // The last part that stays may reach past the boundary, if its bytes had not been sealed there.
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

    /// Appends stored bytes by reference. The caller holds the extent; the transport will release it.
    pub fn push_stored(&mut self, extent: Extent) {
        self.seal_bytes();
        self.parts.push(Part::Stored(extent));
    }

    /// The stored extents, for releasing.
    pub fn stored(&self) -> impl Iterator<Item = Extent> + '_ {
        self.parts.iter().copied().filter_map(Part::into_stored)
    }

    /// Bytes that will go over the wire.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.stored().map(|e| e.len() as usize).sum::<usize>()
    }

    /// Empties both buffers, keeping their memory unless it has grown large.
    pub fn clear(&mut self) {
        const KEEP_BYTES_MAX: usize = 64 << 10;
        self.parts.clear();
        self.sealed = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES_MAX);
    }
}
