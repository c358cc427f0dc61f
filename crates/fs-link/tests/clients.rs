//! Logs of clients: what is adopted, what is refused, and what is left of them after a restart.

mod common;

use common::{Library, Server, TestLease, World, region};
use landfall_fs::{
    Attributes, BACKLOG_OPERATIONS, FIRST_CLIENT_AGAIN, FilePart, FsError, InodeNumber, LeaseNumber, LeftLog,
    Operation,
};
use landfall_fs_link::{Adopted, Broken, Control, LogEnd, NotGranted, SEQS_PER_LEASE};
use landfall_heap::{CopyPath, Heap, HeapError, RunUse, SLOTS_PER_RUN, SlotId, Successor};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media};
use std::sync::Arc;

struct Linked {
    world: World,
    server: Server,
    library: Library,
    file: InodeNumber,
    lease: TestLease,
}

impl Linked {
    /// Appends more operations than a slab has slots for, on eight blocks in turns, and has all adopted. Returns how many.
    fn write_more_than_a_slab(&mut self) -> u64 {
        let count = u64::from(SLOTS_PER_RUN) + 10;
        for index in 0..count {
            self.library.append(&mut self.lease, index % 8 * 4096, &[index as u8; 4096], 100);
            if index % 200 == 0 {
                self.server.adopt().expect("adopts");
                if let Some(number) = self.server.log.lease_to_end(false) {
                    self.server.log.end_lease(number);
                    self.lease = self.server.lease(self.file);
                }
            }
            if index % 1000 == 0 {
                self.world.publish();
                self.world.compact();
            }
        }
        self.server.adopt().expect("adopts");
        assert_eq!(self.server.log.adopted(), count);
        count
    }
}

fn linked() -> Linked {
    linked_by(Server::attach)
}

/// With a client whose operations are executed again in the log of the mount.
fn linked_again() -> Linked {
    linked_by(Server::attach_again)
}

fn linked_by(attach: fn(&mut World) -> Server) -> Linked {
    let mut world = World::open(region());
    let file = world.create("file");
    let mut server = attach(&mut world);
    let library = Library::new(&world, &server);
    let lease = server.lease(file);
    Linked { world, server, library, file, lease }
}

fn after_a_crash(world: &World) -> World {
    let left = world.media.crash_state().durable();
    World::open(SimMedia::restart(&left, SimOptions::default()))
}

#[test]
fn what_is_appended_is_in_the_file_once_it_is_adopted_and_survives_a_crash_from_then_on() {
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 5000], 100);
    assert_eq!(l.world.bytes(l.file), [], "nobody has adopted it");
    assert_eq!(l.server.adopt().expect("adopts"), 1);
    assert_eq!(l.world.bytes(l.file), [1; 5000]);
    let stat = l.world.files.stat(l.file).expect("it is there");
    assert_eq!((stat.inode.size, stat.mtime_ns), (5000, 100));
    assert_eq!(after_a_crash(&l.world).bytes(l.file), [1; 5000]);
}

#[test]
fn what_a_library_has_synced_survives_a_crash_though_nobody_has_adopted_it() {
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 4096], 100);
    l.library.sync();
    l.library.append(&mut l.lease, 4096, &[2; 4096], 101);
    let mut world = after_a_crash(&l.world);
    assert_eq!(world.bytes(l.file), [1; 4096]);
    assert_eq!(world.files.clients(), Vec::<u32>::new(), "its log is published, and has ended");
    world.publish();
    assert_eq!(after_a_crash(&world).bytes(l.file), [1; 4096]);
}

