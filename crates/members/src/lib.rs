//! The members of a PMNet deployment, the order of the devices in a chain, and which members are alive.
//!
//! Read [`Membership`] first: a source of that knowledge, which is a file for a single chain that does not change, or
//! etcd. It gives the [`Chain`] and, through a [`Watch`], every change of it. With etcd a process also registers
//! itself, and a [`Keeper`] holds its place for as long as the process lives.
//!
//! Two rules hold everywhere. A chain's `epoch` grows with each change and never goes back. A process that can no
//! longer be sure that others count on it stops claiming to be a member by itself ([`Keeper::is_member`]).
//!
//! The client of etcd behind it is of use for other things, too: [`etcd`].
//!
//! What is kept where: `docs/pmnet-members.md`. Source: PMNet, §IV-C and §IV-E2.

#![forbid(unsafe_code)]

mod backoff;
mod chain;
mod error;
pub mod etcd;
mod file;
mod member;
mod membership;
mod view;
mod watch;

pub use chain::{CHAIN_BYTES_MAX, Chain, DEVICES_MAX, Device, NAME_BYTES_MAX, REPLICAS_MAX};
pub use error::{ChainError, MembersError, TlsFileError};
pub use etcd::{ENDPOINTS_MAX, Etcd, EtcdClient, EtcdConfig, EtcdUser, Keeper, Standing, TTL_MAX, TTL_MIN};
pub use file::StaticFile;
pub use member::{MEMBERS_MAX, Member, Role};
pub use membership::Membership;
pub use view::View;
pub use watch::{Event, QUEUED_MAX, Watch};
