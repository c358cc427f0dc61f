//! A client's connection: its requests in order, and its replies in the same order.

use super::super::commands::{Answer, Class, Why, classify};
use super::super::resp;
use super::blocking::{Blocked, waits_from_now_on};
use super::local::Manners;
use super::reply::Reply;
use super::{SidecarConfig, SidecarReport};
use crate::runtime::{SessionId, Sessions};
use landfall_pmnet::client::{ClientError, RequestId};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

const QUEUED: &[u8] = b"+QUEUED\r\n";
const EXEC_ABORT: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";

/// Where a reply will be.
#[derive(Debug)]
enum Slot {
    Ready(Reply),
    Update(RequestId, &'static [u8]),
    Bypass(RequestId),
    /// Of a command that waits: asked again later.
    Asleep,
}

impl Slot {
    /// The reply has come: it is counted with those that wait.
    fn make_ready(&mut self, reply: Reply, ready_bytes: &mut usize) {
        *ready_bytes += reply.capacity();
        *self = Self::Ready(reply);
    }
}

#[derive(Debug, Default)]
struct Transaction {
    commands: Vec<u8>,
    failed: bool,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) session: Option<SessionId>,
    manners: Manners,
    input: Vec<u8>,
    /// Bytes of `input` that have been dealt with.
    parsed: usize,
    output: Vec<u8>,
    written: usize,
    slots: VecDeque<Slot>,
    /// Bytes of replies that are ready behind others that are not.
    ready_bytes: usize,
    /// Bytes of replies that may wait for the client before its next request is looked at.
    pub(super) allowed: usize,
    /// Requests were left, as replies held more than that.
    stopped: bool,
    /// What the budget knows that it holds.
    pub(super) noted: usize,
    transaction: Option<Transaction>,
    blocked: Option<Blocked>,
    /// The error that the next command gets, which is the last one: the session was lost while none was under way.
    farewell: Option<String>,
    /// The client sends no more.
    ended: bool,
}

