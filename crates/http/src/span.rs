//! Parts of a head, by where they lie in it.

use smallvec::SmallVec;

/// Bytes of a head.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    start: u32,
    len: u32,
}

impl Span {
    /// The span of `part`, which lies within `head`; a head is shorter than 4 GiB.
    pub(crate) fn of(head: &[u8], part: &[u8]) -> Self {
        let start = part.as_ptr().addr().saturating_sub(head.as_ptr().addr());
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { start: narrow(start), len: narrow(part.len()) }
    }

    pub(crate) fn bytes(self, head: &[u8]) -> &[u8] {
        let start = self.start as usize;
        head.get(start..start + self.len as usize).unwrap_or(&[])
    }
}

/// A header field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: Span,
    pub(crate) value: Span,
}

pub(crate) type Fields = SmallVec<[Field; 12]>;
