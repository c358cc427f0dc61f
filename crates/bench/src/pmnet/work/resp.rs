//! Parses the replies of a Redis-protocol server, and tells reads from updates.

use landfall_pmnet_io::redis::commands::{Class, Why, classify};
use landfall_resp::{Reply, ReplyError, elements};

/// Returns the length of the reply at the start of `bytes`. `None` while the reply is incomplete.
pub(crate) fn reply_len(bytes: &[u8]) -> Result<Option<usize>, ReplyError> {
    Ok(Reply::first(bytes)?.map(|(_, len)| len))
}

/// Returns the integer of a reply, or the number that its text holds.
pub(crate) fn integer(reply: &[u8]) -> Option<i64> {
    match Reply::whole(reply)? {
        Reply::Integer(number) => Some(number),
        Reply::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// Returns the bulk strings of an array. Empty for other replies.
pub(crate) fn bulks(reply: &[u8]) -> Vec<&[u8]> {
    let Some(Reply::Aggregate(bytes)) = Reply::whole(reply) else { return Vec::new() };
    let bulk = |element| match Reply::whole(element) {
        Some(Reply::Bulk(bytes)) => Some(bytes),
        _ => None,
    };
    elements(bytes).filter_map(bulk).collect()
}

/// Returns whether a request changes nothing: the side-cars' table calls it a read.
pub(crate) fn is_read(request: &[u8]) -> bool {
    classify(&bulks(request)) == Class::Bypass(Why::Read)
}

/// Returns whether a reply is an error.
pub(crate) fn is_error(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
}

/// Returns whether a reply says that there is nothing.
pub(crate) fn is_null(reply: &[u8]) -> bool {
    reply.starts_with(b"$-1\r\n") || reply.starts_with(b"_\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_any_kind_is_waited_for_until_it_is_whole() {
        for reply in
            [&b"+OK\r\n"[..], b":7\r\n", b"$-1\r\n", b"$3\r\na\r\n\r\n", b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n"]
        {
            assert!((0..reply.len()).all(|len| reply_len(&reply[..len]) == Ok(None)), "{reply:?}");
            assert_eq!(reply_len(&[reply, b"+more\r\n"].concat()), Ok(Some(reply.len())));
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
