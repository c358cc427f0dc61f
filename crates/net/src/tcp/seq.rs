//! Sequence numbers: 32 bits that wrap (RFC 9293, 3.4).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A sequence number. Only two numbers less than 2^31 apart have an order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// Distance from `other` to this number; negative if this number is before `other`.
    pub const fn distance(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0).cast_signed()
    }

    /// Distance from `other` to this number; zero if this number is before `other`.
    pub const fn past(self, other: Self) -> u32 {
        let distance = self.distance(other);
        if distance < 0 { 0 } else { distance.cast_unsigned() }
    }

    /// True if this number is before `other`.
    pub const fn lt(self, other: Self) -> bool {
        self.distance(other) < 0
    }

    /// True if this number is before `other` or equal to it.
    pub const fn le(self, other: Self) -> bool {
        self.distance(other) <= 0
    }

    /// The later of two numbers.
    #[must_use]
    pub const fn max(self, other: Self) -> Self {
        if self.lt(other) { other } else { self }
    }

    /// The earlier of two numbers.
    #[must_use]
    pub const fn min(self, other: Self) -> Self {
        if self.lt(other) { self } else { other }
    }
}

impl Add<u32> for Seq {
    type Output = Self;

    fn add(self, count: u32) -> Self {
        Self(self.0.wrapping_add(count))
    }
}

impl AddAssign<u32> for Seq {
    fn add_assign(&mut self, count: u32) {
        *self = *self + count;
    }
}

impl Sub<u32> for Seq {
    type Output = Self;

    fn sub(self, count: u32) -> Self {
        Self(self.0.wrapping_sub(count))
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_distance_survive_the_wrap() {
        let (before, after) = (Seq(u32::MAX - 5), Seq(u32::MAX - 5) + 10);
        assert!(before.lt(after) && before.le(after) && !after.le(before));
        assert_eq!((after.past(before), before.past(after), before.distance(after)), (10, 0, -10));
        assert_eq!((before.max(after), before.min(after), after - 10), (after, before, before));
    }
}
