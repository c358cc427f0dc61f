//! Base64 with the standard alphabet (RFC 4648, section 4).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the padded encoding of `bytes` to `out`.
pub(super) fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= group.len() { digit } else { b'=' });
        }
    }
}

/// The bytes that `text` encodes, padded or not; `None` if it is malformed.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let digits = text.strip_suffix(b"==").or(text.strip_suffix(b"=")).unwrap_or(text);
    let padded_right = digits.len() == text.len() || text.len().is_multiple_of(4);
    if digits.len() % 4 == 1 || !padded_right {
        return None;
    }
    let (mut bits, mut held) = (0u32, 0);
    let mut out = Vec::with_capacity(digits.len() * 3 / 4);
    for digit in digits {
        bits = bits << 6 | value(*digit)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (bits == 0).then_some(out)
}

fn value(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold_in_both_directions() {
        let vectors =
            ["", "", "f", "Zg==", "fo", "Zm8=", "foo", "Zm9v", "foob", "Zm9vYg==", "foobar", "Zm9vYmFy"];
        for pair in vectors.chunks(2) {
            let mut out = Vec::new();
            encode(pair[0].as_bytes(), &mut out);
            assert_eq!(out, pair[1].as_bytes());
            assert_eq!(decode(pair[1].as_bytes()).as_deref(), Some(pair[0].as_bytes()));
            assert_eq!(decode(pair[1].trim_end_matches('=').as_bytes()).as_deref(), Some(pair[0].as_bytes()));
        }
    }

    #[test]
    fn every_byte_survives() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            let mut out = Vec::new();
            encode(&bytes[len..], &mut out);
            assert_eq!(decode(&out).as_deref(), Some(&bytes[len..]));
        }
    }

    #[test]
    fn malformed_text_is_refused() {
        for text in ["Z", "Zg=", "Zg===", "Zh==", "Zm9", "Z===", "Zm 8", "Zm9v=", "-_-_"] {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }
}
