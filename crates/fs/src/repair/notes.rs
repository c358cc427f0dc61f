//! What a repair has done, for people.

use crate::key::InodeNumber;
use std::collections::BTreeMap;

/// The directory of an inode, and its name there. Of several names it is any one.
pub(super) type Ways = BTreeMap<InodeNumber, (InodeNumber, Box<[u8]>)>;

/// Longest way to the root that is followed.
const DEPTH_MAX: usize = 4096;

/// Notes, each of an inode or of the whole tree.
#[derive(Debug, Default)]
pub(super) struct Notes(Vec<(Option<InodeNumber>, String)>);

impl Notes {
    pub(super) fn add(&mut self, what: String) {
        self.0.push((None, what));
    }

    pub(super) fn of(&mut self, number: InodeNumber, what: impl Into<String>) {
        self.0.push((Some(number), what.into()));
    }

    /// One line each, with the paths of the inodes.
    pub(super) fn lines(self, ways: &Ways) -> Vec<String> {
        let line = |(number, what): (Option<InodeNumber>, String)| match number {
            Some(number) => format!("{}: {what}", name_of(ways, number)),
            None => what,
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Number and path of an inode.
fn name_of(ways: &Ways, number: InodeNumber) -> String {
    let (mut path, mut at) = (String::new(), number);
    for _ in 0..DEPTH_MAX {
        let Some((parent, name)) = ways.get(&at) else { break };
        path = format!("/{}{path}", name.escape_ascii());
        at = *parent;
    }
    match at == InodeNumber::ROOT {
        true if number == at => "inode 1 (/)".into(),
        true => format!("inode {} ({path})", number.0),
        false => format!("inode {}", number.0),
    }
}
