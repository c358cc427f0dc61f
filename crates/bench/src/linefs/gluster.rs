//! GlusterFS with three copies: `glusterd`, three bricks and a mount, on this machine.
//!
//! `glusterd` and its bricks live in namespaces of their own, for processes, mounts and network. There the paths at which
//! GlusterFS keeps its state are folders of the run, its ports are nobody else's, and no process outlives the first one:
//! the kernel ends them all with it. The mount is this machine's, and its process talks from within that network.

use crate::common::clients::find_program;
use crate::common::command::succeed;
use crate::common::error::BenchError;
use crate::common::peers::{not_ready, spawn};
use crate::common::progress::check_stop;
use crate::common::sys;
use crate::files::wait_until_mounted;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The programs that are needed, and the packages of Debian that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("glusterd", "glusterfs-server"),
    ("gluster", "glusterfs-server"),
    ("glusterfs", "glusterfs-server"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("ip", "iproute2"),
];
/// The names of the processes that serve.
const SERVERS: [&str; 2] = ["glusterd", "glusterfsd"];
/// Copies.
const COPIES: usize = 3;
/// The address of everything in the network of its own; GlusterFS refuses 127.0.0.1 for bricks.
const ADDRESS: &str = "10.77.0.1";
/// The name of the volume.
const VOLUME: &str = "bench";
/// How long `glusterd`, or the client with its bricks, may take to start.
const START_MAX: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// What runs first in the namespaces; its argument is the folder of the run.
const SCRIPT: &str = "set -e
mount --bind \"$1/lib\" /var/lib/glusterd
mount --bind \"$1/log\" /var/log/glusterfs
mount -t tmpfs none /run
mkdir /run/gluster
ip link set lo up
ip address add 10.77.0.1/32 dev lo
exec glusterd --no-daemon --pid-file \"$1/glusterd.pid\" --log-file \"$1/log/glusterd.log\"";

/// A mount of a volume, and the processes that serve it. All of it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Gluster {
    mount: Option<Mount>,
    bricks: Bricks,
}

/// `glusterd` and the bricks that it has started.
#[derive(Debug)]
struct Bricks {
    /// The process that has made the namespaces, and waits for the first one in them.
    keeper: Child,
    /// The first process within: `glusterd`.
    first: Option<u32>,
    dir: PathBuf,
}

/// The client.
#[derive(Debug)]
struct Mount {
    client: Child,
    point: PathBuf,
}

impl Gluster {
    /// Makes a volume in a folder, and mounts it.
    pub(super) fn start(scratch: &Path, point: &Path) -> Result<Self, BenchError> {
        check_programs()?;
        let bricks = Bricks::start(scratch.join("gluster"))?;
        let mount = Mount::start(&bricks, point)?;
        let gluster = Self { mount: Some(mount), bricks };
        gluster.wait_for_copies(point)?;
        Ok(gluster)
    }

    /// Waits until what is written at the mount is at all bricks: the client is connected to each.
    fn wait_for_copies(&self, point: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        for number in 0.. {
            check_stop()?;
            let name = format!("ready-{number}");
            // There is no quorum for it while fewer than two bricks are connected.
            let written = fs::write(point.join(&name), b"ready").is_ok();
            let has = |brick: PathBuf| fs::read(brick.join(&name)).is_ok_and(|bytes| bytes == b"ready");
            let copies = self.bricks.folders().into_iter().filter(|brick| has(brick.clone())).count();
            if written {
                let _ = fs::remove_file(point.join(&name));
            }
            if copies == COPIES {
                return Ok(());
            }
            if began.elapsed() > START_MAX {
                break;
            }
            std::thread::sleep(STEP);
        }
        Err(not_ready("GlusterFS with three copies", &self.bricks.dir))
    }

    /// All of its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        let client = self.mount.iter().map(|mount| mount.client.id());
        client.chain(self.bricks.pids()).collect()
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // The client first, while its bricks answer.
        self.mount = None;
    }
}

