//! What a mount says of itself, as extended attributes of every file that are computed and not stored:
//! `landfall.metrics` is the page of metrics, `landfall.inode` says where a file's data are, `landfall.link` is the path of
//! the socket to which libraries connect. Who reads them needs no address. The first two look at every run and every piece
//! of a file, while others wait: only root and the user of the mount may ask for them.

use crate::counters::{Counters, RequestKind, read};
use crate::errors::NOT_SUPPORTED;
use crate::link::{Fenced, Link, Why};
use crate::rounds::{Job, Rounds};
use crate::service::Service;
use crate::sys;
use landfall_fs::{Files, InodeNumber, Placed, Stage};
use landfall_fuse::Errno;
use landfall_metrics::{Kind, Text};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// Prefix of these names. No attribute with such a name can be stored.
const PREFIX: &[u8] = b"landfall.";
/// The page of metrics.
const METRICS: &[u8] = b"landfall.metrics";
/// Where the data of a file are.
const INODE: &[u8] = b"landfall.inode";
/// The socket to which libraries connect.
pub(crate) const LINK: &[u8] = b"landfall.link";

/// Whether a name is that of an attribute which is computed.
pub(crate) fn is_computed(name: &OsStr) -> bool {
    name.as_bytes().starts_with(PREFIX)
}

/// Refuses to store an attribute whose name is one of these.
///
/// # Errors
/// `EOPNOTSUPP`
pub(crate) fn check_stored(name: &OsStr) -> Result<(), Errno> {
    if is_computed(name) { Err(NOT_SUPPORTED) } else { Ok(()) }
}

/// The value of an attribute, if its name is one of these.
///
/// # Errors
/// `ENODATA` for unknown names; `EACCES` for users who may not ask; the failure's.
pub(crate) fn value(
    service: &Service,
    uid: u32,
    number: InodeNumber,
    name: &OsStr,
) -> Option<Result<String, Errno>> {
    match name.as_bytes() {
        METRICS | INODE if uid != 0 && uid != sys::own_user() => Some(Err(Errno::from_raw(libc::EACCES))),
        METRICS => Some(Ok(metrics(service))),
        INODE => Some(service.retry(|| service.files.placed(number)).map(|placed| of_inode(number, &placed))),
        LINK => {
            let socket = service.socket().and_then(|socket| socket.to_str()).map(str::to_owned);
            Some(socket.ok_or(Errno::from_raw(libc::ENODATA)))
        }
        name if name.starts_with(PREFIX) => Some(Err(Errno::from_raw(libc::ENODATA))),
        _ => None,
    }
}

fn of_inode(number: InodeNumber, placed: &Placed) -> String {
    let mut text = String::new();
    let lines = [
        ("inode", number.0),
        ("data_records", placed.records),
        ("published_bytes", placed.published_bytes),
        ("log_bytes", placed.log_bytes),
        ("reserved_bytes", placed.reserved_bytes),
        ("extents", placed.extents),
    ];
    for (name, value) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} {value}");
    }
    text
}

/// The page of metrics: Prometheus text format.
pub(crate) fn metrics(service: &Service) -> String {
    let mut text = Text::new("landfall_fs");
    let media = service.files.heap().media();
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("media", media.kind().name()),
        ("media_description", &media.describe()),
    ];
    text.metric(Kind::Gauge, "info", "What this mount runs on; always 1.");
    text.sample("info", &labels, 1);
    let closed = u8::from(media.closed().is_some());
    text.gauge("region_closed", "1 once the region takes no more writes because the medium failed.", closed);
    requests(&mut text, &service.common.counters);
    text.counter(
        "dropped_caches_total",
        "Files that the kernel was made to drop: written little by little, or appended to by libraries.",
        service.forgetter.dropped(),
    );
    commits(&mut text, &service.common.counters);
    publishing(&mut text, &service.files, &service.common.counters);
    space(&mut text, &service.common.rounds, &service.common.counters);
    service.libraries().into_iter().for_each(|link| libraries(&mut text, link));
    text.gauge("inodes", "Inodes, those without a name included.", service.files.inode_count());
    let (locks, waiting) = service.common.locking.counts();
    text.gauge("locks", "Locks of files that shared mounts have.", locks);
    text.gauge("lock_waits", "Requests that wait for one.", waiting);
    let (leases, recalls) = service.common.leases.counts();
    text.gauge("leases_elsewhere", "Inodes of which mounts on other machines may keep something.", leases);
    text.counter(
        "leases_elsewhere_recalls_total",
        "Requests that had to wait until leases were dropped.",
        recalls,
    );
    text.gauge("known_inodes", "Inodes that the kernel knows.", service.common.lives.len());
    landfall_metrics::region(&mut text, service.files.heap());
    text.into()
}

