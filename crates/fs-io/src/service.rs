//! What all workers share, and how a request waits for what it needs.

use crate::calls::{self, Begun};
use crate::clock;
use crate::common::{Common, Sharing};
use crate::errors::{self, NO_SPACE, STALE};
use crate::forget::Forgetter;
use crate::ledger::Ledger;
use crate::link::{Entered, Link};
use crate::lives::{Fate, MountId, MountNumber};
use crate::losses::Losses;
use crate::mates::{Gone, Why};
use crate::ragged::Ragged;
use crate::rounds::Rounds;
use landfall_fs::{Access, FileType, Files, FsError, InodeNumber, Mode, Name, Operation, Stat};
use landfall_fuse::{Errno, Op, OpenFlags, Opened, Reply, Request, Unique};
use landfall_heap::Until;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a request waits for space at most.
const SPACE_WAIT_MAX: Duration = Duration::from_secs(20);
/// How long it waits before it tries again without being told.
const RETRY_EVERY: Duration = Duration::from_millis(20);
/// Pause before a request to which others were faster asks for space again, at first; it doubles up to that.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// How long the kernel may keep names and attributes: nobody else changes them.
const VALID: Duration = Duration::from_secs(24 * 3600);

/// How long a worker takes at most to note a request that it has received.
const NOTE_LIMIT: Duration = Duration::from_millis(50);

/// When changes become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// With the next `fsync`, or soon.
    #[default]
    Fsync,
    /// Before the call that makes them returns.
    Always,
}

/// Whether a request makes an inode.
fn makes_inode(op: &Op<'_>) -> bool {
    matches!(
        op,
        Op::Create { .. } | Op::TmpFile { .. } | Op::MkNod { .. } | Op::MkDir { .. } | Op::Symlink { .. }
    )
}

/// What becomes of a request.
pub(crate) enum Answer {
    /// This reply.
    Now(Reply),
    /// This reply, when everything done on the inode is durable.
    Durable(InodeNumber, Reply),
    /// This reply, when everything is durable.
    AllDurable(Reply),
    /// These bytes.
    Bytes(Vec<u8>),
    /// The kernel expects no reply.
    Nothing,
}

impl Answer {
    /// The same with another reply of fixed size.
    pub(crate) fn with(self, change: impl FnOnce(Reply) -> Reply) -> Self {
        match self {
            Self::Now(reply) => Self::Now(change(reply)),
            Self::Durable(number, reply) => Self::Durable(number, change(reply)),
            Self::AllDurable(reply) => Self::AllDurable(change(reply)),
            other @ (Self::Bytes(_) | Self::Nothing) => other,
        }
    }
}

/// The result of an operation.
pub(crate) type Answered = Result<Answer, Errno>;

/// What the kernel keeps of written data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Nothing: each write is a request.
    Through,
    /// Everything, until it writes it back.
    Kept,
}

/// What there is besides where another process holds the mount, which outlives its servers.
pub(crate) enum Held {
    /// On this machine.
    Here {
        ledger: Arc<Ledger>,
        /// If the mount has had a server before this one: what that one had done, and nobody has any more.
        losses: Option<Losses>,
    },
    /// On another machine: what was done for it is in the log.
    Elsewhere(MountId),
}

impl Held {
    /// From now on the calling thread answers the requests of one of the mount's queues.
    pub(crate) fn answer_by_this_thread(&self, queue: usize) {
        match self {
            Self::Here { ledger, .. } => ledger.answer_by_this_thread(),
            // There are fewer queues than descriptors in a message.
            Self::Elsewhere(mount) => {
                calls::answer_by_this_thread(*mount, u8::try_from(queue).unwrap_or(u8::MAX));
            }
        }
    }
}

/// What the workers share.
pub(crate) struct Service {
    pub(crate) files: Arc<Files>,
    pub(crate) sync: SyncMode,
    pub(crate) written: Written,
    pub(crate) held: Option<Held>,
    /// Through which the kernel drops what it keeps.
    pub(crate) forgetter: Arc<Forgetter>,
    ragged: Ragged,
    /// Libraries in other programs, where there can be any.
    link: Option<Arc<Link>>,
    /// What it has in common with the other mounts of the files.
    pub(crate) common: Common,
    which: Which,
}

