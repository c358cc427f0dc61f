//! Text of floating point numbers as Redis replies with it: the fewest digits that read back the same,
//! plain where that is short and with an exponent elsewhere (Redis 7.2: `fpconv_dtoa`).

use std::io::Write;

/// Appends `number` to `out`.
pub(crate) fn write_double(out: &mut Vec<u8>, number: f64) {
    if number.is_nan() {
        return out.extend_from_slice(b"nan");
    }
    if number.is_sign_negative() {
        out.push(b'-');
    }
    if number.is_infinite() {
        return out.extend_from_slice(b"inf");
    }
    if number == 0.0 {
        return out.push(b'0');
    }
    write_digits(out, &shortest(number.abs()));
}

/// A number as `digits * 10^scale`.
struct Decimal {
    digits: Vec<u8>,
    scale: i32,
}

/// The shortest decimal that reads back as `number`, which is finite and above zero.
fn shortest(number: f64) -> Decimal {
    // `d.ddde-x`: one digit before the point.
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).collect();
    let fraction = i32::try_from(digits.len()).unwrap_or(i32::MAX) - 1;
    Decimal { digits, scale: exponent.parse::<i32>().unwrap_or(0) - fraction }
}

/// Chooses between `1200`, `0.012` and `1.2e+30` where `fpconv` does.
fn write_digits(out: &mut Vec<u8>, Decimal { digits, scale }: &Decimal) {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let exponent = scale + count - 1;
    if *scale >= 0 && exponent < count + 7 {
        out.extend_from_slice(digits);
        pad(out, *scale);
    } else if *scale < 0 && (*scale > -7 || exponent.abs() < 4) {
        write_fraction(out, digits, count + scale);
    } else {
        write_exponent(out, digits, exponent);
    }
}

/// Digits with a point after the first `whole`, or zeros in front where there are fewer than one.
fn write_fraction(out: &mut Vec<u8>, digits: &[u8], whole: i32) {
    match usize::try_from(whole) {
        Ok(whole @ 1..) => {
            out.extend_from_slice(&digits[..whole]);
            out.push(b'.');
            out.extend_from_slice(&digits[whole..]);
        }
        _ => {
            out.extend_from_slice(b"0.");
            pad(out, -whole);
            out.extend_from_slice(digits);
        }
    }
}

fn write_exponent(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    out.push(digits[0]);
    if digits.len() > 1 {
        out.push(b'.');
        out.extend_from_slice(&digits[1..]);
    }
    write!(out, "e{exponent:+}").expect("a Vec takes every write");
}

/// Appends `count` zeros.
fn pad(out: &mut Vec<u8>, count: i32) {
    let count = usize::try_from(count).unwrap_or(0);
    out.resize(out.len() + count, b'0');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(number: f64) -> String {
        let mut out = Vec::new();
        write_double(&mut out, number);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_look_as_in_redis() {
        for (number, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (3.0e6, "3000000"),
            (1.0e7, "10000000"),
            (1.0e8, "1e+8"),
            (1.0e21, "1e+21"),
            (1.25e-9, "1.25e-9"),
            (0.000_123_4, "1.234e-4"),
            (0.001_234, "0.001234"),
            (123_456.789, "123456.789"),
            (5e-324, "5e-324"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(text(number), want);
        }
    }

    proptest! {
        #[test]
        fn every_number_reads_back_the_same(number in any::<f64>().prop_filter("nan", |n| !n.is_nan())) {
            prop_assert_eq!(crate::parse_f64(text(number).as_bytes()), Some(number));
        }
    }
}
