//! A registry: keys with revisions. What is read is one revision, and leases end whenever they like.

use landfall_chain::{Candidate, Change, Heard, Registration, View};
use std::collections::{BTreeMap, BTreeSet};

/// A registration, and the process that has made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alive {
    pub says: Registration,
    pub process: u64,
    pub revision: u64,
}

/// Everything at one revision.
#[derive(Clone, Debug)]
pub struct Registry {
    revision: u64,
    pub view: View,
    view_revision: u64,
    pub alive: BTreeMap<String, Alive>,
    /// The revision of each node's last registration.
    registered: BTreeMap<String, u64>,
    pub leaving: BTreeSet<String>,
    /// The process that is the manager.
    pub manager: Option<(u64, u64)>,
}

impl Registry {
    pub fn new(view: View) -> Self {
        let registered = view.members.iter().map(|member| (member.name.clone(), 1)).collect();
        let (alive, leaving) = (BTreeMap::new(), BTreeSet::new());
        Self { revision: 1, view, view_revision: 1, alive, registered, leaving, manager: None }
    }

    fn next(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    pub fn candidates(&self) -> Vec<Candidate> {
        let candidate = |(name, registered): (&String, &u64)| Candidate {
            name: name.clone(),
            address: Some(format!("{name}:1")),
            heard: self.alive.get(name).map_or(Heard::Nothing, |alive| Heard::Registration(alive.says)),
            registered: *registered,
        };
        self.registered.iter().map(candidate).collect()
    }

    pub fn register(&mut self, name: &str, process: u64, says: Registration) {
        let revision = self.next();
        self.alive.insert(name.into(), Alive { says, process, revision });
        self.registered.insert(name.into(), revision);
    }

    pub fn campaign(&mut self, process: u64) {
        let revision = self.next();
        self.manager.get_or_insert((process, revision));
    }

    /// The manager changes the view by what it has `seen`; without conditions if it `insists`.
    pub fn apply(&mut self, seen: &Self, change: &Change, insists: bool) {
        let first = change.view.members[0].name.clone();
        let rests_on = change.removed.iter().chain(&change.added).chain([&first]);
        let is_same = |name: &String| {
            let revision = |registry: &Self| registry.alive.get(name).map(|alive| alive.revision);
            revision(self) == revision(seen) && self.registered.get(name) == seen.registered.get(name)
        };
        let holds = self.view_revision == seen.view_revision
            && self.manager == seen.manager
            && rests_on.into_iter().all(is_same);
        if !holds && !insists {
            return;
        }
        self.view_revision = self.next();
        self.view = change.view.clone();
        change.removed.iter().for_each(|name| {
            self.leaving.remove(name);
        });
    }
}
