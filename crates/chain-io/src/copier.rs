//! Copies everything to the node behind, if that is behind.

use crate::comparison::Comparison;
use crate::connection::{Connection, Lost};
use crate::counters::Counters;
use crate::lease::boot_time;
use crate::node::Node;
use crate::outgoing::Outgoing;
use crate::packer::Packer;
use crate::pages::{CopiedRecord, Pages, Position};
use crate::progress::CopyProgress;
use crate::spare_room::SpareRoom;
use landfall_chain::{Bits, COPY_STREAM, Code, Copying, Member, message};
use landfall_heap::HeapError;
use std::cell::RefCell;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often a copy that is wanted is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before a copy that has failed begins anew.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Pause before a copy begins anew for which the node behind has no room: it deletes all that it has.
const RETRY_FULL_AFTER: Duration = Duration::from_secs(10);
/// Pause between looks whether everything under way has room.
const ROOM_WAIT: Duration = Duration::from_millis(5);

/// Copies whenever that is wanted, until the node stops.
pub(crate) fn run(node: &Node, pages: &dyn Pages) {
    // What the node behind has kept may have been in the way.
    let mut was_full = false;
    while !node.is_stopping() {
        let is_wanted = node.is_ready() && node.is_in_step() && node.downstream.lock().wants_copy();
        if !is_wanted {
            node.wait_for_change(LOOK_EVERY);
            continue;
        }
        let (generation, packer) = (node.generation(), RefCell::new(Packer::new(node.compression())));
        let copier = Copier { node, pages, generation, packer, keeps: !was_full };
        match copier.run() {
            Ok(()) => was_full = false,
            Err(lost) if lost.is_full() && !was_full => {
                tracing::warn!(error = %lost, "no room beside what the node behind keeps: the next copy keeps nothing");
                was_full = true;
                node.wait_for_change(RETRY_AFTER);
            }
            Err(lost) => pause(node, &lost),
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
    /// The node behind keeps its keys, and gets what differs.
    keeps: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Keys and other records that there are.
    records: u64,
    /// Those that were sent.
    sent: u64,
}

/// A page has been sent, or a part of it has to be read first.
enum Page {
    Sent(Option<Position>),
    Loading,
}

impl<'n> Copier<'n> {
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
        self.node.note_copying(None);
        if copied.is_err() {
            self.node.downstream.lock().give_copy_up(copy);
            // The room of the node behind does not count any more.
            self.node.wake_for_room();
        }
        copied
    }

    fn copy(&self, connection: &mut Connection, copy: Copying, member: &Member) -> Result<(), Lost> {
        let begun = Instant::now();
        tracing::info!(node = member.name, keeps = self.keeps, "copying to the node behind");
        self.say(connection, Code::CopyBegins, &[u8::from(self.keeps)])?;
        self.pages.begin();
        let walked = self.walk(connection, copy, &member.name);
        self.pages.end();
        Counters::add(&self.node.counters.copy_bytes, connection.written());
        let Tally { records, sent } = walked?;
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
        let (bytes, ms) = (connection.written(), begun.elapsed().as_millis() as u64);
        tracing::info!(node = member.name, records, sent, bytes, ms, "copied");
        Ok(())
    }

    /// From now on clients' values need room at the node behind. Waits until there is room for what is under way, which
    /// its connections acknowledge, or end the copy; and until the first node has said that nothing else is.
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
            // What has no room is asked for.
            self.node.room_wanted.notify_all();
            std::thread::sleep(ROOM_WAIT);
        }
    }

    /// Sends everything that the node behind lacks.
    fn walk(&self, connection: &mut Connection, copy: Copying, to: &str) -> Result<Tally, Lost> {
        // Nobody who writes keys knows it before.
        let seed = boot_time().as_nanos() as u64 ^ self.node.next_incarnation();
        let (mut at, mut tally, begun) = (Some(Position::default()), Tally::default(), Instant::now());
        // All runs are looked at, so once.
        let all = self.node.heap.runs().live_slots();
        while let Some(from) = &at {
            let (Tally { records, sent }, bytes) = (tally, connection.written());
            let (node, of) = (to.to_owned(), all.max(records));
            let progress = CopyProgress { node, records, of, sent, bytes, begun };
            self.node.note_copying(Some(progress));
            match self.page(connection, from, seed, &mut tally)? {
                Page::Sent(next) => at = next,
                Page::Loading if self.goes_on() => {}
                Page::Loading => return Err(Lost::Ended),
            }
            if !self.node.downstream.lock().is_copying(copy) {
                return Err(io::Error::other("a stream was lost").into());
            }
            self.keep_to_rate(begun, connection.written());
        }
        Ok(tally)
    }

    /// Waits as long as so many bytes are more than the copy may have sent by now.
    fn keep_to_rate(&self, begun: Instant, bytes: u64) {
        let rate = self.node.copy_rate();
        let least =
            if rate == 0 { Duration::ZERO } else { Duration::from_secs_f64(bytes as f64 / rate as f64) };
        while begun.elapsed() < least && self.goes_on() {
            self.node.wait_for_change(LOOK_EVERY.min(least.saturating_sub(begun.elapsed())));
        }
    }

    fn say(&self, connection: &mut Connection, code: Code, head: &[u8]) -> Result<(), Lost> {
        let number = connection.next_number();
        let bytes = message(code, connection.version(), number, head, 0);
        connection.write_all(&bytes)?;
        let acknowledged = connection.wait_for_all(&|| self.goes_on())?;
        self.node.note_room(connection.version(), acknowledged.room);
        Ok(())
    }

    /// Sends what the node behind lacks of a page, and says where the next one begins.
    fn page(
        &self,
        connection: &mut Connection,
        from: &Position,
        seed: u64,
        tally: &mut Tally,
    ) -> Result<Page, Lost> {
        let mut records = Vec::new();
        let read = self.pages.page(from, &mut |record| {
            records.push(record);
            Ok(())
        });
        let next = match read {
            Ok(next) => next,
            Err(error) => return self.wait_for(error),
        };
        let lacking = if self.keeps && self.pages.compares(from.space) {
            match Comparison::of(&self.node.heap, seed, from, next.as_ref(), &records) {
                Ok(comparison) => self.compare(connection, &comparison)?,
                Err(error) => return self.wait_for(error),
            }
        } else {
            Bits::all(records.len())
        };
        let count = records.len() as u64;
        let out = match self.lacking(records, &lacking) {
            Ok(out) => out,
            Err(error) => return self.wait_for(error),
        };
        let sent = self.send(connection, &out)?;
        Counters::add(&self.node.counters.compared_records, count);
        Counters::add(&self.node.counters.copied_keys, sent);
        (tally.records, tally.sent) = (tally.records + count, tally.sent + sent);
        Ok(Page::Sent(next))
    }

    /// A page is read again when what it needs is in memory.
    fn wait_for(&self, error: HeapError) -> Result<Page, Lost> {
        match error {
            HeapError::Loading(load) => {
                self.node.heap.wait_for_load(load);
                Ok(Page::Loading)
            }
            error => Err(io::Error::other(error).into()),
        }
    }

    /// Which records of a page the node behind lacks.
    fn compare(&self, connection: &mut Connection, comparison: &Comparison) -> Result<Bits, Lost> {
        let version = connection.version();
        comparison.lacking(connection, &|| self.goes_on(), &|room| self.node.note_room(version, room))
    }

    fn lacking(&self, records: Vec<CopiedRecord<'n>>, which: &Bits) -> Result<Outgoing<'n>, HeapError> {
        let mut out = Outgoing::default();
        let lacking = records.into_iter().enumerate().filter(|(at, _)| which.is_set(*at));
        for (_, record) in lacking {
            out.add_copied(&self.node.heap, record)?;
        }
        Ok(out)
    }

    /// Sends records, and waits until they are durable; returns how many.
    fn send(&self, connection: &mut Connection, out: &Outgoing<'_>) -> Result<u64, Lost> {
        if out.is_empty() {
            return Ok(0);
        }
        let (begun, mut spare, mut packer) =
            (Instant::now(), SpareRoom::new(self.node), self.packer.borrow_mut());
        let (version, number) = (connection.version(), connection.next_number());
        packer.begin();
        let packing = Some((&mut *packer, &mut spare));
        let sent = out.write(&self.node.heap, connection, (Code::Copied, version, number), packing)?;
        self.node.counters.note_sent(sent);
        let acknowledged = connection.wait_for_all(&|| self.goes_on())?;
        packer.end(sent.value_bytes, u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.node.note_room(connection.version(), acknowledged.room);
        Ok(out.count())
    }
}
