//! What is kept in etcd about a chain: keys, values, and one consistent reading of all of them.

use landfall_chain::{Candidate, Heard, Registration, View};
use landfall_chain_io::{ClientAddress, NodeError, parse_view, view_text};
use landfall_members::etcd::{Condition, Entry, Op, Txn};
use landfall_members::{EtcdClient, MembersError};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Shortest and longest T, seconds. The shortest lease of etcd takes 2 s.
pub(crate) const LEASE_TIMES: std::ops::RangeInclusive<u64> = 4..=600;
/// Characters of a value that makes no sense, of which people are told.
const NONSENSE_MAX: usize = 80;

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
    /// Where it listens; `None`: what etcd has there is no address.
    pub(crate) address: Option<SocketAddr>,
    /// The value, which each registration writes again.
    pub(crate) text: String,
    pub(crate) modified: u64,
}

/// The key by which a node is registered.
#[derive(Clone, Debug)]
pub(crate) struct Alive {
    /// [`Heard::Nothing`]: a value without a lease, which is nobody's registration.
    pub(crate) says: Heard,
    /// 0: it has none.
    pub(crate) lease: u64,
    pub(crate) modified: u64,
}

/// Who changes the chain.
#[derive(Clone, Debug)]
pub(crate) struct ManagerKey {
    pub(crate) node: String,
    /// 0: it has none, and so nobody is the manager.
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
    /// What has no meaning in keys of single nodes, for people. It concerns these nodes only.
    pub(crate) illegible: Vec<String>,
}

