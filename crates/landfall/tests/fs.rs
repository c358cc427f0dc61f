//! `landfall fs`: the command itself. What programs do with a mount is tested in `fs-io`.

mod common;

use common::{Place, binary, landfall};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// True if FUSE mounts are possible here.
#[allow(clippy::print_stderr, reason = "a skipped test says so")]
fn can_mount() -> bool {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        eprintln!("SKIP: a FUSE mount: /dev/fuse: {error}");
    }
    opened.is_ok()
}

/// A mount that is removed at the end, however the test ends.
struct Mounted<'p> {
    point: &'p Path,
    child: Child,
    announced: String,
}

impl<'p> Mounted<'p> {
    fn start(place: &Place, point: &'p Path) -> Self {
        let mut command = Command::new(binary());
        command.args(["fs", "mount"]).arg(point).arg("--dir").arg(place.dir()).args(["--size", "64MiB"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut announced = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut announced).unwrap();
        Self { point, child, announced }
    }

    fn stop(mut self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
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
    for (round, signal) in ["-TERM", "-INT"].into_iter().enumerate() {
        let mounted = Mounted::start(&place, point.path());
        let expected = format!("mounted: {} on {} (", place.region().display(), point.path().display());
        assert!(mounted.announced.starts_with(&expected), "{}", mounted.announced);
        assert_eq!(fs::read_dir(point.path()).unwrap().count(), round);
        fs::write(point.path().join(signal), signal).unwrap();
        mounted.stop(signal);
        assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
    }
    let mounted = Mounted::start(&place, point.path());
    for signal in ["-TERM", "-INT"] {
        assert_eq!(fs::read_to_string(point.path().join(signal)).unwrap(), signal);
    }
    mounted.stop("-TERM");
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
    assert!(refusal(&[]).contains("give the files a directory of their own"));
    assert_eq!(fs::read_dir(point.path()).unwrap().count(), 0, "nothing is mounted");
}

#[test]
fn a_region_of_files_is_refused_by_the_server() {
    if !can_mount() {
        return;
    }
    let (place, point) = (Place::new(), tempfile::tempdir().unwrap());
    Mounted::start(&place, point.path()).stop("-TERM");
    let refused = place.try_start(&[]).err().expect("the region holds files");
    assert!(format!("{refused}").contains("the region holds files"), "{refused}");
}
