//! Data loss of the real server: detect sessions of which it has lost confirmed updates, and refuse servers whose
//! settings allow such losses.

use super::ledger::Ledger;
use super::resp;
use super::server::{Link, Redis};
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use crate::runtime::{log_no_room, log_silent};
use landfall_pmnet::server::Trouble;
use landfall_pmnet::{SessionKey, SessionRow};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Most sessions that are noted.
const NOTED_MAX: usize = 4096;
/// Settings with which a server keeps what it has confirmed.
const SETTINGS: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

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

    fn store(&self, upstream: &mut Upstream, prefix: &str) -> Result<(), UpstreamError> {
        upstream.push(&[b"SET", Ledger::behind_key(prefix).as_bytes(), self.to_text().as_bytes()]);
        refuse_errors(&upstream.call(None)?, "to note a session that is behind")
    }

    fn note(&mut self, key: SessionKey, gap: Gap) {
        if self.0.len() < NOTED_MAX {
            let known = self.0.entry(key).or_insert(gap);
            known.confirmed = known.confirmed.max(gap.confirmed);
        }
    }
}

/// Number of updates that a row covers. Update numbers of foreign sessions begin at 0.
fn applied(row: &SessionRow) -> u32 {
    row.update.wrapping_add(1)
}

impl Redis {
    /// Checks that the settings of the real server let it keep what it confirms.
    pub(super) fn check_durable(&self, upstream: &mut Upstream) -> Result<(), UpstreamError> {
        if self.config.accept_data_loss {
            return Ok(());
        }
        for (setting, wanted) in SETTINGS {
            upstream.push(&[b"CONFIG", b"GET", setting.as_bytes()]);
            let reply = upstream.call(None)?;
            let unknown = reply.starts_with(b"-ERR unknown") || reply.starts_with(b"-NOPERM");
            if !unknown {
                refuse_errors(&reply, "to return its settings")?;
            }
            let parts = resp::elements_of(&reply).unwrap_or_default();
            let value = parts.get(1).and_then(|value| resp::bulk(value));
            if value != Some(wanted.as_bytes()) {
                let value = value.map_or("unknown".into(), |value| String::from_utf8_lossy(value).into());
                return Err(UpstreamError::Undurable { setting, value, wanted });
            }
        }
        Ok(())
    }

    /// Finds the sessions that are behind: those that are noted, and those whose rows are older than the confirmed
    /// ones.
    pub(super) fn find_behind(&mut self, link: &mut Link) -> Result<(), UpstreamError> {
        let prefix = self.config.prefix.clone();
        let noted = Noted::fetch(&mut link.upstream, &prefix)?;
        let mut now = noted.clone();
        for (key, before) in std::mem::take(&mut self.confirmed) {
            match link.ledger.row(&key) {
                Some(row) if applied(row) < applied(&before) => {
                    now.note(key, Gap { applied: row.update, confirmed: before.update });
                }
                Some(_) => {}
                None => tracing::error!(
                    client = %key.client, session = key.session,
                    "the Redis server has lost a whole session that it had confirmed"
                ),
            }
        }
        now.0.retain(|key, gap| link.ledger.row(key).is_some_and(|row| applied(row) <= gap.confirmed));
        if now != noted {
            now.store(&mut link.upstream, &prefix)?;
        }
        self.behind = now;
        Ok(())
    }

    /// Reports trouble of a session to the operator. A session that is behind is also noted for later side-cars.
    pub(super) fn note_trouble(&mut self, trouble: &Trouble) {
        match *trouble {
            Trouble::Behind { key, applied, confirmed } => {
                self.report.behind += 1;
                tracing::error!(
                    client = %key.client, session = key.session, applied, confirmed,
                    "the Redis server has lost updates that it had confirmed: the session is refused; devices keep their updates \
                     of it and acknowledge no more. `landfall pmnet reconcile` lists the lost updates; with --discard-lost, it \
                     lets the session continue with the updates that the logs still have"
                );
                self.behind.note(key, Gap { applied, confirmed });
                let prefix = &self.config.prefix;
                let stored = self.link.as_mut().map(|link| self.behind.store(&mut link.upstream, prefix));
                if let Some(Err(error)) = stored {
                    tracing::warn!(%error, "cannot note the session in the Redis server");
                }
            }
            Trouble::Missing { key, first } => {
                self.report.missing += 1;
                tracing::warn!(
                    client = %key.client, session = key.session, first,
                    "updates of a session are missing, and neither its client nor a device sends them: if the client has ended, \
                     the updates behind them were never reported as durable, and `landfall pmnet log --discard` discards them; \
                     if the Redis server has lost data, no participant is left that could detect it"
                );
            }
            Trouble::Silent { key, applied } => log_silent(&key, applied),
            Trouble::NoRoom { key, sessions } => log_no_room(&key, sessions),
            _ => {}
        }
        self.publish();
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
