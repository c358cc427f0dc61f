//! The two sources of membership, and what can be asked of them and changed in them.

use crate::chain::Chain;
use crate::error::{ChainError, MembersError};
use crate::etcd::{Etcd, EtcdLook, Keeper};
use crate::file::{FileLook, StaticFile};
use crate::member::Member;
use crate::view::View;
use crate::watch::{Look, Watch};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// How often a watch looks by default.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where it is known who belongs to a chain, and in which order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Membership {
    /// A file: one chain, changed by hand, and nobody says that he is alive.
    Static(StaticFile),
    /// etcd: changed by commands, and members register.
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
    /// [`MembersError::Exists`] where it is there already; [`MembersError::ReadOnly`] for a file; others of etcd.
    pub fn init(&self, chain: &Chain) -> Result<(), MembersError> {
        self.etcd()?.init(chain)
    }

    /// Marks a device as failed for good: clients wait for the others only (§IV-E2). Done already is done.
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

    /// Takes a device out of the chain.
    ///
    /// # Errors
    /// As [`Membership::fail_device`].
    pub fn remove_device(&self, name: &str) -> Result<Chain, MembersError> {
        self.change(|chain| chain.with_removed(name))
    }

    /// Puts a new device in the place of another one.
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

    /// Any other change. `change` is called again where somebody else was faster; it leaves the chain as it is, or
    /// raises its epoch by one.
    ///
    /// # Errors
    /// As [`Membership::fail_device`].
    pub fn change(
        &self,
        change: impl Fn(&Chain) -> Result<Chain, ChainError>,
    ) -> Result<Chain, MembersError> {
        self.etcd()?.update(change)
    }

    /// Registers this process, and keeps it registered. It goes `ttl` after its last sign of life; a process that
    /// bore the name before is told that it has been replaced.
    ///
    /// # Errors
    /// [`MembersError::NoRegister`] for a file; others of etcd.
    pub fn register(&self, member: Member, ttl: Duration) -> Result<Keeper, MembersError> {
        match self {
            Self::Static(file) => Err(MembersError::NoRegister { path: file.path().to_owned() }),
            Self::Etcd(etcd) => etcd.register(member, ttl),
        }
    }

    /// Watches it, with a look every half second.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub fn watch(&self) -> Result<Watch, MembersError> {
        self.watch_every(LOOK_EVERY)
    }

    /// Watches it, with a look every so often.
    ///
    /// # Errors
    /// [`MembersError::Thread`].
    pub fn watch_every(&self, every: Duration) -> Result<Watch, MembersError> {
        let look = match self {
            Self::Static(file) => Look::File(FileLook::new(file.clone())),
            Self::Etcd(etcd) => Look::Etcd(EtcdLook::new(etcd.clone())),
        };
        Watch::start(look, every)
    }

    fn etcd(&self) -> Result<&Etcd, MembersError> {
        match self {
            Self::Static(file) => Err(MembersError::ReadOnly { path: file.path().to_owned() }),
            Self::Etcd(etcd) => Ok(etcd),
        }
    }
}
