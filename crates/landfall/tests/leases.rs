//! What a mount on another machine keeps of the files, and that nobody sees what was changed since.

mod common;

use common::chain::LIMIT;
use common::far::{Far, Network, served, served_by};
use common::mounts::OverAt;
use common::{mount_metric, pattern, wait_until};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a trial without trouble lasts.
const TRIAL: Duration = Duration::from_secs(2);
/// How long a holder is away: longer than its leases hold.
const AWAY: Duration = Duration::from_millis(1500);

/// Something that is changed again and again. It has as many states as there were changes.
struct Subject {
    what: What,
    /// Changes that have begun, and those that are done.
    begun: AtomicU64,
    done: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The bytes of a file.
    Data,
    /// The length of a file.
    Length,
    /// The permissions of a file.
    Permissions,
    /// The name of a file: its number.
    Name,
    /// Another name of a file, which is there or not, and counts.
    Links,
    /// Files in a directory: one for each change.
    Entries,
}

const ALL: [What; 6] = [What::Data, What::Length, What::Permissions, What::Name, What::Links, What::Entries];

impl What {
    fn directory(self, root: &Path) -> PathBuf {
        root.join(format!("{self:?}"))
    }

    fn make(self, root: &Path) -> io::Result<()> {
        let directory = self.directory(root);
        fs::create_dir(&directory)?;
        match self {
            Self::Entries => Ok(()),
            Self::Name => File::create(directory.join("0")).map(drop),
            _ => {
                let file = File::create(directory.join("file"))?;
                file.write_all_at(&[0; 8], 0)?;
                file.set_permissions(Permissions::from_mode(mode_of(0)))
            }
        }
    }

    /// Changes it to its next state.
    fn change(self, root: &Path, state: u64) -> io::Result<()> {
        let directory = self.directory(root);
        let file = directory.join("file");
        let open = || OpenOptions::new().write(true).open(&file);
        match self {
            Self::Data => open()?.write_all_at(&state.to_le_bytes(), 0),
            Self::Length => open()?.set_len(8 + state),
            Self::Permissions => fs::set_permissions(&file, Permissions::from_mode(mode_of(state))),
            Self::Name => {
                fs::rename(directory.join((state - 1).to_string()), directory.join(state.to_string()))
            }
            Self::Links if state % 2 == 1 => fs::hard_link(&file, directory.join("other")),
            Self::Links => fs::remove_file(directory.join("other")),
            Self::Entries => File::create_new(directory.join(state.to_string())).map(drop),
        }
    }

    /// Looks whether its state is one from `first` to `last`.
    fn check(self, root: &Path, first: u64, last: &dyn Fn() -> u64) -> Result<(), String> {
        let directory = self.directory(root);
        let file = directory.join("file");
        let failed = |error: io::Error| format!("{self:?}: {error}");
        let stat = || fs::metadata(&file).map_err(failed);
        let within = |state: u64| {
            let last = last();
            let is_within = (first..=last).contains(&state);
            if is_within { Ok(()) } else { Err(format!("{self:?}: {state} is not in {first}..={last}")) }
        };
        match self {
            Self::Data => {
                let bytes = fs::read(&file).map_err(failed)?;
                within(u64::from_le_bytes(*bytes.first_chunk().ok_or("it is short")?))
            }
            Self::Length => within(stat()?.len() - 8),
            Self::Permissions => {
                let mode = stat()?.mode() & 0o777;
                let last = last();
                let is_one = (first..=last).any(|state| mode_of(state) == mode);
                if is_one { Ok(()) } else { Err(format!("{self:?}: {mode:o} is none of {first}..={last}")) }
            }
            Self::Name => {
                let is_old = first > 0 && directory.join((first - 1).to_string()).exists();
                let is_there = directory.join(first.to_string()).exists();
                match (is_old, is_there) {
                    (true, _) => Err(format!("{self:?}: the name before {first} is there")),
                    (_, false) if last() == first => Err(format!("{self:?}: {first} is not there")),
                    _ => Ok(()),
                }
            }
            Self::Links => {
                let (links, last) = (stat()?.nlink(), last());
                let is_right = first != last || links == 1 + first % 2;
                if is_right { Ok(()) } else { Err(format!("{self:?}: {links} in {first}..={last}")) }
            }
            Self::Entries => {
                if first > 0 && !directory.join(first.to_string()).exists() {
                    return Err(format!("{self:?}: {first} is not there"));
                }
                within(fs::read_dir(&directory).map_err(failed)?.count() as u64)
            }
        }
    }
}

