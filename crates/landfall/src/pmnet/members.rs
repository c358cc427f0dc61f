//! Members of a deployment, from a file or from etcd. `docs/pmnet-members.md` says what is stored where.

use super::options::BadValue;
use crate::etcd::{ETCD_FLAGS, EtcdArgs, EtcdArgsError};
use clap::Args;
use landfall_members::{
    Chain, Etcd, Event, Keeper, Member, MembersError, Membership, Role, Standing, StaticFile,
};
use landfall_pmnet::client::Devices;
use landfall_pmnet_io::runtime::Published;
use landfall_server::store::random;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a member without a sign of life counts as alive.
const TTL: Duration = Duration::from_secs(5);
/// Longest wait before the next check of the stop flag.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// How long to wait for the first answer of the source.
const FIRST: Duration = Duration::from_secs(10);

/// Flags that name a chain.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct ChainArgs {
    /// The chain in a TOML file
    #[arg(long, value_name = "FILE", conflicts_with_all = ETCD_FLAGS, conflicts_with = "chain")]
    chain_file: Option<PathBuf>,
    #[command(flatten)]
    etcd: EtcdArgs,
    /// Name of the chain in etcd
    #[arg(long, value_name = "NAME", requires = "etcd")]
    chain: Option<String>,
}

/// Why a chain is not available.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChainError {
    #[error(transparent)]
    Members(#[from] MembersError),
    #[error(transparent)]
    Etcd(#[from] EtcdArgsError),
    #[error(transparent)]
    Value(#[from] BadValue),
    #[error("a thread: {0}")]
    Thread(#[from] std::io::Error),
    #[error("no answer about the chain within {} s: is its source running?", FIRST.as_secs())]
    Silent,
    #[error("random numbers: {0}")]
    Random(#[from] landfall_server::store::StoreError),
}

impl ChainArgs {
    /// The source, if the flags name one.
    pub(super) fn source(&self) -> Result<Option<Membership>, ChainError> {
        if let Some(path) = &self.chain_file {
            return Ok(Some(Membership::Static(StaticFile::new(path))));
        }
        match (self.etcd.client()?, &self.chain) {
            (Some(client), Some(name)) => Ok(Some(Membership::Etcd(Etcd::of(client, name)?))),
            (Some(_), None) => Err(BadValue::new("--etcd", "name the chain, too: --chain NAME").into()),
            (None, _) => Ok(None),
        }
    }

    /// The source, for a member that registers there under its `name`.
    pub(super) fn source_of<'n>(
        &self,
        name: Option<&'n str>,
    ) -> Result<Option<(&'n str, Membership)>, ChainError> {
        match (name, self.source()?) {
            (Some(name), Some(source)) => Ok(Some((name, source))),
            (None, Some(_)) => {
                let expected = "a chain is given, in which this has a place under its name: --etcd URLS --chain NAME --name NAME";
                Err(BadValue::new("--name", expected).into())
            }
            (_, None) => Ok(None),
        }
    }

    /// The source; an error if the flags name none.
    pub(super) fn must_source(&self) -> Result<Membership, ChainError> {
        let missing = || BadValue::new("chain", "name it: --chain-file FILE, or --etcd URLS --chain NAME");
        self.source()?.ok_or_else(|| missing().into())
    }
}

/// Devices of a chain that must acknowledge.
fn required(chain: &Chain) -> Devices {
    chain.required().map(|device| device.number).collect()
}

/// Follows a chain on a separate thread until `stop`, and reports which devices must acknowledge, now and after each
/// change. Returns the current chain.
pub(super) fn follow(
    source: &Membership,
    devices: Arc<Published<Option<Devices>>>,
    stop: Arc<AtomicBool>,
) -> Result<(Chain, JoinHandle<()>), ChainError> {
    let watch = source.watch()?;
    let chain = loop {
        match watch.event(FIRST) {
            Some(Event::ChainChanged(chain)) => break chain,
            Some(Event::SourceLost(error)) => return Err(error.into()),
            Some(_) => {}
            None => return Err(ChainError::Silent),
        }
    };
    devices.set(Some(required(&chain)));
    let work = move || {
        while !stop.load(Ordering::Relaxed) {
            match watch.event(CHECK_EVERY) {
                Some(Event::ChainChanged(chain)) => {
                    let all = chain.devices.len();
                    tracing::info!(
                        epoch = chain.epoch,
                        devices = all,
                        required = chain.required().count(),
                        "the chain has changed"
                    );
                    devices.set(Some(required(&chain)));
                }
                Some(Event::Alive(member)) => {
                    tracing::info!(member = member.name, role = ?member.role, "a member is alive")
                }
                Some(Event::Gone(member)) => {
                    tracing::warn!(member = member.name, role = ?member.role, "a member is not alive; if it is lost for good: landfall pmnet chain fail");
                }
                Some(Event::SourceLost(error)) => {
                    tracing::warn!(%error, "the chain's source is lost: the last known chain stays in force");
                }
                Some(Event::SourceBack) => tracing::info!("the chain's source is available again"),
                _ => {}
            }
        }
    };
    let thread = std::thread::Builder::new().name("chain".into()).spawn(work)?;
    Ok((chain, thread))
}

/// Registers this process under a name.
pub(super) fn register(
    source: &Membership,
    name: &str,
    role: Role,
    address: SocketAddr,
) -> Result<Keeper, ChainError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let incarnation = u64::from_le_bytes(random()?);
    let member = Member { name: name.into(), role, address, incarnation, since };
    Ok(source.register(member, TTL)?)
}

/// Reports the state of a registration until `stop`. Another process that registers under the same name ends this one.
pub(super) fn keep(keeper: Keeper, stop: Arc<AtomicBool>) -> Result<JoinHandle<()>, ChainError> {
    let work = move || {
        while !stop.load(Ordering::Relaxed) {
            match keeper.change(CHECK_EVERY) {
                Some(Standing::Member) => tracing::info!("registered"),
                Some(Standing::Lost) => {
                    tracing::warn!("the registration may have expired: etcd does not answer")
                }
                Some(Standing::Replaced) => {
                    tracing::error!("another process has registered under this name: stopping");
                    stop.store(true, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        if let Err(error) = keeper.resign() {
            tracing::warn!(%error, "the registration could not be removed and will expire");
        }
    };
    Ok(std::thread::Builder::new().name("keeper".into()).spawn(work)?)
}
