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

/// A reply: protocol bytes in one small buffer, stored values by reference.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Protocol bytes of all [`Part::Bytes`], one after the other.
    pub bytes: Vec<u8>,
    /// The pieces, in the order in which they are sent.
    pub parts: Vec<Part>,
    /// How many parts and protocol bytes there were when a stored part was pushed last.
    at_stored: (usize, usize),
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
        // Values come in many parts: nothing was written since the last of them.
        let after_stored = matches!(self.parts.last(), Some(Part::Stored(_)));
        if after_stored && self.at_stored == (self.parts.len(), self.bytes.len()) {
            return;
        }
        let start = self
            .parts
            .iter()
            .rev()
            .find_map(|part| match part {
                Part::Bytes { end, .. } => Some(*end),
                Part::Stored(_) => None,
            })
            .unwrap_or(0);
        if start == end {
            return;
        }
        if let Some(Part::Bytes { end: last, .. }) = self.parts.last_mut() {
            *last = end;
        } else {
            self.parts.push(Part::Bytes { start, end });
        }
    }

    /// Appends stored bytes by reference. The caller holds the extent; the transport will release it.
    pub fn push_stored(&mut self, extent: Extent) {
        self.seal_bytes();
        self.parts.push(Part::Stored(extent));
        self.at_stored = (self.parts.len(), self.bytes.len());
    }

    /// The stored extents, for releasing.
    pub fn stored(&self) -> impl Iterator<Item = Extent> + '_ {
        self.parts.iter().filter_map(|part| match part {
            Part::Stored(extent) => Some(*extent),
            Part::Bytes { .. } => None,
        })
    }

    /// Bytes that will go over the wire.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.stored().map(|e| e.len() as usize).sum::<usize>()
    }

    /// Empties both buffers, keeping their memory unless it has grown large.
    pub fn clear(&mut self) {
        const KEEP_BYTES_MAX: usize = 64 << 10;
        self.parts.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_BYTES_MAX);
    }
}
