//! Helpers for the tests: a real redis-server, and a simple client for it.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::print_stderr,
    reason = "each test program uses its part, and reports what it skips"
)]

mod sidecars;

pub use sidecars::{Running, Sidecars, anywhere, start_server, until};

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(20);

/// A Redis server with a directory of its own. It is killed when this value is dropped.
pub struct Redis {
    child: Child,
    pub address: SocketAddr,
    dir: tempfile::TempDir,
}

impl Redis {
    /// Starts a server that syncs every commit. If redis-server is not installed, prints the reason and returns `None`.
    pub fn start() -> Option<Self> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("SKIP: redis-server: not installed, see `cargo xtask peers`");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let redis = Self { child: spawn(&dir, address), address, dir };
        redis.wait();
        Some(redis)
    }

    /// Kills the server and starts it again on the same files.
    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.child = spawn(&self.dir, self.address);
        self.wait();
    }

    /// A copy of the server's files.
    pub fn image(&self) -> tempfile::TempDir {
        let image = tempfile::tempdir().unwrap();
        copy(self.dir.path(), image.path());
        image
    }

    /// Kills the server and starts it again on older files.
    pub fn go_back_to(&mut self, image: &tempfile::TempDir) {
        self.kill();
        std::fs::remove_dir_all(self.dir.path()).unwrap();
        copy(image.path(), self.dir.path());
        self.child = spawn(&self.dir, self.address);
        self.wait();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    fn wait(&self) {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            if let Ok(stream) = TcpStream::connect(self.address) {
                let mut client = Client { stream: BufReader::new(stream) };
                if client.call(&["PING"]) == "+PONG\r\n" {
                    return;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("redis-server did not start");
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

fn spawn(dir: &tempfile::TempDir, address: SocketAddr) -> Child {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--daemonize", "no", "--enable-debug-command", "yes"]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    command.arg("--port").arg(address.port().to_string()).arg("--dir").arg(dir.path());
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that sends commands and reads replies.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub fn send(&mut self, words: &[&str]) {
        let mut bytes = format!("*{}\r\n", words.len());
        for word in words {
            bytes += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    /// Reads a reply. Empty once the connection has ended.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        let number = line.get(1..).and_then(|text| text.trim_end().parse::<i64>().ok());
        match (line.chars().next(), number) {
            (Some('$' | '='), Some(len @ 0..)) => {
                let mut body = vec![0; usize::try_from(len).unwrap() + 2];
                self.stream.read_exact(&mut body).unwrap();
                line += &String::from_utf8_lossy(&body);
            }
            (Some('*' | '~'), Some(count @ 0..)) => (0..count).for_each(|_| line += &self.reply()),
            (Some('%'), Some(pairs @ 0..)) => (0..2 * pairs).for_each(|_| line += &self.reply()),
            _ => {}
        }
        line
    }

    pub fn call(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.reply()
    }
}
