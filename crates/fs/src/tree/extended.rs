//! Extended attributes.

use super::{Tree, TreeError};
use crate::key::InodeNumber;
use crate::name::ExtendedName;
use crate::node::{Extended, extended_len};
use crate::operation::EXTENDED_BYTES_MAX;

/// Bytes of all attributes of an inode, as they are stored, at most: they are written as a whole whenever one changes.
const ALL_BYTES_MAX: usize = 1 << 20;

impl Tree {
    pub(super) fn set_extended(
        &mut self,
        number: InodeNumber,
        name: ExtendedName<'_>,
        value: &[u8],
        time_ns: i64,
    ) -> Result<(), TreeError> {
        check_room(&self.node(number)?.extended, name, value)?;
        let node = self.change(number)?;
        node.extended.insert(name.bytes().into(), value.into());
        (node.inode.has_extended, node.extended_changed) = (true, true);
        node.ctime_ns = time_ns;
        Ok(())
    }

    pub(super) fn remove_extended(
        &mut self,
        number: InodeNumber,
        name: ExtendedName<'_>,
        time_ns: i64,
    ) -> Result<(), TreeError> {
        if !self.node(number)?.extended.contains_key(name.bytes()) {
            return Err(TreeError::NoAttribute);
        }
        let node = self.change(number)?;
        node.extended.remove(name.bytes());
        (node.inode.has_extended, node.extended_changed) = (!node.extended.is_empty(), true);
        node.ctime_ns = time_ns;
        Ok(())
    }
}

/// Refuses attributes that a new inode cannot have.
pub(crate) fn check_new_extended(attributes: &[(ExtendedName<'_>, &[u8])]) -> Result<(), TreeError> {
    let mut extended = Extended::default();
    for (name, value) in attributes {
        check_room(&extended, *name, value)?;
        extended.insert(name.bytes().into(), (*value).into());
    }
    Ok(())
}

/// Refuses a value that is too long for an operation, and one with which all attributes would be too long.
fn check_room(extended: &Extended, name: ExtendedName<'_>, value: &[u8]) -> Result<(), TreeError> {
    let of = |value: &[u8]| extended_len(name.bytes(), value);
    let before = extended.get(name.bytes()).map_or(0, |value| of(value));
    let all: usize = extended.iter().map(|(name, value)| extended_len(name, value)).sum();
    // Attributes may become fewer in any case.
    let is_too_long = of(value) > before && all - before + of(value) > ALL_BYTES_MAX;
    if is_too_long || value.len() > EXTENDED_BYTES_MAX { Err(TreeError::NoSpace) } else { Ok(()) }
}
