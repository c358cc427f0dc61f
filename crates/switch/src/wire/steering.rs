//! Which packets the bridge programs redirect to the process: the match-action table, in the form that the kernel
//! takes.

use super::config::WireConfig;
use landfall_pmnet::device::table::{Delivery, Row, TABLE};
use landfall_pmnet::wire::FIRST_BYPASS;
use landfall_xdp::{Bits, Bridge, Kind, Wanted};
use std::time::Duration;

impl WireConfig {
    /// True if packets from servers may wait: no client waits for them, and the device blocks when it is idle.
    pub(super) fn servers_may_wait(&self) -> bool {
        !self.device.sees_bypasses() && self.spin != Duration::MAX
    }

    /// The packets that the bridges of a device between two interfaces redirect to the process. A device that never
    /// blocks gets all packets on PMNet's ports: it forwards them sooner than the kernel does on the core that received
    /// them.
    pub(super) fn wanted(&self) -> Wanted {
        match self.spin {
            Duration::MAX => Bridge::PMNET_PORTS.into(),
            _ => wanted(self.device.sees_bypasses()),
        }
    }
}

/// The packets that must come to the process according to the table. The kernel forwards the others.
pub(super) fn wanted(sees_bypasses: bool) -> Wanted {
    /// Position of the highest bit of a little-endian `seq_no`.
    const HIGHEST: Bits = Bits { at: 7, mask: (FIRST_BYPASS >> 24) as u8 };
    let kind = |row: &Row| {
        let zero = match row.delivery(sees_bypasses) {
            Delivery::Always => None,
            Delivery::WithUpdateNumber => Some(HIGHEST),
            Delivery::Never => return None,
        };
        Some(Kind { first: row.kind?, zero })
    };
    Wanted { ports: Bridge::PMNET_PORTS, kinds: Some(TABLE.iter().filter_map(kind).collect()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_pmnet::device::table;
    use landfall_pmnet::wire::Header;

    #[test]
    fn the_kernel_redirects_the_packets_that_the_table_names() {
        for sees_bypasses in [false, true] {
            let kinds = wanted(sees_bypasses).kinds.unwrap();
            let is_wanted = |payload: &[u8]| {
                let kind = kinds.iter().find(|kind| kind.first == payload[0]);
                kind.is_some_and(|kind| {
                    kind.zero.is_none_or(|bits| payload[usize::from(bits.at)] & bits.mask == 0)
                })
            };
            for (kind, seq) in (0..=u8::MAX).flat_map(|kind| {
                [0, 1, 0x7f, 0x80, 0xff, 0x8000, FIRST_BYPASS - 1, FIRST_BYPASS, u32::MAX]
                    .map(|seq| (kind, seq))
            }) {
                let payload = Header::new(kind, 0x8181, seq).to_bytes();
                assert_eq!(
                    is_wanted(&payload),
                    table::is_delivered(&payload, sees_bypasses),
                    "{kind:#x} {seq:#x}"
                );
            }
        }
    }
}
