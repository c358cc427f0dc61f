//! Sessions of clients that are killed: they end without a command, and an operator can list and clear them. With a
//! real Redis.

mod common;
mod deployment;

use common::{Reply, Resp, binary, landfall};
use deployment::loopback::{Store, until};
use deployment::{Process, has_redis};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

fn start(arguments: &[&str], log: &Path) -> Process {
    let mut command = Command::new(binary());
    command.arg("pmnet").args(arguments);
    Process::start(command, log)
}

/// Lines of `landfall pmnet sessions`, and whether it succeeded.
fn sessions(redis: &str, arguments: &[&str]) -> (Vec<String>, bool) {
    let output = landfall(&[&["pmnet", "sessions", "--redis", redis][..], arguments].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(str::to_owned).collect(), output.status.success())
}

fn set(address: SocketAddr, key: &str) {
    let reply = Resp::connect(address, LIMIT).unwrap().call(&[b"SET", key.as_bytes(), b"value"]);
    assert!(matches!(&reply, Ok(Reply::Simple(ok)) if ok == "OK"), "{reply:?}");
}

/// Starts a client's side-car and kills it once its updates are applied.
fn client_dies(relay: &str, log: &Path, store: &Store, key: &str) {
    let client = start(&["client", "--listen", "127.0.0.1:0", "--server", relay, "--devices", "1"], log);
    set(client.address("resp"), key);
    until("the update", || store.get(key));
    client.kill();
}

#[test]
fn sessions_of_killed_clients_end_without_a_command_and_their_ports_are_released() {
    if !has_redis() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (store, log) = (Store::start(files.path().join("redis"), None), files.path().join("log"));
    let redis = store.address().to_string();
    let silence = ["--devices", "1", "--session-idle", "4"];
    let server =
        start(&[&["server", "--listen", "127.0.0.1:0", "--redis", &redis][..], &silence].concat(), &log);
    let (listens, dir) = (server.address("listen").to_string(), files.path().join("device"));
    let dir = dir.to_str().unwrap();
    let relay = ["switch", "--listen", "127.0.0.1:0", "--server", &listens, "--dir", dir, "--number", "0"];
    let region = ["--capacity", "64MiB", "--upstream-ports", "24300-24310", "--metrics", "127.0.0.1:0"];
    let relay = start(&[&relay[..], &region].concat(), &log);
    let front = relay.address("listen").to_string();
    (0..3).for_each(|number| client_dies(&front, &log, &store, &format!("key:{number}")));
    // A live client keeps its session through several periods of silence.
    let alive = start(&["client", "--listen", "127.0.0.1:0", "--server", &front, "--devices", "1"], &log);
    let mut resp = Resp::connect(alive.address("resp"), LIMIT).unwrap();
    resp.call(&[b"SET", b"alive", b"1"]).unwrap();
    let (open, _) = sessions(&redis, &[]);
    let is_open =
        |line: &&String| line.contains("open, applied up to 1, written") && line.ends_with("lease 1s");
    assert!(open.iter().any(|line| is_open(&line)), "{open:?}");
    until("three ends", || {
        let (lines, _) = sessions(&redis, &[]);
        let count = |state: &str| lines.iter().filter(|line| line.contains(state)).count();
        (count(": ended,") == 3 && count(": open,") == 1).then_some(())
    });
    let url = relay.lines.iter().find_map(|line| line.strip_prefix("metrics: http://"));
    let metrics = url.and_then(|url| url.strip_suffix("/metrics")).expect("where counts are").to_owned();
    until("their ports are given back", || {
        let page = landfall(&["pmnet", "top", "--count", "1", "--metrics", &metrics]);
        String::from_utf8_lossy(&page.stdout).lines().any(|line| is_count(line, "paths", "1")).then_some(())
    });
    let reply = resp.call(&[b"GET", b"alive"]);
    assert!(matches!(&reply, Ok(Reply::Bulk(value)) if value == b"1"), "{reply:?}");
    drop((server, alive));
}

fn is_count(line: &str, name: &str, value: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|word| word.ends_with(name)) && words.next() == Some(value)
}

#[test]
fn an_operator_sees_held_updates_and_clears_unsafe_sessions_only_by_force() {
    if !has_redis() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let (store, log) = (Store::start(files.path().join("redis"), None), files.path().join("log"));
    let redis = store.address().to_string();
    let server = start(&["server", "--listen", "127.0.0.1:0", "--redis", &redis], &log);
    let (listens, dir) = (server.address("listen").to_string(), files.path().join("device"));
    let dir = dir.to_str().unwrap();
    let relay = ["switch", "--listen", "127.0.0.1:0", "--server", &listens, "--dir", dir, "--number", "0"];
    let relay =
        start(&[&relay[..], &["--capacity", "64MiB", "--upstream-ports", "24200-24210"]].concat(), &log);
    let front = relay.address("listen").to_string();
    client_dies(&front, &log, &store, "first");
    let client = start(&["client", "--listen", "127.0.0.1:0", "--server", &front, "--devices", "1"], &log);
    let mut resp = Resp::connect(client.address("resp"), LIMIT).unwrap();
    resp.call(&[b"SET", b"second", b"1"]).unwrap();
    until("the update", || store.get("second"));
    // The server is killed: only the device holds what is acknowledged now.
    server.kill();
    (0..3).for_each(|_| drop(resp.call(&[b"SET", b"second", b"2"]).unwrap()));
    client.kill();
    relay.kill();
    let (listed, _) = sessions(&redis, &["--device-log", dir]);
    let held: Vec<&String> = listed.iter().filter(|line| line.ends_with("3 updates held")).collect();
    assert_eq!((listed.len(), held.len()), (3, 1), "{listed:?}");
    let name = |line: &str| line.split(": ").next().unwrap().to_owned();
    let (with_held, without) =
        (name(held[0]), name(listed.iter().find(|line| line.ends_with("0 updates held")).unwrap()));
    // Without force, no open session is removed, and none that is too young.
    let (lines, content) = sessions(&redis, &["--clear", &with_held]);
    assert!(!content && lines[0].contains("stays: it is open. Updates above 1"), "{lines:?}");
    assert_eq!(sessions(&redis, &["--clear-idle", "1h"]), (vec!["0 sessions cleared, 0 stay".into()], true));
    assert!(!sessions(&redis, &["--clear", "10.9.9.9:1/1"]).1);
    // With force the session ends, and then its row can be removed.
    let (lines, content) = sessions(&redis, &["--clear", &with_held, "--force", "--device-log", dir]);
    assert!(content && lines[0].ends_with("ended; 3 updates in logs will be refused"), "{lines:?}");
    let (lines, content) = sessions(&redis, &["--clear", &with_held]);
    assert!(content && lines[0].ends_with("removed"), "{lines:?}");
    let (left, _) = sessions(&redis, &[]);
    assert_eq!((left.len(), name(&left[0])), (2, without), "{left:?}");
    assert!(left[1].ends_with("new ones begin above 2"), "{left:?}");
    let (lines, content) = sessions(&redis, &["--clear-idle", "0s", "--force"]);
    assert!(content && lines.last().unwrap() == "1 sessions cleared, 0 stay", "{lines:?}");
}
