//! A connection: its received bytes, its parser and session, and its replies.

use crate::admission::{self, Held};
use crate::ahead::{Ahead, KnownCrc};
use crate::chain::ChainSession;
use crate::clock::Now;
use crate::context::{Context, Outcome, Tail};
use crate::counters::count;
use crate::http::{AwaitedBody, HttpSession};
use crate::landing::{Inbox, Landing};
use crate::lookahead::Lookahead;
use crate::pace::Pace;
use crate::phase::{Linger, Listed, Phase, Receiving, Sending};
use crate::reply::Outbox;
use crate::resp::Session;
use crate::shared::Shared;
use landfall_heap::{Heap, Patience, Until, Writer};
use landfall_media::{Chain, MediaError};
use landfall_sockets::ConnId;
use std::ops::Range;

/// Most pages of a streamed reply that are written in one turn.
const PAGES_MAX: usize = 16;
/// A refused body of up to this many bytes is skipped, and the connection stays open; with a longer one the connection
/// is closed.
const SKIPPED_BODY_MAX: usize = 64 << 10;
/// An unfinished command is copied together if it lies in more pieces than this, ...
const PIECES_MAX: usize = 64;
/// ... the mean length of the pieces is below this, bytes, ...
const PIECE_BYTES_MIN: usize = 1 << 10;
/// ... and it has more arguments or chunks than this: each of them is searched for among the pieces.
const PARTS_MIN: usize = 256;
/// The answer to a request that the region has no room for.
const NO_ROOM: &str =
    "the region has no room for this request: delete keys, or restart with a larger --capacity";
/// The answer to an unfinished request that is closed so that others have room.
const UNFINISHED: &str =
    "unfinished requests hold too much of the region, and this one moves least: send it again";
/// Longest message of a node that has not said hello, bytes.
const HELLO_BYTES_MAX: usize = 2048;
/// The answer to a longer one.
const NO_HELLO: &str = "a message before the hello";
/// The answer to a client that sends much without authenticating.
const UNAUTHENTICATED: &str = "too much was sent without authenticating";

/// The protocol of a connection.
pub(crate) enum Speaks {
    Resp {
        parser: landfall_resp::Parser,
        session: Session,
    },
    Http {
        parser: landfall_http::Parser,
        session: HttpSession,
    },
    /// The node before this one in a chain.
    Chain {
        parser: landfall_chain::Parser,
        session: ChainSession,
    },
}

impl Speaks {
    /// True for somebody at the address of a node of a chain who has not said who it is.
    pub(crate) fn is_stranger(&self) -> bool {
        matches!(self, Self::Chain { session, .. } if !session.is_welcome())
    }
}

/// Why the next command of a connection is not executed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// The ticket is not durable, the worker's next commit has not completed, or the compactor has not made space.
    On(Until),
    /// The log has not grown, and the time limit has not passed.
    Log(Tail),
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) speaks: Speaks,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) park: Option<Park>,
    /// What the command that waits has waited for.
    patience: Patience,
    pub(crate) phase: Phase,
    /// The connection was refused, and its client has not ended its direction.
    pub(crate) linger: Option<Linger>,
    pub(crate) listed: Listed,
    pub(crate) receiving: Receiving,
    /// The send that the transport has; at most one.
    pub(crate) sending: Option<Sending>,
    /// Time of the client's last activity, milliseconds on the clock that never jumps.
    pub(crate) active_ms: u64,
    /// Time of the connection, on the same clock.
    pub(crate) since_ms: u64,
    /// Progress of the request that has begun to arrive.
    pub(crate) arriving: Pace,
    /// Progress of the reply that is being sent.
    pub(crate) leaving: Pace,
    /// Bytes of its reply that are counted as long, because they keep memory.
    pub(crate) reply_bytes: u64,
    /// What the unfinished request holds, as it was counted last.
    pub(crate) held: Held,
    /// Bytes that the client has sent without authenticating.
    spent: u64,
    /// Remaining bytes of a refused body that are skipped.
    skipping: usize,
    /// Checksum of the value that the parser waits for.
    ahead: Option<Ahead>,
    /// The wait of the first command for a log.
    pub(crate) tail: Option<Tail>,
    /// Arrival time of the latest packet, Unix nanoseconds; 0 if the transport does not know.
    pub(crate) arrival_ns: u64,
    /// Epoch in which the connection was last counted as active.
    pub(crate) epoch: u64,
}

