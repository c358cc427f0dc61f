//! Taking records of logs that another machine sends: `docs/format/wal.md`, "On a chain".

use crate::bounds::is_end;
use crate::error::WalError;
use crate::format::{ENDED, OFFSET_MAX, Settings, entry_key};
use crate::log::{Ahead, Log, Position, State};
use crate::logs::{Entries, HeadChange, Logs, NewLog};
use crate::mode::{Copying, Mode};
use crate::wire;
use landfall_heap::layout::GROUP_RECORDS_MAX;
use landfall_heap::{Entry, FEATURE_LOGS, HeapError, Kind, Source, Tickets, Writer, spaces};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A record of a log as another machine sends it.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its space.
    pub space: u8,
    /// Its key, as others know it.
    pub key: &'a [u8],
    /// Its mark.
    pub mark: u64,
    /// Arrival at the first machine, Unix nanoseconds.
    pub arrival_ns: u64,
    /// Its value.
    pub value: Source<'a>,
}

/// Why a record is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// As for a client.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Corrupt: it is no record of a log, or records that do not belong together.
    #[error("these are no records of a log")]
    Malformed,
    /// Corrupt: something that comes before it is missing.
    #[error("a record of log {log} is out of order: start this node anew with an empty region")]
    Order {
        /// The log.
        log: String,
    },
    /// Misuse: a copied record without a copy.
    #[error("no copy has begun")]
    NoCopy,
}

impl From<HeapError> for ReceiveError {
    fn from(error: HeapError) -> Self {
        Self::Wal(error.into())
    }
}

/// Where a record comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// A writer. This machine has everything.
    Writer,
    /// A writer. This machine is copied to.
    WriterMeanwhile,
    /// A page of a copy.
    Page,
}

/// What is known here of a life of a log.
enum Known {
    It(Arc<Log>),
    /// It is over, durably once these are.
    Over(Tickets),
    /// An earlier life is there, or none.
    New,
}

impl Logs {
    /// From now on what another machine sends means nothing, until a copy begins.
    pub fn pass_over(&self) {
        *self.mode.lock() = Mode::Behind;
        self.drop_kept();
    }

    /// A copy begins: deletes all logs. If it `keeps` their entries, those that the copy would bring need not be sent
    /// ([`Self::adopt`]).
    ///
    /// # Errors
    /// [`WalError::Wait`]: begin again. The heap's error for a closed region.
    pub fn begin_copy(&self, writer: &mut Writer, keeps: bool, arrival_ns: u64) -> Result<Tickets, WalError> {
        *self.mode.lock() = Mode::Behind;
        if !keeps {
            self.drop_kept();
        }
        let entries = if keeps { Entries::Stay } else { Entries::Go };
        // A batch without records is never durable.
        let mut ended = Tickets::default();
        {
            let mut names = self.names.write();
            while let Some(log) = names.values().next().cloned() {
                self.end(writer, &mut names, &log, entries, arrival_ns)?;
                ended = writer.ticket().into();
                if keeps {
                    self.keep(log, writer.ticket());
                }
            }
        }
        *self.mode.lock() = Mode::Copying(Copying::default());
        Ok(ended)
    }

    /// The copy ends: this machine has everything.
    ///
    /// # Errors
    /// [`ReceiveError::Order`] if something is missing, [`ReceiveError::NoCopy`].
    pub fn end_copy(&self) -> Result<(), ReceiveError> {
        let mut mode = self.mode.lock();
        if !matches!(*mode, Mode::Copying(_)) {
            return Err(ReceiveError::NoCopy);
        }
        for log in self.names.read().values() {
            let state = log.state.lock();
            if state.is_guessed || !state.ahead.is_empty() {
                return Err(out_of_order(&log.name));
            }
        }
        *mode = Mode::InStep;
        self.drop_kept();
        Ok(())
    }

