//! An etcd for the chain of one run.

use crate::common::clients::find_program;
use crate::common::error::BenchError;
use crate::common::peers::{not_ready, spawn};
use crate::common::progress::check_stop;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The program, and the package of Debian that has it.
const PROGRAM: (&str, &str) = ("etcd", "etcd-server");
/// How long its start may take.
const START_MAX: Duration = Duration::from_secs(60);

/// A running etcd with its data in a run's folder; killed when this is dropped.
#[derive(Debug)]
pub(super) struct Etcd {
    child: Child,
    url: String,
}

impl Etcd {
    /// Starts it, and waits until it listens.
    pub(super) fn start(scratch: &Path) -> Result<Self, BenchError> {
        let (program, package) = PROGRAM;
        if find_program(program).is_none() {
            let what = format!("{program} is not installed (Debian: apt-get install {package})");
            return Err(BenchError::Missing(what));
        }
        let dir = scratch.join("etcd");
        let (clients, peers) = (free_address(&dir)?, free_address(&dir)?);
        let [url, peers] = [clients, peers].map(|address| format!("http://{address}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(&dir);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        let child = spawn(command, &dir, Stdio::null())?;
        let mut etcd = Self { child, url };
        etcd.wait_until_it_listens(clients, &dir)?;
        Ok(etcd)
    }

    fn wait_until_it_listens(&mut self, clients: SocketAddr, dir: &Path) -> Result<(), BenchError> {
        let began = Instant::now();
        while TcpStream::connect(clients).is_err() {
            check_stop()?;
            let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if has_ended || began.elapsed() > START_MAX {
                return Err(not_ready(PROGRAM.0, dir));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// The flags by which `landfall` finds it.
    pub(super) fn flags(&self) -> [&str; 2] {
        ["--etcd", &self.url]
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that is free now.
fn free_address(dir: &Path) -> Result<SocketAddr, BenchError> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    bound.map_err(BenchError::file(dir))
}
