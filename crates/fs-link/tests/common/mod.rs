//! Files on a simulated medium, a server's side of a link, and a model of the library on the other side.
#![allow(dead_code, unreachable_pub, reason = "each test program uses its part")]

use landfall_fs::{
    FIRST_CLIENT_AGAIN, FilePart, FileType, Files, FilesRecovery, InodeNumber, LeaseNumber, LeftLog, Mode,
    Name, OpenFiles, Operation, Publisher, WritePlace,
};
use landfall_fs_link::{
    Adopted, BLOCK_BYTES, CONTROL_WORDS, ClientLog, Control, ENTRY_BYTES_MAX, Identity, LogEnd, NotGranted,
    SEQS_PER_LEASE, WriteRecord,
};
use landfall_heap::{
    CompactGoal, Compactor, HeapError, NewRegion, RECORD_SIZE, Region, SLOTS_PER_RUN, SlotId, Tenant, Until,
    crc, create,
};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Dirty, Extent, Media, RUN_SIZE, Site};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub const RUNS: u64 = 64;
pub const OPTIONS: OpenFiles =
    OpenFiles { now_ns: 1, identity: [5; 16], mode: 0o755, uid: 0, gid: 0, log_writer: 0, publish_writer: 1 };

pub fn region() -> Arc<SimMedia> {
    let media = SimMedia::new(RUNS * RUN_SIZE, SimOptions::default());
    create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 }).expect("a new region");
    media
}

/// Files, with what works in the background.
pub struct World {
    pub media: Arc<SimMedia>,
    pub files: Arc<Files>,
    pub publisher: Publisher,
    pub compactor: Compactor,
    landing: u64,
    pub now_ns: i64,
}

impl World {
    pub fn open(media: Arc<SimMedia>) -> Self {
        let (world, damaged) = Self::open_damaged(media);
        assert_eq!(damaged, 0, "nothing is damaged");
        world
    }

    /// Opens a region of which something may be damaged. Returns how much.
    pub fn open_damaged(media: Arc<SimMedia>) -> (Self, u64) {
        Self::open_after(media, Vec::new())
    }

    /// As [`Self::open_damaged`], after a server was killed that has left operations.
    pub fn open_after(media: Arc<SimMedia>, left: Vec<Arc<LeftLog>>) -> (Self, u64) {
        let recovery = Arc::new(FilesRecovery::default());
        recovery.execute_left(left);
        let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
        let (heap, found) = Region::run(Arc::clone(&media) as Arc<dyn Media>, tenants).expect("opens");
        let damaged = found.damaged.len() as u64 + found.damaged_values;
        let (files, publisher, found) = recovery.open(&heap, &OPTIONS).expect("opens");
        files.set_nodes_max(2);
        let world = Self { media, files, publisher, compactor: Compactor::new(heap), landing: 0, now_ns: 10 };
        (world, damaged + found.damaged)
    }

    pub fn create(&mut self, name: &str) -> InodeNumber {
        let number = self.files.take_number();
        let place = Some((InodeNumber::ROOT, Name::new(name.as_bytes()).expect("a good name")));
        let mode = Mode::new(FileType::File, 0o644);
        let create = Operation::Create { place, number, mode, uid: 0, gid: 0, rdev: 0 };
        self.now_ns += 1;
        self.files.execute(self.now_ns, &create).expect("creates");
        number
    }

    pub fn find(&self, name: &str) -> InodeNumber {
        let name = Name::new(name.as_bytes()).expect("a good name");
        self.files.lookup(InodeNumber::ROOT, name).expect("it is there").number
    }

    /// Lands bytes in frames, as a mount does, and writes them.
    pub fn write(&mut self, file: InodeNumber, offset: u64, bytes: &[u8]) {
        let heap = Arc::clone(self.files.heap());
        let len = bytes.len() as u64;
        if self.landing == 0 || self.landing % RUN_SIZE + len > RUN_SIZE {
            let used = std::mem::replace(&mut self.landing, heap.take_landing_run().expect("a free run"));
            if used > 0 {
                heap.retire_landing_run((used - 1) / RUN_SIZE * RUN_SIZE);
            }
        }
        let extent = Extent::new(self.landing, bytes.len() as u32);
        heap.media().store(extent.off, bytes).expect("stores");
        heap.runs().hold(extent);
        self.now_ns += 1;
        self.files.write(file, offset, &[extent], self.now_ns).expect("writes");
        heap.runs().release(extent);
        self.landing = extent.end().next_multiple_of(4096);
        if self.landing.is_multiple_of(RUN_SIZE) {
            heap.retire_landing_run(self.landing - RUN_SIZE);
            self.landing = 0;
        }
    }

