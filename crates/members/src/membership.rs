//! The two sources of membership, and what can be asked of them and changed in them.

use crate::chain::Chain;
use crate::error::{ChainError, MembersError};
use crate::etcd::{Etcd, EtcdPoller, Keeper};
use crate::file::{FilePoller, StaticFile};
use crate::member::Member;
use crate::view::View;
use crate::watch::{Poller, Watch};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Default interval of the polls of a watch.
const POLL_EVERY: Duration = Duration::from_millis(500);

/// A source of membership: who belongs to a chain, and in which order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Membership {
    /// A file: one chain, which people edit. Members do not register.
    Static(StaticFile),
    /// etcd: commands change the chain, and members register.
    Etcd(Etcd),
}

impl Membership {
    /// Chain and members as they are now.
    ///
    /// # Errors
    /// [`MembersError`]; [`MembersError::NoChain`] where etcd has none yet.
    pub fn show(&self) -> Result<View, MembersError> {
        match self {
            Self::Static(file) => Ok(View { chain: file.chain()?, members: BTreeMap::new() }),
            Self::Etcd(etcd) => etcd.view(),
        }
    }

    /// Writes a new chain.
    ///
    /// # Errors
    /// [`MembersError::Exists`] if there is a chain already; [`MembersError::ReadOnly`] for a file; others of etcd.
    pub fn init(&self, chain: &Chain) -> Result<(), MembersError> {
        self.etcd()?.init(chain)
    }

    /// Marks a device as failed for good: clients wait for the others only (§IV-E2). A device that has
    /// failed already stays as it is.
    ///
    /// # Errors
    /// [`ChainError::NoDevice`], [`MembersError::Conflict`], and those of [`Membership::init`].
    pub fn fail_device(&self, name: &str) -> Result<Chain, MembersError> {
        self.change(|chain| chain.with_failed(name))
    }

    /// Adds a device at `position` (0 is next to the clients), or next to the server.
    ///
    /// # Errors
    /// As [`Membership::fail_device`], and [`ChainError`].
    pub fn add_device(
        &self,
        name: &str,
        control: Option<SocketAddr>,
        position: Option<usize>,
    ) -> Result<Chain, MembersError> {
        self.change(|chain| chain.with_added(name, control, position))
    }

    /// Removes a device from the chain.
    ///
    /// # Errors
    /// As [`Membership::fail_device`].
    pub fn remove_device(&self, name: &str) -> Result<Chain, MembersError> {
        self.change(|chain| chain.with_removed(name))
    }

    /// Replaces a device by a new one at the same position.
    ///
    /// # Errors
    /// As [`Membership::add_device`].
    pub fn replace_device(
        &self,
        name: &str,
        by: &str,
        control: Option<SocketAddr>,
    ) -> Result<Chain, MembersError> {
        self.change(|chain| chain.with_replaced(name, by, control))
    }

    /// Makes any other change. `change` is called again if somebody else has changed the chain meanwhile. It returns
    /// the chain unchanged, or with its epoch raised by one.
    ///
    /// # Errors
    /// As [`Membership::fail_device`].
    pub fn change(
        &self,
        change: impl Fn(&Chain) -> Result<Chain, ChainError>,
    ) -> Result<Chain, MembersError> {
        self.etcd()?.update(change)
    }

    /// Registers this process, and keeps it registered. The registration ends `ttl` after its last renewal. A process
    /// that was registered under the name before learns that it has been replaced.
    ///
    /// # Errors
    /// [`MembersError::NoRegister`] for a file; others of etcd.
    pub fn register(&self, member: Member, ttl: Duration) -> Result<Keeper, MembersError> {
        match self {
            Self::Static(file) => Err(MembersError::NoRegister { path: file.path().to_owned() }),
            Self::Etcd(etcd) => etcd.register(member, ttl),
        }
    }

    /// Watches the source, with a poll every half second.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub fn watch(&self) -> Result<Watch, MembersError> {
        self.watch_every(POLL_EVERY)
    }

    /// Watches the source, with a poll each `every`.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub fn watch_every(&self, every: Duration) -> Result<Watch, MembersError> {
        let poller = match self {
            Self::Static(file) => Poller::File(FilePoller::new(file.clone())),
            Self::Etcd(etcd) => Poller::Etcd(EtcdPoller::new(etcd.clone())),
        };
        Watch::start(poller, every)
    }

    fn etcd(&self) -> Result<&Etcd, MembersError> {
        match self {
            Self::Static(file) => Err(MembersError::ReadOnly { path: file.path().to_owned() }),
            Self::Etcd(etcd) => Ok(etcd),
        }
    }
}
