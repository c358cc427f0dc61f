//! A cursor over what follows the header of a request.

use super::error::Malformed;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The bytes of a request that have not been decoded yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'a> {
    left: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The next structure.
    pub(super) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let (value, left) = T::read_from_prefix(self.left).map_err(|_| Malformed::Short)?;
        self.left = left;
        Ok(value)
    }

    /// The next `len` bytes.
    pub(super) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).map_err(|_| Malformed::Short)?;
        let (bytes, left) = self.left.split_at_checked(len).ok_or(Malformed::Short)?;
        self.left = left;
        Ok(bytes)
    }

    /// What is left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.left
    }

    /// The next string, which ends with a NUL and is not empty.
    pub(super) fn string(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.left.iter().position(|byte| *byte == 0).ok_or(Malformed::Unterminated)?;
        let (string, left) = self.left.split_at(end);
        self.left = &left[1..];
        if string.is_empty() { Err(Malformed::Name) } else { Ok(OsStr::from_bytes(string)) }
    }

    /// The next name of a directory entry: a string without a slash.
    pub(super) fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let name = self.string()?;
        if name.as_bytes().contains(&b'/') { Err(Malformed::Name) } else { Ok(name) }
    }
}
