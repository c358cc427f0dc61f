//! Stored bytes are not written again: another expiry, another name or an appended byte costs one record.

use landfall_heap::{NewRegion, Source, Writer, create};
use landfall_kv::{Engine, Pieces, Recovery, SetRequest, Txn, TxnKey};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE, Site};
use std::sync::Arc;

const VALUE_BYTES: usize = 3 << 20;
/// Most bytes of a record and its list of extents, rounded up to blocks or lines.
const LITTLE: u64 = 16 << 10;

struct Store {
    media: Arc<SimMedia>,
    engine: Engine,
}

impl Store {
    fn new() -> Self {
        let media = SimMedia::new(48 * RUN_SIZE, SimOptions { deferred: true });
        create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
        let engine = Recovery::run(Arc::clone(&media) as _, 4).expect("opens").0;
        Self { media, engine }
    }

    fn writer(&self, id: u8) -> Writer {
        Writer::new(Arc::clone(self.engine.heap()), id)
    }

    fn set(&self, writer: &mut Writer, key: &[u8]) {
        let value = vec![key[0]; VALUE_BYTES];
        let value = Source::Bytes(&value);
        let request = SetRequest { space: 0, key, key_at: None, value, expiry_ms: 0, arrival_ns: 1 };
        self.engine.set(writer, &request).expect("there is room").ungated();
    }

    /// Bytes that the next commit makes durable.
    fn committed(&self, writer: &mut Writer) -> u64 {
        let mut dirty = writer.begin_commit().expect("something was written");
        let bytes = dirty.bytes();
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        writer.finish_commit(outcome).expect("commits");
        bytes
    }

    fn change(&self, writer: &mut Writer, change: impl FnOnce(&mut Txn<'_>)) {
        let keys = [b"a", b"b"].map(|key| TxnKey { space: 0, key });
        let mut txn = self.engine.transaction(keys, 1);
        change(&mut txn);
        txn.commit(writer, 1).expect("there is room").ungated();
    }

    /// A byte that has landed.
    fn landed(&self) -> Extent {
        let run = self.engine.heap().take_landing_run().expect("a free run");
        let extent = Extent::new(run, 1);
        self.engine.heap().runs().hold(extent);
        extent
    }
}

fn expire(txn: &mut Txn<'_>) {
    let item = txn.read(0, b"a").expect("reads").ungated().expect("is there");
    txn.put_item(0, b"a", &item, 1 << 40);
}

fn copy(txn: &mut Txn<'_>) {
    let item = txn.read(0, b"a").expect("reads").ungated().expect("is there");
    txn.copy_item(0, b"b", &item, 0).expect("copies");
}

fn append(txn: &mut Txn<'_>, more: Extent) {
    let item = txn.read(0, b"a").expect("reads").ungated().expect("is there");
    let all: Vec<Extent> = item.extents().iter().copied().chain([more]).collect();
    txn.put_pieces(0, b"a", Pieces { all: &all, landed: &[more], of: &item }, None, 0);
}

#[test]
fn a_stored_value_is_not_made_durable_again() {
    let store = Store::new();
    let mut writer = store.writer(0);
    store.set(&mut writer, b"a");
    assert!(store.committed(&mut writer) >= VALUE_BYTES as u64);
    store.change(&mut writer, expire);
    assert!(store.committed(&mut writer) < LITTLE);
    store.change(&mut writer, copy);
    assert!(store.committed(&mut writer) < LITTLE);
    let more = store.landed();
    store.change(&mut writer, |txn| append(txn, more));
    assert!(store.committed(&mut writer) < LITTLE);
}

#[test]
fn landed_value_becomes_durable_when_it_is_staged_twice() {
    let store = Store::new();
    let mut writer = store.writer(0);
    // The value is staged again in one batch, then in one transaction: when it is read, it is not durable yet.
    store.set(&mut writer, b"a");
    store.change(&mut writer, expire);
    assert!(store.committed(&mut writer) >= VALUE_BYTES as u64);
    store.set(&mut writer, b"a");
    writer.commit_now().expect("commits");
    let extents: Vec<Extent> = {
        let heap = store.engine.heap();
        (0..2).map(|_| Extent::new(heap.take_landing_run().expect("a free run"), RUN_SIZE as u32)).collect()
    };
    extents.iter().for_each(|extent| store.engine.heap().runs().hold(*extent));
    store.change(&mut writer, |txn| {
        txn.put_landed(0, b"a", None, &extents, None, 0);
        expire(txn);
    });
    assert!(store.committed(&mut writer) >= 2 * RUN_SIZE, "the transaction's own value is not durable yet");
}

#[test]
fn undurable_value_of_another_writer_is_flushed_with_a_new_reference() {
    let store = Store::new();
    let (mut first, mut second) = (store.writer(0), store.writer(1));
    store.set(&mut first, b"a");
    store.change(&mut second, copy);
    assert!(store.committed(&mut second) >= VALUE_BYTES as u64);
    first.commit_now().expect("commits");
}