#[test]
fn a_client_that_has_ended_leaves_its_bytes_and_no_run() {
    let mut l = linked();
    l.world.publish();
    l.world.compact();
    l.library.append(&mut l.lease, 0, &[7; 4096], 100);
    l.server.adopt().expect("adopts");
    let client = l.server.log.client();
    assert_eq!(l.world.files.clients(), [client]);
    l.server.end(&mut l.world);
    assert_eq!(l.world.files.clients(), Vec::<u32>::new());
    assert_eq!(l.world.bytes(l.file), [7; 4096]);
    let other = Server::attach(&mut l.world);
    assert_ne!(other.log.client(), client, "no number is given twice");
    other.end(&mut l.world);
    l.world.compact();
    l.world.publish();
    l.world.compact();
    let counts = l.world.files.heap().runs().counts();
    assert!(counts.free > counts.total - 12, "{counts:?}");
    assert_eq!(after_a_crash(&l.world).bytes(l.file), [7; 4096]);
}

#[test]
fn what_is_stored_and_not_appended_means_nothing_once_the_client_has_ended() {
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 4096], 100);
    l.server.adopt().expect("adopts");
    l.library.append(&mut l.lease, 0, &[2; 4096], 101);
    l.library.sync();
    // The server has stopped to listen before the second one.
    l.server.end(&mut l.world);
    assert_eq!(after_a_crash(&l.world).bytes(l.file), [1; 4096]);
}

#[test]
fn a_log_goes_on_over_slabs_and_landing_runs() {
    let mut l = linked();
    let count = l.write_more_than_a_slab();
    let bytes = l.world.bytes(l.file);
    let last: Vec<u8> = (count - 8..count).map(|index| index as u8).collect();
    let mut seen: Vec<u8> = bytes.chunks(4096).map(|block| block[0]).collect();
    seen.sort_unstable();
    assert_eq!(seen, {
        let mut last = last;
        last.sort_unstable();
        last
    });
    assert_eq!(after_a_crash(&l.world).bytes(l.file), bytes);
}

#[test]
fn data_stay_readable_as_long_as_a_lease_lasts_that_was_granted_before() {
    let mut l = linked();
    for index in 0..300_u32 {
        l.library.append(&mut l.lease, 0, &[index as u8; 4096], 100);
    }
    l.server.adopt().expect("adopts");
    l.world.publish();
    l.world.compact();
    let run = l.server.control().landing(0).expect("granted");
    let used_for = |l: &Linked| l.world.files.heap().runs().get(run).used_for();
    assert_eq!(used_for(&l), RunUse::Data, "nothing refers to it any more, but the lease lasts");
    assert_eq!(l.server.log.lease_to_end(false), None, "that is little");
    assert_eq!(l.server.log.lease_to_end(true), Some(l.lease.number), "but too much in a full region");
    l.server.log.end_lease(l.lease.number);
    assert_ne!(used_for(&l), RunUse::Data);
}

#[test]
fn what_is_executed_again_is_in_the_log_of_the_mount_where_it_landed_and_nowhere_else() {
    let mut l = linked_again();
    let (heap, before) = (l.world.files.heap().clone(), l.world.files.next_operation());
    let copied = || CopyPath::ALL.iter().map(|(path, _)| heap.copies.get(*path)).sum::<u64>();
    let before_copies = copied();
    l.library.append(&mut l.lease, 0, &[1; 8192], 100);
    l.library.sync();
    assert_eq!(l.server.adopt().expect("adopts"), 1);
    assert_eq!(copied(), before_copies);
    let landed = l.server.control().landing(0).expect("granted").off();
    let parts = l.world.files.read(l.file, 0..8192).expect("reads");
    let [FilePart::Stored(part)] = &parts[..] else { panic!("one part") };
    assert_eq!(part.extents().to_vec(), [Extent::new(landed, 8192)]);
    drop(parts);
    assert_eq!((l.world.files.next_operation(), l.world.bytes(l.file)), (before + 1, vec![1; 8192]));
    let stat = l.world.files.stat(l.file).expect("it is there");
    assert_eq!((stat.inode.size, stat.mtime_ns), (8192, 100));
    assert!(after_a_crash(&l.world).bytes(l.file).is_empty(), "what the library syncs does not count");
    l.world.files.sync_all().expect("syncs");
    let left = after_a_crash(&l.world);
    assert_eq!((left.bytes(left.find("file")), left.files.clients()), (vec![1; 8192], vec![]));
    l.world.publish();
    assert_eq!((l.world.bytes(l.file), l.world.files.dangling()), (vec![1; 8192], vec![]));
}

