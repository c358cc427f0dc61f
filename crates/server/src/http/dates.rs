//! Caches of formatted dates: a date is formatted once per second instead of once per reply.

use landfall_http::{DATE_LEN, format_date};

/// A date as text, kept until another second is requested.
#[derive(Debug)]
pub(super) struct DateCache {
    second: u64,
    text: [u8; DATE_LEN],
}

impl Default for DateCache {
    fn default() -> Self {
        Self { second: 0, text: format_date(0) }
    }
}

impl DateCache {
    /// The IMF-fixdate of a second since 1970.
    pub(super) fn text(&mut self, second: u64) -> &[u8; DATE_LEN] {
        if self.second != second {
            *self = Self { second, text: format_date(second) };
        }
        &self.text
    }
}

/// The dates in replies.
#[derive(Debug, Default)]
pub(super) struct Dates {
    /// `Date`.
    pub(super) now: DateCache,
    /// `Last-Modified`: values that are read one after the other often arrived in the same second.
    pub(super) modified: DateCache,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_follows_the_second_forth_and_back() {
        let mut cache = DateCache::default();
        for second in [0, 784_111_777, 784_111_777, 784_111_778, 5] {
            assert_eq!(cache.text(second), &format_date(second));
        }
    }
}
