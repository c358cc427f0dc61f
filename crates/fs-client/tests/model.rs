//! A client with a model of the server: it revokes leases at any time, and checks and executes what the client appends.

use landfall_fs::{FIRST_CLIENT_AGAIN, InodeNumber};
use landfall_fs_client::{Client, File, Gone, Host, Next, Now, Unanswered, Written};
use landfall_fs_link::{
    CONTROL_WORDS, Checked, Control, Identity, Kind, LANDINGS_MAX, LEASES_MAX, LeaseFields, LinkState, Part,
    Reason, Refusal, Reply, Request, SEQS_PER_LEASE, SLABS_MAX, SlabGrant, lease,
};
use landfall_heap::{RECORD_SIZE, RunId, SLOTS_PER_RUN, Seal, SlotId, crc};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Dirty, Extent, Media, RUN_SIZE, Site};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const RUNS: u64 = 48;
const INODE: InodeNumber = InodeNumber(7);
const IDENTITY: Identity = Identity { client: 3, hash_seed: 0xfeed, region_bytes: RUNS * RUN_SIZE };
/// Bytes of one answer to a question where bytes are.
const MAP_BYTES_MAX: u64 = 20_000;
const BLOCK: u64 = landfall_fs_link::BLOCK_BYTES;

#[derive(Debug)]
struct Granted {
    place: usize,
    inode: InodeNumber,
    number: u64,
    kind: Kind,
    seqs: std::ops::Range<u64>,
}

#[derive(Default)]
struct Server {
    files: BTreeMap<InodeNumber, Vec<u8>>,
    granted: Vec<Granted>,
    /// Leases of the past: operations under them are adopted before they pass on.
    leases: u64,
    slabs: Vec<SlabGrant>,
    landings: Vec<RunId>,
    applied: u64,
    next_run: u64,
    /// End of the last extent that was adopted: its landing run's number, and the offset in it.
    landed: (usize, u64),
    /// Next offset for bytes of files that the client maps.
    stored: Option<u64>,
    /// So many requests are refused.
    refuses: u32,
    /// The files when the server was last asked to make everything durable, and how often it was.
    synced: BTreeMap<InodeNumber, Vec<u8>>,
    syncs: u64,
}

struct World {
    identity: Identity,
    media: Arc<SimMedia>,
    words: Vec<AtomicU64>,
    dirty: Mutex<Dirty>,
    server: Mutex<Server>,
    /// The server was killed.
    is_gone: AtomicBool,
    has_settled: AtomicBool,
    /// The mount ends when something is stored.
    ends: AtomicBool,
    /// The server fences the client when so many bytes more have been stored; 0: it does not.
    fences_after: AtomicU64,
    /// A clock that goes on with each question.
    ms: AtomicU64,
}

impl World {
    fn new() -> Self {
        Self::of(IDENTITY)
    }

    /// The operations of the client are executed again elsewhere.
    fn again() -> Self {
        Self::of(Identity { client: FIRST_CLIENT_AGAIN, ..IDENTITY })
    }

    fn of(identity: Identity) -> Self {
        let words: Vec<AtomicU64> = (0..CONTROL_WORDS).map(|_| AtomicU64::new(0)).collect();
        Control::new(&words).unwrap().begin(identity);
        let server = Server { next_run: 1, ..Server::default() };
        Self {
            identity,
            media: SimMedia::new(RUNS * RUN_SIZE, SimOptions::default()),
            words,
            dirty: Mutex::default(),
            server: Mutex::new(server),
            is_gone: AtomicBool::new(false),
            has_settled: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            fences_after: AtomicU64::new(0),
            ms: AtomicU64::new(1),
        }
    }

