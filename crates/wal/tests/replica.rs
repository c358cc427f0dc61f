//! Logs of two regions, as two servers of a chain have them: what is written in the first one comes to the second one,
//! batch by batch, and after restarts, crashes and copies both have the same logs.

mod common;

use common::{all, open, region};
use landfall_heap::{Gated, Heap, HeapError, Kind, SlotId, Source, Successor, Tickets, Writer};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Media, Site};
use landfall_wal::{LogPart, LogPlace, LogRecord, Logs, ReadLimit, ReceiveError, Settings, WalError};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::sync::Arc;

const CASES: u32 = 400;
const WRITERS: u8 = 2;
const NAMES: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Op {
    Append {
        writer: u8,
        log: usize,
        lens: Vec<usize>,
    },
    Trim {
        writer: u8,
        log: usize,
        part: u64,
    },
    Retain {
        writer: u8,
        log: usize,
        entries: u64,
    },
    Delete {
        writer: u8,
        log: usize,
    },
    Position {
        writer: u8,
        log: usize,
        back: u64,
    },
    Forget {
        writer: u8,
        log: usize,
    },
    /// A batch is durable at the first server, and is sent.
    Commit {
        writer: u8,
    },
    /// The second server has the batch, and the first one hears of it, or does not.
    Deliver {
        writer: u8,
        is_heard: bool,
    },
    /// The second server executes a batch, and makes nothing durable.
    Execute {
        writer: u8,
    },
    CrashFirst {
        seed: u64,
    },
    CrashSecond {
        seed: u64,
    },
    /// The second server loses its disk.
    Lose,
    /// The second server, which is behind, appends what nobody acknowledges.
    Alone {
        log: usize,
        lens: Vec<usize>,
    },
    BeginCopy {
        keeps: bool,
    },
    ReadPage {
        entries: usize,
    },
    SendPage,
    Settle,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (writer, log) = (|| 0..WRITERS, || 0..NAMES.len());
    let len = || prop_oneof![Just(0usize), 1..50usize, 50..5000usize];
    let op = prop_oneof![
        12 => (writer(), log(), prop::collection::vec(len(), 1..4))
            .prop_map(|(writer, log, lens)| Op::Append { writer, log, lens }),
        3 => (writer(), log(), 0..5u64).prop_map(|(writer, log, part)| Op::Trim { writer, log, part }),
        1 => (writer(), log(), 0..9u64).prop_map(|(writer, log, entries)| Op::Retain { writer, log, entries }),
        2 => (writer(), log()).prop_map(|(writer, log)| Op::Delete { writer, log }),
        2 => (writer(), log(), 0..4u64).prop_map(|(writer, log, back)| Op::Position { writer, log, back }),
        1 => (writer(), log()).prop_map(|(writer, log)| Op::Forget { writer, log }),
        6 => writer().prop_map(|writer| Op::Commit { writer }),
        6 => (writer(), prop::bool::weighted(0.8)).prop_map(|(writer, is_heard)| Op::Deliver { writer, is_heard }),
        1 => writer().prop_map(|writer| Op::Execute { writer }),
        1 => any::<u64>().prop_map(|seed| Op::CrashFirst { seed }),
        1 => any::<u64>().prop_map(|seed| Op::CrashSecond { seed }),
        1 => Just(Op::Lose),
        1 => (log(), prop::collection::vec(len(), 1..4)).prop_map(|(log, lens)| Op::Alone { log, lens }),
        2 => prop::bool::weighted(0.8).prop_map(|keeps| Op::BeginCopy { keeps }),
        4 => (1..4usize).prop_map(|entries| Op::ReadPage { entries }),
        4 => Just(Op::SendPage),
        1 => Just(Op::Settle),
    ];
    prop::collection::vec(op, 1..150)
}

/// A record, as a message would have it.
#[derive(Clone, Debug)]
struct Sent {
    kind: Kind,
    space: u8,
    key: Vec<u8>,
    mark: u64,
    bytes: Vec<u8>,
}

