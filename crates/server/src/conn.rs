//! One connection: what it has sent, who parses it, what it is to get.

use crate::ahead::{Ahead, KnownCrc};
use crate::config::Config;
use crate::context::{Context, Outcome, Tail};
use crate::http::HttpSession;
use crate::landing::Inbox;
use crate::reply::Outbox;
use crate::resp::Session;
use crate::shared::count;
use landfall_heap::{Heap, SlotId, Writer};
use landfall_media::{Chain, Segment};
use landfall_resp::Command;
use landfall_sockets::ConnId;
use smallvec::SmallVec;
use std::ops::Range;

/// Which protocol a connection speaks.
pub(crate) enum Speaks {
    Resp { parser: landfall_resp::Parser, session: Session, command: Command },
    Http { parser: landfall_http::Parser, session: HttpSession },
}

/// Why a connection's next command is not executed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Park {
    /// Until this record is durable.
    Slot(SlotId),
    /// Until the worker's next commit has completed.
    Commit,
    /// Until a log has grown, or its time is up.
    Log(Tail),
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) speaks: Speaks,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) park: Option<Park>,
    /// A send is with the transport.
    pub(crate) sending: bool,
    /// Bytes of that send.
    pub(crate) sending_len: usize,
    /// Receiving is paused.
    pub(crate) paused: bool,
    /// Nothing more is parsed; the connection goes once its replies are out.
    pub(crate) closing: bool,
    /// Handed to the transport for closing.
    pub(crate) closed: bool,
    /// The client sends no more.
    pub(crate) eof: bool,
    /// When the client last did something, milliseconds.
    pub(crate) active_ms: u64,
    /// Since when it has kept half a request or an untaken reply, milliseconds; 0: it does not.
    pub(crate) stalled_ms: u64,
    /// What is computed of the value that it waits for.
    ahead: Option<Ahead>,
    /// Its unparsed bytes have been moved out of landing space.
    pub(crate) aside: bool,
    /// On the list of connections to be serviced this round.
    pub(crate) touched: bool,
    /// What its first command has been waiting for.
    pub(crate) tail: Option<Tail>,
    /// On the list of connections that wait for a log to grow.
    pub(crate) tailing: bool,
    /// On the list of connections whose replies or commands wait for a commit.
    pub(crate) waiting: bool,
    /// When the packet that arrived last did, Unix nanoseconds; 0: its transport does not know.
    pub(crate) arrival_ns: u64,
    /// Epoch in which it was last counted as active.
    pub(crate) epoch: u64,
}

/// What is needed to execute commands of any connection.
pub(crate) struct Core<'a> {
    pub(crate) shared: &'a crate::shared::Shared,
    pub(crate) writer: &'a mut Writer,
    pub(crate) round: u64,
    pub(crate) now_ns: u64,
    pub(crate) worker: usize,
    /// Of the command about to be executed.
    pub(crate) tail: Option<Tail>,
    /// The same.
    pub(crate) known_crc: Option<KnownCrc>,
}

/// What one command of a connection has come to.
enum Step {
    /// Executed: bytes up to here are consumed.
    Executed(usize),
    /// More bytes are needed.
    NeedMore,
    /// It must wait; bytes up to here are consumed.
    Parked(Park),
    /// Executed, or refused, and nothing more is to be read.
    End(usize),
}

impl Conn {
    pub(crate) fn new(id: ConnId, speaks: Speaks, now_ms: u64) -> Self {
        Self {
            id,
            speaks,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            park: None,
            sending: false,
            sending_len: 0,
            paused: false,
            closing: false,
            closed: false,
            eof: false,
            active_ms: now_ms,
            stalled_ms: 0,
            ahead: None,
            aside: false,
            touched: false,
            tail: None,
            tailing: false,
            waiting: false,
            arrival_ns: 0,
            epoch: 0,
        }
    }

    /// Bytes that the parser needs before it can go on.
    fn wanted(&self) -> usize {
        match &self.speaks {
            Speaks::Resp { parser, .. } => parser.bytes_wanted(),
            Speaks::Http { parser, .. } => parser.bytes_wanted(),
        }
    }

    /// The value for which its parser waits.
    fn awaited(&self) -> Option<Range<usize>> {
        match &self.speaks {
            Speaks::Resp { parser, .. } => parser.awaited(),
            Speaks::Http { parser, .. } => parser.awaited(),
        }
    }

