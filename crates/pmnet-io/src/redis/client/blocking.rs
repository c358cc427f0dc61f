//! Commands that wait, as a client's side-car carries them out: it asks again and again.

use std::time::{Duration, Instant};

/// Pauses between two questions double from the first to the last of these.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];
/// Longer than anybody waits.
const TIME_MAX: f64 = 1e9;

/// A command that is asked until there is something, or its time is up.
#[derive(Clone, Debug)]
pub(super) struct Blocked {
    /// As it goes over the wire.
    pub(super) request: Vec<u8>,
    /// None to wait for ever.
    until: Option<Instant>,
    pause: Duration,
}

impl Blocked {
    /// `None` if the time is none: the server says so itself.
    pub(super) fn new(args: &[&[u8]], request: Vec<u8>) -> Option<Self> {
        let seconds = seconds(args).filter(|seconds| (0.0..TIME_MAX).contains(seconds))?;
        let until = (seconds > 0.0).then(|| Instant::now() + Duration::from_secs_f64(seconds));
        Some(Self { request, until, pause: PAUSES[0] })
    }

    /// When to ask again, after an empty answer; `None` if the time is up.
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

/// Whether it waits for what comes after now: each question would begin anew.
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
    fn the_time_is_found_where_each_command_has_it() {
        assert_eq!(of("BLPOP a b 1.5"), Some(1.5));
        assert_eq!(of("BLMPOP 2 1 a LEFT"), Some(2.0));
        assert_eq!(of("XREAD COUNT 1 BLOCK 250 STREAMS s 0"), Some(0.25));
        assert_eq!(of("BLPOP a x"), None);
    }

    #[test]
    fn a_command_whose_time_is_up_is_not_asked_again() {
        let args: Vec<&[u8]> = vec![b"BLPOP", b"a", b"0.01"];
        let mut blocked = Blocked::new(&args, Vec::new()).unwrap();
        assert!(blocked.again().is_some());
        std::thread::sleep(Duration::from_millis(11));
        assert!(blocked.again().is_none());
        assert!(Blocked::new(&[b"BLPOP", b"a", b"-1"], Vec::new()).is_none());
        assert!(Blocked::new(&[b"BLPOP", b"a", b"0"], Vec::new()).unwrap().again().is_some());
    }
}
