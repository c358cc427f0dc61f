//! The oracle of logs: decides which states a client may find after a crash. It shares no code with the log service.
//!
//! Every operation is a fact that does not depend on others: an entry at an offset, a head, or a position. The latest
//! head of a log counts, and the latest position of a consumer. A crash keeps all acknowledged facts, and a prefix of
//! the other facts of each writer. In which order retention trims logs is its own business: of those of one step a crash
//! may keep any.

use crate::violation::{Violation, ensure};
use landfall_heap::{Heap, Tickets};
use landfall_wal::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An entry of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Its bytes.
    pub bytes: Arc<[u8]>,
    /// When it was appended, Unix milliseconds.
    pub arrival_ms: u64,
}

/// The state of one log that a client finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Offset of the first entry.
    pub first: u64,
    /// The entries from the first offset on.
    pub entries: Vec<LogEntry>,
    /// Positions of consumers.
    pub positions: BTreeMap<String, u64>,
    /// How long it keeps its entries.
    pub settings: Settings,
}

/// All logs by name.
pub type LogsState = BTreeMap<String, LogState>;

/// Number of one of the logs that had the same name one after the other.
type Life = u64;

/// The effect of one operation.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Entry {
        life: Life,
        offset: u64,
        entry: LogEntry,
    },
    /// `first` of `None`: deleted.
    Head {
        name: String,
        life: Life,
        first: Option<u64>,
        settings: Settings,
    },
    Position {
        life: Life,
        consumer: String,
        offset: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug)]
struct Head {
    order: u64,
    life: Life,
    first: Option<u64>,
    settings: Settings,
}

/// Facts that hold.
#[derive(Clone, Debug, Default)]
struct Facts {
    entries: BTreeMap<(Life, u64), LogEntry>,
    heads: BTreeMap<String, Head>,
    positions: BTreeMap<(Life, String), (u64, Option<u64>)>,
}

impl Facts {
    fn add(&mut self, order: u64, fact: &Fact) {
        match fact.clone() {
            Fact::Entry { life, offset, entry } => drop(self.entries.insert((life, offset), entry)),
            Fact::Head { name, life, first, settings } => {
                let head = Head { order, life, first, settings };
                let known = self.heads.entry(name).or_insert(head);
                if known.order < order {
                    *known = head;
                }
            }
            Fact::Position { life, consumer, offset } => {
                let known = self.positions.entry((life, consumer)).or_insert((order, offset));
                if known.0 < order {
                    *known = (order, offset);
                }
            }
        }
    }

    /// The state that a client finds.
    fn state(&self) -> LogsState {
        let live = self.heads.iter().filter_map(|(name, head)| Some((name, head, head.first?)));
        live.map(|(name, head, first)| (name.clone(), self.log(head, first))).collect()
    }

    fn log(&self, head: &Head, first: u64) -> LogState {
        let dense = (first..).map_while(|offset| self.entries.get(&(head.life, offset)).cloned());
        let of_life = self.positions.range((head.life, String::new())..(head.life + 1, String::new()));
        let positions =
            of_life.filter_map(|((_, consumer), (_, offset))| Some((consumer.clone(), (*offset)?)));
        LogState { first, entries: dense.collect(), positions: positions.collect(), settings: head.settings }
    }

    /// True if an entry exists, or was trimmed or deleted.
    fn accounts_for(&self, promise: &Promise) -> bool {
        let Some(head) = self.heads.get(&promise.name) else { return false };
        match head.first {
            Some(first) if head.life == promise.life => {
                (first..=promise.offset).all(|offset| self.entries.contains_key(&(head.life, offset)))
            }
            // The log was deleted, and may have been created again.
            None => head.life >= promise.life,
            Some(_) => head.life > promise.life,
        }
    }
}

/// An appended entry, and the tickets that its acknowledgement waits for.
#[derive(Clone, Debug)]
struct Promise {
    name: String,
    life: Life,
    offset: u64,
    waits: Tickets,
}

/// What an operation of a writer has done.
#[derive(Clone, Debug)]
struct Step {
    facts: Vec<(u64, Fact)>,
    /// A crash may keep any of the facts; otherwise all or none.
    counts_each_alone: bool,
}