    fn control(&self) -> Control<'_> {
        Control::new(&self.words).unwrap()
    }

    /// Fences the client, which may be in a lease: what is appended by now counts.
    fn fence_client(&self) {
        let mut server = self.server.lock().unwrap();
        self.control().set_state(LinkState::Fenced);
        server.granted.iter().for_each(|granted| lease::revoke(self.control().lease_word(granted.place)));
        self.control().seal();
        self.adopt(&mut server);
        server.granted.clear();
    }

    /// Takes all leases of an inode back, and executes what was done under them.
    fn revoke(&self, server: &mut Server, inode: InodeNumber) {
        for granted in server.granted.iter().filter(|granted| granted.inode == inode) {
            let word = self.control().lease_word(granted.place);
            lease::revoke(word);
            while !lease::is_empty(word) {
                std::thread::yield_now();
            }
        }
        self.adopt(server);
        server.granted.retain(|granted| granted.inode != inode);
    }

    /// Checks and executes what is appended.
    fn adopt(&self, server: &mut Server) {
        let done = self.control().done();
        for index in server.applied..self.control().appended() {
            let slots = u64::from(SLOTS_PER_RUN);
            let slab = server.slabs[(index / slots) as usize];
            let slot = SlotId::new(slab.run, (index % slots) as u32);
            let checked = self.checked(&self.media, slab, slot, index);
            let bytes = self.value(&self.media, &checked);
            server.check_landed(checked.extents());
            let granted = server.granted.iter_mut().find(|granted| granted.number == checked.place.lease);
            let granted = granted.expect("the lease lasts until what was done under it is adopted");
            assert_eq!((granted.inode, granted.kind), (checked.place.file, Kind::Write));
            assert!(granted.seqs.contains(&checked.seq), "each seq is higher than the one before");
            granted.seqs.start = checked.seq + 1;
            let file = server.files.get_mut(&checked.place.file).expect("a file");
            let end = checked.place.offset + checked.len;
            assert!(
                end.is_multiple_of(BLOCK) || end >= file.len() as u64,
                "blocks are whole: {checked:?} in a file of {} bytes",
                file.len()
            );
            put(file, checked.place.offset, &bytes);
            server.applied = index + 1;
        }
        assert!(done <= server.landed.0 as u64 + 1, "no run is done that is used later");
        self.control().set_applied(server.applied);
    }

    fn checked(&self, media: &SimMedia, slab: SlabGrant, slot: SlotId, index: u64) -> Checked {
        let record = media.bytes(Extent::new(slot.off(), RECORD_SIZE as u32)).unwrap();
        let (region, seed) = (self.identity.region_bytes, self.identity.hash_seed);
        let named = (self.identity.client, index);
        Checked::new(record.try_into().unwrap(), slot, slab.seal, region, seed, named)
            .expect("a right record")
    }

    fn value(&self, media: &SimMedia, checked: &Checked) -> Vec<u8> {
        let parts = checked.extents().iter().map(|extent| media.bytes(*extent).unwrap());
        let bytes = parts.collect::<Vec<_>>().concat();
        assert_eq!(crc::of(&bytes), checked.crc, "the bytes are those of the record");
        bytes
    }

    fn acquire(&self, server: &mut Server, kind: Kind, inode: InodeNumber) -> Reply {
        self.revoke(server, inode);
        let Some(size) = server.files.get(&inode).map(Vec::len) else { return refused(Reason::Inode) };
        server.leases += 1;
        let number = server.leases;
        let place = number as usize % LEASES_MAX;
        let seq = number * SEQS_PER_LEASE;
        let fields = LeaseFields { inode, number, seq, size: size as u64, mtime_ns: 0 };
        self.control().set_lease(place, &fields);
        let generation = number as u32;
        lease::grant(self.control().lease_word(place), generation, kind);
        server.granted.push(Granted { place, inode, number, kind, seqs: seq..seq + SEQS_PER_LEASE });
        Reply::Lease { place: place as u32, generation }
    }

    /// Copies the bytes to runs of their own, and says where. Blocks of zeroes are holes.
    fn map(&self, server: &mut Server, place: u32, offset: u64, end: u64) -> Reply {
        let Some(granted) = server.granted.iter().find(|granted| granted.place == place as usize) else {
            return refused(Reason::Revoked);
        };
        let bytes = server.files[&granted.inode].clone();
        let end = end.min(offset + MAP_BYTES_MAX);
        let mut parts = Vec::new();
        for at in (offset..end.min(bytes.len() as u64)).step_by(BLOCK as usize) {
            let block = &bytes[at as usize..bytes.len().min((at + BLOCK) as usize)];
            if block.iter().any(|byte| *byte != 0) {
                let to = server.store_at();
                self.media.store(to, block).unwrap();
                parts.push(Part { offset: at, at: to, len: block.len() as u32 });
            }
        }
        Reply::Parts { end, parts }
    }

    fn refill(&self, server: &mut Server) -> Reply {
        let (slots, control) = (u64::from(SLOTS_PER_RUN), self.control());
        let slabs = server.applied / slots + SLABS_MAX.min(2);
        while (server.slabs.len() as u64) < slabs {
            let grant =
                SlabGrant { run: server.take_run(), seal: Seal::new(&[5; 16], server.slabs.len() as u32) };
            control.grant_slab(server.slabs.len() as u64, grant);
            server.slabs.push(grant);
        }
        while (server.landings.len() as u64) < control.done() + LANDINGS_MAX.min(3) {
            let run = server.take_run();
            control.grant_landing(server.landings.len() as u64, run);
            server.landings.push(run);
        }
        Reply::Done
    }

    /// The calls that the kernel answers: the server takes the leases back first.
    fn by_kernel<T>(&self, call: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut server = self.server.lock().unwrap();
        self.revoke(&mut server, INODE);
        call(server.files.get_mut(&INODE).expect("a file"))
    }
}

