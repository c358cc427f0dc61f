//! The client's calls, without pointers.

use crate::error::CallError;
use landfall_pmnet::client::RequestId;
use landfall_pmnet_io::runtime::{Session, SessionOptions};
use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};

/// `PMNet_client`.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) options: SessionOptions,
}

impl Client {
    pub(crate) fn start_session(&self) -> Result<OpenSession, CallError> {
        let requests_max = self.options.client.requests_max;
        let session = Session::start(self.options.clone())?;
        Ok(OpenSession { session, queued: BTreeSet::new(), requests_max, response: Vec::new() })
    }
}

/// The state of a `PMNet_session`.
#[derive(Debug)]
pub(crate) struct OpenSession {
    session: Session,
    /// Queued updates that have not been waited for. The session stores their results, so their number is limited.
    queued: BTreeSet<u64>,
    requests_max: usize,
    response: Vec<u8>,
}

impl OpenSession {
    pub(crate) fn update(&mut self, request: &[u8]) -> Result<(), CallError> {
        Ok(self.session.update(request)?)
    }

    pub(crate) fn queue(&mut self, request: &[u8]) -> Result<u64, CallError> {
        if self.queued.len() >= self.requests_max {
            return Err(CallError::Unwaited { max: self.requests_max });
        }
        let RequestId(id) = self.session.send_update(request)?;
        self.queued.insert(id);
        Ok(id)
    }

    pub(crate) fn wait(&mut self, id: u64) -> Result<(), CallError> {
        if !self.queued.remove(&id) {
            return Err(CallError::NotQueued { id });
        }
        self.session.wait(RequestId(id))?;
        Ok(())
    }

    /// The response stays valid until the next bypass.
    pub(crate) fn bypass(&mut self, request: &[u8]) -> Result<&[u8], CallError> {
        self.response = self.session.bypass(request)?;
        Ok(&self.response)
    }

    pub(crate) fn end(self) -> Result<(), CallError> {
        Ok(self.session.end()?)
    }
}

/// The first address to which `text` resolves.
pub(crate) fn address(text: &str) -> Result<SocketAddr, CallError> {
    let found = text.to_socket_addrs().ok().and_then(|mut all| all.next());
    found.ok_or_else(|| CallError::Address { text: text.to_owned() })
}
