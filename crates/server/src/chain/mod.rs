//! A server that is a node of a chain: `docs/chain.md`, `docs/format/chain.md`.

mod compare;
mod files;
mod landed;
mod logs;
mod pages;
mod session;
mod stop;

pub(crate) use files::advance as advance_files;
pub(crate) use session::ChainSession;

use crate::config::{ChainConfig, Config};
use crate::shared::Shared;
use crate::store::Store;
use landfall_chain_io::{Answers, ClientAddress, Link, Node, NodeError, Role, STATE_NAME, Settings};
use landfall_fs::FsError;
use landfall_heap::Writer;
use landfall_kv::KvError;
use landfall_sockets::Transport;
use pages::EnginePages;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// The place in the chain that the configuration says, if it may be taken; `None` if it says none. The region need not be
/// open yet.
///
/// # Errors
/// View or state are wrong.
pub(crate) fn settings(config: &Config) -> Result<Option<Settings>, NodeError> {
    let Some(ChainConfig { views, node, compression, sending, .. }) = &config.chain else { return Ok(None) };
    let settings = Settings {
        views: Arc::clone(views),
        node: node.clone(),
        state: config.dir.join(STATE_NAME),
        password: config.password.as_ref().map(|password| password.clone().into_bytes()),
        streams: config.workers,
        compression: *compression,
        copy_rate: config.copy_rate.0,
        sending: *sending,
        spin: config.spin,
    };
    settings.check()?;
    Ok(Some(settings))
}

/// Takes the place.
///
/// # Errors
/// As [`settings`].
pub(crate) fn open(settings: Option<Settings>, store: &Store) -> Result<Option<Arc<Node>>, NodeError> {
    // One more for the log of files.
    let log_of_files = usize::from(store.files.files().is_some());
    let with_files = |settings: Settings| Settings { streams: settings.streams + log_of_files, ..settings };
    settings.map(|settings| Node::open(with_files(settings), store.engine.heap())).transpose()
}

/// Where the node listens for the one before it.
pub(crate) fn address(node: Option<&Arc<Node>>) -> Option<SocketAddr> {
    let node = node?;
    node.view().find(node.name()).ok().and_then(|(_, member)| member.address.parse().ok())
}

/// Says where clients connect to this node.
pub(crate) fn announce(shared: &Shared) {
    let (Some(node), Some(config)) = (&shared.chain, &shared.config.chain) else { return };
    let of_resp = || shared.bound_resp.filter(|bound| !bound.ip().is_unspecified()).map(ClientAddress::from);
    let address = config.announce.clone().or_else(of_resp);
    if let (None, Some(bound)) = (&address, shared.bound_resp) {
        tracing::warn!(%bound, "clients cannot be told where this server is: give --announce HOST:PORT");
    }
    node.note_clients(address);
}

