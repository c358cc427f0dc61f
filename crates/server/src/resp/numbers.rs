//! Numbers in strings: `INCR` and its family.

use super::command::{Call, Spec};
use super::fail::Fail;
use super::flags::Flags;
use landfall_resp::{parse_f64, parse_i64};
use rust_decimal::Decimal;
use std::str::FromStr;

const WRITE: Flags = Flags::WRITE.and(Flags::DENY_OOM).and(Flags::FAST);
/// Digits after the decimal point that `INCRBYFLOAT` keeps, as in Redis.
const FRACTION_DIGITS: u32 = 17;

pub(super) const SPECS: &[Spec] = &[
    Spec::new("incr", 2, WRITE, incr, "string", "Increments the integer value of a key by one.")
        .keys(1, 1, 1),
    Spec::new("decr", 2, WRITE, decr, "string", "Decrements the integer value of a key by one.")
        .keys(1, 1, 1),
    Spec::new("incrby", 3, WRITE, incrby, "string", "Increments the integer value of a key by a number.")
        .keys(1, 1, 1),
    Spec::new("decrby", 3, WRITE, decrby, "string", "Decrements a number from the integer value of a key.")
        .keys(1, 1, 1),
    Spec::new(
        "incrbyfloat",
        3,
        WRITE,
        incrbyfloat,
        "string",
        "Increments the floating point value of a key.",
    )
    .keys(1, 1, 1),
];

fn incr(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    add(call, 1)
}

fn decr(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    add(call, -1)
}

fn incrby(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let change = call.integer(2)?;
    add(call, change)
}

fn decrby(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let change = call.integer(2)?.checked_neg().ok_or(Fail::error("ERR decrement would overflow"))?;
    add(call, change)
}

fn add(call: &mut Call<'_, '_, '_>, change: i64) -> Result<(), Fail> {
    let key = call.word(1);
    let sum = call.update(&[&key], |txn, space| {
        let old = txn.read(space, &key)?;
        let (number, expiry) = match &old {
            None => (0, 0),
            Some(item) => (parse_i64(&item.bytes()?).ok_or(Fail::not_an_integer())?, item.expiry_ms),
        };
        let overflow = Fail::error("ERR increment or decrement would overflow");
        let sum = number.checked_add(change).ok_or(overflow)?;
        txn.put_bytes(space, &key, itoa::Buffer::new().format(sum).into(), expiry);
        Ok(sum)
    })?;
    call.reply_integer(sum)
}

fn incrbyfloat(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let (key, change) = (call.word(1), call.word(2));
    let sum = call.update(&[&key], |txn, space| {
        let old = txn.read(space, &key)?;
        let (number, expiry) = match &old {
            None => (b"0".as_slice().into(), 0),
            Some(item) => (item.bytes()?, item.expiry_ms),
        };
        let sum = sum_of_floats(&number, &change)?;
        txn.put_bytes(space, &key, sum.clone().into_bytes(), expiry);
        Ok(sum)
    })?;
    call.out().bulk(sum.as_bytes());
    Ok(())
}

/// The sum of two numbers in text form, as text: decimal if 28 digits are enough, binary otherwise.
///
/// Redis adds in C's `long double`, which has 18 digits on x86-64 and 33 on ARM: there, as here, 1000 and
/// 0.3 are 1000.3; on x86-64 they are 1000.29999999999999999.
fn sum_of_floats(left: &[u8], right: &[u8]) -> Result<String, Fail> {
    let invalid = || Fail::error("ERR value is not a valid float");
    let binary = parse_f64(left).ok_or_else(invalid)? + parse_f64(right).ok_or_else(invalid)?;
    if !binary.is_finite() {
        return Err(Fail::error("ERR increment would produce NaN or Infinity"));
    }
    Ok(match (decimal(left), decimal(right)) {
        (Some(left), Some(right)) if left.checked_add(right).is_some() => {
            trimmed((left + right).round_dp(FRACTION_DIGITS).to_string())
        }
        _ => trimmed(format!("{binary:.*}", FRACTION_DIGITS as usize)),
    })
}

fn decimal(text: &[u8]) -> Option<Decimal> {
    let text = std::str::from_utf8(text).ok()?;
    if text.contains(['e', 'E']) {
        return Decimal::from_scientific(text).ok();
    }
    Decimal::from_str(text).ok()
}

/// Removes zeros at the end of the fraction, and the sign of a negative zero.
fn trimmed(text: String) -> String {
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_sum(left: &str, right: &str, want: &str) {
        assert_eq!(sum_of_floats(left.as_bytes(), right.as_bytes()).unwrap(), want, "{left} + {right}");
    }

    #[test]
    fn sums_are_decimal_and_have_no_exponent() {
        assert_sum("0.1", "0.2", "0.3");
        assert_sum("3.0", "1.1", "4.1");
        assert_sum("5.0e3", "2.0e2", "5200");
        assert_sum("10.50", "0.1", "10.6");
        assert_sum("1", "-1", "0");
        assert_sum("-1.5", "1.25", "-0.25");
        assert_sum("1e20", "1", "100000000000000000001");
    }

    #[test]
    fn only_finite_numbers_are_accepted() {
        for (left, right) in
            [("abc", "1"), ("1", ""), (" 1", "1"), ("1", "nan"), ("inf", "1"), ("1e308", "1.7e308")]
        {
            assert!(sum_of_floats(left.as_bytes(), right.as_bytes()).is_err(), "{left} + {right}");
        }
    }
}
