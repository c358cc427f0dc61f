//! Keys of the ordered index.

use std::borrow::Borrow;
use std::ops::Deref;

/// Bytes of the longest key, with its space, that needs no allocation of its own. With length and variant it fills
/// three words.
const SHORT_MAX: usize = 22;

/// A key as it is ordered: its space, then its bytes.
///
/// Most keys are short and are stored in the tree's nodes: comparisons follow no pointers, and a million keys of 16
/// bytes take about 20 MiB less.
#[derive(Clone)]
pub(crate) enum OrderedKey {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

const _: () = assert!(size_of::<OrderedKey>() == 24);

impl OrderedKey {
    #[inline]
    pub(crate) fn new(space: u8, key: &[u8]) -> Self {
        let len = key.len() + 1;
        if len > SHORT_MAX {
            let mut bytes = Vec::with_capacity(len);
            bytes.push(space);
            bytes.extend_from_slice(key);
            return Self::Long(bytes.into_boxed_slice());
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[0] = space;
        bytes[1..len].copy_from_slice(key);
        Self::Short { len: len as u8, bytes }
    }
}

impl Deref for OrderedKey {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

/// Converts a space byte followed by the key's bytes.
impl From<&[u8]> for OrderedKey {
    fn from(bytes: &[u8]) -> Self {
        bytes
            .split_first()
            .map_or(Self::Short { len: 0, bytes: [0; SHORT_MAX] }, |(space, key)| Self::new(*space, key))
    }
}

impl Borrow<[u8]> for OrderedKey {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl PartialEq for OrderedKey {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for OrderedKey {}

impl PartialOrd for OrderedKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedKey {
    #[inline]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl std::fmt::Debug for OrderedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The keys are short and long, and some are prefixes of others.
        #[test]
        fn keys_are_ordered_as_their_bytes_are(
            keys in prop::collection::vec((0..2_u8, "[ab]{0,2}", 0..40_usize), 2..20),
        ) {
            let mut plain: Vec<Vec<u8>> = keys
                .iter()
                .map(|(space, text, len)| [&[*space], text.as_bytes(), &b"x".repeat(*len)].concat())
                .collect();
            let mut ordered: Vec<OrderedKey> =
                plain.iter().map(|bytes| OrderedKey::new(bytes[0], &bytes[1..])).collect();
            for (key, bytes) in ordered.iter().zip(&plain) {
                prop_assert_eq!(&**key, bytes.as_slice());
                prop_assert_eq!(key, &OrderedKey::from(bytes.as_slice()));
                prop_assert_eq!(matches!(key, OrderedKey::Long(_)), bytes.len() > SHORT_MAX);
            }
            plain.sort();
            ordered.sort();
            prop_assert!(ordered.iter().map(|key| &**key).eq(plain.iter().map(Vec::as_slice)));
        }
    }

    #[test]
    fn key_of_no_bytes_is_ordered_first() {
        assert!(OrderedKey::from(&b""[..]) < OrderedKey::new(0, b""));
        assert_eq!(OrderedKey::from(&b""[..]).len(), 0);
    }
}
