//! The agent of a server: keeps it registered, follows the view, and changes the chain while it is its manager.

use super::registry::{Keys, RegistryError, Snapshot, alive_text, only_if, put, put_view};
use landfall_chain::{Change, Heard, Manager, Registration};
use landfall_chain_io::{ClientAddress, Lease as Proof, boot_time};
use landfall_members::etcd::{Condition, Lease, Op};
use landfall_members::{EtcdClient, MembersError};
use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Longest time between two readings.
const PACE_MAX: Duration = Duration::from_millis(250);

/// What the agent and its server share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keys: Keys,
    pub(super) node: String,
    /// T.
    pub(super) lease_time: Duration,
    pub(super) proof: Proof,
    /// The last reading.
    pub(super) newest: Mutex<Option<Snapshot>>,
    /// When that began, nanoseconds of [`boot_time`].
    read_ns: AtomicU64,
    /// Where clients connect to the server, once it listens.
    pub(super) clients: OnceLock<Option<ClientAddress>>,
    /// How far the copy to the node behind has come.
    pub(super) copy: Mutex<Option<String>>,
    /// What keeps the chain from its work here.
    pub(super) troubles: Mutex<Option<String>>,
    pub(super) changed: Condvar,
    /// The `since` for which the server is in step.
    pub(super) in_step: AtomicU64,
    pub(super) is_stopping: AtomicBool,
    /// Another process has registered as this node.
    pub(super) is_replaced: AtomicBool,
    /// The `since` with which the server has taken its place; 0: it has none yet.
    pub(super) joined: AtomicU64,
}

impl Shared {
    /// For a chain of which `first` is the first reading.
    pub(super) fn new(keys: Keys, node: &str, first: Snapshot) -> Self {
        Self {
            keys,
            node: node.into(),
            lease_time: first.lease_time,
            proof: Proof::new(first.lease_time / 2),
            newest: Mutex::new(Some(first)),
            read_ns: AtomicU64::new(nanos(boot_time())),
            clients: OnceLock::new(),
            copy: Mutex::new(None),
            troubles: Mutex::new(None),
            changed: Condvar::new(),
            in_step: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            is_replaced: AtomicBool::new(false),
            joined: AtomicU64::new(0),
        }
    }

    /// How old the last reading is.
    pub(super) fn age(&self) -> Duration {
        boot_time().saturating_sub(Duration::from_nanos(self.read_ns.load(Ordering::Acquire)))
    }

    /// True if the server has taken a place that it does not have any more: it must start anew before it registers.
    fn has_lost_its_place(&self, seen: &Snapshot) -> bool {
        let joined = self.joined.load(Ordering::Acquire);
        let since = seen.view.find(&self.node).map_or(0, |(_, member)| member.since);
        joined != 0 && since != joined
    }

    /// Waits for the next reading, at most for `time`.
    pub(super) fn wait(&self, time: Duration) {
        let mut newest = self.newest.lock();
        if !self.is_stopping.load(Ordering::Acquire) {
            self.changed.wait_for(&mut newest, time);
        }
    }

    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// How long etcd keeps a registration without news. It is at least half of T, after which the node answers nobody.
fn ttl(lease_time: Duration) -> Duration {
    Duration::from_secs(lease_time.as_secs().div_ceil(2))
}

/// How long a member must be silent: half of T, and a tenth of that for clocks that run at different speeds.
fn silence(lease_time: Duration) -> Duration {
    lease_time / 2 + lease_time / 20
}

/// The agent.
pub(super) struct Agent<'s> {
    client: EtcdClient,
    shared: &'s Shared,
    manager: Manager,
    lease: Option<Lease>,
    /// When the lease was renewed.
    renewed: Duration,
    has_registered: bool,
    /// What people were told last.
    told: String,
    /// What people were told last of keys that make no sense.
    told_illegible: Vec<String>,
}

impl<'s> Agent<'s> {
    pub(super) fn new(client: EtcdClient, shared: &'s Shared) -> Self {
        Self {
            client,
            shared,
            manager: Manager::new(silence(shared.lease_time)),
            lease: None,
            renewed: Duration::ZERO,
            has_registered: false,
            told: String::new(),
            told_illegible: Vec::new(),
        }
    }

    /// Works until the server stops. If it `is_out` of the chain by then, its lease ends at once.
    pub(super) fn run(mut self, is_out: impl Fn() -> bool) {
        while !self.shared.is_stopping.load(Ordering::Acquire) {
            match self.round() {
                Ok(()) if self.told.is_empty() => {}
                Ok(()) => {
                    tracing::info!("etcd answers again");
                    self.told.clear();
                }
                Err(error) => self.tell(&error),
            }
            self.pause();
        }
        self.end(is_out());
    }

    fn tell(&mut self, error: &RegistryError) {
        let text = error.to_string();
        if text != self.told {
            tracing::warn!(error = text, "no news from etcd: the chain that is known goes on");
            self.told = text;
        }
    }