/// Which mount a service serves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Which {
    pub(crate) mount: MountNumber,
    pub(crate) sharing: Sharing,
}

impl Service {
    pub(crate) fn new(
        files: Arc<Files>,
        common: Common,
        (sync, written): (SyncMode, Written),
        (link, forgetter): (Option<Arc<Link>>, Arc<Forgetter>),
        (held, which): (Option<Held>, Which),
    ) -> Self {
        Self { files, sync, written, held, forgetter, ragged: Ragged::default(), link, common, which }
    }

    /// True if other mounts change the files, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.which.sharing == Sharing::Shared
    }

    /// How long the kernel may keep names and attributes.
    pub(crate) fn valid(&self) -> Duration {
        if self.is_shared() { Duration::ZERO } else { VALID }
    }

    /// What the kernel learns of a file that it opens. The kernel of a shared mount says when it is closed, and by which
    /// handle, since locks end then.
    pub(crate) fn opened(&self) -> Opened {
        match self.which.sharing {
            Sharing::Alone => Opened { flags: OpenFlags::KEEP_CACHE, ..Opened::default() },
            Sharing::Shared => Opened { flags: OpenFlags::DIRECT_IO, fh: self.common.locking.handle() },
        }
    }

    /// The mount.
    pub(crate) fn mount(&self) -> MountNumber {
        self.which.mount
    }

    /// The holder of a mount on another machine may keep what is found next about an inode. False if it may not.
    pub(crate) fn lease_of(&self, number: InodeNumber) -> bool {
        matches!(self.held, Some(Held::Elsewhere(_)))
            && self.common.leases.give(self.which.mount, number, Instant::now())
    }

    /// The kernel has looked an inode up once more.
    pub(crate) fn look_up(&self, number: InodeNumber) {
        self.common.lives.look_up(self.which.mount, number);
    }

    /// The kernel refers to nothing any more. Returns the orphans that no other one knows.
    pub(crate) fn forget_all(&self) -> Vec<InodeNumber> {
        self.common.lives.end_mount(self.which.mount)
    }

    /// An inode has no name.
    pub(crate) fn orphan(&self, number: InodeNumber) -> Fate {
        self.common.lives.orphan(number, |mount| self.common.mates.knows(mount, number))
    }

    /// A name does not lead to its inode any more: other mounts' kernels need not keep that.
    pub(crate) fn tell_others(&self, why: Why, (parent, name): (InodeNumber, Name<'_>), inode: InodeNumber) {
        if self.is_shared() {
            let gone = Gone { why, parent, inode, name: name.bytes().to_vec() };
            self.common.mates.tell_others(self.which.mount, &gone);
        }
    }

    /// The kernel has forgotten so many lookups of an inode.
    pub(crate) fn forget(&self, number: InodeNumber, lookups: u64) -> Fate {
        let (lives, mount) = (&self.common.lives, self.which.mount);
        // The holder of a mount on another machine knows all lookups. Those of earlier servers go first.
        let knows = |mount| !self.is_elsewhere() && self.common.mates.knows(mount, number);
        let fate = lives.forget(mount, number, lookups, knows);
        if matches!(self.held, Some(Held::Elsewhere(_))) && !lives.knows(mount, number) {
            self.common.leases.forget(mount, number, || lives.knows(mount, number));
        }
        fate
    }

    /// Before a server's first request that makes an inode, a number below all that it gives becomes durable: a next server,
    /// of this machine or another one, finds it, and gives none of those again, whatever is lost.
    ///
    /// # Errors
    /// The failure's.
    pub(crate) fn keep_numbers(&self, request: &Request<'_>) -> Result<(), Errno> {
        if !self.common.numbers.is_due() || !makes_inode(&request.op) {
            return Ok(());
        }
        let kept = self.common.numbers.keep(|| {
            let (number, mode) = (self.files.take_number(), Mode::new(FileType::File, 0));
            let create = Operation::Create { place: None, number, mode, uid: 0, gid: 0, rdev: 0 };
            self.execute_now(&create)?;
            self.end(number, Fate::Ends);
            self.files.sync_all().map_err(|error| errors::errno_of(&error))
        });
        // What was executed is no part of the request.
        Ledger::note_answering(request.unique);
        kept
    }

    /// A number for a new inode.
    pub(crate) fn take_number(&self) -> InodeNumber {
        let number = self.files.take_number();
        self.common.ledgers.note_number(number);
        number
    }

    /// A request begins to change what `find` finds. A server that has died may have begun it before.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn begin(
        &self,
        request: &Request<'_>,
        find: impl FnOnce() -> Result<[u64; 2], Errno>,
    ) -> Result<Begun, Errno> {
        match &self.held {
            Some(Held::Here { ledger, .. }) => ledger.begin(request.unique, find),
            Some(Held::Elsewhere(_)) => calls::begin(&self.files, request.unique, find),
            None => find().map(Begun::now),
        }
    }

    /// The request that this thread answers, which an earlier server had begun and not done, changes this instead.
    pub(crate) fn note_begun(&self, numbers: [u64; 2]) {
        self.ledger().iter().for_each(|ledger| ledger.note_begun(numbers));
    }

    /// A request is about to be answered by this thread.
    pub(crate) fn note_received(&self, unique: Unique) {
        match &self.held {
            Some(Held::Here { ledger, losses }) => {
                Ledger::note_answering(unique);
                if let Some(losses) = losses.as_ref().filter(|_| unique.is_resent()) {
                    losses.note_resent(unique);
                    ledger.forget_request(unique);
                }
            }
            Some(Held::Elsewhere(_)) => calls::end(),
            None => {}
        }
    }

    /// The ledger of a mount that another process of this machine holds.
    pub(crate) fn ledger(&self) -> Option<&Arc<Ledger>> {
        match &self.held {
            Some(Held::Here { ledger, .. }) => Some(ledger),
            _ => None,
        }
    }

    /// A request was answered.
    pub(crate) fn note_answered(&self, unique: Unique) {
        self.ledger().iter().for_each(|ledger| ledger.end(unique));
    }

    /// Fails once if changes of the inode were acknowledged by a server that has died, and lost with it: what is durable
    /// now is not what the caller believes.
    pub(crate) fn check_kept(&self, number: InodeNumber) -> Result<(), Errno> {
        let Some(Held::Here { ledger, losses: Some(losses) }) = &self.held else { return Ok(()) };
        if !losses.has(number) {
            return Ok(());
        }
        // What is delivered again comes first, but another worker may have it, and be slow to note it.
        std::thread::sleep(NOTE_LIMIT);
        if !losses.take(number) {
            return Ok(());
        }
        ledger.forget(number);
        tracing::warn!(inode = number.0, "changes were lost with an earlier server: fsync says EIO, once");
        Err(Errno::IO)
    }

    /// The error for a request on an inode. One that the kernel knows is gone only if it was lost with an earlier server.
    pub(crate) fn refusal(&self, number: InodeNumber, errno: Errno) -> Errno {
        let may_lose = matches!(&self.held, Some(Held::Here { losses: Some(_), .. } | Held::Elsewhere(_)));
        let is_gone = errno == Errno::NOENT && may_lose && self.exists(number) == Ok(false);
        if is_gone { STALE } else { errno }
    }

    /// True if there is such an inode.
    ///
    /// # Errors
    /// The failure's.
    pub(crate) fn exists(&self, number: InodeNumber) -> Result<bool, Errno> {
        match self.retry(|| self.files.stat(number)) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// A request works on a file as long as what this returns lives: what libraries have done to the file is in the tree,
    /// and they do nothing to it meanwhile.
    pub(crate) fn enter(&self, number: InodeNumber, access: Access) -> Option<Entered<'_>> {
        self.link.as_ref().map(|link| link.enter(number, access))
    }

    /// True if the mount is one of another machine: it sends one request at a time by each connection.
    pub(crate) fn is_elsewhere(&self) -> bool {
        matches!(self.held, Some(Held::Elsewhere(_)))
    }

    /// Libraries, where there can be any.
    pub(crate) fn libraries(&self) -> Option<&Link> {
        self.link.as_deref()
    }

    /// The socket to which libraries of this mount's programs connect, if there is one.
    pub(crate) fn socket(&self) -> Option<&Path> {
        self.link.as_ref().filter(|_| !self.is_elsewhere()).map(|link| link.socket())
    }

    /// Data of a file are not where the kernel believes.
    pub(crate) fn note_moved(&self, number: InodeNumber) {
        if !self.is_shared() {
            self.forgetter.forget_soon(number);
        }
    }

    /// A write was done.
    pub(crate) fn note_written(&self, number: InodeNumber, bytes: Range<u64>) {
        // What the kernel writes back it knows.
        if self.written == Written::Through && !self.is_shared() {
            self.ragged.note_write(number, bytes);
        }
    }

    /// The kernel has read for a program, into its cache.
    pub(crate) fn note_read(&self, number: InodeNumber, bytes: Range<u64>) {
        if !self.is_shared() && self.ragged.note_read(number, bytes) {
            self.forgetter.forget_soon(number);
        }
    }

    /// True if a library may change the file now.
    pub(crate) fn is_leased(&self, number: InodeNumber) -> bool {
        self.link.as_ref().is_some_and(|link| link.may_change(number))
    }

    /// What libraries have done is in the tree, and durable.
    pub(crate) fn adopt_all(&self) {
        if let Some(link) = &self.link {
            link.adopt_all();
        }
    }

    /// Tries until what is in the way is gone: an operation that cannot be done yet has changed nothing.
    ///
    /// # Errors
    /// `ENOSPC` when no space was made, or the failure's.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T, FsError>) -> Result<T, Errno> {
        let mut waits: Option<SpaceWait> = None;
        loop {
            let seen = self.common.rounds.progress();
            let error = match attempt() {
                Ok(done) => {
                    self.end_wait(waits.as_ref());
                    return Ok(done);
                }
                Err(error) => error,
            };
            match error.until() {
                None => return Err(errors::errno_of(&error)),
                Some(Until::Commit) => {
                    self.files.make_slab_room().map_err(|error| errors::errno_of(&error))?;
                }
                Some(Until::Ticket(_)) => {
                    self.files.sync_all().map_err(|error| errors::errno_of(&error))?;
                }
                Some(Until::Load(load)) => {
                    self.files.heap().wait_for_load(load);
                }
                Some(Until::Space) => self.wait_for_space(&mut waits, seen, &error)?,
            }
        }
    }

    /// Waits as long as the log is nearly full. A request that changes something does so before it holds a turn, or a file,
    /// which others need meanwhile.
    ///
    /// # Errors
    /// As [`Self::retry`].
    pub(crate) fn wait_for_log(&self) -> Result<(), Errno> {
        let mut wait = LogWait::default();
        loop {
            if let Some(room) = self.look_for_log_room(&mut wait) {
                return room;
            }
        }
    }

    /// Looks whether the log has room, and waits for a while if it has none: `None`. A refusal is one for all who came before the
    /// wait began.
    pub(crate) fn look_for_log_room(&self, wait: &mut LogWait) -> Option<Result<(), Errno>> {
        let seen = self.common.rounds.progress();
        if !self.files.is_log_crowded() {
            self.end_wait(wait.0.take().as_ref());
            return Some(Ok(()));
        }
        self.wait_for_space(&mut wait.0, seen, &FsError::Backlog).err().map(Err)
    }

    fn wait_for_space(&self, waits: &mut Option<SpaceWait>, seen: u64, error: &FsError) -> Result<(), Errno> {
        let rounds = &self.common.rounds;
        // Before the question: while publishing is held, or held up, its answer would say nothing.
        let is_held_up =
            matches!(error, FsError::Backlog) && (rounds.is_held_up() || self.files.is_publishing_held());
        let wait = waits.get_or_insert_with(|| SpaceWait::new(rounds, error));
        let waited = match is_held_up {
            true => wait.stand_by(rounds, seen),
            false => wait.go_on(rounds, seen, error),
        };
        waited.inspect_err(|_| self.end_wait(waits.as_ref()))
    }

    fn end_wait(&self, wait: Option<&SpaceWait>) {
        let Some(wait) = wait else { return };
        match wait.is_for_log {
            true => self.common.counters.backlog_waits.note(wait.begun),
            false => self.common.counters.space_waits.note(wait.begun),
        }
    }

    /// Waits, before a write of so many bytes, as long as it would hold those up who sync.
    pub(crate) fn keep_pace(&self, bytes: u64) {
        let begun = Instant::now();
        if self.files.keep_pace(bytes) {
            self.common.counters.pace_waits.note(begun);
        }
    }

    /// Fails with `EIO` once the medium has failed: what is changed then would never be durable.
    pub(crate) fn check_open(&self) -> Result<(), Errno> {
        self.files.heap().media().closed().map_or(Ok(()), |_| Err(Errno::IO))
    }

    /// Executes an operation at `time_ns`.
    pub(crate) fn execute(&self, time_ns: i64, operation: &Operation<'_>) -> Result<(), Errno> {
        self.check_open()?;
        self.retry(|| self.files.execute(time_ns, operation))
    }

    /// Makes an inode with extended attributes now: both or neither.
    pub(crate) fn create(&self, create: &Operation<'_>, attributes: &[Operation<'_>]) -> Result<(), Errno> {
        self.check_open()?;
        self.retry(|| self.files.create(clock::now_ns(), create, attributes))
    }

    /// Executes an operation now.
    pub(crate) fn execute_now(&self, operation: &Operation<'_>) -> Result<(), Errno> {
        self.execute(clock::now_ns(), operation)
    }

    /// An inode's attributes.
    pub(crate) fn stat(&self, number: InodeNumber) -> Result<Stat, Errno> {
        let _entered = self.enter(number, Access::Read);
        self.retry(|| self.files.stat(number))
    }

    /// The attributes of the inode with a name.
    pub(crate) fn lookup(&self, parent: InodeNumber, name: Name<'_>) -> Result<Stat, Errno> {
        let stat = self.retry(|| self.files.lookup(parent, name))?;
        // Its attributes are asked for once more when a library cannot change them.
        let may_change = self.link.is_some() && stat.inode.mode.file_type() == FileType::File;
        if may_change { self.stat(stat.number) } else { Ok(stat) }
    }

    /// The reply to a change of `number`.
    pub(crate) fn changed(&self, number: InodeNumber, reply: Reply) -> Answer {
        match self.sync {
            SyncMode::Fsync => Answer::Now(reply),
            SyncMode::Always => Answer::Durable(number, reply),
        }
    }

    /// An inode has lost a name.
    pub(crate) fn unlinked(&self, number: InodeNumber) {
        if self.stat(number).is_ok_and(|stat| stat.inode.nlink == 0) {
            self.end(number, self.orphan(number));
        }
    }

    /// Deletes an orphan to which nobody refers any more.
    pub(crate) fn end(&self, number: InodeNumber, fate: Fate) {
        if fate == Fate::Lives {
            return;
        }
        if self.release(number).is_err() {
            self.common.unreleased.lock().push(number);
        }
    }

    fn release(&self, number: InodeNumber) -> Result<(), FsError> {
        let _entered = self.enter(number, Access::Write);
        self.files.execute(clock::now_ns(), &Operation::Release { number })
    }

    /// Deletes orphans that could not be deleted when nobody referred to them any more. Returns how many are deleted. What
    /// is left when the mount ends is deleted at the next start.
    pub(crate) fn release_left(&self) -> usize {
        let left = std::mem::take(&mut *self.common.unreleased.lock());
        let count = left.len();
        let still: Vec<InodeNumber> =
            left.into_iter().filter(|number| self.release(*number).is_err()).collect();
        let released = count - still.len();
        self.common.unreleased.lock().extend(still);
        released
    }
}

