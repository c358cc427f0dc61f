//! A part of a value (RFC 9110, section 14): one range of bytes.

use super::answer::Refusal;
use landfall_kv::ItemPart;
use std::ops::Range;

/// What a `Range` field asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// From a byte on, up to and with another or to the end.
    From(usize, Option<usize>),
    /// So many bytes at the end.
    Last(usize),
}

impl Wanted {
    /// Reads the field. A field that asks for several ranges, for another unit, or that cannot be read, is ignored,
    /// as section 14.2 allows.
    pub(super) fn parse(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field).ok()?.trim();
        let (unit, range) = text.split_once('=')?;
        let (first, last) = range.trim().split_once('-')?;
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            // Beyond what a number holds lies beyond every value, too.
            is_number.then(|| text.parse().unwrap_or(usize::MAX))
        };
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (number(first), number(last)) {
            (Some(first), None) if last.is_empty() => Some(Self::From(first, None)),
            (Some(first), Some(last)) if first <= last => Some(Self::From(first, Some(last))),
            (None, Some(last)) if first.is_empty() => Some(Self::Last(last)),
            _ => None,
        }
    }

    /// The bytes of a value of `len` bytes; none where it has none of them.
    pub(super) fn of(self, len: usize) -> Range<usize> {
        match self {
            Self::From(first, _) if first >= len => 0..0,
            Self::From(first, last) => first..last.map_or(len, |last| last.saturating_add(1).min(len)),
            Self::Last(count) => len.saturating_sub(count)..len,
        }
    }
}

/// The 416 of a range that has no byte of the value.
pub(super) fn unsatisfiable(value_len: usize) -> Refusal {
    let message = format!("the value has {value_len} bytes: ask for some of them");
    Refusal { content_range: Some(value_len), ..Refusal::new(416, message) }
}

/// The `Content-Range` of a part.
pub(super) fn content_range(part: &ItemPart<'_>) -> String {
    let start = part.start();
    format!("bytes {start}-{}/{}", start + part.len() - 1, part.value_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood_and_all_else_ignored() {
        for (field, wanted) in [
            ("bytes=0-9", Some(0..10)),
            ("Bytes=90-200", Some(90..100)),
            ("bytes=99-", Some(99..100)),
            ("bytes= 5-5 ", Some(5..6)),
            ("bytes=-10", Some(90..100)),
            ("bytes=-1000", Some(0..100)),
            ("bytes=-0", Some(100..100)),
            ("bytes=100-", Some(0..0)),
            ("bytes=99999999999999999999999-", Some(0..0)),
            ("bytes=0-99999999999999999999999", Some(0..100)),
            ("bytes=9-0", None),
            ("bytes=0-1,3-4", None),
            ("bytes=-", None),
            ("bytes=+1-2", None),
            ("items=0-1", None),
            ("bytes", None),
        ] {
            assert_eq!(Wanted::parse(field.as_bytes()).map(|range| range.of(100)), wanted, "{field}");
        }
    }
}
