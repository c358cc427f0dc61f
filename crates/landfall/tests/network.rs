//! Mounts on other machines: `landfall fs mount --server`, of `landfall fs serve --listen` and `landfall serve
//! --files-listen`.

mod common;

use common::chain::{Chain, InEtcd, LIMIT};
use common::far::{Far, Network, leaked, served, served_by};
use common::mounts::{OverAt, Process, wait_until_it_ends};
use common::{Place, Server, binary, can_mount, landfall, ok, own_address, pattern, wait_until};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// T of a chain in etcd, seconds: the shortest.
const T: u64 = 4;
/// Bytes of what a writer makes durable at a time.
const BLOCK: usize = 4096;

/// All files below a directory, with what `stat` says of them and their bytes.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, u64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let bytes = match stat.is_dir() {
                true => Vec::new(),
                false => fs::read(&path).unwrap(),
            };
            if stat.is_dir() {
                open.push(path.clone());
            }
            let links = if stat.is_dir() { 0 } else { stat.nlink() };
            found.insert(path.strip_prefix(root).unwrap().to_owned(), (stat.mode(), links, bytes));
        }
    }
    found
}

#[test]
fn mounts_here_and_elsewhere_show_the_same_files_at_once() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let near = site.shared_mount(site.point.path());
    let (first, second) = (Far::mount(&[address], &[]), Far::mount(&[address], &[]));
    fs::create_dir(first.at("d")).unwrap();
    fs::write(second.at("d/a"), pattern(1, 300_000)).unwrap();
    assert!(fs::read(site.at("d/a")).unwrap() == pattern(1, 300_000));
    fs::rename(site.at("d/a"), site.at("d/b")).unwrap();
    assert!(!first.at("d/a").exists() && first.at("d/b").exists());
    fs::hard_link(second.at("d/b"), second.at("linked")).unwrap();
    fs::set_permissions(first.at("linked"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("d/b", site.at("symbolic")).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(first.at("linked")).unwrap();
    file.write_all_at(b"here", 100).unwrap();
    let mut bytes = [0; 4];
    File::open(second.at("symbolic")).unwrap().read_exact_at(&mut bytes, 100).unwrap();
    assert_eq!(&bytes, b"here");
    file.set_len(200_000).unwrap();
    assert_eq!(fs::metadata(site.at("d/b")).unwrap().len(), 200_000);
    // Each line is whole, whoever appends.
    let append = |root: &Path, who: u8| {
        let mut file = OpenOptions::new().append(true).create(true).open(root.join("lines")).unwrap();
        (0..200).for_each(|n| file.write_all(format!("{who} {n:0>60}\n").as_bytes()).unwrap());
    };
    std::thread::scope(|scope| {
        let roots = [first.point.path(), second.point.path(), site.point.path()];
        (0..).zip(roots).for_each(|(who, root)| _ = scope.spawn(move || append(root, who)));
    });
    let lines = fs::read_to_string(first.at("lines")).unwrap();
    assert_eq!((lines.lines().count(), lines.lines().filter(|line| line.len() == 62).count()), (600, 600));
    fs::remove_file(second.at("linked")).unwrap();
    let here = tree(site.point.path());
    assert_eq!(here.len(), 4, "{:?}", here.keys());
    assert!(tree(first.point.path()) == here && tree(second.point.path()) == here);
    first.stop();
    assert!(second.at("lines").exists());
    second.stop();
    near.stop();
    server.stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn what_is_written_elsewhere_stays_where_it_was_received() {
    if !can_mount() {
        return;
    }
    let (place, address) = (Place::new(), own_address());
    let (socket, listen) = (place.dir().join("offload.sock"), address.to_string());
    let socket = leaked(socket.to_str().unwrap().to_owned());
    let flags =
        ["--files-offload", socket, "--files-listen", &listen, "--capacity", "256MiB", "--scrub-rate", "0"];
    let server = place.start(&flags);
    let far = Far::mount(&[address], &[]);
    fs::write(far.at("warm"), b"").unwrap();
    let before = copied(&server);
    let bytes = pattern(7, 20 << 20);
    fs::write(far.at("long"), &bytes).unwrap();
    File::open(far.at("long")).unwrap().sync_all().unwrap();
    assert!(fs::read(far.at("long")).unwrap() == bytes);
    let [placed, stalled, reply] = copied(&server);
    assert_eq!(
        [stalled, reply],
        [before[1], before[2]],
        "neither what is written nor what is read is copied"
    );
    assert!(placed - before[0] < 200_000.0, "{placed}: where the bytes are, and no bytes");
    assert_eq!(server.metric("landfall_files_mounts"), 1.0);
    far.stop();
    assert!(server.stop().success());
}

/// Bytes that were copied on their way from a connection to the region, or back.
fn copied(server: &Server) -> [f64; 3] {
    let path = |path| server.metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"));
    ["placed", "stalled", "reply"].map(path)
}

/// Writes blocks that say their number, each at its place, and makes each durable, until `is_over`. Returns the last one that
/// was. An `fsync` may say that something is lost: then everything since the last one that did not is written again.
fn write_blocks(file: &File, is_over: &AtomicBool, durable: &AtomicU64) {
    while !is_over.load(Ordering::Acquire) {
        let next = durable.load(Ordering::Acquire) + 1;
        let is_done = file
            .write_all_at(&block(next), next * BLOCK as u64)
            .and_then(|()| file.sync_all())
            .map_err(|error| assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}"))
            .is_ok();
        if is_done {
            durable.store(next, Ordering::Release);
        }
    }
}

fn block(number: u64) -> Vec<u8> {
    let mut bytes = pattern(number, BLOCK);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn has_blocks(path: &Path, last: u64) {
    let bytes = fs::read(path).unwrap();
    for number in 1..=last {
        let at = usize::try_from(number).unwrap() * BLOCK;
        assert!(bytes[at..at + BLOCK] == block(number), "block {number} of {last}");
    }
}

/// Runs `trouble` while a program writes, which goes on before and afterwards. Returns the last block that is durable.
fn while_writing(path: &Path, trouble: impl FnOnce()) -> u64 {
    let (is_over, durable) = (AtomicBool::new(false), AtomicU64::new(0));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    std::thread::scope(|scope| {
        let ends = OverAt::new(&is_over, path.parent());
        let writer = scope.spawn(|| write_blocks(&file, &is_over, &durable));
        let goes_on = || {
            let before = durable.load(Ordering::Acquire);
            let more = || (durable.load(Ordering::Acquire) >= before + 5).then_some(());
            wait_until(LIMIT, || if writer.is_finished() { Some(()) } else { more() });
            assert!(!writer.is_finished() && more().is_some(), "it stands still at {before}");
        };
        goes_on();
        trouble();
        goes_on();
        drop(ends);
        writer.join().unwrap();
    });
    durable.into_inner()
}

#[test]
fn programs_go_on_with_the_next_server_and_fsync_says_what_may_be_lost() {
    let Some((site, address)) = served() else { return };
    let mut server = Some(site.server());
    let far = Far::mount(&[address], &[]);
    let mut restart = || {
        server.take().expect("it runs").kill();
        server = Some(site.server());
    };
    let last = while_writing(&far.at("blocks"), &mut restart);
    has_blocks(&far.at("blocks"), last);
    // What no fsync has made durable.
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(far.at("lost")).unwrap();
    file.sync_all().unwrap();
    // It may say that a name is lost which was made before the first server was killed.
    let root = File::open(far.point.path()).unwrap();
    let _ = root.sync_all();
    root.sync_all().unwrap();
    let mut said = 0;
    for round in 0..3_u64 {
        file.write_all_at(&block(round), 0).unwrap();
        restart();
        match file.sync_all() {
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
                said += 1;
                file.sync_all().expect("it is said once");
            }
            Ok(()) => assert!(fs::read(far.at("lost")).unwrap() == block(round), "lost, and nobody says so"),
        }
    }
    assert!(said > 0, "a server that is killed at once has made nothing durable");
    // A server that ends in good order loses nothing.
    file.write_all_at(&block(9), 0).unwrap();
    server.take().expect("it runs").stop();
    server = Some(site.server());
    file.sync_all().unwrap();
    assert!(fs::read(far.at("lost")).unwrap() == block(9));
    drop((file, root));
    far.stop();
    server.take().expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

/// Makes, renames, links and appends in a directory, each of which may be done once only. Returns how often, or what failed.
fn change_names(directory: &Path, is_over: &AtomicBool) -> Result<u64, (&'static str, u64, io::Error)> {
    let at = |name: &str| directory.join(name);
    let mut round = 0;
    let failed = |call, round| move |error| (call, round, error);
    fs::create_dir(directory).map_err(failed("mkdir of all", round))?;
    let log = OpenOptions::new().append(true).create_new(true).open(at("log"));
    let mut log = log.map_err(failed("create of the log", round))?;
    while !is_over.load(Ordering::Acquire) {
        let (name, renamed) = (at(&format!("{round}")), at("renamed"));
        File::create_new(&name).map_err(failed("create", round))?;
        fs::rename(&name, &renamed).map_err(failed("rename", round))?;
        fs::hard_link(&renamed, &name).map_err(failed("link", round))?;
        fs::remove_file(&renamed).map_err(failed("unlink", round))?;
        fs::create_dir(at("directory")).map_err(failed("mkdir", round))?;
        fs::remove_dir(at("directory")).map_err(failed("rmdir", round))?;
        log.write_all(format!("{round}\n").as_bytes()).map_err(failed("append", round))?;
        round += 1;
    }
    Ok(round)
}

/// Programs change names on another machine, and none of their calls fails or is done twice, while there is trouble.
fn names_change_during(far: &Far, mut trouble: impl FnMut()) {
    let (is_over, directories) = (AtomicBool::new(false), ["a", "b", "c", "d"].map(|name| far.at(name)));
    let rounds = std::thread::scope(|scope| {
        let ends = OverAt::new(&is_over, [far.point.path()]);
        let begin = |directory: &PathBuf| {
            let (directory, is_over) = (directory.clone(), &is_over);
            scope.spawn(move || change_names(&directory, is_over))
        };
        let programs = directories.each_ref().map(begin);
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(100));
            trouble();
        }
        drop(ends);
        programs.map(|program| program.join().unwrap().unwrap())
    });
    for (directory, rounds) in directories.iter().zip(rounds) {
        let lines: String = (0..rounds).map(|round| format!("{round}\n")).collect();
        assert!(fs::read_to_string(directory.join("log")).unwrap() == lines);
        assert_eq!(fs::read_dir(directory).unwrap().count() as u64, 1 + rounds);
        // Nothing is lost, either.
        File::open(directory).unwrap().sync_all().unwrap();
    }
}

#[test]
fn a_server_that_is_told_to_stop_fails_no_call_on_another_machine() {
    let Some((site, address)) = served() else { return };
    let mut server = Some(site.server());
    let far = Far::mount(&[address], &[]);
    names_change_during(&far, || {
        server.take().expect("it runs").stop();
        server = Some(site.server());
    });
    far.stop();
    server.expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn a_server_that_is_killed_fails_no_call_on_another_machine() {
    let Some((site, address)) = served_by(&["--sync", "always"]) else { return };
    let mut server = Some(site.server());
    let (network, mut round) = (Network::before(address), 0);
    let far = Far::mount(&[network.address], &[]);
    names_change_during(&far, || {
        server.take().expect("it runs").kill();
        // The next one may be killed before it serves the mount, or lose its connections.
        if round % 3 == 1 {
            site.server().kill();
        }
        server = Some(site.server());
        if round % 3 == 2 {
            network.cut();
            network.mend();
        }
        round += 1;
    });
    far.stop();
    server.expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn the_number_of_a_file_that_is_lost_is_not_given_by_the_next_server() {
    let Some((site, address)) = served() else { return };
    let mut server = Some(site.server());
    let (far, other) = (Far::mount(&[address], &[]), Far::mount(&[address], &[]));
    let mut kill = || {
        server.take().expect("it runs").kill();
        server = Some(site.server());
    };
    let mut make_and_lose = |round: u32| {
        // Servers have found the same if the first of them has done nothing.
        kill();
        let file = File::create_new(far.at(&format!("lost-{round}"))).unwrap();
        let number = file.metadata().unwrap().ino();
        kill();
        fs::write(other.at(&format!("other-{round}")), b"of another one").unwrap();
        (!far.at(&format!("lost-{round}")).exists()).then_some((file, number, round))
    };
    let (lost, number, round) = (0..10).find_map(&mut make_and_lose).expect("what is not durable is lost");
    let path = other.at(&format!("other-{round}"));
    assert_ne!(fs::metadata(&path).unwrap().ino(), number);
    let written = (&lost).write_all(b"into a file that is lost");
    assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert_eq!(fs::read(&path).unwrap(), b"of another one");
    drop(lost);
    far.stop();
    other.stop();
    server.expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn lost_connections_fail_no_call_and_none_is_done_twice() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let network = Network::before(address);
    let far = Far::mount(&[network.address], &[]);
    names_change_during(&far, || {
        network.cut();
        network.mend();
    });
    far.stop();
    server.stop();
    assert!(site.place.check(&[]).status.success());
}

/// How many inodes the files have.
fn inodes(point: &Path) -> u64 {
    let stat = rustix::fs::statvfs(point).unwrap();
    stat.f_files - stat.f_ffree
}

/// Nobody but this machine's kernel knows that the files are open, and the server has not counted that.
#[test]
fn files_that_are_open_elsewhere_outlive_their_names_after_a_restart_and_a_lost_connection() {
    let Some((site, address)) = served() else { return };
    let mut server = Some(site.server());
    let network = Network::before(address);
    let (far, other) = (Far::mount(&[network.address], &[]), Far::mount(&[address], &[]));
    for trouble in ["the next server", "a lost connection"] {
        let open = |name: &str| {
            let file = File::options().read(true).write(true).create_new(true).open(far.at(name)).unwrap();
            file.write_all_at(b"at first", 0).unwrap();
            file
        };
        let files = ["removed", "replaced"].map(open);
        if trouble == "the next server" {
            server.take().expect("it runs").stop();
            server = Some(site.server());
        } else {
            network.cut();
            network.mend();
        }
        // The mount has a server again. Its kernel is asked for no name.
        files.iter().for_each(|file| file.write_all_at(b"at first", 0).unwrap());
        fs::write(other.at("new"), b"of the other machine").unwrap();
        fs::remove_file(other.at("removed")).unwrap();
        fs::rename(other.at("new"), other.at("replaced")).unwrap();
        // The other machine's kernel forgets them meanwhile.
        for round in 0..10_u64 {
            std::thread::sleep(Duration::from_millis(50));
            for file in &files {
                file.write_all_at(&round.to_le_bytes(), 0)
                    .unwrap_or_else(|error| panic!("{trouble}: {error}"));
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert_eq!(u64::from_le_bytes(bytes), round, "{trouble}");
            }
        }
        assert_eq!(inodes(other.point.path()), 4, "{trouble}: the root, a file, and two without a name");
        drop(files);
        assert_eq!(fs::read(far.at("replaced")).unwrap(), b"of the other machine");
        fs::remove_file(far.at("replaced")).unwrap();
        let is_deleted = || (inodes(other.point.path()) == 1).then_some(());
        assert!(wait_until(LIMIT, is_deleted).is_some(), "{trouble}: {}", inodes(other.point.path()));
    }
    far.stop();
    other.stop();
    server.expect("it runs").stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn calls_fail_after_their_patience_and_a_holder_that_dies_leaves_its_files() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let mut far = Far::mount(&[address], &["--patience", "1"]);
    let other = Far::mount(&[address], &[]);
    fs::write(far.at("a"), b"durable").unwrap();
    File::open(far.at("a")).unwrap().sync_all().unwrap();
    server.kill();
    assert_eq!(fs::read(far.at("a")).unwrap_err().raw_os_error(), Some(libc::EIO));
    let server = site.server();
    assert_eq!(wait_until(LIMIT, || fs::read(far.at("a")).ok()).unwrap(), b"durable");
    fs::write(far.at("b"), b"of a dead holder").unwrap();
    far.process.take().expect("it runs").kill();
    assert_eq!(fs::read(other.at("b")).unwrap(), b"of a dead holder");
    assert_eq!(
        fs::read(far.at("a")).unwrap_err().raw_os_error(),
        Some(libc::ENOTCONN),
        "its mount has ended"
    );
    // One that is stopped holds nobody up.
    let stopped = Far::mount(&[address], &[]);
    stopped.process().signal("STOP");
    fs::write(other.at("a"), b"changed").unwrap();
    assert_eq!(fs::read(other.at("a")).unwrap(), b"changed");
    stopped.process().signal("CONT");
    assert_eq!(fs::read(stopped.at("a")).unwrap(), b"changed");
    stopped.stop();
    other.stop();
    server.stop();
}

#[test]
fn a_mount_whose_server_dies_while_it_ends_ends() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let mut far = Far::mount(&[address], &[]);
    let user = Process::in_directory(far.point.path());
    server.signal("STOP");
    far.process().signal("TERM");
    wait_until_it_ends(|| far.log());
    server.kill();
    assert!(!far.process.take().expect("it runs").wait().success());
    assert!(
        far.log().contains("it has died, and publishes what is durable when it is back"),
        "{}",
        far.log()
    );
    user.kill();
    site.server().stop();
    assert!(site.place.check(&[]).status.success());
}

#[test]
fn a_mount_follows_the_first_server_of_a_chain() {
    if !can_mount() {
        return;
    }
    let mut chain = Chain::new(3, &["--capacity", "256MiB", "--workers", "2"]);
    let addresses = chain.serve_mounts();
    chain.start_all();
    let refused = landfall(&["fs", "mount", "/tmp", "--server", &addresses[1].to_string()]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("only the first server of a chain serves mounts, and that is a"), "{why}");
    // Whichever is asked first.
    let turned: Vec<SocketAddr> = [1, 2, 0].map(|index| addresses[index]).to_vec();
    let far = Far::mount(&turned, &[]);
    let path = far.at("blocks");
    // Nothing is started while there is no server: a child's copies of open files wait for one, those of other tests, too.
    let remove = chain.remove_later(0);
    let last = while_writing(&path, || {
        chain.kill(0);
        remove();
    });
    has_blocks(&path, last);
    // A file that is made now does not get the number of one that may have been lost.
    let before = fs::metadata(&path).unwrap().ino();
    fs::write(far.at("new"), b"at the next server").unwrap();
    assert!(fs::metadata(far.at("new")).unwrap().ino() > before + (1 << 20));
    assert_eq!(chain.server(1).call(&["SET", "key", "value"]), ok());
    let next = chain.stand_by(1);
    let again = while_writing(&path, || {
        chain.kill(1);
        chain.put(1, next.start().unwrap());
    });
    has_blocks(&path, again);
    far.stop();
    chain.end(&[1, 2]);
}

/// Each server that takes over knows what the one before had done, also one that was copied to meanwhile.
#[test]
fn a_chain_whose_first_server_is_lost_fails_no_call_on_another_machine() {
    if !can_mount() {
        return;
    }
    let mut chain = Chain::new(3, &["--capacity", "256MiB", "--workers", "2", "--replicate", "sync"]);
    let addresses = chain.serve_mounts();
    chain.start_all();
    let (far, mut round) = (Far::mount(&addresses, &[]), 0);
    names_change_during(&far, || {
        match round {
            0 | 7 => {
                // Nothing is started while there is no server: a child's copies of open files wait for one.
                let first = if round == 0 { 0 } else { 1 };
                let remove = chain.remove_later(first);
                chain.kill(first);
                remove();
            }
            2 => {
                let next = chain.stand_by(1);
                chain.kill(1);
                chain.put(1, next.start().unwrap());
            }
            4 => {
                // As soon as it is in the view, the first server waits for it.
                let added = chain.stand_by(0);
                chain.add(0);
                chain.put(0, added.start().unwrap());
                chain.wait_until_in_step();
            }
            _ => {}
        }
        round += 1;
    });
    far.stop();
    chain.end(&[2, 0]);
}

/// One etcd that demands certificates, and one that is away. Nobody has to say that the first server is gone.
#[test]
fn a_mount_follows_the_first_server_that_etcd_names() {
    if !can_mount() {
        return;
    }
    let Some(mut setting) = InEtcd::with_tls(T, 3, &["--capacity", "256MiB", "--workers", "2"]) else {
        return;
    };
    let addresses = setting.chain.serve_mounts();
    setting.chain.start_all();
    let known = || setting.chain.command("show", &[]).matches("registered, in step").count();
    wait_until(LIMIT, || (known() == 3).then_some(())).expect("etcd knows of all servers");
    let far = Far::mount(&addresses, &[]);
    let last = while_writing(&far.at("blocks"), || setting.chain.kill(0));
    has_blocks(&far.at("blocks"), last);
    let without = landfall(&["chain", "show", "orders", "--etcd", &setting.etcd.url]);
    assert!(!without.status.success(), "etcd lets nobody in without a certificate");
    far.stop();
    setting.chain.end(&[1, 2]);
}

/// The chain waits for a replica that is stopped, and the end of a mount for the chain.
#[test]
fn a_mount_that_ends_while_the_chain_stands_holds_no_other_one_up() {
    if !can_mount() {
        return;
    }
    let mut chain = Chain::new(2, &["--capacity", "256MiB", "--workers", "1"]);
    let addresses = chain.serve_mounts();
    chain.start_all();
    let mut ending = Far::mount(&addresses[..1], &[]);
    fs::write(ending.at("file"), b"durable").unwrap();
    File::open(ending.at("file")).unwrap().sync_all().unwrap();
    chain.server(1).signal("STOP");
    fs::write(ending.at("another"), b"not durable yet").unwrap();
    ending.process().signal("TERM");
    let ends = || (chain.server(0).metric("landfall_files_mounts") == 0.0).then_some(());
    wait_until(LIMIT, ends).expect("the server knows");
    let mut other = Far::unmounted();
    other.process = other.try_mount(&addresses[..1], &[]);
    assert!(other.process.is_some(), "it is served at once: {}", other.log());
    assert_eq!(fs::read(other.at("file")).unwrap(), b"durable");
    fs::write(other.at("third"), b"not durable yet, either").unwrap();
    assert!(ending.process.as_mut().expect("it runs").child.try_wait().unwrap().is_none());
    chain.server(1).signal("CONT");
    assert!(ending.process.take().expect("it runs").wait().success(), "{}", ending.log());
    assert_eq!(fs::read(other.at("another")).unwrap(), b"not durable yet");
    other.stop();
    chain.end(&[0, 1]);
}

#[test]
fn strangers_get_nothing_and_hold_nobody_up() {
    let Some((mut site, address)) = served() else { return };
    let password = site.place.file("password", "a long secret\n");
    let password = leaked(password.to_str().unwrap().to_owned());
    site.serve.extend(["--password-file", password]);
    let server = site.server();
    let wrong = site.place.file("wrong", "another one\n");
    let far = tempfile::tempdir().unwrap();
    let refusal = |flags: &[&str]| {
        let output = landfall(&[&["fs", "mount", far.path().to_str().unwrap()], flags].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let named = address.to_string();
    for flags in
        [&["--server", &named][..], &["--server", &named, "--password-file", wrong.to_str().unwrap()]]
    {
        assert!(refusal(flags).contains("wrong password"), "{}", refusal(flags));
    }
    let nobody = own_address().to_string();
    assert!(refusal(&["--server", &nobody]).contains("no server of files answers there"));
    assert!(refusal(&["--server", &format!("{nobody},{named}")]).contains("none of these servers"));
    let resp = Place::new().start(&[]);
    let foreign = refusal(&["--server", &resp.resp.to_string()]);
    assert!(foreign.contains("does not serve files") || foreign.contains("no server of files"), "{foreign}");
    assert!(resp.stop().success());
    // Some say nothing, more than the server lets in; some say anything.
    let silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(address).unwrap()).collect();
    for seed in 0..40 {
        let mut stream = TcpStream::connect(address).unwrap();
        let bytes = pattern(seed, 100);
        let _ = stream.write_all(if seed % 2 == 0 { &bytes } else { b"LFNM\x01\x00\x01\xff" });
    }
    // Somebody who knows the password says anything to the server.
    for purpose in [1, 2] {
        let mut stream = let_in(address, b"a long secret", purpose);
        let _ = stream.write_all(&pattern(3, 5000));
        let _ = stream.read(&mut [0; 64]);
    }
    let mut good = Far::unmounted();
    good.process = good.try_mount(&[address], &["--password-file", password]);
    assert!(good.process.is_some(), "it is let in at once: {}", good.log());
    fs::write(good.at("a"), b"a").unwrap();
    assert_eq!(fs::read(good.at("a")).unwrap(), b"a");
    drop(silent);
    good.stop();
    server.stop();
}

/// A connection that says that it is of a mount.
fn let_in(address: SocketAddr, password: &[u8], purpose: u8) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = [b"LFNM\x01\x00", &[purpose, password.len() as u8][..], &[7; 16], password].concat();
    stream.write_all(&head).unwrap();
    let mut welcome = [0; 8];
    stream.read_exact(&mut welcome).unwrap();
    stream
}

#[test]
fn an_address_that_others_reach_needs_a_password() {
    let place = Place::new();
    let dir = place.dir();
    let dir = dir.to_str().unwrap();
    let refused = landfall(&["fs", "serve", "--dir", dir, "--listen", "0.0.0.0:0"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("no password is set"), "{why}");
    let socket = format!("{dir}/offload.sock");
    let flags = ["serve", "--dir", dir, "--files-offload", &socket, "--files-listen", "0.0.0.0:0"];
    let refused = landfall(&flags);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("no password is set"), "{why}");
    let config = place.file("alone.toml", "files_listen = \"6481\"\n");
    let refused = landfall(&["serve", "--dir", dir, "--config", config.to_str().unwrap()]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("give --files-offload"), "{why}");
}

/// The kernel of a machine that does not answer, for one: its queue has a request, and nobody takes the reply.
#[test]
fn a_peer_that_reads_nothing_does_not_hold_up_the_end_of_the_server() -> io::Result<()> {
    let Some((site, address)) = served() else { return Ok(()) };
    let server = site.server();
    let far = Far::mount(&[address], &[]);
    fs::write(far.at("long"), pattern(1, 8 << 20))?;
    far.process().signal("STOP");
    let path = far.at("long");
    let reader = std::thread::spawn(move || fs::read(path));
    std::thread::sleep(Duration::from_millis(50));
    server.stop();
    // No process is started while a mount stands still in which this one may have a file open.
    far.process().signal("CONT");
    let server = site.server();
    assert!(reader.join().unwrap()? == pattern(1, 8 << 20), "it is read from the next server");
    far.stop();
    server.stop();
    Ok(())
}

/// Bytes of a request to write a word.
const LATE: usize = 81;

#[test]
fn what_was_on_its_way_over_a_lost_connection_is_not_done_behind_what_came_since() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let network = Network::before(address);
    let far = Far::mount(&[network.address], &[]);
    let file = File::create(far.at("file")).unwrap();
    file.write_all_at(b"first", 0).unwrap();
    network.slow_down();
    let writer = {
        let file = file.try_clone().unwrap();
        std::thread::spawn(move || file.write_all_at(b"again", 0))
    };
    network.keeps(LATE);
    network.lose();
    writer.join().unwrap().expect("it is sent again");
    file.write_all_at(b"newer", 0).unwrap();
    let late = wait_until(LIMIT, || Some(network.deliver()).filter(|bytes| *bytes >= LATE));
    assert!(late.is_some(), "the request arrives late");

    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fs::read(far.at("file")).unwrap(), b"newer");
    file.sync_all().unwrap();
    drop(file);
    far.stop();
    server.stop();
}

