//! Just enough of RESP2 to read replies.

/// A reply, borrowed from the bytes received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply<'a> {
    /// `+OK`
    Simple(&'a [u8]),
    /// `-ERR ...`
    Error(&'a [u8]),
    /// `:1`
    Integer(i64),
    /// `$3 foo`
    Bulk(&'a [u8]),
    /// `$-1`
    Nil,
}

/// Bytes that are no reply, or one of a kind that no request here asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Longest line of a reply, bytes.
const LINE_MAX: usize = 64 << 10;

/// The reply at the start of `bytes` and its length; `None` while it is not all there.
pub(crate) fn next(bytes: &[u8]) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    let Some(end) = bytes.windows(2).take(LINE_MAX).position(|pair| pair == b"\r\n") else {
        return if bytes.len() > LINE_MAX { Err(Malformed) } else { Ok(None) };
    };
    let (line, after) = (&bytes[..end], end + 2);
    let (kind, rest) = line.split_first().ok_or(Malformed)?;
    let reply = match kind {
        b'+' => Reply::Simple(rest),
        b'-' => Reply::Error(rest),
        b':' => Reply::Integer(number(rest)?),
        b'$' => return bulk(bytes, number(rest)?, after),
        b'_' => Reply::Nil,
        _ => return Err(Malformed),
    };
    Ok(Some((reply, after)))
}

fn bulk(bytes: &[u8], len: i64, start: usize) -> Result<Option<(Reply<'_>, usize)>, Malformed> {
    if len == -1 {
        return Ok(Some((Reply::Nil, start)));
    }
    let end = start + usize::try_from(len).map_err(|_| Malformed)?;
    match bytes.get(end..end + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((Reply::Bulk(&bytes[start..end]), end + 2))),
        Some(_) => Err(Malformed),
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::{Malformed, Reply, next};

    #[test]
    fn every_kind_of_reply_is_read() {
        assert_eq!(next(b"+OK\r\nrest"), Ok(Some((Reply::Simple(b"OK"), 5))));
        assert_eq!(next(b"-ERR no\r\n"), Ok(Some((Reply::Error(b"ERR no"), 9))));
        assert_eq!(next(b":-12\r\n"), Ok(Some((Reply::Integer(-12), 6))));
        assert_eq!(next(b"$0\r\n\r\n"), Ok(Some((Reply::Bulk(b""), 6))));
        assert_eq!(next(b"$4\r\na\r\nb\r\n"), Ok(Some((Reply::Bulk(b"a\r\nb"), 10))));
        assert_eq!(next(b"$-1\r\n"), Ok(Some((Reply::Nil, 5))));
    }

    #[test]
    fn a_reply_cut_anywhere_is_waited_for() {
        let whole = b"$5\r\nhello\r\n";
        (0..whole.len()).for_each(|cut| assert_eq!(next(&whole[..cut]), Ok(None), "cut at {cut}"));
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(next(b"HTTP/1.1 400\r\n"), Err(Malformed));
        assert_eq!(next(b"$x\r\n"), Err(Malformed));
        assert_eq!(next(b"$-2\r\n"), Err(Malformed));
        assert_eq!(next(b"$1\r\nabc\r\n"), Err(Malformed));
        assert_eq!(next(b"\r\n"), Err(Malformed));
    }
}
