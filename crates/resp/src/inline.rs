//! Inline commands: words apart by blanks, quoted as in Redis (`sdssplitargs`).
//!
//! `"…"` knows `\n \r \t \b \a`, `\xHH` and `\` before any other byte; `'…'` knows `\'` alone. A closing
//! quote must end its word.

use smallvec::SmallVec;

use crate::command::Arg;
use crate::error::ProtocolError;

/// Splits `line`, whose first byte lies at stream offset `base`, into `args`.
pub(crate) fn split(line: &[u8], base: usize, args: &mut SmallVec<[Arg; 8]>) -> Result<(), ProtocolError> {
    let mut at = 0;
    loop {
        at += line[at..].iter().take_while(|b| is_space(**b)).count();
        if at == line.len() {
            return Ok(());
        }
        let (arg, next) = word(line, at, base)?;
        args.push(arg);
        at = next;
    }
}

/// What C's `isspace` accepts: what may stand before a word or after a closing quote.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// What ends a word: fewer bytes than `isspace` accepts, as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// The word at `at`, and where it ends; by reference where its bytes occur in the line as they are.
fn word(line: &[u8], at: usize, base: usize) -> Result<(Arg, usize), ProtocolError> {
    let is_end = |b: &u8| ends_word(*b) || is_quote(*b);
    let end = line[at..].iter().position(is_end).map_or(line.len(), |len| at + len);
    if line.get(end).is_none_or(|b| ends_word(*b)) {
        return Ok((Arg::Stream(base + at..base + end), end));
    }
    if end == at
        && let Some(close) = plain_quoted(line, at)
    {
        return Ok((Arg::Stream(base + at + 1..base + close), close + 1));
    }
    let (bytes, next) = unquote(line, at)?;
    Ok((Arg::Owned(bytes.into_boxed_slice()), next))
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// Where the quote at `at` closes, if nothing between needs unescaping and the word ends with it.
fn plain_quoted(line: &[u8], at: usize) -> Option<usize> {
    let special = |b: &u8| *b == line[at] || *b == b'\\';
    let close = at + 1 + line[at + 1..].iter().position(special)?;
    (line[close] == line[at] && closes_word(line, close)).then_some(close)
}

/// True if only a blank or the end follows the closing quote at `close`.
fn closes_word(line: &[u8], close: usize) -> bool {
    line.get(close + 1).is_none_or(|b| is_space(*b))
}

/// The bytes that the word at `at` stands for, and where it ends.
fn unquote(line: &[u8], mut at: usize) -> Result<(Vec<u8>, usize), ProtocolError> {
    let mut word = Vec::new();
    let mut quote = None;
    loop {
        let Some(&byte) = line.get(at) else {
            return if quote.is_none() { Ok((word, at)) } else { Err(ProtocolError::UnbalancedQuotes) };
        };
        match quote {
            None if ends_word(byte) => return Ok((word, at)),
            None if is_quote(byte) => quote = Some(byte),
            Some(open) if open == byte => {
                return closes_word(line, at)
                    .then_some((word, at + 1))
                    .ok_or(ProtocolError::UnbalancedQuotes);
            }
            Some(open) if byte == b'\\' => {
                let (escaped, len) = unescape(open, &line[at + 1..]);
                word.push(escaped);
                at += len;
            }
            _ => word.push(byte),
        }
        at += 1;
    }
}

/// What a backslash within the quote `open` stands for, given what follows it, and how much of that it takes.
fn unescape(open: u8, rest: &[u8]) -> (u8, usize) {
    match (open, rest) {
        (b'\'', [b'\'', ..]) => (b'\'', 1),
        (b'\'', _) | (_, []) => (b'\\', 0),
        (_, [b'x', high, low, ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            (hex(*high) << 4 | hex(*low), 3)
        }
        (_, [letter, ..]) => (control(*letter), 1),
    }
}

fn control(letter: u8) -> u8 {
    match letter {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut args = SmallVec::new();
        split(line, 0, &mut args)?;
        let bytes = |arg: Arg| match arg {
            Arg::Stream(range) => line[range].to_vec(),
            Arg::Owned(bytes) => bytes.into_vec(),
        };
        Ok(args.into_iter().map(bytes).collect())
    }

    #[track_caller]
    fn assert_words(line: &[u8], want: &[&[u8]]) {
        assert_eq!(words(line).unwrap(), want, "{}", line.escape_ascii());
    }

    #[test]
    fn blanks_separate_words() {
        assert_words(b"  set \t k   v ", &[b"set", b"k", b"v"]);
        assert_words(b" \x0b\x0c ", &[]);
        assert_words(b"a\x0bb", &[b"a\x0bb"]);
    }

    #[test]
    fn double_quotes_know_escapes() {
        assert_words(
            br#"set "a b" "\x41\n\r\t\b\a\"\\\q\xg1""#,
            &[b"set", b"a b", b"A\n\r\t\x08\x07\"\\qxg1"],
        );
    }

    #[test]
    fn single_quotes_know_only_their_own_escape() {
        assert_words(br"'a\'b' '\n' 'x\y'", &[b"a'b", br"\n", br"x\y"]);
    }

    #[test]
    fn quotes_may_open_within_a_word() {
        assert_words(br#"foo"bar" k='v w'"#, &[b"foobar", b"k=v w"]);
    }

    #[test]
    fn empty_quotes_are_an_empty_word() {
        assert_words(br#"set k "" ''"#, &[b"set", b"k", b"", b""]);
    }

    #[test]
    fn unbalanced_quotes_are_refused() {
        for line in [&b"\"a"[..], b"'a", b"\"a\"b", b"'a'b", b"\"a\\", b"a\"", b"\"a\\\"", b"x'y'z"] {
            assert_eq!(words(line), Err(ProtocolError::UnbalancedQuotes), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn words_without_escapes_are_yielded_by_reference() {
        let mut args = SmallVec::new();
        split(br#"set 'a b' "c" "\x41""#, 100, &mut args).unwrap();
        assert_eq!(args[..3], [Arg::Stream(100..103), Arg::Stream(105..108), Arg::Stream(111..112)]);
        assert_eq!(args[3], Arg::Owned(b"A".to_vec().into_boxed_slice()));
    }
}