impl Bricks {
    fn start(dir: PathBuf) -> Result<Self, BenchError> {
        for name in ["lib", "log"] {
            let folder = dir.join(name);
            fs::create_dir_all(&folder).map_err(BenchError::file(&folder))?;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "--pid", "--mount-proc", "--kill-child", "--fork"]);
        command.args(["sh", "-c", SCRIPT, "sh"]).arg(&dir);
        let keeper = spawn(command, &dir, Stdio::null())?;
        let mut bricks = Self { keeper, first: None, dir };
        bricks.wait_for_glusterd()?;
        let mut create = bricks.volume("create")?;
        create.args(["replica", &COPIES.to_string()]);
        for folder in bricks.folders() {
            fs::create_dir(&folder).map_err(BenchError::file(&folder))?;
            create.arg(format!("{ADDRESS}:{}", folder.display()));
        }
        succeed(create.arg("force"), "gluster volume create")?;
        succeed(&mut bricks.volume("start")?, "gluster volume start")?;
        Ok(bricks)
    }

    fn folders(&self) -> [PathBuf; COPIES] {
        std::array::from_fn(|number| self.dir.join(format!("brick-{number}")))
    }

    /// Waits until `glusterd` answers its command-line program.
    fn wait_for_glusterd(&mut self) -> Result<(), BenchError> {
        let began = Instant::now();
        while began.elapsed() < START_MAX {
            check_stop()?;
            let ended = self.keeper.try_wait().map_err(BenchError::file(&self.dir))?;
            if ended.is_some() {
                break;
            }
            self.first = first_child(self.keeper.id());
            if self.first.is_some() && succeed(self.gluster()?.args(["pool", "list"]), "gluster").is_ok() {
                return Ok(());
            }
            std::thread::sleep(STEP);
        }
        Err(not_ready("glusterd", &self.dir))
    }

    /// The command-line program, in the namespaces.
    fn gluster(&self) -> Result<Command, BenchError> {
        let first = self.first.ok_or_else(|| not_ready("glusterd", &self.dir))?;
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &first.to_string(),
            "--net",
            "--mount",
            "--pid",
            "gluster",
            "--mode=script",
        ]);
        Ok(command)
    }

    fn volume(&self, what: &str) -> Result<Command, BenchError> {
        let mut command = self.gluster()?;
        command.args(["volume", what, VOLUME]);
        Ok(command)
    }

    /// The processes in the namespace that serve. Its others come and go: scripts, and what begins the one that heals.
    fn pids(&self) -> Vec<u32> {
        let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let Some(own) = self.first.and_then(space) else { return Vec::new() };
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let serves = |pid: u32| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| SERVERS.contains(&name.trim_end()))
        };
        pids.filter(|pid| space(*pid).as_ref() == Some(&own) && serves(*pid)).collect()
    }
}

impl Drop for Bricks {
    fn drop(&mut self) {
        // The keeper has not been waited for, so that the process within is still its child, or has ended with it.
        if matches!(self.keeper.try_wait(), Ok(None))
            && let Some(first) = self.first.or_else(|| first_child(self.keeper.id()))
        {
            sys::kill(first);
        } else {
            let _ = self.keeper.kill();
        }
        let _ = self.keeper.wait();
    }
}

impl Mount {
    fn start(bricks: &Bricks, point: &Path) -> Result<Self, BenchError> {
        let mut command = Command::new("nsenter");
        command.args(["--target", &bricks.keeper.id().to_string(), "--net", "glusterfs", "--no-daemon"]);
        command.args(["--volfile-server", ADDRESS, "--volfile-id", VOLUME, "--log-file"]);
        command.arg(bricks.dir.join("log/client.log")).arg(point);
        let client = spawn(command, &bricks.dir, Stdio::null())?;
        let mount = Self { client, point: point.into() };
        wait_until_mounted(point, "glusterfs", &bricks.dir)?;
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A mount that is still busy is detached; the client ends in both cases.
        let _ = landfall_fuse::unmount(&self.point, landfall_fuse::Unmount::Lazily);
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn check_programs() -> Result<(), BenchError> {
    if fs::metadata("/proc/self").map_or(0, |own| own.uid()) != 0 {
        return Err(BenchError::Missing("GlusterFS needs root".into()));
    }
    match PROGRAMS.iter().find(|(program, _)| find_program(program).is_none()) {
        None => Ok(()),
        Some((program, package)) => Err(BenchError::Missing(format!(
            "{program} is not installed (Debian: apt-get install {package})"
        ))),
    }
}

/// A child of a process that has one thread and one child.
fn first_child(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}
