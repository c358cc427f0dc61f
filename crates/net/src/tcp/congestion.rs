//! Congestion control: NewReno (RFC 5681, 6582) and CUBIC (RFC 9438).

use crate::config::CongestionControl;
use crate::time::Instant;
use std::time::Duration;

/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: u32 = 10;
/// CUBIC's multiplicative decrease (RFC 9438, 4.6).
const BETA: f64 = 0.7;
/// CUBIC's aggressiveness, segments a cubed second (RFC 9438, 5.1).
const C: f64 = 0.4;

/// A connection's congestion window.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    window: u32,
    threshold: u32,
    mss: u32,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Bytes acknowledged since the window grew by a segment.
    NewReno {
        acked: u32,
    },
    Cubic(Cubic),
}

/// State of RFC 9438, windows in segments.
#[derive(Clone, Debug, Default)]
struct Cubic {
    window_max: f64,
    /// When the current congestion avoidance phase began.
    epoch: Option<Instant>,
    /// Window at that time.
    window_epoch: f64,
    /// Window that NewReno would have (4.3).
    estimate: f64,
    /// Fraction of a segment by which the window has still to grow.
    growth: f64,
}

impl Congestion {
    pub(crate) fn new(control: CongestionControl, mss: u32) -> Self {
        let kind = match control {
            CongestionControl::NewReno => Kind::NewReno { acked: 0 },
            CongestionControl::Cubic => Kind::Cubic(Cubic::default()),
        };
        Self { window: INITIAL_SEGMENTS * mss, threshold: u32::MAX, mss, kind }
    }

    /// Bytes that may be in flight.
    pub(crate) fn window(&self) -> u32 {
        self.window
    }

    /// The segment size has changed with the path MTU.
    pub(crate) fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
        self.window = self.window.max(2 * mss);
    }

    /// `bytes` were acknowledged while the congestion window was the limit.
    pub(crate) fn acknowledged(&mut self, now: Instant, bytes: u32, rtt: Duration) {
        let mut rest = bytes;
        if self.window < self.threshold {
            // Slow start (RFC 5681, 3.1), up to the threshold.
            let step = rest.min(self.threshold - self.window);
            self.window = self.window.saturating_add(step);
            rest -= step;
        }
        if rest == 0 {
            return;
        }
        match &mut self.kind {
            Kind::NewReno { acked } => {
                *acked += rest;
                if *acked >= self.window {
                    *acked -= self.window;
                    self.window = self.window.saturating_add(self.mss);
                }
            }
            Kind::Cubic(cubic) => {
                let growth = cubic.growth(now, rest, rtt, self.window, self.mss);
                self.window = self.window.saturating_add(growth);
            }
        }
    }

    /// Reduces the window for a loss or for a router's mark, once per window (RFC 5681, 3.2; RFC 9438, 4.6; RFC 3168,
    /// 6.1.2).
    pub(crate) fn reduce(&mut self, in_flight: u32) {
        let factor = match &mut self.kind {
            Kind::NewReno { acked } => {
                *acked = 0;
                // RFC 5681 halves the bytes in flight rather than the window, which an idle sender does not fill.
                self.threshold = (in_flight / 2).max(2 * self.mss);
                self.window = self.threshold;
                return;
            }
            Kind::Cubic(cubic) => {
                cubic.reduced(f64::from(self.window) / f64::from(self.mss));
                BETA
            }
        };
        self.threshold = whole(f64::from(self.window) * factor).max(2 * self.mss);
        self.window = self.threshold;
    }

    /// A timeout starts slow start again (RFC 5681, 3.1; RFC 9438, 4.8). Only the first timeout of a loss reduces the
    /// threshold.
    pub(crate) fn timeout(&mut self, in_flight: u32, first: bool) {
        if first {
            self.reduce(in_flight);
        }
        self.window = self.mss;
    }

    /// Nothing was sent for longer than a retransmission timeout, so the state of the path is unknown (RFC 5681, 4.1).
    pub(crate) fn idle(&mut self) {
        self.window = self.window.min(INITIAL_SEGMENTS * self.mss);
        if let Kind::Cubic(cubic) = &mut self.kind {
            // The window must not grow for idle time (RFC 9438, 5.8).
            cubic.epoch = None;
        }
    }
}

