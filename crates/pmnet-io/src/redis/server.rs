//! The server's side-car, between PMNet and a real server of the Redis protocol.
//!
//! A batch of requests becomes one `MULTI ... EXEC` together with the rows of its sessions, so that effects and rows
//! are committed together. The side-car watches the key with its generation from each transaction to the next: if
//! another side-car takes over, or the keys are flushed, `EXEC` does nothing.

pub use super::state::{RedisReport, ServerSideConfig, ServerSideReports};

use super::commit::{Commit, keep, too_long};
use super::doubts::settle;
use super::ledger::{Flush, Ledger, Meta, Staged};
use super::poison::REFUSAL;
use super::rejected::Rejection;
use super::resp;
use super::state::{Link, Redis};
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use crate::runtime::{Application, Network, Outcome, RuntimeError, Saved, random, serve};
use landfall_pmnet::Work;
use landfall_pmnet::server::{ResponseTooLong, Trouble};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Most attempts to take over, if other side-cars try to do so at the same time.
const TAKE_OVER_MAX: u32 = 10;

/// Runs the server's side-car until `stop` is true.
///
/// # Errors
/// [`RuntimeError`]: a system call failed, or the side-car cannot continue, for example because another has taken over.
pub fn run(
    config: ServerSideConfig,
    reports: Arc<ServerSideReports>,
    stop: Arc<AtomicBool>,
) -> Result<(), RuntimeError> {
    let options = config.options.clone();
    let network = reports.network.clone();
    let mut application = Redis::new(config, reports, Arc::clone(&stop))?;
    serve(options, &mut application, network, &stop)
}

/// Reads the rejected commands that are kept in the real server, oldest first.
///
/// # Errors
/// [`UpstreamError`].
pub fn rejected(config: &ServerSideConfig) -> Result<Vec<Rejection>, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let meta = Meta::fetch(&mut upstream, &config.prefix)?.unwrap_or_default();
    let mut found = Vec::new();
    for number in meta.rejected.saturating_sub(config.rejected_max)..meta.rejected {
        upstream.push(&[b"GET", Ledger::rejected_key(&config.prefix, number).as_bytes()]);
        let reply = upstream.call(None)?;
        found.extend(resp::bulk(&reply).and_then(Rejection::from_bytes));
    }
    Ok(found)
}

impl Redis {
    /// Takes over the keys of the prefix: a side-car that has watched the generation before commits nothing any more.
    /// Returns the ledger and the generation before.
    pub(super) fn take_over(&self, upstream: &mut Upstream) -> Result<(Ledger, u64), UpstreamError> {
        let prefix = &self.config.prefix;
        let key = Ledger::meta_key(prefix);
        for _ in 0..TAKE_OVER_MAX {
            upstream.push(&[b"WATCH", key.as_bytes()]);
            refuse_errors(&upstream.call(None)?, "to watch a key")?;
            let before = Meta::fetch(upstream, prefix)?.unwrap_or_default();
            let meta = Meta { generation: random()?, ..before };
            if let Some(ledger) = self.claim(upstream, meta)? {
                return Ok((ledger, before.generation));
            }
        }
        Err(UpstreamError::Fenced)
    }

