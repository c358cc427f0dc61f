//! Reading little-endian fields from bytes that are not trusted.

use landfall_heap::Damage;

/// Takes fields from the front of some bytes. Missing bytes are damage.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (array, rest) = self.0.split_first_chunk().ok_or(Damage::RecordFields)?;
        self.0 = rest;
        Ok(*array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Damage> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Damage> {
        self.array().map(i64::from_le_bytes)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Damage::RecordFields)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Bytes with their length (2) before them.
    pub(crate) fn sized(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Fails if bytes are left.
    pub(crate) fn end(&self) -> Result<(), Damage> {
        if self.is_empty() { Ok(()) } else { Err(Damage::RecordFields) }
    }
}