impl Sent {
    fn of(logs: &Logs, slot: SlotId) -> Self {
        let view = logs.heap().record(slot).expect("a record");
        let key = logs.key_for_others(slot, &view).expect("a key");
        let is_entry = view.kind() == Kind::Put;
        let bytes = if is_entry {
            logs.heap().value_bytes(slot, &view).expect("a value").to_vec()
        } else {
            Vec::new()
        };
        Self { kind: view.kind(), space: view.space(), key, mark: view.mark(), bytes }
    }

    fn record(&self) -> LogRecord<'_> {
        let Self { kind, space, key, mark, bytes } = self;
        let value = if *kind == Kind::Put { Source::Bytes(bytes) } else { Source::None };
        LogRecord { kind: *kind, space: *space, key, mark: *mark, arrival_ns: 1, value }
    }
}

/// A batch, group by group.
type Batch = Vec<Vec<Sent>>;

fn batch(logs: &Logs, slots: &[SlotId]) -> Batch {
    let group =
        |slot: &SlotId| logs.heap().record(*slot).expect("a record").group().map(|group| group.first_seq);
    let same = |a: &SlotId, b: &SlotId| group(a).is_some() && group(a) == group(b);
    slots.chunk_by(same).map(|some| some.iter().map(|slot| Sent::of(logs, *slot)).collect()).collect()
}

/// Where the batches of one writer go. It keeps one, until it has come to the second server.
#[derive(Debug, Default)]
struct Link {
    is_wanted: Mutex<bool>,
    under_way: Mutex<Option<Vec<SlotId>>>,
}

impl Successor for Link {
    fn take_room(&self, _: u64, _: &mut Option<u64>) -> Result<(), HeapError> {
        Ok(())
    }

    fn take_spare_room(&self, _: u64) -> bool {
        true
    }

    fn give_room_back(&self, _: u64) {}

    fn sends_early(&self) -> bool {
        false
    }

    fn send(&self, _: &Heap, records: &[SlotId]) {
        *self.under_way.lock() = self.is_wanted.lock().then(|| records.to_vec());
    }

    fn is_done(&self) -> bool {
        self.under_way.lock().is_none()
    }

    fn wait(&self) -> Result<(), HeapError> {
        assert!(self.is_done(), "nobody waits here");
        Ok(())
    }
}

struct First {
    media: Arc<SimMedia>,
    logs: Logs,
    writers: Vec<Writer>,
    links: Vec<Arc<Link>>,
    /// Every record with a lower seq is complete.
    floor: u64,
    now_ns: u64,
}

impl First {
    fn new(media: Arc<SimMedia>, floor: u64, now_ns: u64) -> Self {
        let logs = open(&media);
        let links: Vec<Arc<Link>> = (0..WRITERS).map(|_| Arc::default()).collect();
        let writers = (0..WRITERS)
            .zip(&links)
            .map(|(id, link)| {
                let mut writer = common::writer(&logs, id);
                writer.set_successor(Arc::clone(link) as Arc<dyn Successor>);
                writer
            })
            .collect();
        Self { media, logs, writers, links, floor, now_ns }
    }

    /// Makes a batch durable here, and sends it.
    fn commit(&mut self, writer: u8) {
        let writer = &mut self.writers[usize::from(writer)];
        if writer.is_committing() {
            return;
        }
        if let Some(mut dirty) = writer.begin_commit() {
            self.media.fence(&mut dirty, Site::Commit).expect("a fence");
            writer.send_on();
        }
        self.finish();
    }

    /// Completes what has come to the second server, or need not.
    fn finish(&mut self) {
        for writer in &mut self.writers {
            if writer.is_committing() && writer.is_sent_on() {
                writer.finish_commit(Ok(())).expect("it is complete");
            }
        }
        let is_quiet = |writer: &Writer| !writer.is_committing() && !writer.has_work();
        if self.writers.iter().all(is_quiet) {
            self.floor = self.logs.heap().next_seq();
        }
        (0..WRITERS).for_each(|writer| {
            self.logs.after_commit(writer);
        });
        self.logs.sweep(usize::MAX);
    }

    fn set_wanted(&self, is_wanted: bool) {
        for link in &self.links {
            *link.is_wanted.lock() = is_wanted;
            if !is_wanted {
                *link.under_way.lock() = None;
            }
        }
    }
}

