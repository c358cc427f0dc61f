//! Commands of the Redis protocol.
//!
//! Read [`Session`] first; each connection has one. A command is found in a static table (`table`), its arity and the
//! client's permissions are checked, then the command's function runs with a `Call`. Replies and error texts are those
//! of Redis 7; if Landfall does not support what Redis does, the error says so.
//!
//! Every command follows two rules. Its reply shows only durable data: whatever the command read or wrote is opened by
//! its reply, which then waits ([`landfall_heap::Gated`]). And a command that must wait returns [`Outcome::Wait`]
//! without having changed anything, because it will be executed again.

mod append;
mod auth;
mod call;
mod clients;
mod command;
mod connection;
mod databases;
mod documentation;
mod expiry;
mod fail;
mod files;
mod flags;
mod info;
mod inspect;
mod introspection;
mod keys;
mod logs;
mod multi;
mod numbers;
mod options;
mod pieces;
mod range;
mod role;
mod scan;
mod sentinel;
mod server;
mod settings;
mod strings;
mod subscribe;
mod subscriptions;
mod table;
mod words;

pub use command::Session;

use crate::chain::{self, NotHere};
use crate::context::{Context, Outcome};
use crate::counters::count;
use crate::reply::Reply;
use crate::shared::{ClientInfo, Shared};
use crate::walk::Walk;
use call::check_reply;
use command::{Call, Spec, State};
use fail::Fail;
use flags::Flags;
use landfall_heap::Until;
use landfall_media::Chain;
use landfall_resp::{Command, Protocol};
use landfall_sockets::ConnId;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use words::Words;

/// Checks that this node of a chain, if it is one, may execute a command.
fn check_here(shared: &Shared, spec: &Spec, words: usize) -> Result<(), NotHere> {
    let shows = spec.has(Flags::SHOWS) && words == spec.arity.unsigned_abs() as usize;
    let writes = spec.has(Flags::WRITE) && !shows;
    match (&shared.chain, spec.has(Flags::LOADING) && !writes) {
        (None, _) | (_, true) => Ok(()),
        (Some(_), false) => chain::admit(shared, writes),
    }
}

/// True for a line of a request of HTTP. A page in a browser can have one sent to any port, and the lines of its body,
/// which are the page's, would be commands. Redis ends the connection, too.
fn is_http(words: Words<'_>) -> bool {
    words.is(0, "post") || words.is(0, "host:")
}

impl Session {
    /// Begins a session and registers it as a client.
    pub fn new(shared: &Shared, conn: ConnId, worker: usize, peer: Option<SocketAddr>) -> Self {
        let session = Self {
            id: shared.next_client.fetch_add(1, Ordering::Relaxed),
            state: State::new(shared),
            failures: 0,
            queue: None,
            watched: HashMap::new(),
            parts: None,
            killed: Arc::default(),
            table: &table::TABLE,
        };
        tracing::debug!(client = session.id, ?conn, worker, ?peer, "RESP client connected");
        let client = ClientInfo {
            peer,
            name: String::new(),
            library: session.state.library.clone(),
            database: 0,
            protocol: 2,
            since: Instant::now(),
            worker,
            killed: Arc::clone(&session.killed),
        };
        shared.clients.lock().insert(session.id, client);
        session
    }

    /// The client's version of the protocol.
    pub fn protocol(&self) -> Protocol {
        self.state.protocol
    }

    /// The database that the client has selected.
    pub fn database(&self) -> u8 {
        self.state.database
    }

    /// True once the client may execute commands.
    pub fn is_authenticated(&self) -> bool {
        self.state.authenticated
    }

    /// True if the end of the connection was requested.
    pub fn was_killed(&self) -> bool {
        self.killed.load(Ordering::Relaxed)
    }