impl Step {
    /// What a crash may keep of it if it keeps nothing behind it, and neither all nor nothing of it.
    fn parts(&self) -> impl Iterator<Item = Vec<&(u64, Fact)>> + '_ {
        let subsets = if self.counts_each_alone { (1_usize << self.facts.len()) - 1 } else { 1 };
        (1..subsets).map(|subset| {
            let of_subset = |(at, fact)| (subset >> at & 1 == 1).then_some(fact);
            self.facts.iter().enumerate().filter_map(of_subset).collect()
        })
    }
}

/// The oracle of logs.
#[derive(Clone, Debug)]
pub struct WalOracle {
    base: Facts,
    /// Unacknowledged operations of each writer, in order.
    pending: Vec<Vec<Step>>,
    order: u64,
    lives: u64,
    /// Entries whose acknowledgement still waits.
    open: Vec<Promise>,
    /// Entries that were acknowledged to a client.
    acknowledged: Vec<Promise>,
}

impl WalOracle {
    /// A region without logs.
    pub fn new(writers: usize) -> Self {
        let pending = vec![Vec::new(); writers];
        let (open, acknowledged) = (Vec::new(), Vec::new());
        Self { base: Facts::default(), pending, order: 0, lives: 0, open, acknowledged }
    }

    pub(crate) fn note(&mut self, writer: usize, fact: Fact) {
        self.order += 1;
        self.pending[writer].push(Step { facts: vec![(self.order, fact)], counts_each_alone: false });
    }

    /// Notes facts of which a crash may keep any.
    pub(crate) fn note_each_alone(&mut self, writer: usize, facts: Vec<Fact>) {
        if facts.is_empty() {
            return;
        }
        let order = self.order;
        self.order += facts.len() as u64;
        let facts = (order + 1..).zip(facts).collect();
        self.pending[writer].push(Step { facts, counts_each_alone: true });
    }

    /// Makes the last `count` operations of a writer count together or not at all.
    pub(crate) fn join(&mut self, writer: usize, count: usize) {
        let at = self.pending[writer].len() - count;
        let facts = self.pending[writer].drain(at..).flat_map(|step| step.facts).collect();
        self.pending[writer].push(Step { facts, counts_each_alone: false });
    }

    /// The number of a log that is created now.
    pub(crate) fn begin_life(&mut self) -> Life {
        self.lives += 1;
        self.lives
    }

    /// The number of the current log of this name.
    pub(crate) fn life(&self, name: &str) -> Option<Life> {
        let facts = self.newest_facts();
        facts.heads.get(name).filter(|head| head.first.is_some()).map(|head| head.life)
    }

    pub(crate) fn promise(&mut self, name: &str, life: Life, offset: u64, waits: &Tickets) {
        self.open.push(Promise { name: name.into(), life, offset, waits: waits.clone() });
    }

    /// Acknowledges entries to clients whose tickets are durable.
    pub(crate) fn acknowledge_entries(&mut self, heap: &Heap) {
        let (done, open) = self.open.drain(..).partition(|promise| heap.are_durable(&promise.waits));
        self.open = open;
        let mut done: Vec<Promise> = done;
        self.acknowledged.append(&mut done);
    }

    /// Number of unacknowledged operations of a writer.
    pub(crate) fn pending(&self, writer: usize) -> usize {
        self.pending[writer].len()
    }

    /// Notes that the first `count` operations of a writer are durable.
    pub(crate) fn acknowledge(&mut self, writer: usize, count: usize) {
        for (order, fact) in self.pending[writer].drain(..count).flat_map(|step| step.facts) {
            self.base.add(order, &fact);
        }
    }

    fn newest_facts(&self) -> Facts {
        let mut facts = self.base.clone();
        let steps = self.pending.iter().flatten();
        steps.flat_map(|step| &step.facts).for_each(|(order, fact)| facts.add(*order, fact));
        facts
    }

    /// The state if no operation is lost.
    pub fn newest(&self) -> LogsState {
        self.newest_facts().state()
    }

    /// The state with the acknowledged operations only.
    pub(crate) fn acknowledged(&self) -> LogsState {
        self.base.state()
    }

