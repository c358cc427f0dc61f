//! Data loss of the real server: detect sessions of which it has lost confirmed updates, and refuse servers whose
//! settings allow such losses.

use super::noted::{Gap, Noted};
use super::resp;
use super::state::{Link, Redis};
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use crate::runtime::{log_no_room, log_silent};
use landfall_pmnet::SessionRow;
use landfall_pmnet::server::Trouble;

/// Settings with which a server keeps what it has confirmed.
const SETTINGS: [(&str, &str); 2] = [("appendonly", "yes"), ("appendfsync", "always")];

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
