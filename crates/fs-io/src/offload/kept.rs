//! Ledgers of mounts on other machines, in files among the server's notes: a server that comes back knows what the one
//! before had begun for them (`docs/format/fs-network.md`, "A server that is away").
//!
//! They are memory of the machine: nothing is synced, and what an earlier start of the machine has left does not count.

use super::message::ServerLife;
use crate::ledger::{Ledger, Origin, Unheard};
use crate::lives::MountId;
use crate::notes::{forget, with_ending};
use std::collections::VecDeque;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ending of the directory's name.
const ENDING: &str = ".ledgers";
/// Ending of a file that is not complete.
const NEW: &str = "new";
/// Mounts that may come back, at most: twice as many as are served at a time.
const AWAY_MAX: usize = 32;
/// Names the start of the machine.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The directory among these notes.
pub(super) fn ledgers_of(notes: &Path) -> PathBuf {
    with_ending(notes, ENDING)
}

/// The name of this start of the machine.
///
/// # Errors
/// The kernel does not say it.
pub(super) fn boot_name() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string(BOOT)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16);
    number.map(u128::to_le_bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Nobody knows any more what was begun for mounts on other machines.
///
/// # Errors
/// A ledger is there, and cannot be removed.
pub(super) fn forget_ledgers(directory: &Path) -> io::Result<()> {
    files_in(directory)?.iter().try_for_each(|file| forget(file))?;
    remove_if_empty(directory);
    Ok(())
}

/// Whether a mount may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Return {
    /// Its holder has said that it has ended.
    Never,
    Perhaps,
    /// It is back already.
    Now,
}

/// A mount that is not served, and may come back.
struct Away {
    mount: MountId,
    /// Whose its ledger is.
    origin: Origin,
    /// What was begun.
    requests: Vec<Unheard>,
}

impl Away {
    fn of(mount: MountId, ledger: &Ledger) -> Self {
        Self { mount, origin: ledger.origin(), requests: ledger.unheard() }
    }

    /// True if what the server `last` has begun is known.
    fn knows(&self, last: ServerLife) -> bool {
        last != ServerLife::default() && [self.origin.life, self.origin.before].contains(&last)
    }
}

/// The ledgers of mounts on other machines.
pub(super) struct KeptLedgers {
    directory: PathBuf,
    /// Of this server.
    origin: Origin,
    /// Who has ended last is the last one.
    away: VecDeque<Away>,
}

impl KeptLedgers {
    /// What an earlier server has left, if recovery has found the operations below `log_end`. `None`: another machine may have
    /// changed the files since.
    pub(super) fn open(directory: PathBuf, origin: Origin, log_end: Option<u64>) -> Self {
        let found = |file: &PathBuf| log_end.and_then(|log_end| found(file, &origin, log_end));
        let files = files_in(&directory).unwrap_or_else(|error| {
            tracing::warn!(%error, directory = %directory.display(), "ledgers of an earlier server cannot be read");
            Vec::new()
        });
        let mut kept = Self { directory, origin, away: VecDeque::new() };
        for file in files {
            match found(&file) {
                Some(found) => kept.add(found),
                None => remove(&file),
            }
        }
        remove_if_empty(&kept.directory);
        kept
    }

    /// A ledger of requests for a mount that is about to be served. Its holder has heard of the server `last`, and of no later
    /// one; `true`: what that had begun is in the ledger. If there can be no file, the next server knows nothing of the mount.
    ///
    /// # Errors
    /// There is no memory, or an older file of the mount cannot be removed.
    pub(super) fn lend(&mut self, mount: MountId, last: ServerLife) -> io::Result<(Ledger, bool)> {
        let at = self.away.iter().position(|away| away.mount == mount);
        let away = at.and_then(|at| self.away.remove(at));
        let known = away.as_ref().filter(|away| away.knows(last));
        let origin = Origin { before: known.map_or(ServerLife::default(), |_| last), ..self.origin };
        let (follows, requests) = (known.is_some(), known.map_or(&[][..], |away| &away.requests));
        let ledger = self.write(mount, &origin, requests).or_else(|error| {
            tracing::warn!(
                %error,
                directory = %self.directory.display(),
                "no ledger can be kept: calls of a mount on another machine may fail when this server is killed"
            );
            forget(&self.file_of(mount))?;
            Ledger::in_memory(&origin).inspect(|ledger| ledger.take_over(requests))
        })?;
        Ok((ledger, follows))
    }