/// What the execution of commands needs, for all connections.
pub(crate) struct Core<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) writer: &'a mut Writer,
    pub(crate) round: u64,
    pub(crate) now: Now,
    pub(crate) worker: usize,
    /// The wait that the command about to be executed had.
    pub(crate) tail: Option<Tail>,
    /// Known checksum of that command's value.
    pub(crate) known_crc: Option<KnownCrc>,
}

/// Result of one command of a connection.
enum Step {
    /// Executed: bytes up to this position are consumed.
    Executed(usize),
    /// More bytes are needed; bytes up to this position are consumed.
    NeedMore(usize),
    /// The command must wait; bytes up to this position are consumed.
    Parked(Park),
    /// Executed, and the connection ends: nothing more is read.
    End(usize),
    /// Refused, and the connection ends, though the client may still send.
    Refused,
}

impl Conn {
    /// A new connection. `apart`: see [`Inbox::new`].
    pub(crate) fn new(id: ConnId, speaks: Speaks, apart: u64, now_ms: u64) -> Self {
        Self {
            id,
            speaks,
            inbox: Inbox::new(apart),
            outbox: Outbox::default(),
            park: None,
            patience: Patience::default(),
            phase: Phase::default(),
            linger: None,
            listed: Listed::default(),
            receiving: Receiving::default(),
            sending: None,
            active_ms: now_ms,
            since_ms: now_ms,
            arriving: Pace::default(),
            leaving: Pace::default(),
            reply_bytes: 0,
            held: Held::default(),
            spent: 0,
            skipping: 0,
            ahead: None,
            tail: None,
            arrival_ns: 0,
            epoch: 0,
        }
    }

    /// Bytes that the parser needs before it can continue.
    fn wanted(&self) -> usize {
        match &self.speaks {
            Speaks::Resp { parser, .. } => parser.bytes_wanted(),
            Speaks::Http { parser, .. } => parser.bytes_wanted(),
            Speaks::Chain { parser, .. } => parser.bytes_wanted(),
        }
    }

    /// The value that the parser waits for.
    fn awaited(&self) -> Option<Range<usize>> {
        match &self.speaks {
            Speaks::Resp { parser, .. } => parser.awaited(),
            Speaks::Http { parser, .. } => parser.awaited(),
            Speaks::Chain { .. } => None,
        }
    }

    /// Computes the checksum of what has arrived of a long value. An error is ignored here: the next read of the value
    /// reports it.
    fn checksum_ahead(&mut self, core: &Core<'_>, heap: &Heap) {
        if let Some(value) = self.awaited().filter(|_| core.shared.checksums_values()) {
            if !self.ahead.as_ref().is_some_and(|ahead| ahead.is_of(&value)) {
                self.ahead = Ahead::of(value);
            }
            if let Some(ahead) = &mut self.ahead
                && ahead.advance(&self.inbox, heap).is_err()
            {
                self.ahead = None;
            }
        }
    }

    /// Bytes of output that are queued or in flight.
    pub(crate) fn output_len(&self) -> usize {
        self.outbox.len() + self.sending.map_or(0, |sending| sending.len)
    }

    /// Takes back the buffers of a completed send; returns its bytes.
    pub(crate) fn sent(&mut self, buffers: landfall_sockets::Outgoing, now_ms: u64) -> u64 {
        self.linger.iter_mut().for_each(|linger| linger.restart(now_ms));
        self.outbox.recycle(buffers);
        self.sending.take().map_or(0, |sending| sending.len as u64)
    }

    /// The connection, if so many bytes, which have arrived, are still parsed.
    pub(crate) fn takes_more(&mut self, now_ms: u64, bytes: u32) -> Option<&mut Self> {
        self.linger.iter_mut().for_each(|linger| linger.hear(now_ms, bytes));
        (!self.phase.is_closing()).then_some(self)
    }

    /// True if commands may be executed now.
    fn may_execute(&self, shared: &Shared) -> bool {
        !self.phase.is_closing() && self.park.is_none() && self.output_len() < shared.output_max()
    }

