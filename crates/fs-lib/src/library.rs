//! The files of all mounts, for which the library answers.

use crate::connection::lose;
use crate::mount::Mount;
use crate::sys::{self, Kept};
use landfall_fs::InodeNumber;
use landfall_fs_calls::{Engine, FileId, Opened, Refused, Use, Written};
use landfall_fs_client::{Client, File, Unanswered};
use std::io::{IoSlice, IoSliceMut};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

/// Mounts and other file systems that are remembered. What is beyond is the kernel's.
const DEVICES_MAX: usize = 64;
/// Files that are remembered. When they are more, leases of files that nobody has open are given back.
const FILES_MAX: usize = 256;
/// Files that are remembered because something of them may be lost. When they are more, the server is asked to make it durable.
const AT_STAKE_MAX: usize = 4 * FILES_MAX;
/// Writes to a file that the kernel answers before a lease of it is asked for, the first one and one that was lost. A lease
/// costs as much as a few writes by the kernel: to ask, to write back and drop what the kernel keeps, and to give it back
/// when another program needs the file. Most files are written once or twice (mail, sources, objects); logs and databases
/// are written often.
const LEASE_AFTER: u32 = 8;
/// The extended attribute that names the socket of a mount's server.
const ATTRIBUTE: &str = "landfall.link";

/// A file system that a program has opened files of.
struct Device {
    number: u64,
    /// `None`: no mount of files.
    mount: Option<&'static Mount>,
}

/// A file that a program has opened.
struct Known {
    mount: &'static Mount,
    /// The client that has asked, or may ask, for a lease of it. It stays, also when it has ended.
    client: OnceLock<&'static Client<'static>>,
    file: File,
    /// Writes that the kernel has answered since the last one that was answered here.
    writes: AtomicU32,
    /// The same file as clients of earlier servers have known it, as long as something may be lost that they have written.
    earlier: Mutex<Vec<Arc<Known>>>,
}

impl Known {
    fn new(mount: &'static Mount, file: File) -> Self {
        let (client, writes) = (OnceLock::new(), AtomicU32::new(0));
        Self { mount, client, file, writes, earlier: Mutex::default() }
    }

    /// The same file for the client of the next server.
    fn anew(self: &Arc<Self>) -> Self {
        let mut earlier = std::mem::take(&mut *lock(&self.earlier));
        if self.itself_at_stake().is_some() {
            earlier.push(Arc::clone(self));
        }
        Self { earlier: Mutex::new(earlier), ..Self::new(self.mount, self.file.anew()) }
    }

    fn itself_at_stake(&self) -> Option<u64> {
        self.client.get().and_then(|client| client.at_stake(&self.file))
    }

    fn at_stake(&self) -> Option<u64> {
        self.itself_at_stake().or_else(|| (!lock(&self.earlier).is_empty()).then_some(0))
    }

    /// To be asked when the kernel has made the file durable, with what was at stake before.
    fn has_lost(&self, at_stake: u64) -> bool {
        let has_lost = |known: &Self, at_stake| {
            known.client.get().is_some_and(|client| client.has_lost(&known.file, at_stake))
        };
        let earlier = std::mem::take(&mut *lock(&self.earlier));
        // Servers that have ended have made nothing durable since.
        let of_earlier = earlier.iter().map(|known| has_lost(known, 0));
        of_earlier.fold(has_lost(self, at_stake), |any, lost| any | lost)
    }

    /// Nobody has the file open: its lease is given back. If there are too many, what may be lost of it is made durable.
    fn put_away(&self, are_too_many: bool) {
        if let Some(client) = self.client.get() {
            client.put_away(&self.file);
            if are_too_many {
                client.settle(&self.file);
            }
        }
    }

    /// True if nobody was told yet of something that is lost.
    fn must_stay(&self) -> bool {
        !lock(&self.earlier).is_empty() || self.has_ended() && self.itself_at_stake().is_some()
    }

    /// True if the server that it was asked of has ended. The next one may answer.
    fn has_ended(&self) -> bool {
        self.client.get().is_some_and(|client| client.has_ended())
    }

