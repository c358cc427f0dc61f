//! What a node knows durably: the file beside its region.

use crate::error::NodeError;
use crate::view_file::replace;
use landfall_chain::{State, View};
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file, in the directory of the region.
pub const STATE_NAME: &str = "chain";

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    state: State,
}

impl StateFile {
    /// Reads the state of a node; one that has none is behind.
    pub(crate) fn open(path: &Path, chain: &str, node: &str) -> Result<Self, NodeError> {
        let fail = |source| NodeError::File { path: path.into(), source };
        let state = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                State { chain: chain.into(), node: node.into(), since: 0, starts: 0, floor: 0 }
            }
            Err(error) => return Err(fail(error)),
            Ok(text) => {
                State::parse(&text).map_err(|source| NodeError::View { path: path.into(), source })?
            }
        };
        if state.chain != chain || state.node != node {
            let State { chain, node, .. } = state;
            return Err(NodeError::Other { path: path.into(), node, chain });
        }
        Ok(Self { path: path.into(), state })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Changes the state durably. After an error it is as it was.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut State)) -> Result<(), NodeError> {
        let mut next = self.state.clone();
        change(&mut next);
        if next != self.state {
            let fail = |source| NodeError::File { path: self.path.clone(), source };
            replace(&self.path, &next.to_text()).map_err(fail)?;
            self.state = next;
        }
        Ok(())
    }
}

/// Says that the region in `dir` holds the data of a new chain, whose first node it is.
///
/// # Errors
/// [`NodeError::Other`] if it belongs to another one; those of the files; the node is not the first of the view.
pub fn initialise(dir: &Path, view: &View, node: &str) -> Result<(), NodeError> {
    let path = dir.join(STATE_NAME);
    let (place, member) =
        view.find(node).map_err(|source| NodeError::View { path: path.clone(), source })?;
    if place != 0 {
        return Err(NodeError::NotFirst { node: node.into(), first: view.members[0].name.clone() });
    }
    std::fs::create_dir_all(dir).map_err(|source| NodeError::File { path: dir.into(), source })?;
    StateFile::open(&path, &view.name, node)?.change(|state| state.since = member.since)
}
