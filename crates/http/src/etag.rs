//! Entity tags and the lists of them in `If-Match` and `If-None-Match` (RFC 9110, sections 8.8.3 and 13.1).

use smallvec::SmallVec;

/// An entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// True for `W/"…"`.
    pub weak: bool,
    /// What stands between the quotes.
    pub tag: &'a [u8],
}

/// The value of `If-Match` or `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntityTags<'a> {
    /// `*`: whatever there is.
    Any,
    /// A list, perhaps empty.
    List(SmallVec<[EntityTag<'a>; 2]>),
}

impl<'a> EntityTags<'a> {
    /// Reads the values of every field of one name, as from `Request::header_values`. `None` if malformed.
    pub fn parse(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut tags = SmallVec::new();
        let mut any = false;
        for value in values {
            if value.trim_ascii() == b"*" {
                any = true;
            } else {
                parse_list(value, &mut tags)?;
            }
        }
        match (any, tags.is_empty()) {
            (true, true) => Some(Self::Any),
            (true, false) => None,
            (false, _) => Some(Self::List(tags)),
        }
    }

    /// Strong comparison, as `If-Match` wants it: both strong, and alike. `tag` is the strong tag of what is
    /// there, `None` if nothing is.
    pub fn matches_strong(&self, tag: Option<&[u8]>) -> bool {
        self.matches(tag, |listed| !listed.weak)
    }

    /// Weak comparison, as `If-None-Match` wants it: alike, weak or not.
    pub fn matches_weak(&self, tag: Option<&[u8]>) -> bool {
        self.matches(tag, |_| true)
    }

    fn matches(&self, tag: Option<&[u8]>, counts: impl Fn(&EntityTag<'_>) -> bool) -> bool {
        match (self, tag) {
            (_, None) => false,
            (Self::Any, Some(_)) => true,
            (Self::List(tags), Some(tag)) => tags.iter().any(|listed| counts(listed) && listed.tag == tag),
        }
    }
}

/// Appends the tags of a comma-separated list; empty elements are skipped.
fn parse_list<'a>(mut rest: &'a [u8], tags: &mut SmallVec<[EntityTag<'a>; 2]>) -> Option<()> {
    loop {
        rest = rest.trim_ascii_start();
        match rest.first() {
            None => return Some(()),
            Some(b',') => rest = &rest[1..],
            Some(_) => {
                let (tag, after) = parse_tag(rest)?;
                tags.push(tag);
                rest = after.trim_ascii_start();
                if !matches!(rest.first(), None | Some(b',')) {
                    return None;
                }
            }
        }
    }
}

/// The tag at the front, and what follows it.
fn parse_tag(text: &[u8]) -> Option<(EntityTag<'_>, &[u8])> {
    let (weak, text) = match text.strip_prefix(b"W/") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let text = text.strip_prefix(b"\"")?;
    let close = text.iter().position(|b| *b == b'"')?;
    let tag = &text[..close];
    let is_tag_byte = |b: &u8| *b > b' ' && *b != 0x7f;
    tag.iter().all(is_tag_byte).then_some((EntityTag { weak, tag }, &text[close + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(value: &str) -> Option<Vec<(bool, String)>> {
        match EntityTags::parse([value.as_bytes()])? {
            EntityTags::Any => Some(vec![(false, "*".into())]),
            EntityTags::List(tags) => {
                Some(tags.iter().map(|t| (t.weak, String::from_utf8(t.tag.to_vec()).unwrap())).collect())
            }
        }
    }

    #[test]
    fn lists_of_strong_and_weak_tags_are_read() {
        let want =
            |tags: &[(bool, &str)]| Some(tags.iter().map(|(w, t)| (*w, (*t).to_owned())).collect::<Vec<_>>());
        assert_eq!(tags("\"a\""), want(&[(false, "a")]));
        assert_eq!(tags(" W/\"a\" ,, \"b,c\",\"\" "), want(&[(true, "a"), (false, "b,c"), (false, "")]));
        assert_eq!(tags("*"), want(&[(false, "*")]));
        assert_eq!(tags(""), want(&[]));
    }

    #[test]
    fn malformed_lists_are_refused() {
        for value in ["a", "\"a", "w/\"a\"", "\"a\" \"b\"", "\"a b\"", "*, \"a\"", "\"a\"x"] {
            assert_eq!(tags(value), None, "{value}");
        }
        assert_eq!(EntityTags::parse([&b"*"[..], b"\"a\""]), None);
    }

    #[test]
    fn strong_comparison_leaves_weak_tags_out() {
        let list = EntityTags::parse([&b"W/\"a\""[..], b"\"b\""]).unwrap();
        assert!(!list.matches_strong(Some(b"a")) && list.matches_weak(Some(b"a")));
        assert!(list.matches_strong(Some(b"b")) && !list.matches_weak(Some(b"c")));
        assert!(!list.matches_weak(None));
    }

    #[test]
    fn the_asterisk_matches_whatever_is_there() {
        assert!(EntityTags::Any.matches_strong(Some(b"a")));
        assert!(!EntityTags::Any.matches_strong(None));
    }
}
