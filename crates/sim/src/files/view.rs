//! A tree as programs see it.

use super::call::Bytes;
use std::collections::BTreeMap;

/// What an inode holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The bytes of a file.
    File(Bytes),
    /// A directory: its entries are the paths below it.
    Directory,
    /// The target of a symbolic link.
    Link(String),
}

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The first path that names it: paths of one inode have the same.
    pub first: String,
    /// Number of its names, as `st_nlink` counts them.
    pub nlink: u32,
    /// Contents.
    pub body: Body,
    /// Extended attributes.
    pub extended: BTreeMap<String, Bytes>,
}

/// All paths, with what they name.
pub type View = BTreeMap<String, Seen>;

/// The bytes of a file, if the path names one.
pub fn bytes_of<'v>(view: &'v View, path: &str) -> Option<&'v [u8]> {
    match &view.get(path)?.body {
        Body::File(bytes) => Some(&bytes.0),
        _ => None,
    }
}

/// Tells each inode the first of its paths. `inodes`: the inode of each path.
pub(super) fn name_inodes<K: Ord + Copy>(view: &mut View, inodes: &BTreeMap<String, K>) {
    let mut first: BTreeMap<K, &str> = BTreeMap::new();
    for (path, inode) in inodes {
        let name = *first.entry(*inode).or_insert(path);
        if let Some(seen) = view.get_mut(path) {
            name.clone_into(&mut seen.first);
        }
    }
}

/// The path of a name in a directory.
pub(super) fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

/// The first difference of two trees, for people.
pub fn difference(found: &View, expected: &View) -> Option<String> {
    for (path, expected) in expected {
        match found.get(path) {
            None => return Some(format!("/{path} is missing")),
            Some(found) if found != expected => {
                return Some(format!("/{path} is {found:?} and not {expected:?}"));
            }
            Some(_) => {}
        }
    }
    let more = found.keys().find(|path| !expected.contains_key(*path));
    more.map(|path| format!("/{path} should not be there"))
}
