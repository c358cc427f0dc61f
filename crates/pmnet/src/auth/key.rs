//! The secret key that clients, devices and server share.

use core::fmt;

/// A secret of 128 bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; Self::BYTES]);

impl Key {
    /// Bytes of a key.
    pub const BYTES: usize = 16;

    /// Parses 32 hexadecimal digits. White space around them is ignored. `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() != 2 * Self::BYTES || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        // The first two digits are the first byte.
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(Self(number.swap_bytes().to_le_bytes()))
    }

    pub(super) fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

/// The key's bytes are not printed.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_thirty_two_digits_and_is_not_printed() {
        let text = "000102030405060708090a0b0c0d0e0f";
        let key = Key::from_hex(&format!(" {text}\n")).unwrap();
        assert_eq!(key.bytes(), &std::array::from_fn(|at| at as u8));
        assert_eq!(format!("{key:?}"), "Key");
        for bad in ["", &text[1..], &format!("{text}0"), "+00102030405060708090a0b0c0d0e0f", &"g".repeat(32)]
        {
            assert_eq!(Key::from_hex(bad), None, "{bad}");
        }
    }
}