impl Server {
    fn take_run(&mut self) -> RunId {
        let run = self.next_run;
        assert!(run < RUNS, "the model has no more runs");
        self.next_run += 1;
        RunId(run as u32)
    }

    fn store_at(&mut self) -> u64 {
        let next = match self.stored {
            Some(next) if !next.is_multiple_of(RUN_SIZE) => next,
            _ => self.take_run().off(),
        };
        self.stored = Some(next + BLOCK);
        next
    }

    /// Extents lie in landing runs, each behind the one before.
    fn check_landed(&mut self, extents: &[Extent]) {
        for extent in extents {
            let run = RunId::of(extent.off);
            let at = self.landings.iter().position(|landing| *landing == run).expect("a landing run");
            let offset = extent.off - run.off();
            assert!((at, offset) >= self.landed, "behind the extent before");
            self.landed = (at, extent.end() - run.off());
        }
    }
}

fn refused(reason: Reason) -> Reply {
    Reply::Refused(Refusal { reason, errno: 0, wait_ms: 0 })
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (from, to) = (offset as usize, offset as usize + bytes.len());
    file.resize(file.len().max(to), 0);
    file[from..to].copy_from_slice(bytes);
}

impl Host for World {
    fn bytes(&self, extent: Extent) -> Result<&[u8], Gone> {
        self.media.bytes(extent).map_err(|_| Gone)
    }

    fn open_run(&self, _run: RunId) -> Result<(), Gone> {
        Ok(())
    }

    fn close_run(&self, _run: RunId) {}

    fn store(&self, off: u64, bytes: &[u8]) -> Result<(), Gone> {
        if self.ends.load(Ordering::Relaxed) {
            self.control().set_state(LinkState::Ended);
        }
        let left = self.fences_after.load(Ordering::Relaxed);
        self.fences_after.store(left.saturating_sub(bytes.len() as u64), Ordering::Relaxed);
        if left > 0 && left <= bytes.len() as u64 {
            self.fence_client();
        }
        self.media.store(off, bytes).map_err(|_| Gone)
    }

    fn flush(&self, site: Site, extent: Extent) {
        self.media.flush(&mut self.dirty.lock().unwrap(), site, extent);
    }

    fn fence(&self) {
        self.media.fence(&mut self.dirty.lock().unwrap(), Site::Commit).unwrap();
    }

    fn ask(&self, request: &Request) -> Result<Reply, Gone> {
        // What passes through the socket is a message.
        let request = Request::decode(&request.encode()).map_err(|_| Gone)?;
        let mut server = self.server.lock().unwrap();
        if server.refuses > 0 {
            server.refuses -= 1;
            return Ok(refused(Reason::Left));
        }
        let reply = match request {
            Request::Acquire { kind, inode } => self.acquire(&mut server, kind, inode),
            Request::Map { place, offset, end, .. } => self.map(&mut server, place, offset, end),
            Request::Refill => self.refill(&mut server),
            Request::Release { place, .. } => {
                let inode = server.granted.iter().find(|granted| granted.place == place as usize);
                if let Some(inode) = inode.map(|granted| granted.inode) {
                    self.revoke(&mut server, inode);
                }
                Reply::Done
            }
            Request::Sync => {
                self.adopt(&mut server);
                server.synced = server.files.clone();
                server.syncs += 1;
                Reply::Done
            }
            Request::Hello { .. } | Request::HelloFrom { .. } | Request::Left | Request::Ended => {
                refused(Reason::Message)
            }
        };
        Reply::decode(&reply.encode()).map_err(|_| Gone)
    }

    fn is_there(&self) -> bool {
        !self.is_gone.load(Ordering::Relaxed)
    }

