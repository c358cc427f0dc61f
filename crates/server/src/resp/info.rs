//! `INFO`: the sections that tools read, with Redis' names, and sections of Landfall's own.

use super::command::{Call, Spec};
use super::connection::REDIS_VERSION;
use super::fail::Fail;
use super::flags::Flags;
use super::role::Part;
use crate::counters::COMMIT_BOUNDS_US;
use crate::files::FilesShown;
use crate::process;
use crate::shared::Shared;
use landfall_chain::Standing;
use landfall_chain_io::{CopyProgress, Counters, Node};
use landfall_heap::{CopyPath, RECORD_SIZE};
use landfall_kv::Stats;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) const SPECS: &[Spec] = &[Spec::new(
    "info",
    -1,
    Flags::SERVER.and(Flags::STATS),
    info,
    "server",
    "Returns information and statistics about the server.",
)];

/// The text of one reply.
struct Text {
    lines: String,
    now_ms: u64,
    stats: Stats,
}

impl Text {
    fn line(&mut self, name: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.lines, "{name}:{value}\r\n");
    }

    fn count(&mut self, name: &str, counter: &AtomicU64) {
        self.line(name, counter.load(Ordering::Relaxed));
    }
}

type Section = fn(&mut Text, &Shared);

/// Every section, in the order shown. The last four are Landfall's own and are shown by default, too.
const SECTIONS: [(&str, &str, Section); 12] = [
    ("server", "Server", server),
    ("clients", "Clients", clients),
    ("memory", "Memory", memory),
    ("persistence", "Persistence", persistence),
    ("stats", "Stats", statistics),
    ("replication", "Replication", replication),
    ("cpu", "CPU", cpu),
    ("keyspace", "Keyspace", keyspace),
    ("landfall", "Landfall", landfall),
    ("network", "Network", network),
    ("logs", "Logs", logs),
    ("files", "Files", files),
];

const EVERYTHING: [&str; 3] = ["all", "everything", "default"];

fn info(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let asked: Vec<String> =
        call.words.rest(1).map(|word| String::from_utf8_lossy(&word).to_lowercase()).collect();
    let all = asked.is_empty() || asked.iter().any(|name| EVERYTHING.contains(&name.as_str()));
    let stats = call.stats.unwrap_or_else(|| call.ctx.engine.stats());
    let mut text = Text { lines: String::new(), now_ms: call.ctx.now_ms, stats };
    for (name, title, section) in SECTIONS {
        if all || asked.iter().any(|asked| asked == name) {
            if !text.lines.is_empty() {
                text.lines.push_str("\r\n");
            }
            let _ = write!(text.lines, "# {title}\r\n");
            section(&mut text, call.shared());
        }
    }
    call.out().verbatim(*b"txt", text.lines.as_bytes());
    Ok(())
}

/// Counters of an AF_XDP transport; empty if the kernel does the networking.
fn network(text: &mut Text, shared: &Shared) {
    shared.transport_counters().into_iter().for_each(|(name, count)| text.line(name, count));
}

fn server(text: &mut Text, shared: &Shared) {
    let uptime = shared.started.elapsed().as_secs();
    text.line("redis_version", REDIS_VERSION);
    text.line("landfall_version", env!("CARGO_PKG_VERSION"));
    text.line("landfall_region_format", landfall_heap::VERSION);
    text.line("landfall_chain_messages", landfall_chain::MESSAGES_VERSION);
    text.line("redis_mode", "standalone");
    text.line("os", process::system());
    text.line("arch_bits", usize::BITS);
    text.line("multiplexing_api", shared.transport.name);
    text.line("process_id", std::process::id());
    text.line("run_id", &shared.run_id);
    text.line("tcp_port", shared.bound_resp.map_or(0, |address| address.port()));
    text.line("server_time_usec", u128::from(text.now_ms) * 1000);
    text.line("uptime_in_seconds", uptime);
    text.line("uptime_in_days", uptime / 86_400);
    text.line("io_threads_active", u8::from(shared.config.workers > 1));
}

