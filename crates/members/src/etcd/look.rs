//! Looks at a chain in etcd, again and again.

use super::api::Revision;
use super::source::Etcd;
use crate::error::MembersError;
use crate::view::View;

/// What a watch remembers of etcd.
#[derive(Debug)]
pub(crate) struct EtcdLook {
    etcd: Etcd,
    /// The state that the last look which succeeded has seen.
    known: Option<Revision>,
}

impl EtcdLook {
    pub(crate) fn new(etcd: Etcd) -> Self {
        Self { etcd, known: None }
    }

    /// What etcd holds now; `None` where nothing has changed since the last look that succeeded.
    pub(crate) fn look(&mut self) -> Result<Option<View>, MembersError> {
        let Some(held) = self.etcd.held(self.known.as_ref())? else { return Ok(None) };
        let (chain, _) = held.order.ok_or_else(|| self.etcd.no_chain())?;
        self.known = Some(held.revision);
        Ok(Some(View { chain, members: held.members }))
    }

    /// The next look takes in everything in any case.
    pub(crate) fn forget(&mut self) {
        self.known = None;
    }
}
