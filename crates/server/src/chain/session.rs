//! What the node before sends.

use super::compare::compare;
use super::files::{self, publish_by, without_files};
use super::landed::Landed;
use super::logs::{self, is_of_logs};
use super::stop::{Stop, check_space};
use crate::context::{Context, Outcome};
use crate::reply::Reply;
use crate::shared::Shared;
use landfall_chain::{
    Ask, Code, Hello, Message, Packing, Reason, Record, RecordKind, Records, Refusal, WireError,
};
use landfall_chain_io::{Counters, Node, Unpacked, Unpacker, full};
use landfall_fs::{Files, FilesRecord, Publisher, ReceiveError};
use landfall_heap::{Gated, HeapError, Tickets, Until, spaces};
use landfall_kv::TxnKey;
use landfall_media::Chain;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// A record, and where its value lies in the stream.
type Placed<'a> = (Record<'a>, Range<usize>);

/// A connection from the node before.
#[derive(Debug)]
pub(crate) struct ChainSession {
    connection: u64,
    stream: Option<u8>,
    /// Records of the message that are executed.
    done: usize,
    /// What must be durable before the message is acknowledged.
    waits: Tickets,
    /// What a question for room waits for.
    asked: Asked,
    /// Of the first packed message on.
    unpacker: Option<Unpacker>,
    /// The values of a packed message that has to wait.
    unpacked: Option<Unpacked>,
}

/// What a question for room waits for.
#[derive(Debug, Default)]
struct Asked {
    /// The search of the compactor behind this one.
    search: Option<u64>,
    /// The answer of the node behind.
    awaited: Option<u64>,
    /// This node knows its own room.
    is_searched: bool,
}

impl ChainSession {
    /// `connection` is unique among the connections of the server.
    pub(crate) fn new(connection: u64) -> Self {
        Self {
            connection,
            stream: None,
            done: 0,
            waits: Tickets::default(),
            asked: Asked::default(),
            unpacker: None,
            unpacked: None,
        }
    }

    /// True once the node before has said who it is.
    pub(crate) fn is_welcome(&self) -> bool {
        self.stream.is_some()
    }

    /// The stream of the connection, once the node before has said who it is.
    pub(crate) fn stream(&self) -> Option<u8> {
        self.stream
    }

    /// The connection is closed.
    pub(crate) fn end(&mut self, node: Option<&Arc<Node>>) {
        (self.unpacked, self.unpacker) = (None, None);
        node.into_iter().for_each(|node| node.closed(self.connection));
    }

    /// Executes a message. On [`Outcome::Wait`] it is executed again from where it was.
    pub(crate) fn execute(
        &mut self,
        ctx: &mut Context<'_>,
        message: &Message,
        stream: &Chain<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Some(node) = ctx.shared.chain.clone() else { return Outcome::Close };
        match self.obey(&node, ctx, message, stream, reply) {
            Ok(()) => Outcome::Done,
            Err(Stop::Wait(until)) => Outcome::Wait(until),
            Err(Stop::Full) => {
                self.refuse(&full(node.name()), message.header.version, reply);
                Outcome::Close
            }
            Err(Stop::Refused(refusal)) => {
                self.refuse(&refusal, message.header.version, reply);
                Outcome::Close
            }
        }
    }

    /// What comes is no message, or one of another release: says why the connection ends.
    pub(crate) fn refuse_bytes(&self, node: Option<&Arc<Node>>, error: WireError, reply: &mut Reply<'_>) {
        if let WireError::Version(version) = error
            && node.is_some_and(|node| node.note_release(version))
        {
            tracing::warn!(%error, "a node that connects to this one is of another release: it is refused");
        }
        self.refuse(&error.into(), 0, reply);
    }

    /// Says why the connection ends.
    pub(crate) fn refuse(&self, refusal: &Refusal, version: u64, reply: &mut Reply<'_>) {
        // Strangers do not fill the log: a node that is refused tells it in its own.
        match self.stream {
            Some(stream) => tracing::warn!(stream, error = %refusal, "the node before is refused"),
            None => tracing::debug!(error = %refusal, "a connection to the address of this node is refused"),
        }
        reply.bytes().extend_from_slice(&refusal.encode(version));
    }

