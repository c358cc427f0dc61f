//! What the bridge programs take out of the stream: the match-action table, as the kernel is told it.

use super::WireConfig;
use landfall_pmnet::device::table::{Delivery, Row, TABLE};
use landfall_pmnet::wire::FIRST_BYPASS;
use landfall_xdp::{Bits, Bridge, Kind, Wanted};
use std::time::Duration;

impl WireConfig {
    /// Whether what a server sends is urgent for nobody.
    pub(super) fn servers_may_wait(&self) -> bool {
        !self.device.sees_bypasses() && self.spin != Duration::MAX
    }

    /// What comes to the process of a device between two interfaces. One that never waits is awake in any case, and passes
    /// packets on sooner than the kernel does on the core that received them.
    pub(super) fn wanted(&self) -> Wanted {
        match self.spin {
            Duration::MAX => Bridge::PMNET_PORTS.into(),
            _ => wanted(self.device.sees_bypasses()),
        }
    }
}

/// What comes to the process where the rest goes on in the kernel, as the table says that it may.
pub(super) fn wanted(sees_bypasses: bool) -> Wanted {
    /// Where the highest bit of a little-endian `seq_no` lies.
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
    fn the_kernel_takes_out_of_the_stream_what_the_table_says() {
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