#[test]
fn what_is_executed_again_waits_while_too_much_of_the_log_is_not_published_and_is_executed_once() {
    let mut l = linked_again();
    let change = Operation::SetAttributes { number: l.file, attributes: Attributes::default() };
    l.library.append(&mut l.lease, 0, &[1; 4096], 100);
    l.library.append(&mut l.lease, 4096, &[2; 4096], 101);
    while l.world.files.log_len().0 + 1 < BACKLOG_OPERATIONS as u64 {
        l.world.files.execute(9, &change).expect("there is room in the log");
    }
    let memory = l.server.memory.clone();
    let control = Control::new(&memory).expect("its size");
    for _ in 0..2 {
        let waits = l.server.log.adopt(control).expect("no rule is broken");
        assert!(matches!(waits, Adopted::Waits(FsError::Backlog)), "{waits:?}");
        assert_eq!((l.server.log.adopted(), control.applied()), (1, 1));
    }
    l.world.publish();
    assert!(matches!(l.server.log.adopt(control), Ok(Adopted::All(1))));
    assert_eq!(l.world.bytes(l.file), [[1; 4096], [2; 4096]].concat());
    assert_eq!(l.world.files.log_len().0, 1);
}

#[test]
fn a_client_whose_operations_are_executed_again_leaves_its_bytes_and_no_run() {
    let mut l = linked_again();
    l.write_more_than_a_slab();
    let bytes = l.world.bytes(l.file);
    drop(l.server);
    (0..3).for_each(|_| {
        l.world.publish();
        l.world.compact();
    });
    let counts = l.world.files.heap().runs().counts();
    assert!(counts.free > counts.total - 12, "{counts:?}");
    assert_eq!(after_a_crash(&l.world).bytes(l.file), bytes);
}

/// Other machines that have no room to spare.
#[derive(Debug)]
struct Narrow;

impl Successor for Narrow {
    fn take_room(&self, _: u64, _: &mut Option<u64>) -> Result<(), HeapError> {
        Ok(())
    }

    fn take_spare_room(&self, _: u64) -> bool {
        false
    }

    fn give_room_back(&self, _: u64) {}

    fn sends_early(&self) -> bool {
        false
    }

    fn send(&self, _: &Heap, _: &[SlotId]) {}

    fn is_done(&self) -> bool {
        true
    }

    fn wait(&self) -> Result<(), HeapError> {
        Ok(())
    }
}

#[test]
fn a_client_for_which_other_machines_have_no_room_to_spare_gets_no_run() {
    let mut l = linked_again();
    l.world.files.set_successor(Arc::new(Narrow));
    // More than a landing run.
    for index in 0..300 {
        l.library.append(&mut l.lease, index % 8 * 4096, &[index as u8; 4096], 100);
    }
    assert!(matches!(l.server.adopt(), Err(LogEnd::Region(HeapError::Full))));
    assert_eq!(l.server.log.adopted(), 300, "what it had was enough for these");
    let free = l.world.files.heap().runs().counts().free;
    let memory = Arc::clone(&l.server.memory);
    for _ in 0..5 {
        let refilled = l.server.log.refill(Control::new(&memory).expect("its size"));
        assert!(matches!(refilled, Err(NotGranted::Behind)), "{refilled:?}");
        assert_eq!(l.world.files.heap().runs().counts().free, free);
    }
}

/// The next server, after this one was killed, and what that has left.
fn after_a_kill(l: &Linked, left: Option<Arc<LeftLog>>) -> World {
    let image = l.world.media.crash_state().newest();
    World::open_after(SimMedia::restart(&image, SimOptions::default()), left.into_iter().collect()).0
}