/// A request waits for space, in the region or in the log.
struct SpaceWait {
    question: u64,
    begun: Instant,
    /// Since when somebody could have made space.
    since: Instant,
    /// Nobody could when the question was asked: its answer says nothing.
    was_held: bool,
    is_for_log: bool,
    /// Both background threads have found nothing more to do: the next attempt is the last one, unless it finds that others
    /// have taken what they had made.
    is_last: bool,
    /// Before it asks again.
    pause: Duration,
}

/// How long room in the log has been waited for.
#[derive(Default)]
pub(crate) struct LogWait(Option<SpaceWait>);

impl LogWait {
    /// True if it began before that.
    pub(crate) fn began_before(&self, time: Instant) -> bool {
        self.0.as_ref().is_some_and(|wait| wait.begun < time)
    }
}

impl SpaceWait {
    fn new(rounds: &Rounds, error: &FsError) -> Self {
        let is_for_log = matches!(error, FsError::Backlog);
        let (question, begun) = (rounds.ask(), Instant::now());
        Self {
            question,
            begun,
            since: begun,
            was_held: false,
            is_for_log,
            is_last: false,
            pause: ASK_AGAIN_AFTER,
        }
    }

    /// Waits while nothing is published, as another machine is copied to, or does not answer. That nobody makes room says
    /// nothing then.
    ///
    /// # Errors
    /// `ENOSPC`: the mount ends.
    fn stand_by(&mut self, rounds: &Rounds, seen: u64) -> Result<(), Errno> {
        if rounds.is_stopping() {
            return Err(NO_SPACE);
        }
        (self.since, self.was_held, self.is_last) = (Instant::now(), true, false);
        rounds.wait(seen, RETRY_EVERY);
        Ok(())
    }

