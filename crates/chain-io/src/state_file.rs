//! What a node knows durably: the file beside its region.

use crate::error::NodeError;
use crate::view_file::replace;
use landfall_chain::View;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file, in the directory of the region.
pub const STATE_NAME: &str = "chain";

/// What a node knows durably of its place in a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// The chain.
    pub(crate) chain: String,
    /// The node.
    pub(crate) node: String,
    /// The `since` of the node for which it is in step; 0: it is behind.
    pub(crate) since: u64,
    /// How often the node has started: newer connections have higher incarnations.
    pub(crate) starts: u64,
    /// Records of this region with a lower seq are at the node behind, too.
    pub(crate) floor: u64,
    /// The newest version of the view in which it answered clients as the first one, with etcd.
    #[serde(default)]
    pub(crate) led: u64,
    /// The newest version of the view in which it was.
    #[serde(default)]
    pub(crate) seen: u64,
    /// What tells its region from others, in hexadecimal digits; empty: not known yet.
    #[serde(default)]
    pub(crate) region: String,
}

impl State {
    fn to_text(&self) -> String {
        let Self { chain, node, since, starts, floor, led, seen, region } = self;
        format!(
            "chain = \"{chain}\"\nnode = \"{node}\"\nsince = {since}\nstarts = {starts}\nfloor = {floor}\n\
             led = {led}\nseen = {seen}\nregion = \"{region}\"\n"
        )
    }
}

/// The file, and what it says.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    state: State,
    /// The file says what `state` does. After an error nobody knows.
    is_written: bool,
}

impl StateFile {
    /// Reads the state of a node; one that has none is behind.
    pub(crate) fn open(path: &Path, chain: &str, node: &str) -> Result<Self, NodeError> {
        let new = || State { chain: chain.into(), node: node.into(), ..State::default() };
        let state = read(path)?.unwrap_or_else(new);
        if state.chain != chain || state.node != node {
            let State { chain, node, .. } = state;
            return Err(NodeError::Other { path: path.into(), node, chain });
        }
        Ok(Self { path: path.into(), state, is_written: true })
    }

    /// The region beside the file is this one. If the node had another one before, it is behind: returns that.
    pub(crate) fn note_region(&mut self, region: &str) -> Result<bool, NodeError> {
        let is_another = !self.state.region.is_empty() && self.state.region != region;
        self.change(|state| {
            region.clone_into(&mut state.region);
            state.since = if is_another { 0 } else { state.since };
        })?;
        Ok(is_another)
    }

    /// Refuses a view that is older than one in which the node was.
    pub(crate) fn check_version(&self, view: &View, from: impl FnOnce() -> String) -> Result<(), NodeError> {
        let State { chain, node, seen, .. } = &self.state;
        if view.version >= *seen {
            return Ok(());
        }
        let (chain, node) = (chain.clone(), node.clone());
        Err(NodeError::OldView { from: from(), chain, version: view.version, node, seen: *seen })
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Changes the state durably. After an error it is as it was, and the file may say the one or the other until a change
    /// succeeds, also one that changes nothing.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut State)) -> Result<(), NodeError> {
        self.change_by(replace, change)
    }

    fn change_by(
        &mut self,
        replace: fn(&Path, &str) -> io::Result<()>,
        change: impl FnOnce(&mut State),
    ) -> Result<(), NodeError> {
        let mut next = self.state.clone();
        change(&mut next);
        if next == self.state && self.is_written {
            return Ok(());
        }
        let replaced = replace(&self.path, &next.to_text());
        if let Err(source) = replaced {
            // A node that is behind must not be in step at its next start.
            self.is_written = replace(&self.path, &self.state.to_text()).is_ok();
            return Err(NodeError::File { path: self.path.clone(), source });
        }
        (self.state, self.is_written) = (next, true);
        Ok(())
    }
}

/// The state in a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<State>, NodeError> {
    match std::fs::read_to_string(path) {
        // A DAX device has no directory.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(source) => Err(NodeError::File { path: path.into(), source }),
        Ok(text) => {
            let syntax = |source| NodeError::Syntax { from: path.display().to_string(), source };
            toml::from_str(&text).map(Some).map_err(syntax)
        }
    }
}

/// The chain that the region in `dir` belongs to, and the name of its node there; `None`: it belongs to none.
///
/// # Errors
/// Those of the file.
pub fn membership(dir: &Path) -> Result<Option<(String, String)>, NodeError> {
    Ok(read(&dir.join(STATE_NAME))?.map(|state| (state.chain, state.node)))
}

