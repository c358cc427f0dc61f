//! Numbers that need not be good, only spread.

/// A sequence of numbers.
pub(super) struct Random(u64);

impl Random {
    /// The sequence with a number.
    pub(super) fn new(number: u64) -> Self {
        // Xorshift has no way out of zero.
        Self((number.wrapping_add(1) << 20 ^ 0x9e37_79b9_7f4a_7c15).max(1))
    }

    /// The next number.
    pub(super) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number below a limit.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit.max(1)
    }
}