    fn has_settled(&self) -> bool {
        self.has_settled.load(Ordering::Relaxed)
    }

    fn now(&self) -> Now {
        Now { unix_ns: 5, ms: self.ms.fetch_add(1, Ordering::Relaxed) }
    }
}

/// What happens to a file.
#[derive(Clone, Debug)]
enum Act {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    Size,
    Sync,
    /// Another program changes the file, through the mount.
    Change(u64, Vec<u8>),
    Cut(u64),
    Revoke,
    Release,
    /// The server refuses the next requests.
    Refuse(u32),
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![3 => 1..50_usize, 3 => 3000..9000_usize, 1 => 60_000..150_000_usize];
    (len, any::<u8>())
        .prop_map(|(len, byte)| (0..len).map(|index| byte.wrapping_add((index / 11) as u8)).collect())
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..200_000_u64, 1 => (0..40_u64).prop_map(|block| block * BLOCK)]
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (offset(), prop_oneof![0..100_usize, 0..40_000_usize]).prop_map(|(at, len)| Act::Read(at, len)),
        6 => (offset(), data()).prop_map(|(at, data)| Act::Write(at, data)),
        3 => data().prop_map(Act::Append),
        1 => Just(Act::Size),
        1 => Just(Act::Sync),
        1 => (offset(), data()).prop_map(|(at, data)| Act::Change(at, data)),
        1 => offset().prop_map(Act::Cut),
        1 => Just(Act::Revoke),
        1 => Just(Act::Release),
        1 => (1..4_u32).prop_map(Act::Refuse),
    ]
}

/// Reads through the client, or through the kernel.
fn read(world: &World, client: &Client<'_>, file: &File, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    let (head, tail) = bytes.split_at_mut(len / 3);
    match client.read_at(file, at, &mut [head, tail]) {
        Ok(read) => {
            assert!(bytes[read..].iter().all(|byte| *byte == 0xee), "nothing behind what was read");
            bytes.truncate(read);
            bytes
        }
        Err(Unanswered) => world.by_kernel(|file| part(file, at, len).to_vec()),
    }
}

fn part(file: &[u8], at: u64, len: usize) -> &[u8] {
    let from = (at as usize).min(file.len());
    &file[from..file.len().min(from + len)]
}

