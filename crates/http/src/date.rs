//! Dates of header fields (RFC 9110, section 5.6.7). Seconds since 1970-01-01 00:00:00 UTC; no clock is read.

use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// Length of an IMF-fixdate, bytes.
pub const DATE_LEN: usize = 29;

/// The last second of the year 9999, the last that the format can say.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The IMF-fixdate of a second, as in `Sun, 06 Nov 1994 08:49:37 GMT`. Seconds after the year 9999 are its last.
pub fn format_date(unix_seconds: u64) -> [u8; DATE_LEN] {
    let time = UNIX_EPOCH + Duration::from_secs(unix_seconds.min(SECONDS_MAX));
    let text = HttpDate::from(time).to_string();
    let mut date = [b' '; DATE_LEN];
    for (byte, from) in date.iter_mut().zip(text.bytes()) {
        *byte = from;
    }
    date
}

/// The second that a date names, in any of the three forms: IMF-fixdate, RFC 850, asctime.
///
/// Years of two digits are from 1970 to 2069. `None` for anything else, and for dates before 1970.
pub fn parse_date(text: &[u8]) -> Option<u64> {
    let time = httpdate::parse_http_date(std::str::from_utf8(text).ok()?).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_three_forms_are_read() {
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse_date(text.as_bytes()), Some(784_111_777), "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in
            ["", "now", "Sun, 06 Nov 1994 08:49:37", "Sun, 31 Feb 1994 08:49:37 GMT", "784111777", "\u{e9}"]
        {
            assert_eq!(parse_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn dates_are_written_as_imf_fixdate() {
        assert_eq!(&format_date(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&format_date(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&format_date(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&format_date(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn dates_read_back_as_they_were_written(second in 0..=SECONDS_MAX) {
            prop_assert_eq!(parse_date(&format_date(second)), Some(second));
        }
    }
}
