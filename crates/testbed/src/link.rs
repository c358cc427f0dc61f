//! Links between hosts: veth pairs, with their addresses, queues and offloads.

use crate::host::Host;
use crate::unavailable::Unavailable;
use std::fmt::Write as _;

/// How two hosts are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Largest IP packet, bytes, at both ends.
    pub mtu: u32,
    /// Number of receive queues, and of transmit queues, at both ends.
    pub queues: u32,
    /// Addresses with their prefix lengths (`10.0.0.1/24`, `fd00::1/64`) of the first and the second end.
    pub addresses: [Vec<String>; 2],
    /// Send frames without complete checksums, as veth does by default: the receiving kernel does not check them.
    pub checksum_offload: bool,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self { mtu: 1500, queues: 1, addresses: Default::default(), checksum_offload: true }
    }
}

impl LinkOptions {
    /// One address at each end, with its prefix length.
    pub fn between(a: &str, b: &str) -> Self {
        Self { addresses: [vec![a.to_owned()], vec![b.to_owned()]], ..Self::default() }
    }
}

pub(crate) fn join(a: &Host, b: &Host, options: &LinkOptions) -> Result<(String, String), Unavailable> {
    let names = (a.next_interface(), b.next_interface());
    let LinkOptions { mtu, queues, .. } = options;
    let end = format!("mtu {mtu} numrxqueues {queues} numtxqueues {queues}");
    a.ip(&format!("link add {} {end} type veth peer name {} {end} netns {}\n", names.0, names.1, b.path()))?;
    let [of_a, of_b] = &options.addresses;
    a.ip(&up(&names.0, of_a))?;
    b.ip(&up(&names.1, of_b))?;
    if !options.checksum_offload {
        a.disable_checksum_offload(&names.0)?;
        b.disable_checksum_offload(&names.1)?;
    }
    Ok(names)
}

/// Two outer hosts with a third host between them.
pub(crate) struct Through {
    /// The host in the middle.
    pub(crate) host: Host,
    /// Interfaces of the two outer hosts.
    pub(crate) ends: [String; 2],
    /// Interfaces of the host in the middle, towards each of the outer hosts.
    pub(crate) here: [String; 2],
}

/// Connects two hosts to a third host between them. Offloads are off everywhere, so that the host in the middle gets
/// frames as they would be on a wire.
pub(crate) fn join_through(
    name: &str,
    [a, b]: [&Host; 2],
    options: &LinkOptions,
) -> Result<Through, Unavailable> {
    let host = Host::new(name)?;
    // The kernel of the host in the middle must send nothing of its own.
    host.disable_ipv6()?;
    let [mut of_a, mut of_b] =
        [a, b].map(|_| LinkOptions { addresses: Default::default(), ..options.clone() });
    of_a.addresses[0].clone_from(&options.addresses[0]);
    of_b.addresses[0].clone_from(&options.addresses[1]);
    let (name_a, here_a) = join(a, &host, &of_a)?;
    let (name_b, here_b) = join(b, &host, &of_b)?;
    for (host, name) in [(a, &name_a), (b, &name_b), (&host, &here_a), (&host, &here_b)] {
        host.disable_offloads(name)?;
    }
    Ok(Through { host, ends: [name_a, name_b], here: [here_a, here_b] })
}

/// Lines for `ip -batch` that give an interface its addresses and set it up. IPv6 addresses are usable at once.
fn up(interface: &str, addresses: &[String]) -> String {
    let mut lines = String::new();
    for address in addresses {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        let _ = writeln!(lines, "addr add {address} dev {interface}{nodad}");
    }
    let _ = writeln!(lines, "link set {interface} up");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_before_up_and_ipv6_skips_duplicate_detection() {
        let lines = up("eth3", &["10.0.0.1/24".to_owned(), "fd00::1/64".to_owned()]);
        let expected =
            "addr add 10.0.0.1/24 dev eth3\naddr add fd00::1/64 dev eth3 nodad\nlink set eth3 up\n";
        assert_eq!(lines, expected);
    }
}
