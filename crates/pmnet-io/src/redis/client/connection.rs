//! A connection of a Redis client: it parses requests, passes them to a session, and sends the replies in the order of
//! the requests.

use super::blocking::{Blocked, waits_from_now_on};
use super::config::SidecarConfig;
use super::local::Settings;
use super::reply::Reply;
use super::report::SidecarReport;
use crate::redis::commands::{Answer, Class, Refusal, Why, classify};
use crate::redis::resp::{self, Found};
use crate::runtime::{SessionId, Sessions};
use landfall_pmnet::client::{ClientError, RequestId};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Bytes of requests that are not handled yet, of a client that has not authenticated: more than its longest request.
const STRANGERS_INPUT_MAX: usize = 256 << 10;
const QUEUED: &[u8] = b"+QUEUED\r\n";
const EXEC_ABORT: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";

/// The place of a reply in the order of requests.
#[derive(Debug)]
enum Slot {
    /// The reply is known.
    Ready(Reply),
    /// An update is under way; its reply is the constant.
    Update(RequestId, &'static [u8]),
    /// A bypass is under way.
    Bypass(RequestId),
    /// A blocking command waits for its next poll.
    Paused,
}

impl Slot {
    /// Stores the reply, and adds its memory to that of the ready replies.
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

/// A connection of a Redis client.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) session: Option<SessionId>,
    settings: Settings,
    input: Vec<u8>,
    /// Bytes of `input` that have been handled.
    parsed: usize,
    output: Vec<u8>,
    written: usize,
    slots: VecDeque<Slot>,
    /// Bytes of replies that are ready and stand behind others that are not.
    ready_bytes: usize,
    /// Bytes of replies that may wait for the client. Above that, its next requests are not handled.
    pub(super) allowed: usize,
    /// Requests were not handled, because replies held more than `allowed`.
    stopped: bool,
    /// Bytes that the budget has noted for this connection.
    pub(super) noted: usize,
    transaction: Option<Transaction>,
    blocked: Option<Blocked>,
    /// The error that the next command gets before the connection is closed: the session was lost while no request was
    /// under way.
    final_error: Option<String>,
    /// The client has closed its side of the connection.
    ended: bool,
}

/// Result of handling a request.
enum Step {
    Done,
    /// The request was not handled, and must be handled later.
    Later,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, id: u64, config: &SidecarConfig) -> Self {
        let settings = Settings { id, authenticated: config.password.is_none(), ..Settings::default() };
        Self {
            stream,
            session: None,
            settings,
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
            final_error: None,
            ended: false,
        }
    }

    /// Reads the bytes that have arrived, as many as fit into `scratch`. An error ends the connection.
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

    /// True if the connection should read more input. While a blocking command waits, reading detects that the client
    /// has closed the connection.
    pub(super) fn wants_input(&self, config: &SidecarConfig) -> bool {
        let most = if self.settings.authenticated { config.request_bytes_max } else { STRANGERS_INPUT_MAX };
        let room = self.input.len() - self.parsed <= most;
        !self.ended && !self.settings.closing && room && (self.blocked.is_some() || !self.is_full(config))
    }

    /// True if so many bytes of replies wait for the client that no more replies should be fetched.
    pub(super) fn has_enough(&self) -> bool {
        self.wants_output() && self.output.capacity() > self.allowed
    }

    /// Bytes of memory that replies hold.
    pub(super) fn held_bytes(&self) -> usize {
        self.output.capacity() + self.ready_bytes
    }

    /// True if replies wait for the client.
    pub(super) fn wants_output(&self) -> bool {
        self.written < self.output.len()
    }

    /// True if the connection can be closed, because all replies have been sent.
    pub(super) fn is_finished(&self) -> bool {
        let last = self.settings.closing || (self.ended && self.blocked.is_none());
        last && self.slots.is_empty() && !self.wants_output() || (self.ended && self.blocked.is_some())
    }

    /// True if it gets a session: it may have requests for the server.
    pub(super) fn wants_session(&self) -> bool {
        self.session.is_none() && self.settings.authenticated
    }

