//! Files under crashes.
//!
//! Read [`Explorer`] first: it executes [`Step`]s on files in a simulated region and beside a model ([`Posix`]), crashes
//! them, and judges the trees that recovery finds. The promise: a tree is what a prefix of the calls makes, and everything
//! that a call has asked to be durable is in the prefix. [`ace`] enumerates workloads;
//! [`FilesCampaign`] draws them from a seed, and goes on with what recovery has found.
//!
//! A call is compared when it returns, too: the tree is then the model's, and errors are. Times, permissions and blocks have
//! no model: a recovered tree has those that were observed when the tree was so.

pub mod ace;
mod call;
mod campaign;
mod explore;
mod mount;
mod play;
mod posix;
mod view;

pub use call::{Bytes, Call, Errno, Persist, Step, falloc};
pub use campaign::{FilesCampaign, FilesPlan, FilesSummary};
pub use explore::{Explored, Explorer, Judge, Points};
pub use mount::{Attribution, Mount, Observed};
pub use play::Fault;
pub use posix::Posix;
pub use view::{Body, Seen, View, bytes_of, difference};
