//! The server's side-car, between PMNet and a real server of the Redis protocol.
//!
//! A batch of requests becomes one `MULTI ... EXEC` together with the rows of its sessions, so that effects and rows
//! are committed together. The side-car watches the key with its generation from each transaction to the next: if
//! another side-car takes over, or the keys are flushed, `EXEC` does nothing.

use super::behind::Noted;
use super::commit::{Commit, keep};
use super::doubts::settle;
use super::ledger::{Ledger, Meta, Staged};
use super::rejected::{RejectedFile, Rejection};
use super::resp;
use super::upstream::{Access, Upstream, UpstreamError, refuse_errors};
use crate::runtime::{
    Application, Network, Outcome, Published, RuntimeError, Saved, ServerOptions, ServerReport, random, serve,
};
use landfall_pmnet::server::{ResponseTooLong, Trouble};
use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Most attempts to take over, if other side-cars try to do so at the same time.
const TAKE_OVER_MAX: u32 = 10;

/// Settings of the server's side-car.
#[derive(Clone, Debug)]
pub struct ServerSideConfig {
    /// Settings of the PMNet server.
    pub options: ServerOptions,
    /// Address of the real server.
    pub redis: SocketAddr,
    /// User at the real server; `None` for the default user.
    pub user: Option<String>,
    /// Password of the user, if any.
    pub password: Option<String>,
    /// Prefix of the keys under which the side-car stores its rows.
    pub prefix: String,
    /// Number of replicas that must have a commit before it is confirmed. The wait for them has no timeout.
    pub replicas: u32,
    /// Longest wait for a reply of the real server.
    pub reply_limit: Duration,
    /// Accept a real server that may lose confirmed data when it ends unexpectedly.
    pub accept_data_loss: bool,
    /// File to which rejected commands are also written, if any.
    pub rejected_file: Option<PathBuf>,
    /// Number of the latest rejected commands that are kept in the real server.
    pub rejected_max: u64,
}

impl ServerSideConfig {
    /// The default settings.
    pub fn new(listen: SocketAddr, redis: SocketAddr) -> Self {
        Self {
            options: ServerOptions::new(listen),
            redis,
            user: None,
            password: None,
            prefix: "landfall:pmnet".to_owned(),
            replicas: 0,
            reply_limit: Duration::from_secs(10),
            accept_data_loss: false,
            rejected_file: None,
            rejected_max: 1024,
        }
    }

    pub(super) fn access(&self) -> Access {
        let (user, password) = (self.user.clone(), self.password.clone());
        Access { address: self.redis, user, password, limit: self.reply_limit }
    }
}

/// Report of the server's side-car about the real server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedisReport {
    /// Connections opened to the real server.
    pub connections: u64,
    /// Transactions committed.
    pub transactions: u64,
    /// Updates executed.
    pub updates: u64,
    /// Bypasses executed.
    pub bypasses: u64,
    /// Acknowledged updates that the server rejected; they are kept for inspection.
    pub rejected: u64,
    /// Transactions that the server refused for reasons of its own. Their updates wait and are tried again.
    pub refused: u64,
    /// How often the rows were flushed and written again.
    pub restored: u64,
    /// Sessions that were refused, because the server has lost confirmed updates of them.
    pub behind: u64,
    /// Rows that another program had changed or removed.
    pub foreign_rows: u64,
    /// How often missing updates were requested and did not arrive.
    pub missing: u64,
    /// How often too few replicas had a commit, so that all requests waited for them.
    pub shortages: u64,
}

/// The reports of the server's side-car.
#[derive(Debug, Default)]
pub struct ServerSideReports {
    /// Report about the network.
    pub network: Arc<Published<ServerReport>>,
    /// Report about the real server.
    pub redis: Published<RedisReport>,
}

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