/// Connects to the node behind, which gets what it may lack.
///
/// # Errors
/// A thread cannot be started; the medium's.
pub(crate) fn start(shared: &Arc<Shared>) -> Result<(), StartError> {
    let Some(node) = &shared.chain else { return Ok(()) };
    let mut unsent = shared.engine.records_from(node.floor())?;
    logs::join(shared, node);
    unsent.extend(shared.logs.records_from(node.floor()));
    if let Some(files) = shared.files.files() {
        unsent.extend(files.operations_from(node.floor())?);
        files::join(shared, node, files);
    }
    let to_prepare = Arc::downgrade(shared);
    let prepare = move || to_prepare.upgrade().map_or(Ok(()), |shared| files::prepare(&shared));
    node.start(unsent, Box::new(prepare), Arc::new(EnginePages::new(shared)))?;
    Ok(files::start(shared, node)?)
}

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A thread cannot be started.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// What the node behind may lack cannot be listed.
    #[error(transparent)]
    Unsent(#[from] KvError),
    /// As [`Self::Unsent`], of files.
    #[error(transparent)]
    UnsentFiles(#[from] FsError),
}

/// Sends the batches of a worker's writer to the node behind. The worker's transport reports its answers as a wake, unless
/// values are packed.
pub(crate) fn join(
    shared: &Arc<Shared>,
    worker: usize,
    (writer, transport): (&mut Writer, &mut dyn Transport),
) -> Option<Joined> {
    let link = shared.chain.as_ref()?.link(worker);
    let to_wake = Arc::downgrade(shared);
    link.wake_by(move || {
        if let Some(shared) = to_wake.upgrade()
            && let Some(workers) = shared.workers.get()
        {
            workers[worker].waker.wake();
        }
    });
    let answers = announce_answers(&link, transport).unwrap_or_else(|error| {
        tracing::warn!(%error, "answers of the node behind take longer");
        None
    });
    shared.files.set_may_commit(worker, answers.is_some());
    writer.set_successor(Arc::new(link.clone()));
    Some(Joined { link, answers })
}

/// What a worker of a node has of the chain.
pub(crate) struct Joined {
    /// Sends what is committed to the node behind.
    pub(crate) link: Link,
    /// By this the worker is told of answers; `None`: it sends nothing itself.
    pub(crate) answers: Option<Answers>,
}

fn announce_answers(link: &Link, transport: &mut dyn Transport) -> io::Result<Option<Answers>> {
    if !link.may_send_itself() {
        return Ok(None);
    }
    let answers = Answers::new()?;
    transport.watch(answers.as_fd().try_clone_to_owned()?)?;
    link.announce_by(&answers)?;
    Ok(Some(answers))
}

/// Why a client's request cannot be executed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotHere {
    /// Writes go to the first node.
    ReadOnly,
    /// The node does not hold the chain's data, or not for sure.
    Waiting,
    /// The node is not in the chain any more.
    Removed,
    /// The node has no proof that it still has its place.
    Fenced,
}

impl NotHere {
    /// The text for people, without a code.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::ReadOnly => "You can't write against a read only replica.",
            Self::Waiting => "this node of the chain waits for the others, or is being copied to",
            Self::Removed => "this node was removed from its chain",
            Self::Fenced => {
                "this node has heard neither from etcd nor from the whole chain for too long: another one may have its place"
            }
        }
    }

    /// The status for a client of HTTP.
    pub(crate) fn status(self) -> u16 {
        match self {
            Self::ReadOnly => 403,
            Self::Waiting | Self::Removed | Self::Fenced => 503,
        }
    }

    /// True if a client has to find another server: it does so when its connection ends.
    pub(crate) fn ends_connection(self) -> bool {
        matches!(self, Self::Removed | Self::Fenced)
    }

    /// The error for a client of RESP.
    pub(crate) fn resp(self) -> String {
        let code = match self {
            Self::ReadOnly => "READONLY",
            Self::Waiting => "LOADING",
            Self::Removed | Self::Fenced => "MASTERDOWN",
        };
        format!("{code} {}", self.text())
    }
}

/// Checks whether this node may execute a request.
///
/// # Errors
/// Why it may not.
pub(crate) fn admit(shared: &Shared, writes: bool) -> Result<(), NotHere> {
    let Some(node) = &shared.chain else { return Ok(()) };
    match node.role() {
        Role::First => Ok(()),
        Role::Replica if !writes => Ok(()),
        Role::Replica => Err(NotHere::ReadOnly),
        Role::Waiting => Err(NotHere::Waiting),
        Role::Removed => Err(NotHere::Removed),
        Role::Fenced => Err(NotHere::Fenced),
    }
}

/// True if it is not known whether the nodes behind have room: nobody is told that there is none.
pub(crate) fn asks_for_room(shared: &Shared) -> bool {
    shared.chain.as_ref().is_some_and(|node| node.asks_for_room())
}

/// True if records may be moved, and dropped: not while those are listed that the node behind may lack.
pub(crate) fn may_change_records(shared: &Shared) -> bool {
    shared.chain.as_ref().is_none_or(|node| node.may_change_records())
}

/// True if this node may delete keys that have expired, and trim logs: what is being copied to it counts by what it has.
pub(crate) fn may_purge(shared: &Shared) -> bool {
    may_change_records(shared) && shared.chain.as_ref().is_none_or(|node| node.is_in_step())
}
