//! POSIX ACLs (POSIX.1e draft 17, as `acl(5)` has it). The kernel checks them; here they are kept, passed on by
//! directories, and held in step with the permissions of the mode.

/// The extended attribute with who may do what.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The extended attribute with the ACL of what is made in a directory.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Version of an ACL in an extended attribute (`POSIX_ACL_XATTR_VERSION`).
const VERSION: [u8; 4] = 2_u32.to_le_bytes();
/// Bytes of an entry: tag (2), permissions (2), id (4).
const ENTRY_BYTES: usize = 8;
/// Tags of entries.
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

const READ_WRITE_EXECUTE: u32 = 7;

/// An entry: to whom it applies, and what they may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u32,
    id: [u8; 4],
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// Reads the value of an extended attribute; `None`: it is none of an ACL.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let (entries, rest) = value.strip_prefix(&VERSION)?.as_chunks::<ENTRY_BYTES>();
        let entry = |[a, b, c, d, id @ ..]: &[u8; ENTRY_BYTES]| Entry {
            tag: u16::from_le_bytes([*a, *b]),
            permissions: u32::from(u16::from_le_bytes([*c, *d])),
            id: *id,
        };
        let acl = Self(entries.iter().map(entry).collect());
        let count = |tag| acl.0.iter().filter(|entry| entry.tag == tag).count();
        let is_whole = [OWNER, GROUP, OTHER].iter().all(|tag| count(*tag) == 1) && count(MASK) <= 1;
        (rest.is_empty() && is_whole).then_some(acl)
    }

    /// The value of the extended attribute.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for entry in &self.0 {
            value.extend_from_slice(&entry.tag.to_le_bytes());
            value.extend_from_slice(&u16::try_from(entry.permissions).unwrap_or(u16::MAX).to_le_bytes());
            value.extend_from_slice(&entry.id);
        }
        value
    }

    /// True if the permissions of the mode say the same.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, OWNER | GROUP | OTHER))
    }

    /// The tag of the entry that the mode shows as the group's.
    fn group(&self) -> u16 {
        if self.0.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP }
    }

    /// The entries that the mode shows, and where it has them.
    fn shown(&mut self) -> impl Iterator<Item = (&mut u32, u32)> {
        let group = self.group();
        self.0.iter_mut().filter_map(move |entry| {
            let shift = match entry.tag {
                OWNER => 6,
                tag if tag == group => 3,
                OTHER => 0,
                _ => return None,
            };
            Some((&mut entry.permissions, shift))
        })
    }

    /// The permissions that the mode shows.
    pub(crate) fn permissions(&mut self) -> u32 {
        self.shown().map(|(permissions, shift)| *permissions << shift).sum()
    }

    /// Takes the permissions of a mode (`chmod`).
    pub(crate) fn set_permissions(&mut self, mode: u32) {
        self.shown().for_each(|(permissions, shift)| *permissions = mode >> shift & READ_WRITE_EXECUTE);
    }

    /// Takes away what a mode does not allow: a new file has both the ACL of its directory and the mode that it was made
    /// with.
    pub(crate) fn restrict(&mut self, mode: u32) {
        self.shown().for_each(|(permissions, shift)| *permissions &= mode >> shift & READ_WRITE_EXECUTE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: u16 = 0x02;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for (tag, permissions, id) in entries {
            value.extend(tag.to_le_bytes().iter().chain(&permissions.to_le_bytes()).chain(&id.to_le_bytes()));
        }
        value
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl::decode(&value(entries)).expect("an ACL")
    }

    const FULL: [(u16, u16, u32); 5] =
        [(OWNER, 7, !0), (USER, 6, 5), (GROUP, 5, !0), (MASK, 7, !0), (OTHER, 1, !0)];

    #[test]
    fn what_is_encoded_is_decoded_and_other_bytes_are_refused() {
        assert_eq!(acl(&FULL).encode(), value(&FULL));
        let good = value(&FULL);
        for bad in [&good[..good.len() - 1], &good[1..], &good[..4], &[], &value(&FULL[1..])] {
            assert_eq!(Acl::decode(bad), None);
        }
    }

    #[test]
    fn the_mode_shows_the_mask_instead_of_the_group() {
        let mut full = acl(&FULL);
        assert_eq!((full.permissions(), full.is_minimal()), (0o771, false));
        full.set_permissions(0o640);
        assert_eq!(full, acl(&[(OWNER, 6, !0), (USER, 6, 5), (GROUP, 5, !0), (MASK, 4, !0), (OTHER, 0, !0)]));
        let mut minimal = acl(&[(OWNER, 7, !0), (GROUP, 5, !0), (OTHER, 1, !0)]);
        assert_eq!((minimal.permissions(), minimal.is_minimal()), (0o751, true));
        minimal.set_permissions(0o640);
        assert_eq!(minimal.permissions(), 0o640);
    }

    #[test]
    fn a_new_file_gets_no_more_than_it_asks_for() {
        let mut full = acl(&FULL);
        full.restrict(0o666);
        assert_eq!((full.permissions(), full.is_minimal()), (0o660, false));
        full.restrict(0o7777);
        assert_eq!(full.permissions(), 0o660);
    }
}