/// The PMNet application that executes work in the real server.
#[derive(Debug)]
pub(super) struct Redis {
    pub(super) config: ServerSideConfig,
    pub(super) link: Option<Link>,
    pub(super) report: RedisReport,
    reports: Arc<ServerSideReports>,
    pub(super) stop: Arc<AtomicBool>,
    /// The ledger when the connection was lost, if no command was in doubt then.
    known: Option<Ledger>,
    /// The rows that were committed when the connection was lost.
    pub(super) confirmed: BTreeMap<SessionKey, SessionRow>,
    /// Sessions that are behind, and therefore refused.
    pub(super) behind: Noted,
    file: Option<RejectedFile>,
}

/// A connection to the real server, and what is known of its state.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) upstream: Upstream,
    pub(super) ledger: Ledger,
    /// The note of commands in doubt exists.
    pub(super) doubt: bool,
    /// All rejections of committed transactions are kept, so that the note is not needed any more.
    pub(super) settled: bool,
    /// The rows have been flushed.
    pub(super) flushed: bool,
}

impl Link {
    /// Checks the generation after a transaction. It is ours, or flushed, or that of another side-car, which is an
    /// error.
    pub(super) fn check(&mut self, now: Option<&[u8]>) -> Result<(), UpstreamError> {
        self.flushed |= now.is_none();
        let ours = self.ledger.meta.to_text();
        if now.is_some_and(|text| text != ours.as_bytes()) { Err(UpstreamError::Fenced) } else { Ok(()) }
    }
}

impl Redis {
    pub(super) fn new(
        config: ServerSideConfig,
        reports: Arc<ServerSideReports>,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, RuntimeError> {
        let open = |path: &PathBuf| RejectedFile::open(path);
        let file = config.rejected_file.as_ref().map(open).transpose();
        let file = file
            .map_err(|source| RuntimeError::Kernel { what: "open the file of rejected commands", source })?;
        let (report, confirmed, behind) = (RedisReport::default(), BTreeMap::new(), Noted::default());
        Ok(Self { config, link: None, report, reports, stop, known: None, confirmed, behind, file })
    }

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
        let mut link = Link { upstream, ledger, doubt: settled, settled, flushed: false };
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

    /// Counts and logs rejected commands, and writes them to the file. The real server has them already.
    pub(super) fn reject(&mut self, rejections: &[Rejection]) {
        for rejection in rejections {
            self.report.rejected += 1;
            let (command, error, session) = (rejection.command(), &rejection.error, &rejection.session);
            tracing::error!(%error, %session, %command, "an acknowledged command was rejected; it is kept for inspection");
            let filed = self.file.as_mut().map(|file| file.append(rejection));
            if let Some(Err(error)) = filed {
                tracing::error!(%error, "cannot write to the file of rejected commands");
            }
        }
    }

    /// Writes all rows again after another program has flushed the keys.
    pub(super) fn restore(&mut self, link: &mut Link, network: &mut Network) -> Result<(), UpstreamError> {
        tracing::warn!(
            prefix = link.ledger.prefix(),
            "the rows of sessions were flushed; writing them again"
        );
        let staged: Staged = link.ledger.stage(std::iter::empty(), 0, true);
        link.upstream.speak(false).then(|| link.upstream.call(None)).transpose()?;
        // The generation was flushed with the rows, so that there is no key to watch.
        link.ledger.write(&mut link.upstream, &staged, &[])?;
        self.report.restored += 1;
        link.flushed = false;
        link.ledger.watch(&mut link.upstream)?;
        self.replicate(link, Some(network))
    }

    pub(super) fn publish(&self) {
        self.reports.redis.set(self.report);
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
        let outcomes = Commit::new(batch).run(self, &mut link, network);
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

/// The error that a client gets in the place of a reply that is too long.
pub(super) fn too_long(len: usize, max: usize) -> Vec<u8> {
    resp::error(&format!(
        "ERR the reply of {len} bytes is longer than the {max} that the server's side-car takes; the command was executed: \
         raise --max-reply of landfall pmnet server, or ask for less at once"
    ))
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
