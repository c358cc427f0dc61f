//! SYN cookies (RFC 4987, 3.6 and appendix A): only the peer keeps the state of the half-open connection.
//!
//! The initial sequence number is `time:5 | mss:3 | hash:24`. The other options are encoded in the low bits of the
//! timestamp, which the peer echoes. A cookie connection without timestamps has neither window scaling nor SACK.

use super::isn::Secret;
use super::open::Agreed;
use super::seq::Seq;
use crate::address::Tuple;
use crate::time::Instant;

/// Segment sizes that a cookie can encode.
const SIZES: [u16; 8] = [536, 1220, 1300, 1360, 1400, 1440, 1460, 3360];
/// Length of a tick, seconds. A cookie is valid in the tick in which it was made and in the next one.
const TICK_SECONDS: u64 = 64;
/// Timestamp bits that encode options: shift (4; 15 for none), SACK, ECN.
const OPTION_BITS: u32 = 6;
const NO_SCALE: u32 = 15;

/// The initial sequence number that encodes what a SYN offered.
pub(crate) fn make(secret: &Secret, now: Instant, tuple: &Tuple, irs: Seq, mss: u16) -> Seq {
    let size = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0);
    Seq(value(secret, tick(now), tuple, irs, size as u32))
}

/// The timestamp of a cookie's SYN-ACK.
pub(crate) fn timestamp(clock: u32, agreed: &Agreed) -> u32 {
    let shift = agreed.window_scale.map_or(NO_SCALE, u32::from);
    let options = shift | u32::from(agreed.sack) << 4 | u32::from(agreed.ecn) << 5;
    let value = clock >> OPTION_BITS << OPTION_BITS | options;
    // The timestamp must not be later than the clock: the next segment would look old (RFC 7323, 5.3).
    if value > clock { value.wrapping_sub(1 << OPTION_BITS) } else { value }
}

/// The options that were agreed on, if `iss` is a valid cookie for this tuple.
pub(crate) fn check(
    secret: &Secret,
    now: Instant,
    tuple: &Tuple,
    irs: Seq,
    iss: Seq,
    timestamps: Option<(u32, u32)>,
) -> Option<Agreed> {
    let size = iss.0 >> 24 & 7;
    let current = tick(now);
    let known =
        [current, current.wrapping_sub(1)].iter().any(|t| value(secret, *t, tuple, irs, size) == iss.0);
    if !known {
        return None;
    }
    let options = timestamps.map(|(_, echoed)| echoed & ((1 << OPTION_BITS) - 1));
    let shift = options.map(|bits| bits & 15).filter(|shift| *shift != NO_SCALE);
    Some(Agreed {
        mss: SIZES[size as usize],
        window_scale: shift.map(|shift| shift.min(14) as u8),
        sack: options.is_some_and(|bits| bits >> 4 & 1 == 1),
        timestamp: timestamps.map(|(value, _)| value),
        ecn: options.is_some_and(|bits| bits >> 5 & 1 == 1),
    })
}

fn tick(now: Instant) -> u64 {
    now.millis() / 1000 / TICK_SECONDS
}

fn value(secret: &Secret, tick: u64, tuple: &Tuple, irs: Seq, size: u32) -> u32 {
    let hash = secret.hash(tuple, 3 + (tick << 35 | u64::from(irs.0) << 3)) as u32;
    (tick as u32 & 31) << 27 | size << 24 | hash >> 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn tuple(port: u16) -> Tuple {
        let at = |host, port| core::net::SocketAddr::from(([10, 0, 0, host], port));
        Tuple { local: at(1, 80), remote: at(2, port) }
    }

    #[test]
    fn a_cookies_timestamp_is_never_ahead_of_the_clock() {
        let agreed = Agreed { mss: 1448, window_scale: Some(7), sack: true, timestamp: Some(5), ecn: true };
        for clock in [0_u32, 1, 62, 63, 64, 100, 128, u32::MAX].into_iter().chain(1000..1200) {
            let value = timestamp(clock, &agreed);
            assert!(clock.wrapping_sub(value) < 64, "{value} at {clock}");
            assert_eq!(value & 63, 7 | 1 << 4 | 1 << 5);
        }
    }

    #[test]
    fn a_cookie_is_good_for_its_connection_and_for_two_ticks() {
        let (secret, now) = (Secret::new([1, 2]), Instant::from_nanos(1_000_000_000_000));
        let agreed = Agreed { mss: 1448, window_scale: Some(7), sack: true, timestamp: Some(5), ecn: false };
        let iss = make(&secret, now, &tuple(7), Seq(99), agreed.mss);
        let echoed = Some((5, timestamp(0xabcd_ef01, &agreed)));
        let back = |at, port, irs| check(&secret, at, &tuple(port), Seq(irs), iss, echoed);
        assert_eq!(back(now, 7, 99), Some(Agreed { mss: 1440, ..agreed }));
        assert_eq!(back(now + Duration::from_secs(64), 7, 99), Some(Agreed { mss: 1440, ..agreed }));
        assert_eq!(back(now + Duration::from_secs(129), 7, 99), None);
        assert_eq!(back(now, 8, 99), None);
        assert_eq!(back(now, 7, 98), None);
    }
}
