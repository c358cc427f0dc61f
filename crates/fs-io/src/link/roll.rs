//! Who is attached, in a file beside the socket: the next server ends the libraries of one that was killed.
//!
//! A library notices soon that its server is gone, but a thread of it that is in may still store to the region. If that were
//! opened meanwhile, what the thread stores would be lost, or destroy what others store. So the next server does what the
//! dead one would have done: it revokes all leases, and waits until nobody is in. `docs/format/fs-link.md`, "The next server".

use super::sys;
use crate::counter::wait;
use crate::notes::with_ending;
use crate::sys::SharedMemory;
use landfall_fs::LeftLog;
use landfall_fs_link::{
    CONTROL_WORDS, Control, Identity, LEASE_TIME, LEASES_MAX, LinkState, SLABS_MAX, lease,
};
use landfall_heap::SLOTS_PER_RUN;
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ending of the file's name.
const ENDING: &str = ".clients";
/// What the kernel calls a control memory, before ` (deleted)`: `SharedMemory::new` names it.
const MEMORY: &[u8] = b"/memfd:landfall";
/// Most clients at a time. The file has a place for each.
pub(super) const CLIENTS_MAX: usize = 64;
/// Bytes of a place.
const PLACE_BYTES: usize = 24;
/// Most operations that a client may have appended, and a server not executed.
const OPERATIONS_MAX: u64 = SLABS_MAX * SLOTS_PER_RUN as u64;
/// How often it is asked whether threads have left.
const ASK_EVERY: Duration = Duration::from_micros(200);

/// The file with the clients of a server.
#[derive(Debug)]
pub(crate) struct Roll {
    file: File,
    path: PathBuf,
    /// Who has which place.
    used: Mutex<[Option<u32>; CLIENTS_MAX]>,
}

/// What stands for the process of a library in a virtual machine.
const MACHINE: u64 = u64::MAX;

/// Where the control memory of a client is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// Among the files of this process.
    Process(i32, BorrowedFd<'a>),
    /// At this offset of the region.
    Region(u64),
}

/// A client, as the file names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// Its process, or [`MACHINE`].
    process: u64,
    /// Device and inode of the control memory, or its offset in the region.
    memory: [u64; 2],
}

impl Entry {
    fn encode(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let words = [self.process, self.memory[0], self.memory[1]];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..index * 8 + 8).and_then(|bytes| bytes.try_into().ok());
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        Self { process: word(0), memory: [word(1), word(2)] }
    }
}