    /// Executes a command. On [`Outcome::Wait`] nothing was written or changed: the caller executes it again.
    pub fn execute(
        &mut self,
        ctx: &mut Context<'_>,
        command: &Command,
        chain: &Chain<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let known_crc = ctx.known_crc.take();
        let walk = Walk::new(*chain);
        let words = Words::Landed { command, walk: &walk, known_crc: known_crc.as_ref() };
        let shared = ctx.shared;
        let done = self.dispatch(ctx, words, reply);
        if let Err(fail) = done.and_then(|()| check_reply(shared, reply)) {
            if let Fail::Wait(until) = fail {
                if let Until::Load(_) = until {
                    let walk = Walk::new(*chain);
                    self.fetch_named(ctx, Words::Landed { command, walk: &walk, known_crc: None });
                }
                reply.rewind();
                return Outcome::Wait(until);
            }
            if let Fail::Tail(tail) = fail {
                reply.rewind();
                return Outcome::Tail(tail);
            }
            self.write_failure(shared, &fail, reply);
        }
        count(&shared.counters.commands, 1);
        if self.state.closing { Outcome::Close } else { Outcome::Done }
    }

    fn dispatch<'c>(
        &'c mut self,
        ctx: &'c mut Context<'_>,
        words: Words<'c>,
        reply: &'c mut Reply<'_>,
    ) -> Result<(), Fail> {
        let spec = self.admit(words).and_then(|spec| self.admit_here(ctx.shared, spec, words.len()));
        if spec.is_err() && is_http(words) {
            self.state.closing = true;
            return Err(Fail::error("ERR this port speaks RESP: HTTP has a port of its own"));
        }
        if let Some(queue) = &mut self.queue
            && !matches!(spec, Ok(spec) if spec.has(Flags::IMMEDIATE))
            && !words.is(0, "exec")
        {
            return queue.take(ctx.engine.heap(), spec, words, self.state.protocol, reply);
        }
        let spec = spec.map_err(|fail| self.refuse(words, ctx, fail))?;
        (spec.run)(&mut Call { spec, words, session: self, ctx, reply, txn: None, stats: None })
    }

    /// Asks for the values of all keys that a command, or the transaction that it executes, names: one of them has left memory.
    fn fetch_named(&self, ctx: &Context<'_>, words: Words<'_>) {
        let (engine, now_ms) = (ctx.engine, ctx.now_ms);
        if let Some(queue) = &self.queue {
            return queue.fetch_named(engine, self.state.database, now_ms);
        }
        let Ok(spec) = table::resolve(words) else { return };
        // The first was asked for when it was found missing.
        for at in spec.key_positions(words.len()).skip(1) {
            engine.fetch(self.state.database, &words.bytes(at), now_ms);
        }
    }

    /// Finds the command and checks that the client may call it.
    fn admit(&self, words: Words<'_>) -> Result<&'static Spec, Fail> {
        let spec = table::resolve(words)?;
        if !self.state.authenticated && !spec.has(Flags::NO_AUTH) {
            return Err(Fail::error("NOAUTH Authentication required."));
        }
        self.check_subscribed(spec)?;
        Ok(spec)
    }

    /// Checks that this node of a chain may execute the command. A client that has to find another one is sent away.
    fn admit_here(
        &mut self,
        shared: &Shared,
        spec: &'static Spec,
        words: usize,
    ) -> Result<&'static Spec, Fail> {
        let is_of_subscriber = self.is_subscribed() && spec.has(Flags::SUBSCRIBED);
        match check_here(shared, spec, words) {
            Err(why) if !is_of_subscriber => {
                self.state.closing |= why.ends_connection();
                Err(Fail::Error(why.resp().into()))
            }
            _ => Ok(spec),
        }
    }

    /// Why a command was refused; a refused `EXEC` ends its transaction.
    fn refuse(&mut self, words: Words<'_>, ctx: &Context<'_>, fail: Fail) -> Fail {
        match fail {
            Fail::Error(text) if words.is(0, "exec") => {
                self.drop_transaction(ctx.engine.heap());
                let text = text.strip_prefix("ERR ").unwrap_or(&text);
                Fail::Error(format!("EXECABORT Transaction discarded because of: {text}").into())
            }
            fail => fail,
        }
    }

    fn write_failure(&self, shared: &Shared, fail: &Fail, reply: &mut Reply<'_>) {
        count(&shared.counters.errors, 1);
        if !reply.is_empty() {
            reply.rewind();
        }
        fail.write(self.state.protocol, reply);
    }

    /// Ends the session: unregisters the client and releases what the session held.
    pub fn end(&mut self, shared: &Shared) {
        shared.clients.lock().remove(&self.id);
        self.drop_transaction(shared.engine.heap());
    }
}
