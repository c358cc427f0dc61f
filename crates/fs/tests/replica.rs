//! Files on two media, as two nodes of a chain have them: what the first one executes is executed at the second one, and
//! after restarts, crashes and copies both are the same.

mod common;

use common::model::{Pair, Step, assert_same, config, step};
use common::{OPTIONS, World, check, region};
use landfall_fs::{
    Advanced, CopyPlace, FileType, FilesRecord, FilesRecovery, FsError, Mode, Name, NewFile, Operation,
    Orphans, Publisher, ReceiveError, is_compared,
};
use landfall_heap::{
    Entry, Heap, HeapError, Item, Kind, NewRegion, Region, RegionCheck, SlotId, Source, Successor, Writer,
    create, spaces,
};
use landfall_media::RUN_SIZE;
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A record, as a message would have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    space: u8,
    key: Vec<u8>,
    aux: u32,
    mark: u64,
    arrival_ns: u64,
    bytes: Vec<u8>,
}

impl Sent {
    fn of(heap: &Heap, slot: SlotId) -> Self {
        let view = heap.record(slot).expect("a record");
        Self {
            space: view.space(),
            key: heap.key(&view).expect("a key").to_vec(),
            aux: view.aux(),
            mark: view.mark(),
            arrival_ns: view.arrival_ns(),
            bytes: heap.value_bytes(slot, &view).expect("a value").to_vec(),
        }
    }

    fn record(&self) -> FilesRecord<'_> {
        let Self { space, key, aux, mark, arrival_ns, bytes } = self;
        let value = if bytes.is_empty() { Source::None } else { Source::Bytes(bytes) };
        FilesRecord { space: *space, key, aux: *aux, mark: *mark, arrival_ns: *arrival_ns, value }
    }
}

/// The records of a batch, group by group.
fn groups(heap: &Heap, records: &[SlotId]) -> Vec<Vec<Sent>> {
    let group = |slot: &SlotId| heap.record(*slot).expect("a record").group().map(|group| group.first_seq);
    let same = |a: &SlotId, b: &SlotId| group(a).is_some() && group(a) == group(b);
    records.chunk_by(same).map(|some| some.iter().map(|slot| Sent::of(heap, *slot)).collect()).collect()
}

/// A batch, and how many operations the second medium had seen when it was durable there.
type Delivered = (Vec<Vec<Sent>>, u64);

/// The second node, as the first one sees it.
#[derive(Debug)]
struct Behind {
    node: Mutex<Option<Node>>,
    /// All batches.
    delivered: Mutex<Vec<Delivered>>,
}

struct Node(World);

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Node")
    }
}

impl Node {
    fn new() -> Self {
        let media = SimMedia::new(32 * RUN_SIZE, SimOptions::default());
        // Names lie at other places than in the first region, unless the tree brings its seed along.
        create(&*media, &NewRegion { salt: [7; 16], hash_seed: 77, created_ms: 3 }).expect("a new region");
        Self(World::open_as(media, Orphans::OfChain))
    }

    fn receive(&mut self, group: &[Sent]) {
        let records: Vec<FilesRecord<'_>> = group.iter().map(Sent::record).collect();
        loop {
            match self.0.files.receive(&records) {
                Ok(taken) => return assert!(taken),
                Err(ReceiveError::Files(FsError::Wait(_))) => self.0.files.sync_all().expect("syncs"),
                Err(error) => panic!("{group:?}: {error}"),
            }
        }
    }

    fn receive_all(&mut self, batch: &[Vec<Sent>]) {
        batch.iter().for_each(|group| self.receive(group));
        // As a worker does, which may not wait.
        assert_eq!(self.0.files.advance().expect("syncs"), Advanced::All);
    }

    /// What the node does before it hears anybody.
    fn be_ready(&mut self) {
        self.0.files.publish_again();
        self.0.publish();
    }

    fn restarted(self, image: &CrashImage) -> Self {
        let mut node = self.opened(image);
        node.be_ready();
        node
    }

    fn opened(self, image: &CrashImage) -> Self {
        drop(self);
        Self(World::open_as(SimMedia::restart(image, SimOptions::default()), Orphans::OfChain))
    }

