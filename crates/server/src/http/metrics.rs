//! `/metrics`: Prometheus text format, version 0.0.4.

use crate::context::Context;
use crate::counters::{COMMIT_BOUNDS_US, Counters};
use crate::files::FilesShown;
use crate::process;
use crate::shared::{Shared, now_ns};
use landfall_chain_io::Role;
use landfall_kv::{Engine, Stats};
use landfall_metrics::{Kind, Text};
use landfall_wal::WalStats;
use std::sync::atomic::{AtomicU64, Ordering};

/// The text of all metrics, with their current values.
pub(super) fn text(ctx: &Context<'_>) -> String {
    let mut text = Text::new("landfall");
    info(&mut text, ctx.shared, ctx.engine);
    counters(&mut text, &ctx.shared.counters);
    unfinished(&mut text, ctx.shared);
    commits(&mut text, &ctx.shared.counters);
    network(&mut text, ctx.shared);
    keys(&mut text, ctx.engine, &ctx.engine.stats());
    logs(&mut text, &ctx.logs.stats());
    landfall_metrics::region(&mut text, ctx.engine.heap());
    loads(&mut text, ctx.shared);
    chain(&mut text, ctx.shared);
    files(&mut text, ctx.shared);
    recovery(&mut text, ctx.shared);
    process_usage(&mut text, ctx.shared);
    text.into()
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn info(text: &mut Text, shared: &Shared, engine: &Engine) {
    let media = engine.heap().media();
    let labels = [
        ("version", env!("CARGO_PKG_VERSION")),
        ("run_id", &shared.run_id),
        ("media", media.kind().name()),
        ("media_description", &media.describe()),
        ("transport", shared.transport.name),
        ("transport_reason", &shared.transport.reason),
    ];
    text.metric(Kind::Gauge, "info", "What this server runs on; always 1.");
    text.sample("info", &labels, 1);
    let closed = u8::from(media.closed().is_some());
    text.gauge("region_closed", "1 once the region takes no more writes because the medium failed.", closed);
    text.gauge("uptime_seconds", "Time since the start.", shared.started.elapsed().as_secs_f64());
    text.gauge("workers", "Worker threads.", shared.config.workers);
}

fn counters(text: &mut Text, from: &Counters) {
    let all: [(&str, &str, &AtomicU64); 19] = [
        ("connections_total", "Connections accepted.", &from.connections),
        ("connections_rejected_total", "Connections refused: too many.", &from.rejected_connections),
        ("resp_commands_total", "RESP commands executed.", &from.commands),
        ("http_requests_total", "HTTP requests executed.", &from.http_requests),
        ("hits_total", "Reads that found their key.", &from.hits),
        ("misses_total", "Reads that did not find their key.", &from.misses),
        ("errors_total", "Replies that were errors.", &from.errors),
        ("input_bytes_total", "Bytes received.", &from.input_bytes),
        ("output_bytes_total", "Bytes sent.", &from.output_bytes),
        ("written_bytes_total", "Bytes written to the file behind the region.", &from.written_bytes),
        ("timeouts_total", "Connections closed for being idle or too slow.", &from.timeouts),
        ("overflows_total", "Replies refused because they would have been too long.", &from.overflows),
        (
            "unfinished_closed_total",
            "Connections closed because unfinished requests held too much.",
            &from.unfinished_closed,
        ),
        (
            "unauthenticated_closed_total",
            "Connections closed because they sent too much without authenticating.",
            &from.unauthenticated_closed,
        ),
        ("compacted_bytes_total", "Bytes that the compactor has moved.", &from.compacted_bytes),
        ("compacted_records_total", "Records that the compactor has rewritten.", &from.compacted_records),
        ("scrubbed_keys_total", "Keys checked by the scrub.", &from.scrubbed_keys),
        ("scrubbed_bytes_total", "Bytes checked by the scrub.", &from.scrubbed_bytes),
        ("scrub_findings_total", "Damage found by the scrub.", &from.scrub_findings),
    ];
    for (name, help, counter) in all {
        text.counter(name, help, read(counter));
    }
    text.gauge("connections", "Connections now.", read(&from.clients));
}

fn unfinished(text: &mut Text, shared: &Shared) {
    let unfinished = shared.engine.heap().unfinished_bytes();
    text.gauge("unfinished_bytes", "Bytes held by unfinished requests.", unfinished);
    let unauthenticated = read(&shared.counters.unauthenticated_bytes);
    text.gauge(
        "unauthenticated_bytes",
        "Bytes held by unfinished requests of unauthenticated clients.",
        unauthenticated,
    );
}

/// Counters of an AF_XDP transport: packets, and dropped packets by reason.
fn network(text: &mut Text, shared: &Shared) {
    const DROPPED: &str = "dropped_";
    let counters = shared.transport_counters();
    for (name, count) in counters.iter().filter(|(name, _)| !name.starts_with(DROPPED)) {
        let name = format!("net_{name}");
        text.metric(Kind::Untyped, &name, "A counter of the network stack: see docs/xdp.md.");
        text.sample(&name, &[], count);
    }
    if counters.is_empty() {
        return;
    }
    text.metric(Kind::Counter, "net_dropped_packets_total", "Packets dropped, by reason.");
    for (name, count) in &counters {
        if let Some(reason) = name.strip_prefix(DROPPED) {
            text.sample("net_dropped_packets_total", &[("reason", reason)], count);
        }
    }
}

/// Commit latency as a histogram, in seconds. The buckets are cumulative; the last one is the count.
fn commits(text: &mut Text, from: &Counters) {
    let name = "commit_duration_seconds";
    text.metric(Kind::Histogram, name, "Time from a commit's begin until it is durable.");
    let mut sum = 0;
    for (index, bucket) in from.commit_buckets.iter().enumerate() {
        sum += read(bucket);
        let bound = COMMIT_BOUNDS_US.get(index).map(|us| (*us as f64 / 1e6).to_string());
        let bound = bound.as_deref().unwrap_or("+Inf");
        text.sample(&format!("{name}_bucket"), &[("le", bound)], sum);
    }
    text.sample(&format!("{name}_sum"), &[], seconds(read(&from.commit_ns)));
    text.sample(&format!("{name}_count"), &[], sum);
    text.counter("commits_total", "Commits made durable.", read(&from.commits));
}

fn keys(text: &mut Text, engine: &Engine, stats: &Stats) {
    text.metric(Kind::Gauge, "keys", "Keys, expired ones included until they are purged.");
    for (database, keys) in stats.keys.iter().enumerate() {
        text.sample("keys", &[("db", &database.to_string())], keys);
    }
    text.gauge("keys_expiring", "Keys with a time to live.", stats.expiring.iter().sum::<u64>());
    text.gauge("keys_damaged", "Keys whose record cannot be read.", stats.damaged);
    text.gauge("tombstones", "Deletes that older records on the medium still need.", stats.tombstones);
    text.gauge("records_stale", "Records on the medium that are not current.", stats.stale);
    text.gauge("index_bytes", "Memory of the index, estimated, key bytes not counted.", stats.index_bytes);
    text.counter("expired_keys_total", "Keys purged because they expired.", engine.expired_keys());
}

fn logs(text: &mut Text, stats: &WalStats) {
    text.gauge("logs", "Logs.", stats.logs);
    text.gauge("log_entries", "Entries of logs.", stats.entries);
    text.gauge("log_bytes", "Bytes of entries of logs.", stats.bytes);
    text.gauge("log_index_bytes", "Memory of the index of logs.", stats.index_bytes);
    text.counter("log_entries_appended_total", "Entries appended to logs.", stats.appended);
    text.counter("log_entries_read_total", "Entries read from logs.", stats.read);
    text.counter("log_entries_trimmed_total", "Entries trimmed, by retention, too.", stats.trimmed);
}

/// Reads of what has left memory, where not all of the region is in it.
fn loads(text: &mut Text, shared: &Shared) {
    let Some(loads) = &shared.loads else { return };
    text.counter("loads_total", "Requests for bytes that had left memory.", read(&loads.counters.loads));
    text.counter("load_bytes_total", "Bytes of these requests.", read(&loads.counters.bytes));
}

/// The mounts of other processes, where the files are for such.
fn files(text: &mut Text, shared: &Shared) {
    let shown = shared.files.mount().map(|mount| mount.shown());
    let Some(FilesShown::Offloaded { mounts, away, .. }) = shown else { return };
    let silent = mounts.iter().filter(|mount| mount.silent.is_some()).count();
    text.gauge("files_mounts", "Mounts of other processes that are served now.", mounts.len());
    text.gauge("files_mounts_silent", "Those of them whose process does not answer.", silent);
    text.gauge(
        "files_away_seconds",
        "Time for which there has been no mount whose process answers.",
        away.unwrap_or_default().as_secs_f64(),
    );
}

/// The place in a chain, if there is one.
fn chain(text: &mut Text, shared: &Shared) {
    let Some(node) = &shared.chain else { return };
    let (role, sent) = (node.role(), &node.counters);
    text.gauge("chain_version", "Version of the view of the chain.", node.view().version);
    text.gauge("chain_first", "1 if this node takes writes.", u8::from(role == Role::First));
    text.gauge(
        "chain_serves",
        "1 if this node answers clients.",
        u8::from(matches!(role, Role::First | Role::Replica)),
    );
    text.gauge(
        "chain_in_step",
        "1 if this node has everything that the chain has acknowledged.",
        u8::from(node.is_in_step()),
    );
    text.gauge(
        "chain_copies_behind",
        "Nodes behind this one that have what it acknowledges.",
        node.copies_behind(),
    );
    if let Some(lease) = node.views().lease() {
        let fenced = u8::from(role == Role::Fenced);
        text.gauge("chain_fenced", "1 if this node has no proof that it still has its place.", fenced);
        let registered = u8::from(lease.is_registered());
        text.gauge(
            "chain_registered",
            "1 if etcd has shown lately that this node is registered.",
            registered,
        );
        let age = lease.age().map_or(f64::INFINITY, |age| age.as_secs_f64());
        text.gauge("chain_etcd_age_seconds", "Time since etcd has shown that.", age);
    }
    if let Some((free, _)) = node.room_behind() {
        text.gauge("chain_room_bytes", "Bytes that can be written at all nodes behind this one.", free);
    }
    text.gauge(
        "chain_troubles",
        "What keeps the chain from its work at this node: INFO replication says it.",
        node.troubles().len(),
    );
    text.gauge(
        "chain_next_full",
        "1 if the next node refuses what it is sent, as it has no room.",
        u8::from(node.is_full_behind()),
    );
    chunks(text, sent);
    copies(text, sent);
}

fn chunks(text: &mut Text, sent: &landfall_chain_io::Counters) {
    text.counter("chain_batches_total", "Batches that the next node has acknowledged.", read(&sent.batches));
    text.counter(
        "chain_own_batches_total",
        "Batches of these that were sent without another thread.",
        read(&sent.own_batches),
    );
    text.counter("chain_batch_seconds_total", "Time that they took.", seconds(read(&sent.batch_ns)));
    text.counter(
        "chain_send_seconds_total",
        "Time of that until they were sent.",
        seconds(read(&sent.send_ns)),
    );
    text.counter(
        "chain_taken_bytes_total",
        "Bytes of values in chunks from the node before.",
        read(&sent.taken_bytes),
    );
    text.counter(
        "chain_take_seconds_total",
        "Time in which these were verified and their records appended.",
        seconds(read(&sent.take_ns)),
    );
    text.counter(
        "chain_value_bytes_total",
        "Bytes of values sent to the next node.",
        read(&sent.value_bytes),
    );
    text.counter(
        "chain_wire_bytes_total",
        "Bytes of the messages with these values as they were sent.",
        read(&sent.wire_bytes),
    );
    text.counter(
        "chain_packed_bytes_total",
        "Bytes of values sent compressed, before that.",
        read(&sent.packed_bytes),
    );
    text.counter(
        "chain_saved_bytes_total",
        "Bytes by which compression made them fewer.",
        read(&sent.saved_bytes),
    );
    text.counter(
        "chain_unpacked_bytes_total",
        "Bytes of values that came compressed from the node before.",
        read(&sent.unpacked_bytes),
    );
    text.counter("chain_connections_total", "Connections made to the next node.", read(&sent.connections));
}

fn copies(text: &mut Text, sent: &landfall_chain_io::Counters) {
    text.counter("chain_copies_total", "Copies to the next node that have ended well.", read(&sent.copies));
    text.counter(
        "chain_compared_records_total",
        "Records that copies have gone through.",
        read(&sent.compared_records),
    );
    text.counter(
        "chain_copied_keys_total",
        "Records that copies have sent: the next node did not have them.",
        read(&sent.copied_keys),
    );
    text.counter("chain_copy_bytes_total", "Bytes of all messages of copies.", read(&sent.copy_bytes));
}

fn recovery(text: &mut Text, shared: &Shared) {
    let found = &shared.recovered;
    text.gauge("recovery_seconds", "How long recovery took at start.", seconds(shared.recovery_ns));
    text.gauge("recovery_records", "Records read by recovery.", found.records);
    text.gauge(
        "recovery_corrected",
        "Records with one flipped bit that recovery corrected.",
        found.corrected.len(),
    );
    text.gauge("recovery_damaged", "Records that recovery could not read.", found.damaged.len());
}

fn process_usage(text: &mut Text, shared: &Shared) {
    let usage = process::usage();
    text.metric(Kind::Counter, "process_cpu_seconds_total", "User and system time of the process.");
    text.sample("process_cpu_seconds_total", &[], usage.user_seconds + usage.system_seconds);
    text.gauge("process_resident_memory_bytes", "Resident set of the process.", usage.resident_bytes);
    text.gauge("process_threads", "Threads of the process.", usage.threads);
    let start = seconds(now_ns()) - shared.started.elapsed().as_secs_f64();
    text.gauge(
        "process_start_time_seconds",
        "Start of the process, Unix seconds.",
        format_args!("{start:.3}"),
    );
}