    fn obey(
        &mut self,
        node: &Node,
        ctx: &mut Context<'_>,
        message: &Message,
        stream: &Chain<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Stop> {
        let (header, head) = (message.header, message.head(stream)?);
        if header.code == Code::Hello {
            let hello = Hello::decode(&head)?;
            let was_in_step = node.is_in_step();
            let welcome = node.hello(&hello, header.version, self.connection);
            if was_in_step {
                pass_over_if_behind(node, ctx.shared);
            }
            let welcome = welcome?;
            self.stream = Some(hello.stream);
            reply.bytes().extend_from_slice(&welcome.encode(header.version, node.room()));
            return Ok(());
        }
        let number = self.stream.ok_or(WireError::Unexpected(header.code))?;
        let mut is_there = true;
        let _admitted = node.admit(number, self.connection, header.version, header.number)?;
        if header.code == Code::Heartbeat {
            let answer = node.answer_heartbeat().encode(header.version, header.number);
            reply.bytes().extend_from_slice(&answer);
            return Ok(());
        }
        match header.code {
            Code::Chunk | Code::Copied if header.packing == Packing::None => {
                self.values(node, ctx, header.code, &head, (stream, message.payload()))?;
            }
            Code::Chunk | Code::Copied => self.packed(node, ctx, message, &head, stream)?,
            Code::CopyBegins => self.begin_copy(node, ctx, &head)?,
            Code::Compare => {
                let difference = compare(node, ctx, &head, reply)?;
                let answer = difference.encode(header.version, header.number, node.room());
                self.acknowledge(ctx, &answer, reply);
                return Ok(());
            }
            Code::CopyEnds => {
                let since = head[..].try_into().map_err(|_| WireError::Length)?;
                self.asked.check_reserves(ctx)?;
                publish_by(ctx.shared, Publisher::end_copy)?;
                ctx.logs.end_copy()?;
                let ended = node.end_copy(u64::from_le_bytes(since));
                pass_over_if_behind(node, ctx.shared);
                ended?;
            }
            Code::Ask => {
                let Ask { wanted, round } = Ask::decode(&head)?;
                node.note_round(header.version, round);
                self.asked.find_room(node, ctx, wanted)?;
            }
            Code::Check => is_there = are_there(ctx, &head, reply)?,
            code => return Err(WireError::Unexpected(code).into()),
        }
        let mut acknowledged = node.acknowledged();
        if !is_there {
            acknowledged.nodes = 0;
        }
        self.acknowledge(ctx, &acknowledged.encode(header.version, header.number), reply);
        Ok(())
    }

    /// Answers when everything that was executed is durable here and behind.
    fn acknowledge(&mut self, ctx: &Context<'_>, answer: &[u8], reply: &mut Reply<'_>) {
        self.waits.add_all(ctx.writer.so_far().tickets());
        Gated::new((), std::mem::take(&mut self.waits)).open(reply);
        reply.bytes().extend_from_slice(answer);
    }

    /// Deletes logs, but not yet their entries. These, keys and files are kept, unless they must not be, or there is a record
    /// that a comparison cannot find.
    fn begin_copy(&mut self, node: &Node, ctx: &mut Context<'_>, head: &[u8]) -> Result<(), Stop> {
        let [keeps] = head else { return Err(WireError::Length.into()) };
        node.begin_copy()?;
        let keeps = *keeps != 0 && !node.has_found_damage();
        self.waits.add_all(&ctx.logs.begin_copy(ctx.writer, keeps, ctx.arrival_ns)?);
        publish_by(ctx.shared, |publisher| publisher.begin_copy(keeps))?;
        if !keeps || ctx.engine.stats().damaged > 0 {
            self.waits.add_all(ctx.engine.flush_all(ctx.writer, ctx.arrival_ns)?.tickets());
        }
        Ok(())
    }

    /// Takes the records of a chunk or a copied chunk, whose values lie at `payload`.
    fn values(
        &mut self,
        node: &Node,
        ctx: &mut Context<'_>,
        code: Code,
        head: &[u8],
        (stream, payload): (&Chain<'_>, Range<usize>),
    ) -> Result<(), Stop> {
        let bytes = payload.len() as u64;
        let placed = place(head, payload)?;
        if code == Code::Copied {
            return self.copied(node, ctx, stream, &placed);
        }
        let begun = Instant::now();
        self.records(&placed, |group| {
            ctx.writer.set_admitted(true);
            let tickets = chunk(node, ctx, stream, group);
            ctx.writer.set_admitted(false);
            tickets
        })?;
        Counters::add_since(&node.counters.take_ns, begun);
        Counters::add(&node.counters.taken_bytes, bytes);
        Ok(())
    }

    /// As [`Self::values`], of values that are packed: they are unpacked once, and kept as long as the message waits.
    fn packed(
        &mut self,
        node: &Node,
        ctx: &mut Context<'_>,
        message: &Message,
        head: &[u8],
        stream: &Chain<'_>,
    ) -> Result<(), Stop> {
        let unpacked = match self.unpacked.take() {
            Some(unpacked) => unpacked,
            None => {
                let heap = ctx.engine.heap();
                let unpacker = self.unpacker.get_or_insert_with(|| Unpacker::new(Arc::clone(heap)));
                let unpacked = unpacker.unpack(head, stream, message.payload());
                unpacked.map_err(|error| Stop::of_unpacking(error, heap))?
            }
        };
        let segments = unpacked.segments().map_err(HeapError::from)?;
        let values = Chain::new(&segments);
        let len = values.len();
        let taken = self.values(node, ctx, message.header.code, head, (&values, 0..len));
        match &taken {
            Ok(()) => Counters::add(&node.counters.unpacked_bytes, len as u64),
            Err(Stop::Wait(_)) => {
                drop(segments);
                self.unpacked = Some(unpacked);
            }
            Err(_) => {}
        }
        taken
    }

    /// Takes copied records: of keys and logs one by one, of files all at once.
    fn copied(
        &mut self,
        node: &Node,
        ctx: &mut Context<'_>,
        stream: &Chain<'_>,
        placed: &[Placed<'_>],
    ) -> Result<(), Stop> {
        if placed.first().is_some_and(|(record, _)| is_of_files(record)) {
            self.waits.add_all(&copied_files(node, ctx, stream, placed)?);
            return Ok(());
        }
        self.records(placed, |group| {
            ctx.writer.set_copied(true);
            let tickets = match group {
                [(record, _)] if is_of_logs(record) => logs::receive(ctx, stream, group, true),
                group => copied(node, ctx, stream, group),
            };
            ctx.writer.set_copied(false);
            tickets
        })
    }

    /// Passes records to `execute`, group by group, from the first one on that is not executed.
    fn records<'a>(
        &mut self,
        placed: &[Placed<'a>],
        mut execute: impl FnMut(&[Placed<'a>]) -> Result<Tickets, Stop>,
    ) -> Result<(), Stop> {
        let mut count = 0;
        for group in placed.chunk_by(|(record, _), _| record.more) {
            count += group.len();
            if count > self.done {
                self.waits.add_all(&execute(group)?);
                self.done = count;
            }
        }
        self.done = 0;
        Ok(())
    }
}

/// The records of a message, and where their values lie: they fill the payload, and no group goes on behind the end.
fn place(head: &[u8], payload: Range<usize>) -> Result<Vec<Placed<'_>>, WireError> {
    let mut placed = Vec::new();
    let (mut at, mut goes_on) = (payload.start, false);
    for record in Records::new(head) {
        let record = record?;
        let value = at..at + record.value_len as usize;
        (at, goes_on) = (value.end, record.more);
        placed.push((record, value));
    }
    if at == payload.end && !goes_on { Ok(placed) } else { Err(WireError::Length) }
}

impl Asked {
    /// Waits until this node, and those behind it, know how much room they have: not before the compactor has searched
    /// what was released before the question.
    fn find_room(&mut self, node: &Node, ctx: &Context<'_>, wanted: u64) -> Result<(), Stop> {
        if !self.is_searched {
            ctx.engine.heap().request_free(wanted);
            ctx.shared.wake_maintenance();
        }
        if !self.has_searched(ctx) || !node.is_room_known(wanted, &mut self.awaited) {
            return Err(Stop::Wait(Until::Space));
        }
        *self = Self::default();
        Ok(())
    }

    /// True when the compactor has searched what was released before the first call.
    fn has_searched(&mut self, ctx: &Context<'_>) -> bool {
        if !self.is_searched {
            let search = ctx.engine.heap().search_to_wait_for();
            self.search = search.filter(|search| self.search.is_none_or(|begun| begun == *search));
            self.is_searched = self.search.is_none();
        }
        self.is_searched
    }

    /// Everything is copied: waits until this node has what it keeps for chunks, if the compactor can make it.
    fn check_reserves(&mut self, ctx: &Context<'_>) -> Result<(), Stop> {
        let heap = ctx.engine.heap();
        if heap.is_within_reserves() {
            *self = Self::default();
            return Ok(());
        }
        ctx.shared.wake_maintenance();
        if !self.has_searched(ctx) {
            return Err(Stop::Wait(Until::Space));
        }
        Ok(heap.check_copied()?)
    }
}

/// True if all of these records are there, as the newest ones of their keys. The reply waits until they are durable.
fn are_there(ctx: &Context<'_>, head: &[u8], reply: &mut Reply<'_>) -> Result<bool, Stop> {
    for record in Records::new(head) {
        let record = record?;
        // What is there of files and logs is passed over when it comes again.
        if is_of_files(&record) || is_of_logs(&record) {
            return Ok(false);
        }
        check_space(record.space)?;
        // Also if it has expired.
        let item = ctx.engine.peek(record.space, record.key, 0)?.open(reply);
        let is_there = item.is_some_and(|item| {
            item.len as u64 == u64::from(record.value_len)
                && (item.arrival_ns, item.expiry_ms) == (record.arrival_ns, record.mark)
                && item.crcs().is_some_and(|crcs| crcs.whole() == record.value_crc)
        });
        if record.kind != RecordKind::Put || !is_there {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Executes records that count together.
fn chunk(
    node: &Node,
    ctx: &mut Context<'_>,
    stream: &Chain<'_>,
    group: &[Placed<'_>],
) -> Result<Tickets, Stop> {
    let heap = ctx.engine.heap();
    if group.first().is_some_and(|(record, _)| is_of_files(record)) {
        return files_chunk(node, ctx, stream, group);
    }
    if group.first().is_some_and(|(record, _)| is_of_logs(record)) {
        return logs::receive(ctx, stream, group, false);
    }
    for (record, _) in group {
        match record.kind {
            RecordKind::Put => check_space(record.space)?,
            RecordKind::Tombstone => {
                check_space(record.space)?;
                node.note_deleted(Some(heap.hash(record.space, record.key)));
            }
            RecordKind::Flush => node.note_deleted(None),
            RecordKind::Bound => return Err(bound_of_key().into()),
        }
    }
    match group {
        [(record, value)] => single(ctx, stream, record, value.clone()),
        records => together(ctx, stream, records),
    }
}

fn single(
    ctx: &mut Context<'_>,
    stream: &Chain<'_>,
    record: &Record<'_>,
    value: Range<usize>,
) -> Result<Tickets, Stop> {
    let (engine, arrival_ns) = (ctx.engine, record.arrival_ns);
    Ok(match record.kind {
        RecordKind::Put => {
            let landed = Landed::of(engine.heap(), stream, record, value)?;
            engine.set(ctx.writer, &landed.request(record))?.tickets().clone()
        }
        RecordKind::Tombstone => {
            engine.delete(ctx.writer, record.space, record.key, ctx.now_ms, arrival_ns)?.tickets().clone()
        }
        RecordKind::Flush => engine.flush_all(ctx.writer, arrival_ns)?.tickets().clone(),
        RecordKind::Bound => return Err(bound_of_key().into()),
    })
}

fn together(ctx: &mut Context<'_>, stream: &Chain<'_>, records: &[Placed<'_>]) -> Result<Tickets, Stop> {
    let keys = records.iter().map(|(record, _)| TxnKey { space: record.space, key: record.key });
    let mut waits = Tickets::default();
    let mut txn = ctx.engine.transaction(keys, ctx.now_ms);
    for (record, value) in records {
        let (space, key) = (record.space, record.key);
        match record.kind {
            RecordKind::Put => {
                let landed = Landed::of(ctx.engine.heap(), stream, record, value.clone())?;
                txn.put_landed(space, key, None, &landed.extents, landed.crcs(), record.mark);
            }
            RecordKind::Tombstone => waits.add_all(txn.delete(space, key)?.tickets()),
            RecordKind::Flush => return Err(Refusal::new(Reason::Message, "a flush in a group").into()),
            RecordKind::Bound => return Err(bound_of_key().into()),
        }
    }
    let arrival_ns = records.first().map_or(0, |(record, _)| record.arrival_ns);
    waits.add_all(txn.commit(ctx.writer, arrival_ns)?.tickets());
    Ok(waits)
}

/// Takes a copied record, unless there is something newer.
fn copied(
    node: &Node,
    ctx: &mut Context<'_>,
    stream: &Chain<'_>,
    group: &[Placed<'_>],
) -> Result<Tickets, Stop> {
    let [(record, value)] = group else {
        return Err(Refusal::new(Reason::Message, "a group in a copy").into());
    };
    check_space(record.space)?;
    let heap = ctx.engine.heap();
    let landed = Landed::of(heap, stream, record, value.clone())?;
    node.copied(heap.hash(record.space, record.key), || {
        ctx.engine.set_absent(ctx.writer, &landed.request(record)).map(drop).map_err(Stop::from)
    })?;
    Ok(Tickets::default())
}

/// Executes operations on files.
fn files_chunk(
    node: &Node,
    ctx: &Context<'_>,
    stream: &Chain<'_>,
    group: &[Placed<'_>],
) -> Result<Tickets, Stop> {
    receive_files(ctx, stream, group, |files, records| {
        if !files.receive(records)? && node.is_in_step() {
            let text = "this node is in step, and its files are not: start it anew";
            return Err(Refusal::new(Reason::Message, text).into());
        }
        Ok(())
    })
}

/// Takes copied records of files, all of them at once.
fn copied_files(
    node: &Node,
    ctx: &Context<'_>,
    stream: &Chain<'_>,
    placed: &[Placed<'_>],
) -> Result<Tickets, Stop> {
    receive_files(ctx, stream, placed, |_, records| {
        publish_by(ctx.shared, |publisher| {
            let taken = publisher.receive_copied(records);
            if matches!(taken, Err(ReceiveError::Returned { .. })) {
                node.note_damage();
            }
            taken
        })
    })
}

/// Passes records of files, verified, to `take`. What it returns must be durable before they are acknowledged.
fn receive_files(
    ctx: &Context<'_>,
    stream: &Chain<'_>,
    placed: &[Placed<'_>],
    take: impl FnOnce(&Files, &[FilesRecord<'_>]) -> Result<(), Stop>,
) -> Result<Tickets, Stop> {
    let files = ctx.shared.files.files().ok_or_else(without_files)?;
    placed.iter().try_for_each(|(record, _)| check_files(record))?;
    let landed: Vec<Landed> = placed
        .iter()
        .map(|(record, value)| Landed::of(files.heap(), stream, record, value.clone()))
        .collect::<Result<_, _>>()?;
    let records: Vec<FilesRecord<'_>> =
        placed.iter().zip(&landed).map(|((record, _), landed)| landed.of_files(record)).collect();
    let taken = take(files, &records);
    // Also if they have to wait for what came before.
    files::received(ctx.shared, ctx.worker);
    match taken {
        Ok(()) => Ok(files.newest().into()),
        // Nothing of this worker's own commits it.
        Err(Stop::Wait(Until::Commit)) => {
            Err(Stop::Wait(files.newest().map_or(Until::Commit, Until::Ticket)))
        }
        Err(stop) => Err(stop),
    }
}

/// Before a copy has begun, what comes of logs and files means nothing to a node that is behind.
fn pass_over_if_behind(node: &Node, shared: &Shared) {
    if node.is_in_step() {
        return;
    }
    shared.logs.pass_over();
    shared.files.files().into_iter().for_each(|files| files.pass_over());
}

fn is_of_files(record: &Record<'_>) -> bool {
    spaces::FILES.contains(&record.space)
}

fn check_files(record: &Record<'_>) -> Result<(), Refusal> {
    if is_of_files(record) && record.kind == RecordKind::Put {
        return Ok(());
    }
    Err(Refusal::new(Reason::Message, "this is none among records of files"))
}

fn bound_of_key() -> Refusal {
    Refusal::new(Reason::Message, "keys have no bounds")
}