impl Roll {
    /// A new file, without clients.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn create(socket: &Path) -> io::Result<Self> {
        let path = with_ending(socket, ENDING);
        Ok(Self { file: File::create(&path)?, path, used: Mutex::new([None; CLIENTS_MAX]) })
    }

    /// Notes a client before it is welcomed.
    ///
    /// # Errors
    /// An error of the kernel, or there is no place.
    pub(super) fn note(&self, client: u32, memory: Place<'_>) -> io::Result<()> {
        let mut used = self.used.lock();
        let place = used.iter().position(Option::is_none).ok_or(io::ErrorKind::QuotaExceeded)?;
        let entry = match memory {
            Place::Process(process, memory) => {
                let found = File::from(memory.try_clone_to_owned()?).metadata()?;
                Entry { process: u64::from(process.unsigned_abs()), memory: [found.dev(), found.ino()] }
            }
            Place::Region(offset) => Entry { process: MACHINE, memory: [offset, 0] },
        };
        self.write(place, entry)?;
        used[place] = Some(client);
        Ok(())
    }

    /// A client has ended.
    pub(super) fn forget(&self, client: u32) {
        let mut used = self.used.lock();
        let Some(place) = used.iter().position(|used| *used == Some(client)) else { return };
        used[place] = None;
        // A client that is noted and not there is passed over.
        let _ = self.write(place, Entry::default());
    }

    fn write(&self, place: usize, entry: Entry) -> io::Result<()> {
        self.file.write_all_at(&entry.encode(), (place * PLACE_BYTES) as u64)
    }

    /// All clients have ended.
    pub(super) fn remove(&self) {
        // As above.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A client of a server that has died.
struct Left {
    memory: SharedMemory,
    /// The dead server took nothing from it any more.
    was_fenced: bool,
    /// Readable when its process has ended; `None`: that is in a virtual machine.
    process: Option<OwnedFd>,
}

impl Left {
    /// Finds the control memory.
    fn find(entry: Entry, region: &Path) -> Option<Self> {
        let left =
            if entry.process == MACHINE { Self::within(entry, region) } else { Self::of_process(entry) };
        let left = left.filter(|left| left.control().has_begun())?;
        Some(Self { was_fenced: left.control().state() == LinkState::Fenced, ..left })
    }

    /// Whoever has used the run since has stored something else at its start.
    fn within(entry: Entry, region: &Path) -> Option<Self> {
        let file = File::options().read(true).write(true).open(region).ok()?;
        let memory = SharedMemory::within(file, CONTROL_WORDS, entry.memory[0]).ok()?;
        Some(Self { memory, was_fenced: false, process: None })
    }

    /// It is among the files that the process has open.
    fn of_process(entry: Entry) -> Option<Self> {
        let process = sys::watch_process(i32::try_from(entry.process).ok()?).ok()?;
        let files = std::fs::read_dir(format!("/proc/{}/fd", entry.process)).ok()?;
        // Others may be files of the mount, which nobody serves: not even their attributes can be asked for.
        let is_it = |path: &PathBuf| {
            let is_memory =
                std::fs::read_link(path).is_ok_and(|name| name.as_os_str().as_bytes().starts_with(MEMORY));
            is_memory && std::fs::metadata(path).is_ok_and(|found| [found.dev(), found.ino()] == entry.memory)
        };
        let path = files.flatten().map(|file| file.path()).find(is_it)?;
        let file = File::options().read(true).write(true).open(path).ok()?;
        let memory = SharedMemory::of_another(file.into(), CONTROL_WORDS).ok()?;
        Some(Self { memory, was_fenced: false, process: Some(process) })
    }

    fn control(&self) -> Control<'_> {
        Control::new(self.memory.words()).expect("it has the size of a control memory")
    }

    /// Nobody enters any more.
    fn end(&self) {
        let control = self.control();
        control.set_state(LinkState::Ended);
        (0..LEASES_MAX).for_each(|place| lease::revoke(control.lease_word(place)));
        if self.was_fenced {
            control.seal();
        }
    }

    /// Nobody is waited for any more: what is appended by now counts, and the library learns that nothing else does.
    fn fence(&self) {
        self.control().seal();
        self.control().set_state(LinkState::Fenced);
    }

    /// True once nobody is in.
    fn is_left(&self) -> bool {
        let control = self.control();
        (0..LEASES_MAX).all(|place| lease::is_empty(control.lease_word(place))) || self.has_ended()
    }

    /// What it has appended, and the dead server had yet to execute again. Nobody is in, or the log is sealed.
    fn log(&self) -> Option<Arc<LeftLog>> {
        let control = self.control();
        let identity = control.identity().ok().filter(Identity::is_executed_again)?;
        if self.was_fenced {
            return None;
        }
        control.seal();
        let operations = control.applied()..control.appended().min(control.applied() + OPERATIONS_MAX);
        let files = (0..LEASES_MAX).map(|place| control.lease(place).inode).collect();
        LeftLog::new(identity.client, operations, files).map(Arc::new)
    }

    fn has_ended(&self) -> bool {
        let Some(process) = &self.process else { return false };
        wait(&[process.as_fd()], Some(Duration::ZERO)).is_ok_and(|ended| ended.is_some())
    }
}

/// Libraries of a server that was killed. Nobody stores anything for them any more.
#[derive(Default)]
pub struct EarlierLibraries {
    clients: Vec<(Left, Option<Arc<LeftLog>>)>,
}

impl EarlierLibraries {
    /// What they have appended, and the dead server had yet to execute: for [`landfall_fs::FilesRecovery::execute_left`].
    pub fn logs(&self) -> Vec<Arc<LeftLog>> {
        self.clients.iter().filter_map(|(_, log)| log.clone()).collect()
    }

    /// Recovery has executed these logs, as far as it could: the libraries learn what is lost. To be called before mounts are
    /// served.
    pub fn note_executed(&self) {
        for (client, log) in &self.clients {
            log.iter().for_each(|log| client.control().set_applied(log.executed()));
        }
    }
}

