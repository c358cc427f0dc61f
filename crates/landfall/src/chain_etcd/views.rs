//! The views of a chain in etcd, for the server that is one of its nodes.

use super::agent::{Agent, Shared};
use super::registry::{Keys, RegistryError, Snapshot};
use landfall_chain::{Compression, Replicate, Sending, View};
use landfall_chain_io::{ClientAddress, CopyProgress, Lease, NodeError, Views, check_version, in_step_for};
use landfall_members::EtcdClient;
use landfall_server::store::make_directory;
use parking_lot::Mutex;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time limit of the first reading.
const LIMIT: Duration = Duration::from_secs(3);
/// Name of the file, in the directory of the region, that whoever takes the place has locked.
const LOCK_NAME: &str = "chain.lock";
/// Pause before etcd is asked again.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Why a server cannot become a node of its chain.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Node(#[from] NodeError),
    #[error(
        "{node} is no node of the chain {chain}: `landfall chain add {chain} --etcd ... {node}=ADDR:PORT` adds it"
    )]
    Unknown { node: String, chain: String },
    #[error("another process has registered as {node} of the chain {chain}: each node is one server")]
    Replaced { node: String, chain: String },
    #[error("{}: another process serves the region there", dir.display())]
    InUse { dir: PathBuf },
    #[error("{}: {source}", dir.display())]
    Lock { dir: PathBuf, source: std::io::Error },
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// The place of a server in a chain in etcd.
#[derive(Clone, Debug)]
pub(crate) struct EtcdPlace {
    pub(crate) client: EtcdClient,
    pub(crate) chain: String,
    pub(crate) node: String,
    /// Where its region is.
    pub(crate) dir: PathBuf,
    /// Where people say that clients connect to it.
    pub(crate) announce: Option<ClientAddress>,
    /// What it packs of what it sends to the next server.
    pub(crate) compression: Compression,
    /// What changes of files wait for while it is the first one.
    pub(crate) replicate: Replicate,
    /// How it sends to the next server.
    pub(crate) sending: Sending,
}

impl EtcdPlace {
    /// No other process takes the place from the same directory until what is returned is dropped: it would register before it
    /// finds that it cannot have the region, and whoever has it would have lost the place.
    pub(crate) fn lock(&self) -> Result<File, PlaceError> {
        let fail = |source| PlaceError::Lock { dir: self.dir.clone(), source };
        make_directory(&self.dir).map_err(fail)?;
        let path = self.dir.join(LOCK_NAME);
        let file = File::options().create(true).truncate(false).write(true).open(path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(PlaceError::InUse { dir: self.dir.clone() }),
            Err(TryLockError::Error(source)) => Err(fail(source)),
        }
    }

    /// Registers the node, and waits until it has a place that it may take; `None` if the wait `is_over` before. A node that
    /// is not in the view is added at the end; a first one without the chain's data waits until another one is the first.
    pub(crate) fn take(&self, is_over: &dyn Fn() -> bool) -> Result<Option<Arc<EtcdViews>>, PlaceError> {
        let Some(views) = self.register(is_over)? else { return Ok(None) };
        let mut told = "";
        while !is_over() {
            match views.obstacle()? {
                None => return Ok(Some(Arc::new(views))),
                Some(obstacle) if obstacle == told => {}
                Some(obstacle) => {
                    tracing::info!(node = self.node, chain = self.chain, "waiting: {obstacle}");
                    told = obstacle;
                }
            }
            views.shared.wait(RETRY_AFTER);
            views.note_in_step(in_step_for(&self.dir, &self.chain, &self.node)?);
        }
        Ok(None)
    }

