//! Query parameters and the time to live.

use super::answer::Refusal;
use landfall_http::{QueryPairs, query_pairs};
use landfall_kv::{DATABASES, RangeQuery};
use std::ops::Bound;

/// Layout of a scan's reply. See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `application/octet-stream`: lengths, then bytes; large values by reference.
    Octets,
    /// `application/x-ndjson`: one object per line.
    Lines,
}

impl Format {
    pub(super) fn content_type(self) -> &'static [u8] {
        match self {
            Self::Octets => b"application/octet-stream",
            Self::Lines => b"application/x-ndjson",
        }
    }
}

/// Parameters of a scan.
#[derive(Clone, Debug)]
pub(super) struct ScanParams {
    pub(super) query: RangeQuery,
    /// Keys, at most.
    pub(super) limit: u64,
    pub(super) keys_only: bool,
    pub(super) format: Format,
}

/// The database in the query of a key's resource; 0 without one.
pub(super) fn database(query: Option<&[u8]>) -> Result<u8, Refusal> {
    let mut database = 0;
    for (name, value) in pairs(query)? {
        match &*name {
            b"db" => database = parse_database(&value)?,
            _ => return Err(unknown(&name, "db")),
        }
    }
    Ok(database)
}

/// The parameters of a scan. `accept` are the values of `Accept`.
pub(super) fn scan<'a>(
    query: Option<&[u8]>,
    accept: impl Iterator<Item = &'a [u8]>,
) -> Result<ScanParams, Refusal> {
    let format = if wants_lines(accept) { Format::Lines } else { Format::Octets };
    let mut params = ScanParams { query: RangeQuery::all(0), limit: u64::MAX, keys_only: false, format };
    let mut prefix = None;
    for (name, value) in pairs(query)? {
        match &*name {
            b"db" => params.query.space = parse_database(&value)?,
            b"start" => params.query.start = Bound::Included(value.into_owned()),
            b"end" => params.query.end = Bound::Excluded(value.into_owned()),
            b"prefix" => prefix = Some(value),
            b"limit" => params.limit = number(&value).ok_or_else(|| bad("limit", "a number of keys"))?,
            b"reverse" => params.query.reverse = flag("reverse", &value)?,
            b"keys_only" => params.keys_only = flag("keys_only", &value)?,
            b"format" => params.format = parse_format(&value)?,
            _ => return Err(unknown(&name, "start, end, prefix, limit, reverse, keys_only, format, db")),
        }
    }
    if let Some(prefix) = prefix {
        params.query = params.query.with_prefix(&prefix);
    }
    Ok(params)
}

/// Accepts only known queries of `/healthz`.
pub(super) fn health(query: Option<&[u8]>) -> Result<(), Refusal> {
    for (name, value) in pairs(query)? {
        match &*name {
            b"ready" => drop(flag("ready", &value)?),
            _ => return Err(unknown(&name, "ready")),
        }
    }
    Ok(())
}

/// Milliseconds of `90`, `90s` or `1500ms`; at least one.
pub(super) fn ttl_ms(text: &[u8]) -> Result<u64, Refusal> {
    let parsed = match (text.strip_suffix(b"ms"), text.strip_suffix(b"s")) {
        (Some(ms), _) => number(ms),
        (None, Some(seconds)) => number(seconds).and_then(|seconds| seconds.checked_mul(1000)),
        (None, None) => number(text).and_then(|seconds| seconds.checked_mul(1000)),
    };
    parsed
        .filter(|ms| *ms > 0)
        .ok_or_else(|| bad("X-Landfall-TTL", "a time above zero such as 90, 90s or 1500ms"))
}

pub(super) fn pairs(query: Option<&[u8]>) -> Result<QueryPairs<'_>, Refusal> {
    Ok(query.map_or_else(|| Ok(QueryPairs::new()), query_pairs)?)
}

fn parse_database(value: &[u8]) -> Result<u8, Refusal> {
    let database = number(value).filter(|number| *number < DATABASES as u64);
    database.map(|number| number as u8).ok_or_else(|| bad("db", "a number from 0 to 15"))
}