    /// It starts again with what is durable, and hears nobody yet.
    fn crashed(self) -> Self {
        let image = self.0.media.crash_state().durable();
        self.opened(&image)
    }
}

impl Successor for Behind {
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

    fn send(&self, heap: &Heap, records: &[SlotId]) {
        if let Some(node) = &mut *self.node.lock() {
            let batch = groups(heap, records);
            node.receive_all(&batch);
            let ops = node.0.media.ops().total();
            self.delivered.lock().push((batch, ops));
        }
    }

    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) -> Result<(), HeapError> {
        Ok(())
    }
}

fn begin_copy(publisher: &mut Publisher, keeps: bool) {
    publisher.begin_copy(keeps).expect("there is room");
}

/// What a node lacks of a page of records, and has in vain: it deletes that.
fn compare(node: &mut Node, (from, next): (&CopyPlace, Option<&CopyPlace>), page: Vec<Sent>) -> Vec<Sent> {
    let until = next.filter(|next| next.space == from.space).and_then(|next| next.after.as_deref());
    let (mut place, mut own) = (from.clone(), Vec::new());
    loop {
        let some = node.0.files.records_within(&place, until).expect("it can be read");
        own.extend(some.records.iter().map(|record| Sent::of(node.0.files.heap(), record.item.slot)));
        if some.is_last {
            break;
        }
        place.after = own.last().map(|last| last.key.clone());
    }
    let in_vain = own.iter().filter(|own| page.iter().all(|sent| sent.key != own.key));
    let keys: Vec<&[u8]> = in_vain.map(|own| &own.key[..]).collect();
    node.0.publisher.drop_compared(from.space, &keys).expect("there is room");
    page.into_iter().filter(|sent| !own.contains(sent)).collect()
}

/// How a node is copied to.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// It keeps what it has.
    keeps: bool,
    /// It is copied to up to this page, and then anew.
    broken_at: Option<usize>,
    /// It crashes in between.
    crashes: bool,
}

impl Way {
    const WHOLE: Self = Self { keeps: false, broken_at: None, crashes: false };

    fn any() -> impl Strategy<Value = Self> {
        let broken_at = prop::option::weighted(0.3, 0..8_usize);
        (prop::bool::weighted(0.8), broken_at, any::<bool>()).prop_map(|(keeps, broken_at, crashes)| Self {
            keeps,
            broken_at,
            crashes,
        })
    }
}

/// Two nodes. The second one has nothing at first.
struct Chain {
    pair: Pair,
    behind: Arc<Behind>,
}

impl Chain {
    fn new() -> Self {
        let pair = Pair::of(World::open_as(region(), Orphans::OfChain));
        let behind = Arc::new(Behind { node: Mutex::new(None), delivered: Mutex::default() });
        pair.world.files.set_successor(Arc::clone(&behind) as Arc<dyn Successor>);
        Self { pair, behind }
    }

    /// Copies everything. Between two pages the first node does what comes next of `steps`. Returns how many records were
    /// sent.
    fn copy(&mut self, way: Way, steps: &mut std::slice::Iter<'_, Step>) -> usize {
        let mut node = self.behind.node.lock().take().unwrap_or_else(Node::new);
        if let Some(pages) = way.broken_at {
            begin_copy(&mut node.0.publisher, way.keeps);
            *self.behind.node.lock() = Some(node);
            self.hold();
            self.pages(way, pages, steps);
            self.pair.world.files.publish_again();
            node = self.behind.node.lock().take().expect("there is a node");
            if way.crashes {
                node = node.crashed();
            }
        }
        begin_copy(&mut node.0.publisher, way.keeps);
        *self.behind.node.lock() = Some(node);
        self.hold();
        let sent = self.pages(way, usize::MAX, steps);
        self.pair.world.files.publish_again();
        self.pair.world.files.sync_all().expect("syncs");
        let mut node = self.behind.node.lock();
        node.as_mut().expect("there is a node").0.publisher.end_copy().expect("it is whole");
        sent
    }

    /// The published tree does not change any more. It has whatever that of the second node has.
    fn hold(&mut self) {
        self.pair.world.publish();
        assert!(self.pair.world.files.hold_publishing());
    }

