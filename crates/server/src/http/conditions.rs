//! Conditional requests (RFC 9110, section 13) and the time to live: parses their header fields and checks them against
//! a value.

use super::answer::Refusal;
use super::params;
use super::ranges::Wanted;
use landfall_http::{EntityTags, Request, parse_date};

/// The conditions of a request, and its time to live.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    if_match: Option<EntityTags<'a>>,
    if_none_match: Option<EntityTags<'a>>,
    /// Time, Unix seconds.
    if_modified_since: Option<u64>,
    /// Time, Unix seconds.
    if_unmodified_since: Option<u64>,
    /// Time to live, milliseconds.
    ttl_ms: Option<u64>,
    range: Option<Wanted>,
    /// The body is a part of a value.
    is_part: bool,
    /// The version of which a part is wanted: an entity tag or a date.
    if_range: Option<&'a [u8]>,
}

/// The version that conditions are checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Current {
    /// The entity tag.
    pub(super) tag: u64,
    /// Arrival time, Unix seconds.
    pub(super) modified: u64,
}

/// Result of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Proceed,
    /// 304, for reads.
    NotModified,
    /// 412.
    Failed,
}

impl<'a> Fields<'a> {
    /// Reads the fields in one pass; most requests have none of them.
    pub(super) fn read(request: &'a Request) -> Result<Self, Refusal> {
        let mut fields = Self::default();
        for (name, value) in request.headers() {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            match name.len() {
                5 if is("range") => fields.range = Wanted::parse(value),
                8 if is("if-range") => fields.if_range = Some(value),
                8 if is("if-match") => fields.if_match = Some(tags(request, "if-match")?),
                13 if is("content-range") => fields.is_part = true,
                13 if is("if-none-match") => fields.if_none_match = Some(tags(request, "if-none-match")?),
                14 if is("x-landfall-ttl") => fields.ttl_ms = Some(params::ttl_ms(value)?),
                // An invalid date is ignored (sections 13.1.3 and 13.1.4).
                17 if is("if-modified-since") => fields.if_modified_since = parse_date(value),
                19 if is("if-unmodified-since") => fields.if_unmodified_since = parse_date(value),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// As [`Self::read`], for a write.
    pub(super) fn of_write(request: &'a Request) -> Result<Self, Refusal> {
        let fields = Self::read(request)?;
        if fields.is_part {
            return Err(Refusal::new(400, "a value is stored whole: send it without Content-Range"));
        }
        Ok(fields)
    }

    /// The part that a GET asks for.
    pub(super) fn range(&self) -> Option<Wanted> {
        self.range
    }

    /// True if the part is wanted of this version: of any, or of the one that `If-Range` names by its strong tag.
    /// Dates have no more than seconds, and name none (section 13.1.5).
    pub(super) fn wants_part_of(&self, current: Current) -> bool {
        self.if_range.is_none_or(|tag| tag == format!("\"{}\"", current.tag).as_bytes())
    }

    /// True if a write depends on the current value.
    pub(super) fn is_conditional(&self) -> bool {
        self.if_match.is_some() || self.if_none_match.is_some() || self.if_unmodified_since.is_some()
    }

    /// Expiry time of a value written now, Unix milliseconds; 0 for never.
    pub(super) fn expiry_ms(&self, now_ms: u64) -> Result<u64, Refusal> {
        let Some(ttl_ms) = self.ttl_ms else { return Ok(0) };
        now_ms
            .checked_add(ttl_ms)
            .ok_or_else(|| Refusal::new(400, "X-Landfall-TTL reaches past the end of time"))
    }

    /// Checks the conditions against the current version, in the order of section 13.2.2.
    pub(super) fn verdict(&self, is_read: bool, current: Option<Current>) -> Verdict {
        let mut digits = itoa::Buffer::new();
        let tag = current.map(|current| digits.format(current.tag).as_bytes());
        match (&self.if_match, self.if_unmodified_since, current) {
            (Some(tags), ..) if !tags.matches_strong(tag) => return Verdict::Failed,
            // Without a modification date the field is ignored (section 13.1.4).
            (None, Some(date), Some(current)) if current.modified > date => return Verdict::Failed,
            _ => {}
        }
        let unchanged = if is_read { Verdict::NotModified } else { Verdict::Failed };
        match (&self.if_none_match, self.if_modified_since, current) {
            (Some(tags), ..) if tags.matches_weak(tag) => unchanged,
            (None, Some(date), Some(current)) if is_read && current.modified <= date => unchanged,
            _ => Verdict::Proceed,
        }
    }
}

/// The reply 412 of a failed condition.
pub(super) fn failed() -> Refusal {
    Refusal::new(412, "the condition does not hold: read the key and its ETag again")
}

fn tags<'a>(request: &'a Request, name: &'static str) -> Result<EntityTags<'a>, Refusal> {
    let malformed = || Refusal::new(400, format!("{name} must be * or a list of quoted entity tags"));
    EntityTags::parse(request.header_values(name)).ok_or_else(malformed)
}
