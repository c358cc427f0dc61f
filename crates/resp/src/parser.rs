//! The command parser: a state machine whose progress is relative to the start of the command.

use std::ops::Range;

use landfall_media::Chain;
use smallvec::SmallVec;

use crate::command::{Arg, Command};
use crate::error::ProtocolError;
use crate::inline;
use crate::number::parse_i64;
use crate::stream::{PEEK_MAX, Stream};

/// Most arguments a client may send before it has authenticated.
pub const UNAUTHENTICATED_ARGS_MAX: usize = 10;

/// Longest argument a client may send before it has authenticated, bytes.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16384;

/// An argument buffer that grew above this many entries is freed after its command.
const ARGS_KEPT_MAX: usize = 1024;

/// Empty commands that one call of [`Parser::next`] skips: whoever sends nothing else gives others their turn.
const SKIPS_MAX: usize = 1024;

/// The bytes that end a line or a bulk string: CR, LF.
const CRLF_LEN: usize = 2;

/// What a peer may ask the parser to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most arguments of one command.
    pub args_max: usize,
    /// Longest argument, bytes.
    pub bulk_bytes_max: usize,
    /// Longest inline command, and longest line that holds a count, bytes.
    pub inline_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { args_max: 1024 * 1024, bulk_bytes_max: 512 << 20, inline_bytes_max: 64 << 10 }
    }
}

/// Parses the commands of one connection.
///
/// Call [`Parser::next`] with the chain of everything received and not yet dropped, and the stream offset at
/// which the next command starts. `None` means that more bytes are needed: call again when there are at
/// least [`Parser::bytes_wanted`] from that offset on. Bytes before the offset may be dropped in between
/// (the offset then shrinks); bytes after it must stay as they were.
///
/// Bytes already understood are not read again: waiting for a long argument costs a comparison a call. A caller that
/// holds a long command in many segments need not list them all for each of its packets, either:
/// [`Parser::go_on`] takes what lies behind [`Parser::understood`] alone.
#[derive(Clone, Debug)]
pub struct Parser {
    limits: Limits,
    authenticated: bool,
    /// Bytes understood; everything below is relative to the start of the command.
    pos: usize,
    /// Bytes from `pos` on known to hold no line end.
    scanned: usize,
    /// Bytes needed before the next step can be taken.
    wanted: usize,
    /// Leading bytes that hold empty commands only.
    skipped: usize,
    /// Arguments still to come; 0 before a command has begun, and once it is whole.
    args_left: usize,
    /// Every argument has been taken: the command is yielded by the next call.
    is_whole: bool,
    /// Length of the argument that starts at `pos`, once its header has been read.
    bulk_len: Option<usize>,
    args: SmallVec<[Range<usize>; 8]>,
}

