//! Replies of a Redis-protocol server: where they end, and what is in them.

/// Elements of nested arrays at most.
const DEPTH_MAX: usize = 8;

/// Length of the reply at the start of `bytes`; `None` while it is not all there. Nonsense is one line long.
pub(crate) fn reply_len(bytes: &[u8]) -> Option<usize> {
    len_at(bytes, DEPTH_MAX)
}

fn len_at(bytes: &[u8], depth: usize) -> Option<usize> {
    let (line, after) = line(bytes)?;
    let count = || number(&line[1..]).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    match line.first() {
        Some(b'$') if number(&line[1..]) != Some(-1) => {
            let end = after.checked_add(count())?.checked_add(2)?;
            (end <= bytes.len()).then_some(end)
        }
        Some(b'*') if depth > 0 => {
            let mut at = after;
            for _ in 0..count() {
                at += len_at(&bytes[at..], depth - 1)?;
            }
            Some(at)
        }
        _ => Some(after),
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The number that a reply is, or holds as text.
pub(crate) fn integer(reply: &[u8]) -> Option<i64> {
    match reply.first()? {
        b':' => number(line(reply)?.0.get(1..)?),
        b'$' => number(bulk(reply)?),
        _ => None,
    }
}

/// The bytes of a bulk string; `None` for a null or anything else.
pub(crate) fn bulk(reply: &[u8]) -> Option<&[u8]> {
    let (head, after) = line(reply)?;
    let len = number(head.strip_prefix(b"$")?).and_then(|len| usize::try_from(len).ok())?;
    reply.get(after..after + len)
}

/// The bulk strings of an array; none for anything else.
pub(crate) fn bulks(reply: &[u8]) -> Vec<&[u8]> {
    let Some((head, mut at)) = line(reply).filter(|(head, _)| head.first() == Some(&b'*')) else {
        return Vec::new();
    };
    let count = number(&head[1..]).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let mut found = Vec::new();
    for _ in 0..count {
        let Some(len) = reply.get(at..).and_then(reply_len) else { break };
        found.extend(bulk(&reply[at..at + len]));
        at += len;
    }
    found
}

/// Commands of the workloads that change nothing.
const READS: [&[u8]; 5] = [b"GET", b"HGET", b"HGETALL", b"LRANGE", b"ZRANGE"];

/// Whether a request of a workload changes nothing.
pub(crate) fn is_read(request: &[u8]) -> bool {
    bulks(request).first().is_some_and(|name| READS.contains(name))
}

/// Whether it is an error.
pub(crate) fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_any_kind_is_waited_for_until_it_is_whole() {
        for reply in
            [&b"+OK\r\n"[..], b":7\r\n", b"$-1\r\n", b"$3\r\na\r\n\r\n", b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n"]
        {
            assert!((0..reply.len()).all(|len| reply_len(&reply[..len]).is_none()), "{reply:?}");
            assert_eq!(reply_len(&[reply, b"+more\r\n"].concat()), Some(reply.len()));
        }
    }

    #[test]
    fn what_changes_something_is_told_from_what_reads() {
        let request = |words: &[&[u8]]| {
            let mut bytes = Vec::new();
            crate::common::clients::encode(&mut bytes, words);
            bytes
        };
        assert!(is_read(&request(&[b"HGET", b"SET", b"x"])));
        assert!(!is_read(&request(&[b"SET", b"GET", b"x", b"NX"])) && !is_read(&request(&[b"INCR", b"n"])));
    }

    #[test]
    fn numbers_and_strings_are_found() {
        assert_eq!(
            (integer(b":42\r\n"), integer(b"$2\r\n42\r\n"), integer(b"+OK\r\n")),
            (Some(42), Some(42), None)
        );
        assert_eq!(bulks(b"*3\r\n$1\r\na\r\n$-1\r\n$2\r\nbc\r\n"), [&b"a"[..], b"bc"]);
        assert!(bulks(b"$1\r\na\r\n").is_empty() && is_error(b"-ERR no\r\n"));
    }
}
