//! A model test: each log is compared with a `VecDeque`. It covers offsets, contents, limits, positions and clean
//! restarts; crashes are the simulator's.

mod common;

use common::{RUNS, all};
use landfall_heap::{Gated, NewRegion, Source, Writer, create};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Media, RUN_SIZE};
use landfall_wal::{LogRecovery, Logs, ReadLimit, WalError};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

const CASES: u32 = 48;
const LOGS: usize = 3;
const WRITERS: u8 = 2;

#[derive(Clone, Debug)]
enum Op {
    Append { writer: u8, log: usize, lens: Vec<usize> },
    Trim { writer: u8, log: usize, part: u64 },
    Delete { writer: u8, log: usize },
    Position { writer: u8, log: usize, back: u64 },
    Read { log: usize, from: u64, entries: usize, bytes: u64 },
    Sweep,
    Restart,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (writer, log) = (|| 0..WRITERS, || 0..LOGS);
    let len = prop_oneof![Just(0usize), 1..50usize, 50..5000usize];
    let op = prop_oneof![
        10 => (writer(), log(), prop::collection::vec(len, 1..5))
            .prop_map(|(writer, log, lens)| Op::Append { writer, log, lens }),
        3 => (writer(), log(), 0..5u64).prop_map(|(writer, log, part)| Op::Trim { writer, log, part }),
        1 => (writer(), log()).prop_map(|(writer, log)| Op::Delete { writer, log }),
        2 => (writer(), log(), 0..4u64).prop_map(|(writer, log, back)| Op::Position { writer, log, back }),
        4 => (log(), 0..20u64, 0..6usize, 0..9000u64)
            .prop_map(|(log, from, entries, bytes)| Op::Read { log, from, entries, bytes }),
        1 => Just(Op::Sweep),
        1 => Just(Op::Restart),
    ];
    prop::collection::vec(op, 1..60)
}

#[derive(Debug, Default)]
struct Model {
    first: u64,
    entries: VecDeque<Vec<u8>>,
    position: Option<u64>,
}

impl Model {
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Number of entries that a read returns.
    fn page(&self, from: u64, limit: ReadLimit) -> usize {
        let mut bytes = 0;
        let some = self.entries.iter().skip((from - self.first) as usize).take(limit.entries);
        some.enumerate()
            .take_while(|(at, entry)| {
                bytes += entry.len() as u64;
                *at == 0 || bytes <= limit.bytes
            })
            .count()
    }
}

struct Pair {
    media: Arc<SimMedia>,
    logs: Logs,
    writers: Vec<Writer>,
    model: BTreeMap<usize, Model>,
    count: u8,
}

fn name(log: usize) -> String {
    format!("log{log}")
}

fn writers(logs: &Logs) -> Vec<Writer> {
    (0..WRITERS).map(|id| Writer::new(Arc::clone(logs.heap()), id)).collect()
}

fn open(media: &Arc<SimMedia>) -> Logs {
    LogRecovery::run(Arc::clone(media) as Arc<dyn Media>).expect("opens").0
}

impl Pair {
    fn new() -> Self {
        let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let logs = open(&media);
        Self { media, writers: writers(&logs), logs, model: BTreeMap::new(), count: 0 }
    }

    fn commit(&mut self) {
        self.writers.iter_mut().for_each(|writer| writer.commit_now().expect("commits"));
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Append { writer, log, ref lens } => self.append(writer, log, lens),
            Op::Trim { writer, log, part } => {
                let writer = &mut self.writers[usize::from(writer)];
                let Some(model) = self.model.get_mut(&log) else {
                    let none = self.logs.trim(writer, name(log).as_bytes(), 0, 1);
                    return assert!(matches!(none, Err(WalError::NoLog)));
                };
                let before = model.first + model.entries.len() as u64 * part / 4;
                let first = self.logs.trim(writer, name(log).as_bytes(), before, 1).expect("trims").ungated();
                model.entries.drain(..(before - model.first) as usize);
                model.first = before;
                assert_eq!(first, before);
            }
            Op::Delete { writer, log } => {
                let deleted =
                    self.logs.delete(&mut self.writers[usize::from(writer)], name(log).as_bytes(), 1);
                assert_eq!(deleted.expect("deletes").is_some(), self.model.remove(&log).is_some());
            }
            Op::Position { writer, log, back } => self.position(writer, log, back),
            Op::Read { log, from, entries, bytes } => self.read(log, from, ReadLimit { entries, bytes }),
            Op::Sweep => drop(self.logs.sweep(3)),
            Op::Restart => {
                self.commit();
                self.writers.clear();
                self.media =
                    SimMedia::from_image(self.media.crash_state().durable_image(), SimOptions::default());
                self.logs = open(&self.media);
                self.writers = writers(&self.logs);
            }
        }
    }

    fn append(&mut self, writer: u8, log: usize, lens: &[usize]) {
        let mut value = |len: &usize| {
            self.count = self.count.wrapping_add(1);
            vec![self.count; *len]
        };
        let values: Vec<Vec<u8>> = lens.iter().map(&mut value).collect();
        let sources: Vec<Source<'_>> = values.iter().map(|value| Source::Bytes(value)).collect();
        let writer = &mut self.writers[usize::from(writer)];
        let done =
            self.logs.append(writer, name(log).as_bytes(), &sources, 1).expect("there is room").ungated();
        let model = self.model.entry(log).or_default();
        assert_eq!((done.first, done.count), (model.next(), values.len()));
        model.entries.extend(values);
    }

    fn position(&mut self, writer: u8, log: usize, back: u64) {
        self.commit();
        let Some(model) = self.model.get_mut(&log) else { return };
        let (log, at) = (name(log), model.next().saturating_sub(back));
        let writer = &mut self.writers[usize::from(writer)];
        self.logs.commit_position(writer, log.as_bytes(), b"c", at, 1).expect("commits").ungated();
        model.position = Some(at);
    }

    fn read(&mut self, log: usize, from: u64, limit: ReadLimit) {
        self.commit();
        let page = self.logs.read(name(log).as_bytes(), from, limit);
        let Some(model) = self.model.get(&log) else {
            return assert!(matches!(page, Err(WalError::NoLog)));
        };
        if !(model.first..=model.next()).contains(&from) {
            let (first, next) = (model.first, model.next());
            let ok = matches!(page, Err(WalError::OutOfRange { first: f, next: n, .. }) if (f, n) == (first, next));
            return assert!(ok, "{page:?}");
        }
        let page = page.expect("reads").ungated();
        assert_eq!(page.entries.len(), model.page(from, limit));
        assert_eq!(
            (page.next, page.first, page.end),
            (from + page.entries.len() as u64, model.first, model.next())
        );
    }

    fn check(&mut self) {
        self.commit();
        assert_eq!(self.logs.logs(None, 100).len(), self.model.len());
        for (log, model) in &self.model {
            let (first, entries) = all(&self.logs, &name(*log)).expect("reads");
            assert_eq!(first, model.first);
            assert!(entries.iter().eq(&model.entries), "{log}");
            let position = self.logs.position(name(*log).as_bytes(), b"c").ok().map(Gated::ungated);
            assert_eq!(position, model.position);
            let bytes: usize = model.entries.iter().map(Vec::len).sum();
            assert_eq!(
                self.logs.stats_of(name(*log).as_bytes()).expect("there").ungated().bytes,
                bytes as u64
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn logs_are_queues_that_remember_their_offsets(ops in ops()) {
        let mut pair = Pair::new();
        for op in &ops {
            pair.run(op);
        }
        pair.check();
        pair.run(&Op::Restart);
        pair.check();
    }
}