    fn register(&self, is_over: &dyn Fn() -> bool) -> Result<Option<EtcdViews>, PlaceError> {
        let (keys, mut told) = (Keys::of(&self.chain), String::new());
        while !is_over() {
            match Snapshot::read(&self.client, &keys, LIMIT) {
                Ok(first) => return self.start(keys, first).map(Some),
                Err(RegistryError::Etcd(error)) => {
                    let text = error.to_string();
                    if text != told {
                        tracing::warn!(error = text, "waiting: etcd does not say what the chain is");
                        told = text;
                    }
                    std::thread::sleep(RETRY_AFTER);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    fn start(&self, keys: Keys, first: Snapshot) -> Result<EtcdViews, PlaceError> {
        // Who registers says what it has.
        check_version(&self.dir, &first.view, &self.node, "etcd")?;
        let in_step = in_step_for(&self.dir, &self.chain, &self.node)?;
        let shared = Arc::new(Shared::new(keys, &self.node, first));
        shared.in_step.store(in_step, Ordering::Release);
        let removal = Arc::new(Removal::default());
        let (of_agent, client, is_out) = (Arc::clone(&shared), self.client.clone(), Arc::clone(&removal));
        let work = move || Agent::new(client, &of_agent).run(|| is_out.has_happened());
        let thread = std::thread::Builder::new().name("chain-etcd".into()).spawn(work);
        let thread = Some(thread.map_err(PlaceError::Thread)?);
        Ok(EtcdViews { shared, removal, thread })
    }
}

/// That the node was removed while it ran, and what follows.
#[derive(Default)]
struct Removal {
    has_happened: AtomicBool,
    follow: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl std::fmt::Debug for Removal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Removal {{ {} }}", self.has_happened())
    }
}

impl Removal {
    fn has_happened(&self) -> bool {
        self.has_happened.load(Ordering::Acquire)
    }
}

/// The views of a chain in etcd. The agent ends when this is dropped.
#[derive(Debug)]
pub(crate) struct EtcdViews {
    shared: Arc<Shared>,
    removal: Arc<Removal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for EtcdViews {
    fn drop(&mut self) {
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

impl EtcdViews {
    /// Why the node may not take its place yet. If nothing speaks against it, the place is taken.
    fn obstacle(&self) -> Result<Option<&'static str>, PlaceError> {
        let Shared { keys, node, in_step, .. } = &*self.shared;
        let (node, chain) = (node.clone(), keys.chain().to_owned());
        if self.shared.is_replaced.load(Ordering::Acquire) {
            return Err(PlaceError::Replaced { node, chain });
        }
        let newest = self.shared.newest.lock();
        let Some(seen) = &*newest else { return Ok(Some("for etcd")) };
        if !seen.nodes.contains_key(&node) {
            return Err(PlaceError::Unknown { node, chain });
        }
        Ok(match seen.view.find(&node) {
            Err(_) if seen.nodes.get(&node).is_some_and(|own| own.address.is_none()) => Some(
                "for its address: what etcd has there cannot be read; `landfall chain remove` and `add` write it anew",
            ),
            Err(_) => Some("to be added to the chain by its manager"),
            Ok((0, member)) if in_step.load(Ordering::Acquire) != member.since => Some(
                "this node is the first and does not hold the chain's data: if the chain is new, run `landfall chain init`; \
                 otherwise another node becomes the first",
            ),
            Ok((place, member))
                if in_step.load(Ordering::Acquire) != member.since
                    && seen.view.members[place..].iter().any(|later| seen.is_sound(&later.name)) =>
            {
                Some(
                    "this node has lost its data, and a node behind it has not: it is added anew, at the end",
                )
            }
            Ok((_, member)) => {
                self.shared.joined.store(member.since, Ordering::Release);
                None
            }
        })
    }

    /// Calls `follow` when the node is removed, or at once if it was.
    pub(crate) fn on_removal(&self, follow: impl Fn() + Send + 'static) {
        let mut place = self.removal.follow.lock();
        if self.removal.has_happened() {
            follow();
        }
        *place = Some(Box::new(follow));
    }

    /// True if the node was removed while it ran.
    pub(crate) fn was_removed(&self) -> bool {
        self.removal.has_happened()
    }
}

impl Views for EtcdViews {
    fn describe(&self) -> String {
        format!("etcd, {}", self.shared.keys.view())
    }

    fn newest(&self) -> Result<View, NodeError> {
        let newest = self.shared.newest.lock();
        let none = || NodeError::NoView { from: self.describe() };
        newest.as_ref().map(|seen| seen.view.clone()).ok_or_else(none)
    }

    fn lease(&self) -> Option<&Lease> {
        Some(&self.shared.proof)
    }

    fn manager(&self) -> Option<String> {
        let newest = self.shared.newest.lock();
        newest.as_ref().and_then(Snapshot::elected).map(|manager| manager.node.clone())
    }

    fn clients_of(&self, node: &str) -> Option<ClientAddress> {
        let newest = self.shared.newest.lock();
        newest.as_ref().and_then(|seen| seen.clients.get(node)).cloned()
    }

    fn note_clients(&self, address: Option<&ClientAddress>) {
        let _ = self.shared.clients.set(address.cloned());
    }

    fn is_sound(&self, node: &str) -> bool {
        self.shared.newest.lock().as_ref().is_some_and(|seen| seen.is_sound(node))
    }

    fn troubles(&self) -> Vec<String> {
        self.shared.newest.lock().as_ref().map_or_else(Vec::new, |seen| seen.illegible.clone())
    }

    fn doubt(&self) -> Option<String> {
        let limit = self.shared.lease_time / 2;
        (self.shared.age() >= limit)
            .then(|| format!("etcd has not been read for {} s or longer", limit.as_secs()))
    }

    fn note_copy(&self, progress: Option<&CopyProgress>) {
        *self.shared.copy.lock() = progress.map(CopyProgress::to_string);
    }

    fn note_troubles(&self, troubles: &str) {
        let mut known = self.shared.troubles.lock();
        if known.as_deref().unwrap_or_default() != troubles {
            *known = Some(troubles.to_owned()).filter(|troubles| !troubles.is_empty());
        }
    }

    fn note_in_step(&self, since: u64) {
        self.shared.in_step.store(since, Ordering::Release);
    }

    fn note_removed(&self) {
        tracing::warn!("this node was removed from the chain: it starts anew");
        self.removal.has_happened.store(true, Ordering::Release);
        self.removal.follow.lock().iter().for_each(|follow| follow());
    }
}