/// True while a process runs that was started with this mountpoint.
fn is_served(point: &Path) -> bool {
    let point = point.to_str().unwrap().as_bytes();
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    let mut lines = processes.filter_map(|path| fs::read(path).ok());
    lines.any(|line| line.split(|byte| *byte == 0).any(|arg| arg == point))
}

#[test]
fn a_line_of_fstab_names_servers_or_a_socket_and_every_flag_of_a_mount() {
    let Some((site, address)) = served() else { return };
    let server = site.server();
    let (far, near) = (Far::unmounted(), Far::unmounted());
    let helper = site.place.path().join("mount.fuse.landfall");
    std::os::unix::fs::symlink(binary(), &helper).unwrap();
    let mount = |source: &str, point: &Path, options: &str| {
        let mut command = Command::new(&helper);
        let output = command.arg(source).arg(point).args(["-n", "-o", options]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let refused = |source: &str, options: &str, why: &str| {
        let (is_mounted, said) = mount(source, near.point.path(), options);
        assert!(!is_mounted && said.contains(why), "{options}: {said}");
    };
    let (address, socket) = (address.to_string(), site.socket().to_str().unwrap().to_owned());
    refused(&address, "server,size=1GiB", "'--size <SIZE>' cannot be used with '--server <HOST:PORT,...>'");
    refused(&socket, "offload,patience=long", "invalid value 'long' for '--patience <SECONDS>'");
    refused(&socket, "offload,always", "here the server decides that");
    refused(&socket, "offload,fast", "the option `fast` is not known here");
    refused(&address, "shared", "with HOST:PORT,... give the option `server`");
    refused(&socket, "shared", "'--shared' cannot be used with '--dir <DIR>'");
    refused(&socket, "cache=1MiB", "'--cache <SIZE>' cannot be used with '--dir <DIR>'");
    refused(
        &socket,
        "offload,password_file=/x",
        "'--password-file <FILE>' cannot be used with '--offload <SOCKET>'",
    );
    let log = site.place.path().join("mount.log");
    let elsewhere = format!(
        "rw,_netdev,server,cache=2MiB,cache=1MiB,patience=20,log_file={},log-level=debug",
        log.display()
    );
    assert_eq!(mount(&address, far.point.path(), &elsewhere), (true, String::new()));
    assert_eq!(mount(&socket, near.point.path(), "nodev,offload,sharing"), (true, String::new()));
    fs::write(far.at("file"), "here").unwrap();
    assert_eq!(fs::read(near.at("file")).unwrap(), b"here");
    assert!(log.exists());
    for point in [far.point.path(), near.point.path()] {
        let unmounted = || landfall_fuse::unmount(point, landfall_fuse::Unmount::WhenIdle).ok();
        wait_until(LIMIT, unmounted).expect("nobody uses it");
        wait_until(LIMIT, || (!is_served(point)).then_some(())).expect("its process ends");
    }
    server.stop();
}
