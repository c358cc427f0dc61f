//! The view in a file.

use crate::error::NodeError;
use landfall_chain::{Member, View};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// The document.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    version: u64,
    #[serde(default)]
    member: Vec<MemberDocument>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberDocument {
    name: String,
    address: SocketAddr,
    since: u64,
}

/// Reads the view of a chain.
///
/// # Errors
/// [`NodeError::File`], [`NodeError::Syntax`], [`NodeError::View`].
pub fn read_view(path: &Path) -> Result<View, NodeError> {
    let text = fs::read_to_string(path).map_err(|source| NodeError::File { path: path.into(), source })?;
    parse_view(&path.display().to_string(), &text)
}

/// Reads the document of a view, which comes from the place `from`.
///
/// # Errors
/// [`NodeError::Syntax`], [`NodeError::View`].
pub fn parse_view(from: &str, text: &str) -> Result<View, NodeError> {
    let document: Document =
        toml::from_str(text).map_err(|source| NodeError::Syntax { from: from.into(), source })?;
    let member =
        |MemberDocument { name, address, since }| Member { name, address: address.to_string(), since };
    let view = View {
        name: document.name,
        version: document.version,
        members: document.member.into_iter().map(member).collect(),
    };
    view.check().map_err(|source| NodeError::View { from: from.into(), source })?;
    Ok(view)
}

/// The document of a view.
pub fn view_text(view: &View) -> String {
    let mut text = format!("name = \"{}\"\nversion = {}\n", view.name, view.version);
    for Member { name, address, since } in &view.members {
        text += &format!("\n[[member]]\nname = \"{name}\"\naddress = \"{address}\"\nsince = {since}\n");
    }
    text
}

/// Writes the view of a chain: readers see the old one or this one.
///
/// # Errors
/// [`NodeError::File`].
pub fn write_view(path: &Path, view: &View) -> Result<(), NodeError> {
    replace(path, &view_text(view)).map_err(|source| NodeError::File { path: path.into(), source })
}

/// Replaces a file durably: after a crash it has the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_chain::ViewError;

    #[test]
    fn a_view_is_read_as_it_was_written_and_nonsense_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("view.toml");
        let member = |name: &str, port, since| Member {
            name: name.into(),
            address: SocketAddr::from(([127, 0, 0, 1], port)).to_string(),
            since,
        };
        let members = vec![member("a", 1, 1), member("b", 2, 3)];
        let view = View { name: "orders".into(), version: 3, members };
        write_view(&path, &view).unwrap();
        assert_eq!(read_view(&path).unwrap(), view);
        fs::write(&path, "name = 3").unwrap();
        assert!(matches!(read_view(&path), Err(NodeError::Syntax { .. })));
        fs::write(&path, "name = \"orders\"\nversion = 1").unwrap();
        assert!(matches!(read_view(&path), Err(NodeError::View { source: ViewError::Count(0), .. })));
        assert!(matches!(read_view(&place.path().join("none")), Err(NodeError::File { .. })));
    }
}
