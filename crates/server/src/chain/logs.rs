//! Logs on a chain.

use super::landed::Landed;
use super::stop::Stop;
use crate::context::Context;
use crate::shared::Shared;
use landfall_chain::{Reason, Record, RecordKind, Refusal};
use landfall_chain_io::Node;
use landfall_heap::{HeapError, Kind, Source, Tickets, spaces};
use landfall_media::Chain;
use landfall_wal::LogRecord;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The node sends the records of the logs, and takes those that the node before sends.
pub(super) fn join(shared: &Arc<Shared>, node: &Node) {
    if !node.is_in_step() {
        shared.logs.pass_over();
    }
    let owner = Arc::downgrade(shared);
    node.carry_logs(Box::new(move |slot, view| match owner.upgrade() {
        Some(shared) => shared.logs.key_for_others(slot, view),
        // The server has ended.
        None => Err(HeapError::Busy),
    }));
}

pub(super) fn is_of_logs(record: &Record<'_>) -> bool {
    spaces::LOGS.contains(&record.space)
}

/// Takes records that count together.
pub(super) fn receive(
    ctx: &mut Context<'_>,
    stream: &Chain<'_>,
    group: &[(Record<'_>, Range<usize>)],
    is_copied: bool,
) -> Result<Tickets, Stop> {
    let heap = ctx.engine.heap();
    let landed: SmallVec<[Landed; 1]> = group
        .iter()
        .map(|(record, value)| Landed::of(heap, stream, record, value.clone()))
        .collect::<Result<_, _>>()?;
    let records: SmallVec<[LogRecord<'_>; 1]> = group
        .iter()
        .zip(&landed)
        .map(|((record, _), landed)| of_log(record, landed))
        .collect::<Result<_, _>>()?;
    Ok(ctx.logs.receive(ctx.writer, &records, is_copied)?)
}

fn of_log<'a>(record: &Record<'a>, landed: &'a Landed) -> Result<LogRecord<'a>, Refusal> {
    let kind = match record.kind {
        RecordKind::Put => Kind::Put,
        RecordKind::Tombstone => Kind::Tombstone,
        RecordKind::Bound => Kind::Bound,
        RecordKind::Flush => return Err(misplaced()),
    };
    let (is_entry, is_empty) = (kind == Kind::Put, record.value_len == 0);
    let value = match (is_entry, is_empty) {
        (true, true) => Source::Bytes(&[]),
        (true, false) => landed.source(),
        (false, true) => Source::None,
        (false, false) => return Err(misplaced()),
    };
    let Record { space, key, mark, arrival_ns, .. } = *record;
    Ok(LogRecord { kind, space, key, mark, arrival_ns, value })
}

fn misplaced() -> Refusal {
    Refusal::new(Reason::Message, "this is none among records of logs")
}