    /// Copies some pages.
    fn pages(&mut self, way: Way, most: usize, steps: &mut std::slice::Iter<'_, Step>) -> usize {
        let (mut place, mut sent) = (Some(CopyPlace::START), 0);
        for _ in 0..most {
            let Some(from) = place else { break };
            self.pair.world.files.sync_all().expect("syncs");
            let mut page: Vec<Sent> = {
                let (page, next) = self.pair.world.files.copy_page(&from).expect("reads");
                place = next;
                page.iter().map(|record| Sent::of(self.pair.world.files.heap(), record.item.slot)).collect()
            };
            if let Some(node) = &mut *self.behind.node.lock() {
                if way.keeps && is_compared(from.space) {
                    page = compare(node, (&from, place.as_ref()), page);
                }
                let records: Vec<FilesRecord<'_>> = page.iter().map(Sent::record).collect();
                node.0.publisher.receive_copied(&records).expect("it is taken");
                node.0.compact(landfall_heap::CompactGoal::DENSE_SLABS);
                sent += records.len();
            }
            steps.next().into_iter().for_each(|step| self.pair.run(step));
        }
        sent
    }

    /// The second node is away.
    fn away(&mut self) -> Node {
        self.pair.world.files.sync_all().expect("syncs");
        self.behind.node.lock().take().expect("there is a node")
    }

    /// Everything that the first node has is at the second one.
    fn assert_equal(&self, when: &str) {
        self.pair.world.files.sync_all().expect("syncs");
        let node = self.behind.node.lock();
        let world = &node.as_ref().expect("there is a node").0;
        assert_same(&world.view(), &self.pair.model.view(), when);
        assert_eq!(world.files.calls(), self.pair.calls, "{when}");
    }

    /// The first node restarts, and sends again what is not published.
    fn restart_first(&mut self) {
        self.pair.world.files.sync_all().expect("syncs");
        let left = self.pair.world.media.crash_state().durable();
        let world = World::open_as(SimMedia::restart(&left, SimOptions::default()), Orphans::OfChain);
        let unsent = world.files.operations_from(0).expect("reads");
        if let Some(node) = &mut *self.behind.node.lock() {
            node.receive_all(&groups(world.files.heap(), &unsent));
        }
        self.pair.world = world;
        self.pair.world.files.publish_again();
        self.pair.world.publish();
        self.pair.world.files.set_successor(Arc::clone(&self.behind) as Arc<dyn Successor>);
    }
}