    /// Looks at what has arrived of a long value. A failure is left to whoever reads the value next.
    fn look_ahead(&mut self, core: &Core<'_>, heap: &Heap) {
        if let Some(value) = self.awaited().filter(|_| core.shared.config.checksums_values()) {
            if !self.ahead.as_ref().is_some_and(|ahead| ahead.is_of(&value)) {
                self.ahead = Ahead::of(value);
            }
            if let Some(ahead) = &mut self.ahead
                && ahead.go_on(&self.inbox, heap).is_err()
            {
                self.ahead = None;
            }
        }
    }

    /// Output that is queued or on its way.
    pub(crate) fn output_len(&self) -> usize {
        self.outbox.len() + self.sending_len
    }

    /// A send has ended, and its buffers came back; its bytes.
    pub(crate) fn sent(&mut self, buffers: landfall_sockets::Outgoing) -> u64 {
        self.sending = false;
        self.outbox.recycle(buffers);
        std::mem::take(&mut self.sending_len) as u64
    }

    /// True when commands may be executed now.
    fn may_execute(&self, config: &Config) -> bool {
        !self.closing && self.park.is_none() && self.output_len() < config.max_output.0 as usize
    }

    /// Executes what has arrived, up to the pipeline limit. True if more could be executed at once.
    pub(crate) fn execute(&mut self, core: &mut Core<'_>) -> bool {
        let heap = core.shared.engine.heap().clone();
        if self.pump(core, &heap) {
            return self.may_execute(&core.shared.config);
        }
        self.look_ahead(core, &heap);
        if self.inbox.len() < self.wanted() || !self.may_execute(&core.shared.config) {
            return false;
        }
        let segments = match self.segments(&heap) {
            Ok(segments) => segments,
            Err(error) => {
                tracing::error!(%error, "received bytes cannot be read");
                self.closing = true;
                return false;
            }
        };
        let (mut chain, mut from) = (Chain::new(&segments), 0);
        let (received, mut left) = (chain.len(), core.shared.config.max_pipeline);
        let mut known_crc = self.ahead.as_ref().and_then(Ahead::known);
        while left > 0 && self.may_execute(&core.shared.config) && !self.is_streaming() {
            left -= 1;
            core.tail = self.tail.take();
            core.known_crc = known_crc.take();
            match self.step(core, &heap, &chain, from) {
                Step::Executed(end) => (chain, from) = chain.skip_to(end),
                Step::NeedMore => {
                    left = usize::MAX;
                    break;
                }
                Step::Parked(park) => {
                    if let Park::Log(tail) = park {
                        self.tail = Some(tail);
                    }
                    self.park = Some(park);
                    break;
                }
                Step::End(end) => {
                    from = end;
                    self.closing = true;
                }
            }
        }
        let consumed = received - (chain.len() - from);
        core.known_crc = None;
        if consumed > 0 || self.closing {
            self.ahead = None;
        }
        if self.closing {
            // All of it, or what a refusal has not yet let go of.
            self.inbox.clear(&heap);
        } else {
            self.inbox.consume(&heap, consumed);
        }
        if self.inbox.len() == 0 {
            self.stalled_ms = 0;
        } else if consumed > 0 || self.stalled_ms == 0 {
            self.stalled_ms = core.now_ns / 1_000_000;
        }
        self.aside = false;
        left == 0 && self.may_execute(&core.shared.config)
    }

