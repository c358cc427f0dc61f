//! What people ask of a chain in etcd. Its manager, one of its servers, carries most of it out.

use super::registry::{Keys, LEASE_TIMES, RegistryError, Snapshot, only_if, put, put_view};
use landfall_chain::{Heard, Member, View, ViewError};
use landfall_members::etcd::{Condition, Op};
use landfall_members::{EtcdClient, MembersError};
use landfall_server::shared::now_ns;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Time limit of a call.
const LIMIT: Duration = Duration::from_secs(5);
/// Pause before etcd is asked again whether the manager has done it.
const PAUSE: Duration = Duration::from_millis(100);

/// Why a chain in etcd was not changed, or not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandsError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("{0}")]
    View(#[from] ViewError),
    #[error("etcd has a chain {chain} already: `landfall chain add`, `remove` and `promote` change it")]
    Exists { chain: String },
    #[error("T is {given} s: expected {} to {} s", LEASE_TIMES.start(), LEASE_TIMES.end())]
    LeaseTime { given: u64 },
    #[error("{node} is a node of the chain {chain} already, at {address}")]
    Known { node: String, chain: String, address: SocketAddr },
    #[error("{node} is no node of the chain {chain}")]
    Unknown { node: String, chain: String },
    #[error("{node} is not in version {version} of the chain {chain}: it is added when it runs")]
    NoMember { node: String, chain: String, version: u64 },
    #[error(
        "{node} cannot be the first one: it is not registered and in step (`landfall chain show` says what is so)"
    )]
    NotSound { node: String },
    #[error(
        "without {node}, no node of the chain {chain} is registered and in step: what was acknowledged could be lost. Start \
         another one, or wait until it is in step (`landfall chain show` says what is so)"
    )]
    LastOne { node: String, chain: String },
    #[error("the chain {chain} has changed meanwhile: look at it by `landfall chain show`, and try again")]
    Changed { chain: String },
    #[error("{other} of the chain {chain} is at {address} already")]
    Address { address: SocketAddr, other: String, chain: String },
    #[error(
        "whether the chain {chain} was changed is not known: {source}. What was asked of it may still be done: look at it by \
         `landfall chain show`; `landfall chain add` takes a removal back"
    )]
    Unanswered { chain: String, source: Box<CommandsError> },
    #[error(
        "the chain {chain} was not changed within {} s: no server is its manager, or no other node is in step any more. \
         Nothing is asked of it now",
        after.as_secs()
    )]
    NotDone { chain: String, after: Duration },
}

impl From<MembersError> for CommandsError {
    fn from(error: MembersError) -> Self {
        Self::Registry(error.into())
    }
}

/// A chain in etcd, for people.
pub(crate) struct Commands {
    client: EtcdClient,
    keys: Keys,
}

impl Commands {
    pub(crate) fn new(client: EtcdClient, chain: &str) -> Self {
        Self { client, keys: Keys::of(chain) }
    }

    fn chain(&self) -> String {
        self.keys.chain().to_owned()
    }

    fn read(&self) -> Result<Snapshot, CommandsError> {
        Ok(Snapshot::read(&self.client, &self.keys, LIMIT)?)
    }

    /// Makes the chain.
    pub(crate) fn create(
        &self,
        members: Vec<(String, SocketAddr)>,
        lease_time: u64,
    ) -> Result<Vec<String>, CommandsError> {
        if !LEASE_TIMES.contains(&lease_time) {
            return Err(CommandsError::LeaseTime { given: lease_time });
        }
        let nodes: Vec<Op> =
            members.iter().map(|(name, address)| put(self.keys.node(name), &address.to_string())).collect();
        let members = members.into_iter().map(|(name, address)| (name, address.to_string()));
        let view = View::create(self.chain(), members, now_ns() / 1_000_000_000)?;
        let mut then =
            vec![put_view(&self.keys, &view), put(self.keys.lease_time(), &lease_time.to_string())];
        then.extend(nodes);
        let when = vec![Condition::exists(self.keys.view(), false)];
        if !self.client.within(LIMIT).txn(&only_if(when, then))?.succeeded {
            return Err(CommandsError::Exists { chain: self.chain() });
        }
        self.show()
    }

    /// The view that counts.
    pub(crate) fn view(&self) -> Result<View, CommandsError> {
        Ok(self.read()?.view)
    }

