//! The state of the server's side-car: its settings and reports, and its connection to the real server.

use super::ledger::Ledger;
use super::noted::Noted;
use super::poison::Poison;
use super::rejected::{RejectedFile, Rejection};
use super::upstream::{Access, Upstream, UpstreamError};
use crate::runtime::{Published, RuntimeError, ServerOptions, ServerReport};
use landfall_pmnet::{SessionKey, SessionRow};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

/// The PMNet application that executes work in the real server.
#[derive(Debug)]
pub(super) struct Redis {
    pub(super) config: ServerSideConfig,
    pub(super) link: Option<Link>,
    pub(super) report: RedisReport,
    pub(super) reports: Arc<ServerSideReports>,
    pub(super) stop: Arc<AtomicBool>,
    /// The ledger when the connection was lost, if no command was in doubt then.
    pub(super) known: Option<Ledger>,
    /// The rows that were committed when the connection was lost.
    pub(super) confirmed: BTreeMap<SessionKey, SessionRow>,
    /// Sessions that are behind, and therefore refused.
    pub(super) behind: Noted,
    pub(super) file: Option<RejectedFile>,
    /// Requests that may be why connections end.
    pub(super) poison: Poison,
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
    /// The server refuses scripts of the side-car, though it may execute those of users.
    pub(super) scriptless: bool,
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
        let (link, known, poison) = (None, None, Poison::default());
        Ok(Self { config, link, report, reports, stop, known, confirmed, behind, file, poison })
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

    pub(super) fn publish(&self) {
        self.reports.redis.set(self.report);
    }
}