    fn segments<'h>(&self, heap: &'h Heap) -> Result<SmallVec<[Segment<'h>; 4]>, landfall_media::MediaError> {
        let segment = |extent: landfall_media::Extent| {
            let bytes = heap.media().bytes(extent)?;
            Ok(Segment { addr: extent.off, bytes, sum: extent.sum() })
        };
        self.inbox.extents().map(segment).collect()
    }

    fn is_streaming(&self) -> bool {
        matches!(&self.speaks, Speaks::Http { session, .. } if session.is_streaming())
    }

    /// Goes on with a streamed reply while there is room for it; true while there is more.
    fn pump(&mut self, core: &mut Core<'_>, heap: &Heap) -> bool {
        while self.is_streaming() {
            if !self.may_execute(&core.shared.config) {
                return true;
            }
            let Speaks::Http { session, .. } = &mut self.speaks else { return false };
            let mut reply = self.outbox.begin(heap, core.round);
            match session.pump(&mut core.context(self.id, self.arrival_ns), &mut reply) {
                Outcome::Done => reply.finish(),
                Outcome::Close => {
                    reply.finish();
                    self.closing = true;
                }
                Outcome::Wait(slot) => {
                    reply.abandon();
                    self.park = Some(park_on(slot));
                }
                Outcome::Tail(tail) => {
                    reply.abandon();
                    self.park = Some(Park::Log(tail));
                }
            }
        }
        false
    }

    fn step(&mut self, core: &mut Core<'_>, heap: &Heap, chain: &Chain<'_>, from: usize) -> Step {
        match &mut self.speaks {
            Speaks::Resp { parser, session, command } => {
                match parser.next_into(chain, from, command) {
                    Ok(true) => {}
                    Ok(false) => return self.check_room(core, heap, from, chain.len()),
                    Err(error) => {
                        let mut reply = self.outbox.begin(heap, core.round);
                        landfall_resp::Writer::new(reply.bytes(), session.protocol()).protocol_error(&error);
                        reply.finish();
                        count(&core.shared.counters.errors, 1);
                        return Step::End(chain.len());
                    }
                }
                let mut reply = self.outbox.begin(heap, core.round);
                let outcome =
                    session.execute(&mut core.context(self.id, self.arrival_ns), command, chain, &mut reply);
                parser.set_authenticated(session.is_authenticated());
                settle(reply, outcome, command.end)
            }
            Speaks::Http { parser, session } => match parser.next(chain, from) {
                Ok(landfall_http::Progress::NeedMore) => self.check_room(core, heap, from, chain.len()),
                Ok(landfall_http::Progress::SendContinue) => {
                    let mut reply = self.outbox.begin(heap, core.round);
                    let refused = parser.head().is_some_and(|head| {
                        !session.accepts_body(&mut core.context(self.id, self.arrival_ns), head, &mut reply)
                    });
                    if !refused {
                        reply.bytes().extend_from_slice(landfall_http::CONTINUE);
                    }
                    reply.finish();
                    if refused { Step::End(chain.len()) } else { Step::Executed(from) }
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
                    session.bad_request(&error, core.now_ns / 1_000_000, &mut reply);
                    reply.finish();
                    count(&core.shared.counters.errors, 1);
                    Step::End(chain.len())
                }
            },
        }
    }

    /// Refuses a request that the region has no room to receive, before it fills what is left.
    fn check_room(&mut self, core: &mut Core<'_>, heap: &Heap, from: usize, len: usize) -> Step {
        let missing = (from + self.wanted()).saturating_sub(len) as u64;
        if missing < landfall_media::RUN_SIZE || missing < heap.room_bytes() {
            return Step::NeedMore;
        }
        self.refuse_for_space(core, heap);
        Step::End(len)
    }

    /// Answers that there is no space and ends the connection: the rest of the request is not wanted.
    pub(crate) fn refuse_for_space(&mut self, core: &mut Core<'_>, heap: &Heap) {
        let mut reply = self.outbox.begin(heap, core.round);
        match &self.speaks {
            Speaks::Resp { session, .. } => landfall_resp::Writer::new(reply.bytes(), session.protocol())
                .error("OOM the region has no room for this request: delete keys, or restart with a larger --capacity"),
            Speaks::Http { session, .. } => {
                let error = landfall_http::HttpError::new(
                    507,
                    "the region has no room for this request: delete keys, or restart with a larger --capacity",
                );
                session.bad_request(&error, core.now_ns / 1_000_000, &mut reply);
            }
        }
        reply.finish();
        self.closing = true;
        self.inbox.clear(heap);
    }

    /// Lets go of everything held for the connection.
    pub(crate) fn end(&mut self, shared: &crate::shared::Shared) {
        let heap = shared.engine.heap();
        self.inbox.clear(heap);
        self.outbox.clear(heap);
        if let Speaks::Resp { session, .. } = &mut self.speaks {
            session.end(shared);
        }
    }
}

impl Core<'_> {
    /// `arrival_ns` is of the packet that brought the command, or 0.
    pub(crate) fn context(&mut self, conn: ConnId, arrival_ns: u64) -> Context<'_> {
        // A clock that was set back must not let records arrive in the future.
        let arrival_ns = if arrival_ns == 0 { self.now_ns } else { arrival_ns.min(self.now_ns) };
        Context {
            shared: self.shared,
            engine: &self.shared.engine,
            logs: &self.shared.logs,
            writer: self.writer,
            now_ms: self.now_ns / 1_000_000,
            arrival_ns,
            conn,
            worker: self.worker,
            tail: self.tail,
            known_crc: self.known_crc.clone(),
        }
    }
}

fn park_on(slot: Option<SlotId>) -> Park {
    slot.map_or(Park::Commit, Park::Slot)
}

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
        Outcome::Wait(slot) => {
            reply.abandon();
            Step::Parked(park_on(slot))
        }
        Outcome::Tail(tail) => {
            reply.abandon();
            Step::Parked(Park::Log(tail))
        }
    }
}