/// What handling a request comes to.
enum Step {
    Done,
    /// Nothing was done: later.
    Later,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, id: u64, config: &SidecarConfig) -> Self {
        let manners = Manners { id, authenticated: config.password.is_none(), ..Manners::default() };
        Self {
            stream,
            session: None,
            manners,
            input: Vec::new(),
            parsed: 0,
            output: Vec::new(),
            written: 0,
            slots: VecDeque::new(),
            ready_bytes: 0,
            allowed: 0,
            stopped: false,
            noted: 0,
            transaction: None,
            blocked: None,
            farewell: None,
            ended: false,
        }
    }

    /// Reads what is there, as much as fits into `scratch`; an error ends the connection.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        self.input.drain(..self.parsed);
        self.parsed = 0;
        let read = self.stream.read(scratch);
        self.input.extend_from_slice(&scratch[..*read.as_ref().unwrap_or(&0)]);
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether more input would be of use. Behind a command that waits it tells whether the client is still there.
    pub(super) fn wants_input(&self, config: &SidecarConfig) -> bool {
        let room = self.input.len() - self.parsed <= config.request_bytes_max;
        !self.ended && !self.manners.closing && room && (self.blocked.is_some() || !self.is_full(config))
    }

    /// Whether so many bytes of replies wait for the client that no more are to be fetched.
    pub(super) fn has_enough(&self) -> bool {
        self.wants_output() && self.output.capacity() > self.allowed
    }

    /// Bytes of memory that replies hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.output.capacity() + self.ready_bytes
    }

    /// Whether replies wait for the client.
    pub(super) fn wants_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// Whether it can be closed: everything is said.
    pub(super) fn is_over(&self) -> bool {
        let last = self.manners.closing || (self.ended && self.blocked.is_none());
        last && self.slots.is_empty() && !self.wants_output() || (self.ended && self.blocked.is_some())
    }

    /// Whether none of its requests is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, Slot::Ready(_)))
    }

    /// How many of its requests are under way.
    pub(super) fn under_way(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Update(..) | Slot::Bypass(_))).count()
    }

    fn is_full(&self, config: &SidecarConfig) -> bool {
        self.slots.len() >= config.pipeline_max || self.blocked.is_some() || self.held_bytes() > self.allowed
    }

    /// Handles requests as far as it goes.
    pub(super) fn advance(
        &mut self,
        sessions: &mut Sessions,
        config: &SidecarConfig,
        report: &mut SidecarReport,
    ) {
        while !self.manners.closing && !self.is_full(config) {
            let input = std::mem::take(&mut self.input);
            let step = match resp::request(&input[self.parsed..], config.request_bytes_max) {
                Ok(None) => Step::Later,
                Ok(Some(request)) => self.handle(&input, &request, sessions, config, report),
                Err(error) => {
                    self.reply_error(&format!("ERR {error}"));
                    self.manners.closing = true;
                    Step::Later
                }
            };
            self.input = input;
            if matches!(step, Step::Later) {
                break;
            }
        }
        self.flush_slots();
        self.stopped = self.held_bytes() > self.allowed;
    }

    /// Whether requests that are here were left because of what replies held, and need not be any longer.
    pub(super) fn goes_on(&self) -> bool {
        self.stopped && self.held_bytes() <= self.allowed
    }

    fn handle(
        &mut self,
        input: &[u8],
        request: &resp::Request,
        sessions: &mut Sessions,
        config: &SidecarConfig,
        report: &mut SidecarReport,
    ) -> Step {
        let bytes = &input[self.parsed..self.parsed + request.bytes];
        let args: SmallVec<[&[u8]; 8]> = request.words.iter().map(|word| &bytes[word.clone()]).collect();
        let mut encoded = Vec::new();
        let bytes = if request.inline {
            resp::put_command(&mut encoded, &args);
            &encoded
        } else {
            bytes
        };
        let step =
            if args.is_empty() { Step::Done } else { self.command(&args, bytes, sessions, config, report) };
        if matches!(step, Step::Done) {
            self.parsed += request.bytes;
            report.commands += 1;
        }
        step
    }

    fn command(
        &mut self,
        args: &[&[u8]],
        bytes: &[u8],
        sessions: &mut Sessions,
        config: &SidecarConfig,
        report: &mut SidecarReport,
    ) -> Step {
        if let Some(text) = self.farewell.take() {
            self.close_with(&text);
            return Step::Done;
        }
        let class = classify(args);
        let known =
            matches!(class, Class::Local(Answer::Auth | Answer::Hello | Answer::Quit | Answer::Reset));
        if !self.manners.authenticated && !known {
            self.reply_error("NOAUTH Authentication required.");
            return Step::Done;
        }
        if class == Class::Local(Answer::Transaction) {
            return self.boundary(args, sessions, report);
        }
        if let Some(transaction) = &mut self.transaction {
            let reply = transaction.add(class, bytes, config.request_bytes_max);
            let leaves = matches!(class, Class::Local(Answer::Reset | Answer::Quit));
            if !leaves {
                self.reply(reply);
                return Step::Done;
            }
            self.transaction = None;
        }
        match class {
            Class::Early(constant) => self.update(bytes, constant, sessions, report),
            Class::Typed(constant) if config.typed_early => self.update(bytes, constant, sessions, report),
            Class::Typed(_) => self.bypass(bytes, sessions, report),
            Class::Bypass(Why::Blocking) => self.block(args, bytes, sessions, report),
            Class::Bypass(_) => self.bypass(bytes, sessions, report),
            Class::Local(answer) => {
                report.local += 1;
                let reply = self.manners.answer(answer, args, config.password.as_deref());
                self.reply(reply);
                Step::Done
            }
            Class::Refused(refusal) => {
                report.refused += 1;
                self.reply_error(&format!("ERR {}", refusal.words()));
                Step::Done
            }
        }
    }

    /// `MULTI`, `DISCARD`, `EXEC`.
    fn boundary(&mut self, args: &[&[u8]], sessions: &mut Sessions, report: &mut SidecarReport) -> Step {
        let is = |name: &[u8]| args[0].eq_ignore_ascii_case(name);
        let reply: &[u8] = if args.len() != 1 {
            b"-ERR wrong number of arguments\r\n"
        } else if is(b"MULTI") && self.transaction.is_some() {
            b"-ERR MULTI calls can not be nested\r\n"
        } else if is(b"MULTI") {
            self.transaction = Some(Transaction::default());
            b"+OK\r\n"
        } else if self.transaction.is_none() {
            if is(b"EXEC") { b"-ERR EXEC without MULTI\r\n" } else { b"-ERR DISCARD without MULTI\r\n" }
        } else if is(b"DISCARD") {
            self.transaction = None;
            b"+OK\r\n"
        } else {
            return self.exec(sessions, report);
        };
        self.reply(reply.to_vec());
        Step::Done
    }

    fn exec(&mut self, sessions: &mut Sessions, report: &mut SidecarReport) -> Step {
        let Some(transaction) = self.transaction.take() else { return Step::Done };
        if transaction.failed {
            self.reply(EXEC_ABORT.to_vec());
            return Step::Done;
        }
        let mut bytes = Vec::new();
        resp::put_command(&mut bytes, &[b"MULTI"]);
        bytes.extend_from_slice(&transaction.commands);
        resp::put_command(&mut bytes, &[b"EXEC"]);
        let step = self.bypass(&bytes, sessions, report);
        if matches!(step, Step::Later) {
            self.transaction = Some(transaction);
        }
        step
    }

    fn update(
        &mut self,
        bytes: &[u8],
        constant: &'static [u8],
        sessions: &mut Sessions,
        report: &mut SidecarReport,
    ) -> Step {
        let sent = self.session(sessions).and_then(|session| sessions.update(session, bytes));
        match sent {
            Ok(id) => {
                report.early += 1;
                self.slots.push_back(Slot::Update(id, constant));
                Step::Done
            }
            Err(error) => self.not_sent(error),
        }
    }

    fn bypass(&mut self, bytes: &[u8], sessions: &mut Sessions, report: &mut SidecarReport) -> Step {
        let sent = self.session(sessions);
        let sent = sent.and_then(|session| sessions.bypass(session, &self.as_bypass(bytes)));
        match sent {
            Ok(id) => {
                report.bypass += 1;
                self.slots.push_back(Slot::Bypass(id));
                Step::Done
            }
            Err(error) => self.not_sent(error),
        }
    }

    /// On the wire, a bypass says which protocol its reply is to have.
    fn as_bypass(&self, bytes: &[u8]) -> Vec<u8> {
        let mut request = Vec::with_capacity(bytes.len() + 24);
        if self.manners.resp3 {
            resp::put_command(&mut request, &[b"HELLO", b"3"]);
        }
        request.extend_from_slice(bytes);
        request
    }

    fn block(
        &mut self,
        args: &[&[u8]],
        bytes: &[u8],
        sessions: &mut Sessions,
        report: &mut SidecarReport,
    ) -> Step {
        if waits_from_now_on(args) {
            self.reply_error(
                "ERR PMNet asks again and again, so that XREAD cannot wait from $ on: name an entry",
            );
            return Step::Done;
        }
        let step = self.bypass(bytes, sessions, report);
        if matches!(step, Step::Done) && matches!(self.slots.back(), Some(Slot::Bypass(_))) {
            self.blocked = Blocked::new(args, self.as_bypass(bytes));
        }
        step
    }

    /// The session, which starts with the first command that needs one. One without numbers is let go once nothing
    /// is under way.
    fn session(&mut self, sessions: &mut Sessions) -> Result<SessionId, ClientError> {
        if let Some(session) = self.session.filter(|session| !sessions.needs_successor(*session)) {
            return Ok(session);
        }
        if !self.is_idle() {
            return Err(ClientError::Full);
        }
        if let Some(old) = self.session.take() {
            sessions.end(old);
        }
        let session = sessions.start().map_err(|error| {
            tracing::error!(%error, "a client's command has no session");
            ClientError::Exhausted
        })?;
        self.session = Some(session);
        Ok(session)
    }

    fn not_sent(&mut self, error: ClientError) -> Step {
        match error {
            ClientError::Full => return Step::Later,
            ClientError::Exhausted | ClientError::Ended if self.session.is_some() => {
                // The next one needs a new session, which begins when nothing is under way.
                if !self.is_idle() {
                    return Step::Later;
                }
                self.session = None;
                self.reply_error("LANDFALL the session with the server has ended; try again");
            }
            error => self.reply_error(&format!("ERR {error}")),
        }
        Step::Done
    }

    fn reply(&mut self, bytes: Vec<u8>) {
        match Reply::whole(bytes) {
            Some(reply) => self.push_ready(reply),
            None => self.close_with("LANDFALL the side-car has no whole reply to this command; report this"),
        }
        self.flush_slots();
    }

    fn push_ready(&mut self, reply: Reply) {
        self.ready_bytes += reply.capacity();
        self.slots.push_back(Slot::Ready(reply));
    }

    fn reply_error(&mut self, text: &str) {
        self.push_ready(Reply::error(text));
        self.flush_slots();
    }

    /// The last thing that the client is told.
    fn close_with(&mut self, text: &str) {
        self.push_ready(Reply::error(text));
        self.manners.closing = true;
    }

    /// An update is durable.
    pub(super) fn complete(&mut self, id: RequestId) {
        let found = self.slots.iter_mut().find(|slot| matches!(slot, Slot::Update(own, _) if *own == id));
        if let Some(slot) = found
            && let Slot::Update(_, constant) = slot
        {
            let whole = Reply::whole(constant.to_vec());
            let reply = whole.unwrap_or_else(|| Reply::error("ERR the command was executed"));
            slot.make_ready(reply, &mut self.ready_bytes);
        }
        self.flush_slots();
    }

    /// A bypass was executed, and its reply is not taken.
    pub(super) fn too_long(&mut self, id: RequestId, len: usize, max: usize) {
        let error = format!(
            "ERR the reply of {len} bytes is longer than the {max} that the client's side-car takes; the command was executed: \
             raise --max-reply of landfall pmnet client, or ask for less at once"
        );
        self.answered(id, resp::error(&error));
    }

    /// A bypass is answered. When to ask again, if it waits for more than that.
    ///
    /// What is no reply closes the connection: in the place of one it would have the client take every later reply for that to
    /// the command before.
    pub(super) fn answered(&mut self, id: RequestId, bytes: Vec<u8>) -> Option<std::time::Instant> {
        let at = self.slots.iter().position(|slot| matches!(slot, Slot::Bypass(own) if *own == id))?;
        let Some(reply) = Reply::whole(bytes) else {
            tracing::error!("the server's side-car answered with what is no reply; the connection is closed");
            self.session_lost("the reply to this command is not whole");
            return None;
        };
        let last = at + 1 == self.slots.len();
        if last && let Some(blocked) = &mut self.blocked {
            if reply.is_null()
                && let Some(again) = blocked.again()
            {
                self.slots[at] = Slot::Asleep;
                return Some(again);
            }
            self.blocked = None;
        }
        self.slots[at].make_ready(reply, &mut self.ready_bytes);
        self.flush_slots();
        None
    }

    /// Asks again on behalf of a command that waits; false if that is not possible now.
    pub(super) fn wake(&mut self, sessions: &mut Sessions) -> bool {
        let (Some(session), Some(blocked)) = (self.session, &self.blocked) else { return true };
        if !matches!(self.slots.back(), Some(Slot::Asleep)) {
            return true;
        }
        match sessions.bypass(session, &blocked.request) {
            Ok(id) => {
                self.slots.pop_back();
                self.slots.push_back(Slot::Bypass(id));
                true
            }
            Err(_) => false,
        }
    }

    /// The session is over: what became of the requests under way is unknown, and is told so. Without any, the next one is told.
    pub(super) fn session_lost(&mut self, why: &str) {
        self.session = None;
        self.blocked = None;
        if self.is_idle() {
            self.farewell = Some(format!("LANDFALL {why}; what it had written may be lost"));
            return;
        }
        let error = format!("LANDFALL {why}; the command may have been executed or not");
        for slot in &mut self.slots {
            if !matches!(slot, Slot::Ready(_)) {
                slot.make_ready(Reply::error(&error), &mut self.ready_bytes);
            }
        }
        self.manners.closing = true;
        self.flush_slots();
    }

    fn flush_slots(&mut self) {
        while matches!(self.slots.front(), Some(Slot::Ready(_))) {
            if let Some(Slot::Ready(reply)) = self.slots.pop_front() {
                self.ready_bytes -= reply.capacity();
                reply.append_to(&mut self.output);
            }
        }
    }

    /// A client that never catches up leaves nothing behind: what it has taken is freed once that is half.
    fn free_written(&mut self) {
        if self.written >= self.output.len() / 2 {
            self.output.drain(..self.written);
            self.output.shrink_to_fit();
            self.written = 0;
        }
    }

    /// Writes what the client takes; an error ends the connection.
    pub(super) fn write(&mut self) -> io::Result<()> {
        while self.wants_output() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(len) => self.written += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.free_written();
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output = Vec::new();
        self.written = 0;
        Ok(())
    }
}

impl Transaction {
    /// A command within `MULTI`; its reply.
    fn add(&mut self, class: Class, bytes: &[u8], max: usize) -> Vec<u8> {
        let error = match class {
            Class::Local(Answer::Ping | Answer::Echo) => None,
            Class::Local(_) => Some("this command cannot be part of a transaction of PMNet"),
            Class::Refused(refusal) => Some(refusal.words()),
            _ => None,
        };
        let error =
            error.or((self.commands.len() + bytes.len() > max).then_some("the transaction is too long"));
        if let Some(error) = error {
            self.failed = true;
            return resp::error(&format!("ERR {error}"));
        }
        self.commands.extend_from_slice(bytes);
        QUEUED.to_vec()
    }
}