    /// Executes what has arrived, up to the pipeline limit. True if more could be executed at once.
    pub(crate) fn execute(&mut self, core: &mut Core<'_>, lookahead: &mut Lookahead) -> bool {
        let heap = core.shared.engine.heap().clone();
        let passed = self.skipping.min(self.inbox.len());
        self.inbox.consume(&heap, passed);
        self.skipping -= passed;
        if self.pump(core, &heap) {
            return self.may_execute(core.shared);
        }
        self.checksum_ahead(core, &heap);
        if self.inbox.len() < self.wanted() || !self.may_execute(core.shared) {
            return false;
        }
        let outcome = match self.feed_parser(&heap) {
            Ok(true) => self.execute_whole(core, lookahead, &heap),
            Ok(false) => {
                self.check_room(core, &heap, 0, self.inbox.len());
                Ok(false)
            }
            Err(error) => Err(error),
        };
        outcome.unwrap_or_else(|error| {
            tracing::error!(%error, "received bytes cannot be read");
            self.phase.advance(Phase::Closing);
            false
        })
    }

    /// Passes new bytes of a started command or body to the parser, and no bytes that it has seen. True if the parser
    /// needs all received bytes.
    fn feed_parser(&mut self, heap: &Heap) -> Result<bool, MediaError> {
        let understood = match &self.speaks {
            Speaks::Resp { parser, .. } => parser.understood(),
            Speaks::Http { parser, .. } => parser.understood(),
            Speaks::Chain { .. } => 0,
        };
        if understood == 0 {
            return Ok(true);
        }
        let segments = self.inbox.segments(heap, understood)?;
        let tail = Chain::new(&segments);
        Ok(match &mut self.speaks {
            Speaks::Resp { parser, .. } => parser.go_on(&tail),
            Speaks::Http { parser, .. } => parser.go_on(&tail),
            Speaks::Chain { .. } => true,
        })
    }

    /// Executes received commands one after the other. True if more could be executed at once.
    fn execute_whole(
        &mut self,
        core: &mut Core<'_>,
        lookahead: &mut Lookahead,
        heap: &Heap,
    ) -> Result<bool, MediaError> {
        let segments = self.inbox.segments(heap, 0)?;
        let (mut chain, mut from) = (Chain::new(&segments), 0);
        let (received, mut left) = (chain.len(), core.shared.config.max_pipeline);
        let mut known_crc = self.ahead.as_ref().and_then(Ahead::known);
        lookahead.forget();
        while left > 0 && self.may_execute(core.shared) && !self.is_streaming() {
            left -= 1;
            core.tail = self.tail.take();
            core.known_crc = known_crc.take();
            core.writer.set_patience(std::mem::take(&mut self.patience));
            match self.step(core, lookahead, heap, &chain, from) {
                Step::Executed(end) => (chain, from) = chain.skip_to(end),
                Step::NeedMore(end) => {
                    // There may be more empty commands than were skipped.
                    from = end;
                    left = if chain.len() - from < self.wanted() { usize::MAX } else { 0 };
                    break;
                }
                Step::Parked(park) => {
                    if let Park::Log(tail) = park {
                        self.tail = Some(tail);
                    }
                    self.patience = core.writer.patience();
                    self.park = Some(park);
                    break;
                }
                Step::End(end) => {
                    from = end;
                    self.phase.advance(Phase::Closing);
                }
                Step::Refused => {
                    from = chain.len();
                    self.end_refused(core.now.steady_ms);
                }
            }
        }
        let consumed = received - (chain.len() - from);
        core.known_crc = None;
        self.consumed(core, heap, consumed);
        Ok(left == 0 && self.may_execute(core.shared))
    }

    /// Consumes `count` bytes, or everything if the connection ends.
    fn consumed(&mut self, core: &mut Core<'_>, heap: &Heap, count: usize) {
        if count > 0 || self.phase.is_closing() {
            self.ahead = None;
        }
        if self.phase.is_closing() {
            // Everything, or what a refusal has not released yet.
            return self.inbox.clear(heap);
        }
        self.inbox.consume(heap, count);
        if self.inbox.len() == 0 {
            self.arriving.end();
        } else if count > 0 || !self.arriving.is_under_way() {
            self.arriving.begin(core.now.steady_ms);
        }
        self.check_allowance(core, heap, count);
    }

