//! Counters of the side-cars, as a page of metrics.

use landfall_metrics::Text;
use landfall_pmnet_io::redis::client::SidecarReport;
use landfall_pmnet_io::redis::server::RedisReport;
use landfall_pmnet_io::runtime::ServerReport;

/// Counters of `landfall pmnet client`.
pub(super) fn client(report: &SidecarReport) -> String {
    let mut text = Text::new("landfall_pmnet_client");
    text.gauge("connections", "Connections of Redis clients", report.connections);
    text.gauge("sessions", "Sessions", report.sessions);
    text.gauge("unread_bytes", "Bytes held by replies that clients have not read", report.unread_bytes);
    text.counters([
        ("connections_total", "Connections so far", report.accepted),
        ("turned_away_total", "Connections turned away, as there were too many", report.turned_away),
        ("commands_total", "Commands", report.commands),
        ("early_total", "Commands sent as updates", report.early),
        ("bypass_total", "Commands sent as bypasses", report.bypass),
        ("local_total", "Commands answered by the side-car itself", report.local),
        ("refused_total", "Commands that cannot be carried", report.refused),
        ("complete_by_devices_total", "Updates that devices completed", report.complete_by_devices),
        ("complete_by_server_total", "Updates that the server completed", report.complete_by_server),
        ("from_cache_total", "Responses from a device's cache", report.from_cache),
        ("sessions_lost_total", "Sessions that failed or were refused", report.sessions_lost),
        ("unsent_total", "Datagrams that the kernel did not take", report.unsent),
        ("unauthentic_total", "Datagrams whose seal did not fit", report.unauthentic),
    ]);
    text.into()
}

/// Counters of `landfall pmnet server`.
pub(super) fn server(network: &ServerReport, redis: &RedisReport) -> String {
    let mut text = Text::new("landfall_pmnet_server");
    // These start again with each incarnation, which counters may do.
    let stats = &network.server;
    text.gauge("sessions", "Sessions, with those that have ended", stats.sessions);
    text.counters([
        ("incarnations_total", "Incarnations", network.incarnations),
        ("batches_total", "Batches executed", network.batches),
        ("work_total", "Pieces of work in them", network.work),
        ("unsent_total", "Datagrams that the kernel did not take", network.unsent),
        ("unauthentic_total", "Datagrams whose seal did not fit", network.unauthentic),
        ("applied_total", "Updates committed", stats.applied),
        ("bypasses_total", "Bypasses answered", stats.bypasses),
        ("duplicates_total", "Packets that had arrived before", stats.duplicates),
        ("gaps_total", "Times that updates were found missing", stats.gaps),
        ("retransmit_requests_total", "Retransmission requests sent", stats.retransmit_requests),
        ("recovers_total", "Recover requests sent", stats.recovers),
        ("server_acks_total", "Server-ACKs sent", stats.server_acks),
        ("make_up_acks_total", "Updates acknowledged once more", stats.make_up_acks),
        ("refused_total", "Packets answered with a refusal", stats.refused),
        ("early_dropped_total", "Packets too far ahead, or without room", stats.early_dropped),
        ("ignored_total", "Datagrams that were malformed or not for a server", stats.ignored),
        ("failed_total", "Pieces of work that failed", stats.failed),
        ("no_room_total", "Sessions refused, as there was no room for their rows", stats.no_room),
        (
            "held_requests_total",
            "Times that devices were asked what they hold of a session",
            stats.held_requests,
        ),
        ("held_by_devices_total", "Devices that said that they hold something of it", stats.held_by_devices),
        (
            "ended_by_silence_total",
            "Sessions ended, as they were silent for long and no device held anything of them",
            stats.ended_by_silence,
        ),
        ("response_requests_total", "Requests for windows of long responses", stats.response_requests),
        (
            "responses_too_long_total",
            "Responses replaced by an error, as they were too long",
            stats.responses_too_long,
        ),
        (
            "responses_postponed_total",
            "Long responses for which there was no room",
            stats.responses_postponed,
        ),
        ("redis_connections_total", "Connections to the real server", redis.connections),
        ("redis_transactions_total", "Transactions committed", redis.transactions),
        ("redis_updates_total", "Updates executed", redis.updates),
        ("redis_bypasses_total", "Bypasses executed", redis.bypasses),
        ("redis_behind_total", "Sessions refused, as confirmed updates of theirs are lost", redis.behind),
        ("redis_foreign_rows_total", "Rows that something else had changed or removed", redis.foreign_rows),
        ("redis_missing_total", "Times that updates were asked for in vain", redis.missing),
        (
            "redis_rejected_total",
            "Acknowledged updates that the real server rejected, kept for inspection",
            redis.rejected,
        ),
        ("redis_refused_total", "Transactions refused for a reason of the real server's own", redis.refused),
        ("redis_restored_total", "Times that flushed rows were written again", redis.restored),
        ("redis_shortages_total", "Times that too few replicas had what was committed", redis.shortages),
    ]);
    text.into()
}