/// The region in `dir`, which no server has open, is about to lose some of its data: if it belongs to a node of a chain, that
/// is behind. Returns the names of the chain and of the node then.
///
/// # Errors
/// Those of the file.
pub fn fall_behind(dir: &Path) -> Result<Option<(String, String)>, NodeError> {
    let path = dir.join(STATE_NAME);
    let Some(state) = read(&path)? else { return Ok(None) };
    let names = (state.chain.clone(), state.node.clone());
    StateFile { path, state, is_written: true }.change(|state| state.since = 0)?;
    Ok(Some(names))
}

/// Says that the region in `dir` holds the data of a new chain, whose first node it is.
///
/// # Errors
/// [`NodeError::Other`] if it belongs to another one; those of the files; the node is not the first of the view.
pub fn initialise(dir: &Path, view: &View, node: &str) -> Result<(), NodeError> {
    let path = dir.join(STATE_NAME);
    let (place, member) =
        view.find(node).map_err(|source| NodeError::View { from: path.display().to_string(), source })?;
    if place != 0 {
        return Err(NodeError::NotFirst { node: node.into(), first: view.members[0].name.clone() });
    }
    std::fs::create_dir_all(dir).map_err(|source| NodeError::File { path: dir.into(), source })?;
    StateFile::open(&path, &view.name, node)?.change(|state| {
        state.since = member.since;
        // Whichever region is there.
        state.region.clear();
    })
}

/// The `since` for which the node of a chain is in step, by the file in the directory of its region; 0: it is behind.
///
/// # Errors
/// [`NodeError::Other`] if the region belongs to another one; those of the file.
pub fn in_step_for(dir: &Path, chain: &str, node: &str) -> Result<u64, NodeError> {
    Ok(StateFile::open(&dir.join(STATE_NAME), chain, node)?.state().since)
}

/// Refuses a view, which `from` names, that is older than one in which the node was, by the file in the directory of its region.
///
/// # Errors
/// [`NodeError::OldView`]; as [`in_step_for`].
pub fn check_version(dir: &Path, view: &View, node: &str, from: &str) -> Result<(), NodeError> {
    let state = StateFile::open(&dir.join(STATE_NAME), &view.name, node)?;
    state.check_version(view, || from.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_kept_and_belongs_to_one_node_of_one_chain() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(STATE_NAME);
        let mut file = StateFile::open(&path, "orders", "b").unwrap();
        assert_eq!((file.state().since, file.state().starts), (0, 0));
        file.change(|state| (state.since, state.floor) = (3, 77)).unwrap();
        let again = StateFile::open(&path, "orders", "b").unwrap();
        assert_eq!(again.state(), file.state());
        // As an earlier release has written it.
        let text = std::fs::read_to_string(&path).unwrap();
        let older: Vec<&str> =
            text.lines().filter(|line| !line.contains("seen") && !line.contains("region")).collect();
        std::fs::write(&path, older.join("\n")).unwrap();
        assert_eq!(StateFile::open(&path, "orders", "b").unwrap().state(), file.state());
        assert!(matches!(StateFile::open(&path, "orders", "a"), Err(NodeError::Other { .. })));
        assert!(matches!(StateFile::open(&path, "others", "b"), Err(NodeError::Other { .. })));
        assert_eq!(membership(place.path()).unwrap(), Some(("orders".into(), "b".into())));
        assert_eq!(membership(&path).unwrap(), None, "no directory");
        assert_eq!(fall_behind(place.path()).unwrap(), Some(("orders".into(), "b".into())));
        assert_eq!(in_step_for(place.path(), "orders", "b").unwrap(), 0);
        assert_eq!(fall_behind(&place.path().join("none")).unwrap(), None);
        std::fs::remove_dir_all(place.path()).unwrap();
        assert!(file.change(|state| state.since = 4).is_err());
        assert_eq!(file.state().since, 3, "as it was");
    }

    #[test]
    fn after_a_change_that_failed_when_it_was_written_the_file_says_what_the_node_says() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(STATE_NAME);
        let written = || std::fs::read_to_string(&path).unwrap();
        let fails_late = |path: &Path, text: &str| replace(path, text).and(Err(io::Error::other("no sync")));
        let mut file = StateFile::open(&path, "orders", "b").unwrap();
        file.change(|state| state.starts = 1).unwrap();
        assert!(file.change_by(fails_late, |state| state.since = 3).is_err());
        assert_eq!(written(), file.state().to_text(), "what was replaced is put back");
        file.change_by(fails_late, |state| state.floor = 9).unwrap_err();
        std::fs::write(&path, "another text").unwrap();
        file.change(|state| state.since = 0).unwrap();
        assert_eq!(written(), file.state().to_text(), "also by a change that changes nothing");
    }
}