    /// A node that is added when it runs.
    pub(crate) fn add(&self, node: &str, address: SocketAddr) -> Result<Vec<String>, CommandsError> {
        let seen = self.read()?;
        let known = seen.nodes.get(node);
        // One whose address cannot be read gets this one.
        if let Some(address) = known.and_then(|known| known.address) {
            return Err(CommandsError::Known { node: node.to_owned(), chain: self.chain(), address });
        }
        match seen.view.find(node) {
            // Somebody has begun to remove it, and the manager has not done that.
            Ok((_, member)) if member.address == address.to_string() => {}
            // A view with it says whether name and address make sense.
            _ => drop(seen.view.with(node, &address.to_string())?),
        }
        if let Some((other, _)) = seen.nodes.iter().find(|(_, known)| known.address == Some(address)) {
            return Err(CommandsError::Address { address, other: other.clone(), chain: self.chain() });
        }
        let modified = known.map_or(0, |known| known.modified);
        let when = vec![Condition::unchanged_since(self.keys.node(node), modified)];
        let then = vec![
            put(self.keys.node(node), &address.to_string()),
            Op::Delete { key: self.keys.leaving(node) },
        ];
        if !self.client.within(LIMIT).txn(&only_if(when, then))?.succeeded {
            return Err(CommandsError::Changed { chain: self.chain() });
        }
        self.show()
    }

    /// A node that does not belong to the chain any more.
    pub(crate) fn remove(&self, node: &str) -> Result<Vec<String>, CommandsError> {
        let seen = self.read()?;
        let is_member = seen.view.find(node).is_ok();
        let unreadable = self.unreadable_registration(&seen, node);
        let Some(configured) = seen.nodes.get(node).cloned() else {
            let Some(key) = unreadable else { return Err(self.unknown(node)) };
            self.client.within(LIMIT).delete(&key)?;
            return self.show();
        };
        if is_member {
            self.check_others(&seen, &[node])?;
        }
        let when = vec![seen.same_view(&self.keys), Condition::exists(self.keys.node(node), true)];
        let of_node = [self.keys.node(node), self.keys.leaving(node), self.keys.clients(node)];
        let then = of_node.into_iter().chain(unreadable).map(|key| Op::Delete { key }).collect();
        if !self.client.within(LIMIT).txn(&only_if(when, then))?.succeeded {
            return Err(CommandsError::Changed { chain: self.chain() });
        }
        self.wait(
            &seen,
            |now| now.view.find(node).is_err(),
            || vec![put(self.keys.node(node), &configured.text)],
        )
    }

    /// The key by which a node is registered, if its value makes no sense, or would never end. A node that lives writes it
    /// again.
    fn unreadable_registration(&self, seen: &Snapshot, node: &str) -> Option<String> {
        let is_there = seen.alive.contains_key(node);
        (is_there && seen.heard(node).registration().is_none()).then(|| self.keys.alive(node))
    }

    /// Takes a node out now. If it lives, it starts anew and is added at the end.
    pub(crate) fn fail(&self, node: &str) -> Result<Vec<String>, CommandsError> {
        let seen = self.read()?;
        if !seen.nodes.contains_key(node) {
            return Err(self.unknown(node));
        }
        let version = seen.view.version;
        let no_member = |_| CommandsError::NoMember { node: node.into(), chain: self.chain(), version };
        let since = seen.view.find(node).map_err(no_member)?.1.since;
        self.check_others(&seen, &[node])?;
        self.make_leave(&seen, &[node])?;
        let is_out = |now: &Snapshot| now.view.find(node).is_ok_and(|(_, member)| member.since == since);
        self.wait(&seen, |now| !is_out(now), || vec![Op::Delete { key: self.keys.leaving(node) }])
    }

    /// Takes out all nodes before one that is in step, so that it is the first. They are added again at the end.
    pub(crate) fn promote(&self, node: &str) -> Result<Vec<String>, CommandsError> {
        let seen = self.read()?;
        if !seen.nodes.contains_key(node) {
            return Err(self.unknown(node));
        }
        let version = seen.view.version;
        let no_member = |_| CommandsError::NoMember { node: node.into(), chain: self.chain(), version };
        let place = seen.view.find(node).map_err(no_member)?.0;
        if !seen.is_sound(node) {
            return Err(CommandsError::NotSound { node: node.into() });
        }
        let before: Vec<&str> = seen.view.members[..place].iter().map(|member| &*member.name).collect();
        self.make_leave(&seen, &before)?;
        let stay = || before.iter().map(|node| Op::Delete { key: self.keys.leaving(node) }).collect();
        self.wait(&seen, |now| now.view.is_first(node), stay)
    }