/// What a group of operations needs behind its first one is read, too.
#[test]
fn a_value_becomes_a_file_at_a_node_that_has_just_started() {
    let mut chain = Chain::new();
    chain.copy(Way::WHOLE, &mut [].iter());
    let directory = chain.pair.world.create(common::ROOT, "directory", FileType::Directory);
    let mut node = chain.away();
    node.0.publish();
    let mut node = node.crashed();
    node.be_ready();
    *chain.behind.node.lock() = Some(node);
    let files = &chain.pair.world.files;
    let heap = files.heap();
    let (value, key) = (vec![5; 9000], b"key");
    let mut writer = Writer::new(Arc::clone(heap), 7);
    let entry = Entry {
        kind: Kind::Put,
        space: 0,
        hash: heap.hash(0, key),
        key,
        key_at: None,
        value: Source::Bytes(&value),
        arrival_ns: 1,
        expiry_ms: 0,
        aux: 0,
    };
    let slot = writer.append(&entry).expect("there is room");
    writer.commit_now().expect("commits");
    let item = Item::hold(heap, slot, &heap.record(slot).expect("a record")).expect("reads");
    let name = Name::new(b"file").expect("a name");
    let mode = Mode::new(FileType::File, 0o644);
    let new = NewFile { parent: directory, name, mode, uid: 1, gid: 2, replaces: false };
    let made = files.import(9, &new, &item).expect("there is room");
    files.sync_all().expect("syncs");
    let node = chain.behind.node.lock();
    assert_eq!(node.as_ref().expect("there is a node").0.bytes(made.number), value);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_node_that_was_copied_to_has_what_the_first_one_has(
        before in prop::collection::vec(step(), 0..30), during in prop::collection::vec(step(), 0..12),
        after in prop::collection::vec(step(), 1..30), restart in 0..30_usize, background in 1..6_usize,
    ) {
        let mut chain = Chain::new();
        before.iter().for_each(|step| chain.pair.run(step));
        chain.copy(Way::WHOLE, &mut during.iter());
        chain.assert_equal("after the copy");
        for (at, step) in after.iter().enumerate() {
            chain.pair.run(step);
            if at == restart {
                chain.restart_first();
                chain.assert_equal("after a restart of the first");
            }
            if at % background == 0 && let Some(node) = &mut *chain.behind.node.lock() {
                node.0.publish();
                node.0.compact(landfall_heap::CompactGoal::DENSE_DATA);
            }
        }
        chain.assert_equal("at the end");
        // The first one is gone: the second one goes on.
        let mut node = chain.behind.node.lock().take().expect("there is a node");
        node.0.create(common::ROOT, "of the second", FileType::File);
        node.0.publish();
        let seen = node.0.view();
        check(Arc::clone(&node.0.media));
        prop_assert_eq!(node.0.reopened().view(), seen);
        // A copy over what is there already, to the one that was the first.
    }

    #[test]
    fn nothing_of_what_a_node_had_before_a_copy_comes_back_after_a_restart(
        before in prop::collection::vec(step(), 0..30), alone in 0..4,
        between in prop::collection::vec(step(), 0..30), during in prop::collection::vec(step(), 0..4), way in Way::any(),
        restarts: bool, again in Way::any(), at_last in prop::collection::vec(step(), 0..6),
    ) {
        let mut chain = Chain::new();
        before.iter().for_each(|step| chain.pair.run(step));
        chain.pair.world.publish();
        chain.copy(Way::WHOLE, &mut [].iter());
        // What it has in its log, and nobody else knows.
        let mut away = chain.away();
        for file in 0..alone {
            let number = away.0.create(common::ROOT, &format!("alone {file}"), FileType::File);
            away.0.write(number, 0, &[9; 5000]);
        }
        away.0.files.sync_all().expect("syncs");
        if restarts {
            away = away.crashed();
        }
        between.iter().for_each(|step| chain.pair.run(step));
        chain.pair.world.publish();
        *chain.behind.node.lock() = Some(away);
        chain.copy(way, &mut during.iter());
        chain.assert_equal("after the second copy");
        // And once more, with what has changed in the same life.
        let away = chain.away();
        at_last.iter().for_each(|step| chain.pair.run(step));
        *chain.behind.node.lock() = Some(away);
        chain.copy(again, &mut [].iter());
        chain.assert_equal("after the third copy");
        let node = chain.behind.node.lock().take().expect("there is a node");
        let restarted = node.0.reopened();
        assert_same(&restarted.view(), &chain.pair.model.view(), "after a restart");
        prop_assert_eq!(&restarted.files.calls(), &chain.pair.calls);
        check(Arc::clone(&restarted.media));
    }

    #[test]
    fn a_node_that_crashes_has_everything_that_was_acknowledged_and_takes_the_rest(
        before in prop::collection::vec(step(), 0..10), during in prop::collection::vec(step(), 0..10),
        steps in prop::collection::vec(step(), 1..40), crash in 0..1000_u64, again in 0..1000_u64, seed: u64,
    ) {
        // The first run learns how many operations the medium sees.
        let run = |at: Option<u64>| {
            let mut chain = Chain::new();
            before.iter().for_each(|step| chain.pair.run(step));
            chain.copy(Way::WHOLE, &mut during.iter());
            let media = chain.behind.node.lock().as_ref().map(|node| Arc::clone(&node.0.media)).expect("a node");
            let begin = media.ops().total();
            at.into_iter().for_each(|at| media.freeze_at(begin + at));
            for (at, step) in steps.iter().enumerate() {
                chain.pair.run(step);
                if at % 7 == 6 && let Some(node) = &mut *chain.behind.node.lock() {
                    node.0.publish();
                }
            }
            chain.pair.world.files.sync_all().expect("syncs");
            (chain, media, begin)
        };
        let (_, media, begin) = run(None);
        let at = (media.ops().total() - begin) * crash / 1000;
        let (chain, media, begin) = run(Some(at));
        let state = media.frozen().unwrap_or_else(|| media.crash_state());
        let node = chain.behind.node.lock().take().expect("there is a node");
        let image = state.draw(seed);
        // What was durable there was acknowledged, and is not sent again.
        let all = chain.behind.delivered.lock();
        let unsent: Vec<&Delivered> = all.iter().filter(|(_, ops)| *ops > begin + at).collect();
        // It crashes once more while it gets the rest.
        let resend = |node: &mut Node, from: usize| -> Vec<u64> {
            let batches = unsent[from..].iter();
            batches.map(|(batch, _)| { node.receive_all(batch); node.0.media.ops().total() }).collect()
        };
        let mut once = node.restarted(&image);
        let begin = once.0.media.ops().total();
        let durable_at = resend(&mut once, 0);
        let at = begin + (once.0.media.ops().total() - begin) * again / 1000;
        let mut twice = once.restarted(&image);
        let media = Arc::clone(&twice.0.media);
        media.freeze_at(at);
        resend(&mut twice, 0);
        let state = media.frozen().unwrap_or_else(|| media.crash_state());
        let mut node = twice.restarted(&state.draw(seed ^ 1));
        resend(&mut node, durable_at.iter().filter(|ops| **ops <= at).count());
        assert_same(&node.0.view(), &chain.pair.model.view(), "after the crash");
        prop_assert_eq!(&node.0.files.calls(), &chain.pair.calls);
        node.0.publish();
        let seen = node.0.view();
        prop_assert_eq!(node.0.reopened().view(), seen);
    }
}

