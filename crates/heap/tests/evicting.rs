//! What leaves memory while others append: a medium on which something happens between a step of the clock and the next.

mod common;

use common::put;
use landfall_heap::{Heap, NewRegion, Opening, Source, Writer, create};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{
    ChunkSet, Dirty, EventFd, Evict, Extent, Media, MediaError, MediaKind, Pages, RUN_SIZE, ReadQueue, Site,
};
use parking_lot::Mutex;
use std::sync::Arc;

const RUNS: u64 = 32;

type Hook = Box<dyn FnOnce() + Send>;

/// A medium of which little may be in memory, and what happens before it evicts anything of a run, pinned lately or not.
struct Between {
    media: Arc<SimMedia>,
    before_eviction: Mutex<Option<(u64, Hook)>>,
}

impl Media for Between {
    fn kind(&self) -> MediaKind {
        self.media.kind()
    }

    fn describe(&self) -> String {
        self.media.describe()
    }

    fn len(&self) -> u64 {
        self.media.len()
    }

    fn bytes(&self, extent: Extent) -> Result<&[u8], MediaError> {
        self.media.bytes(extent)
    }

    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), MediaError> {
        self.media.store(off, bytes)
    }

    fn store_u64(&self, off: u64, word: u64) -> Result<(), MediaError> {
        self.media.store_u64(off, word)
    }

    fn zero(&self, extent: Extent) -> Result<(), MediaError> {
        self.media.zero(extent)
    }

    fn claim_run(&self, run_off: u64) -> Result<(), MediaError> {
        self.media.claim_run(run_off)
    }

    fn flush(&self, dirty: &mut Dirty, site: Site, extent: Extent) {
        self.media.flush(dirty, site, extent);
    }

    fn fence(&self, dirty: &mut Dirty, site: Site) -> Result<(), MediaError> {
        self.media.fence(dirty, site)
    }

    fn read_medium(&self, extent: Extent, into: &mut [u8]) -> Result<(), MediaError> {
        self.media.read_medium(extent, into)
    }

    fn grow(&self, len: u64) -> Result<(), MediaError> {
        self.media.grow(len)
    }

    fn pages(self: Arc<Self>) -> Option<Arc<dyn Pages>> {
        Some(self as _)
    }
}

impl Pages for Between {
    fn pin(&self, extent: Extent) {
        self.media.pin(extent);
    }

    fn unpin(&self, extent: Extent) {
        self.media.unpin(extent);
    }

    fn is_resident(&self, extent: Extent) -> bool {
        self.media.is_resident(extent)
    }

    fn load(&self, extent: Extent) -> Result<(), MediaError> {
        self.media.load(extent)
    }

    fn open_queue(self: Arc<Self>, eventfd: Option<EventFd<'_>>) -> Result<Box<dyn ReadQueue>, MediaError> {
        Arc::clone(&self.media).open_queue(eventfd)
    }

    fn forget_use(&self, extent: Extent) {
        self.media.forget_use(extent);
    }

    fn cold_bytes(&self, run_off: u64) -> u64 {
        self.media.cold_bytes(run_off)
    }

    fn unpinned(&self, run_off: u64) -> ChunkSet {
        self.media.unpinned(run_off)
    }

    fn evict(&self, run_off: u64, what: Evict, among: ChunkSet) -> u64 {
        let hook = self.before_eviction.lock().take_if(|(run, _)| (*run, Evict::Any) == (run_off, what));
        hook.into_iter().for_each(|(_, happens)| happens());
        self.media.evict(run_off, what, among)
    }

    fn resident_bytes(&self) -> u64 {
        self.media.resident_bytes()
    }

    fn limit(&self) -> u64 {
        self.media.limit()
    }
}

#[test]
fn what_is_appended_while_a_run_is_evicted_stays_until_it_is_durable() {
    let sim = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*sim, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    sim.page(2 * RUN_SIZE);
    let media = Arc::new(Between { media: sim, before_eviction: Mutex::default() });
    let mut opening = Opening::begin(Arc::clone(&media) as _).expect("opens");
    opening.resolve(&|_: &Heap, _: u64, _: u64| false, |_, _| {}).expect("settles");
    let heap = opening.finish().expect("opens");
    // It has been received, and its run is filled. The record follows.
    let run = heap.take_landing_run().expect("space");
    let (extent, value) = (Extent::new(run + 70_000, 9000), [7; 9000]);
    heap.media().store(extent.off, &value).expect("in bounds");
    heap.runs().hold(extent);
    heap.retire_landing_run(run);
    let writer = Arc::new(Mutex::new(Writer::new(Arc::clone(&heap), 0)));
    let append = {
        let (heap, writer) = (Arc::clone(&heap), Arc::clone(&writer));
        move || {
            let landed = Source::Landed { extents: &[extent], crc: None };
            writer.lock().append(&put(&heap, b"key", landed)).expect("there is room");
            heap.runs().release(extent);
        }
    };
    *media.before_eviction.lock() = Some((run, Box::new(append)));
    heap.relieve_memory(u64::from(u32::MAX));
    assert!(media.before_eviction.lock().is_none(), "the run was visited");
    assert!(*heap.pinned(extent).expect("in bounds") == value);
    writer.lock().commit_now().expect("commits");
    heap.relieve_memory(u64::from(u32::MAX));
    assert!(!heap.is_resident(extent), "it is durable");
    assert!(*heap.pinned(extent).expect("in bounds") == value);
}
