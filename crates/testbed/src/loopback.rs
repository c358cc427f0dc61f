//! Addresses of loopback for fixed ports.

use std::net::Ipv4Addr;

/// An address of this machine that no other running process gets: a port on it is free unless this process has taken
/// it, and none that the kernel has chosen for somebody else. It lasts as long as the process.
///
/// Linux has at most 2^22 process ids (`PID_MAX_LIMIT`), and loopback has 2^24 addresses.
#[must_use]
pub fn own_loopback_address() -> Ipv4Addr {
    address_of(std::process::id())
}

fn address_of(process: u32) -> Ipv4Addr {
    let [low, middle, high, _] = process.to_le_bytes();
    Ipv4Addr::new(127, high, middle, low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_process_id_has_an_address_of_its_own_in_the_loopback_network() {
        assert_eq!(address_of(0x0001_0203), Ipv4Addr::new(127, 1, 2, 3));
        assert_eq!(address_of((1 << 22) - 1), Ipv4Addr::new(127, 63, 255, 255));
        // 120 apart, as test programs that run beside each other may be.
        assert_ne!(address_of(6683), address_of(6563));
    }
}