fn mode_of(state: u64) -> u32 {
    0o400 | u32::try_from(state % 64).unwrap()
}

impl Subject {
    fn new(what: What) -> Self {
        Self { what, begun: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// Changes it by one mount or another, until it is over.
    fn go_on(&self, roots: &[PathBuf], is_over: &AtomicBool) {
        while !is_over.load(Ordering::Acquire) {
            let state = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
            // Runs of changes by the same mount, and turns.
            let at = usize::try_from(state / 3 * 7 + state % 2).unwrap() % roots.len();
            let changed = self.what.change(&roots[at], state);
            changed.unwrap_or_else(|error| panic!("{:?} to {state} by {at}: {error}", self.what));
            self.done.store(state, Ordering::Release);
        }
    }
}

/// Changes everything by all mounts, and looks at everything by all of them meanwhile. Nobody sees what was changed before it
/// looked, whatever `trouble` there is. Returns how often was looked.
fn all_see_the_same(roots: &[PathBuf], trouble: impl FnOnce()) -> u64 {
    ALL.iter().for_each(|what| what.make(&roots[0]).unwrap());
    let (subjects, is_over) = (ALL.map(Subject::new), AtomicBool::new(false));
    let looked = AtomicU64::new(0);
    let look = |root: &Path| {
        while !is_over.load(Ordering::Acquire) {
            for subject in &subjects {
                let first = subject.done.load(Ordering::Acquire);
                let last = || subject.begun.load(Ordering::Acquire);
                let seen = subject.what.check(root, first, &last);
                seen.unwrap_or_else(|why| panic!("{}: {why}", root.display()));
                looked.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let (is_over, ends) = (&is_over, OverAt::new(&is_over, roots.iter().map(PathBuf::as_path)));
        let mut threads = Vec::new();
        for subject in &subjects {
            threads.push(scope.spawn(move || subject.go_on(roots, is_over)));
        }
        for root in roots {
            threads.push(scope.spawn(|| look(root)));
        }
        trouble();
        drop(ends);
        let failed: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().err()).collect();
        assert!(failed.is_empty());
    });
    assert!(subjects.iter().all(|subject| subject.done.load(Ordering::Acquire) > 5), "it stands still");
    let recalls = counted(&roots[0], &["landfall_fs_leases_elsewhere_recalls_total".into()]);
    assert!(recalls > 0, "nobody has kept anything");
    looked.into_inner()
}

#[test]
fn what_was_changed_on_one_machine_is_seen_on_all_others() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let near = site.shared_mount(site.point.path());
    let network = Network::before(address);
    let (first, second) = (Far::mount(&[address], &[]), Far::mount(&[network.address], &[]));
    let roots = [&site.point, &first.point, &second.point].map(|point| point.path().to_owned());
    let looked = all_see_the_same(&roots, || {
        std::thread::sleep(TRIAL);
        // A holder that does not run cannot drop anything.
        for _ in 0..2 {
            first.process().signal("STOP");
            std::thread::sleep(AWAY);
            first.process().signal("CONT");
        }
        for _ in 0..3 {
            network.cut();
            network.mend();
            std::thread::sleep(AWAY / 10);
        }
        // One that hears of everything, and of which nobody hears.
        network.slow_down();
        std::thread::sleep(AWAY);
        network.lose();
        std::thread::sleep(AWAY / 5);
        network.deliver();
        std::thread::sleep(AWAY / 5);
    });
    assert!(looked > 100, "{looked}");
    [first, second].into_iter().for_each(Far::stop);
    near.stop();
    server.stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn nobody_sees_what_was_changed_while_servers_are_killed() {
    let Some((site, address)) = served_by(&["--sync", "always"]) else { return };
    let mut server = Some(site.server());
    let (first, second) = (Far::mount(&[address], &[]), Far::mount(&[address], &[]));
    let roots = [&first.point, &second.point].map(|point| point.path().to_owned());
    all_see_the_same(&roots, || {
        for _ in 0..3 {
            std::thread::sleep(AWAY / 3);
            server.take().expect("it runs").kill();
            server = Some(site.server());
        }
        std::thread::sleep(AWAY);
    });
    [first, second].into_iter().for_each(Far::stop);
    server.expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

/// The sum of some of the server's counters.
fn counted(root: &Path, names: &[String]) -> u64 {
    let value = |name: &String| mount_metric(root, name).unwrap_or_else(|| panic!("no {name}"));
    names.iter().map(value).sum()
}

/// Requests for names, attributes and data that the server has answered.
fn asked(root: &Path) -> u64 {
    let kinds = ["lookup", "attributes", "read", "names"];
    counted(root, &kinds.map(|kind| format!("landfall_fs_requests_total{{kind=\"{kind}\"}}")))
}

/// Requests that the server has answered for what `look` does. `near` is a mount at which nobody else does anything.
fn requests_of(near: &Path, look: impl FnOnce()) -> u64 {
    let first = asked(near);
    // What asks for the count counts as well.
    let of_asking = asked(near) - first;
    let before = asked(near);
    look();
    (asked(near) - before).saturating_sub(of_asking)
}

/// Looks again and again, until that needs no request: the mount has leases of all.
fn wait_until_it_asks_nothing(near: &Path, look: impl Fn()) {
    let asks_nothing = || (requests_of(near, &look) == 0).then_some(());
    wait_until(LIMIT, asks_nothing).expect("it has leases soon");
}

#[test]
fn a_machine_that_hears_nothing_shows_nothing_old() {
    let Some((site, address)) = served() else { return };
    let (server, network) = (site.server(), Network::before(address));
    let (far, near) = (Far::mount(&[network.address], &[]), site.shared_mount(site.point.path()));
    fs::write(site.at("file"), b"old").unwrap();
    wait_until_it_asks_nothing(site.point.path(), || assert_eq!(fs::read(far.at("file")).unwrap(), b"old"));
    network.deafen();
    let begun = Instant::now();
    fs::write(site.at("file"), b"new").unwrap();
    assert!(begun.elapsed() > AWAY / 10, "it cannot know that the machine has dropped what it had");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| fs::read(far.at("file")).unwrap());
        std::thread::sleep(AWAY / 10);
        network.hear();
        assert_eq!(reader.join().unwrap(), b"new");
    });
    far.stop();
    near.stop();
    server.stop();
}

