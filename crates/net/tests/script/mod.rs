//! Runs packet scripts: text files that list the inputs of one stack, line by line, and what it must send.
//!
//! ```text
//! config NAME VALUE            before the first timed line: a field of `Config`; `family 6` for IPv6
//! TIME < SEGMENT [words]       the peer's segment arrives
//! TIME > SEGMENT               the next segment that the stack sends, at exactly this time
//! TIME CALL                    the application calls, or a check is made
//! ```
//!
//! TIME is seconds since the start, `+SECONDS` since the line before, or `*` (only for `>`: whenever it comes).
//! The script fails if the stack sends anything that no `>` line expects, if a deadline stays in the past, if a frame
//! is still held after everything has ended, or if there is an event that no check expects.
//!
//! SEGMENT is `[@FLOW] FLAGS SEQ(LEN) [ack N] [win N] [<OPTIONS>] [words]`. Sequence numbers count from the SYN
//! of their side, which is 0. FLAGS are letters of `S F R P U E W .` (`E` is ECE, `W` is CWR, `.` is ACK, `-`
//! is none); `P` and `win` are compared only where they are written. OPTIONS are `mss N`, `wscale N`, `sackOK`,
//! `ts VAL ECR`, `sack A:B C:D`, compared exactly, in any order; where `<>` is missing a segment that is
//! expected carries none but timestamps. VAL of the stack is an offset from its first one or `*`; ECR of the
//! peer is `last`, or such an offset. Payload is a pattern that is checked at every place of the stream.
//!
//! Words of an arriving segment: `ce` and `ect0` (IP's ECN bits), `badsum`, `partial` (the checksum of the
//! pseudo-header only), `fragment`, `ipopt` (IPv4 options), `exthdr` (IPv6 extension headers), `junk` (other
//! bytes than the pattern), `urgent`. Of an expected one: `ect0`; without it the packet is not ECN-capable.
//!
//! Calls: `listen`, `connect [@FLOW]`, `send N`, `stored N`, `pause`, `resume`, `shutdown`, `close`, `abort`,
//! `open [win N] [<OPTIONS>]` (the peer's whole handshake), `toobig SEQ MTU` (an ICMP error that quotes the
//! stack's segment). Checks: `event accepted|connected|eof|writable|ended HOW`, `received N` (bytes so far),
//! `drops REASON N`, `stat NAME N`, `counts OPEN HALF TIMEWAIT`, `held N` (frames that wait), `queued N`,
//! `nothing`. All take `@FLOW`, a number that names a connection; 1 where it is missing.

mod matching;
mod runner;
mod text;

pub use runner::run;
