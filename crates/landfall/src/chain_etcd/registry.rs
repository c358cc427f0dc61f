//! What is kept in etcd about a chain: keys, values, and one consistent reading of all of them.

use landfall_chain::{Candidate, Registration, View};
use landfall_chain_io::{ClientAddress, NodeError, parse_view, view_text};
use landfall_members::etcd::{Condition, Entry, Op, Txn};
use landfall_members::{EtcdClient, MembersError};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Shortest and longest T, seconds. The shortest lease of etcd takes 2 s.
pub(crate) const LEASE_TIMES: std::ops::RangeInclusive<u64> = 4..=600;

/// Why etcd does not say what is needed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    #[error(transparent)]
    Etcd(#[from] MembersError),
    #[error(transparent)]
    View(#[from] NodeError),
    #[error(
        "etcd has no chain {name}: make it by `landfall chain create {name} --etcd ... --member NAME=ADDR:PORT ...`"
    )]
    NoChain { name: String },
    #[error("etcd, {key}: {text:?} is not what a chain keeps there")]
    Nonsense { key: String, text: String },
}

/// The keys of a chain.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    chain: String,
}

impl Keys {
    pub(crate) fn of(chain: &str) -> Self {
        Self { chain: chain.into() }
    }

    pub(crate) fn chain(&self) -> &str {
        &self.chain
    }

    fn prefix(&self) -> String {
        format!("/landfall/chains/{}/", self.chain)
    }

    pub(crate) fn view(&self) -> String {
        self.prefix() + "view"
    }

    pub(crate) fn lease_time(&self) -> String {
        self.prefix() + "lease_time"
    }

    pub(crate) fn manager(&self) -> String {
        self.prefix() + "manager"
    }

    pub(crate) fn node(&self, node: &str) -> String {
        self.prefix() + "nodes/" + node
    }

    pub(crate) fn alive(&self, node: &str) -> String {
        self.prefix() + "alive/" + node
    }

    pub(crate) fn copies(&self, node: &str) -> String {
        self.prefix() + "copies/" + node
    }

    pub(crate) fn troubles(&self, node: &str) -> String {
        self.prefix() + "troubles/" + node
    }

    pub(crate) fn clients(&self, node: &str) -> String {
        self.prefix() + "clients/" + node
    }

    pub(crate) fn leaving(&self, node: &str) -> String {
        self.prefix() + "leaving/" + node
    }
}

/// A node that belongs to the chain, in its view or not.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    pub(crate) address: SocketAddr,
    pub(crate) modified: u64,
}

/// A node that is registered.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    pub(crate) says: Registration,
    pub(crate) lease: u64,
    pub(crate) modified: u64,
}

/// Who changes the chain.
#[derive(Clone, Debug)]
pub(crate) struct ManagerKey {
    pub(crate) node: String,
    pub(crate) lease: u64,
    pub(crate) modified: u64,
}

/// A chain at one revision of etcd.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) view: View,
    pub(crate) view_modified: u64,
    /// T.
    pub(crate) lease_time: Duration,
    pub(crate) nodes: BTreeMap<String, Configured>,
    pub(crate) alive: BTreeMap<String, Alive>,
    /// Where clients connect to the nodes, as the nodes have said.
    pub(crate) clients: BTreeMap<String, ClientAddress>,
    /// How far copies have come, by the nodes that send them.
    pub(crate) copies: BTreeMap<String, String>,
    /// What keeps the chain from its work, by the nodes that say so.
    pub(crate) troubles: BTreeMap<String, String>,
    /// Nodes that people want out of the view.
    pub(crate) leaving: BTreeSet<String>,
    pub(crate) manager: Option<ManagerKey>,
}

/// What a node registers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AliveDocument {
    in_step: u64,
    leaves: bool,
}

/// The value of a registration.
pub(crate) fn alive_text(says: Registration) -> String {
    format!("in_step = {}\nleaves = {}\n", says.in_step, says.leaves)
}

