//! A command, the session of a client, and one execution of a command in it.
//!
//! These types refer to each other: the specification of a command has its function, which takes a call; a call has its
//! session; and a session queues commands.

use super::fail::Fail;
use super::flags::Flags;
use super::subscriptions::Subscriptions;
use super::words::{Word, Words};
use crate::context::Context;
use crate::reply::Reply;
use crate::shared::Shared;
use landfall_heap::Tickets;
use landfall_kv::{Stats, Txn};
use landfall_resp::Protocol;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A command's function.
pub(super) type Run = fn(&mut Call<'_, '_, '_>) -> Result<(), Fail>;

/// Positions of the keys: from `first` to `last` (negative: counted from the end), every `step`th word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySpec {
    pub(super) first: i32,
    pub(super) last: i32,
    pub(super) step: i32,
}

/// A command, or a subcommand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    /// Name in lower case; for a subcommand with the name of its command: `client|id`.
    pub(super) name: &'static str,
    /// Number of words including the name; negative: a minimum.
    pub(super) arity: i32,
    pub(super) flags: Flags,
    pub(super) keys: KeySpec,
    pub(super) run: Run,
    /// Group of the command in the documentation of Redis.
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
    pub(super) subcommands: &'static [Spec],
}

impl Spec {
    /// A command without keys.
    pub(super) const fn new(
        name: &'static str,
        arity: i32,
        flags: Flags,
        run: Run,
        group: &'static str,
        summary: &'static str,
    ) -> Self {
        let keys = KeySpec { first: 0, last: 0, step: 0 };
        Self { name, arity, flags, keys, run, group, summary, subcommands: &[] }
    }

    pub(super) const fn keys(mut self, first: i32, last: i32, step: i32) -> Self {
        self.keys = KeySpec { first, last, step };
        self
    }

    pub(super) const fn with(mut self, subcommands: &'static [Self]) -> Self {
        self.subcommands = subcommands;
        self
    }

    pub(super) const fn has(&self, flags: Flags) -> bool {
        self.flags.has(flags)
    }

    pub(super) fn takes(&self, words: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { words >= least } else { words == least }
    }

    /// Positions of the keys among `words` words.
    pub(super) fn key_positions(&self, words: usize) -> impl Iterator<Item = usize> + use<> {
        let first = usize::try_from(self.keys.first).unwrap_or(0);
        let from_end = self.keys.last.unsigned_abs() as usize;
        let last = if self.keys.last < 0 { words.saturating_sub(from_end) } else { from_end };
        let step = usize::try_from(self.keys.step).unwrap_or(1).max(1);
        let past = if first == 0 { 0 } else { words.min(last + 1) };
        (first..past).step_by(step)
    }
}

/// All commands. The table names the files of all commands, so that it is above them.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) all: &'static [Spec],
    /// A command by its name, in any case.
    pub(super) find: fn(&[u8]) -> Option<&'static Spec>,
}

/// One execution of a command. `'c` is the call, `'e` the engine, `'r` the connection's outbox.
pub(super) struct Call<'c, 'e, 'r> {
    pub(super) spec: &'static Spec,
    pub(super) words: Words<'c>,
    pub(super) session: &'c mut Session,
    pub(super) ctx: &'c mut Context<'e>,
    pub(super) reply: &'c mut Reply<'r>,
    /// The transaction of `EXEC`, which holds the locks of all keys that the command names.
    pub(super) txn: Option<&'c mut Txn<'e>>,
    /// Statistics of the engine, taken before `EXEC` took its locks.
    pub(super) stats: Option<Stats>,
}

/// The part of a session that commands change. It is separate so that a transaction that has to wait can restore it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) protocol: Protocol,
    pub(super) database: u8,
    pub(super) authenticated: bool,
    pub(super) name: String,
    pub(super) library: (String, String),
    pub(super) subscriptions: Subscriptions,
    /// The connection ends after the reply is sent.
    pub(super) closing: bool,
}

impl State {
    pub(super) fn new(shared: &Shared) -> Self {
        Self {
            protocol: Protocol::Resp2,
            database: 0,
            authenticated: shared.config.password.is_none(),
            name: String::new(),
            library: (String::new(), String::new()),
            subscriptions: Subscriptions::default(),
            closing: false,
        }
    }
}

/// How far a command has come that is executed in several parts with waits in between.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    /// Arguments that are done.
    pub(super) done: usize,
    /// The count for the reply.
    pub(super) count: i64,
    /// Tickets of what was written so far, which the reply waits for.
    pub(super) written: Tickets,
}

/// A command in the queue of a transaction.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) spec: &'static Spec,
    pub(super) words: Vec<Word>,
}

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) commands: Vec<Queued>,
    /// Bytes of memory that they take.
    pub(super) bytes: usize,
    /// A command was refused: `EXEC` will fail.
    pub(super) aborted: bool,
}

/// A watched key, which must not change before `EXEC`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Watched {
    pub(super) space: u8,
    pub(super) key: Box<[u8]>,
}

/// One RESP connection: the client's properties, and its open transaction.
#[derive(Debug)]
pub struct Session {
    pub(super) id: u64,
    pub(super) state: State,
    /// Failed attempts to authenticate.
    pub(super) failures: u32,
    /// Commands since `MULTI`.
    pub(super) queue: Option<Queue>,
    /// The versions of the keys that it watches.
    pub(super) watched: HashMap<Watched, u64>,
    /// The parts of the command that is under way; `None` where it is executed as a whole.
    pub(super) parts: Option<Parts>,
    pub(super) killed: Arc<AtomicBool>,
    /// The commands, for those commands that show others.
    pub(super) table: &'static Table,
}

impl Session {
    /// Publishes the changed properties of this client to the others.
    pub(super) fn publish(&self, shared: &Shared) {
        if let Some(client) = shared.clients.lock().get_mut(&self.id) {
            client.name.clone_from(&self.state.name);
            client.library.clone_from(&self.state.library);
            client.database = self.state.database;
            client.protocol = if self.state.protocol == Protocol::Resp3 { 3 } else { 2 };
        }
    }
}