struct Second {
    media: Arc<SimMedia>,
    logs: Logs,
    writers: Vec<Writer>,
}

impl Second {
    fn new(media: Arc<SimMedia>) -> Self {
        let logs = open(&media);
        let writers = (0..=WRITERS).map(|id| common::writer(&logs, id)).collect();
        Self { media, logs, writers }
    }

    /// Executes a group. What it waits for is made durable.
    fn receive(&mut self, writer: u8, group: &[Sent], is_copied: bool) {
        let records: Vec<LogRecord<'_>> = group.iter().map(Sent::record).collect();
        loop {
            let taken = self.logs.receive(&mut self.writers[usize::from(writer)], &records, is_copied);
            match taken {
                Ok(_) => return,
                Err(ReceiveError::Wal(WalError::Wait(_))) => self.commit(),
                Err(error) => panic!("{group:?}: {error}"),
            }
        }
    }

    /// Takes an entry of a page over, if it has kept it.
    fn adopts(&mut self, writer: u8, entry: &Sent) -> bool {
        let Sent { kind: Kind::Put, key, mark, bytes, .. } = entry else { return false };
        let kept = self.logs.kept_entries(key, &(*mark..=*mark), 9).expect("a key of an entry");
        let is_it = kept.iter().any(|item| item.to_vec().expect("bytes") == *bytes);
        drop(kept);
        if !is_it {
            return false;
        }
        loop {
            match self.logs.adopt(&mut self.writers[usize::from(writer)], key, *mark) {
                Ok(adopted) => return adopted,
                Err(ReceiveError::Wal(WalError::Wait(_))) => self.commit(),
                Err(error) => panic!("{entry:?}: {error}"),
            }
        }
    }

    fn receive_all(&mut self, writer: u8, batch: &Batch) {
        batch.iter().for_each(|group| self.receive(writer, group, false));
    }

    fn commit(&mut self) {
        self.writers.iter_mut().for_each(|writer| writer.commit_now().expect("a commit"));
        self.logs.sweep(usize::MAX);
    }
}

/// How far the second server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    InStep,
    Behind,
    Copying,
}

/// A page that was read, and what it waits for.
struct Page {
    records: Vec<Sent>,
    tickets: Tickets,
    next: Option<LogPlace>,
}

struct Chain {
    first: First,
    second: Second,
    standing: Standing,
    place: Option<LogPlace>,
    page: Option<Page>,
    count: u8,
    /// Entries that were taken over, and not sent.
    adopted: u64,
}

impl Chain {
    fn new() -> Self {
        let first = First::new(region(), 0, 1000);
        let chain = Self {
            first,
            second: Second::new(region()),
            standing: Standing::InStep,
            place: None,
            page: None,
            count: 0,
            adopted: 0,
        };
        chain.first.set_wanted(true);
        chain
    }

