//! What replies of the kernel's protocol consist of.

use landfall_fuse::REPLY_HEADER_BYTES;

/// Bytes of `fuse_attr`.
pub(super) const ATTR_BYTES: usize = 88;
/// Bytes of `fuse_entry_out`; it begins with the number of the inode.
pub(super) const ENTRY_BYTES: usize = 40 + ATTR_BYTES;
/// Bytes of `fuse_attr_out`.
pub(super) const ATTR_OUT_BYTES: usize = 16 + ATTR_BYTES;

/// The error number (0: none) and the body of a reply.
pub(super) fn parts_of(reply: &[u8]) -> Option<(i32, &[u8])> {
    let (header, body) = reply.split_at_checked(REPLY_HEADER_BYTES)?;
    let errno = i32::from_le_bytes(*header[4..].first_chunk()?);
    Some((errno.checked_neg()?, body))
}

/// The inode's number and attributes in the body of a reply that begins with an entry.
pub(super) fn entry_of(body: &[u8]) -> Option<(u64, [u8; ATTR_BYTES])> {
    let entry: &[u8; ENTRY_BYTES] = body.first_chunk()?;
    Some((u64::from_le_bytes(*entry.first_chunk()?), *entry.last_chunk()?))
}
