//! Polls a chain in etcd.

use super::keys::Revision;
use super::source::Etcd;
use crate::error::MembersError;
use crate::view::View;

/// Polls etcd, and remembers the revision that it has read.
#[derive(Debug)]
pub(crate) struct EtcdPoller {
    etcd: Etcd,
    /// The revision that the last successful poll has read.
    known: Option<Revision>,
}

impl EtcdPoller {
    pub(crate) fn new(etcd: Etcd) -> Self {
        Self { etcd, known: None }
    }

    /// The contents of etcd; `None` if nothing has changed since the last successful poll.
    ///
    /// # Errors
    /// Those of etcd; [`MembersError::NoChain`].
    pub(crate) fn poll(&mut self) -> Result<Option<View>, MembersError> {
        let Some(held) = self.etcd.held(self.known.as_ref())? else { return Ok(None) };
        let (chain, _) = held.order.ok_or_else(|| self.etcd.no_chain())?;
        self.known = Some(held.revision);
        Ok(Some(View { chain, members: held.members }))
    }

    /// Makes the next poll return the contents in any case.
    pub(crate) fn forget(&mut self) {
        self.known = None;
    }
}