    /// Something that a client asks the first server for. Who has to wait has changed nothing.
    fn ask<T>(&mut self, writer: u8, act: impl FnOnce(&Logs, &mut Writer, u64) -> Result<T, WalError>) {
        self.first.now_ns += 1;
        let First { logs, writers, now_ns, .. } = &mut self.first;
        let done = act(logs, &mut writers[usize::from(writer)], *now_ns);
        match done {
            Ok(_) | Err(WalError::Wait(_) | WalError::NoLog | WalError::OutOfRange { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn next(&self, log: &str) -> (u64, u64) {
        let stats = self.first.logs.stats_of(log.as_bytes()).map(Gated::ungated);
        stats.map_or((0, 0), |stats| (stats.first, stats.next))
    }

    fn append(&mut self, writer: u8, log: &str, lens: &[usize]) {
        self.count = self.count.wrapping_add(1);
        let values: Vec<Vec<u8>> = lens.iter().map(|len| vec![self.count; *len]).collect();
        let sources: Vec<Source<'_>> = values.iter().map(|value| Source::Bytes(value)).collect();
        self.ask(writer, |logs, writer, now| logs.append(writer, log.as_bytes(), &sources, now));
    }

    fn append_alone(&mut self, log: &str, lens: &[usize]) {
        if self.standing != Standing::Behind {
            return;
        }
        self.count = self.count.wrapping_add(1);
        for len in lens {
            let value = vec![self.count; *len];
            common::append(&self.second.logs, &mut self.second.writers[0], log, &value);
        }
        self.second.commit();
    }

    /// The batch of a writer comes to the second server; returns it.
    fn execute(&mut self, writer: u8) -> Option<()> {
        let slots = self.first.links[usize::from(writer)].under_way.lock().clone()?;
        let batch = batch(&self.first.logs, &slots);
        self.second.receive_all(writer, &batch);
        Some(())
    }

    fn deliver(&mut self, writer: u8, is_heard: bool) {
        if self.execute(writer).is_none() {
            return;
        }
        self.second.commit();
        if is_heard {
            *self.first.links[usize::from(writer)].under_way.lock() = None;
            self.first.finish();
        }
    }

    fn crash_first(&mut self, seed: u64) {
        let media = SimMedia::restart(&self.first.media.crash_state().draw(seed), SimOptions::default());
        self.first = First::new(media, self.first.floor, self.first.now_ns);
        let unsent = self.first.logs.records_from(self.first.floor);
        let unsent = batch(&self.first.logs, &unsent);
        match self.standing {
            Standing::InStep => {
                self.second.receive_all(0, &unsent);
                self.second.commit();
                self.first.set_wanted(true);
            }
            Standing::Behind | Standing::Copying => self.fall_behind(),
        }
        self.first.finish();
    }

    fn crash_second(&mut self, seed: u64) {
        let media = SimMedia::restart(&self.second.media.crash_state().draw(seed), SimOptions::default());
        self.second = Second::new(media);
        if self.standing != Standing::InStep {
            self.fall_behind();
        }
    }

    /// The first server goes on alone.
    fn fall_behind(&mut self) {
        self.standing = Standing::Behind;
        self.second.logs.pass_over();
        (self.place, self.page) = (None, None);
        self.first.set_wanted(false);
        self.first.finish();
    }

    fn begin_copy(&mut self, keeps: bool) {
        if self.standing == Standing::InStep {
            return;
        }
        self.first.set_wanted(true);
        let Second { logs, writers, .. } = &mut self.second;
        loop {
            match logs.begin_copy(&mut writers[usize::from(WRITERS)], keeps, 1) {
                Ok(_) => break,
                Err(WalError::Wait(_)) => {
                    writers.iter_mut().for_each(|writer| writer.commit_now().expect("a commit"))
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.second.commit();
        (self.standing, self.place, self.page) = (Standing::Copying, Some(LogPlace::Start), None);
    }

    fn read_page(&mut self, entries: usize) {
        let Some(place) = self.place.clone().filter(|_| self.page.is_none()) else { return };
        let page = self.first.logs.copy_page(&place, ReadLimit { entries, bytes: u64::MAX }).expect("a page");
        let tickets = page.tickets().clone();
        let page = page.ungated();
        let record = |record: landfall_wal::CopiedLogRecord<'_>| {
            let (kind, mark, bytes) = match &record.part {
                LogPart::Entry(item) => (Kind::Put, item.expiry_ms, item.to_vec().expect("bytes")),
                LogPart::Lost(offset) => (Kind::Tombstone, *offset, Vec::new()),
                LogPart::Bound(mark) => (Kind::Bound, *mark, Vec::new()),
            };
            Sent { kind, space: record.space, key: record.key, mark, bytes }
        };
        let records = page.records.into_iter().map(record).collect();
        self.page = Some(Page { records, tickets, next: page.next });
    }

    fn send_page(&mut self) {
        let heap = self.first.logs.heap();
        let Some(page) = self.page.take_if(|page| heap.are_durable(&page.tickets)) else { return };
        page.records.iter().for_each(|record| {
            if self.second.adopts(WRITERS, record) {
                self.adopted += 1;
            } else {
                self.second.receive(WRITERS, std::slice::from_ref(record), true);
            }
        });
        self.second.commit();
        self.place = page.next;
        if self.place.is_none() {
            self.second.logs.end_copy().expect("everything is there");
            self.standing = Standing::InStep;
        }
    }

    /// Everything comes to the second server, and both have the same.
    fn settle(&mut self) {
        for _ in 0..3 {
            (0..WRITERS).for_each(|writer| self.first.commit(writer));
            (0..WRITERS).for_each(|writer| self.deliver(writer, true));
        }
        if self.standing == Standing::Behind {
            self.begin_copy(true);
        }
        while self.standing == Standing::Copying {
            self.read_page(3);
            self.send_page();
        }
        assert_same(&self.first.logs, &self.second.logs);
    }

    fn execute_op(&mut self, op: Op) {
        match op {
            Op::Append { writer, log, lens } => self.append(writer, NAMES[log], &lens),
            Op::Trim { writer, log, part } => {
                let (first, next) = self.next(NAMES[log]);
                let before = first + (next - first) * part / 4;
                self.ask(writer, |logs, writer, now| logs.trim(writer, NAMES[log].as_bytes(), before, now));
            }
            Op::Retain { writer, log, entries } => {
                let settings = Settings { retain_entries: entries, ..Settings::default() };
                self.ask(writer, |logs, writer, now| {
                    logs.set_settings(writer, NAMES[log].as_bytes(), settings, now)
                });
            }
            Op::Delete { writer, log } => {
                self.ask(writer, |logs, writer, now| logs.delete(writer, NAMES[log].as_bytes(), now));
            }
            Op::Position { writer, log, back } => {
                let at = self.next(NAMES[log]).1.saturating_sub(back);
                self.ask(writer, |logs, writer, now| {
                    logs.commit_position(writer, NAMES[log].as_bytes(), b"reader", at, now)
                });
            }
            Op::Forget { writer, log } => self.ask(writer, |logs, writer, now| {
                logs.delete_position(writer, NAMES[log].as_bytes(), b"reader", now)
            }),
            Op::Commit { writer } => self.first.commit(writer),
            Op::Deliver { writer, is_heard } => self.deliver(writer, is_heard),
            Op::Execute { writer } => {
                self.execute(writer);
            }
            Op::CrashFirst { seed } => self.crash_first(seed),
            Op::CrashSecond { seed } => self.crash_second(seed),
            Op::Lose => {
                self.second = Second::new(region());
                self.fall_behind();
            }
            Op::Alone { log, lens } => self.append_alone(NAMES[log], &lens),
            Op::BeginCopy { keeps } => self.begin_copy(keeps),
            Op::ReadPage { entries } => self.read_page(entries),
            Op::SendPage => self.send_page(),
            Op::Settle => self.settle(),
        }
    }
}

fn assert_same(first: &Logs, second: &Logs) {
    let described = |logs: &Logs| -> Vec<_> {
        let all_logs = logs.logs(None, usize::MAX).into_iter().map(Gated::ungated);
        all_logs
            .map(|log| {
                let name = log.name.as_bytes();
                let settings = logs.settings(name).expect("settings").ungated();
                let positions = logs.positions(name).expect("positions").ungated();
                (log.name.clone(), all(logs, &log.name).expect("entries"), settings, positions)
            })
            .collect()
    };
    assert!(described(first) == described(second), "{:?} {:?}", first.logs(None, 9), second.logs(None, 9));
}

/// Too rare for random operations.
#[test]
fn a_page_brings_no_position_back_that_was_deleted_after_it_was_read() {
    let mut chain = Chain::new();
    let ops = [
        Op::Append { writer: 0, log: 0, lens: vec![5] },
        Op::Settle,
        Op::Position { writer: 0, log: 0, back: 0 },
        Op::Settle,
        Op::Lose,
        Op::BeginCopy { keeps: true },
        Op::ReadPage { entries: 3 },
        Op::Forget { writer: 0, log: 0 },
        Op::Commit { writer: 0 },
        Op::Deliver { writer: 0, is_heard: true },
        Op::SendPage,
        Op::Settle,
    ];
    ops.into_iter().for_each(|op| chain.execute_op(op));
    assert!(chain.second.logs.positions(b"a").expect("the log").ungated().is_empty());
}

#[test]
fn a_server_that_comes_back_takes_its_entries_over() {
    let mut chain = Chain::new();
    let append = |writer, count| Op::Append { writer, log: 0, lens: vec![3000; count] };
    let ops = [append(0, 40), Op::Settle, append(1, 3)];
    ops.into_iter().for_each(|op| chain.execute_op(op));
    chain.fall_behind();
    // The one has entries that the other one has not, at the same offsets.
    let ops = [append(0, 2), Op::Alone { log: 0, lens: vec![3000; 9] }, Op::Settle];
    ops.into_iter().for_each(|op| chain.execute_op(op));
    assert_eq!(chain.adopted, 40);
    chain.crash_second(1);
    assert_same(&chain.first.logs, &chain.second.logs);
    assert_eq!(chain.second.logs.unswept(), 0);
}

/// A record of the first life of log `a`.
fn record(kind: Kind, space: u8, key: &[u8], mark: u64) -> Sent {
    Sent { kind, space, key: key.to_vec(), mark, bytes: b"value".to_vec() }
}

#[test]
fn records_that_are_none_or_out_of_order_change_nothing() {
    const LIFE: &[u8; 8] = &[1, 0, 0, 0, 0, 0, 0, 0];
    let mut second = Second::new(region());
    let entry = [&LIFE[..], b"a"].concat();
    let head = [&LIFE[..], &[0; 24], b"a"].concat();
    let position = [&LIFE[..], &[1], b"areader"].concat();
    let mut take = |group: &[Sent]| {
        let records: Vec<LogRecord<'_>> = group.iter().map(Sent::record).collect();
        second.logs.receive(&mut second.writers[0], &records, false).map(drop)
    };
    let is_out_of_order = |taken: Result<(), ReceiveError>| matches!(taken, Err(ReceiveError::Order { .. }));
    // Nothing is there yet.
    assert!(is_out_of_order(take(&[record(Kind::Put, 16, &entry, 0)])));
    assert!(is_out_of_order(take(&[record(Kind::Bound, 17, &position, 0)])));
    take(&[record(Kind::Bound, 16, &head, 0)]).expect("a head");
    assert!(is_out_of_order(take(&[record(Kind::Put, 16, &entry, 1)])));
    take(&[record(Kind::Put, 16, &entry, 0), record(Kind::Put, 16, &entry, 1)]).expect("two entries");
    take(&[record(Kind::Put, 16, &entry, 1)]).expect("it was sent again");
    let other = [&LIFE[..], b"b"].concat();
    let hostile: [&[Sent]; 9] = [
        &[],
        &[record(Kind::Put, 16, b"short", 2)],
        &[record(Kind::Put, 16, &[&LIFE[..], b"a/b"].concat(), 2)],
        &[record(Kind::Put, 17, &entry, 2)],
        &[record(Kind::Put, 16, &entry, u64::MAX)],
        &[record(Kind::Put, 16, &entry, 2), record(Kind::Put, 16, &entry, 4)],
        &[record(Kind::Put, 16, &entry, 2), record(Kind::Put, 16, &other, 3)],
        &[record(Kind::Put, 16, &entry, 2), record(Kind::Bound, 16, &head, 3)],
        &[record(Kind::Bound, 16, b"too short", 0)],
    ];
    for group in hostile {
        assert!(matches!(take(group), Err(ReceiveError::Malformed)), "{group:?}");
    }
    assert!(matches!(
        second.logs.receive(&mut second.writers[0], &[record(Kind::Put, 16, &entry, 2).record()], true),
        Err(ReceiveError::NoCopy)
    ));
    second.commit();
    assert_eq!(all(&second.logs, "a").expect("the log"), (0, vec![b"value".to_vec(); 2]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn both_servers_have_the_same_logs_whatever_crashes_and_whenever_one_is_copied_to(ops in ops()) {
        let mut chain = Chain::new();
        for op in ops {
            chain.execute_op(op);
        }
        chain.settle();
        // What a crash leaves is the same, too.
        chain.crash_first(1);
        chain.crash_second(2);
        assert_same(&chain.first.logs, &chain.second.logs);
    }
}