impl Snapshot {
    /// Reads a chain; a majority of etcd confirms it.
    pub(crate) fn read(client: &EtcdClient, keys: &Keys, limit: Duration) -> Result<Self, RegistryError> {
        let range = client.within(limit).get_prefix(&keys.prefix(), 0)?;
        Self::of(keys, &range.entries)
    }

    fn of(keys: &Keys, entries: &[Entry]) -> Result<Self, RegistryError> {
        let no_chain = || RegistryError::NoChain { name: keys.chain.clone() };
        let find = |key: String| entries.iter().find(|entry| entry.key == key);
        let view = find(keys.view()).ok_or_else(no_chain)?;
        let lease_time = find(keys.lease_time()).ok_or_else(no_chain)?;
        let seconds = text_of(lease_time).parse().ok().filter(|seconds| LEASE_TIMES.contains(seconds));
        let mut snapshot = Self {
            view: parse_view(&format!("etcd, {}", view.key), &text_of(view))?,
            view_modified: view.modified,
            lease_time: Duration::from_secs(seconds.ok_or_else(|| nonsense(lease_time))?),
            nodes: BTreeMap::new(),
            alive: BTreeMap::new(),
            clients: BTreeMap::new(),
            copies: BTreeMap::new(),
            troubles: BTreeMap::new(),
            leaving: BTreeSet::new(),
            manager: find(keys.manager()).map(|entry| ManagerKey {
                node: text_of(entry),
                lease: lease_of(entry),
                modified: entry.modified,
            }),
        };
        entries.iter().try_for_each(|entry| snapshot.take(&keys.prefix(), entry))?;
        Ok(snapshot)
    }

    fn take(&mut self, prefix: &str, entry: &Entry) -> Result<(), RegistryError> {
        let path = entry.key.strip_prefix(prefix).unwrap_or_default();
        let modified = entry.modified;
        match path.split_once('/') {
            Some(("nodes", node)) => {
                let address = text_of(entry).parse().map_err(|_| nonsense(entry))?;
                self.nodes.insert(node.into(), Configured { address, modified });
            }
            Some(("alive", node)) => {
                let AliveDocument { in_step, leaves } =
                    toml::from_str(&text_of(entry)).map_err(|_| nonsense(entry))?;
                let says = Registration { in_step, leaves };
                self.alive.insert(node.into(), Alive { says, lease: lease_of(entry), modified });
            }
            Some(("clients", node)) => {
                // The chain does not depend on it: one that makes no sense is none, and its node writes it again.
                self.clients.extend(text_of(entry).parse().ok().map(|address| (node.to_owned(), address)));
            }
            Some(("copies", node)) => {
                self.copies.insert(node.into(), text_of(entry));
            }
            Some(("troubles", node)) => {
                self.troubles.insert(node.into(), text_of(entry));
            }
            Some(("leaving", node)) => {
                self.leaving.insert(node.into());
            }
            _ => {}
        }
        Ok(())
    }

    /// The nodes as the manager's rules see them.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let members = self.view.members.iter().map(|member| &member.name);
        let names: BTreeSet<&String> = members.chain(self.nodes.keys()).chain(self.alive.keys()).collect();
        let candidate = |name: &String| {
            let configured = self.nodes.get(name);
            Candidate {
                name: name.clone(),
                address: configured.map(|node| node.address.to_string()),
                registration: self.alive.get(name).map(|alive| alive.says),
                registered: configured.map_or(0, |node| node.modified),
            }
        };
        names.into_iter().map(candidate).collect()
    }

    /// True if a member lives and holds everything, and stays.
    pub(crate) fn is_sound(&self, node: &str) -> bool {
        let since = self.view.find(node).map_or(0, |(_, member)| member.since);
        let says = self.alive.get(node).map(|alive| alive.says);
        since > 0 && says.is_some_and(|says| says.in_step == since && !says.leaves)
    }

    /// Conditions that nothing has changed that a decision about this node rests on.
    pub(crate) fn unchanged(&self, keys: &Keys, node: &str) -> [Condition; 2] {
        let alive = self.alive.get(node).map_or(0, |alive| alive.modified);
        let configured = self.nodes.get(node).map_or(0, |node| node.modified);
        [
            Condition::unchanged_since(keys.alive(node), alive),
            Condition::unchanged_since(keys.node(node), configured),
        ]
    }

    /// A condition that the view is still this one.
    pub(crate) fn same_view(&self, keys: &Keys) -> Condition {
        Condition::unchanged_since(keys.view(), self.view_modified)
    }
}