fn write(world: &World, client: &Client<'_>, file: &File, at: Option<u64>, data: &[u8]) {
    let (head, tail) = data.split_at(data.len() / 2);
    let len = client.write_at(file, at, &[head, tail]).map_or(0, |written| written.len);
    if len < data.len() as u64 {
        let at = at.map(|at| at + len);
        world.by_kernel(|file| put(file, at.unwrap_or(file.len() as u64), &data[len as usize..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_has_the_bytes_that_were_written_whoever_answers(
        acts in prop::collection::vec(acts(), 1..50),
        begin in prop::collection::vec(any::<u8>(), 0..20_000), is_again: bool,
    ) {
        let (world, file) = (if is_again { World::again() } else { World::new() }, File::new(INODE));
        world.server.lock().unwrap().files.insert(INODE, begin.clone());
        let client = Client::new(world.control(), &world).unwrap();
        let mut model = begin;
        for act in &acts {
            match act {
                Act::Read(at, len) => {
                    prop_assert!(read(&world, &client, &file, *at, *len) == part(&model, *at, *len), "{:?}", act);
                }
                Act::Write(at, data) => {
                    write(&world, &client, &file, Some(*at), data);
                    put(&mut model, *at, data);
                }
                Act::Append(data) => {
                    write(&world, &client, &file, None, data);
                    let end = model.len() as u64;
                    put(&mut model, end, data);
                }
                Act::Size => {
                    let size = client.size(&file);
                    let size = size.unwrap_or_else(|Unanswered| world.by_kernel(|file| file.len() as u64));
                    prop_assert_eq!(size, model.len() as u64);
                }
                Act::Sync => {
                    let is_synced = client.sync(&file).is_ok();
                    if is_again && is_synced {
                        prop_assert!(world.server.lock().unwrap().synced[&INODE] == model);
                        prop_assert_eq!(world.control().durable(), 0);
                    }
                }
                Act::Change(at, data) => {
                    world.by_kernel(|file| put(file, *at, data));
                    put(&mut model, *at, data);
                }
                Act::Cut(at) => {
                    world.by_kernel(|file| file.resize(*at as usize, 0));
                    model.resize(*at as usize, 0);
                }
                Act::Revoke => world.by_kernel(|_| ()),
                Act::Release => client.put_away(&file),
                Act::Refuse(count) => world.server.lock().unwrap().refuses = *count,
            }
        }
        prop_assert!(world.by_kernel(|file| *file == model), "the file ends as the model");
    }
}

/// Operations in a log that is found after a crash.
fn survivors(world: &World, image: Vec<u8>, count: u64) -> usize {
    let media = SimMedia::from_image(image, SimOptions::default());
    let slab = world.server.lock().unwrap().slabs[0];
    let found = (0..count).filter(|index| {
        let slot = SlotId::new(slab.run, *index as u32);
        let record = media.bytes(Extent::new(slot.off(), RECORD_SIZE as u32)).unwrap();
        let (region, seed) = (IDENTITY.region_bytes, IDENTITY.hash_seed);
        let named = (IDENTITY.client, *index);
        let checked = Checked::new(record.try_into().unwrap(), slot, slab.seal, region, seed, named);
        checked.is_ok_and(|checked| {
            let parts = checked.extents().iter().map(|extent| media.bytes(*extent).unwrap());
            crc::of(&parts.collect::<Vec<_>>().concat()) == checked.crc
        })
    });
    found.count()
}

/// Writes, syncs, writes more, and crashes. Returns the operations before the sync, and how many of them are left.
fn crash(seed: u64, skipped: Option<Site>) -> (u64, usize) {
    let (world, file) = (World::new(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, vec![1; 10_000]);
    skipped.iter().for_each(|site| world.media.skip_site(*site));
    let client = Client::new(world.control(), &world).unwrap();
    for index in 0..5 {
        write(
            &world,
            &client,
            &file,
            Some(index * 3000),
            &vec![index as u8; 5000 + 20_000 * (index as usize % 2)],
        );
    }
    client.sync(&file).expect("the client has the lease");
    let count = world.control().durable();
    write(&world, &client, &file, None, &[9; 9000]);
    (count, survivors(&world, world.media.crash_image_seeded(seed), count))
}

#[test]
fn what_was_synced_is_there_after_a_crash() {
    for seed in 0..50 {
        assert_eq!(crash(seed, None), (5, 5), "seed {seed}");
    }
}

#[test]
fn a_flush_or_a_fence_that_is_left_out_is_caught() {
    for site in [Site::Data, Site::Record, Site::Commit] {
        assert!((0..50).any(|seed| crash(seed, Some(site)) != (5, 5)), "{site:?}");
    }
}

#[test]
fn a_server_that_executes_again_is_asked_to_sync_once_for_what_has_changed_since() {
    let (world, file) = (World::again(), File::new(INODE));
    let other = File::new(InodeNumber(8));
    let syncs = || world.server.lock().unwrap().syncs;
    for file in [&file, &other] {
        world.server.lock().unwrap().files.insert(file.inode(), vec![1; 10_000]);
    }
    let client = Client::new(world.control(), &world).unwrap();
    for file in [&file, &other] {
        write(&world, &client, file, Some(3000), &[2; 5000]);
    }
    client.sync(&file).expect("the client has the lease");
    client.sync(&file).expect("nothing has changed");
    client.sync(&other).expect("it is durable, too");
    assert_eq!((syncs(), world.control().applied()), (1, 2));
    write(&world, &client, &other, None, &[3; 100]);
    client.sync(&file).expect("nothing has changed");
    assert_eq!(syncs(), 1);
    client.sync(&other).expect("asks");
    assert_eq!(syncs(), 2);
    // Whoever had the file meanwhile may have changed it.
    world.by_kernel(|file| file.push(7));
    assert_eq!(client.size(&file), Ok(10_001));
    write(&world, &client, &file, Some(0), &[2; 50]);
    client.sync(&file).expect("asks");
    assert_eq!(syncs(), 3);
    world.server.lock().unwrap().refuses = 1;
    write(&world, &client, &file, Some(0), &[2; 50]);
    assert_eq!(client.sync(&file), Err(Unanswered), "the kernel says why not");
}

#[test]
fn what_a_killed_server_had_not_executed_is_lost_and_that_is_said_once() {
    let (world, file) = (World::again(), File::new(INODE));
    let other = File::new(InodeNumber(8));
    for file in [&file, &other] {
        world.server.lock().unwrap().files.insert(file.inode(), vec![1; 10_000]);
    }
    let client = Client::new(world.control(), &world).unwrap();
    write(&world, &client, &other, Some(0), &[2; 5000]);
    client.sync(&other).expect("the client has the lease");
    write(&world, &client, &file, Some(0), &[2; 5000]);
    let said = |file| client.at_stake(file).is_some_and(|at_stake| client.has_lost(file, at_stake));
    assert_eq!([&file, &other].map(|file| client.at_stake(file).is_some()), [true, false]);
    assert!(!said(&file), "the server is there");
    assert_eq!(client.at_stake(&file), None, "it has heard of it by the kernel");
    write(&world, &client, &file, Some(0), &[3; 5000]);
    // Nobody has looked for it since.
    world.is_gone.store(true, Ordering::Relaxed);
    assert!(!client.has_ended());
    assert_eq!([&file, &file, &other].map(said), [true, false, false]);
    assert!(client.has_ended() && client.sync(&other).is_err());
    // A server that ends in good order executes everything.
    let (world, file) = (World::again(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, vec![1; 10_000]);
    let client = Client::new(world.control(), &world).unwrap();
    write(&world, &client, &file, Some(0), &[2; 5000]);
    world.control().set_state(LinkState::Ended);
    let at_stake = client.at_stake(&file).expect("it may still do so");
    world.by_kernel(|_| ());
    assert!(!client.has_lost(&file, at_stake));
}

#[test]
fn where_a_server_of_another_region_may_follow_only_what_it_was_asked_for_is_not_lost() {
    let (world, files) = (World::again(), [7, 8, 9].map(|inode| File::new(InodeNumber(inode))));
    for file in &files {
        world.server.lock().unwrap().files.insert(file.inode(), vec![1; 10_000]);
    }
    let client = Client::new(world.control(), &world).unwrap().followed_by(Next::Any);
    let change = |file: &File| {
        write(&world, &client, file, Some(0), &[2; 5000]);
        client.at_stake(file).expect("it is not durable")
    };
    let stakes = files.each_ref().map(change);
    // The kernel has made it durable, by this server, as that is still there. What was written meanwhile it may not have seen.
    assert!(!client.has_lost(&files[0], stakes[0]));
    assert_eq!(client.at_stake(&files[0]), None);
    change(&files[1]);
    assert!(!client.has_lost(&files[1], stakes[1]));
    assert!(client.at_stake(&files[1]).is_some() && client.at_stake(&files[2]).is_some());
    assert_eq!(world.server.lock().unwrap().syncs, 0);
    client.settle(&files[1]);
    assert_eq!(files.each_ref().map(|file| client.at_stake(file)), [None; 3], "the server makes all durable");
    let stakes = files.each_ref().map(change);
    world.by_kernel(|_| ());
    assert_eq!(world.control().applied(), 7, "it was executed");
    // The mount ends, or a question was not answered: the server is still there.
    world.control().set_state(LinkState::Ended);
    assert!(client.has_ended() && !client.has_lost(&files[0], stakes[0]));
    client.settle(&files[1]);
    world.is_gone.store(true, Ordering::Relaxed);
    let said = || [0, 1, 2].map(|file: usize| client.has_lost(&files[file], stakes[file]));
    assert_eq!((said(), said()), ([false, true, true], [false; 3]));
    // One that ends in good order says so.
    let (world, file) = (World::again(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, vec![1; 10_000]);
    let client = Client::new(world.control(), &world).unwrap().followed_by(Next::Any);
    write(&world, &client, &file, Some(0), &[2; 5000]);
    let at_stake = client.at_stake(&file).expect("it is not durable");
    world.is_gone.store(true, Ordering::Relaxed);
    world.has_settled.store(true, Ordering::Relaxed);
    assert!(!client.has_lost(&file, at_stake) && client.has_ended());
}

#[test]
fn a_lease_may_be_revoked_while_threads_use_it() {
    const THREADS: u64 = 2;
    const WRITES: u64 = 150;
    const BYTES: u64 = 7000;
    let (world, file) = (World::new(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, Vec::new());
    let client = Client::new(world.control(), &world).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (world, client, file) = (&world, &client, &file);
                scope.spawn(move || {
                    for index in 0..WRITES {
                        // Threads share blocks.
                        let at = (index % 8 * THREADS + thread) * BYTES;
                        let data = vec![(index * THREADS + thread) as u8; BYTES as usize];
                        write(world, client, file, Some(at), &data);
                        assert!(read(world, client, file, at, BYTES as usize) == data, "as it was written");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                world.by_kernel(|_| ());
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.unwrap());
    });
    let bytes = world.by_kernel(|file| file.clone());
    assert_eq!(bytes.len() as u64, 8 * THREADS * BYTES);
    assert!(world.control().applied() > 0, "the client has written something itself");
}

#[test]
fn a_client_whose_server_was_killed_or_that_is_fenced_answers_nothing_more() {
    for is_killed in [true, false] {
        let (world, file) = (World::new(), File::new(INODE));
        world.server.lock().unwrap().files.insert(INODE, vec![3; 5000]);
        let client = Client::new(world.control(), &world).unwrap();
        assert_eq!(client.write_at(&file, None, &[&b"more"[..]]), Ok(Written { end: 5004, len: 4 }));
        match is_killed {
            true => world.is_gone.store(true, Ordering::Relaxed),
            false => world.control().set_state(LinkState::Fenced),
        }
        assert!(client.write_at(&file, None, &[&b"lost"[..]]).is_err());
        assert!(client.read_at(&file, 0, &mut [&mut [0; 4][..]]).is_err());
        assert!(client.sync(&file).is_err() && client.size(&file).is_err());
        assert!(client.is_over() && !client.is_ready(&file));
        assert_eq!(world.control().appended(), 1);
    }
}

#[test]
fn a_write_during_which_the_mount_ends_is_answered_once() {
    let (world, file) = (World::new(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, vec![3; 5000]);
    let client = Client::new(world.control(), &world).unwrap();
    assert_eq!(client.write_at(&file, None, &[&b"before"[..]]), Ok(Written { end: 5006, len: 6 }));
    world.ends.store(true, Ordering::Relaxed);
    write(&world, &client, &file, None, b"during");
    write(&world, &client, &file, None, b"behind");
    let bytes = world.by_kernel(|file| file.clone());
    assert_eq!(&bytes[5000..], b"beforeduringbehind");
    assert_eq!(world.control().appended(), 2, "the kernel answers from then on");
}

/// What the server adopts of a client that it fences in the middle of a write is not written again.
#[test]
fn a_write_during_which_the_client_is_fenced_is_done_once() {
    let data: Vec<u8> = (0..200_000_u32).map(|index| (index / 100 % 251) as u8).collect();
    for (at, begun) in [(None, 5000), (Some(1000), 0), (Some(300_000), 77)] {
        for fences_after in [1, 60_000, 65_536, 65_537, 131_072, 140_000, 199_000, 250_000] {
            let (world, file) = (World::new(), File::new(INODE));
            let old = vec![3; begun];
            world.server.lock().unwrap().files.insert(INODE, old.clone());
            let client = Client::new(world.control(), &world).unwrap();
            write(&world, &client, &file, Some(0), b"before");
            world.fences_after.store(fences_after, Ordering::Relaxed);
            write(&world, &client, &file, at, &data);
            write(&world, &client, &file, None, b"behind");
            let mut expected = old;
            put(&mut expected, 0, b"before");
            put(&mut expected, at.unwrap_or(5000), &data);
            expected.extend_from_slice(b"behind");
            let bytes = world.by_kernel(|file| file.clone());
            assert_eq!(bytes.len(), expected.len(), "{at:?}, fenced after {fences_after} bytes");
            assert!(bytes == expected, "{at:?}, fenced after {fences_after} bytes");
            assert_eq!(client.is_over(), fences_after < 200_000);
        }
    }
}

#[test]
fn logs_go_on_in_the_next_slab_when_one_is_full() {
    let (world, file) = (World::new(), File::new(INODE));
    world.server.lock().unwrap().files.insert(INODE, Vec::new());
    let client = Client::new(world.control(), &world).unwrap();
    let writes = u64::from(SLOTS_PER_RUN) + 100;
    for index in 0..writes {
        let bytes = index.to_le_bytes();
        assert_eq!(client.write_at(&file, Some(index % 16 * 8), &[&bytes[..]]).map(|_| ()), Ok(()));
        if index % 256 == 0 {
            let mut server = world.server.lock().unwrap();
            world.adopt(&mut server);
        }
    }
    assert_eq!(world.control().appended(), writes);
    let last = world.by_kernel(|file| file.clone());
    assert_eq!(last.len(), 128);
    assert_eq!(u64::from_le_bytes(last[120..].try_into().unwrap()) % 16, 15);
}
