//! A switch between several hosts: a bridge of the kernel, with a cable to each of them.

use crate::host::Host;
use crate::link::{self, LinkOptions};
use crate::unavailable::Unavailable;

/// Joins hosts until it is dropped.
#[derive(Debug)]
pub struct Switch {
    host: Host,
    cables: Vec<Cable>,
}

/// Names of the two ends of a cable.
#[derive(Debug)]
struct Cable {
    at_host: String,
    here: String,
}

impl Switch {
    /// Hosts compute checksums themselves: what a bridge passes on is as it would be on a wire.
    pub(crate) fn between(hosts: &[(&Host, &str)]) -> Result<Self, Unavailable> {
        let host = Host::new("switch")?;
        host.disable_ipv6()?;
        host.ip("link add name bridge type bridge\nlink set bridge up\n")?;
        let cables =
            hosts.iter().map(|(other, address)| plug_in(&host, other, address)).collect::<Result<_, _>>()?;
        Ok(Self { host, cables })
    }

    /// The interface of a host, by its place among the hosts.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn interface(&self, index: usize) -> &str {
        &self.cables[index].at_host
    }

    /// Cuts a host's cable: both ends lose their carrier, as long as it is not mended.
    ///
    /// # Errors
    /// [`Unavailable`], with the error output of `ip`.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn cut(&self, index: usize) -> Result<(), Unavailable> {
        self.host.ip(&format!("link set {} down\n", self.cables[index].here))
    }

    /// Mends a cable that was cut.
    ///
    /// # Errors
    /// [`Unavailable`], with the error output of `ip`.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn mend(&self, index: usize) -> Result<(), Unavailable> {
        self.host.ip(&format!("link set {} up\n", self.cables[index].here))
    }
}

fn plug_in(switch: &Host, host: &Host, address: &str) -> Result<Cable, Unavailable> {
    let addresses = [vec![address.to_owned()], Vec::new()];
    let options = LinkOptions { addresses, checksum_offload: false, ..LinkOptions::default() };
    let (at_host, here) = link::join(host, switch, &options)?;
    switch.ip(&format!("link set {here} master bridge\n"))?;
    Ok(Cable { at_host, here })
}