fn clients(text: &mut Text, shared: &Shared) {
    text.count("connected_clients", &shared.counters.clients);
    text.line("cluster_connections", 0);
    text.line("maxclients", shared.config.max_clients);
    text.line("blocked_clients", 0);
    text.line("tracking_clients", 0);
}

fn memory(text: &mut Text, shared: &Shared) {
    let heap = shared.engine.heap();
    let data = heap.runs().live_bytes() + heap.runs().live_slots() * RECORD_SIZE;
    let capacity = heap.geometry().bytes();
    text.line("used_memory", data + text.stats.index_bytes);
    text.line("used_memory_rss", process::usage().resident_bytes);
    text.line("used_memory_overhead", text.stats.index_bytes);
    text.line("used_memory_dataset", data);
    text.line("maxmemory", capacity);
    text.line("maxmemory_human", crate::config::Size(capacity));
    text.line("maxmemory_policy", "noeviction");
    text.line("mem_allocator", "libc");
}

/// There is no append-only file and no snapshot; the fields tell their readers that nothing is unsaved.
fn persistence(text: &mut Text, shared: &Shared) {
    let heap = shared.engine.heap();
    let status = if heap.media().closed().is_some() { "err" } else { "ok" };
    text.line("loading", 0);
    text.line("async_loading", 0);
    text.line("rdb_changes_since_last_save", 0);
    text.line("rdb_bgsave_in_progress", 0);
    text.line("rdb_last_save_time", text.now_ms / 1000);
    text.line("rdb_last_bgsave_status", status);
    text.line("rdb_last_bgsave_time_sec", -1);
    text.line("rdb_current_bgsave_time_sec", -1);
    text.line("rdb_saves", 0);
    text.line("rdb_last_cow_size", 0);
    text.line("rdb_last_load_keys_expired", 0);
    text.line("rdb_last_load_keys_loaded", shared.recovered.records);
    text.line("aof_enabled", 1);
    text.line("aof_rewrite_in_progress", 0);
    text.line("aof_rewrite_scheduled", 0);
    text.line("aof_last_rewrite_time_sec", -1);
    text.line("aof_current_rewrite_time_sec", -1);
    text.line("aof_last_bgrewrite_status", "ok");
    text.line("aof_rewrites", 0);
    text.line("aof_last_write_status", status);
    text.line("aof_last_cow_size", 0);
    text.line("aof_current_size", heap.runs().live_bytes() + heap.runs().live_slots() * RECORD_SIZE);
    text.line("aof_base_size", 0);
    text.line("aof_pending_rewrite", 0);
    text.line("aof_buffer_length", 0);
    text.line("aof_pending_bio_fsync", 0);
    text.line("aof_delayed_fsync", 0);
}

fn statistics(text: &mut Text, shared: &Shared) {
    let counters = &shared.counters;
    text.count("total_connections_received", &counters.connections);
    text.count("total_commands_processed", &counters.commands);
    text.count("total_net_input_bytes", &counters.input_bytes);
    text.count("total_net_output_bytes", &counters.output_bytes);
    text.count("rejected_connections", &counters.rejected_connections);
    text.line("expired_keys", shared.engine.expired_keys());
    text.line("evicted_keys", 0);
    text.count("keyspace_hits", &counters.hits);
    text.count("keyspace_misses", &counters.misses);
    text.line("pubsub_channels", 0);
    text.line("pubsub_patterns", 0);
    text.line("latest_fork_usec", 0);
    text.line("total_forks", 0);
    text.count("total_error_replies", &counters.errors);
    text.count("total_http_requests", &counters.http_requests);
    text.count("client_timeouts", &counters.timeouts);
    text.count("client_output_buffer_limit_disconnections", &counters.overflows);
}

