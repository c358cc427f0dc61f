//! Sends equal commands to Landfall and to Redis: the replies must be equal, byte for byte.
//!
//! Landfall is a session that the test drives directly. With `LANDFALL_RESP_ADDR=127.0.0.1:6479` in the environment it
//! is a running server instead, whose data are deleted: the list begins with `FLUSHALL`. Redis is a `redis-server` on a
//! free port of loopback; if none is installed, the test is skipped.

mod resp_support;

use resp_support::{Worker, encode, shared, words};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The commands, one per line; the head of the file explains the lines.
const COMMANDS: &str = include_str!("resp_commands.txt");
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that answers commands.
trait Speaker {
    fn ask(&mut self, words: &[Vec<u8>]) -> Vec<u8>;
}

impl Speaker for Worker<'_> {
    fn ask(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        self.now_ns = landfall_server::shared::now_ns();
        self.ask_words(words)
    }
}

/// A server at the other end of a TCP connection.
struct Remote(BufReader<TcpStream>);

impl Remote {
    fn connect(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Reads one reply of any type.
    fn read_reply(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.0.read_until(b'\n', out).expect("a reply in time");
        let line = String::from_utf8_lossy(&out[start..]).into_owned();
        let count = line.get(1..).and_then(|text| text.trim_end().parse::<i64>().ok()).unwrap_or(-1);
        match line.as_bytes().first() {
            Some(b'$' | b'=') if count >= 0 => {
                let mut body = vec![0; usize::try_from(count).unwrap() + 2];
                self.0.read_exact(&mut body).expect("a whole bulk string");
                out.extend_from_slice(&body);
            }
            Some(b'*' | b'~' | b'>') => (0..count).for_each(|_| self.read_reply(out)),
            Some(b'%') => (0..2 * count).for_each(|_| self.read_reply(out)),
            _ => {}
        }
    }
}

impl Speaker for Remote {
    fn ask(&mut self, words: &[Vec<u8>]) -> Vec<u8> {
        self.0.get_mut().write_all(&encode(words)).expect("the server is there");
        let mut reply = Vec::new();
        self.read_reply(&mut reply);
        reply
    }
}

/// A Redis server for one test.
struct Redis {
    child: Child,
    address: String,
}

impl Redis {
    /// `None` if Redis is not installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port_text = port.to_string();
        let args = ["--port", &port_text, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let child = Command::new("redis-server").args(args).stdout(Stdio::null()).spawn().ok()?;
        Some(Self { child, address: format!("127.0.0.1:{port}") })
    }

    fn connect(&self) -> Remote {
        let begun = Instant::now();
        loop {
            match Remote::connect(&self.address) {
                Ok(remote) => return remote,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "redis-server does not answer: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Some pairs of replies that differ.
fn differences(ours: &mut dyn Speaker, redis: &mut dyn Speaker) -> (usize, Vec<String>) {
    let mut asked = 0;
    let mut differing = Vec::new();
    for line in COMMANDS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (line, sorted) = line.strip_prefix("sorted ").map_or((line, false), |line| (line, true));
        let words = words(line);
        let mut replies = [ours.ask(&words), redis.ask(&words)];
        if sorted {
            replies = replies.map(|reply| sort_lines(&reply));
        }
        asked += 1;
        if replies[0] != replies[1] {
            let [ours, theirs] = replies.map(|reply| reply.escape_ascii().to_string());
            differing.push(format!("{line}\n   ours: {ours}\n  redis: {theirs}"));
        }
    }
    (asked, differing)
}

/// Sorts a reply whose order is undefined.
fn sort_lines(reply: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = reply.split(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

#[test]
fn replies_are_those_of_redis() {
    let Some(redis) = Redis::start() else {
        eprintln!("SKIP: redis-server is not installed, so replies are not compared with it");
        return;
    };
    let shared = shared();
    let mut ours: Box<dyn Speaker> = match std::env::var("LANDFALL_RESP_ADDR") {
        Ok(address) => Box::new(Remote::connect(&address).expect("a server at LANDFALL_RESP_ADDR")),
        Err(_) => Box::new(Worker::new(&shared, 1)),
    };
    let (asked, differing) = differences(&mut *ours, &mut redis.connect());
    assert!(asked > 300, "only {asked} commands were compared");
    assert!(differing.is_empty(), "{} of {asked} replies differ:\n{}", differing.len(), differing.join("\n"));
}
