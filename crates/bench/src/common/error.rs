//! What can go wrong while measuring.

use std::path::PathBuf;

/// Characters of an unexpected reply that are shown.
const REPLY_SHOWN: usize = 200;

/// Why a measurement could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// Environment: a file or folder.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    /// Environment: a program that could not be started.
    #[error("cannot start {program}: {source}")]
    Spawn { program: String, source: std::io::Error },
    /// Peer: a server that ended or did not become ready.
    #[error("{peer} did not become ready within {seconds} s; the end of its log: {log}")]
    NotReady { peer: String, seconds: u64, log: String },
    /// Peer: the connection broke.
    #[error("connection to {peer}: {source}")]
    Connection { peer: String, source: std::io::Error },
    /// Peer: a reply that does not fit the request.
    #[error("{peer} answered {reply} where {expected} was expected")]
    Reply { peer: String, reply: String, expected: &'static str },
    /// Peer: a server did not execute the updates that were acknowledged to its clients.
    #[error(
        "{sent} updates were acknowledged; the server has executed {applied} and rejected {rejected} (incarnations: \
         {incarnations})"
    )]
    NotExecuted { sent: u64, applied: u64, rejected: u64, incarnations: u64 },
    /// Environment: the client program failed.
    #[error("{program} failed ({status}): {output}")]
    Client { program: &'static str, status: String, output: String },
    /// Environment: something took longer than it may.
    #[error("{what} took longer than {seconds} s")]
    TooLong { what: String, seconds: u64 },
    /// Environment: a server that was measured is not there any more.
    #[error("{0}: one of its servers has died")]
    Died(String),
    /// Environment: no hosts to measure between.
    #[error(
        "no hosts can be made here: {0} (`landfall bench paper` and `pmnet` need root and the program ip)"
    )]
    Hosts(#[from] landfall_testbed::Unavailable),
    /// Environment: something that a comparison needs is not installed.
    #[error("{0}")]
    Missing(String),
    /// A failure of Landfall's own store in this process.
    #[error("the store failed: {0}")]
    Store(String),
    /// Misuse: nothing to measure.
    #[error("{0}")]
    Nothing(&'static str),
    /// Environment: a plot could not be drawn.
    #[error("plot {}: {message}", path.display())]
    Plot { path: PathBuf, message: String },
    /// Misuse: a folder without a report.
    #[error(
        "{}: there is no kv.json, paper.json, pmnet.json, fs.json or linefs.json here; name the folder that a measurement \
         wrote its report into (--out)", .0.display()
    )]
    NoReport(PathBuf),
    /// Misuse: a file that is not a report of this build's measurements.
    #[error(
        "{}: not a report of this build's `landfall bench {bench}`: {reason}; draw it with the version that wrote it, or \
         measure again", path.display()
    )]
    Report { path: PathBuf, bench: &'static str, reason: serde_json::Error },
    /// The user pressed Ctrl-C.
    #[error("interrupted; servers are ended and their folders removed")]
    Interrupted,
}

impl BenchError {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self + use<'_> {
        move |source| Self::File { path: path.into(), source }
    }

    pub(crate) fn connection(peer: &str) -> impl Fn(std::io::Error) -> Self + use<'_> {
        move |source| Self::Connection { peer: peer.into(), source }
    }

    pub(crate) fn reply(peer: &str, reply: impl std::fmt::Debug, expected: &'static str) -> Self {
        let reply = format!("{reply:?}").chars().take(REPLY_SHOWN).collect();
        Self::Reply { peer: peer.into(), reply, expected }
    }
}