/// Writes the view.
pub(crate) fn put_view(keys: &Keys, view: &View) -> Op {
    put(keys.view(), &view_text(view))
}

/// Writes a key that stays.
pub(crate) fn put(key: String, value: &str) -> Op {
    Op::Put { key, value: value.as_bytes().to_vec(), lease: None }
}

/// A transaction that does nothing else if a condition does not hold.
pub(crate) fn only_if(when: Vec<Condition>, then: Vec<Op>) -> Txn {
    Txn { when, then, otherwise: Vec::new() }
}

fn text_of(entry: &Entry) -> String {
    String::from_utf8_lossy(&entry.value).into_owned()
}

fn lease_of(entry: &Entry) -> u64 {
    entry.lease.map_or(0, landfall_members::etcd::Lease::id)
}

fn nonsense(entry: &Entry) -> RegistryError {
    RegistryError::Nonsense { key: entry.key.clone(), text: text_of(entry) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_members::etcd::Lease;

    fn entry(key: String, value: &str, modified: u64) -> Entry {
        let lease = Lease::new(modified);
        Entry { key, value: value.into(), created: 1, modified, version: 1, lease }
    }

    fn entries(keys: &Keys) -> Vec<Entry> {
        let view = "name = \"orders\"\nversion = 4\n[[member]]\nname = \"a\"\naddress = \"127.0.0.1:1\"\nsince = 2\n";
        let says = Registration { in_step: 2, leaves: false };
        vec![
            entry(keys.alive("a"), &alive_text(says), 8),
            entry(keys.clients("a"), "10.0.0.1:6479", 8),
            entry(keys.clients("b"), "?", 8),
            entry(keys.lease_time(), "10", 1),
            entry(keys.manager(), "a", 9),
            entry(keys.node("a"), "127.0.0.1:1", 7),
            entry(keys.node("b"), "127.0.0.1:2", 5),
            entry(keys.view(), view, 6),
        ]
    }

    #[test]
    fn a_chain_is_read_as_it_was_written() {
        let keys = Keys::of("orders");
        let read = Snapshot::of(&keys, &entries(&keys)).unwrap();
        assert_eq!((read.view.version, read.view_modified), (4, 6));
        assert_eq!(read.lease_time, Duration::from_secs(10));
        assert!(read.is_sound("a") && !read.is_sound("b"));
        let manager = read.manager.as_ref().unwrap();
        assert_eq!((&*manager.node, manager.lease), ("a", 9));
        let candidates = read.candidates();
        assert_eq!(candidates.len(), 2);
        assert_eq!(candidates[0].registration, Some(Registration { in_step: 2, leaves: false }));
        assert_eq!((candidates[1].registration, candidates[1].registered), (None, 5));
        assert_eq!(read.clients, [("a".to_owned(), "10.0.0.1:6479".parse().unwrap())].into());
    }

    #[test]
    fn what_is_missing_or_makes_no_sense_is_named() {
        let keys = Keys::of("orders");
        let without: Vec<Entry> =
            entries(&keys).into_iter().filter(|entry| entry.key != keys.view()).collect();
        let words = Snapshot::of(&keys, &without).unwrap_err().to_string();
        assert!(words.contains("etcd has no chain orders"), "{words}");
        for key in [keys.alive("a"), keys.node("b"), keys.lease_time(), keys.view()] {
            let mut wrong = entries(&keys);
            wrong.iter_mut().filter(|entry| entry.key == key).for_each(|entry| entry.value = b"?".to_vec());
            let words = Snapshot::of(&keys, &wrong).unwrap_err().to_string();
            assert!(words.contains(&key), "{words}");
        }
    }
}