#[test]
fn a_second_copy_takes_the_place_of_the_first() {
    let mut chain = Chain::new();
    let steps = [
        Step::Create(0, 0, false),
        Step::Write(0, 0, 9000, 1),
        Step::Create(0, 1, true),
        Step::Publish,
        Step::Create(1, 3, false),
    ];
    steps.iter().for_each(|step| chain.pair.run(step));
    chain.copy(Way::WHOLE, &mut [].iter());
    chain.pair.run(&Step::Unlink(0, 0));
    chain.copy(Way::WHOLE, &mut [Step::Write(0, 0, 4096, 3), Step::Create(0, 4, false)].iter());
    chain.assert_equal("after the second copy");
}

#[test]
fn a_node_that_keeps_its_files_gets_only_what_has_changed() {
    let mut chain = Chain::new();
    for name in 0..4 {
        chain.pair.run(&Step::Create(0, name, false));
        chain.pair.run(&Step::Write(name, 0, 20_000, name as u8));
    }
    chain.pair.world.publish();
    chain.copy(Way::WHOLE, &mut [].iter());
    let away = chain.away();
    chain.pair.run(&Step::Write(1, 8192, 4096, 77));
    chain.pair.run(&Step::Unlink(0, 3));
    *chain.behind.node.lock() = Some(away);
    let way = Way { keeps: true, ..Way::WHOLE };
    let sent = chain.copy(way, &mut [].iter());
    chain.assert_equal("after the copy");
    // The header, the bound, the inodes of the root and of the file, names, data.
    assert!((4..=7).contains(&sent), "{sent}");
    assert_eq!(chain.copy(way, &mut [].iter()), 2, "the header and the bound");
}

#[test]
fn an_inode_that_was_deleted_at_a_node_alone_does_not_come_back_with_what_is_left_of_it() {
    let mut chain = Chain::new();
    chain.pair.run(&Step::Create(0, 0, false));
    chain.pair.run(&Step::Write(0, 0, 20_000, 1));
    chain.pair.world.publish();
    chain.copy(Way::WHOLE, &mut [].iter());
    let mut away = chain.away();
    // It goes its own way, which no node of a chain does.
    away.0.run(&Operation::Unlink {
        parent: common::ROOT,
        name: common::model::name(0),
        is_directory: false,
    });
    let number = chain.pair.model.file(0).expect("there is a file");
    away.0.run(&Operation::Release { number });
    away.0.publish();
    chain.pair.run(&Step::SetSize(0, 4096));
    let mut away = away.crashed();
    begin_copy(&mut away.0.publisher, true);
    chain.hold();
    let inodes = CopyPlace { space: 49, after: None };
    let page: Vec<Sent> = {
        let (page, _) = chain.pair.world.files.copy_page(&inodes).expect("reads");
        page.iter().map(|record| Sent::of(chain.pair.world.files.heap(), record.item.slot)).collect()
    };
    let records: Vec<FilesRecord<'_>> = page.iter().map(Sent::record).collect();
    let refused = away.0.publisher.receive_copied(&records);
    assert!(matches!(refused, Err(ReceiveError::Returned { .. })), "{refused:?}");
    chain.pair.world.files.publish_again();
    *chain.behind.node.lock() = Some(away);
    chain.copy(Way::WHOLE, &mut [].iter());
    let node = chain.away();
    assert_same(&node.0.reopened().view(), &chain.pair.model.view(), "after a restart");
}