pub(super) fn parse_format(value: &[u8]) -> Result<Format, Refusal> {
    match value {
        b"octets" => Ok(Format::Octets),
        b"ndjson" => Ok(Format::Lines),
        _ => Err(bad("format", "octets or ndjson")),
    }
}

/// True if the client accepts lines of JSON. Its other preferences do not matter, because there is only one other
/// layout.
pub(super) fn wants_lines<'a>(accept: impl Iterator<Item = &'a [u8]>) -> bool {
    let is_lines = |range: &[u8]| {
        let name = range.split(|byte| *byte == b';').next().unwrap_or(range).trim_ascii();
        [&b"application/x-ndjson"[..], b"application/ndjson", b"application/jsonl"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(name))
    };
    accept.flat_map(|value| value.split(|byte| *byte == b',')).any(is_lines)
}

fn flag(name: &'static str, value: &[u8]) -> Result<bool, Refusal> {
    match value {
        b"" | b"1" | b"true" => Ok(true),
        b"0" | b"false" => Ok(false),
        _ => Err(bad(name, "1 or 0")),
    }
}

/// Parses decimal digits and nothing else.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

pub(super) fn bad(name: &'static str, expected: &'static str) -> Refusal {
    Refusal::new(400, format!("{name} must be {expected}"))
}

pub(super) fn unknown(name: &[u8], known: &'static str) -> Refusal {
    Refusal::new(400, format!("unknown query parameter \"{}\": known are {known}", name.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_of(query: &str) -> Result<ScanParams, Refusal> {
        scan(Some(query.as_bytes()), std::iter::empty())
    }

    #[test]
    fn times_to_live_are_read_in_seconds_and_milliseconds() {
        for (text, ms) in [("90", 90_000), ("90s", 90_000), ("1500ms", 1500), ("1ms", 1)] {
            assert_eq!(ttl_ms(text.as_bytes()).unwrap(), ms, "{text}");
        }
        for text in [
            "",
            "0",
            "0ms",
            "-1",
            "1.5",
            "s",
            "ms",
            "90m",
            " 9",
            "99999999999999999999",
            "18446744073709551615",
        ] {
            assert_eq!(ttl_ms(text.as_bytes()).unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn scans_take_binary_bounds_flags_and_limits() {
        let params = scan_of("start=%00&end=a+b&reverse&keys_only=0&limit=7&db=3&format=ndjson").unwrap();
        assert_eq!(params.query.start, Bound::Included(vec![0]));
        assert_eq!(params.query.end, Bound::Excluded(b"a b".to_vec()));
        assert_eq!((params.query.reverse, params.keys_only, params.limit), (true, false, 7));
        assert_eq!((params.query.space, params.format), (3, Format::Lines));
    }

    #[test]
    fn a_prefix_narrows_the_bounds_wherever_it_stands() {
        for query in ["prefix=b&start=a", "start=a&prefix=b"] {
            let params = scan_of(query).unwrap();
            assert_eq!(params.query.start, Bound::Included(b"b".to_vec()));
            assert_eq!(params.query.end, Bound::Excluded(b"c".to_vec()));
        }
    }

    #[test]
    fn unknown_parameters_are_refused_with_advice() {
        for query in
            ["limit=-1", "limit=", "db=16", "db=x", "reverse=maybe", "format=xml", "strat=a", "start=%4"]
        {
            let refusal = scan_of(query).unwrap_err();
            assert_eq!(refusal.status, 400, "{query}");
        }
        assert!(scan_of("strat=a").unwrap_err().message.contains("start, end"));
        assert_eq!(database(Some(b"ttl=1")).unwrap_err().status, 400);
        assert_eq!(database(Some(b"db=15")).unwrap(), 15);
    }

    #[test]
    fn lines_are_chosen_by_accept() {
        let accepts = |value: &'static str| wants_lines(std::iter::once(value.as_bytes()));
        assert!(accepts("application/x-ndjson") && accepts("text/html, Application/NDJSON;q=0.5"));
        assert!(!accepts("*/*") && !accepts("application/json") && !accepts(""));
    }
}