impl Cubic {
    fn reduced(&mut self, window: f64) {
        // Fast convergence (4.7): a flow whose window shrinks twice leaves room for other flows.
        self.window_max = if window < self.window_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.epoch = None;
        self.growth = 0.0;
    }

    /// Bytes by which the window grows (4.2 to 4.5).
    fn growth(&mut self, now: Instant, acked: u32, rtt: Duration, window: u32, mss: u32) -> u32 {
        let segment = f64::from(mss);
        let (window, acked) = (f64::from(window) / segment, f64::from(acked) / segment);
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.window_epoch = window;
            self.estimate = window;
            now
        });
        self.window_max = self.window_max.max(self.window_epoch);
        let time = now.since(epoch).as_secs_f64();
        let k = ((self.window_max - self.window_epoch) / C).cbrt();
        let at = |time: f64| C * (time - k).powi(3) + self.window_max;
        // 4.3: growth is at least that of NewReno with an equal average window.
        let alpha = if self.estimate < self.window_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.estimate += alpha * acked / window;
        let growth = if at(time) < self.estimate {
            (self.estimate - window).max(0.0)
        } else {
            // 4.4 and 4.5: growth aims at the window of one round trip later, and is half of the window at most.
            let target = at(time + rtt.as_secs_f64()).clamp(window, 1.5 * window);
            (target - window) / window * acked
        };
        self.growth += growth;
        let bytes = whole(self.growth * segment);
        self.growth -= f64::from(bytes) / segment;
        bytes
    }
}

/// The whole part of a number that is not negative.
#[expect(clippy::cast_sign_loss, reason = "it is not negative")]
fn whole(bytes: f64) -> u32 {
    bytes.max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    /// Long enough that CUBIC is outside of its Reno-friendly region (RFC 9438, 4.3).
    const RTT: Duration = Duration::from_millis(100);

    fn grow(control: &mut Congestion, rounds: u32, mut now: Instant) -> Instant {
        for _ in 0..rounds {
            now = now + RTT;
            control.acknowledged(now, control.window(), RTT);
        }
        now
    }

    #[test]
    fn slow_start_doubles_until_a_loss_halves() {
        let mut control = Congestion::new(CongestionControl::NewReno, MSS);
        grow(&mut control, 3, Instant::default());
        assert_eq!(control.window(), 80 * MSS, "RFC 6928 and RFC 5681, 3.1");
        control.reduce(control.window());
        assert_eq!(control.window(), 40 * MSS, "RFC 5681, equation 4");
        grow(&mut control, 5, Instant::default());
        assert_eq!(control.window(), 45 * MSS, "RFC 5681, 3.1: a segment a round trip");
    }

    #[test]
    fn a_timeout_restarts_slow_start_and_reduces_the_threshold_once() {
        let mut control = Congestion::new(CongestionControl::NewReno, MSS);
        grow(&mut control, 3, Instant::default());
        control.timeout(80 * MSS, true);
        control.timeout(MSS, false);
        assert_eq!(control.window(), MSS);
        grow(&mut control, 6, Instant::default());
        assert!((40 * MSS..44 * MSS).contains(&control.window()), "slow start ends at the threshold");
    }

    #[test]
    fn cubic_returns_to_the_window_before_the_loss_and_then_exceeds_it() {
        let mut control = Congestion::new(CongestionControl::Cubic, MSS);
        grow(&mut control, 6, Instant::default());
        let before = control.window();
        control.reduce(before);
        assert_eq!(control.window(), whole(f64::from(before) * BETA), "RFC 9438, 4.6");
        // K of RFC 9438, figure 2: the cube root of the reduction, divided by C.
        let k = (f64::from(before - control.window()) / f64::from(MSS) / C).cbrt();
        let rounds = whole((k / RTT.as_secs_f64()).ceil());
        let now = grow(&mut control, rounds, Instant::default());
        let at_k = control.window();
        assert!(at_k.abs_diff(before) < before / 50, "{at_k} after K, {before} before the loss");
        grow(&mut control, rounds, now);
        assert!(control.window() > before + before / 5);
    }
}