fn replication(text: &mut Text, shared: &Shared) {
    let part = Part::of(shared);
    text.line("role", part.name());
    let behind = shared.chain.as_ref().and_then(|node| node.behind());
    text.line("connected_slaves", shared.chain.as_ref().map_or(0, |node| node.copies_behind()));
    part.info().iter().for_each(|(name, value)| text.line(name, value));
    if let Some(node) = &shared.chain {
        chain(text, node, behind.as_ref());
    }
    text.line("master_failover_state", "no-failover");
    text.line("master_replid", &shared.run_id);
    text.line("master_repl_offset", 0);
    text.line("second_repl_offset", -1);
    text.line("repl_backlog_active", 0);
}

fn chain(text: &mut Text, node: &Node, behind: Option<&(String, Standing)>) {
    let view = node.view();
    text.line("chain_name", &view.name);
    text.line("chain_version", view.version);
    text.line("chain_node", node.name());
    text.line("chain_role", format!("{:?}", node.role()).to_lowercase());
    text.line("chain_in_step", u8::from(node.is_in_step()));
    if let Some(first) = view.members.first() {
        text.line("chain_first", format_args!("{},{}", first.name, first.address));
    }
    if let Some(lease) = node.views().lease() {
        text.line("chain_etcd", if lease.is_registered() { "registered" } else { "away" });
        text.line("chain_manager", node.views().manager().unwrap_or_default());
    }
    if let Some((free, _)) = node.room_behind() {
        text.line("chain_room_bytes", free);
    }
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Counters { value_bytes, wire_bytes, packed_bytes, saved_bytes, .. } = &node.counters;
    text.line(
        "chain_sent",
        format_args!(
            "values={},wire={},packed={},saved={}",
            read(value_bytes),
            read(wire_bytes),
            read(packed_bytes),
            read(saved_bytes)
        ),
    );
    if let Some((name, standing)) = behind {
        let standing = match standing {
            Standing::Unknown => "unknown",
            Standing::Behind => "behind",
            Standing::InStep => "in_step",
        };
        let standing = if node.is_full_behind() { "full" } else { standing };
        text.line("chain_next", format_args!("name={name},state={standing}"));
    }
    let troubles = node.troubles();
    if !troubles.is_empty() {
        text.line("chain_troubles", troubles.join("; "));
    }
    if let Some(CopyProgress { node, records, of, sent, bytes, begun }) = node.copying() {
        let seconds = begun.elapsed().as_secs();
        text.line(
            "chain_copy",
            format_args!("name={node},records={records},of={of},sent={sent},bytes={bytes},seconds={seconds}"),
        );
    }
}

fn cpu(text: &mut Text, _: &Shared) {
    let usage = process::usage();
    text.line("used_cpu_sys", format_args!("{:.6}", usage.system_seconds));
    text.line("used_cpu_user", format_args!("{:.6}", usage.user_seconds));
}

fn keyspace(text: &mut Text, _: &Shared) {
    let stats = text.stats;
    let databases = stats.keys.iter().zip(stats.expiring).enumerate();
    for (database, (keys, expires)) in databases.filter(|(_, (keys, _))| **keys > 0) {
        text.line(&format!("db{database}"), format_args!("keys={keys},expires={expires},avg_ttl=0"));
    }
}

fn landfall(text: &mut Text, shared: &Shared) {
    let heap = shared.engine.heap();
    let (media, counts, stats) = (heap.media(), heap.runs().counts(), text.stats);
    text.line("media", media.kind().name());
    text.line("media_description", media.describe());
    text.line("transport", &shared.transport);
    text.line("workers", shared.config.workers);
    text.line("region_bytes", heap.geometry().bytes());
    text.line("region_room_bytes", heap.measured_room_bytes());
    text.line("region_live_bytes", heap.runs().live_bytes());
    if let Some(memory) = heap.memory() {
        text.line("region_memory_limit", memory.limit);
        text.line("region_memory_bytes", memory.resident);
    }
    if let Some(loads) = &shared.loads {
        text.count("region_loads", &loads.counters.loads);
        text.count("region_load_bytes", &loads.counters.bytes);
    }
    text.line("region_unshared_bytes", heap.unshared_bytes());
    text.line("runs_total", counts.total);
    text.line("runs_free", counts.free);
    text.line("runs_data", counts.data);
    text.line("runs_slab", counts.slab);
    text.line("records", heap.runs().live_slots());
    text.line("records_stale", stats.stale);
    text.line("tombstones", stats.tombstones);
    text.line("keys_expiring", stats.expiring.iter().sum::<u64>());
    text.line("keys_damaged", stats.damaged);
    text.line("index_bytes", stats.index_bytes);
    for (path, name) in CopyPath::ALL {
        text.line(&format!("copied_bytes_{name}"), heap.copies.get(path));
    }
    commits(text, shared);
    maintenance(text, shared);
    text.line("store", shared.writes.describe().unwrap_or_else(|| "region".into()));
    text.line("closed", media.closed().unwrap_or_else(|| "no".into()).replace(['\r', '\n'], " "));
}

