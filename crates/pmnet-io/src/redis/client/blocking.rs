//! Blocking commands: the client's side-car polls the server until the reply is not empty.

use std::time::{Duration, Instant};

/// Pauses between two polls double from the first to the last of these.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];
/// Timeouts from this on are left to the server, seconds. No client waits for that long.
const TIME_MAX: f64 = 1e9;

/// A command that is polled until its reply is not empty, or its timeout has passed.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    /// The command, encoded for the wire.
    pub(super) request: Vec<u8>,
    /// End of the timeout; `None` for a command without one.
    until: Option<Instant>,
    pause: Duration,
}

impl Blocked {
    /// `None` if the command has no valid timeout. The server then answers with its own error.
    pub(super) fn new(args: &[&[u8]], request: Vec<u8>) -> Option<Self> {
        let seconds = seconds(args).filter(|seconds| (0.0..TIME_MAX).contains(seconds))?;
        let until = (seconds > 0.0).then(|| Instant::now() + Duration::from_secs_f64(seconds));
        Some(Self { request, until, pause: PAUSES[0] })
    }

    /// When to poll again after an empty reply; `None` if the timeout has passed.
    pub(super) fn again(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if self.until.is_some_and(|until| until <= now) {
            return None;
        }
        let next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSES[1]);
        Some(self.until.map_or(next, |until| until.min(next)))
    }
}

fn seconds(args: &[&[u8]]) -> Option<f64> {
    let number = |arg: &[u8]| std::str::from_utf8(arg).ok()?.parse::<f64>().ok();
    let name = args.first()?.to_ascii_lowercase();
    match name.as_slice() {
        b"blmpop" | b"bzmpop" => number(args.get(1)?),
        b"xread" | b"xreadgroup" => {
            let at = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"block"))?;
            number(args.get(at + 1)?).map(|millis| millis / 1000.0)
        }
        _ => number(args.last()?),
    }
}

/// True for an `XREAD` from `$` on, which cannot be polled: each poll would miss the entries since the one before.
pub(super) fn waits_from_now_on(args: &[&[u8]]) -> bool {
    args.first().is_some_and(|name| name.eq_ignore_ascii_case(b"xread")) && args.contains(&b"$".as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<f64> {
        seconds(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
    }

    #[test]
    fn the_timeout_of_each_command_is_found() {
        assert_eq!(of("BLPOP a b 1.5"), Some(1.5));
        assert_eq!(of("BLMPOP 2 1 a LEFT"), Some(2.0));
        assert_eq!(of("XREAD COUNT 1 BLOCK 250 STREAMS s 0"), Some(0.25));
        assert_eq!(of("BLPOP a x"), None);
    }

    #[test]
    fn a_command_whose_timeout_has_passed_is_not_polled_again() {
        let args: Vec<&[u8]> = vec![b"BLPOP", b"a", b"0.01"];
        let mut blocked = Blocked::new(&args, Vec::new()).unwrap();
        assert!(blocked.again().is_some());
        std::thread::sleep(Duration::from_millis(11));
        assert!(blocked.again().is_none());
        assert!(Blocked::new(&[b"BLPOP", b"a", b"-1"], Vec::new()).is_none());
        assert!(Blocked::new(&[b"BLPOP", b"a", b"0"], Vec::new()).unwrap().again().is_some());
    }
}
