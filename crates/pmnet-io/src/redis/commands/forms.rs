//! Commands whose class depends on their arguments.
//!
//! A form that the server would reject because of its arguments is never acknowledged early. It is a bypass, so that
//! the client gets the server's own error.

use super::class::Class;
use super::class::Why::{Arguments, Blocking, Lock, Read, Reply};

const OK: &[u8] = b"+OK\r\n";
/// Longest string that a server accepts by default (`proto-max-bulk-len`), bytes.
const STRING_BYTES_MAX: usize = 512 << 20;
/// Longest time to live that every server accepts, about 30 thousand years: adding the clock to it does not overflow.
const MILLIS_MAX: u64 = 1 << 50;
const SECONDS_MAX: u64 = MILLIS_MAX / 1000;

/// `SET key value [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`: sets the key whatever it holds. With `NX` or `XX` the
/// command is a lock, with `GET` a read.
pub(super) fn set(args: &[&[u8]]) -> Class {
    let Some((_, options)) = args.split_at_checked(3).filter(|(head, _)| strings(&head[1..])) else {
        return Class::Bypass(Arguments);
    };
    match expiry(options) {
        Options::Plain => Class::Early(OK),
        Options::Other if any(options, &[b"nx", b"xx"]) => Class::Bypass(Lock),
        Options::Other if any(options, &[b"get"]) => Class::Bypass(Reply),
        Options::Other => Class::Bypass(Arguments),
    }
}

enum Options {
    Plain,
    Other,
}

fn expiry(options: &[&[u8]]) -> Options {
    let plain = match options {
        [] => true,
        [keep] => is(keep, b"keepttl"),
        [unit, time] if is(unit, b"ex") || is(unit, b"exat") => within(time, SECONDS_MAX),
        [unit, time] if is(unit, b"px") || is(unit, b"pxat") => within(time, MILLIS_MAX),
        _ => false,
    };
    if plain { Options::Plain } else { Options::Other }
}

/// `SETEX key seconds value`.
pub(super) fn setex(args: &[&[u8]]) -> Class {
    with_time(args, SECONDS_MAX)
}

/// `PSETEX key milliseconds value`.
pub(super) fn psetex(args: &[&[u8]]) -> Class {
    with_time(args, MILLIS_MAX)
}

fn with_time(args: &[&[u8]], most: u64) -> Class {
    let valid = args.len() == 4 && within(args[2], most) && strings(&args[1..]);
    if valid { Class::Early(OK) } else { Class::Bypass(Arguments) }
}

/// `MSET key value [key value ...]`.
pub(super) fn mset(args: &[&[u8]]) -> Class {
    let valid = args.len() >= 3 && args.len() % 2 == 1 && strings(&args[1..]);
    if valid { Class::Early(OK) } else { Class::Bypass(Arguments) }
}

/// `HMSET key field value [field value ...]`.
pub(super) fn hmset(args: &[&[u8]]) -> Class {
    let valid = args.len() >= 4 && args.len().is_multiple_of(2) && strings(&args[1..]);
    if valid { Class::Typed(OK) } else { Class::Bypass(Arguments) }
}

/// `LTRIM key start stop`.
pub(super) fn ltrim(args: &[&[u8]]) -> Class {
    let valid = args.len() == 4 && args[2..].iter().all(|arg| integer(arg).is_some());
    if valid { Class::Typed(OK) } else { Class::Bypass(Arguments) }
}

/// `PFMERGE to [from ...]`.
pub(super) fn pfmerge(args: &[&[u8]]) -> Class {
    if args.len() >= 2 { Class::Typed(OK) } else { Class::Bypass(Arguments) }
}

/// `XREAD`: a read, unless it waits.
pub(super) fn xread(args: &[&[u8]]) -> Class {
    Class::Bypass(if any(before_streams(args), &[b"block"]) { Blocking } else { Read })
}

/// `XREADGROUP`: changes the list of pending entries, and may wait.
pub(super) fn xreadgroup(args: &[&[u8]]) -> Class {
    Class::Bypass(if any(before_streams(args), &[b"block"]) { Blocking } else { Reply })
}

fn before_streams<'a, 'b>(args: &'b [&'a [u8]]) -> &'b [&'a [u8]] {
    let end = args.iter().position(|arg| is(arg, b"streams")).unwrap_or(args.len());
    &args[1.min(end)..end]
}

fn is(arg: &[u8], word: &[u8]) -> bool {
    arg.eq_ignore_ascii_case(word)
}

fn any(args: &[&[u8]], words: &[&[u8]]) -> bool {
    args.iter().any(|arg| words.iter().any(|word| is(arg, word)))
}

fn strings(args: &[&[u8]]) -> bool {
    args.iter().all(|arg| arg.len() < STRING_BYTES_MAX)
}

/// Parses an integer by the rules of Redis: no sign but a minus, no leading zeros, no spaces.
fn integer(arg: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(arg).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn within(arg: &[u8], most: u64) -> bool {
    integer(arg)
        .and_then(|number| u64::try_from(number).ok())
        .is_some_and(|number| (1..=most).contains(&number))
}

#[cfg(test)]
mod tests {
    use super::super::classify;
    use super::*;

    fn class(line: &str) -> Class {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        classify(&args)
    }

    #[test]
    fn plain_sets_are_early_whatever_their_case_and_time() {
        for line in
            ["SET k v", "set k v ex 10", "SET k v PX 1", "SET k v KEEPTTL", "SET k v EXAT 99999999999"]
        {
            assert_eq!(class(line), Class::Early(OK), "{line}");
        }
    }

    #[test]
    fn sets_with_a_condition_or_a_read_are_bypasses() {
        assert_eq!(class("SET k v NX"), Class::Bypass(Lock));
        assert_eq!(class("SET k v PX 10 XX"), Class::Bypass(Lock));
        assert_eq!(class("SET k v GET"), Class::Bypass(Reply));
    }

    #[test]
    fn forms_that_the_server_would_reject_are_not_early() {
        for line in [
            "SET k",
            "SET k v EX",
            "SET k v EX 0",
            "SET k v EX -1",
            "SET k v EX 01",
            "SET k v EX +1",
            "SET k v EX 1 PX 1",
            "SET k v EX 9223372036854775807",
            "SET k v KEEPTTL KEEPTTL",
            "SETEX k 0 v",
            "SETEX k v 1",
            "MSET k",
            "MSET k v k",
            "HMSET k f",
            "LTRIM k 0 end",
        ] {
            assert_eq!(class(line), Class::Bypass(Arguments), "{line}");
        }
    }

    #[test]
    fn reads_of_streams_that_wait_are_blocking() {
        assert_eq!(class("XREAD COUNT 1 STREAMS block 0"), Class::Bypass(Read));
        assert_eq!(class("XREAD BLOCK 0 STREAMS s 0"), Class::Bypass(Blocking));
        assert_eq!(class("XREADGROUP GROUP g c STREAMS s >"), Class::Bypass(Reply));
    }
}
