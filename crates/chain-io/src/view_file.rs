//! The view in a file.

use crate::clients::ClientAddress;
use crate::error::NodeError;
use landfall_chain::{Member, View, check_name};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

/// A view, and what else its document says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDocument {
    /// The view.
    pub view: View,
    /// Where clients connect to the nodes, by name. No node depends on it, so that it changes without a new version.
    pub clients: BTreeMap<String, ClientAddress>,
}

/// The document.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    version: u64,
    #[serde(default)]
    member: Vec<MemberDocument>,
    #[serde(default)]
    clients: BTreeMap<String, ClientAddress>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberDocument {
    name: String,
    address: SocketAddr,
    since: u64,
}

/// Reads the document of a chain.
///
/// # Errors
/// [`NodeError::File`], [`NodeError::Syntax`], [`NodeError::View`].
pub fn read_document(path: &Path) -> Result<ViewDocument, NodeError> {
    let text = fs::read_to_string(path).map_err(|source| NodeError::File { path: path.into(), source })?;
    parse_document(&path.display().to_string(), &text)
}

/// Reads the view of a document, which comes from the place `from`.
///
/// # Errors
/// [`NodeError::Syntax`], [`NodeError::View`].
pub fn parse_view(from: &str, text: &str) -> Result<View, NodeError> {
    parse_document(from, text).map(|document| document.view)
}

fn parse_document(from: &str, text: &str) -> Result<ViewDocument, NodeError> {
    let Document { name, version, member, clients } =
        toml::from_str(text).map_err(|source| NodeError::Syntax { from: from.into(), source })?;
    let to_member =
        |MemberDocument { name, address, since }| Member { name, address: address.to_string(), since };
    let view = View { name, version, members: member.into_iter().map(to_member).collect() };
    let names = || clients.keys().try_for_each(|name| check_name(name));
    view.check().and_then(|()| names()).map_err(|source| NodeError::View { from: from.into(), source })?;
    Ok(ViewDocument { view, clients })
}

/// The document of a view.
pub fn view_text(view: &View) -> String {
    let mut text = format!("name = \"{}\"\nversion = {}\n", view.name, view.version);
    for Member { name, address, since } in &view.members {
        text += &format!("\n[[member]]\nname = \"{name}\"\naddress = \"{address}\"\nsince = {since}\n");
    }
    text
}

/// Writes the document of a chain: readers see the old one or this one.
///
/// # Errors
/// [`NodeError::File`].
pub fn write_document(path: &Path, document: &ViewDocument) -> Result<(), NodeError> {
    let mut text = view_text(&document.view);
    if !document.clients.is_empty() {
        text += "\n[clients]\n";
    }
    for (node, address) in &document.clients {
        text += &format!("\"{node}\" = \"{address}\"\n");
    }
    replace(path, &text).map_err(|source| NodeError::File { path: path.into(), source })
}

/// Replaces a file durably: after a crash it has the old text or the new one. After an error, too, it has one of them.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // What can fail for lack of descriptors or permission fails before the new text is there.
    let directory = File::open(parent.unwrap_or(Path::new(".")))?;
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    directory.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_chain::ViewError;

    fn document() -> ViewDocument {
        let member = |name: &str, port, since| Member {
            name: name.into(),
            address: SocketAddr::from(([127, 0, 0, 1], port)).to_string(),
            since,
        };
        let members = vec![member("a", 1, 1), member("b.c", 2, 3)];
        let view = View { name: "orders".into(), version: 3, members };
        ViewDocument { view, clients: BTreeMap::new() }
    }

    #[test]
    fn a_view_is_read_as_it_was_written_and_nonsense_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("view.toml");
        write_document(&path, &document()).unwrap();
        assert_eq!(read_document(&path).unwrap(), document());
        fs::write(&path, "name = 3").unwrap();
        assert!(matches!(read_document(&path), Err(NodeError::Syntax { .. })));
        fs::write(&path, "name = \"orders\"\nversion = 1").unwrap();
        assert!(matches!(read_document(&path), Err(NodeError::View { source: ViewError::Count(0), .. })));
        assert!(matches!(read_document(&place.path().join("none")), Err(NodeError::File { .. })));
    }

    #[test]
    fn addresses_for_clients_are_kept_beside_the_view() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("view.toml");
        let mut with = document();
        with.clients = [("b.c", "db-2.example.org:6479"), ("a", "[::1]:6479")]
            .map(|(node, address)| (node.to_owned(), address.parse().unwrap()))
            .into();
        write_document(&path, &with).unwrap();
        assert_eq!(read_document(&path).unwrap(), with);
        let text = fs::read_to_string(&path).unwrap().replace("db-2.example.org:6479", "db 2");
        fs::write(&path, text).unwrap();
        let words = read_document(&path).unwrap_err().to_string();
        assert!(words.contains("HOST:PORT"), "{words}");
    }
}