    fn write(&self, mount: MountId, origin: &Origin, requests: &[Unheard]) -> io::Result<Ledger> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let file = self.file_of(mount);
        let new = file.with_extension(NEW);
        forget(&new)?;
        let written = Ledger::create(&new, origin).and_then(|ledger| {
            ledger.take_over(requests);
            std::fs::rename(&new, &file)?;
            Ok(ledger)
        });
        written.inspect_err(|_| remove(&new))
    }

    /// A mount is not served any more, and nobody writes to its ledger.
    pub(super) fn take_back(&mut self, mount: MountId, ledger: &Ledger, returns: Return) {
        if returns == Return::Never {
            return self.remove(mount);
        }
        self.add(Away::of(mount, ledger));
    }

    /// The oldest one makes way.
    fn add(&mut self, away: Away) {
        if self.away.len() >= AWAY_MAX
            && let Some(oldest) = self.away.pop_front()
        {
            self.remove(oldest.mount);
        }
        self.away.push_back(away);
    }

    fn remove(&self, mount: MountId) {
        remove(&self.file_of(mount));
        remove_if_empty(&self.directory);
    }

    fn file_of(&self, mount: MountId) -> PathBuf {
        self.directory.join(format!("{:032x}", u128::from_le_bytes(mount)))
    }
}

/// The files in a directory, if there is one, by when they were changed.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let changed = |path: &PathBuf| {
        let changed = path.metadata().and_then(|metadata| metadata.modified());
        changed.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    files.sort_by_cached_key(changed);
    Ok(files)
}

/// What an earlier server on the same files has left, since the machine has started. Indices of the log are used again, so
/// that what is lost is lost for every further server.
fn found(file: &Path, origin: &Origin, log_end: u64) -> Option<Away> {
    let name = file.file_name()?.to_str().filter(|name| name.len() == 2 * size_of::<MountId>())?;
    let mount = u128::from_str_radix(name, 16).ok()?.to_le_bytes();
    let ledger = Ledger::find(file).ok()?;
    let Origin { region, boot, .. } = ledger.origin();
    if (region, boot) != (origin.region, origin.boot) {
        return None;
    }
    ledger.settle(log_end);
    Some(Away::of(mount, &ledger))
}

fn remove(file: &Path) {
    if let Err(error) = forget(file) {
        tracing::warn!(%error, file = %file.display(), "a ledger cannot be removed");
    }
}

