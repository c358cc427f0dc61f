//! Sessions of which the real server has lost confirmed updates, as they are noted in it.

use super::ledger::Ledger;
use super::resp;
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use landfall_pmnet::SessionKey;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most sessions that are noted.
const NOTED_MAX: usize = 4096;

/// The updates of a session that the real server has lost: those above `applied`, up to `confirmed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Last update that the real server has.
    pub(super) applied: u32,
    /// Last update that was confirmed.
    pub(super) confirmed: u32,
}

/// Sessions that are behind. The list is stored in the real server, so that every side-car refuses these sessions until
/// they are reconciled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted(pub(super) BTreeMap<SessionKey, Gap>);

impl Noted {
    fn to_text(&self) -> String {
        let mut text = String::new();
        for (SessionKey { client, session }, Gap { applied, confirmed }) in &self.0 {
            // Writing to a string never fails.
            let _ = writeln!(text, "{client} {session} {applied} {confirmed}");
        }
        text
    }

    fn from_text(text: &[u8]) -> Option<Self> {
        let line = |line: &str| {
            let mut words = line.split(' ');
            let client = words.next()?.parse().ok()?;
            let session = words.next()?.parse().ok()?;
            let gap = Gap { applied: words.next()?.parse().ok()?, confirmed: words.next()?.parse().ok()? };
            words.next().is_none().then_some((SessionKey { client, session }, gap))
        };
        std::str::from_utf8(text).ok()?.lines().take(NOTED_MAX).map(line).collect::<Option<_>>().map(Self)
    }

    pub(super) fn fetch(upstream: &mut Upstream, prefix: &str) -> Result<Self, UpstreamError> {
        let key = Ledger::behind_key(prefix);
        upstream.push(&[b"GET", key.as_bytes()]);
        let reply = upstream.call(None)?;
        refuse_errors(&reply, "to return the list of sessions that are behind")?;
        match resp::bulk(&reply) {
            Some(text) => Self::from_text(text).ok_or(UpstreamError::Foreign { key }),
            None => Ok(Self::default()),
        }
    }

    pub(super) fn store(&self, upstream: &mut Upstream, prefix: &str) -> Result<(), UpstreamError> {
        upstream.push(&[b"SET", Ledger::behind_key(prefix).as_bytes(), self.to_text().as_bytes()]);
        refuse_errors(&upstream.call(None)?, "to note a session that is behind")
    }

    pub(super) fn note(&mut self, key: SessionKey, gap: Gap) {
        if self.0.len() < NOTED_MAX {
            let known = self.0.entry(key).or_insert(gap);
            known.confirmed = known.confirmed.max(gap.confirmed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_parsed_from_its_text_and_malformed_texts_are_refused() {
        let mut noted = Noted::default();
        for (client, applied) in [("10.0.0.1:40000", 3), ("[fd00::1]:7", u32::MAX)] {
            let key = SessionKey { client: client.parse().unwrap(), session: 9 };
            noted.note(key, Gap { applied, confirmed: 5 });
            noted.note(key, Gap { applied: 0, confirmed: 8 });
            assert_eq!(noted.0[&key], Gap { applied, confirmed: 8 });
        }
        assert_eq!(Noted::from_text(noted.to_text().as_bytes()), Some(noted));
        assert_eq!(Noted::from_text(b""), Some(Noted::default()));
        for text in ["x", "10.0.0.1:1 1 1", "10.0.0.1:1 1 1 1 1", "10.0.0.1:1 1 1 -1"] {
            assert_eq!(Noted::from_text(text.as_bytes()), None, "{text}");
        }
    }
}
