//! Extended attributes.

use super::{Tree, TreeError};
use crate::key::InodeNumber;
use crate::name::ExtendedName;

impl Tree {
    pub(super) fn set_extended(
        &mut self,
        number: InodeNumber,
        name: ExtendedName<'_>,
        value: &[u8],
        time_ns: i64,
    ) -> Result<(), TreeError> {
        self.node(number)?;
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