#[test]
fn what_a_killed_server_had_not_executed_the_next_one_executes_once() {
    let mut l = linked_again();
    l.library.append(&mut l.lease, 0, &[1; 4096], 100);
    l.server.adopt().expect("adopts");
    l.library.append(&mut l.lease, 4096, &[2; 4096], 101);
    l.library.append(&mut l.lease, 8192, &[3; 100], 102);
    let left = l.server.left(&[l.file]);
    let world = after_a_kill(&l, left.clone());
    assert_eq!(world.bytes(l.file), [&[1; 4096][..], &[2; 4096], &[3; 100]].concat());
    assert_eq!(left.expect("two are left").executed(), 3);
    // It had executed them, and was killed before it could say so.
    l.server.adopt().expect("adopts");
    let appended = l.world.files.next_operation();
    l.server.control().set_applied(1);
    let left = l.server.left(&[l.file]);
    let world = after_a_kill(&l, left.clone());
    assert_eq!(world.bytes(l.file), [&[1; 4096][..], &[2; 4096], &[3; 100]].concat());
    assert_eq!((world.files.next_operation(), left.expect("two are left").executed()), (appended, 3));
}

#[test]
fn of_what_a_killed_server_had_not_executed_nothing_counts_behind_what_cannot_be() {
    let prepare: [fn(&mut Linked) -> Vec<InodeNumber>; 3] = [
        // The client could not write this file.
        |_| vec![InodeNumber(99)],
        // The bytes are not those of the checksum.
        |l| {
            let run = l.server.control().landing(0).expect("granted");
            l.world.media.store(run.off() + 4096 + 9, &[77]).expect("stores");
            vec![l.file]
        },
        // Nothing is stored there.
        |l| {
            let slot = l.library.slots[1];
            l.world.media.store(slot.off(), &[0; 128]).expect("stores");
            vec![l.file]
        },
    ];
    for prepare in prepare {
        let mut l = linked_again();
        l.library.append(&mut l.lease, 0, &[1; 4096], 100);
        l.server.adopt().expect("adopts");
        l.library.append(&mut l.lease, 4096, &[2; 4096], 101);
        l.library.append(&mut l.lease, 8192, &[3; 100], 102);
        let files = prepare(&mut l);
        let left = l.server.left(&files);
        let world = after_a_kill(&l, left.clone());
        assert_eq!(world.bytes(l.file), [1; 4096]);
        assert_eq!(left.expect("two are left").executed(), 1, "the library says that they are lost");
    }
    assert!(LeftLog::new(FIRST_CLIENT_AGAIN, 3..3, Default::default()).is_none());
    assert!(LeftLog::new(1, 0..3, Default::default()).is_none(), "that log counts where it is");
}

fn broken(error: LogEnd) -> (u64, Broken) {
    match error {
        LogEnd::Broken(index, rule) => (index, rule),
        other => panic!("{other}"),
    }
}

#[test]
fn an_operation_that_breaks_a_rule_ends_the_log_and_what_was_before_stays() {
    let append = |l: &mut Linked| l.library.append(&mut l.lease, 0, &[2; 4096], 101);
    type Prepare = fn(&mut Linked);
    let cases: [(&str, Broken, Prepare); 5] = [
        ("another lease", Broken::Lease, |l| l.lease.number = LeaseNumber(99)),
        ("another file", Broken::Lease, |l| l.lease.file = InodeNumber(1)),
        ("a seq twice", Broken::Lease, |l| l.lease.seq -= 1),
        ("a seq of somebody else", Broken::Lease, |l| l.lease.seq += SEQS_PER_LEASE),
        ("a lease that has ended", Broken::Lease, |l| l.server.log.end_lease(l.lease.number)),
    ];
    for (what, rule, prepare) in cases {
        let mut l = linked();
        l.library.append(&mut l.lease, 0, &[1; 4096], 100);
        l.server.adopt().expect("adopts");
        prepare(&mut l);
        append(&mut l);
        assert_eq!(broken(l.server.adopt().expect_err(what)), (1, rule), "{what}");
        l.server.end(&mut l.world);
        assert_eq!(l.world.bytes(l.file), [1; 4096], "{what}");
    }
    // Bytes that are not those of the checksum.
    let mut l = linked();
    append(&mut l);
    let run = l.server.control().landing(0).expect("granted");
    l.world.media.store(run.off() + 9, &[77]).expect("stores");
    assert_eq!(broken(l.server.adopt().expect_err("changed")), (0, Broken::Data));
    // A part of a block that is not the end of the file.
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 8192], 100);
    l.library.append(&mut l.lease, 0, &[2; 100], 100);
    assert!(matches!(l.server.adopt().expect_err("a part"), LogEnd::Refused(_)));
    assert_eq!(l.world.bytes(l.file), [1; 8192]);
    l.world.publish();
}

