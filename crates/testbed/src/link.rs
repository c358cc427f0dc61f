//! veth pairs.

use crate::{Host, Unavailable};
use std::fmt::Write as _;

/// How two hosts are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkOptions {
    /// Largest IP packet, bytes, at both ends.
    pub mtu: u32,
    /// Receive queues, and transmit queues, at both ends.
    pub queues: u32,
    /// Addresses with their prefix lengths (`10.0.0.1/24`, `fd00::1/64`) of the first and the second end.
    pub addresses: [Vec<String>; 2],
    /// Leave checksums of what is sent to the receiving kernel, as veth does by default.
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

/// Lines that give an interface its addresses and set it up. IPv6 addresses are usable at once.
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
