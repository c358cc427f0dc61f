//! What a node needs to know of itself, and whether it may take its place.

use crate::error::NodeError;
use crate::state_file::StateFile;
use crate::views::Views;
use landfall_chain::{Compression, Hello, Sending, Upstream, View};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a node needs to know of itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it has the view from.
    pub views: Arc<dyn Views>,
    /// The name of the node.
    pub node: String,
    /// The file of its state.
    pub state: PathBuf,
    /// The password of all nodes, if they have one.
    pub password: Option<Vec<u8>>,
    /// How many writers it has.
    pub streams: usize,
    /// What it packs of what it sends.
    pub compression: Compression,
    /// Bytes per second of a copy, at most; 0: no limit.
    pub copy_rate: u64,
    /// How it sends that.
    pub sending: Sending,
    /// How long a thread that waits for an answer busy-polls before it blocks.
    pub spin: Duration,
}

impl Settings {
    /// Checks that the node may take its place, before its region is opened.
    ///
    /// # Errors
    /// [`NodeError`] says what is wrong and what to do.
    pub fn check(&self) -> Result<(), NodeError> {
        self.read().map(drop)
    }

    /// Records of the region with lower numbers count as sent to the node behind.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn floor(&self) -> Result<u64, NodeError> {
        self.read().map(|(_, state, _)| state.state().floor)
    }

    /// Where the node listens for the one before it, if its view has an address of it.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn listens(&self) -> Result<Option<SocketAddr>, NodeError> {
        let (view, ..) = self.read()?;
        Ok(view.find(&self.node).ok().and_then(|(_, member)| member.address.parse().ok()))
    }

    pub(crate) fn read(&self) -> Result<(View, StateFile, Upstream), NodeError> {
        if !self.password.as_deref().is_none_or(Hello::may_send) {
            return Err(NodeError::Password);
        }
        let (view, me) = (self.views.newest()?, &self.node);
        view.find(me).map_err(|source| NodeError::View { from: self.views.describe(), source })?;
        let state = StateFile::open(&self.state, &view.name, me)?;
        state.check_version(&view, || self.views.describe())?;
        let mut upstream = Upstream::new(me, state.state().since);
        upstream.set_view(&view);
        if view.is_first(me) && !upstream.is_in_step() {
            return Err(NodeError::FirstIsBehind { node: me.clone(), chain: view.name });
        }
        Ok((view, state, upstream))
    }
}