#[test]
fn what_nobody_has_changed_is_not_asked_for_again() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let (far, other) = (Far::mount(&[address], &[]), Far::mount(&[address], &["--cache", "0"]));
    let (near, bytes) = (site.shared_mount(site.point.path()), pattern(1, 100_000));
    fs::create_dir_all(far.at("a/b")).unwrap();
    fs::write(far.at("a/b/file"), &bytes).unwrap();
    symlink("a/b/file", far.at("link")).unwrap();
    let look = |mount: &Far| {
        assert!(fs::read(mount.at("link")).unwrap() == bytes);
        assert!(!mount.at("a/none").exists());
        assert_eq!(fs::read_dir(mount.at("a")).unwrap().count(), 1);
    };
    wait_until_it_asks_nothing(site.point.path(), || look(&far));
    assert!(requests_of(site.point.path(), || look(&other)) > 10, "it keeps nothing");
    // Each change is seen at once.
    fs::write(other.at("a/none"), b"one").unwrap();
    assert_eq!(fs::read(far.at("a/none")).unwrap(), b"one");
    fs::write(site.at("a/b/file"), b"changed").unwrap();
    assert_eq!(fs::read(far.at("link")).unwrap(), b"changed");
    fs::remove_file(far.at("link")).unwrap();
    assert!(!far.at("link").exists() && !other.at("link").exists());
    [far, other].into_iter().for_each(Far::stop);
    near.stop();
    server.stop();
}