    /// Checks that a crash at this moment may leave the state `found`.
    ///
    /// # Errors
    /// The state, or an acknowledged entry that is lost.
    pub fn judge(&self, found: &LogsState) -> Result<(), Violation> {
        let mut closest = None;
        for facts in self.crashes() {
            if facts.state() != *found {
                continue;
            }
            match self.acknowledged.iter().find(|promise| !facts.accounts_for(promise)) {
                None => return Ok(()),
                Some(broken) => closest = Some(broken.clone()),
            }
        }
        if let Some(broken) = closest {
            return Err(Violation(format!("{broken:?} was acknowledged to a client, and is lost")));
        }
        let shown = |state: &LogsState| summary(state);
        Err(Violation(format!(
            "no crash leaves\n  {}\nacknowledged:\n  {}\nwith everything:\n  {}",
            shown(found),
            shown(&self.acknowledged()),
            shown(&self.newest())
        )))
    }

    /// The facts that each possible crash leaves: those of every combination of what it may keep of each writer's pending
    /// operations.
    fn crashes(&self) -> impl Iterator<Item = Facts> + '_ {
        let kept: Vec<Vec<Vec<&(u64, Fact)>>> = self.pending.iter().map(|steps| kept_of(steps)).collect();
        let total: usize = kept.iter().map(Vec::len).product();
        (0..total).map(move |mut number| {
            let mut facts = self.base.clone();
            for of_writer in &kept {
                let chosen = &of_writer[number % of_writer.len()];
                chosen.iter().for_each(|(order, fact)| facts.add(*order, fact));
                number /= of_writer.len();
            }
            facts
        })
    }

    /// Continues from the state that was found after a crash.
    pub fn collapse(&mut self, found: &LogsState) {
        *self = Self { order: 1, ..Self::new(self.pending.len()) };
        for (name, log) in found {
            let life = self.begin_life();
            let (first, settings) = (Some(log.first), log.settings);
            let mut facts = vec![Fact::Head { name: name.clone(), life, first, settings }];
            let entries = (log.first..).zip(&log.entries);
            facts.extend(entries.map(|(offset, entry)| Fact::Entry { life, offset, entry: entry.clone() }));
            facts.extend(log.positions.iter().map(|(consumer, offset)| Fact::Position {
                life,
                consumer: consumer.clone(),
                offset: Some(*offset),
            }));
            facts.iter().for_each(|fact| self.base.add(1, fact));
        }
    }

    /// Checks that the state of a running system lies between that of the acknowledged and that of all operations.
    pub(crate) fn check_shown(&self, shown: &LogsState) -> Result<(), Violation> {
        let newest = self.newest();
        for (name, log) in shown {
            let Some(all) = newest.get(name) else {
                return Err(Violation(format!("log {name} was deleted, and is still listed")));
            };
            ensure!(
                log.first == all.first && all.entries.starts_with(&log.entries),
                "log {name} has another state: {} for {}",
                summary(shown),
                summary(&newest)
            );
        }
        for (name, log) in self.acknowledged() {
            let (Some(all), Some(now)) = (newest.get(&name), shown.get(&name)) else { continue };
            let same_life = self.life(&name) == self.base.heads.get(&name).map(|head| head.life);
            let end = log.first + log.entries.len() as u64;
            ensure!(
                !same_life
                    || now.first + now.entries.len() as u64 >= end.min(all.first + all.entries.len() as u64),
                "log {name} lacks acknowledged entries"
            );
        }
        Ok(())
    }
}

/// What a crash may keep of a writer's operations: those up to one of them, and a part of the next.
fn kept_of(steps: &[Step]) -> Vec<Vec<&(u64, Fact)>> {
    let whole = |count: usize| steps[..count].iter().flat_map(|step| &step.facts);
    let mut kept = vec![Vec::new()];
    for (count, step) in steps.iter().enumerate() {
        kept.extend(step.parts().map(|part| whole(count).chain(part).collect()));
        kept.push(whole(count + 1).collect());
    }
    kept
}

fn summary(state: &LogsState) -> String {
    let log = |(name, log): (&String, &LogState)| {
        let bytes: Vec<String> = log.entries.iter().map(|entry| crc_of(&entry.bytes)).collect();
        format!("{name}: {}+{} {:?} {}", log.first, log.entries.len(), log.positions, bytes.join(","))
    };
    state.iter().map(log).collect::<Vec<_>>().join("; ")
}

fn crc_of(bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u16, |sum, byte| sum.rotate_left(3) ^ u16::from(*byte));
    format!("{}:{sum:04x}", bytes.len())
}
