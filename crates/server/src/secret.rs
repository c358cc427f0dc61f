//! Comparison of secrets.

/// Compares in constant time: the time depends only on the given password's length, not on how much of it is right.
pub(crate) fn is_same(given: &[u8], expected: &[u8]) -> bool {
    let mut differs = usize::from(given.len() != expected.len());
    let mut cycle = expected.iter().cycle();
    for byte in given {
        differs |= usize::from(byte ^ cycle.next().copied().unwrap_or(!byte));
    }
    std::hint::black_box(differs) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_password_matches() {
        for (given, expected, same) in [
            ("secret", "secret", true),
            ("secre", "secret", false),
            ("secrets", "secret", false),
            ("secretsecret", "secret", false),
            ("Secret", "secret", false),
            ("secreT", "secret", false),
            ("", "secret", false),
            ("", "", true),
            ("x", "", false),
        ] {
            assert_eq!(is_same(given.as_bytes(), expected.as_bytes()), same, "{given:?} {expected:?}");
        }
    }
}
