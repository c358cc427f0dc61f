//! `landfall fs`: the command itself. What programs do with a mount is tested in `fs-io`.

mod common;
#[path = "../../fs-io/tests/common/ring.rs"]
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
mod ring;

use common::{Place, binary, can_mount, landfall, signal, wait_until};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Time limit for a mount to end.
const LIMIT: Duration = Duration::from_secs(30);

/// A mount that is removed at the end, however the test ends.
struct Mounted<'p> {
    point: &'p Path,
    child: Child,
    announced: String,
}

impl<'p> Mounted<'p> {
    fn start(place: &Place, point: &'p Path) -> Self {
        Self::start_with(place, point, &[])
    }

    fn start_with(place: &Place, point: &'p Path, more: &[&str]) -> Self {
        let mut command = Command::new(binary());
        command
            .args(["fs", "mount"])
            .arg(point)
            .arg("--dir")
            .arg(place.dir())
            .args(["--size", "64MiB"])
            .args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut announced = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let expected = 1 + more.iter().filter(|arg| **arg == "--metrics").count();
        for _ in 0..expected {
            lines.read_line(&mut announced).unwrap();
        }
        Self { point, child, announced }
    }

    fn stop(mut self, name: &str) {
        signal(&self.child, name);
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // After an end in good order there is nothing left to do.
        let _ = (self.child.kill(), self.child.wait());
        let _ = landfall_fuse::unmount(self.point, landfall_fuse::Unmount::Lazily);
    }
}

#[test]
fn a_signal_unmounts_and_the_files_are_there_at_the_next_mount() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    for (round, signal) in ["TERM", "INT"].into_iter().enumerate() {
        let mounted = Mounted::start(&place, point.path());
        let expected = format!("mounted: {} on {} (", place.region().display(), point.path().display());
        assert!(mounted.announced.starts_with(&expected), "{}", mounted.announced);
        assert_eq!(fs::read_dir(point.path()).unwrap().count(), round);
        fs::write(point.path().join(signal), signal).unwrap();
        mounted.stop(signal);
        assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
    }
    let mounted = Mounted::start(&place, point.path());
    for signal in ["TERM", "INT"] {
        assert_eq!(fs::read_to_string(point.path().join(signal)).unwrap(), signal);
    }
    mounted.stop("TERM");
}

#[test]
fn a_mount_over_io_uring_is_mounted_by_a_flag_and_by_an_option() {
    if !can_mount() {
        return;
    }
    let Some(allowed) = ring::RingAllowed::new() else { return };
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let file = point.path().join("f");
    for (round, flags) in [["--transport", "uring"], ["-o", "transport=uring"]].into_iter().enumerate() {
        let mounted = Mounted::start_with(&place, point.path(), &flags);
        let tasks = fs::read_dir(format!("/proc/{}/task", mounted.child.id())).unwrap();
        let names = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
        assert!(names.collect::<String>().contains("ring-0"), "it works over a ring");
        assert_eq!(fs::read_to_string(&file).unwrap_or_default().len(), round);
        fs::write(&file, "x").unwrap();
        mounted.stop("TERM");
    }
    drop(allowed);
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
}

