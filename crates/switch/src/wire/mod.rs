//! A device on the wire, over AF_XDP: between two interfaces ([`Wire`]), or as a server's network card ([`Nic`]).
//!
//! PMNet's packets come to this process, and the kernel forwards all other packets. Packets land in frames of the
//! region. An update is logged in the frame it landed in, and is forwarded from that frame.
//!
//! A device has no address of its own. It forwards frames unchanged, and its answers carry the address that was asked.

mod config;
mod device;
mod frame;
mod lane;
mod neighbours;
mod nic;
mod station;
mod steering;
mod wait;

pub use config::WireConfig;
pub use device::Wire;
pub use nic::{Nic, NicConfig};