    /// Ends a connection that sends too much without authenticating; empty commands count, too.
    fn check_allowance(&mut self, core: &mut Core<'_>, heap: &Heap, consumed: usize) {
        if !matches!(&self.speaks, Speaks::Resp { session, .. } if !session.is_authenticated()) {
            self.spent = 0;
            return;
        }
        self.spent += consumed as u64;
        let age_ms = core.now.steady_ms.saturating_sub(self.since_ms);
        if self.spent + self.inbox.len() as u64 > admission::allowance(age_ms) {
            count(&core.shared.counters.unauthenticated_closed, 1);
            self.refuse(core, heap, "NOAUTH", 401, UNAUTHENTICATED);
        }
    }

    /// What the unfinished request of the connection holds.
    pub(crate) fn holds(&self) -> Held {
        let is_authenticated = match &self.speaks {
            Speaks::Resp { session, .. } => session.is_authenticated(),
            Speaks::Http { parser, session } => !session.needs_password() || parser.head().is_some(),
            Speaks::Chain { session, .. } => session.is_welcome(),
        };
        let waits = match self.park {
            None => self.inbox.len() < self.wanted(),
            // A log may not grow for an hour.
            Some(park) => matches!(park, Park::Log(_)),
        };
        let bytes = if waits && !self.phase.is_closing() { self.inbox.pinned() } else { 0 };
        Held { bytes, is_authenticated }
    }

    /// Copies an unfinished command together if it came in very many pieces and has many arguments to search for among
    /// them.
    pub(crate) fn gather(&mut self, landing: &mut Landing) -> Result<(), MediaError> {
        let (pieces, len) = (self.inbox.pieces(), self.inbox.len());
        if pieces <= PIECES_MAX || len / pieces >= PIECE_BYTES_MIN {
            return Ok(());
        }
        let parts = match &self.speaks {
            Speaks::Resp { parser, .. } => parser.taken().len(),
            Speaks::Http { parser, .. } => parser.chunks_taken(),
            Speaks::Chain { .. } => 0,
        };
        if parts < PARTS_MIN && self.awaited().is_some() {
            return Ok(());
        }
        self.ahead = None;
        self.inbox.gather(landing)
    }

    fn is_streaming(&self) -> bool {
        matches!(&self.speaks, Speaks::Http { session, .. } if session.is_streaming())
    }

    /// True if the client would take the end of the connection for the end of a reply, of which something is missing.
    pub(crate) fn is_cut_short(&self) -> bool {
        matches!(&self.speaks, Speaks::Http { session, .. } if session.is_cut_short())
    }

    /// Continues a streamed reply while there is room for it, for some pages; true while there is more.
    fn pump(&mut self, core: &mut Core<'_>, heap: &Heap) -> bool {
        let mut pages = 0;
        while self.is_streaming() {
            // Others have their turn in between: pages may be empty, or short and many.
            if !self.may_execute(core.shared) || pages == PAGES_MAX {
                return true;
            }
            pages += 1;
            let Speaks::Http { session, .. } = &mut self.speaks else { return false };
            let mut reply = self.outbox.begin(heap, core.round);
            match session.pump(&mut core.context(self.id, self.arrival_ns), &mut reply) {
                Outcome::Done => reply.finish(),
                Outcome::Close => {
                    reply.finish();
                    self.phase.advance(Phase::Closing);
                }
                Outcome::Wait(until) => {
                    reply.abandon();
                    self.park = Some(Park::On(until));
                }
                Outcome::Tail(tail) => {
                    reply.abandon();
                    self.park = Some(Park::Log(tail));
                }
            }
        }
        false
    }

