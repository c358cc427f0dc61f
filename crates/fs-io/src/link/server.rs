//! All clients, and what mounts ask of them.

use super::client::Client;
use super::counts::{Counts, Why};
use super::roll::{CLIENTS_MAX, Place, Roll};
use super::shared::{Boot, Linked, Named, PAUSE, ServerLife, Shared, reason_of};
use crate::leases::Leases as Holders;
use crate::lives::MountNumber;
use landfall_fs::{
    Access, Acquired, FIRST_CLIENT_AGAIN, FileType, Files, InodeNumber, LeaseNumber, Publisher,
};
use landfall_fs_link::{CONTROL_BYTES, Kind, Reason};
use landfall_heap::MACHINE_AREA;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The pause between two rounds of adopting while there is no client.
const PAUSE_IDLE: Duration = Duration::from_millis(100);
/// How often old conflicts are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(1);
/// Distance between the control memories of clients in a virtual machine, bytes: each begins at a page.
const MACHINE_STEP: usize = CONTROL_BYTES.next_multiple_of(4096);
/// How often a lease is asked for while others are in its way.
const ATTEMPTS: usize = 8;

/// The clients of the mounts of one tree of files.
pub(crate) struct Link {
    shared: Shared,
    /// The region, as a file that can be mapped.
    region: File,
    /// The socket to which libraries connect, an absolute path.
    socket: PathBuf,
    /// The mounts that are served.
    mounts: Mutex<Vec<Linked>>,
    /// For the next server, if this one is killed.
    roll: Roll,
    clients: Mutex<BTreeMap<u32, Arc<Client>>>,
    /// Number of the next client whose operations are executed again.
    next_again: AtomicU32,
    /// The boots of the virtual machine from which libraries have come. It runs since the last one. Held by who attaches a
    /// client there.
    boots: Mutex<Vec<Boot>>,
    /// Names the server, if it serves mounts of other processes.
    life: OnceLock<ServerLife>,
    is_stopping: AtomicBool,
}

/// A request of a mount works on an inode, until this is dropped.
pub(crate) struct Entered<'l> {
    link: &'l Link,
    inode: InodeNumber,
    access: Access,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.link.shared.leases.lock().leave(self.inode, self.access);
    }
}

