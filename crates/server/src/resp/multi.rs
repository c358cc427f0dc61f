//! `MULTI`, `EXEC`, `DISCARD`, `WATCH`, `UNWATCH`.
//!
//! `EXEC` takes the locks of every key that its commands name, runs them against one transaction of the
//! engine, and appends what they staged as one: nobody sees half of it, and neither does a restart.

use super::call::check_reply;
use super::command::{Call, Queue, Queued, Session, Spec, Watched};
use super::databases::{copy_target, selected};
use super::fail::Fail;
use super::flags::Flags;
use super::words::{Word, Words};
use crate::chain;
use crate::counters::count;
use crate::reply::Reply;
use landfall_heap::Heap;
use landfall_kv::{Engine, Txn, TxnKey};
use landfall_resp::{Protocol, Writer};
use std::borrow::Cow;

/// Commands in the queue of one transaction, at most.
const COMMANDS_MAX: usize = 64 << 10;
/// Bytes of memory that the queue of one transaction takes, at most; long values are held in place and do not count.
const QUEUED_BYTES_MAX: usize = 64 << 20;
/// Keys that one client watches, at most.
const WATCHED_MAX: usize = 64 << 10;
/// Bytes of these keys, at most.
const WATCHED_BYTES_MAX: usize = 16 << 20;

const AT_ONCE: Flags = Flags::NO_SCRIPT.and(Flags::SERVER).and(Flags::FAST).and(Flags::IMMEDIATE);

pub(super) const SPECS: &[Spec] = &[
    Spec::new("multi", 1, AT_ONCE, multi, "transactions", "Starts a transaction."),
    Spec::new("discard", 1, AT_ONCE, discard, "transactions", "Discards a transaction."),
    Spec::new("unwatch", 1, AT_ONCE, unwatch, "transactions", "Forgets about watched keys."),
    Spec::new(
        "exec",
        1,
        Flags::NO_SCRIPT.and(Flags::SERVER).and(Flags::IMMEDIATE),
        exec,
        "transactions",
        "Executes all commands in a transaction.",
    ),
    Spec::new("watch", -2, AT_ONCE, watch, "transactions", "Monitors changes to keys for a transaction.")
        .keys(1, -1, 1),
];

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Queues a command, or records that it was refused.
    pub(super) fn take(
        &mut self,
        heap: &Heap,
        spec: Result<&'static Spec, Fail>,
        words: Words<'_>,
        protocol: Protocol,
        reply: &mut Reply<'_>,
    ) -> Result<(), Fail> {
        match spec.and_then(|spec| self.push(heap, spec, words)) {
            Ok(()) => Writer::new(reply.bytes(), protocol).simple("QUEUED"),
            Err(fail) => {
                self.aborted = true;
                return Err(fail);
            }
        }
        Ok(())
    }

    fn push(&mut self, heap: &Heap, spec: &'static Spec, words: Words<'_>) -> Result<(), Fail> {
        if spec.has(Flags::NO_MULTI) {
            return Err(Fail::error("ERR Command not allowed inside a transaction"));
        }
        let least = size_of::<Queued>() + words.len() * size_of::<Word>();
        if self.commands.len() == COMMANDS_MAX || self.bytes + least > QUEUED_BYTES_MAX {
            let limits = format!(
                "{COMMANDS_MAX} commands, and {QUEUED_BYTES_MAX} bytes for short arguments and their places"
            );
            return Err(Fail::Error(format!("ERR a transaction queues at most {limits}").into()));
        }
        let words: Vec<Word> = (0..words.len()).map(|index| Word::keep(heap, &words.arg(index))).collect();
        self.bytes += least + words.iter().map(Word::beside).sum::<usize>();
        self.commands.push(Queued { spec, words });
        Ok(())
    }

    fn release(&self, heap: &Heap) {
        self.commands.iter().flat_map(|queued| &queued.words).for_each(|word| word.release(heap));
    }

    /// Asks for the values of all keys that the commands name, where they have left memory.
    pub(super) fn fetch_named(&self, engine: &Engine, database: u8, now_ms: u64) {
        for named in self.keys(engine.heap(), database) {
            engine.fetch(named.space, &named.key, now_ms);
        }
    }

    fn any(&self, flags: Flags) -> bool {
        self.commands.iter().any(|queued| queued.spec.has(flags))
    }

    /// Every key that the commands name, in the database that will be selected at that point.
    fn keys<'a>(&'a self, heap: &'a Heap, mut database: u8) -> Vec<NamedKey<'a>> {
        let mut keys = Vec::new();
        for queued in &self.commands {
            let words = Words::Queued { words: &queued.words, heap };
            if queued.spec.name == "select" {
                database = selected(&words.bytes(1)).unwrap_or(database);
            }
            let writes = queued.spec.has(Flags::WRITE);
            let positions = queued.spec.key_positions(words.len());
            keys.extend(positions.map(|at| NamedKey { space: database, key: words.bytes(at), writes }));
            if queued.spec.name == "copy"
                && let Some(space) = copy_target(words)
            {
                keys.push(NamedKey { space, key: words.bytes(2), writes });
            }
        }
        keys
    }
}

/// A key that a queued command names.
struct NamedKey<'a> {
    space: u8,
    key: Cow<'a, [u8]>,
    writes: bool,
}