/// What a node registers. A node of a newer release may say more.
#[derive(Deserialize)]
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
            illegible: Vec::new(),
        };
        entries.iter().for_each(|entry| snapshot.take(&keys.prefix(), entry));
        Ok(snapshot)
    }

    /// Takes what one key says. One of a single node that makes no sense costs that node only: if it ended the reading, every
    /// node would lose its registration.
    fn take(&mut self, prefix: &str, entry: &Entry) {
        let path = entry.key.strip_prefix(prefix).unwrap_or_default();
        let modified = entry.modified;
        match path.split_once('/') {
            Some(("nodes", node)) => {
                let text = text_of(entry);
                let address = text.parse().ok();
                if address.is_none() {
                    self.illegible.push(format!(
                        "{}; {node} is not added: `landfall chain remove` and `add` write its address anew",
                        nonsense(entry)
                    ));
                }
                self.nodes.insert(node.into(), Configured { address, text, modified });
            }
            Some(("alive", node)) => {
                let says = self.hear(entry);
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
    }

    /// What a registration says. What goes with no lease would never end: no node writes that.
    fn hear(&mut self, entry: &Entry) -> Heard {
        if entry.lease.is_none() {
            self.illegible.push(format!("etcd, {}: without a lease it is nobody's registration", entry.key));
            return Heard::Nothing;
        }
        match toml::from_str(&text_of(entry)) {
            Ok(AliveDocument { in_step, leaves }) => Heard::Registration(Registration { in_step, leaves }),
            Err(_) => {
                self.illegible
                    .push(format!("{}; whether that node is in step is not known", nonsense(entry)));
                Heard::Illegible
            }
        }
    }

    /// What is known of a node's registration.
    pub(crate) fn heard(&self, node: &str) -> Heard {
        self.alive.get(node).map_or(Heard::Nothing, |alive| alive.says)
    }

    /// The process that changes the chain.
    pub(crate) fn elected(&self) -> Option<&ManagerKey> {
        self.manager.as_ref().filter(|manager| manager.lease != 0)
    }

    /// The nodes as the manager's rules see them.
    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        let members = self.view.members.iter().map(|member| &member.name);
        let names: BTreeSet<&String> = members.chain(self.nodes.keys()).chain(self.alive.keys()).collect();
        let candidate = |name: &String| {
            let configured = self.nodes.get(name);
            Candidate {
                name: name.clone(),
                address: configured.and_then(|node| node.address).map(|address| address.to_string()),
                heard: self.heard(name),
                registered: configured.map_or(0, |node| node.modified),
            }
        };
        names.into_iter().map(candidate).collect()
    }

    /// True if a member lives and holds everything, and stays.
    pub(crate) fn is_sound(&self, node: &str) -> bool {
        let since = self.view.find(node).map_or(0, |(_, member)| member.since);
        let says = self.heard(node).registration();
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
    let text = text_of(entry).chars().take(NONSENSE_MAX).collect();
    RegistryError::Nonsense { key: entry.key.clone(), text }
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
        assert_eq!(candidates[0].heard, Heard::Registration(Registration { in_step: 2, leaves: false }));
        assert_eq!((candidates[1].heard, candidates[1].registered), (Heard::Nothing, 5));
        assert!(read.illegible.is_empty(), "{:?}", read.illegible);
        assert_eq!(read.clients, [("a".to_owned(), "10.0.0.1:6479".parse().unwrap())].into());
    }

    #[test]
    fn what_is_missing_or_makes_no_sense_is_named() {
        let keys = Keys::of("orders");
        let without: Vec<Entry> =
            entries(&keys).into_iter().filter(|entry| entry.key != keys.view()).collect();
        let words = Snapshot::of(&keys, &without).unwrap_err().to_string();
        assert!(words.contains("etcd has no chain orders"), "{words}");
        for key in [keys.lease_time(), keys.view()] {
            let words = Snapshot::of(&keys, &with(&keys, &key, "?")).unwrap_err().to_string();
            assert!(words.contains(&key), "{words}");
        }
        for key in [keys.alive("a"), keys.node("b")] {
            let read = Snapshot::of(&keys, &with(&keys, &key, "?")).unwrap();
            assert!(read.illegible.len() == 1 && read.illegible[0].contains(&key), "{:?}", read.illegible);
        }
    }

    /// The chain with another value of a key.
    fn with(keys: &Keys, key: &str, value: &str) -> Vec<Entry> {
        let mut entries = entries(keys);
        entries.iter_mut().filter(|entry| entry.key == key).for_each(|entry| entry.value = value.into());
        entries
    }

    #[test]
    fn a_value_of_one_node_that_cannot_be_read_costs_that_node_only() {
        let keys = Keys::of("orders");
        let read = Snapshot::of(&keys, &with(&keys, &keys.node("b"), "db2.example:7101")).unwrap();
        assert!(read.is_sound("a"));
        let candidates = read.candidates();
        // It belongs to the chain, so that it is not taken for removed, and is not added.
        assert!(read.nodes.contains_key("b") && read.nodes["b"].text == "db2.example:7101");
        assert_eq!((candidates[1].address.as_deref(), candidates[1].registered), (None, 5));
        // One that may live and be in step is neither silent nor sound.
        let read = Snapshot::of(&keys, &with(&keys, &keys.alive("a"), "in_step = \"?\"")).unwrap();
        assert_eq!((read.heard("a"), read.is_sound("a")), (Heard::Illegible, false));
        assert_eq!(read.candidates()[0].heard, Heard::Illegible);
        assert_eq!((read.alive["a"].lease, read.alive["a"].modified), (8, 8));
    }

    #[test]
    fn a_registration_that_says_more_is_read() {
        let keys = Keys::of("orders");
        let newer = "in_step = 2\nleaves = false\nrelease = \"9.0\"\n";
        let read = Snapshot::of(&keys, &with(&keys, &keys.alive("a"), newer)).unwrap();
        assert!(read.is_sound("a") && read.illegible.is_empty(), "{:?}", read.illegible);
    }

    #[test]
    fn what_goes_with_no_lease_is_neither_a_registration_nor_a_manager() {
        let keys = Keys::of("orders");
        let mut written = entries(&keys);
        written.iter_mut().for_each(|entry| entry.lease = None);
        let read = Snapshot::of(&keys, &written).unwrap();
        assert_eq!((read.heard("a"), read.elected().is_none()), (Heard::Nothing, true));
        assert!(read.illegible.len() == 1 && read.illegible[0].contains(&keys.alive("a")));
        // Both keys are there: who writes them anew says which ones.
        assert_eq!(read.unchanged(&keys, "a")[0], Condition::unchanged_since(keys.alive("a"), 8));
        assert_eq!(read.manager.map(|manager| manager.modified), Some(9));
    }

    #[test]
    fn of_a_long_value_the_beginning_is_shown() {
        let keys = Keys::of("orders");
        let read = Snapshot::of(&keys, &with(&keys, &keys.node("b"), &"x".repeat(100_000))).unwrap();
        assert!(read.illegible[0].len() < 400, "{}", read.illegible[0].len());
    }
}
