//! PMNet with a key that clients, devices and server share: nothing acknowledged is lost, and packets without the key
//! are ignored.

mod common;
mod deployment;

use common::{Place, Resp, binary};
use deployment::{Net, Process, Writers, has_redis, must_have};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// There must be no answer within this time.
const QUIET: Duration = Duration::from_millis(500);

fn key_file(dir: &Path) -> PathBuf {
    let path = dir.join("key");
    std::fs::write(&path, "000102030405060708090a0b0c0d0e0f\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

/// Sends a session start, a heartbeat and an update without a seal: there must be no answer.
fn is_ignored(address: SocketAddr) {
    let stranger = UdpSocket::bind("0.0.0.0:0").unwrap();
    stranger.set_read_timeout(Some(QUIET)).unwrap();
    for (kind, body) in [(0x20, &[9; 8][..]), (0x28, &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0]), (1, b"request")] {
        let header = [kind, 0xfb, 7, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        stranger.send_to(&[&header[..], body].concat(), address).unwrap();
    }
    let got = stranger.recv(&mut [0; 64]);
    assert!(got.is_err(), "{got:?}");
}

#[test]
fn on_the_wire_with_a_key_kills_lose_nothing_and_strangers_are_ignored() {
    let Some(mut net) = has_redis().then(|| Net::new(2)).flatten() else { return };
    let key = key_file(net.place.path());
    net.flags = vec!["--key-file".into(), key.to_str().unwrap().into()];
    let _redis = net.start_redis();
    let (mut server, far) = (net.start_server(), net.start_device(1, &[]));
    let mut near = net.start_device(0, &[]);
    let client = net.start_client(2);
    let address = client.address("resp");
    let writers = Writers::start(2, || net.client.enter(|| Resp::connect(address, LIMIT)).unwrap());
    writers.wait_for(300);
    near.kill();
    near = net.start_device(0, &[]);
    writers.wait_for(300);
    net.client.enter(|| is_ignored("10.9.0.2:51500".parse().unwrap()));
    // Now only the devices can acknowledge; later they send what they have.
    server.kill();
    writers.wait_for(100);
    near.kill();
    far.kill();
    let _devices = (net.start_device(0, &[]), net.start_device(1, &[]));
    server = net.start_server();
    must_have(net.redis().expect("redis"), &writers.finish_after(500));
    drop(server);
}

#[test]
fn as_network_card_with_a_key_kills_lose_nothing() {
    let Some(mut net) = has_redis().then(|| Net::new(0)).flatten() else { return };
    let key = key_file(net.place.path());
    net.flags = vec!["--key-file".into(), key.to_str().unwrap().into()];
    let _redis = net.start_redis();
    let (server, device) = (net.start_server(), net.start_nic(&[]));
    let client = net.start_client(1);
    let address = client.address("resp");
    let writers = Writers::start(2, || net.client.enter(|| Resp::connect(address, LIMIT)).unwrap());
    writers.wait_for(300);
    server.kill();
    writers.wait_for(100);
    device.kill();
    let _everything = (net.start_nic(&[]), net.start_server());
    must_have(net.redis().expect("redis"), &writers.finish_after(500));
}

#[test]
fn through_a_relay_with_a_key_kills_lose_nothing_and_strangers_are_ignored() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let store = place.start(&["--http", "off"]);
    let (log, key) = (files.path().join("log"), key_file(files.path()));
    let start = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("pmnet").args(arguments).arg("--key-file").arg(&key);
        Process::start(command, &log)
    };
    let real = store.resp.to_string();
    let mut server = start(&["server", "--listen", "127.0.0.1:0", "--redis", &real]);
    let listens = server.address("listen").to_string();
    let dir = files.path().join("device").to_str().unwrap().to_owned();
    let region = ["--dir", &dir, "--capacity", "64MiB", "--upstream-ports", "23100-23150", "--number", "0"];
    let relay = |at: &str| start(&[&["switch", "--listen", at, "--server", &listens][..], &region].concat());
    let mut device = relay("127.0.0.1:0");
    let front = device.address("listen");
    is_ignored(front);
    is_ignored(server.address("listen"));
    let client =
        start(&["client", "--listen", "127.0.0.1:0", "--server", &front.to_string(), "--devices", "1"]);
    let address = client.address("resp");
    let writers = Writers::start(2, || Resp::connect(address, LIMIT).unwrap());
    writers.wait_for(300);
    server.kill();
    writers.wait_for(100);
    device.kill();
    device = relay(&front.to_string());
    server = start(&["server", "--listen", &listens, "--redis", &real]);
    must_have(store.resp(), &writers.finish_after(400));
    drop((device, server));
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let key = key_file(files.path());
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    for part in ["client", "server", "switch"] {
        let mut command = Command::new(binary());
        command.args(["pmnet", part, "--listen", "127.0.0.1:0"]).arg("--key-file").arg(&key);
        if part != "server" {
            command.args(["--server", "127.0.0.1:9"]);
        }
        let output = command.current_dir(files.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("chmod 600"), "{part}: {said}");
    }
}