impl Session {
    /// Discards the open transaction and the watched keys, and releases what the queue holds.
    pub(super) fn drop_transaction(&mut self, heap: &Heap) {
        if let Some(queue) = self.queue.take() {
            queue.release(heap);
        }
        self.watched.clear();
    }
}

fn multi(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.session.queue.is_some() {
        return Err(Fail::error("ERR MULTI calls can not be nested"));
    }
    call.session.queue = Some(Queue::default());
    call.ok()
}

fn discard(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.session.queue.is_none() {
        return Err(Fail::error("ERR DISCARD without MULTI"));
    }
    call.session.drop_transaction(call.ctx.engine.heap());
    call.ok()
}

fn unwatch(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    call.session.watched.clear();
    call.ok()
}

fn watch(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    if call.session.queue.is_some() {
        return Err(Fail::error("ERR WATCH inside MULTI is not allowed"));
    }
    let space = call.database();
    let keys: Vec<Cow<'_, [u8]>> = call.words.rest(1).collect();
    let watched = &call.session.watched;
    let bytes = watched.keys().map(|watched| watched.key.len()).chain(keys.iter().map(|key| key.len()));
    if watched.len() + keys.len() > WATCHED_MAX || bytes.sum::<usize>() > WATCHED_BYTES_MAX {
        let limits = format!("{WATCHED_MAX} keys, and {WATCHED_BYTES_MAX} bytes of them");
        return Err(Fail::Error(format!("ERR a client watches at most {limits}").into()));
    }
    let txn = call.ctx.engine.transaction(keys.iter().map(|key| TxnKey { space, key }), call.ctx.now_ms);
    for key in &keys {
        let watched = Watched { space, key: key.as_ref().into() };
        if !call.session.watched.contains_key(&watched) {
            let version = call.open(txn.version(space, key)?);
            call.session.watched.insert(watched, version);
        }
    }
    drop(txn);
    call.ok()
}

fn exec(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let Some(queue) = call.session.queue.take() else {
        return Err(Fail::error("ERR EXEC without MULTI"));
    };
    let heap = call.ctx.engine.heap();
    let before = call.session.state.clone();
    let done = if queue.aborted {
        Err(Fail::error("EXECABORT Transaction discarded because of previous errors."))
    } else {
        execute(call, &queue)
    };
    if done.is_err() {
        call.session.state = before;
        call.session.publish(call.ctx.shared);
    }
    if let Err(Fail::Wait(_)) = done {
        call.session.queue = Some(queue);
        return done;
    }
    queue.release(heap);
    call.session.watched.clear();
    done
}

fn execute(call: &mut Call<'_, '_, '_>, queue: &Queue) -> Result<(), Fail> {
    let engine = call.ctx.engine;
    // The chain may have changed since the commands were queued.
    let admitted = chain::admit(call.ctx.shared, queue.any(Flags::WRITE));
    admitted.map_err(|why| {
        call.session.state.closing |= why.ends_connection();
        Fail::Error(format!("EXECABORT Transaction discarded because of: {}", why.resp()).into())
    })?;
    let stats = queue.any(Flags::STATS).then(|| engine.stats());
    let keys = queue.keys(engine.heap(), call.database());
    let mut txn = begin(call, queue, &keys);
    if has_changed(call, &txn)? {
        call.out().null_array();
        return Ok(());
    }
    for key in keys.iter().filter(|key| key.writes) {
        txn.check_writable(call.ctx.writer, key.space, &key.key)?;
    }
    call.out().array(queue.len());
    for queued in &queue.commands {
        let words = Words::Queued { words: &queued.words, heap: engine.heap() };
        run_queued(&mut Call {
            spec: queued.spec,
            words,
            session: call.session,
            ctx: call.ctx,
            reply: call.reply,
            txn: Some(&mut txn),
            stats,
        })?;
        // The check comes before the commit.
        check_reply(call.ctx.shared, call.reply)?;
    }
    call.commit(txn)
}

/// Takes the locks: of the named and watched keys, or of all keys.
fn begin<'e>(call: &Call<'_, 'e, '_>, queue: &Queue, keys: &[NamedKey<'_>]) -> Txn<'e> {
    let engine = call.ctx.engine;
    if queue.any(Flags::ALL_KEYS) {
        return engine.transaction_all(call.ctx.now_ms);
    }
    let named = keys.iter().map(|named| TxnKey { space: named.space, key: &named.key });
    let watched =
        call.session.watched.keys().map(|watched| TxnKey { space: watched.space, key: &watched.key });
    engine.transaction(named.chain(watched), call.ctx.now_ms)
}

/// True if a watched key has another version than when it was first watched.
fn has_changed(call: &mut Call<'_, '_, '_>, txn: &Txn<'_>) -> Result<bool, Fail> {
    for (watched, version) in &call.session.watched {
        if txn.version(watched.space, &watched.key)?.open(call.reply) != *version {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs one command of a transaction; if it fails, the error is its reply.
fn run_queued(call: &mut Call<'_, '_, '_>) -> Result<(), Fail> {
    let begun = call.reply.len();
    count(&call.shared().counters.commands, 1);
    match (call.spec.run)(call) {
        Err(fail @ (Fail::Error(_) | Fail::Full)) => {
            debug_assert_eq!(
                begun,
                call.reply.len(),
                "{} had begun its reply when it failed",
                call.spec.name
            );
            count(&call.shared().counters.errors, 1);
            fail.write(call.session.state.protocol, call.reply);
            Ok(())
        }
        done => done,
    }
}