    pub fn bytes(&self, file: InodeNumber) -> Vec<u8> {
        let mut bytes = Vec::new();
        for part in self.files.read(file, 0..u64::MAX).expect("reads") {
            match part {
                FilePart::Zeroes(len) => bytes.resize(bytes.len() + len as usize, 0),
                FilePart::Stored(part) => {
                    assert!(part.item().verify().expect("reads"), "the checksum holds");
                    bytes.extend(part.to_vec(self.files.heap()).expect("reads"));
                }
            }
        }
        bytes
    }

    pub fn publish(&mut self) {
        self.publisher.step().expect("there is room");
    }

    pub fn compact(&mut self) {
        for goal in [CompactGoal::DENSE_DATA, CompactGoal::DENSE_SLABS] {
            for _ in 0..50 {
                if self.compactor.step(&*self.files, goal, 1 << 20).expect("there is room").is_idle {
                    break;
                }
            }
        }
    }
}

/// A lease, as both sides know it.
#[derive(Clone, Copy, Debug)]
pub struct TestLease {
    pub number: LeaseNumber,
    pub file: InodeNumber,
    pub seq: u64,
}

/// The server's side of a link, and the memory between.
pub struct Server {
    pub log: ClientLog,
    pub memory: Arc<Vec<AtomicU64>>,
    files: Arc<Files>,
    leases: u64,
}

impl Server {
    pub fn attach(world: &mut World) -> Self {
        let client = world.files.attach().expect("a number is left");
        world.publish();
        Self::of(world, client)
    }

    /// The side of a client whose operations are executed again in the log of the mount.
    pub fn attach_again(world: &mut World) -> Self {
        Self::of(world, FIRST_CLIENT_AGAIN)
    }

    fn of(world: &mut World, client: u32) -> Self {
        let memory: Arc<Vec<AtomicU64>> = Arc::new((0..CONTROL_WORDS).map(|_| AtomicU64::new(0)).collect());
        let mut log = ClientLog::new(Arc::clone(&world.files), client);
        let geometry = world.files.heap().geometry();
        let control = Control::new(&memory).expect("its size");
        let (hash_seed, region_bytes) = (geometry.hash_seed, geometry.bytes());
        control.begin(Identity { client, hash_seed, region_bytes });
        log.refill(control).expect("there is room");
        Self { log, memory, files: Arc::clone(&world.files), leases: u64::from(client) << 32 }
    }

    pub fn control(&self) -> Control<'_> {
        Control::new(&self.memory).expect("its size")
    }

    /// Everything that the mount has done to the file is durable before.
    pub fn lease(&mut self, file: InodeNumber) -> TestLease {
        self.files.sync(file).expect("syncs");
        self.leases += 1;
        let (number, seq) = (LeaseNumber(self.leases), self.files.heap().draw_seqs(SEQS_PER_LEASE));
        self.log.begin_lease(number, file, seq);
        TestLease { number, file, seq }
    }

    pub fn adopt(&mut self) -> Result<u64, LogEnd> {
        let memory = Arc::clone(&self.memory);
        let control = Control::new(&memory).expect("its size");
        let before = self.log.adopted();
        while let Adopted::Waits(error) = self.log.adopt(control)? {
            assert!(matches!(error.until(), Some(Until::Commit | Until::Ticket(_))), "{error}");
            self.files.sync_all().expect("syncs");
        }
        self.log.refill(control).map_err(|error| match error {
            NotGranted::Region(error) => LogEnd::Region(error),
            NotGranted::Behind => LogEnd::Region(HeapError::Full),
        })?;
        Ok(self.log.adopted() - before)
    }

    /// What this server has left, if it is killed now.
    pub fn left(&self, files: &[InodeNumber]) -> Option<Arc<LeftLog>> {
        let control = self.control();
        let operations = control.applied()..control.appended();
        LeftLog::new(self.log.client(), operations, files.iter().copied().collect()).map(Arc::new)
    }

    pub fn end(self, world: &mut World) {
        world.files.end_client(self.log.client());
        world.publish();
    }
}