impl Link {
    pub(crate) fn new(
        files: Arc<Files>,
        publisher: Arc<Mutex<Publisher>>,
        holders: Arc<Holders>,
        (region, roll): (File, Roll),
        (socket, mounts): (&Path, Vec<Linked>),
    ) -> Self {
        Self {
            shared: Shared::new(files, publisher, holders),
            region,
            socket: std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned()),
            mounts: Mutex::new(mounts),
            roll,
            clients: Mutex::default(),
            next_again: AtomicU32::new(FIRST_CLIENT_AGAIN),
            boots: Mutex::default(),
            life: OnceLock::new(),
            is_stopping: AtomicBool::new(false),
        }
    }

    /// The server that serves its mounts is this one.
    pub(crate) fn name_server(&self, life: ServerLife) {
        // It is named once.
        let _ = self.life.set(life);
    }

    /// True if this is the server that a virtual machine means.
    pub(super) fn is_of(&self, life: ServerLife) -> bool {
        self.life.get() == Some(&life)
    }

    /// Programs of one more mount may have libraries.
    pub(crate) fn add(&self, linked: Linked) {
        self.mounts.lock().push(linked);
    }

    /// A mount ends, and with it the clients of its programs. Nobody waits for its kernel any more.
    pub(crate) fn remove(&self, mount: MountNumber) {
        let gone: Vec<Linked> = self.mounts.lock().extract_if(.., |linked| linked.mount == mount).collect();
        gone.iter().for_each(|linked| linked.forgetter.close());
        // Their runs stay theirs: nobody knows when their processes end.
        let clients = self.all().into_iter().filter(|client| client.mount() == mount);
        clients.for_each(|client| client.finish(&self.shared));
    }

    /// A request of a mount begins on an inode. What clients have done to it is in the tree then, and durable.
    pub(crate) fn enter(&self, inode: InodeNumber, access: Access) -> Entered<'_> {
        loop {
            let entered = self.shared.leases.lock().enter(inode, access);
            match entered {
                Ok(()) => return Entered { link: self, inode, access },
                Err(conflicts) => {
                    conflicts.into_iter().for_each(|number| self.take_back(number, Why::Conflict));
                }
            }
        }
    }

    /// True if a client may change the inode now.
    pub(crate) fn may_change(&self, inode: InodeNumber) -> bool {
        self.shared.leases.lock().is_held_to_write(inode)
    }

    /// Adopts everything that clients have appended.
    pub(crate) fn adopt_all(&self) {
        self.all().iter().for_each(|client| client.adopt(&self.shared));
    }

    /// What a client shares with mounts.
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Libraries that are attached, and the leases that they have.
    pub(crate) fn attached(&self) -> (u64, u64) {
        let clients = self.all();
        let running = clients.iter().filter(|client| !client.is_over());
        (running.count() as u64, clients.iter().map(|client| client.leases()).sum())
    }

    /// What they have done.
    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    /// The socket to which libraries connect.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The region, for a client.
    pub(crate) fn region(&self) -> BorrowedFd<'_> {
        self.region.as_fd()
    }

    /// The mount that is named so, if it is served.
    fn mount(&self, named: Named) -> Option<Linked> {
        self.mounts.lock().iter().find(|linked| linked.named == named).cloned()
    }

    fn all(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Takes a lease back: nobody has it when this returns.
    fn take_back(&self, number: LeaseNumber, why: Why) {
        let shared = &self.shared;
        let active = {
            let mut leases = shared.leases.lock();
            let Some(lease) = leases.get(number) else { return };
            if !lease.is_active {
                why.end(&mut leases, shared.now(), number);
            }
            Some(lease.client).filter(|_| lease.is_active)
        };
        let Some(client) = active else { return };
        let client = self.clients.lock().get(&client).cloned();
        if let Some(client) = client {
            client.take_back(shared, number, why);
        }
        why.end(&mut shared.leases.lock(), shared.now(), number);
    }

    /// A lease for a client. Returns its place and generation, or why there is none and for how long.
    pub(super) fn acquire(
        &self,
        client: &Client,
        kind: Kind,
        inode: InodeNumber,
    ) -> Result<(u32, u32), (Reason, Duration)> {
        let (shared, soon) = (&self.shared, |reason| (reason, Duration::ZERO));
        let is_file = shared.files.stat(inode).map(|stat| stat.inode.mode.file_type() == FileType::File);
        if !is_file.map_err(|error| soon(reason_of(&error)))? {
            return Err(soon(Reason::Inode));
        }
        let access = match kind {
            Kind::Read => Access::Read,
            Kind::Write => Access::Write,
        };
        for _ in 0..ATTEMPTS {
            if client.is_over() {
                return Err(soon(Reason::Fenced));
            }
            let acquired = shared.leases.lock().acquire(shared.now(), client.number(), inode, access);
            match acquired {
                Acquired::Left(until) => {
                    return Err((Reason::Left, until.saturating_sub(shared.now())));
                }
                Acquired::Conflicts(conflicts) => {
                    for number in conflicts {
                        let why = if client.has(number) { Why::Released } else { Why::Conflict };
                        self.take_back(number, why);
                    }
                }
                Acquired::Pending(number) => {
                    let granted = client.grant(shared, number, inode, access);
                    if granted.is_err() {
                        shared.leases.lock().release(number);
                    }
                    return granted.map_err(soon);
                }
            }
        }
        Err(soon(Reason::Left))
    }

    /// A client gives a lease back that it does not need any more.
    pub(super) fn release(&self, client: &Client, place: u32, generation: u32) -> Result<(), Reason> {
        let number = client.lease_at(place, generation).ok_or(Reason::Revoked)?;
        self.take_back(number, Why::Released);
        Ok(())
    }

    /// A new client in the virtual machine whose NVDIMM the region is. There is one: if it was booted anew, what its programs
    /// were granted before is used again.
    pub(super) fn attach_from(&self, boot: Boot, process: i32, named: Named) -> Result<Arc<Client>, Reason> {
        // Who opens no files here has booted nothing that has places here.
        self.mount(named).ok_or(Reason::Mount)?;
        // One at a time: who comes from a boot gets a place before all of that boot are ended, or is refused.
        let mut boots = self.boots.lock();
        let at = boots.iter().position(|known| *known == boot);
        if at.is_some_and(|at| at + 1 < boots.len()) {
            // What it has said before it was booted anew comes late.
            return Err(Reason::Fenced);
        }
        let is_new = at.is_none();
        if is_new {
            boots.push(boot);
        }
        let clients = self.all().into_iter().filter(|client| is_new && client.place().is_some());
        for client in clients {
            client.finish(&self.shared);
            self.forget(&client);
        }
        let make = |number, linked| self.client_within(number, linked, boot);
        self.attach_by(make, process, named)
    }

    /// A new client in a process of this machine, which opens files through the mount that is named so.
    pub(super) fn attach(&self, process: i32, named: Named) -> Result<Arc<Client>, Reason> {
        let files = &self.shared.files;
        self.attach_by(|number, linked| Client::new(files, number, linked), process, named)
    }

    /// A client whose memory is at a place in the region that nobody has.
    fn client_within(&self, number: u32, linked: Linked, boot: Boot) -> io::Result<Client> {
        let used: Vec<u64> = self.all().iter().filter_map(|client| client.place()).collect();
        for place in MACHINE_AREA.step_by(MACHINE_STEP).filter(|place| !used.contains(place)) {
            let region = self.region.try_clone()?;
            let client = Client::within(&self.shared.files, number, linked.clone(), (region, place, boot))?;
            if let Some(client) = client {
                return Ok(client);
            }
        }
        Err(io::ErrorKind::QuotaExceeded.into())
    }

    /// The number of a new client.
    fn number(&self) -> Result<u32, Reason> {
        if self.shared.executes_again {
            let next = |number: u32| number.checked_add(1);
            return self
                .next_again
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
                .map_err(|_| Reason::Many);
        }
        self.shared.files.attach().map_err(|error| reason_of(&error))
    }

    /// The first bounds of new clients are durable, if they have any.
    fn begin_log(&self) -> Result<(), Reason> {
        if self.shared.executes_again {
            return Ok(());
        }
        self.shared.publish().map(drop).map_err(|error| reason_of(&error))
    }

    /// A new client of a mount.
    fn attach_by(
        &self,
        make: impl FnOnce(u32, Linked) -> io::Result<Client>,
        process: i32,
        named: Named,
    ) -> Result<Arc<Client>, Reason> {
        let shared = &self.shared;
        let linked = self.mount(named).ok_or(Reason::Mount)?;
        if self.clients.lock().len() >= CLIENTS_MAX {
            return Err(Reason::Many);
        }
        let number = self.number()?;
        let attached = self.begin_log().and_then(|()| {
            let noted = make(number, linked).and_then(|client| {
                let place = client.place().map_or(Place::Process(process, client.memory()), Place::Region);
                self.roll.note(number, place)?;
                Ok(client)
            });
            noted.map_err(|error| {
                if error.kind() == io::ErrorKind::QuotaExceeded {
                    return Reason::Many;
                }
                tracing::error!(%error, "there is no memory for a client, or it cannot be noted");
                Reason::Region
            })
        });
        match attached {
            Ok(client) => {
                let client = Arc::new(client);
                self.clients.lock().insert(number, Arc::clone(&client));
                let mount = client.mount();
                if self.mounts.lock().iter().any(|linked| linked.mount == mount) {
                    return Ok(client);
                }
                // The mount has ended meanwhile, perhaps before the client was among those that end with it.
                client.finish(shared);
                self.forget(&client);
                Err(Reason::Fenced)
            }
            Err(reason) => {
                shared.files.end_client(number);
                Err(reason)
            }
        }
    }

    /// The process of a client that has finished has ended: its runs are used again.
    pub(super) fn forget(&self, client: &Client) {
        client.retire();
        self.clients.lock().remove(&client.number());
        self.roll.forget(client.number());
    }

    /// Adopts what clients append until they are served no more.
    pub(super) fn run(&self) {
        let mut tidied = self.shared.now();
        while !self.is_stopping() {
            let clients = self.all();
            for number in clients.iter().flat_map(|client| client.tend(&self.shared)) {
                self.take_back(number, Why::Expired);
            }
            if self.shared.now() - tidied > TIDY_EVERY {
                tidied = self.shared.now();
                self.shared.leases.lock().tidy(tidied);
            }
            std::thread::park_timeout(if clients.is_empty() { PAUSE_IDLE } else { PAUSE });
        }
    }

    /// Libraries are served no more. All mounts have ended.
    pub(super) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        let mounts: Vec<MountNumber> = self.mounts.lock().iter().map(|linked| linked.mount).collect();
        mounts.into_iter().for_each(|mount| self.remove(mount));
        self.roll.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forget::{Forgetter, Forgetting};
    use crate::service::Which;
    use crate::service::tests::service_of;

    #[test]
    fn what_a_machine_was_granted_before_it_was_booted_anew_is_used_again() {
        let (service, publisher) = service_of(None, Which::default());
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("files.sock");
        // Nobody looks at its bytes but for control memory.
        let region =
            File::options().create_new(true).read(true).write(true).open(directory.path().join("region"));
        let region = region.expect("a file");
        region.set_len(service.files.heap().geometry().bytes()).expect("a length");
        let forgetter = Arc::new(Forgetter::new(Forgetting::Holder(Arc::default())));
        let named = Named::Machine([7; 16]);
        let linked = Linked { mount: MountNumber(1), named, forgetter };
        let roll = Roll::create(&socket).expect("a file");
        let (files, publisher) = (Arc::clone(&service.files), Arc::new(Mutex::new(publisher)));
        let link = Link::new(files, publisher, Arc::default(), (region, roll), (&socket, vec![linked]));
        let attach = |boot| link.attach_from([boot; 16], 1, named);
        let (first, second) = (attach(1).expect("a client"), attach(1).expect("another one"));
        let unknown = link.attach_from([9; 16], 1, Named::Machine([8; 16]));
        assert!(matches!(unknown, Err(Reason::Mount)), "a mount that is not here says nothing of a boot");
        assert!(!first.is_over() && link.all().len() == 2);
        let next = attach(2).expect("a client after the next boot");
        assert!(first.is_over() && second.is_over() && !next.is_over());
        assert_eq!(link.all().len(), 1, "nothing of the others is kept");
        assert!(matches!(attach(1), Err(Reason::Fenced)), "it was said before, and has come late");
        assert!(!next.is_over() && attach(2).is_ok());
        let places = MACHINE_AREA.step_by(MACHINE_STEP).count();
        (2..places).for_each(|_| drop(attach(2).expect("there is a place")));
        assert!(matches!(attach(2), Err(Reason::Many)));
        next.finish(link.shared());
        link.forget(&next);
        let last = attach(2).expect("a place is free");
        assert_eq!(last.place(), next.place());
        link.remove(MountNumber(1));
        assert!(last.is_over() && matches!(attach(2), Err(Reason::Mount)));
    }
}