    fn step(
        &mut self,
        core: &mut Core<'_>,
        lookahead: &mut Lookahead,
        heap: &Heap,
        chain: &Chain<'_>,
        from: usize,
    ) -> Step {
        match &mut self.speaks {
            Speaks::Resp { parser, session } => {
                let next = lookahead.next(parser, chain, from, &core.shared.engine, session.database());
                let command = match next {
                    Ok(Some(command)) => command,
                    Ok(None) => {
                        let from = from + parser.take_skipped();
                        return self.check_room(core, heap, from, chain.len());
                    }
                    Err(error) => {
                        let mut reply = self.outbox.begin(heap, core.round);
                        landfall_resp::Writer::new(reply.bytes(), session.protocol()).protocol_error(&error);
                        reply.finish();
                        count(&core.shared.counters.errors, 1);
                        return Step::Refused;
                    }
                };
                let mut reply = self.outbox.begin(heap, core.round);
                let outcome =
                    session.execute(&mut core.context(self.id, self.arrival_ns), command, chain, &mut reply);
                let end = command.end;
                let step = settle(reply, outcome, end);
                let has_room = || core.shared.loads.as_ref().is_some_and(|loads| !loads.is_crowded());
                if matches!(step, Step::Parked(Park::On(Until::Load(_)))) && has_room() {
                    let now_ms = core.now.unix_ms();
                    lookahead.fetch_ahead(chain, &core.shared.engine, session.database(), now_ms);
                }
                if !session.is_authenticated() {
                    // The next commands were parsed with wider limits than those of an unauthenticated client.
                    lookahead.forget();
                }
                parser.set_authenticated(session.is_authenticated());
                step
            }
            Speaks::Http { parser, session } => match parser.next(chain, from) {
                Ok(landfall_http::Progress::NeedMore) => self.check_room(core, heap, from, chain.len()),
                Ok(landfall_http::Progress::AwaitsBody { wants_continue }) => {
                    self.admit_body(core, heap, wants_continue, from, chain.len())
                }
                Ok(landfall_http::Progress::Request(request)) => {
                    let mut reply = self.outbox.begin(heap, core.round);
                    let outcome = session.execute(
                        &mut core.context(self.id, self.arrival_ns),
                        &request,
                        chain,
                        &mut reply,
                    );
                    settle(reply, outcome, request.end)
                }
                Err(error) => {
                    let mut reply = self.outbox.begin(heap, core.round);
                    session.bad_request(&error, core.now.unix_ms(), &mut reply);
                    reply.finish();
                    count(&core.shared.counters.errors, 1);
                    Step::Refused
                }
            },
            Speaks::Chain { .. } => self.step_of_chain(core, heap, chain, from),
        }
    }

    fn step_of_chain(&mut self, core: &mut Core<'_>, heap: &Heap, chain: &Chain<'_>, from: usize) -> Step {
        let (id, arrival_ns) = (self.id, self.arrival_ns);
        let Speaks::Chain { parser, session } = &mut self.speaks else { return Step::NeedMore(from) };
        match parser.next(chain, from) {
            Ok(None) if !session.is_welcome() && parser.bytes_wanted() > HELLO_BYTES_MAX => {
                self.refuse(core, heap, "", 0, NO_HELLO);
                Step::End(chain.len())
            }
            // The first node has admitted what it sends.
            Ok(None) => Step::NeedMore(from),
            Ok(Some(message)) => {
                let mut reply = self.outbox.begin(heap, core.round);
                let outcome = session.execute(&mut core.context(id, arrival_ns), &message, chain, &mut reply);
                settle(reply, outcome, message.end())
            }
            Err(error) => {
                let mut reply = self.outbox.begin(heap, core.round);
                session.refuse_bytes(core.shared.chain.as_ref(), error, &mut reply);
                reply.finish();
                count(&core.shared.counters.errors, 1);
                Step::End(chain.len())
            }
        }
    }

    /// Decides by the head of a request whether to accept its body, before the body has arrived.
    fn admit_body(
        &mut self,
        core: &mut Core<'_>,
        heap: &Heap,
        wants_continue: bool,
        from: usize,
        received: usize,
    ) -> Step {
        let Speaks::Http { parser, session } = &mut self.speaks else { return Step::NeedMore(from) };
        let Some(head) = parser.head() else { return Step::NeedMore(from) };
        // A client that waits for `100 Continue` may send the body nevertheless, or not.
        let len = parser.len_known().filter(|len| *len <= SKIPPED_BODY_MAX && !wants_continue);
        let passes = len.filter(|_| head.keep_alive);
        let mut reply = self.outbox.begin(heap, core.round);
        let awaited = AwaitedBody { wants_continue, passes: passes.is_some() };
        let is_wanted =
            session.accepts_body(&mut core.context(self.id, self.arrival_ns), head, awaited, &mut reply);
        if is_wanted && wants_continue {
            reply.bytes().extend_from_slice(landfall_http::CONTINUE);
        }
        reply.finish();
        match passes {
            _ if is_wanted => Step::Executed(from),
            None => Step::Refused,
            Some(len) => {
                parser.refuse_body();
                let end = (from + len).min(received);
                self.skipping = from + len - end;
                Step::Executed(end)
            }
        }
    }