    /// Writes our generation and reads every row, in one transaction. `None` if another side-car was faster.
    fn claim(&self, upstream: &mut Upstream, meta: Meta) -> Result<Option<Ledger>, UpstreamError> {
        let prefix = &self.config.prefix;
        upstream.push(&[b"MULTI"]);
        upstream.push(&[b"SET", Ledger::meta_key(prefix).as_bytes(), meta.to_text().as_bytes()]);
        let mut chunks = 0;
        for words in Ledger::reads(prefix, meta.slots) {
            upstream.push(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
            chunks += 1;
        }
        upstream.push(&[b"EXEC"]);
        upstream.send()?;
        for _ in 0..chunks + 2 {
            refuse_errors(&upstream.reply(None)?, "the rows of sessions")?;
        }
        let reply = upstream.reply(None)?;
        refuse_errors(&reply, "the rows of sessions")?;
        let Some(parts) = resp::elements_of(&reply) else { return Ok(None) };
        let mut ledger = Ledger::new(prefix, meta);
        let mut slot = 0;
        for values in &parts[1..] {
            refuse_errors(values, "the rows of sessions")?;
            for value in resp::elements_of(values).unwrap_or_default() {
                ledger.found(slot, resp::bulk(value))?;
                slot += 1;
            }
        }
        Ok(Some(ledger))
    }

    fn connect(&mut self) -> Result<Link, UpstreamError> {
        let mut upstream = Upstream::connect(&self.config.access())?;
        self.check_durable(&mut upstream)?;
        let (ledger, before) = self.take_over(&mut upstream)?;
        // No other side-car has taken over since, and no transaction was committed whose replies were lost.
        let is_old = |known: &Ledger| known.meta.generation == before && known.has_rows_of(&ledger);
        let settled = self.known.take().is_some_and(|known| is_old(&known));
        let mut link = Link { upstream, ledger, doubt: settled, settled, flushed: false, scriptless: false };
        self.find_behind(&mut link)?;
        link.ledger.watch(&mut link.upstream)?;
        if !settled {
            self.keep_doubts(&mut link)?;
        }
        self.replicate(&mut link, None)?;
        Ok(link)
    }

    /// Keeps the commands in doubt of an earlier connection, except those that were executed.
    fn keep_doubts(&mut self, link: &mut Link) -> Result<(), UpstreamError> {
        link.upstream.push(&[b"GET", Ledger::doubt_key(&self.config.prefix).as_bytes()]);
        let reply = link.upstream.call(None)?;
        if let Some(noted) = resp::bulk(&reply) {
            link.doubt = true;
            let doubts = settle(Rejection::in_doubt(noted), link)?;
            keep(doubts, self, link, None)?;
        }
        link.settled = true;
        Ok(())
    }

    /// Executes a batch, and what may have ended connections alone. Behind something that failed nothing is executed.
    fn execute_parts(
        &mut self,
        batch: &[Work],
        link: &mut Link,
        network: &mut Network,
    ) -> Result<Vec<Outcome>, UpstreamError> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for part in self.poison.parts(batch) {
            if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed)) {
                break;
            }
            let mut commit = Commit::new(part);
            if self.poison.is_refused(part) {
                tracing::error!(
                    "the Redis server ends the connection whenever a command is sent: it is refused"
                );
                commit.refuse_all(REFUSAL);
            }
            match commit.run(self, link, network) {
                Ok(done) => outcomes.extend(done),
                Err(error) => {
                    if matches!(error, UpstreamError::Lost(_)) {
                        self.poison.note_lost(part);
                    }
                    return Err(error);
                }
            }
            self.poison.note_done(part);
        }
        outcomes.resize_with(batch.len(), || Outcome::Failed);
        Ok(outcomes)
    }

    /// Writes all rows again after another program has flushed the keys.
    pub(super) fn restore(&mut self, link: &mut Link, network: &mut Network) -> Result<(), UpstreamError> {
        tracing::warn!(
            prefix = link.ledger.prefix(),
            "the rows of sessions were flushed; writing them again"
        );
        let staged: Staged = link.ledger.stage(std::iter::empty(), 0, Flush::Certain);
        link.upstream.speak(false).then(|| link.upstream.call(None)).transpose()?;
        // The generation was flushed with the rows, so that there is no key to watch.
        link.ledger.write(&mut link.upstream, &staged, &[])?;
        self.report.restored += 1;
        link.flushed = false;
        link.ledger.watch(&mut link.upstream)?;
        self.replicate(link, Some(network))
    }
}

impl Application for Redis {
    type Error = UpstreamError;

    fn load(&mut self) -> Result<Saved, UpstreamError> {
        self.link = None;
        let link = self.connect()?;
        let mut saved = link.ledger.saved();
        saved.behind = self.behind.0.iter().map(|(key, gap)| (*key, gap.confirmed)).collect();
        self.link = Some(link);
        self.report.connections += 1;
        self.publish();
        Ok(saved)
    }

    fn execute(&mut self, batch: &[Work], network: &mut Network) -> Result<Vec<Outcome>, UpstreamError> {
        let closed = || UpstreamError::Lost(std::io::ErrorKind::NotConnected.into());
        let mut link = self.link.take().ok_or_else(closed)?;
        let outcomes = self.execute_parts(batch, &mut link, network);
        // If replicas are missing, only the confirmation is missing. The connection can still be used.
        if matches!(outcomes, Ok(_) | Err(UpstreamError::Replicas { .. })) {
            self.link = Some(link);
        } else {
            // With replicas, the last commit may not be confirmed.
            if self.config.replicas == 0 {
                self.confirmed = link.ledger.clone().into_rows();
            }
            self.known = Some(link.ledger).filter(|_| link.settled);
        }
        self.publish();
        outcomes
    }

    fn trouble(&mut self, trouble: &Trouble) {
        self.note_trouble(trouble);
    }

    fn too_long(&self, response: &ResponseTooLong) -> Vec<u8> {
        too_long(response.len, response.max)
    }

    fn is_fatal(&self, error: &UpstreamError) -> bool {
        use UpstreamError::{Fenced, Foreign, Undurable};
        matches!(error, Fenced | Foreign { .. } | Undurable { .. })
    }
}

impl Drop for Redis {
    /// After a clean end, no command is in doubt: deletes the note.
    fn drop(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| link.doubt && link.settled) else { return };
        // The transaction does nothing if another side-car has taken over, because the note is then that side-car's.
        link.upstream.push(&[b"MULTI"]);
        link.upstream.push(&[b"DEL", Ledger::doubt_key(&self.config.prefix).as_bytes()]);
        link.upstream.push(&[b"EXEC"]);
        // If this fails, the next start reports the commands needlessly.
        let sent = link.upstream.send();
        let _ = sent.and_then(|()| (0..3).try_for_each(|_| link.upstream.reply(None).map(drop)));
    }
}