/// The library's side: it knows the medium and the memory.
pub struct Library {
    media: Arc<SimMedia>,
    memory: Arc<Vec<AtomicU64>>,
    pub appended: u64,
    pub durable: u64,
    landing: u64,
    used: u32,
    /// Data that are not flushed.
    unflushed: Vec<Extent>,
    pub slots: Vec<SlotId>,
}

impl Library {
    pub fn new(world: &World, server: &Server) -> Self {
        Self {
            media: Arc::clone(&world.media),
            memory: Arc::clone(&server.memory),
            appended: 0,
            durable: 0,
            landing: 0,
            used: 0,
            unflushed: Vec::new(),
            slots: Vec::new(),
        }
    }

    fn place(&mut self, bytes: &[u8]) -> Extent {
        let len = bytes.len() as u32;
        if u64::from(self.used + len) > RUN_SIZE {
            (self.landing, self.used) = (self.landing + 1, 0);
        }
        let memory = Arc::clone(&self.memory);
        let control = Control::new(&memory).expect("its size");
        let run = control.landing(self.landing).expect("it was granted");
        let extent = Extent::new(run.off() + u64::from(self.used), len);
        self.media.store(extent.off, bytes).expect("stores");
        self.used += len.next_multiple_of(4096);
        extent
    }

    /// Appends a write of whole blocks, or up to the end of the file.
    pub fn append(&mut self, lease: &mut TestLease, offset: u64, bytes: &[u8], time_ns: i64) {
        let memory = Arc::clone(&self.memory);
        let control = Control::new(&memory).expect("its size");
        let index = self.appended;
        let at = (index % u64::from(SLOTS_PER_RUN)) as u32;
        if at == 0 && index > 0 {
            self.sync();
        }
        let grant = control.slab(index / u64::from(SLOTS_PER_RUN)).expect("it was granted");
        let extent = self.place(bytes);
        let place = WritePlace { file: lease.file, offset, lease: lease.number.0 };
        let identity = control.identity().expect("this version");
        let record = WriteRecord {
            client: identity.client,
            index,
            place,
            seq: lease.seq,
            time_ns,
            extents: &[extent],
            crc: crc::of(bytes),
        };
        let slot = SlotId::new(grant.run, at);
        let durable_before = self.durable.saturating_sub(index - u64::from(at)) as u32;
        let image = record.seal(identity.hash_seed, slot, grant.seal, durable_before);
        self.media.store(slot.off(), &image).expect("stores");
        self.unflushed.push(extent);
        self.slots.push(slot);
        lease.seq += 1;
        self.appended += 1;
        control.set_appended(self.appended);
        control.set_done(self.landing);
    }

    /// Writes any bytes of a file that has `content`, as a program asks.
    pub fn write(
        &mut self,
        lease: &mut TestLease,
        content: &mut Vec<u8>,
        offset: u64,
        bytes: &[u8],
        time_ns: i64,
    ) {
        let end = offset as usize + bytes.len();
        let size = content.len();
        content.resize(size.max(end), 0);
        content[offset as usize..end].copy_from_slice(bytes);
        let block = BLOCK_BYTES as usize;
        let mut at = offset as usize / block * block;
        let until = end.next_multiple_of(block).min(content.len());
        while at < until {
            let next = until.min(at + ENTRY_BYTES_MAX as usize);
            self.append(lease, at as u64, &content[at..next], time_ns);
            at = next;
        }
    }

    pub fn sync(&mut self) {
        let mut dirty = Dirty::new();
        for extent in self.unflushed.drain(..) {
            self.media.flush(&mut dirty, Site::Data, extent);
        }
        for slot in &self.slots[self.durable as usize..] {
            self.media.flush(&mut dirty, Site::Record, Extent::new(slot.off(), RECORD_SIZE as u32));
        }
        self.media.fence(&mut dirty, Site::Commit).expect("fences");
        self.durable = self.appended;
        let memory = Arc::clone(&self.memory);
        Control::new(&memory).expect("its size").set_durable(self.durable);
    }
}
