//! A device's read cache with common clients, and its use of memory, with real processes and a Redis.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a test says what it skips and what it has measured"
)]

mod common;
mod deployment;

use common::{Resp, bulk, has_program, ok, pattern, run};
use deployment::loopback::{Loopback, Store, count, wait_for_empty_log};
use deployment::{Process, has_redis};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Time limit to fetch a Python package.
const INSTALL_LIMIT: Duration = Duration::from_secs(90);

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Each connection of redis-py sends HELLO 3, its name and its version before its first request.
const WRITE: &str = r#"
import sys, redis
port, keys = int(sys.argv[1]), int(sys.argv[2])
for key in range(keys):
    r = redis.Redis(port=port, protocol=3, client_name=f"writer{key}")
    assert r.execute_command("HELLO", 3)[b"proto"] == 3
    for value in range(3):
        assert r.set(f"key:{key}", f"{key}/{value}")
        assert r.get(f"key:{key}") == f"{key}/{value}".encode(), key
    r.close()
print("fine")
"#;
const READ: &str = r#"
import sys, redis
port, keys, connections = map(int, sys.argv[1:4])
for connection in range(connections):
    r = redis.Redis(port=port, protocol=3, client_name=f"reader{connection}")
    assert r.execute_command("HELLO", 3)[b"proto"] == 3
    for key in range(keys):
        got = r.get(f"key:{key}")
        assert got == f"{key}/2".encode(), (connection, key, got)
    r.close()
print("fine")
"#;

/// A Python with a redis-py that speaks RESP3.
fn python(place: &Path) -> Option<PathBuf> {
    let venv = place.join("venv");
    let made = has_program("python3", &["--version"])
        && run(Command::new("python3").args(["-m", "venv"]).arg(&venv), LIMIT).0
        && run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "redis>=5"]), INSTALL_LIMIT).0;
    if !made {
        eprintln!("SKIP: redis-py 5: not to be had");
    }
    made.then(|| venv.join("bin/python3"))
}

fn start(net: &Loopback, redis: &Store, flags: &[&str]) -> [Process; 3] {
    let server = net.server(anywhere(), redis.address(), &[]);
    let relay = net.relay(&server, &[&["--cache", "resp", "--cache-wait", "0"], flags].concat());
    let client = net.client(&relay, &[]);
    [server, relay, client]
}

#[test]
fn connections_of_redis_py_that_choose_resp3_leave_the_cache_filled_and_read_what_was_written() {
    const KEYS: u64 = 20;
    const CONNECTIONS: u64 = 15;
    // Values that the server confirms before the device's fence are not cached, so the fences must be fast.
    let Some(net) = has_redis().then(|| Loopback::in_memory("23060-23079")).flatten() else { return };
    let files = tempfile::tempdir().unwrap();
    let Some(python) = python(files.path()) else { return };
    let store = net.store("redis", None);
    let [_server, relay, client] = start(&net, &store, &[]);
    let script = |text: &str, numbers: &[u64]| {
        let port = u64::from(client.address("resp").port());
        let numbers = [&[port], numbers].concat();
        let arguments = numbers.iter().map(u64::to_string);
        let (well, said) = run(Command::new(&python).args(["-c", text]).args(arguments), LIMIT);
        assert!(well, "{said}");
    };
    script(WRITE, &[KEYS]);
    wait_for_empty_log(&relay);
    let hits_of = |connections: u64| {
        let before = count(&relay, "cache_hits_total");
        script(READ, &[KEYS, connections]);
        count(&relay, "cache_hits_total") - before
    };
    // A fence may have been slow.
    // A request that was sent again is two hits.
    let cached = hits_of(1).min(KEYS);
    assert!(cached >= KEYS / 2, "{cached} of {KEYS} keys are in the cache");
    let hits = hits_of(CONNECTIONS);
    assert!(hits >= cached * CONNECTIONS, "{hits} of {} reads came from the cache", cached * CONNECTIONS);
}

/// The server commits in memory and the device on a disk, so the server often confirms before the device's fence:
/// memory that waits for that fence must be released.
#[test]
fn memory_of_a_device_whose_server_confirms_before_its_fences_is_bounded() {
    const VALUE: usize = 1000;
    const BATCH: u64 = 500;
    const BATCHES: u64 = 240;
    const KEYS: u64 = 40_000;
    /// Growth from the first third to the end, during which 80 MB are written.
    const GROWTH_KIB_MAX: u64 = 16 << 10;
    let Some(fast) = has_redis().then(|| Loopback::in_memory("23080-23089")).flatten() else { return };
    let net = Loopback::new("23090-23099");
    let store = fast.store("redis", None);
    let [_server, relay, client] = start(&net, &store, &["--cache-size", "8MiB"]);
    let mut resp = Resp::connect(client.address("resp"), LIMIT).unwrap();
    let (value, mut early) = (pattern(1, VALUE), None);
    for batch in 0..BATCHES {
        for update in batch * BATCH..(batch + 1) * BATCH {
            resp.push(&[b"SET", format!("key:{}", update % KEYS).as_bytes(), &value]);
        }
        resp.flush().unwrap();
        (0..BATCH).for_each(|_| assert_eq!(resp.read().unwrap(), ok()));
        if batch == BATCHES / 3 {
            early = Some(relay.resident_kib());
        }
    }
    let (early, late) = (early.unwrap(), relay.resident_kib());
    println!("KiB after a third {early}, in the end {late}");
    assert!(late <= early + GROWTH_KIB_MAX, "{early} KiB after a third, {late} in the end");
    wait_for_empty_log(&relay);
    assert!(count(&relay, "cached_bytes") <= 8 << 20);
    assert_eq!(resp.call(&[b"GET", b"key:7"]).unwrap(), bulk(&value));
}