fn requests(text: &mut Text, counters: &Counters) {
    text.metric(Kind::Counter, "requests_total", "Requests of the kernel, by kind.");
    for (kind, label) in RequestKind::ALL {
        text.sample("requests_total", &[("kind", label)], counters.requests(kind).count());
    }
    text.metric(
        Kind::Counter,
        "request_seconds_total",
        "Time from a request's arrival to its reply or, where it waits for the medium, to its turn.",
    );
    for (kind, label) in RequestKind::ALL {
        text.sample("request_seconds_total", &[("kind", label)], counters.requests(kind).seconds());
    }
    text.counter("read_bytes_total", "Bytes that were read.", read(&counters.read_bytes));
    text.counter("written_bytes_total", "Bytes that were written.", read(&counters.written_bytes));
}

fn commits(text: &mut Text, counters: &Counters) {
    text.counter("commits_total", "Commits that requests waited for.", counters.commits.count());
    text.counter("commit_seconds_total", "Time of these commits.", counters.commits.seconds());
    text.counter(
        "committed_requests_total",
        "Requests that these commits served.",
        read(&counters.committed_requests),
    );
}

/// Labels of the stages of publishing.
const STAGES: [(Stage, &str); 4] = [
    (Stage::Fetch, "fetch"),
    (Stage::Log, "log"),
    (Stage::Commit, "commit"),
    (Stage::Acknowledge, "acknowledge"),
];

fn publishing(text: &mut Text, files: &Files, counters: &Counters) {
    let (operations, bytes) = files.log_len();
    text.gauge("log_operations", "Operations in the log that are not published.", operations);
    text.gauge("log_bytes", "Bytes of these operations.", bytes);
    text.counter("chunks_total", "Chunks of the log that were published.", counters.chunks.count());
    text.counter("publish_seconds_total", "Time of publishing.", counters.chunks.seconds());
    let name = "publish_stage_seconds_total";
    let help = "Time of publishing, by stage: records put together, log made durable, records committed and applied.";
    text.metric(Kind::Counter, name, help);
    for (stage, label) in STAGES {
        text.sample(name, &[("stage", label)], counters.stage_seconds(stage));
    }
    text.counter(
        "published_operations_total",
        "Operations that were published.",
        read(&counters.published_operations),
    );
    text.counter(
        "published_records_total",
        "Records of the tree written.",
        read(&counters.published_records),
    );
    text.counter(
        "relinked_bytes_total",
        "Bytes of data to which published records refer where they landed, without a copy.",
        read(&counters.relinked_bytes),
    );
    text.counter(
        "coalesced_bytes_total",
        "Bytes of operations that later ones of their chunk have undone, so that nothing refers to them.",
        read(&counters.coalesced_bytes),
    );
    text.counter(
        "undone_inodes_total",
        "Inodes that a chunk made and deleted again, so that nothing of them was written.",
        read(&counters.undone_inodes),
    );
}

/// What libraries in other programs do. Where there can be none, nothing is shown.
fn libraries(text: &mut Text, link: &Link) {
    let ((attached, leases), counts) = (link.attached(), link.counts());
    text.gauge("libraries", "Libraries in other programs that are attached.", attached);
    text.gauge("leases", "Leases of files that they have.", leases);
    text.counter("leases_granted_total", "Leases that were granted.", counts.granted());
    text.metric(
        Kind::Counter,
        "leases_ended_total",
        "Leases that have ended: in conflict with another program, by the library itself, unused, or with the library.",
    );
    for (why, label) in Why::ALL {
        text.sample("leases_ended_total", &[("why", label)], counts.taken_back(why));
    }
    let (operations, bytes) = counts.adopted();
    text.counter("library_operations_total", "Operations of libraries that were adopted.", operations);
    text.counter("library_bytes_total", "Bytes of these operations.", bytes);
    text.metric(
        Kind::Counter,
        "library_logs_ended_total",
        "Logs of libraries that were ended because of a broken rule, or because a lease was not given back in time.",
    );
    for (why, label) in Fenced::ALL {
        text.sample("library_logs_ended_total", &[("why", label)], counts.fenced(why));
    }
}

fn space(text: &mut Text, rounds: &Rounds, counters: &Counters) {
    text.counter("space_waits_total", "Requests that waited for space.", counters.space_waits.count());
    text.counter("space_wait_seconds_total", "Time of these waits.", counters.space_waits.seconds());
    let help = "Requests that waited because too much of the log was not published.";
    text.counter("backlog_waits_total", help, counters.backlog_waits.count());
    text.counter("backlog_wait_seconds_total", "Time of these waits.", counters.backlog_waits.seconds());
    let help = "Writes that waited as others waited until something was durable, and enough had gathered behind that.";
    text.counter("pace_waits_total", help, counters.pace_waits.count());
    text.counter("pace_wait_seconds_total", "Time of these waits.", counters.pace_waits.seconds());
    text.metric(Kind::Gauge, "space_wanted", "1 while requests for space wait for a background thread.");
    for (job, label) in [(Job::Publish, "publish"), (Job::Keep, "keep")] {
        text.sample("space_wanted", &[("thread", label)], u8::from(rounds.is_asked(job)));
    }
}