    /// True if no request is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot, Slot::Ready(_)))
    }

    /// Number of requests that are under way.
    pub(super) fn under_way(&self) -> usize {
        self.slots.iter().filter(|slot| matches!(slot, Slot::Update(..) | Slot::Bypass(_))).count()
    }

    fn is_full(&self, config: &SidecarConfig) -> bool {
        self.slots.len() >= config.pipeline_max || self.blocked.is_some() || self.held_bytes() > self.allowed
    }

    /// Handles the requests that have arrived, as far as limits allow.
    pub(super) fn advance(
        &mut self,
        sessions: &mut Sessions,
        config: &SidecarConfig,
        report: &mut SidecarReport,
    ) {
        while !self.settings.closing && !self.is_full(config) {
            let input = std::mem::take(&mut self.input);
            // All of a part is read again when more of it has come: strangers' parts are short.
            let is_authenticated = self.settings.authenticated;
            let step = match resp::read(&input[self.parsed..], config.request_bytes_max, is_authenticated) {
                Ok(Found::Part { skipped }) => {
                    self.parsed += skipped;
                    Step::Later
                }
                Ok(Found::Request(request)) => self.handle(&request, sessions, config, report),
                Err(error) => {
                    self.reply_error(&format!("ERR {error}"));
                    self.settings.closing = true;
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

    /// True if requests were not handled because of the memory of replies, and can be handled now.
    pub(super) fn can_resume(&self) -> bool {
        self.stopped && self.held_bytes() <= self.allowed
    }

    fn handle(
        &mut self,
        request: &resp::Request<'_>,
        sessions: &mut Sessions,
        config: &SidecarConfig,
        report: &mut SidecarReport,
    ) -> Step {
        let step = self.command(&request.args(), &request.text, sessions, config, report);
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
        if let Some(text) = self.final_error.take() {
            self.close_with(&text);
            return Step::Done;
        }
        let class = classify(args);
        if class == Class::Refused(Refusal::AnotherProtocol) {
            // The lines that follow are commands of whoever has made a browser send them.
            report.refused += 1;
            self.close_with(&format!("ERR {}", Refusal::AnotherProtocol.words()));
            return Step::Done;
        }
        let needs_no_auth =
            matches!(class, Class::Local(Answer::Auth | Answer::Hello | Answer::Quit | Answer::Reset));
        if !self.settings.authenticated && !needs_no_auth {
            self.reply_error("NOAUTH Authentication required.");
            return Step::Done;
        }
        if class == Class::Local(Answer::Transaction) {
            return self.boundary(args, sessions, report);
        }
        if let Some(transaction) = &mut self.transaction {
            let reply = transaction.add(class, bytes, config.request_bytes_max);
            let aborts = matches!(class, Class::Local(Answer::Reset | Answer::Quit));
            if !aborts {
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
                let reply = self.settings.answer(answer, args, config.password.as_deref());
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

    /// Handles `MULTI`, `DISCARD` and `EXEC`.
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

    /// Encodes a bypass for the wire: a `HELLO 3` in front requests a RESP3 reply.
    fn as_bypass(&self, bytes: &[u8]) -> Vec<u8> {
        let mut request = Vec::with_capacity(bytes.len() + 24);
        if self.settings.resp3 {
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
                "ERR PMNet polls blocking commands, so that XREAD cannot wait from $ on: name an entry",
            );
            return Step::Done;
        }
        let step = self.bypass(bytes, sessions, report);
        if matches!(step, Step::Done) && matches!(self.slots.back(), Some(Slot::Bypass(_))) {
            self.blocked = Blocked::new(args, self.as_bypass(bytes));
        }
        step
    }

    /// The session of the connection. The first command that needs one starts it. A session that runs out of numbers is
    /// replaced once no request is under way.
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
                // The next command needs a new session, which cannot begin while requests are under way.
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

    /// Sends an error as the last reply and closes the connection.
    fn close_with(&mut self, text: &str) {
        self.push_ready(Reply::error(text));
        self.settings.closing = true;
    }

    /// Handles the completion of an update: it is durable.
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

    /// Handles a bypass that was executed and whose reply is too long: the client gets an error instead.
    pub(super) fn too_long(&mut self, id: RequestId, len: usize, max: usize) {
        let error = format!(
            "ERR the reply of {len} bytes is longer than the {max} that the client's side-car takes; the command was executed: \
             raise --max-reply of landfall pmnet client, or ask for less at once"
        );
        self.answered(id, resp::error(&error));
    }

    /// Handles the reply to a bypass. Returns when to poll again if a blocking command got an empty reply.
    ///
    /// Bytes that are not exactly one reply close the connection: they would shift the order of replies, and the client
    /// would take every later reply for that to another command.
    pub(super) fn answered(&mut self, id: RequestId, bytes: Vec<u8>) -> Option<std::time::Instant> {
        let at = self.slots.iter().position(|slot| matches!(slot, Slot::Bypass(own) if *own == id))?;
        let Some(reply) = Reply::whole(bytes) else {
            tracing::error!("the server's side-car sent a malformed reply; the connection is closed");
            self.session_lost("the reply to this command is not whole");
            return None;
        };
        let last = at + 1 == self.slots.len();
        if last && let Some(blocked) = &mut self.blocked {
            if reply.is_null()
                && let Some(again) = blocked.again()
            {
                self.slots[at] = Slot::Paused;
                return Some(again);
            }
            self.blocked = None;
        }
        self.slots[at].make_ready(reply, &mut self.ready_bytes);
        self.flush_slots();
        None
    }

    /// Polls a blocking command again. False if that is not possible now.
    pub(super) fn poll_blocked(&mut self, sessions: &mut Sessions) -> bool {
        let (Some(session), Some(blocked)) = (self.session, &self.blocked) else { return true };
        if !matches!(self.slots.back(), Some(Slot::Paused)) {
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

    /// Handles the loss of the session. The requests under way get an error that says that their outcome is unknown. If
    /// none is under way, the next command gets an error.
    pub(super) fn session_lost(&mut self, why: &str) {
        self.session = None;
        self.blocked = None;
        if self.is_idle() {
            self.final_error = Some(format!("LANDFALL {why}; what it had written may be lost"));
            return;
        }
        let error = format!("LANDFALL {why}; the command may have been executed or not");
        for slot in &mut self.slots {
            if !matches!(slot, Slot::Ready(_)) {
                slot.make_ready(Reply::error(&error), &mut self.ready_bytes);
            }
        }
        self.settings.closing = true;
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

    /// Frees the bytes that the client has read, once they are half of the buffer. Without this, a client that always
    /// has unread replies would make the buffer grow without bound.
    fn free_written(&mut self) {
        if self.written >= self.output.len() / 2 {
            self.output.drain(..self.written);
            self.output.shrink_to_fit();
            self.written = 0;
        }
    }

    /// Writes as many bytes as the client accepts. An error ends the connection.
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
    /// Queues a command of a transaction, and returns the reply to it.
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