impl Parser {
    /// A parser at the start of a connection that needs no authentication.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            authenticated: true,
            pos: 0,
            scanned: 0,
            wanted: 1,
            skipped: 0,
            args_left: 0,
            is_whole: false,
            bulk_len: None,
            args: SmallVec::new(),
        }
    }

    /// Sets whether the client has authenticated. While it has not, its commands are held to
    /// [`UNAUTHENTICATED_ARGS_MAX`] and [`UNAUTHENTICATED_BULK_BYTES_MAX`].
    pub fn set_authenticated(&mut self, authenticated: bool) {
        self.authenticated = authenticated;
    }

    /// How many bytes from the command's start on are needed, at least, before [`Parser::next`] can do more.
    pub fn bytes_wanted(&self) -> usize {
        self.wanted
    }

    /// Leading bytes of the command that are understood: [`Parser::go_on`] asks for none of them again.
    pub fn understood(&self) -> usize {
        self.pos
    }

    /// Goes on with a command that has begun. `tail` holds what was received from [`Parser::understood`] on, and
    /// nothing else. True if it is worth calling [`Parser::next_into`], which yields the command, or its error;
    /// false if more bytes are needed.
    pub fn go_on(&mut self, tail: &Chain<'_>) -> bool {
        if self.pos + tail.len() < self.wanted {
            return false;
        }
        // A failed step is taken again by `next_into`, which says what is wrong.
        self.args_left == 0 || self.bulks(&Stream::tail(tail, self.pos)).unwrap_or(true)
    }

    /// The arguments of an unfinished command that have been taken, from the command's start on.
    pub fn taken(&self) -> &[Range<usize>] {
        &self.args
    }

    /// Arguments of an unfinished command that have not been taken; none before it has begun.
    pub fn args_left(&self) -> usize {
        self.args_left
    }

    /// Where the argument lies that has begun but is not complete, from the command's start on.
    pub fn awaited(&self) -> Option<Range<usize>> {
        self.bulk_len.map(|len| self.pos..self.pos.saturating_add(len))
    }

    /// How many leading bytes hold nothing but empty commands (`*0`, blank lines), so that the caller may
    /// drop them while it waits. The next call of [`Parser::next`] must have its `from` moved by as much.
    pub fn take_skipped(&mut self) -> usize {
        let skipped = std::mem::take(&mut self.skipped);
        self.pos -= skipped;
        self.wanted = self.wanted.saturating_sub(skipped).max(1);
        for range in &mut self.args {
            *range = range.start - skipped..range.end - skipped;
        }
        skipped
    }

    /// Parses the command that starts at stream offset `from`; `None` when it is not complete.
    ///
    /// Empty commands (`*0`, `*-1`, blank lines) are skipped, up to a thousand a call: then it is `None` although there
    /// are [`Parser::bytes_wanted`] bytes behind [`Parser::take_skipped`].
    ///
    /// # Errors
    /// [`ProtocolError`]: reply with it and close the connection.
    pub fn next(&mut self, chain: &Chain<'_>, from: usize) -> Result<Option<Command>, ProtocolError> {
        let mut command = Command::default();
        Ok(self.next_into(chain, from, &mut command)?.then_some(command))
    }

    /// [`Parser::next`] into a command whose buffer is used again; false when it is not complete.
    ///
    /// # Errors
    /// [`ProtocolError`]: reply with it and close the connection.
    pub fn next_into(
        &mut self,
        chain: &Chain<'_>,
        from: usize,
        command: &mut Command,
    ) -> Result<bool, ProtocolError> {
        command.args.clear();
        if chain.len().saturating_sub(from) < self.wanted {
            return Ok(false);
        }
        let stream = Stream::new(chain, from);
        let usual = if self.pos == 0 { self.usual(&stream, from, command) } else { None };
        if let Some(len) = usual {
            self.pos = len;
        } else if !self.advance(&stream, from, command)? {
            return Ok(false);
        }
        (command.start, command.end) = (from + self.skipped, from + self.pos);
        self.reset();
        Ok(true)
    }

    /// Parses the command that starts at stream offset `from`, remembering nothing of it; false where that takes more: the
    /// command is not whole, or unusual, or an earlier call has seen a part of it. [`Parser::next_into`] tells which.
    #[inline]
    pub fn look_into(&self, chain: &Chain<'_>, from: usize, command: &mut Command) -> bool {
        command.args.clear();
        if self.has_begun() {
            return false;
        }
        let len = self.usual(&Stream::new(chain, from), from, command);
        (command.start, command.end) = (from, from + len.unwrap_or(0));
        len.is_some()
    }

    /// The usual command, whole, contiguous but for the end of its last argument, every count canonical and within
    /// the limits: its length. `None`, with no argument taken, says nothing about the command but that it is not so.
    #[inline]
    fn usual(&self, stream: &Stream<'_, '_>, from: usize, out: &mut Command) -> Option<usize> {
        let taken = self.usual_args(stream, from, out);
        if taken.is_none() {
            out.args.clear();
        }
        taken
    }

    #[inline]
    fn usual_args(&self, stream: &Stream<'_, '_>, from: usize, out: &mut Command) -> Option<usize> {
        let head = stream.head();
        let (count, mut at) = short_count(head, Sigil::Array)?;
        if count == 0 || count as usize > out.args.inline_size() || !self.authenticated {
            return None;
        }
        for _ in 0..count {
            let (len, header) = short_count(head.get(at..)?, Sigil::Bulk)?;
            let start = at + header;
            let end = start.checked_add(len as usize)?;
            let is_there = end.checked_add(CRLF_LEN)? <= stream.len();
            if !is_there || len as usize > self.limits.bulk_bytes_max || !stream.is_crlf(end) {
                return None;
            }
            out.args.push(Arg::Stream(from + start..from + end));
            at = end + CRLF_LEN;
        }
        (count as usize <= self.limits.args_max).then_some(at)
    }

    /// Something of the next command has been seen, and is remembered.
    #[inline]
    fn has_begun(&self) -> bool {
        (self.pos, self.scanned, self.wanted) != (0, 0, 1)
    }

    /// Forgets the finished command.
    fn reset(&mut self) {
        (self.pos, self.scanned, self.wanted, self.skipped) = (0, 0, 1, 0);
        (self.args_left, self.is_whole, self.bulk_len) = (0, false, None);
        if self.args.capacity() > ARGS_KEPT_MAX {
            self.args = SmallVec::new();
        }
        self.args.clear();
    }

    /// Takes every step that the received bytes allow; true when the command is complete.
    fn advance(
        &mut self,
        stream: &Stream<'_, '_>,
        from: usize,
        out: &mut Command,
    ) -> Result<bool, ProtocolError> {
        let mut skips_left = SKIPS_MAX;
        while self.args_left == 0 && !self.is_whole {
            if skips_left == 0 {
                return Ok(self.want(self.pos + 1));
            }
            skips_left -= 1;
            if let Some(len) = empty_command(stream.head_at(self.pos)) {
                (self.pos, self.scanned) = (self.pos + len, 0);
                self.skipped = self.pos;
                continue;
            }
            let stepped = match stream.byte(self.pos) {
                None => self.want(self.pos + 1),
                Some(b'*') => self.array_header(stream)?,
                Some(_) => self.inline(stream, from, out)?,
            };
            if !stepped {
                return Ok(false);
            }
            if !out.args.is_empty() {
                return Ok(true);
            }
        }
        if !self.bulks(stream)? {
            return Ok(false);
        }
        let absolute = |r: &Range<usize>| Arg::Stream(from + r.start..from + r.end);
        out.args.extend(self.args.iter().map(absolute));
        Ok(true)
    }

    /// Notes what the next step needs; the step has not been taken.
    fn want(&mut self, wanted: usize) -> bool {
        self.wanted = wanted;
        false
    }

    /// Reads `*<count>`. Counts of no arguments are skipped, as Redis does.
    fn array_header(&mut self, stream: &Stream<'_, '_>) -> Result<bool, ProtocolError> {
        let Some(count) = self.count(stream, Sigil::Array)? else { return Ok(false) };
        let Ok(count @ 1..) = usize::try_from(count) else {
            self.skipped = self.pos;
            return Ok(true);
        };
        self.args_left = count;
        Ok(true)
    }

    /// Takes the arguments of an array that are there; true when all of them are.
    fn bulks(&mut self, stream: &Stream<'_, '_>) -> Result<bool, ProtocolError> {
        while self.args_left > 0 {
            if self.bulk_len.is_none() {
                let Some(count) = self.count(stream, Sigil::Bulk)? else { return Ok(false) };
                self.bulk_len = usize::try_from(count).ok();
            }
            if !self.bulk_body(stream, self.bulk_len.unwrap_or(0))? {
                return Ok(false);
            }
        }
        self.is_whole = true;
        Ok(true)
    }

    /// Takes the argument of `len` bytes at `pos`, once it and its line end are there.
    fn bulk_body(&mut self, stream: &Stream<'_, '_>, len: usize) -> Result<bool, ProtocolError> {
        let end = self.pos.saturating_add(len);
        let next = end.saturating_add(CRLF_LEN);
        if stream.len() < next {
            return Ok(self.want(next));
        }
        if !stream.is_crlf(end) {
            return Err(ProtocolError::MissingBulkEnd);
        }
        self.args.push(self.pos..end);
        self.pos = next;
        self.bulk_len = None;
        self.args_left -= 1;
        Ok(true)
    }

    /// Reads a line that holds a sigil and a count, and checks the count; `None` when it is not complete.
    fn count(&mut self, stream: &Stream<'_, '_>, sigil: Sigil) -> Result<Option<i64>, ProtocolError> {
        let short = match stream.rest(self.pos) {
            Some(line) => short_count(line, sigil),
            None => short_count(stream.peek(self.pos, &mut [0; PEEK_MAX]), sigil),
        };
        let found = match short {
            Some((count, len)) => Some((i64::from(count), len)),
            None => self.long_count(stream, sigil)?,
        };
        let Some((count, len)) = found else { return Ok(None) };
        self.check_count(count, sigil)?;
        self.pos += len;
        self.scanned = 0;
        Ok(Some(count))
    }

    /// Reads any count line, valid or not, however it is split: the count, and the line's length.
    #[cold]
    fn long_count(
        &mut self,
        stream: &Stream<'_, '_>,
        sigil: Sigil,
    ) -> Result<Option<(i64, usize)>, ProtocolError> {
        let Some(end) = self.find_line_end(stream, b'\r', sigil.too_long())? else { return Ok(None) };
        let Some(after) = stream.byte(end + 1) else {
            self.want(end + CRLF_LEN);
            return Ok(None);
        };
        let line = stream.gather(self.pos..end);
        match line.split_first() {
            Some((&found, digits)) if found == sigil.byte() => {
                let count = parse_i64(digits).filter(|_| after == b'\n').ok_or(sigil.invalid())?;
                Ok(Some((count, line.len() + CRLF_LEN)))
            }
            found => Err(ProtocolError::ExpectedBulk { got: found.map_or(b'\r', |(first, _)| *first) }),
        }
    }

    /// Position of the `needle` that ends the line at `pos`; `None`, noting what was searched, when it is
    /// not there yet.
    fn find_line_end(
        &mut self,
        stream: &Stream<'_, '_>,
        needle: u8,
        too_long: ProtocolError,
    ) -> Result<Option<usize>, ProtocolError> {
        let found = stream.find(needle, self.pos + self.scanned);
        self.scanned = stream.len() - self.pos;
        match found {
            // Whether a line is too long may not depend on how it was split.
            Some(end) if end - self.pos <= self.limits.inline_bytes_max => {
                self.scanned = end - self.pos;
                Ok(Some(end))
            }
            None if self.scanned <= self.limits.inline_bytes_max => {
                self.want(stream.len() + 1);
                Ok(None)
            }
            _ => Err(too_long),
        }
    }

    /// Holds a count to the limits.
    fn check_count(&self, count: i64, sigil: Sigil) -> Result<(), ProtocolError> {
        let (max, unauthenticated_max) = match sigil {
            Sigil::Array => (self.limits.args_max, UNAUTHENTICATED_ARGS_MAX),
            Sigil::Bulk => (self.limits.bulk_bytes_max, UNAUTHENTICATED_BULK_BYTES_MAX),
        };
        match usize::try_from(count) {
            Err(_) if sigil == Sigil::Array => Ok(()),
            Err(_) => Err(sigil.invalid()),
            Ok(count) if count > max => Err(sigil.invalid()),
            Ok(count) if count > unauthenticated_max && !self.authenticated => Err(sigil.unauthenticated()),
            Ok(_) => Ok(()),
        }
    }

    /// Reads an inline command; a blank line is skipped.
    fn inline(
        &mut self,
        stream: &Stream<'_, '_>,
        from: usize,
        out: &mut Command,
    ) -> Result<bool, ProtocolError> {
        let found = self.find_line_end(stream, b'\n', ProtocolError::InlineTooLong)?;
        let Some(end) = found else { return Ok(false) };
        let line = stream.gather(self.pos..end);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        inline::split(line, from + self.pos, &mut out.args)?;
        self.pos = end + 1;
        self.scanned = 0;
        if out.args.is_empty() {
            self.skipped = self.pos;
        }
        Ok(true)
    }
}