#[test]
fn a_copy_that_came_to_nothing_leaves_nothing_to_the_next_one() {
    let mut chain = Chain::new();
    [Step::Create(0, 0, false), Step::Publish, Step::Create(0, 1, false)]
        .iter()
        .for_each(|s| chain.pair.run(s));
    chain.copy(Way::WHOLE, &mut [].iter());
    {
        let mut node = chain.behind.node.lock();
        let node = node.as_mut().expect("there is a node");
        begin_copy(&mut node.0.publisher, false);
    }
    chain.pair.run(&Step::Create(0, 2, false));
    chain.pair.world.files.sync_all().expect("syncs");
    {
        let mut node = chain.behind.node.lock();
        let node = &mut node.as_mut().expect("there is a node").0;
        assert!(node.publisher.end_copy().is_err(), "it has no bound");
    }
    chain.copy(Way::WHOLE, &mut [Step::Create(0, 4, false)].iter());
    chain.assert_equal("after the copy");
    let mut node = chain.behind.node.lock().take().expect("there is a node");
    node.0.publish();
    let seen = node.0.view();
    assert_eq!(node.0.reopened().view(), seen);
}

#[test]
fn operations_that_came_in_a_copy_do_not_count_before_its_end_after_a_crash() {
    let mut chain = Chain::new();
    chain.pair.run(&Step::Create(0, 0, true));
    chain.copy(Way::WHOLE, &mut [].iter());
    let away = chain.away();
    [Step::Create(1, 2, false), Step::Link(0, 1, 0), Step::Publish]
        .iter()
        .for_each(|step| chain.pair.run(step));
    *chain.behind.node.lock() = Some(away);
    chain.copy(Way::WHOLE, &mut [].iter());
    let away = chain.away();
    chain.pair.run(&Step::Unlink(1, 2));
    *chain.behind.node.lock() = Some(away);
    // The inode of the directory is that of the first node, without its file; its names are as they were.
    chain.copy(Way { keeps: true, broken_at: Some(3), crashes: true }, &mut [].iter());
    chain.assert_equal("after the copy");
}

/// Damages each header that a region has, so that its key can be read.
fn damage_headers(image: &mut [u8]) {
    let is_header = |record: &[u8]| (record[4], record[7]) == (1, spaces::FILES_HEADER);
    for record in image[RUN_SIZE as usize..].chunks_exact_mut(128).filter(|record| is_header(record)) {
        record[42] ^= 0x55;
        record[43] ^= 0x55;
    }
}