    /// Waits for progress after `seen`. `error`: that of the attempt before.
    ///
    /// # Errors
    /// `ENOSPC`: there will be none.
    fn go_on(&mut self, rounds: &Rounds, seen: u64, error: &FsError) -> Result<(), Errno> {
        // There is still something that compaction could free: nothing was to be done because enough was free, and others were
        // faster.
        let is_obtainable = matches!(error, FsError::Wait(_));
        if self.since.elapsed() > SPACE_WAIT_MAX || self.is_last && !is_obtainable {
            return Err(NO_SPACE);
        }
        if std::mem::take(&mut self.was_held) {
            self.question = rounds.ask();
        }
        if std::mem::take(&mut self.is_last) {
            // Where nothing comes of it, this must not keep the threads from their pauses.
            std::thread::sleep(self.pause);
            self.pause = (self.pause * 2).min(RETRY_EVERY);
            self.question = rounds.ask();
        }
        self.is_last = rounds.is_answered(self.question);
        if !self.is_last {
            rounds.wait(seen, RETRY_EVERY);
        }
        Ok(())
    }
}

/// The inode that the kernel names by a node.
pub(crate) fn number_of(node: landfall_fuse::Node) -> InodeNumber {
    InodeNumber(node.0)
}

/// A name of a directory entry.
pub(crate) fn name_of(name: &OsStr) -> Result<Name<'_>, Errno> {
    Name::new(name.as_bytes()).map_err(errors::of_name)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::forget::Forgetting;
    use crate::rounds::Job;
    use landfall_fs::{Attributes, BACKLOG_OPERATIONS, FilesRecovery, OpenFiles, Publisher};
    use landfall_heap::{HeapError, NewRegion, Region, Tenant};
    use landfall_media::sim::{SimMedia, SimOptions};
    use landfall_media::{Media, RUN_SIZE};
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The service of a mount, which is held so, of new files in memory.
    pub(crate) fn service_of(held: Option<Held>, which: Which) -> (Service, Publisher) {
        service_on(SimMedia::new(64 * RUN_SIZE, SimOptions::default()), held, which)
    }

    /// As [`service_of`], on a medium that may fail.
    pub(crate) fn service_on(media: Arc<SimMedia>, held: Option<Held>, which: Which) -> (Service, Publisher) {
        let new = NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 3 };
        landfall_heap::create(&*media, &new).expect("a new region");
        let recovery = Arc::new(FilesRecovery::default());
        let tenants = vec![Arc::clone(&recovery) as Arc<dyn Tenant>];
        let (heap, _) = Region::run(media as Arc<dyn Media>, tenants).expect("opens");
        let (now_ns, identity, mode) = (1, [7; 16], 0o755);
        let options =
            OpenFiles { now_ns, identity, mode, uid: 0, gid: 0, log_writer: 249, publish_writer: 250 };
        let (files, publisher, _) = recovery.open(&heap, &options).expect("opens");
        let modes = (SyncMode::Fsync, Written::Through);
        let forgetter = Arc::new(Forgetter::new(Forgetting::Holder(Arc::default())));
        (Service::new(files, Common::default(), modes, (None, forgetter), (held, which)), publisher)
    }

    #[test]
    fn a_request_waits_while_too_much_of_the_log_is_not_published_and_is_counted() {
        let (service, mut publisher) = service_of(None, Which::default());
        let attributes = Attributes { uid: Some(7), ..Attributes::default() };
        let change = Operation::SetAttributes { number: InodeNumber::ROOT, attributes };
        while service.files.log_len().0 < BACKLOG_OPERATIONS as u64 {
            service.execute(1, &change).expect("the log has room");
        }
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| service.execute(2, &change));
            while !service.common.rounds.is_asked(Job::Publish) {
                std::thread::yield_now();
            }
            assert!(!waiting.is_finished(), "nothing is published");
            publisher.step().expect("publishes");
            service.common.rounds.note_progress();
            waiting.join().expect("no panic").expect("the log has room again");
        });
        assert_eq!(
            (service.common.counters.backlog_waits.count(), service.common.counters.space_waits.count()),
            (1, 0)
        );
        assert_eq!(service.files.log_len().0, 1);
    }

    /// While another machine is copied to, nothing is published, and both threads have nothing to do.
    #[test]
    fn a_request_waits_for_room_in_the_log_as_long_as_publishing_is_held() {
        let (service, _publisher) = service_of(None, Which::default());
        let (attempts, since) = (AtomicU64::new(0), AtomicU64::new(0));
        // When publishing goes on, the log has still more than otherwise.
        let attempt = || {
            attempts.fetch_add(1, Ordering::Relaxed);
            let is_over = !service.files.is_publishing_held() && since.fetch_add(1, Ordering::Relaxed) >= 3;
            if is_over { Ok(()) } else { Err(FsError::Backlog) }
        };
        assert!(service.files.hold_publishing());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| service.retry(attempt));
            while attempts.load(Ordering::Relaxed) < 10 && !waiting.is_finished() {
                let asked = service.common.rounds.asked();
                [Job::Publish, Job::Keep]
                    .into_iter()
                    .for_each(|job| service.common.rounds.answer(job, asked));
            }
            service.files.publish_again();
            assert_eq!(waiting.join().expect("no panic"), Ok(()));
        });
    }

    #[test]
    fn a_step_of_publishing_that_takes_long_is_waited_for() {
        let (service, _publisher) = service_of(None, Which::default());
        let rounds = &service.common.rounds;
        let long_ago =
            Instant::now().checked_sub(SPACE_WAIT_MAX * 2).expect("the machine has run for a minute");
        let has_waited = || Some(SpaceWait { since: long_ago, ..SpaceWait::new(rounds, &FsError::Backlog) });
        let wait = |mut wait: Option<SpaceWait>| {
            let seen = rounds.progress();
            let waited = service.wait_for_space(&mut wait, seen, &FsError::Backlog);
            waited.map(|()| wait.expect("it waits").since)
        };
        rounds.publish_since(long_ago, || {
            let since = wait(has_waited()).expect("another machine may answer soon");
            assert!(since > long_ago, "the time does not count");
        });
        assert_eq!(wait(has_waited()), Err(NO_SPACE));
    }

    /// Each time both threads had nothing to do, as enough was free, and others had taken it before this request came.
    #[test]
    fn who_finds_that_others_were_faster_asks_for_space_again() {
        let (service, _publisher) = service_of(None, Which::default());
        [Job::Publish, Job::Keep].into_iter().for_each(|job| service.common.rounds.end_answers(job));
        let mut errors = (0..5).map(|_| FsError::Wait(Until::Space));
        assert_eq!(service.retry(|| errors.next().map_or(Ok(7), Err)), Ok(7));
        let asked = service.common.rounds.asked();
        assert!(asked >= 3, "{asked}");
        let full = service.retry(|| Err::<(), _>(FsError::Heap(HeapError::Full)));
        assert_eq!((full, service.common.rounds.asked()), (Err(NO_SPACE), asked + 1));
    }
}