fn logs(text: &mut Text, shared: &Shared) {
    let stats = shared.logs.stats();
    text.line("logs", stats.logs);
    text.line("log_entries", stats.entries);
    text.line("log_bytes", stats.bytes);
    text.line("log_entries_appended", stats.appended);
    text.line("log_entries_read", stats.read);
    text.line("log_entries_trimmed", stats.trimmed);
    text.line("log_index_bytes", stats.index_bytes);
}

/// Files in the region beside keys and logs; what their mount counts is shown by the mount.
fn files(text: &mut Text, shared: &Shared) {
    let Some(files) = shared.files.files() else { return text.line("files", "none") };
    let (operations, bytes) = files.log_len();
    let mount = shared.files.mount();
    match mount.map(|mount| mount.shown()) {
        None => text.line("files", "kept"),
        Some(FilesShown::Mounted(point)) => {
            text.line("files", "mounted");
            text.line("files_mountpoint", point.display());
        }
        Some(FilesShown::Offloaded { socket, mounts, away }) => {
            text.line("files", "offloaded");
            text.line("files_socket", socket.display());
            text.line("files_mounts", mounts.len());
            let ms = |time: Option<Duration>| time.unwrap_or_default().as_millis();
            text.line("files_away_ms", ms(away));
            for (index, mount) in mounts.iter().enumerate() {
                let (shared, silent) = (u8::from(mount.is_shared), ms(mount.silent));
                // A comma in the path does no harm: it comes last.
                let point = mount.point.display();
                let state = format_args!("shared={shared},silent_ms={silent},mountpoint={point}");
                text.line(&format!("files_mount{index}"), state);
            }
        }
    }
    text.line("files_inodes", files.inode_count());
    text.line("files_log_operations", operations);
    text.line("files_log_bytes", bytes);
}

fn commits(text: &mut Text, shared: &Shared) {
    let counters = &shared.counters;
    let commits = counters.commits.load(Ordering::Relaxed);
    let mean_ns = counters.commit_ns.load(Ordering::Relaxed).checked_div(commits).unwrap_or(0);
    text.line("commits", commits);
    text.line("commit_mean_us", format_args!("{}.{:03}", mean_ns / 1000, mean_ns % 1000));
    text.count("commit_written_bytes", &counters.written_bytes);
    let bounds = COMMIT_BOUNDS_US.iter().map(u64::to_string).chain(["inf".into()]);
    for (bound, bucket) in bounds.zip(&counters.commit_buckets) {
        text.count(&format!("commits_up_to_{bound}_us"), bucket);
    }
}

fn maintenance(text: &mut Text, shared: &Shared) {
    let (counters, recovered) = (&shared.counters, &shared.recovered);
    text.count("compacted_bytes", &counters.compacted_bytes);
    text.count("compacted_records", &counters.compacted_records);
    text.count("scrubbed_keys", &counters.scrubbed_keys);
    text.count("scrubbed_bytes", &counters.scrubbed_bytes);
    text.count("scrub_findings", &counters.scrub_findings);
    text.line("recovery_us", shared.recovery_ns / 1000);
    text.line("recovery_records", recovered.records);
    text.line("recovery_corrected", recovered.corrected.len());
    text.line("recovery_damaged", recovered.damaged.len());
    text.line("recovery_damaged_values", recovered.damaged_values);
}