#[test]
fn impossible_counts_end_the_log() {
    let ends = |count: u64, set: fn(&Linked, u64)| {
        let mut l = linked();
        l.library.append(&mut l.lease, 0, &[1; 4096], 100);
        l.server.adopt().expect("adopts");
        set(&l, count);
        assert!(matches!(l.server.adopt(), Err(LogEnd::Counts)), "{count}");
        set(&l, 1);
        assert!(matches!(l.server.adopt(), Err(LogEnd::Before)), "{count}: it has ended for good");
    };
    for appended in [0, 3 * u64::from(SLOTS_PER_RUN), u64::MAX] {
        ends(appended, |l, count| l.server.control().set_appended(count));
    }
    for done in [100, u64::MAX] {
        ends(done, |l, count| l.server.control().set_done(count));
    }
}

#[test]
fn frames_are_not_given_out_twice() {
    // The second operation refers to the bytes of the first one.
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 4096], 100);
    let mut again = Library::new(&l.world, &l.server);
    l.server.adopt().expect("adopts");
    again.appended = 1;
    again.slots = l.library.slots.clone();
    again.append(&mut l.lease, 4096, &[1; 4096], 101);
    assert_eq!(broken(l.server.adopt().expect_err("used")), (1, Broken::Extents));
}

#[test]
fn a_record_that_is_changed_after_it_was_checked_is_restored_before_it_is_published() {
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 8192], 100);
    l.server.adopt().expect("adopts");
    l.world.media.store(l.library.slots[0].off() + 40, &[0xff; 8]).expect("stores");
    let other = l.world.create("other");
    l.world.write(other, 0, &[5; 100]);
    l.world.publish();
    assert_eq!((l.world.bytes(l.file), l.world.bytes(other)), (vec![1; 8192], vec![5; 100]));
    assert_eq!(after_a_crash(&l.world).bytes(other), [5; 100]);
}

#[test]
fn bytes_that_are_changed_after_they_were_checked_are_damage_of_their_file_alone() {
    let mut l = linked();
    l.library.append(&mut l.lease, 0, &[1; 8192], 100);
    l.server.adopt().expect("adopts");
    let run = l.server.control().landing(0).expect("granted");
    l.world.media.store(run.off() + 9, &[77]).expect("stores");
    let other = l.world.create("other");
    l.world.write(other, 0, &[5; 100]);
    // The record must be divided when it is published.
    l.world.write(l.file, 4096, &[3; 4096]);
    l.world.publish();
    assert_eq!(l.world.bytes(other), [5; 100]);
    let parts = l.world.files.read(l.file, 0..4096).expect("it is there");
    let FilePart::Stored(part) = &parts[0] else { panic!("no hole") };
    assert!(!part.item().verify().expect("reads"), "nobody gets these bytes");
    let parts = l.world.files.read(l.file, 4096..8192).expect("it is there");
    let FilePart::Stored(part) = &parts[0] else { panic!("no hole") };
    assert!(part.item().verify().expect("reads"));
}