    /// Says once what makes no sense: the nodes that it names are those that have to do without it.
    fn tell_of_illegible(&mut self, illegible: &[String]) {
        if illegible != self.told_illegible {
            illegible.iter().for_each(|what| tracing::warn!("{what}"));
            self.told_illegible = illegible.to_vec();
        }
    }

    fn pause(&self) {
        let mut newest = self.shared.newest.lock();
        if !self.shared.is_stopping.load(Ordering::Acquire) {
            let pace = PACE_MAX.min(self.shared.lease_time / 20);
            self.shared.changed.wait_for(&mut newest, pace);
        }
    }

    /// Time limit of a call: some of them fit into the time for which a proof lasts.
    fn limit(&self) -> Duration {
        self.shared.lease_time / 8
    }

    fn round(&mut self) -> Result<(), RegistryError> {
        let begun = boot_time();
        // Who cannot read the chain does not follow it, and does not stay registered: it would answer nobody, and nobody
        // would take its place.
        let seen = Snapshot::read(&self.client, &self.shared.keys, self.limit())?;
        self.tell_of_illegible(&seen.illegible);
        let candidates = seen.candidates();
        self.manager.observe(boot_time(), &candidates);
        *self.shared.newest.lock() = Some(seen.clone());
        self.shared.read_ns.store(nanos(begun), Ordering::Release);
        self.shared.changed.notify_all();
        if self.shared.has_lost_its_place(&seen) {
            self.shared.proof.set_left(true);
            return Ok(());
        }
        let lease = self.lease()?;
        self.register(&seen, lease, begun)?;
        self.announce(&seen, lease)?;
        self.report(&seen, lease)?;
        match seen.elected() {
            None => self.campaign(&seen, lease)?,
            Some(manager) if manager.lease == lease.id() => {
                if let Some(change) = self.manager.next(&seen.view, &candidates) {
                    self.apply(&seen, &change, manager.modified)?;
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The lease of this process, renewed in time.
    fn lease(&mut self) -> Result<Lease, MembersError> {
        let (now, ttl) = (boot_time(), ttl(self.shared.lease_time));
        let calls = self.client.within(self.limit());
        let kept = match self.lease {
            Some(lease) if now.saturating_sub(self.renewed) < ttl / 3 => return Ok(lease),
            Some(lease) => calls.keep_alive(lease)?.map(|_| lease),
            None => None,
        };
        let lease = match kept {
            Some(lease) => lease,
            None => calls.grant(ttl)?.0,
        };
        (self.lease, self.renewed) = (Some(lease), now);
        Ok(lease)
    }

    /// Sees to it that the registration says what is so. What `seen` shows of it is a proof from `begun` on.
    fn register(&mut self, seen: &Snapshot, lease: Lease, begun: Duration) -> Result<(), RegistryError> {
        let Shared { keys, node, proof, .. } = self.shared;
        let Some(configured) = seen.nodes.get(node) else {
            // People have removed it.
            return self.leave(seen, lease);
        };
        // What goes with no lease no process has written.
        let known = seen.alive.get(node).filter(|alive| alive.lease != 0);
        let said = known.and_then(|alive| alive.says.registration());
        let is_mine = known.is_some_and(|alive| alive.lease == lease.id());
        if known.is_some() && !is_mine && self.has_registered {
            if !self.shared.is_replaced.swap(true, Ordering::AcqRel) {
                proof.set_left(true);
                tracing::error!(node, "another process has registered as this node: this one answers nobody");
            }
            return Ok(());
        }
        self.shared.is_replaced.store(false, Ordering::Release);
        let leaves = seen.leaving.contains(node);
        let says = Registration { in_step: self.shared.in_step.load(Ordering::Acquire), leaves };
        if leaves {
            proof.set_left(true);
        } else if is_mine && said.is_some_and(|said| !said.leaves) {
            proof.set_left(false);
            // Who is said to be behind may be taken out at once.
            let since = seen.view.find(node).map_or(0, |(_, member)| member.since);
            if said.is_some_and(|said| since != 0 && said.in_step == since) {
                proof.prove(begun);
            }
        }
        if is_mine && said == Some(says) {
            return Ok(());
        }
        let value = alive_text(says).into_bytes();
        let then = vec![
            Op::Put { key: keys.alive(node), value, lease: Some(lease) },
            // Whoever measures the silence of this node sees by this revision that it was broken.
            put(keys.node(node), &configured.text),
        ];
        let when = vec![Condition::unchanged_since(keys.node(node), configured.modified)];
        self.has_registered |= self.client.within(self.limit()).txn(&only_if(when, then))?.succeeded;
        Ok(())
    }

    /// Sees to it that clients are told where they reach this server.
    fn announce(&self, seen: &Snapshot, lease: Lease) -> Result<(), RegistryError> {
        let Shared { keys, node, clients, .. } = self.shared;
        let is_mine = seen.alive.get(node).is_some_and(|alive| alive.lease == lease.id());
        let Some(wanted) =
            clients.get().filter(|wanted| is_mine && wanted.as_ref() != seen.clients.get(node))
        else {
            return Ok(());
        };
        let key = keys.clients(node);
        let write = match wanted {
            Some(address) => put(key, &address.to_string()),
            None => Op::Delete { key },
        };
        // Neither people have removed the node, nor has another process registered as this one.
        let when = seen.unchanged(keys, node).into();
        self.client.within(self.limit()).txn(&only_if(when, vec![write]))?;
        Ok(())
    }

    /// Says how far a copy has come, and what keeps the chain from its work. Both go with the lease of this process.
    fn report(&self, seen: &Snapshot, lease: Lease) -> Result<(), RegistryError> {
        let Shared { keys, node, copy, troubles, .. } = self.shared;
        // Another process may have registered as this node.
        if seen.alive.get(node).is_none_or(|alive| alive.lease != lease.id()) {
            return Ok(());
        }
        let copy = copy.lock().clone();
        self.say(keys.copies(node), copy, seen.copies.get(node), lease)?;
        let troubles = troubles.lock().clone();
        self.say(keys.troubles(node), troubles, seen.troubles.get(node), lease)
    }

    /// Sees to it that a key says what is so, where it said `said`.
    fn say(
        &self,
        key: String,
        wanted: Option<String>,
        said: Option<&String>,
        lease: Lease,
    ) -> Result<(), RegistryError> {
        if wanted.as_ref() == said {
            return Ok(());
        }
        let says = match wanted {
            Some(text) => Op::Put { key, value: text.into_bytes(), lease: Some(lease) },
            None => Op::Delete { key },
        };
        self.client.within(self.limit()).txn(&only_if(Vec::new(), vec![says]))?;
        Ok(())
    }

    /// A node that does not belong to the chain any more, and may be in its view still, says that it answers nobody.
    fn leave(&self, seen: &Snapshot, lease: Lease) -> Result<(), RegistryError> {
        let Shared { keys, node, proof, .. } = self.shared;
        proof.set_left(true);
        let says = Registration { in_step: self.shared.in_step.load(Ordering::Acquire), leaves: true };
        let is_mine = seen.alive.get(node).is_some_and(|alive| alive.lease == lease.id());
        let is_said = is_mine && seen.heard(node) == Heard::Registration(says);
        if !is_said && seen.view.find(node).is_ok() {
            let value = alive_text(says).into_bytes();
            self.client.within(self.limit()).put(&keys.alive(node), &value, Some(lease))?;
        }
        Ok(())
    }

    fn campaign(&self, seen: &Snapshot, lease: Lease) -> Result<(), RegistryError> {
        let Shared { keys, node, .. } = self.shared;
        let value = node.clone().into_bytes();
        let put = Op::Put { key: keys.manager(), value, lease: Some(lease) };
        // What goes with no lease would never end, and is nobody's.
        let known = seen.manager.as_ref().map_or(0, |manager| manager.modified);
        let when = vec![Condition::unchanged_since(keys.manager(), known)];
        if self.client.within(self.limit()).txn(&only_if(when, vec![put]))?.succeeded {
            tracing::info!(node, "this node changes the chain from now on");
        }
        Ok(())
    }

    /// Changes the view, if nothing has changed on which that rests, and this node is the manager still.
    fn apply(&self, seen: &Snapshot, change: &Change, elected: u64) -> Result<(), RegistryError> {
        let keys = &self.shared.keys;
        let mut when = vec![seen.same_view(keys), Condition::unchanged_since(keys.manager(), elected)];
        let first = change.view.members.first().map(|member| &member.name);
        let mut nodes: Vec<&String> = change.removed.iter().chain(&change.added).collect();
        nodes.extend(first.filter(|first| !nodes.contains(first)));
        when.extend(nodes.into_iter().flat_map(|node| seen.unchanged(keys, node)));
        let mut then = vec![put_view(keys, &change.view)];
        // Also if that was asked for since it was read: who comes back would never be added again.
        then.extend(change.removed.iter().map(|node| Op::Delete { key: keys.leaving(node) }));
        if self.client.within(self.limit()).txn(&only_if(when, then))?.succeeded {
            let Change { view, removed, added } = change;
            let (version, members) = (view.version, view.members.len());
            tracing::info!(version, members, ?removed, ?added, "changed the chain");
        }
        Ok(())
    }

    /// Lets others become the manager. The registration stays for its time, since a server that is started again soon keeps
    /// its place; that of a server that has lost its place ends.
    fn end(self, is_out: bool) {
        let Some(lease) = self.lease else { return };
        let calls = self.client.within(self.limit());
        let manager = self.shared.keys.manager();
        let ended = if is_out {
            calls.revoke(lease)
        } else {
            let mine = Condition {
                key: manager.clone(),
                target: landfall_members::etcd::Target::Value(self.shared.node.clone().into_bytes()),
                relation: landfall_members::etcd::Relation::Equal,
            };
            calls.txn(&only_if(vec![mine], vec![Op::Delete { key: manager }])).map(drop)
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "etcd was not told of the end");
        }
    }
}
