//! Percent-encoding of keys in paths, and queries (RFC 3986, section 2.1; queries as forms send them).

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::error::HttpError;

/// Names and values of a query, decoded, in order.
pub type QueryPairs<'a> = SmallVec<[Pair<'a>; 4]>;

type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// Decodes `%XX`, to any byte; `+` stays `+`. Copies only where there is something to decode.
///
/// # Errors
/// 400 for a `%` without two hexadecimal digits.
pub fn decode_path(text: &[u8]) -> Result<Cow<'_, [u8]>, HttpError> {
    decode(text, false)
}

/// Decodes a query of `name=value` pairs apart by `&`; `+` is a blank, a pair without `=` has an empty value,
/// and empty pairs are skipped.
///
/// # Errors
/// 400 for a `%` without two hexadecimal digits.
pub fn query_pairs(query: &[u8]) -> Result<QueryPairs<'_>, HttpError> {
    let pairs = query.split(|b| *b == b'&').filter(|pair| !pair.is_empty());
    pairs.map(decode_pair).collect()
}

fn decode_pair(pair: &[u8]) -> Result<Pair<'_>, HttpError> {
    let (name, value) = match pair.iter().position(|b| *b == b'=') {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, &[][..]),
    };
    Ok((decode(name, true)?, decode(value, true)?))
}

fn decode(text: &[u8], plus_is_blank: bool) -> Result<Cow<'_, [u8]>, HttpError> {
    let is_special = |b: &u8| *b == b'%' || (*b == b'+' && plus_is_blank);
    let Some(first) = text.iter().position(is_special) else { return Ok(Cow::Borrowed(text)) };
    let mut out = Vec::with_capacity(text.len());
    out.extend_from_slice(&text[..first]);
    let mut rest = &text[first..];
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                let (digits, after) = after.split_at_checked(2).ok_or(MALFORMED)?;
                out.push(hex(digits[0])? << 4 | hex(digits[1])?);
                rest = after;
            }
            b'+' if plus_is_blank => out.push(b' '),
            _ => out.push(byte),
        }
    }
    Ok(Cow::Owned(out))
}

const MALFORMED: HttpError = HttpError::bad("malformed percent-encoding");

fn hex(digit: u8) -> Result<u8, HttpError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(MALFORMED),
    }
}

/// Appends `key` to `out` so that [`decode_path`] gives it back: everything but unreserved characters is
/// encoded, `/` too.
pub fn encode_path(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend([b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_in_paths_are_decoded_to_any_byte() {
        for (text, want) in [
            ("abc", &b"abc"[..]),
            ("a%2Fb%2fc", b"a/b/c"),
            ("%00%ff", b"\x00\xff"),
            ("a+b", b"a+b"),
            ("%2541", b"%41"),
        ] {
            assert_eq!(decode_path(text.as_bytes()).as_deref(), Ok(want), "{text}");
        }
        assert!(matches!(decode_path(b"plain"), Ok(Cow::Borrowed(_))));
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for text in ["%", "%4", "%zz", "%4g", "a%", "%%41"] {
            assert_eq!(decode_path(text.as_bytes()).unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn queries_are_decoded_pair_by_pair() {
        let pairs = query_pairs(b"ttl=10&&name=a+b%2B&flag&x=1=2&=v").unwrap();
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        let want: [(&[u8], &[u8]); 5] =
            [(b"ttl", b"10"), (b"name", b"a b+"), (b"flag", b""), (b"x", b"1=2"), (b"", b"v")];
        assert_eq!(pairs, want);
        assert!(query_pairs(b"").unwrap().is_empty());
        assert!(query_pairs(b"a=%").is_err());
    }

    proptest! {
        #[test]
        fn keys_survive_encoding(key in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut text = Vec::new();
            encode_path(&key, &mut text);
            prop_assert!(text.iter().all(|b| b.is_ascii_graphic() && *b != b'/'));
            let decoded = decode_path(&text);
            prop_assert_eq!(decoded.as_deref(), Ok(&key[..]));
        }
    }
}