#[test]
fn a_mount_over_io_uring_is_refused_with_advice_where_it_is_not_allowed() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let (dir, at) = (place.dir(), point.path().to_str().unwrap());
    let refusal = |more: &[&str]| {
        let output = landfall(&[&["fs", "mount", at], more].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let region = ["--dir", dir.to_str().unwrap(), "--size", "64MiB"];
    let unknown = refusal(&[&region[..], &["-o", "transport=tcp"]].concat());
    assert!(unknown.contains("transport=dev|uring"), "{unknown}");
    let offload = refusal(&["--transport", "uring", "--offload", "/nowhere"]);
    assert!(offload.contains("cannot be used with"), "{offload}");
    let Some(_forbidden) = ring::RingForbidden::new() else { return };
    let refused = refusal(&[&region[..], &["--transport", "uring"]].concat());
    assert!(refused.contains("echo Y > /sys/module/fuse/parameters/enable_uring"), "{refused}");
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
}

/// Damages two neighbouring bytes, so that nothing corrects them.
fn damage(place: &Place, at: usize) {
    let mut region = OpenOptions::new().read(true).write(true).open(place.region()).unwrap();
    let mut bytes = [0; 2];
    region.seek(SeekFrom::Start(at as u64)).unwrap();
    region.read_exact(&mut bytes).unwrap();
    region.seek(SeekFrom::Start(at as u64)).unwrap();
    region.write_all(&bytes.map(|byte| byte ^ 0x55)).unwrap();
}

/// Offset of the newest record of an inode.
fn inode_record(region: &[u8], number: u64) -> usize {
    let key = number.to_le_bytes();
    // Kind and space are at offsets 4 and 7 of a record of 128 bytes.
    let is_it =
        |record: &[u8]| (record[4], record[7]) == (1, 49) && record.windows(8).any(|window| window == key);
    region.chunks(128).rposition(is_it).expect("the record of the inode") * 128
}

#[test]
fn damaged_files_are_repaired_and_all_others_are_there_with_their_bytes() {
    if !can_mount() {
        return;
    }
    const PIECE: usize = 64 << 10;
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let path = |name: &str| point.path().join(name);
    let (whole, hit) = (common::pattern(1, 5 * PIECE), common::pattern(2, 5 * PIECE));
    let mounted = Mounted::start(&place, point.path());
    fs::create_dir(path("d")).unwrap();
    fs::create_dir(path("lost")).unwrap();
    for (name, bytes) in [("whole", &whole), ("d/hit", &hit), ("lost/inner", &whole)] {
        fs::write(path(name), bytes).unwrap();
    }
    let lost = fs::metadata(path("lost")).unwrap().ino();
    let inner = fs::metadata(path("lost/inner")).unwrap().ino();
    mounted.stop("TERM");
    let region = fs::read(place.region()).unwrap();
    let piece = &hit[PIECE..PIECE + 4096];
    damage(&place, region.windows(4096).position(|window| window == piece).expect("the bytes of the file"));
    damage(&place, inode_record(&region, lost) + 42);
    let output = place.check(&["--repair"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("(/d/hit): bytes 65536 to 131072 are lost and read as zeroes"), "{text}");
    assert!(text.ends_with("damaged; repaired: clean now\n"), "{text}");
    assert_eq!(place.check(&[]).status.code(), Some(0));
    let mounted = Mounted::start(&place, point.path());
    assert!(fs::read(path("whole")).unwrap() == whole);
    assert!(!fs::exists(path("lost")).unwrap());
    assert!(fs::read(path(&format!("lost+found/#{inner}"))).unwrap() == whole, "its directory was lost");
    let expected = [&hit[..PIECE], &[0; PIECE], &hit[2 * PIECE..]].concat();
    assert!(fs::read(path("d/hit")).unwrap() == expected);
    fs::write(path("d/new"), b"it takes changes").unwrap();
    mounted.stop("TERM");
    assert_eq!(place.check(&[]).status.code(), Some(0));
}

#[test]
fn what_cannot_be_mounted_is_refused_with_advice() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let refusal = |more: &[&str]| {
        let dir = place.dir();
        let fixed = ["fs", "mount", point.path().to_str().unwrap(), "--dir", dir.to_str().unwrap()];
        let output = landfall(&[&fixed[..], &["--size", "64MiB"], more].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refusal(&["-o", "fast"]).contains("the option `fast` is not known here"));
    assert!(refusal(&["--workers", "0"]).contains("1 to 64"));
    assert!(refusal(&["--memory", "1MiB"]).contains("64MiB at least"));
    let server = place.start(&[]);
    assert!(refusal(&[]).contains("another process has this region open"));
    let mut resp = server.resp();
    assert_eq!(resp.call(&[b"SET", b"key", b"value"]).unwrap(), common::Reply::Simple("OK".into()));
    drop((resp, server));
    let refused = refusal(&[]);
    assert!(
        refused.contains("--files MOUNTPOINT") && refused.contains("a directory of their own"),
        "{refused}"
    );
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
}

#[test]
fn a_mount_says_what_it_has_done_and_where_data_are() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let mounted = Mounted::start_with(&place, point.path(), &["--metrics", "127.0.0.1:0"]);
    let file = point.path().join("file");
    fs::write(&file, vec![7; 40_000]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let ask = |command: &str, path: &Path, more: &[&str]| {
        let output = landfall(&[&["fs", command, path.to_str().unwrap()], more].concat());
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    };
    let value = |text: &str, name: &str| -> f64 {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line[name.len()..].split_whitespace().next().unwrap().parse().unwrap()
    };
    let (_, stat) = ask("stat", &file, &[]);
    assert_eq!(value(&stat, "published_bytes") + value(&stat, "log_bytes"), 40_960.0);
    assert_eq!((value(&stat, "size"), value(&stat, "links")), (40_000.0, 1.0));
    let (_, df) = ask("df", point.path(), &[]);
    assert!(df.contains("64.0 MiB") && value(&df, "inodes") == 2.0, "{df}");
    let (_, top) = ask("top", &file, &["--count", "1"]);
    assert_eq!((value(&top, "written_bytes_total"), value(&top, "commits_total")), (40_000.0, 1.0));
    assert_eq!(value(&top, "requests_total{kind=\"sync\"}"), 1.0);
    let address = mounted.announced.lines().find_map(|line| line.strip_prefix("metrics: http://")).unwrap();
    let page = http_body(address.trim_end_matches("/metrics"));
    assert_eq!(value(&page, "landfall_fs_written_bytes_total"), 40_000.0);
    let (success, refused) = ask("df", Path::new("/proc"), &[]);
    assert!(!success && refused.contains("not on a mount of `landfall fs`"), "{refused}");
    mounted.stop("TERM");
}

#[test]
fn published_files_have_copies_if_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let bytes = vec![7; 1 << 20];
    let relinked = |point: &Path| -> f64 {
        let file = point.join("file");
        let ask = |command: &str, path: &Path, more: &[&str]| {
            String::from_utf8(landfall(&[&["fs", command, path.to_str().unwrap()], more].concat()).stdout)
                .unwrap()
        };
        let value = |text: &str, name: &str| -> f64 {
            let line =
                text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
            line[name.len()..].split_whitespace().next().unwrap().parse().unwrap()
        };
        fs::write(&file, &bytes).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
        let is_published = || (value(&ask("stat", &file, &[]), "published_bytes") >= 1e6).then_some(());
        wait_until(LIMIT, is_published).expect("it is published");
        assert!(fs::read(&file).unwrap() == bytes);
        value(&ask("top", point, &["--count", "1"]), "relinked_bytes_total")
    };
    for (way, expected) in [("relink", (1 << 20) as f64), ("copy", 0.0), ("copy-each", 0.0)] {
        let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
        let mounted = Mounted::start_with(&place, point.path(), &["--publish", way]);
        assert_eq!(relinked(point.path()), expected, "{way}");
        mounted.stop("TERM");
        let mounted = Mounted::start(&place, point.path());
        assert!(fs::read(point.path().join("file")).unwrap() == bytes, "{way}");
        mounted.stop("TERM");
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let server = place.start(&["--files", point.path().to_str().unwrap(), "--files-publish", "copy"]);
    assert_eq!(relinked(point.path()), 0.0);
    assert!(server.stop().success());
    let refused = |flags: &[&str]| String::from_utf8_lossy(&landfall(flags).stderr).into_owned();
    let unknown = refused(&["serve", "--files", "x", "--files-publish", "move"]);
    assert!(unknown.contains("relink, copy and copy-each"), "{unknown}");
    assert!(refused(&["serve", "--files-publish", "copy"]).contains("give --files or --files-offload"));
}

/// It looks at every run and every piece of a file, so that whoever may ask at will slows everybody down.
#[test]
fn other_users_of_a_mount_may_not_ask_what_it_has_done() {
    use std::os::unix::process::CommandExt;
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let mounted = Mounted::start_with(&place, point.path(), &["-o", "allow_other"]);
    let as_nobody = |program: &str, args: &[&str]| {
        Command::new(program).args(args).arg(point.path()).uid(65_534).gid(65_534).output()
    };
    match as_nobody("ls", &[]) {
        Ok(listed) => assert!(listed.status.success(), "the mount is there for everybody"),
        Err(error) => {
            eprintln!("SKIP: another user's process: {error}");
            return mounted.stop("TERM");
        }
    }
    for attribute in ["landfall.metrics", "landfall.inode"] {
        let script = "import os, sys; os.getxattr(sys.argv[2], sys.argv[1])";
        let Ok(asked) = as_nobody("python3", &["-c", script, attribute]) else {
            eprintln!("SKIP: python3: not installed, see `cargo xtask peers`");
            break;
        };
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(!asked.status.success() && said.contains("Permission denied"), "{attribute}: {said}");
    }
    mounted.stop("TERM");
}

/// The answer to `GET /metrics`.
fn http_body(address: &str) -> String {
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Unmounts what runs in the background, and waits until its process has left the region.
fn end_background(place: &Place, point: &Path) {
    // A program that another test starts has this one's open files for a moment.
    let unmounted = || landfall_fuse::unmount(point, landfall_fuse::Unmount::WhenIdle).ok();
    wait_until(LIMIT, unmounted).expect("nobody uses it");
    let region = place.region();
    let is_left = || landfall(&["check", region.to_str().unwrap()]).status.success();
    wait_until(LIMIT, || is_left().then_some(())).expect("its process ends");
}

#[test]
fn a_mount_in_the_background_returns_once_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    let (dir, at) = (place.dir(), point.path().to_str().unwrap());
    let args = ["fs", "mount", at, "--dir", dir.to_str().unwrap(), "--size", "64MiB", "--background"];
    assert!(landfall(&args).status.success());
    fs::write(point.path().join("file"), "here").unwrap();
    end_background(&place, point.path());
    fs::write(point.path().join("in the way"), "").unwrap();
    let refused = landfall(&args);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("not empty") && said.contains("mount.log"), "{said}");
}

#[test]
fn a_refused_mount_or_server_of_mounts_makes_no_region() {
    let (place, full, empty) = (Place::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(full.path().join("in the way"), "").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let (dir, missing) = (place.dir(), place.path().join("missing"));
    let deep = missing.join("socket");
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (dir, missing, deep) = (text(&dir), text(&missing), text(&deep));
    let (full, empty) = (text(full.path()), text(empty.path()));
    let cases: [&[&str]; 6] = [
        &["mount", &missing],
        &["mount", &full],
        &["mount", &empty, "--metrics", &taken],
        &["serve", "--socket", &deep],
        &["serve", "--listen", &taken],
        &["serve", "--metrics", &taken],
    ];
    for case in cases {
        let output = landfall(&[&["fs"][..], case, &["--dir", &dir, "--size", "64MiB"]].concat());
        assert_eq!(output.status.code(), Some(1), "{case:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!place.region().exists(), "{case:?}");
    }
}

#[test]
fn the_helper_of_mount_mounts_with_the_options_of_fstab() {
    if !can_mount() {
        return;
    }
    let (place, point, tools) = (Place::new(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let helper = tools.path().join("mount.fuse.landfall");
    std::os::unix::fs::symlink(binary(), &helper).unwrap();
    let mount = |options: &str| {
        let mut command = Command::new(&helper);
        command.arg(place.dir()).arg(point.path()).args(["-n", "-o", options, "-t", "fuse.landfall"]);
        command.output().unwrap()
    };
    let refused = mount("rw,fast=1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the option `fast` is not known here"));
    assert!(mount("rw,noauto,size=64MiB,always,workers=2").status.success());
    fs::write(point.path().join("file"), "here").unwrap();
    let df = landfall(&["fs", "df", point.path().to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&df.stdout).contains("64.0 MiB"));
    end_background(&place, point.path());
}