/// Ends the libraries of a server that was killed, whose libraries connected to `socket`. To be called by whoever has locked
/// the region, which is in this file, before it is opened.
#[must_use]
pub fn end_earlier_libraries(socket: &Path, region: &Path) -> EarlierLibraries {
    let path = with_ending(socket, ENDING);
    let Ok(bytes) = std::fs::read(&path) else { return EarlierLibraries::default() };
    let entries = bytes.chunks(PLACE_BYTES).take(CLIENTS_MAX).map(Entry::decode);
    let left: Vec<Left> =
        entries.filter(|entry| entry.process != 0).filter_map(|entry| Left::find(entry, region)).collect();
    left.iter().for_each(Left::end);
    let until = Instant::now() + LEASE_TIME;
    for client in &left {
        while !client.is_left() {
            if Instant::now() > until {
                tracing::warn!("a library of an earlier server does not give its leases back: it is fenced");
                client.fence();
                break;
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
    // A file that stays names clients that have ended.
    let _ = std::fs::remove_file(&path);
    let with_log = |client: Left| {
        let log = client.log();
        (client, log)
    };
    EarlierLibraries { clients: left.into_iter().map(with_log).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fs::FIRST_CLIENT_AGAIN;

    #[test]
    fn clients_are_found_until_they_are_forgotten() {
        let directory = tempfile::tempdir().expect("a directory");
        let (socket, region) = (directory.path().join("files.sock"), directory.path().join("region"));
        let roll = Roll::create(&socket).expect("a file");
        let file = File::create_new(&region).expect("a file");
        file.set_len(4096 + (8 * CONTROL_WORDS) as u64).expect("a length");
        let file = File::options().read(true).write(true).open(&region).expect("it is there");
        let memories = [
            SharedMemory::new(CONTROL_WORDS).expect("memory"),
            SharedMemory::within(file, CONTROL_WORDS, 4096).expect("memory"),
        ];
        let controls = memories.each_ref().map(|memory| Control::new(memory.words()).expect("its size"));
        for (control, client) in controls.iter().zip([FIRST_CLIENT_AGAIN, 1]) {
            control.begin(Identity { client, hash_seed: 2, region_bytes: 3 });
            lease::grant(control.lease_word(5), 1, lease::Kind::Write);
        }
        let own = i32::try_from(std::process::id()).expect("a number");
        roll.note(1, Place::Process(own, io::stdin().as_fd())).expect("a place");
        roll.note(2, Place::Process(own, memories[0].file())).expect("a place");
        roll.note(3, Place::Region(4096)).expect("a place");
        roll.note(4, Place::Region(0)).expect("a place, where there is none");
        roll.forget(1);
        assert_eq!(std::fs::read(directory.path().join("files.sock.clients")).expect("a file").len(), 96);
        controls[0].set_appended(9);
        controls[0].set_applied(7);
        let earlier = end_earlier_libraries(&socket, &region);
        let logs = earlier.logs();
        assert_eq!(logs.iter().map(|log| log.executed()).collect::<Vec<_>>(), [7], "the other's log counts");
        controls[0].set_applied(0);
        earlier.note_executed();
        assert_eq!(controls[0].applied(), 7);
        for control in &controls {
            assert_eq!(control.state(), LinkState::Ended);
            assert!(!lease::is_granted(control.lease_word(5)));
        }
        assert_eq!(std::fs::read(&region).expect("a file")[..4096], [0; 4096], "nothing is changed there");
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 1);
        assert!(end_earlier_libraries(&socket, &region).logs().is_empty());
    }

    /// A thread that is in may go on when nobody waits for it any more: it learns that what it appends does not count.
    #[test]
    fn whoever_is_still_in_appends_nothing_more_and_what_it_has_appended_counts() {
        for was_fenced in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            let (socket, region) = (directory.path().join("files.sock"), directory.path().join("region"));
            let roll = Roll::create(&socket).expect("a file");
            File::create_new(&region).expect("a file");
            let memory = SharedMemory::new(CONTROL_WORDS).expect("memory");
            let control = Control::new(memory.words()).expect("its size");
            control.begin(Identity { client: FIRST_CLIENT_AGAIN, hash_seed: 2, region_bytes: 3 });
            lease::grant(control.lease_word(5), 1, lease::Kind::Write);
            lease::enter(control.lease_word(5), 1, lease::Kind::Write).expect("it is granted");
            let own = i32::try_from(std::process::id()).expect("a number");
            roll.note(1, Place::Process(own, memory.file())).expect("a place");
            control.set_appended(9);
            control.set_applied(7);
            if was_fenced {
                control.set_state(LinkState::Fenced);
            }
            let logs = end_earlier_libraries(&socket, &region).logs();
            assert!(!control.append(9), "it is the kernel's to do that");
            assert_eq!(control.appended(), 9);
            assert_eq!(logs.len(), usize::from(!was_fenced), "what the dead server refused stays refused");
        }
    }
}
