//! Copies everything to the node behind, if that is behind.

use crate::connection::{Connection, Lost};
use crate::counters::Counters;
use crate::node::Node;
use crate::outgoing::Outgoing;
use crate::packer::{Packer, SpareRoom};
use crate::pages::{Pages, Position};
use landfall_chain::{COPY_STREAM, Code, Copying, Member, message};
use landfall_heap::HeapError;
use std::cell::RefCell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often a copy that is wanted is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before a copy that has failed begins anew.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Pause before a copy begins anew for which the node behind has no room: each one deletes all that it has.
const RETRY_FULL_AFTER: Duration = Duration::from_secs(10);
/// Pause between looks whether everything under way has room.
const ROOM_WAIT: Duration = Duration::from_millis(5);
/// Pause before a page is read again whose bytes are being loaded.
const LOAD_WAIT: Duration = Duration::from_millis(2);

/// Copies whenever that is wanted, until the node stops.
pub(crate) fn run(node: &Node, pages: &dyn Pages) {
    while !node.is_stopping() {
        let is_wanted = node.is_ready() && node.is_in_step() && node.downstream.lock().wants_copy();
        if !is_wanted {
            node.wait_for_change(LOOK_EVERY);
            continue;
        }
        let (generation, packer) = (node.generation(), RefCell::new(Packer::new(node.compression())));
        if let Err(lost) = (Copier { node, pages, generation, packer }).run() {
            pause(node, &lost);
        }
    }
}

/// A copy has failed: says so, and waits before the next one.
fn pause(node: &Node, lost: &Lost) {
    if !lost.is_full() {
        tracing::warn!(error = %lost, "a copy to the node behind has failed and begins anew");
        return node.wait_for_change(RETRY_AFTER);
    }
    tracing::error!(error = %lost, "the node behind has no room for a copy: the chain goes on without it");
    node.note_full_behind(true);
    let (begun, generation) = (Instant::now(), node.generation());
    while begun.elapsed() < RETRY_FULL_AFTER && !node.is_stopping() && node.generation() == generation {
        node.wait_for_change(LOOK_EVERY);
    }
}

struct Copier<'n> {
    node: &'n Node,
    pages: &'n dyn Pages,
    generation: u64,
    packer: RefCell<Packer>,
}

impl Copier<'_> {
    fn goes_on(&self) -> bool {
        !self.node.is_stopping() && self.node.generation() == self.generation
    }

    fn run(&self) -> Result<(), Lost> {
        let (version, member) = {
            let downstream = self.node.downstream.lock();
            (downstream.version(), downstream.node().cloned())
        };
        let Some(member) = member else { return Ok(()) };
        let hello = self.node.hello_for(&self.node.view(), &member.name, COPY_STREAM);
        let opened = Connection::open(&member.address, version, &hello, &|| self.goes_on())?;
        let mut connection = opened.connection;
        let Some(copy) = self.node.downstream.lock().begin_copy() else { return Ok(()) };
        let copied = self.copy(&mut connection, copy, &member);
        if copied.is_err() {
            self.node.downstream.lock().give_copy_up(copy);
        }
        copied
    }

    fn copy(&self, connection: &mut Connection, copy: Copying, member: &Member) -> Result<(), Lost> {
        let begun = Instant::now();
        tracing::info!(node = member.name, "copying everything to the node behind");
        self.say(connection, Code::CopyBegins, &[])?;
        self.pages.begin();
        let walked = self.walk(connection, copy);
        self.pages.end();
        let keys = walked?;
        self.wait_for_room(copy)?;
        if !self.node.downstream.lock().end_copy(copy) {
            return Err(io::Error::other("a stream was lost").into());
        }
        let ended = self.say(connection, Code::CopyEnds, &member.since.to_le_bytes());
        if ended.is_err() {
            // Whether the node behind is in step now, only it can tell.
            self.node.reconnect();
        }
        ended?;
        self.node.note_full_behind(false);
        Counters::add(&self.node.counters.copies, 1);
        tracing::info!(node = member.name, keys, ms = begun.elapsed().as_millis() as u64, "copied");
        Ok(())
    }

    /// From now on clients' values need room at the node behind. Waits until there is room for what is under way, which
    /// its connections acknowledge, or end the copy.
    fn wait_for_room(&self, copy: Copying) -> Result<(), Lost> {
        loop {
            let mut downstream = self.node.downstream.lock();
            if !downstream.is_copying(copy) {
                return Err(io::Error::other("a stream was lost").into());
            }
            if downstream.counts_room(copy) {
                return Ok(());
            }
            drop(downstream);
            if !self.goes_on() {
                return Err(Lost::Ended);
            }
            std::thread::sleep(ROOM_WAIT);
        }
    }

    /// Sends everything; returns how many keys it was.
    fn walk(&self, connection: &mut Connection, copy: Copying) -> Result<u64, Lost> {
        let (mut at, mut keys) = (Some(Position::default()), 0);
        while let Some(from) = at {
            let (next, count) = self.page(connection, &from)?;
            (at, keys) = (next, keys + count);
            if !self.node.downstream.lock().is_copying(copy) {
                return Err(io::Error::other("a stream was lost").into());
            }
        }
        Ok(keys)
    }

    fn say(&self, connection: &mut Connection, code: Code, head: &[u8]) -> Result<(), Lost> {
        let number = connection.next_number();
        let bytes = message(code, connection.version(), number, head, 0);
        connection.writer().write_all(&bytes)?;
        let acknowledged = connection.wait_for_all(&|| self.goes_on())?;
        self.node.note_room(acknowledged.room);
        Ok(())
    }

    /// Sends a page; returns where the next one begins, and how many keys were in it.
    fn page(&self, connection: &mut Connection, from: &Position) -> Result<(Option<Position>, u64), Lost> {
        let heap = &self.node.heap;
        loop {
            let (mut out, mut keys) = (Outgoing::default(), 0);
            let read = self.pages.page(from, &mut |record| {
                keys += 1;
                out.add_copied(heap, record)
            });
            match read {
                Ok(next) => {
                    if !out.is_empty() {
                        self.send(connection, &out)?;
                        Counters::add(&self.node.counters.copied_keys, keys);
                    }
                    return Ok((next, keys));
                }
                Err(HeapError::Loading(_)) if self.goes_on() => std::thread::sleep(LOAD_WAIT),
                Err(error) => return Err(io::Error::other(error).into()),
            }
        }
    }

    /// Sends a page, and waits until it is durable.
    fn send(&self, connection: &mut Connection, page: &Outgoing<'_>) -> Result<(), Lost> {
        let (begun, mut spare, mut packer) =
            (Instant::now(), SpareRoom::new(self.node), self.packer.borrow_mut());
        let (version, number) = (connection.version(), connection.next_number());
        packer.begin();
        let packing = Some((&mut *packer, &mut spare));
        let sent =
            page.write(&self.node.heap, connection.writer(), (Code::Copied, version, number), packing)?;
        self.node.counters.note_sent(sent);
        let acknowledged = connection.wait_for_all(&|| self.goes_on())?;
        packer.end(sent.value_bytes, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.node.note_room(acknowledged.room);
        Ok(())
    }
}