    /// What answers a call here, if it is not the kernel's. Under a lease every call is answered here. Without one a lease is
    /// asked for only after some writes, which count, and never in order to read: the kernel's pages are as quick to read as
    /// the region. A program that never gets so far does not even connect.
    fn client(&self, using: Use, lease_after: u32) -> Option<&'static Client<'static>> {
        let has_lease = |client: &&'static Client<'static>| client.has_lease(&self.file);
        if let Some(client) = self.client.get().copied().filter(has_lease) {
            return Some(client);
        }
        if using == Use::Read {
            return None;
        }
        if self.writes.load(Ordering::Relaxed) >= lease_after {
            return self.connect();
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn connect(&self) -> Option<&'static Client<'static>> {
        match self.client.get() {
            Some(client) => Some(client),
            None => {
                let client = self.mount.client()?;
                Some(self.client.get_or_init(|| client))
            }
        }
    }

    /// The kernel answers for the file from now on.
    fn leave(&self) {
        // Who connects meanwhile sees it before a lease is asked for.
        self.file.leave();
        if let Some(client) = self.client.get() {
            client.leave(&self.file);
        }
    }
}

#[derive(Default)]
struct Files {
    known: Vec<Option<Arc<Known>>>,
    /// Open files of a program, for each of them.
    opened: Vec<u32>,
    /// Where the next one to forget is looked for.
    hand: usize,
}

/// What answers for the files of all mounts.
pub(crate) struct Library {
    devices: Mutex<Vec<Device>>,
    files: RwLock<Files>,
    lease_after: AtomicU32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who cannot be answered here is answered by the kernel.
fn passed_on(Unanswered: Unanswered) -> Refused {
    Refused::PassOn
}

impl Library {
    pub(crate) const fn new() -> Self {
        Self {
            devices: Mutex::new(Vec::new()),
            files: RwLock::new(Files { known: Vec::new(), opened: Vec::new(), hand: 0 }),
            lease_after: AtomicU32::new(LEASE_AFTER),
        }
    }

    /// The kernel answers so many writes to a file before a lease of it is asked for.
    pub(crate) fn lease_after(&self, writes: u32) {
        self.lease_after.store(writes, Ordering::Relaxed);
    }

    /// The mount of a descriptor.
    fn mount(&self, opened: &Opened) -> Option<&'static Mount> {
        let mut devices = lock(&self.devices);
        if let Some(device) = devices.iter().find(|device| device.number == opened.device) {
            return device.mount;
        }
        if devices.len() >= DEVICES_MAX {
            return None;
        }
        let mount = sys::attribute(opened.fd, ATTRIBUTE).map(|socket| {
            let kept: &'static Mount = Kept::new(Mount::new(opened.device, socket));
            kept
        });
        devices.push(Device { number: opened.device, mount });
        mount
    }

    fn known(&self, file: FileId) -> Option<Arc<Known>> {
        let known = {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            files.known.get(file.0 as usize)?.clone()?
        };
        if !known.has_ended() {
            return Some(known);
        }
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let known = files.known.get_mut(file.0 as usize)?.as_mut()?;
        if known.has_ended() {
            *known = Arc::new(known.anew());
        }
        Some(Arc::clone(known))
    }

    fn client(&self, known: &Known, using: Use) -> Option<&'static Client<'static>> {
        known.client(using, self.lease_after.load(Ordering::Relaxed))
    }

    fn with<T>(
        &self,
        file: FileId,
        using: Use,
        call: impl FnOnce(&Client<'static>, &File) -> Result<T, Unanswered>,
    ) -> Result<T, Refused> {
        let known = self.known(file).ok_or(Refused::PassOn)?;
        let client = self.client(&known, using).ok_or(Refused::PassOn)?;
        let done = call(client, &known.file).map_err(passed_on)?;
        known.writes.store(0, Ordering::Relaxed);
        Ok(done)
    }
}

impl Files {
    /// The number of a file that was opened once more.
    fn open(&mut self, mount: &'static Mount, inode: InodeNumber) -> FileId {
        let is_this = |known: &Option<Arc<Known>>| {
            known
                .as_ref()
                .is_some_and(|known| known.mount.device() == mount.device() && known.file.inode() == inode)
        };
        let index = self.known.iter().position(is_this).unwrap_or_else(|| {
            let known = Some(Arc::new(Known::new(mount, File::new(inode))));
            match self.known.iter().position(Option::is_none) {
                Some(free) => {
                    self.known[free] = known;
                    free
                }
                None => {
                    self.known.push(known);
                    self.opened.push(0);
                    self.known.len() - 1
                }
            }
        });
        self.opened[index] += 1;
        FileId(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// A file that nobody has open, if too many are remembered, and its index: each in its turn.
    fn unused(&mut self) -> Option<(usize, Arc<Known>)> {
        if self.count() <= FILES_MAX {
            return None;
        }
        let all = self.known.len();
        let (index, known) = (self.hand..self.hand + all).map(|at| at % all).find_map(|index| {
            let known = self.known[index].as_ref().filter(|_| self.opened[index] == 0)?;
            (!known.must_stay()).then(|| (index, Arc::clone(known)))
        })?;
        self.hand = (index + 1) % all;
        Some((index, known))
    }

    /// How many are remembered.
    fn count(&self) -> usize {
        self.known.iter().flatten().count()
    }

    /// Forgets a file that was put away, if nobody has opened it since and nothing of it can be lost.
    fn forget(&mut self, index: usize, known: &Arc<Known>) {
        let is_same = self.known[index].as_ref().is_some_and(|now| Arc::ptr_eq(now, known));
        if is_same && self.opened[index] == 0 && known.at_stake().is_none() {
            self.known[index] = None;
        }
    }
}

fn written(written: landfall_fs_client::Written) -> Written {
    Written { end: written.end, len: written.len }
}

impl Engine for Library {
    fn open(&self, opened: &Opened) -> Option<FileId> {
        let mount = self.mount(opened)?;
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let file = files.open(mount, InodeNumber(opened.inode));
        let (unused, are_too_many) = (files.unused(), files.count() > AT_STAKE_MAX);
        drop(files);
        if let Some((index, unused)) = unused {
            unused.put_away(are_too_many);
            self.files.write().unwrap_or_else(PoisonError::into_inner).forget(index, &unused);
        }
        Some(file)
    }

    fn close(&self, file: FileId) {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = files.opened.get_mut(file.0 as usize) {
            *opened = opened.saturating_sub(1);
        }
    }

    fn is_ready(&self, file: FileId, using: Use) -> bool {
        let Some(known) = self.known(file) else { return false };
        self.client(&known, using).is_some_and(|client| client.is_ready(&known.file))
    }

    fn read_at(&self, file: FileId, offset: u64, space: &mut [IoSliceMut<'_>]) -> Result<usize, Refused> {
        self.with(file, Use::Read, |client, file| client.read_at(file, offset, space))
    }

    fn write_at(&self, file: FileId, offset: u64, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.with(file, Use::Write, |client, file| client.write_at(file, Some(offset), data)).map(written)
    }

    fn append(&self, file: FileId, data: &[IoSlice<'_>]) -> Result<Written, Refused> {
        self.with(file, Use::Write, |client, file| client.write_at(file, None, data)).map(written)
    }

    fn size(&self, file: FileId) -> Result<u64, Refused> {
        self.with(file, Use::Read, Client::size)
    }

    fn sync(&self, file: FileId) -> Result<(), Refused> {
        // What earlier servers may have lost is told when the kernel has made the file durable.
        if self.known(file).is_some_and(|known| !lock(&known.earlier).is_empty()) {
            return Err(Refused::PassOn);
        }
        self.with(file, Use::Read, Client::sync)
    }

    fn at_stake(&self, file: FileId) -> Option<u64> {
        self.known(file)?.at_stake()
    }

    fn has_lost(&self, file: FileId, at_stake: u64) -> bool {
        self.known(file).is_some_and(|known| known.has_lost(at_stake))
    }

    fn leave(&self, file: FileId) {
        while let Some(known) = self.known(file) {
            known.leave();
            // Another thread may have put a new one in its place before.
            if self.known(file).is_none_or(|now| Arc::ptr_eq(&now, &known)) {
                return;
            }
        }
    }

    fn forked(&self) {
        // Another thread may have held the lock when the process forked; the child has no other threads, and its table
        // is off: nobody else comes here.
        let Ok(devices) = self.devices.try_lock() else { return };
        devices.iter().filter_map(|device| device.mount).for_each(Mount::close_in_child);
    }

    fn loses(&self, descriptors: RangeInclusive<u32>) {
        lose(&descriptors);
    }
}