    /// Says which nodes are to leave the view, if that is still the one that was seen. That ends by itself, should nobody wait
    /// for it any more.
    fn make_leave(&self, seen: &Snapshot, nodes: &[&str]) -> Result<(), CommandsError> {
        let when = vec![seen.same_view(&self.keys)];
        let (lease, _) = self.client.within(LIMIT).grant(seen.lease_time * 2 + 2 * LIMIT)?;
        let leave =
            |node: &&str| Op::Put { key: self.keys.leaving(node), value: Vec::new(), lease: Some(lease) };
        let then = nodes.iter().map(leave).collect();
        if self.client.within(LIMIT).txn(&only_if(when, then))?.succeeded {
            return Ok(());
        }
        Err(CommandsError::Changed { chain: self.chain() })
    }

    fn check_others(&self, seen: &Snapshot, without: &[&str]) -> Result<(), CommandsError> {
        let mut others = seen.view.members.iter().filter(|member| !without.contains(&&*member.name));
        if others.any(|member| seen.is_sound(&member.name)) {
            return Ok(());
        }
        Err(CommandsError::LastOne { node: without.join(", "), chain: self.chain() })
    }

    fn unknown(&self, node: &str) -> CommandsError {
        CommandsError::Unknown { node: node.into(), chain: self.chain() }
    }

    /// Waits until the manager has done what was asked for; otherwise takes it back. A node that does not hear of it is waited
    /// for until it is silent.
    fn wait(
        &self,
        seen: &Snapshot,
        is_done: impl Fn(&Snapshot) -> bool,
        undo: impl Fn() -> Vec<Op>,
    ) -> Result<Vec<String>, CommandsError> {
        let (begun, after) = (Instant::now(), seen.lease_time * 2);
        loop {
            let now = match self.read() {
                Ok(now) => now,
                Err(_) if begun.elapsed() < after => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(error) => {
                    return Err(CommandsError::Unanswered { chain: self.chain(), source: error.into() });
                }
            };
            if is_done(&now) {
                return Ok(describe(&now));
            }
            if begun.elapsed() >= after {
                let when = vec![now.same_view(&self.keys)];
                let undone = self.client.within(LIMIT).txn(&only_if(when, undo())).map_err(|error| {
                    CommandsError::Unanswered { chain: self.chain(), source: Box::new(error.into()) }
                })?;
                if undone.succeeded {
                    return Err(CommandsError::NotDone { chain: self.chain(), after });
                }
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Lines for people: what is so.
    pub(crate) fn show(&self) -> Result<Vec<String>, CommandsError> {
        Ok(describe(&self.read()?))
    }
}

fn describe(seen: &Snapshot) -> Vec<String> {
    let View { name, version, members } = &seen.view;
    let manager = seen.elected().map_or("none", |manager| &manager.node);
    let seconds = seen.lease_time.as_secs();
    let mut lines = vec![format!("chain {name}, version {version}, T {seconds} s, manager {manager}")];
    let state = |node: &str, since: u64| match seen.heard(node) {
        Heard::Nothing => "silent",
        Heard::Illegible => "registered, and whether it is in step cannot be read",
        Heard::Registration(says) if says.leaves => "leaves",
        Heard::Registration(says) if says.in_step == since => "registered, in step",
        Heard::Registration(_) => "registered, behind",
    };
    for (place, Member { name, address, since }) in members.iter().enumerate() {
        let role = if place == 0 { "takes writes" } else { "replica" };
        let clients =
            seen.clients.get(name).map(|at| format!("; clients connect to {at}")).unwrap_or_default();
        let state = state(name, *since);
        let copy = seen.copies.get(name).map(|copy| format!("; {copy}")).unwrap_or_default();
        let troubles = seen.troubles.get(name).map(|says| format!("; {says}")).unwrap_or_default();
        lines.push(format!(
            "{name} at {address}, since version {since}: {role}; {state}{copy}{troubles}{clients}"
        ));
    }
    for (name, node) in &seen.nodes {
        if seen.view.find(name).is_err() {
            let state = if seen.heard(name) == Heard::Nothing { "silent" } else { "registered" };
            let unreadable = || "an address that cannot be read".to_owned();
            let address = node.address.map_or_else(unreadable, |address| address.to_string());
            lines.push(format!("{name} at {address}: not in the view; {state}"));
        }
    }
    lines.extend(seen.illegible.iter().cloned());
    lines
}