/// The length of the usual empty command at the start of `bytes`, if there is one.
#[inline]
fn empty_command(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [b'\n', ..] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        [b'*', b'0', b'\r', b'\n', ..] => Some(4),
        _ => None,
    }
}

/// What a count counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sigil {
    Array,
    Bulk,
}

impl Sigil {
    const fn byte(self) -> u8 {
        match self {
            Self::Array => b'*',
            Self::Bulk => b'$',
        }
    }

    const fn invalid(self) -> ProtocolError {
        match self {
            Self::Array => ProtocolError::InvalidMultibulkLength,
            Self::Bulk => ProtocolError::InvalidBulkLength,
        }
    }

    const fn too_long(self) -> ProtocolError {
        match self {
            Self::Array => ProtocolError::MultibulkCountTooLong,
            Self::Bulk => ProtocolError::BulkCountTooLong,
        }
    }

    const fn unauthenticated(self) -> ProtocolError {
        match self {
            Self::Array => ProtocolError::UnauthenticatedMultibulkLength,
            Self::Bulk => ProtocolError::UnauthenticatedBulkLength,
        }
    }
}

/// Digits of the longest count that is usual.
const SHORT_DIGITS_MAX: usize = 7;

/// The usual count line, whole, canonical and small: the count and the line's length. `None` says nothing
/// about the line but that it is not so.
#[inline(always)]
fn short_count(line: &[u8], sigil: Sigil) -> Option<(u32, usize)> {
    let (first, digits) = line.split_first()?;
    if *first != sigil.byte() {
        return None;
    }
    let (mut count, mut len) = (0, 0);
    for byte in digits.iter().take(SHORT_DIGITS_MAX) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        count = count * 10 + u32::from(digit);
        len += 1;
    }
    // A leading zero is not canonical: the slow path says what it means.
    let is_canonical = len == 1 || (len > 1 && digits[0] != b'0');
    let is_whole = digits.get(len..len + CRLF_LEN) == Some(b"\r\n");
    (is_canonical && is_whole).then_some((count, 1 + len + CRLF_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_counts_are_read_and_everything_else_is_left_to_the_slow_path() {
        for count in [0, 1, 9, 10, 99, 100, 1024, 65_536, 999_999, 1_234_567, 9_999_999] {
            let line = format!("${count}\r\nrest of the stream");
            let read = short_count(line.as_bytes(), Sigil::Bulk);
            assert_eq!(read, Some((count, count.to_string().len() + 3)), "{line}");
        }
        for line in [
            "$\r\n......",
            "$01\r\n.....",
            "$-1\r\n.....",
            "$1\n.......",
            "$1\r.......",
            "$+1\r\n.....",
            "$12345678\r\n",
            "*1\r\n......",
            "$1",
            "$1 \r\n.....",
            "",
            "$",
        ] {
            assert_eq!(short_count(line.as_bytes(), Sigil::Bulk), None, "{line:?}");
        }
    }
}