    /// Takes records that another machine has written as a group, or one record. Returns what must be durable before they
    /// are acknowledged. `is_copied`: they are of a page of [`Self::copy_page`], and not of a writer.
    ///
    /// # Errors
    /// [`ReceiveError`]. Nothing is taken then.
    pub fn receive(
        &self,
        writer: &mut Writer,
        group: &[LogRecord<'_>],
        is_copied: bool,
    ) -> Result<Tickets, ReceiveError> {
        let by = match (&*self.mode.lock(), is_copied) {
            (Mode::Behind, false) => return Ok(Tickets::default()),
            (Mode::Behind | Mode::InStep, true) => return Err(ReceiveError::NoCopy),
            (Mode::InStep, false) => By::Writer,
            (Mode::Copying(_), false) => By::WriterMeanwhile,
            (Mode::Copying(_), true) => By::Page,
        };
        match group {
            [bound] if bound.kind == Kind::Bound && bound.space == spaces::LOG => {
                self.receive_head(writer, bound, by)
            }
            [bound] if bound.kind == Kind::Bound => self.receive_position(writer, bound, by),
            entries => self.receive_entries(writer, entries, by),
        }
    }

    fn known(&self, name: &str, life: u64) -> Known {
        if let Some(log) = self.names.read().get(name) {
            return match log.life {
                this if this == life => Known::It(Arc::clone(log)),
                later if later > life => Known::Over(log.state.lock().pending(&self.heap)),
                _ => Known::New,
            };
        }
        if let Mode::Copying(copying) = &*self.mode.lock() {
            // The logs of this machine were deleted for the copy, and may be there at the other one.
            let is_over = copying.logs.get(name).is_some_and(|ended| *ended >= life);
            return if is_over { Known::Over(Tickets::default()) } else { Known::New };
        }
        let hash = self.heap.hash(spaces::LOG, name.as_bytes());
        let ended = self.bounds.lock().tombstones.get(hash).copied().filter(|ended| ended.life >= life);
        ended.map_or(Known::New, |ended| Known::Over(self.heap.pending(ended.slot).into_iter().collect()))
    }

    /// The log that a record without a head belongs to: what is not there yet while it is copied is made.
    fn log_of(
        &self,
        writer: &mut Writer,
        (name, life): (&str, u64),
        by: By,
        arrival_ns: u64,
    ) -> Result<Known, ReceiveError> {
        match self.known(name, life) {
            Known::New if by == By::Writer => Err(out_of_order(name)),
            Known::New => {
                let settings = Settings::default();
                self.make_received(
                    writer,
                    &NewLog { name, life, first: 0, settings, is_guessed: true },
                    arrival_ns,
                )?;
                Ok(self.known(name, life))
            }
            known => Ok(known),
        }
    }

    /// Lets `act` take a record of a log, unless that life of the log is over.
    fn with_log(
        &self,
        writer: &mut Writer,
        of: (&str, u64),
        by: By,
        arrival_ns: u64,
        act: impl FnOnce(&mut Writer, &Arc<Log>, &mut State) -> Result<Tickets, ReceiveError>,
    ) -> Result<Tickets, ReceiveError> {
        loop {
            let log = match self.log_of(writer, of, by, arrival_ns)? {
                Known::It(log) => log,
                Known::Over(tickets) => return Ok(tickets),
                Known::New => continue,
            };
            let mut state = log.state.lock();
            if !state.ended {
                return act(writer, &log, &mut state);
            }
        }
    }

    /// Makes a log, unless somebody else has; an earlier life of it ends.
    fn make_received(
        &self,
        writer: &mut Writer,
        new: &NewLog<'_>,
        arrival_ns: u64,
    ) -> Result<(), ReceiveError> {
        self.heap.require_features(FEATURE_LOGS).map_err(HeapError::from)?;
        let mut names = self.names.write();
        if let Some(log) = names.get(new.name).cloned() {
            if log.life >= new.life {
                return Ok(());
            }
            self.end(writer, &mut names, &log, Entries::Go, arrival_ns)?;
        }
        self.make(writer, &mut names, new, arrival_ns)?;
        Ok(())
    }

    fn receive_head(
        &self,
        writer: &mut Writer,
        head: &LogRecord<'_>,
        by: By,
    ) -> Result<Tickets, ReceiveError> {
        let (life, settings, name) = wire::parse_head(head.key).ok_or(ReceiveError::Malformed)?;
        if is_end(head.mark) {
            return self.receive_end(writer, (name, life), by, head.arrival_ns);
        }
        check_offset(head.mark)?;
        loop {
            let log = match self.known(name, life) {
                Known::It(log) => log,
                Known::Over(tickets) => return Ok(tickets),
                Known::New => {
                    let new = NewLog { name, life, first: head.mark, settings, is_guessed: false };
                    self.make_received(writer, &new, head.arrival_ns)?;
                    return Ok(writer.ticket().into());
                }
            };
            let mut state = log.state.lock();
            if state.ended {
                continue;
            }
            if by != By::Page || state.is_guessed {
                self.change_head(writer, &log, &mut state, (head.mark, settings), head.arrival_ns)?;
            }
            return Ok(self.heap.pending(state.head.0).into_iter().collect());
        }
    }

    /// Raises the first offset of a log, and sets its settings.
    fn change_head(
        &self,
        writer: &mut Writer,
        log: &Log,
        state: &mut State,
        (first, settings): (u64, Settings),
        arrival_ns: u64,
    ) -> Result<(), ReceiveError> {
        if first <= state.first && settings == state.settings {
            state.is_guessed = false;
            return Ok(());
        }
        let first = first.max(state.first);
        let change = HeadChange { first, settings, cut: state.cut };
        self.write_head(writer, log, state, change, arrival_ns)?;
        let count =
            usize::try_from(first - state.first).map_or(usize::MAX, |count| count.min(state.slots.len()));
        self.retire_entries(writer, state, count);
        state.first = first;
        state.is_guessed = false;
        let kept = state.ahead.split_off(&first);
        for ahead in std::mem::replace(&mut state.ahead, kept).into_values() {
            writer.supersede(ahead.slot);
        }
        state.take_ahead();
        Ok(())
    }

    fn receive_end(
        &self,
        writer: &mut Writer,
        (name, life): (&str, u64),
        by: By,
        arrival_ns: u64,
    ) -> Result<Tickets, ReceiveError> {
        self.life_max.fetch_max(life, Ordering::Relaxed);
        if let (Mode::Copying(copying), true) = (&mut *self.mode.lock(), by == By::WriterMeanwhile) {
            let ended = copying.logs.entry(name.into()).or_default();
            *ended = (*ended).max(life);
        }
        let mut names = self.names.write();
        match names.get(name).cloned().filter(|log| log.life <= life) {
            Some(log) => {
                self.end(writer, &mut names, &log, Entries::Go, arrival_ns)?;
                Ok(writer.ticket().into())
            }
            None => {
                drop(names);
                Ok(if let Known::Over(tickets) = self.known(name, life) {
                    tickets
                } else {
                    Tickets::default()
                })
            }
        }
    }

    fn receive_position(
        &self,
        writer: &mut Writer,
        position: &LogRecord<'_>,
        by: By,
    ) -> Result<Tickets, ReceiveError> {
        if position.space != spaces::LOG_POSITION {
            return Err(ReceiveError::Malformed);
        }
        let (life, name, consumer) = wire::parse_position(position.key).ok_or(ReceiveError::Malformed)?;
        let is_deleted = self.note_position(&(name.into(), life, consumer.into()), position.mark, by);
        if is_deleted {
            return Ok(Tickets::default());
        }
        self.with_log(writer, (name, life), by, position.arrival_ns, |writer, log, state| {
            self.keep_position(writer, log, state, consumer, position, by)
        })
    }

    /// Notes that a position was deleted while it is copied; true for a page that would bring one back.
    fn note_position(&self, position: &(Box<str>, u64, Box<str>), mark: u64, by: By) -> bool {
        let Mode::Copying(copying) = &mut *self.mode.lock() else { return false };
        if by == By::WriterMeanwhile && mark == ENDED {
            copying.positions.insert(position.clone());
        }
        by == By::Page && copying.positions.contains(position)
    }

    fn keep_position(
        &self,
        writer: &mut Writer,
        log: &Log,
        state: &mut State,
        consumer: &str,
        LogRecord { mark, arrival_ns, .. }: &LogRecord<'_>,
        by: By,
    ) -> Result<Tickets, ReceiveError> {
        let old = state.positions.get(consumer);
        let is_kept =
            old.is_some_and(|known| known.unreadable.is_empty() && (by == By::Page || known.offset == *mark));
        if is_kept || (old.is_none() && is_end(*mark)) {
            let hash =
                self.heap.hash(spaces::LOG_POSITION, &crate::format::position_key(log.number, consumer));
            let deleted = self.bounds.lock().tombstones.get(hash).map(|tombstone| tombstone.slot);
            let slot = old.and_then(Position::readable).or(deleted);
            return Ok(slot.and_then(|slot| self.heap.pending(slot)).into_iter().collect());
        }
        let slot = self.write_position(writer, log, consumer, *mark, old, *arrival_ns)?;
        if is_end(*mark) {
            state.positions.remove(consumer);
        } else {
            state.positions.insert(consumer.into(), Position::new(slot, *mark));
        }
        state.turns.note(writer);
        Ok(writer.ticket().into())
    }

    pub(crate) fn receive_entries(
        &self,
        writer: &mut Writer,
        entries: &[LogRecord<'_>],
        by: By,
    ) -> Result<Tickets, ReceiveError> {
        let (life, name) = check_entries(entries)?;
        self.with_log(writer, (name, life), by, entries[0].arrival_ns, |writer, log, state| {
            self.keep_entries(writer, log, state, entries, by)
        })
    }

    /// Appends those entries that are not there.
    fn keep_entries(
        &self,
        writer: &mut Writer,
        log: &Arc<Log>,
        state: &mut State,
        entries: &[LogRecord<'_>],
        by: By,
    ) -> Result<Tickets, ReceiveError> {
        state.check()?;
        let is_there = |state: &State, offset| offset < state.next() || state.ahead.contains_key(&offset);
        let (known, new): (SmallVec<[&LogRecord<'_>; 4]>, SmallVec<[&LogRecord<'_>; 4]>) =
            entries.iter().partition(|entry| is_there(state, entry.mark));
        let slots = known.iter().filter_map(|entry| state.entry_slot(entry.mark));
        let mut tickets: Tickets = slots.filter_map(|slot| self.heap.pending(slot)).collect();
        let Some(first) = new.first() else { return Ok(tickets) };
        if by == By::Writer && first.mark != state.next() {
            return Err(out_of_order(&log.name));
        }
        if state.needs_head(&self.heap, writer.id())? {
            let change = HeadChange::of(state);
            self.write_head(writer, log, state, change, first.arrival_ns)?;
        }
        let keys: SmallVec<[[u8; 12]; 4]> =
            new.iter().map(|entry| entry_key(log.number, entry.mark)).collect();
        let records: SmallVec<[Entry<'_>; 4]> = keys
            .iter()
            .zip(&new)
            .map(|(key, entry)| Entry {
                kind: entry.kind,
                space: spaces::LOG,
                hash: self.heap.hash(spaces::LOG, key),
                key,
                key_at: None,
                value: entry.value,
                arrival_ns: entry.arrival_ns,
                expiry_ms: entry.mark,
                aux: log.number,
            })
            .collect();
        let slots = writer.append_group(&records)?;
        for (slot, entry) in slots.into_iter().zip(&new) {
            let is_lost = entry.kind == Kind::Tombstone;
            state.ahead.insert(entry.mark, Ahead { slot, bytes: entry.value.len(), is_lost });
        }
        state.take_ahead();
        state.turns.note(writer);
        if state.note_writer(writer.ticket()) {
            self.list(writer.id(), log);
        }
        self.counters.appended.fetch_add(new.len() as u64, Ordering::Relaxed);
        tickets.add(writer.ticket());
        Ok(tickets)
    }
}

fn out_of_order(log: &str) -> ReceiveError {
    ReceiveError::Order { log: log.into() }
}

fn check_offset(offset: u64) -> Result<(), ReceiveError> {
    if offset <= OFFSET_MAX { Ok(()) } else { Err(ReceiveError::Malformed) }
}

/// Life and name of the log of a group of entries, whose offsets follow each other.
fn check_entries<'a>(entries: &[LogRecord<'a>]) -> Result<(u64, &'a str), ReceiveError> {
    let first =
        entries.first().filter(|_| entries.len() <= GROUP_RECORDS_MAX).ok_or(ReceiveError::Malformed)?;
    check_offset(first.mark)?;
    let follows = |(offset, entry): (u64, &LogRecord<'_>)| {
        let is_entry = matches!(entry.kind, Kind::Put | Kind::Tombstone) && entry.space == spaces::LOG;
        is_entry && entry.mark == offset && entry.key == first.key
    };
    if !(first.mark..).zip(entries).all(follows) {
        return Err(ReceiveError::Malformed);
    }
    wire::parse_entry(first.key).ok_or(ReceiveError::Malformed)
}