/// Whoever has something in the directory keeps it.
fn remove_if_empty(directory: &Path) {
    let _ = std::fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_fuse::Unique;

    const MOUNT: MountId = [0xab; 16];
    const OTHER: MountId = [0xcd; 16];
    const NOBODY: ServerLife = [0; 16];
    const AGAIN: u64 = 1 << 63;

    fn server(life: u8) -> Origin {
        Origin { life: [life; 16], region: [7; 16], boot: [8; 16], before: NOBODY }
    }

    /// The ledger of a mount whose holder has heard of the server `last`, which the server that is asked follows, or does not.
    fn lent(kept: &mut KeptLedgers, last: u8, follows: bool) -> Ledger {
        let (ledger, follows_it) = kept.lend(MOUNT, [last; 16]).expect("a ledger");
        assert_eq!(follows_it, follows);
        ledger
    }

    /// A thread begins a request, whose first operation the log has below `end`, and is killed.
    fn begin(ledger: &Ledger, unique: u64, end: u64) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                Ledger::note_answering(Unique(unique));
                ledger.begin(Unique(unique), || Ok::<_, ()>([unique, 0])).expect("numbers");
                ledger.appending(Some(end));
            });
        });
    }

    /// Whether a request that is delivered again was begun, and done.
    fn again(ledger: &Ledger, unique: u64) -> Option<bool> {
        let begun = ledger.begin(Unique(unique | AGAIN), || Err(())).ok()?;
        assert_eq!(begun.numbers, [unique, 0]);
        Some(begun.is_done)
    }

    fn count(directory: &Path) -> usize {
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    }

    #[test]
    fn the_next_server_knows_what_one_that_was_killed_had_begun() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = ledgers_of(&dir.path().join("offload.sock"));
        assert_eq!(directory, dir.path().join("offload.sock.ledgers"));
        let mut first = KeptLedgers::open(directory.clone(), server(1), Some(0));
        let ledger = lent(&mut first, 0, false);
        assert_eq!(first.file_of(MOUNT).metadata().expect("a file").len(), 32_896, "requests only");
        begin(&ledger, 2, 10);
        begin(&ledger, 4, 11);
        // The second one has settled them, serves nobody, and is killed, too. Indices are used again.
        drop(KeptLedgers::open(directory.clone(), server(2), Some(10)));
        let mut third = KeptLedgers::open(directory.clone(), server(3), Some(20));
        let found = lent(&mut third, 1, true);
        assert_eq!([2, 4, 6].map(|unique| again(&found, unique)), [Some(true), Some(false), None]);
        // Whether the holder has heard of the third one or not.
        let mut fourth = KeptLedgers::open(directory.clone(), server(4), Some(20));
        let found = lent(&mut fourth, 1, true);
        fourth.take_back(MOUNT, &found, Return::Perhaps);
        let mut fifth = KeptLedgers::open(directory, server(5), Some(20));
        let found = lent(&mut fifth, 4, true);
        assert_eq!(again(&found, 2), Some(true));
        fifth.take_back(MOUNT, &found, Return::Never);
        assert_eq!(count(dir.path()), 0, "nothing is left of a mount that has ended");
    }

    #[test]
    fn what_the_same_server_has_executed_is_done_until_it_is_lost_with_that_server() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("ledgers");
        let mut first = KeptLedgers::open(directory.clone(), server(1), Some(0));
        let ledger = lent(&mut first, 0, false);
        begin(&ledger, 2, 10);
        first.take_back(MOUNT, &ledger, Return::Perhaps);
        assert_eq!(again(&lent(&mut first, 1, true), 2), Some(true));
        let mut second = KeptLedgers::open(directory, server(2), Some(9));
        assert_eq!(again(&lent(&mut second, 1, true), 2), Some(false));
    }

    #[test]
    fn servers_of_which_the_holder_has_not_heard_leave_what_they_have_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("ledgers");
        let mut first = KeptLedgers::open(directory.clone(), server(1), Some(0));
        begin(&lent(&mut first, 0, false), 2, 10);
        for life in 2..5 {
            let mut next = KeptLedgers::open(directory.clone(), server(life), Some(10));
            let ledger = lent(&mut next, 1, true);
            next.take_back(MOUNT, &ledger, Return::Perhaps);
            assert_eq!(again(&lent(&mut next, 1, true), 2), Some(true));
        }
        let mut last = KeptLedgers::open(directory, server(5), Some(10));
        let elsewhere = lent(&mut last, 9, false);
        assert_eq!(again(&elsewhere, 2), None, "another server has served the mount since");
    }

    #[test]
    fn ledgers_of_other_files_or_of_another_start_of_the_machine_are_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("ledgers");
        let left = || {
            let mut first = KeptLedgers::open(directory.clone(), server(1), Some(0));
            begin(&lent(&mut first, 0, false), 2, 10);
        };
        let knows = |origin: Origin, log_end: Option<u64>| {
            left();
            let mut next = KeptLedgers::open(directory.clone(), origin, log_end);
            let (ledger, follows) = next.lend(MOUNT, [1; 16]).expect("a ledger");
            (follows, again(&ledger, 2))
        };
        assert_eq!(knows(server(2), Some(20)), (true, Some(true)));
        let nobody = (false, None);
        assert_eq!(knows(Origin { region: [9; 16], ..server(2) }, Some(20)), nobody);
        assert_eq!(knows(Origin { boot: [9; 16], ..server(2) }, Some(20)), nobody);
        assert_eq!(knows(server(2), None), nobody, "another machine may have changed the files");
        left();
        forget_ledgers(&directory).expect("no files");
        assert_eq!(count(dir.path()), 0);
        forget_ledgers(&directory).expect("there is nothing to forget");
        std::fs::create_dir(&directory).expect("a directory");
        for name in ["short", &"x".repeat(32), &format!("{:032x}.new", 1)] {
            std::fs::write(directory.join(name), "no ledger").expect("a file");
        }
        KeptLedgers::open(directory, server(2), Some(20));
        assert_eq!(count(dir.path()), 0);
    }

    #[test]
    fn without_a_file_only_the_same_server_knows() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("no").join("ledgers");
        let mut first = KeptLedgers::open(directory.clone(), server(1), Some(0));
        let ledger = lent(&mut first, 0, false);
        begin(&ledger, 2, 10);
        first.take_back(MOUNT, &ledger, Return::Perhaps);
        assert_eq!(again(&lent(&mut first, 1, true), 2), Some(true));
        let mut second = KeptLedgers::open(directory, server(2), Some(20));
        assert_eq!(again(&lent(&mut second, 1, false), 2), None);
    }

    #[test]
    fn of_many_mounts_those_that_have_ended_last_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let directory = dir.path().join("ledgers");
        let mut kept = KeptLedgers::open(directory.clone(), server(1), Some(0));
        let mut end = |mount: MountId| {
            let (ledger, follows) = kept.lend(mount, [1; 16]).expect("a ledger");
            kept.take_back(mount, &ledger, Return::Perhaps);
            follows
        };
        assert_eq!([end(MOUNT), end(OTHER), end(MOUNT)], [false, false, true]);
        (0..AWAY_MAX as u8 - 1).for_each(|mount| _ = end([mount; 16]));
        assert_eq!([end(MOUNT), end(OTHER)], [true, false]);
        assert_eq!(count(&directory), AWAY_MAX);
    }

    #[test]
    fn a_start_of_the_machine_has_one_name() {
        let name = boot_name().expect("a name");
        assert_eq!(boot_name().expect("a name"), name);
        assert_ne!(name, NOBODY);
    }
}
