//! Numbers in arguments, as strict as Redis is.

/// Longest text of a floating point number, bytes; as Redis (`MAX_LONG_DOUBLE_CHARS`).
const FLOAT_LEN_MAX: usize = 5 * 1024;

/// A canonical decimal integer: no `+`, no leading zeros, no `-0`, no blanks (Redis: `string2ll`).
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text.split_first()? {
        (b'-', digits) => 0_i64.checked_sub_unsigned(parse_u64(digits).filter(|n| *n != 0)?),
        _ => i64::try_from(parse_u64(text)?).ok(),
    }
}

/// A canonical decimal without a sign: digits, no leading zeros, no blanks.
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    const DIGITS_MAX: usize = 20;
    if text.len() > DIGITS_MAX || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    let (first, rest) = text.split_first()?;
    rest.iter().try_fold(digit(*first)?, |n, byte| n.checked_mul(10)?.checked_add(digit(*byte)?))
}

fn digit(byte: u8) -> Option<u64> {
    byte.is_ascii_digit().then(|| u64::from(byte - b'0'))
}

/// A decimal floating point number, `inf` or `infinity` in any case, each with an optional sign.
///
/// Refused, as in Redis: blanks, `nan`, and numbers that overflow or vanish. Not read: C's hexadecimal floats.
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    if text.len() > FLOAT_LEN_MAX {
        return None;
    }
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let overflowed = number.is_infinite() && text.iter().any(u8::is_ascii_digit);
    let vanished = number == 0.0 && mantissa(text).any(|b| matches!(b, b'1'..=b'9'));
    (!number.is_nan() && !overflowed && !vanished).then_some(number)
}

/// The bytes before the exponent.
fn mantissa(text: &[u8]) -> impl Iterator<Item = &u8> {
    text.iter().take_while(|b| !matches!(b, b'e' | b'E'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_integers_are_read() {
        for (text, number) in [("0", 0), ("7", 7), ("-1", -1), ("1234567890", 1_234_567_890)] {
            assert_eq!(parse_i64(text.as_bytes()), Some(number));
        }
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    }

    #[test]
    fn other_spellings_of_integers_are_refused() {
        for text in ["", "-", "+1", "-0", "00", "01", "-01", " 1", "1 ", "1a", "0x1", "--1", "1.0"] {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        for text in
            ["9223372036854775808", "-9223372036854775809", "99999999999999999999", "100000000000000000000"]
        {
            assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
        }
        for text in ["18446744073709551616", "-1", "", "000000000000000000001"] {
            assert_eq!(parse_u64(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_in_every_decimal_spelling() {
        for (text, number) in
            [("0", 0.0), ("1.5", 1.5), ("-.5", -0.5), ("5.", 5.0), ("+2", 2.0), ("1e3", 1e3), ("0e9", 0.0)]
        {
            assert_eq!(parse_f64(text.as_bytes()), Some(number), "{text}");
        }
        assert_eq!(parse_f64(b"inf"), Some(f64::INFINITY));
        assert_eq!(parse_f64(b"-Infinity"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_f64(b"5e-324"), Some(5e-324));
    }

    #[test]
    fn floats_that_are_not_finite_by_intent_are_refused() {
        for text in
            ["", " 1", "1 ", "nan", "-nan", "1e999", "-1e999", "1e-999", "0x10", "1,5", "e5", ".", "\u{0661}"]
        {
            assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
        }
    }
}