/// The records of the tree before the copy are still on the medium, with the same numbers.
#[test]
fn a_copied_tree_whose_header_is_lost_is_not_opened_and_its_repair_brings_nothing_back() {
    let mut chain = Chain::new();
    chain.copy(Way::WHOLE, &mut [].iter());
    let mut away = chain.away();
    for file in 0..4 {
        let number = away.0.create(common::ROOT, &format!("alone {file}"), FileType::File);
        away.0.write(number, 0, &[9; 5000]);
    }
    away.0.publish();
    [Step::Create(0, 0, true), Step::Create(1, 2, false)].iter().for_each(|step| chain.pair.run(step));
    *chain.behind.node.lock() = Some(away);
    chain.copy(Way::WHOLE, &mut [].iter());
    let mut away = chain.away();
    away.be_ready();
    away.0.files.heap().mark_slabs(1).expect("stored");
    let view = away.0.view();
    let mut image = away.0.media.crash_state().durable_image();
    drop(away);
    damage_headers(&mut image);
    let region = || SimMedia::from_image(image.clone(), SimOptions::default());
    let recover = |media: &Arc<SimMedia>| {
        let files = Arc::new(FilesRecovery::default());
        let opened = Region::run(Arc::clone(media) as _, vec![Arc::clone(&files) as _]);
        let (heap, _) = opened.expect("the records can be read");
        (files, heap)
    };
    let (files, heap) = recover(&region());
    let refused = files.open_with(&heap, &OPTIONS, Orphans::OfChain).map(drop);
    assert!(matches!(refused, Err(FsError::Header(_))), "{refused:?}");
    let found = RegionCheck::run(region(), vec![Arc::new(FilesRecovery::default()) as _]).expect("a region");
    let media = region();
    let (files, heap) = recover(&media);
    let suspects: BTreeSet<SlotId> = found.findings.iter().map(|finding| finding.slot).collect();
    files.repair(&heap, &OPTIONS, &suspects, &found.nameless()).expect("the bound has the floor");
    found.unreadable().for_each(|finding| heap.overwrite_with_tombstone(finding.slot).expect("stored"));
    heap.mark_slabs(1).expect("stored");
    drop((files, heap));
    check(Arc::clone(&media));
    assert_eq!(World::open_as(media, Orphans::OfChain).view(), view);
}

#[test]
fn operations_that_are_missing_or_of_another_tree_are_refused() {
    let mut chain = Chain::new();
    chain.copy(Way::WHOLE, &mut [].iter());
    chain.pair.run(&Step::Create(0, 0, false));
    chain.pair.run(&Step::Create(0, 1, false));
    chain.pair.world.files.sync_all().expect("syncs");
    let all = chain.behind.delivered.lock().concat_groups();
    let node = chain.behind.node.lock();
    let files = &node.as_ref().expect("there is a node").0.files;
    let later = Sent { mark: 9, key: [&all[0].key[..4], &9_u64.to_le_bytes()].concat(), ..all[0].clone() };
    let expected = chain.pair.world.files.log_len().0;
    match files.receive(&[later.record()]) {
        Err(ReceiveError::Missing { index: 9, expected: next }) => assert_eq!(next, expected),
        other => panic!("{other:?}"),
    }
    let again =
        Sent { mark: expected, key: [&all[0].key[..4], &expected.to_le_bytes()].concat(), ..all[0].clone() };
    assert!(matches!(files.receive(&[again.record()]), Err(ReceiveError::Refused { .. })), "the name exists");
    let other = Sent { space: 49, ..all[0].clone() };
    assert!(matches!(files.receive(&[other.record()]), Err(ReceiveError::Damage(_))));
    drop(node);
    let mut node = chain.behind.node.lock();
    let publisher = &mut node.as_mut().expect("there is a node").0.publisher;
    assert!(matches!(publisher.end_copy(), Err(ReceiveError::NoCopy)));
}

#[test]
fn operations_mean_nothing_to_other_files_until_a_copy_begins() {
    let mut chain = Chain::new();
    chain.copy(Way::WHOLE, &mut [].iter());
    chain.pair.run(&Step::Create(0, 0, false));
    chain.pair.world.files.sync_all().expect("syncs");
    let all = chain.behind.delivered.lock().concat_groups();
    let mut other = Node::new();
    other.0.files.pass_over();
    assert!(!other.0.files.receive(&[all[0].record()]).expect("it is passed over"));
    assert_eq!(other.0.view().len(), 1, "the root");
    begin_copy(&mut other.0.publisher, false);
    // It cannot be said of files that are being copied to.
    other.0.files.pass_over();
    assert!(other.0.files.receive(&[all[0].record()]).expect("it waits"));
}

trait ConcatGroups {
    fn concat_groups(&self) -> Vec<Sent>;
}

impl ConcatGroups for Vec<Delivered> {
    fn concat_groups(&self) -> Vec<Sent> {
        self.iter().flat_map(|(batch, _)| batch.iter().flatten().cloned()).collect()
    }
}