    /// Refuses a request that the region has no room for, before it fills the remaining space.
    fn check_room(&mut self, core: &mut Core<'_>, heap: &Heap, from: usize, len: usize) -> Step {
        let missing = (from + self.wanted()).saturating_sub(len) as u64;
        if missing < landfall_media::RUN_SIZE || missing < heap.room_bytes() {
            return Step::NeedMore(from);
        }
        self.end_refused(core.now.steady_ms);
        self.refuse_for_space(core, heap);
        Step::Refused
    }

    /// Answers that there is no space and ends the connection, since the rest of the request cannot be stored.
    pub(crate) fn refuse_for_space(&mut self, core: &mut Core<'_>, heap: &Heap) {
        self.refuse(core, heap, "OOM", 507, NO_ROOM);
    }

    /// Ends the connection so that others have room.
    pub(crate) fn refuse_unfinished(&mut self, core: &mut Core<'_>, heap: &Heap) {
        count(&core.shared.counters.unfinished_closed, 1);
        self.refuse(core, heap, "OOM", 503, UNFINISHED);
    }

    /// Answers with an error and ends the connection: at once, as the client takes what others need.
    fn refuse(&mut self, core: &mut Core<'_>, heap: &Heap, code: &str, status: u16, text: &'static str) {
        let mut reply = self.outbox.begin(heap, core.round);
        match &self.speaks {
            Speaks::Resp { session, .. } => {
                landfall_resp::Writer::new(reply.bytes(), session.protocol())
                    .error(&format!("{code} {text}"));
            }
            Speaks::Http { session, .. } => {
                let error = landfall_http::HttpError::new(status, text);
                session.bad_request(&error, core.now.unix_ms(), &mut reply);
            }
            Speaks::Chain { session, .. } => {
                let reason = match status {
                    507 => landfall_chain::Reason::Full,
                    _ => landfall_chain::Reason::Message,
                };
                session.refuse(&landfall_chain::Refusal::new(reason, text), 0, &mut reply);
            }
        }
        reply.finish();
        count(&core.shared.counters.errors, 1);
        self.phase.advance(Phase::Closing);
        self.inbox.clear(heap);
    }

    /// Ends the connection behind its replies. A client that may still send gets time to read them.
    fn end_refused(&mut self, now_ms: u64) {
        if self.phase == Phase::Open && !matches!(self.speaks, Speaks::Chain { .. }) {
            self.linger = Some(Linger::new(now_ms));
        }
        self.phase.advance(Phase::Closing);
    }

    /// Releases everything held for the connection.
    pub(crate) fn end(&mut self, shared: &Shared) {
        let heap = shared.engine.heap();
        self.inbox.clear(heap);
        self.outbox.clear(heap);
        match &mut self.speaks {
            Speaks::Resp { session, .. } => session.end(shared),
            Speaks::Chain { session, .. } => session.end(shared.chain.as_ref()),
            Speaks::Http { .. } => {}
        }
    }
}

impl Core<'_> {
    /// The context of a command. `arrival_ns` is the arrival time of the packet with the command, or 0.
    pub(crate) fn context(&mut self, conn: ConnId, arrival_ns: u64) -> Context<'_> {
        // If the clock was set back, records must not have an arrival time in the future.
        let now_ns = self.now.unix_ns;
        let arrival_ns = if arrival_ns == 0 { now_ns } else { arrival_ns.min(now_ns) };
        Context {
            shared: self.shared,
            engine: &self.shared.engine,
            logs: &self.shared.logs,
            writer: self.writer,
            now_ms: self.now.unix_ms(),
            steady_ms: self.now.steady_ms,
            arrival_ns,
            conn,
            worker: self.worker,
            tail: self.tail,
            known_crc: self.known_crc.clone(),
        }
    }
}

#[inline]
fn settle(reply: crate::reply::Reply<'_>, outcome: Outcome, end: usize) -> Step {
    match outcome {
        Outcome::Done => {
            reply.finish();
            Step::Executed(end)
        }
        Outcome::Close => {
            reply.finish();
            Step::End(end)
        }
        Outcome::Wait(until) => {
            reply.abandon();
            Step::Parked(Park::On(until))
        }
        Outcome::Tail(tail) => {
            reply.abandon();
            Step::Parked(Park::Log(tail))
        }
    }
}
