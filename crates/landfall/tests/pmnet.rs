//! PMNet with real processes that are killed by SIGKILL under load: acknowledged updates are applied, whichever process
//! was killed.

mod common;
mod deployment;

use common::{Place, Reply, Resp, binary, landfall};
use deployment::{Net, Process, Writers, has_redis, must_have};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn connect(net: &Net, address: SocketAddr) -> Resp {
    net.client.enter(|| Resp::connect(address, LIMIT)).unwrap()
}

#[test]
fn kills_of_redis_of_the_device_and_of_both_sides_lose_nothing_acknowledged() {
    let Some(net) = has_redis().then(|| Net::new(1)).flatten() else { return };
    let mut redis = net.start_redis();
    let (mut server, mut device) = (net.start_server(), net.start_device(0, &[]));
    let client = net.start_client(1);
    let address = client.address("resp");
    let writers = Writers::start(3, || connect(&net, address));
    writers.wait_for(500);
    redis.kill();
    writers.wait_for(100);
    redis = net.start_redis();
    writers.wait_for(500);
    device.kill();
    device = net.start_device(0, &[]);
    writers.wait_for(500);
    server.kill();
    device.kill();
    (device, server) = (net.start_device(0, &[]), net.start_server());
    writers.wait_for(500);
    redis.kill();
    server.kill();
    device.kill();
    let _everything = (net.start_redis(), net.start_device(0, &[]), net.start_server());
    let wanted = writers.finish_after(2000);
    must_have(net.redis().expect("redis"), &wanted);
}

#[test]
fn a_device_that_is_lost_for_good_with_its_log_loses_nothing_that_another_has() {
    let Some(net) = has_redis().then(|| Net::new(2)).flatten() else { return };
    let _redis = net.start_redis();
    let (server, near, far) = (net.start_server(), net.start_device(0, &[]), net.start_device(1, &[]));
    let client = net.start_client(2);
    let address = client.address("resp");
    let writers = Writers::start(2, || connect(&net, address));
    writers.wait_for(200);
    // The server is killed while both devices still acknowledge; then one device is lost with all its data.
    server.kill();
    writers.wait_for(200);
    far.kill();
    std::fs::remove_dir_all(net.device_dir(1)).unwrap();
    let (_far, _server) = (net.start_device(1, &[]), net.start_server());
    let wanted = writers.finish_after(400);
    must_have(net.redis().expect("redis"), &wanted);
    drop(near);
}

#[test]
fn a_chain_that_acknowledges_in_one_packet_survives_kills_of_each_device() {
    const FLAGS: &[&str] = &["--spin", "always", "--keep-back", "100000"];
    let Some(net) = has_redis().then(|| Net::new(2)).flatten() else { return };
    let _redis = net.start_redis();
    let near_flags = [FLAGS, &["--metrics", "127.0.0.1:9151"]].concat();
    let server = net.start_server();
    let (near, far) = (net.start_device(0, &near_flags), net.start_device(1, FLAGS));
    let client = net.start_client(2);
    let address = client.address("resp");
    let writers = Writers::start(2, || connect(&net, address));
    writers.wait_for(300);
    let are_joined = |[joined, alone]: [u64; 2]| joined > 100 && joined > alone;
    counted(&net, ["joined_total", "acknowledged_total"], are_joined);
    far.kill();
    let _far = net.start_device(1, FLAGS);
    writers.wait_for(200);
    near.kill();
    let _near = net.start_device(0, &near_flags);
    writers.wait_for(100);
    // Now only the devices can acknowledge.
    server.kill();
    writers.wait_for(100);
    let _server = net.start_server();
    must_have(net.redis().expect("redis"), &writers.finish_after(500));
}

#[test]
fn as_the_servers_own_network_card_a_device_survives_kills_too() {
    let Some(net) = has_redis().then(|| Net::new(0)).flatten() else { return };
    let _redis = net.start_redis();
    let (mut server, mut device) = (net.start_server(), net.start_nic(&[]));
    let client = net.start_client(1);
    let address = client.address("resp");
    let writers = Writers::start(2, || connect(&net, address));
    writers.wait_for(300);
    device.kill();
    device = net.start_nic(&[]);
    writers.wait_for(300);
    server.kill();
    server = net.start_server();
    writers.wait_for(300);
    // Now only the device can acknowledge.
    server.kill();
    writers.wait_for(100);
    device.kill();
    let _everything = (net.start_nic(&[]), net.start_server());
    must_have(net.redis().expect("redis"), &writers.finish_after(500));
}

/// Devices alone acknowledge updates for a while, and each process is killed.
fn survives_kills_over_ipv6(net: &Net, start_device: impl Fn() -> Process) {
    let _redis = net.start_redis();
    let (server, device) = (net.start_server(), start_device());
    let client = net.start_client(1);
    let address = client.address("resp");
    let writers = Writers::start(2, || connect(net, address));
    writers.wait_for(300);
    device.kill();
    let device = start_device();
    writers.wait_for(300);
    server.kill();
    writers.wait_for(100);
    device.kill();
    let _everything = (start_device(), net.start_server());
    must_have(net.redis().expect("redis"), &writers.finish_after(500));
}

#[test]
fn over_ipv6_a_device_on_the_wire_survives_kills_too() {
    let Some(net) = has_redis().then(|| Net::over_ipv6(1)).flatten() else { return };
    survives_kills_over_ipv6(&net, || net.start_device(0, &[]));
}

#[test]
fn over_ipv6_a_device_as_network_card_survives_kills_too() {
    let Some(net) = has_redis().then(|| Net::over_ipv6(0)).flatten() else { return };
    survives_kills_over_ipv6(&net, || net.start_nic(&[]));
}

#[test]
fn reads_are_answered_from_a_devices_cache_and_see_every_write_before_them() {
    let Some(net) = has_redis().then(|| Net::new(1)).flatten() else { return };
    let _redis = net.start_redis();
    let _server = net.start_server();
    let _device =
        net.start_device(0, &["--cache", "resp", "--cache-wait", "0", "--metrics", "127.0.0.1:9151"]);
    let client = net.start_client(1);
    let address = client.address("resp");
    let mut resp = connect(&net, address);
    for value in 0..500 {
        let value = format!("value {value}");
        let reply = resp.call(&[b"SET", b"key", value.as_bytes()]).unwrap();
        assert_eq!(reply, Reply::Simple("OK".into()));
        assert_eq!(resp.call(&[b"GET", b"key"]).unwrap(), Reply::Bulk(value.clone().into_bytes()));
    }
    // Half of 500 reads come from the cache, and all come to the device.
    counted(&net, ["cache_hits_total", "bypasses_total"], |[hits, bypasses]| hits >= 250 && bypasses >= 500);
}

/// Waits until `landfall pmnet top` shows of the first device what is right.
fn counted<const N: usize>(net: &Net, names: [&str; N], is_right: impl Fn([u64; N]) -> bool) {
    let mut top = net.devices[0].command(binary().to_str().unwrap());
    shows(top.args(["pmnet", "top", "--count", "1"]), names, is_right);
}

/// Waits until a call of `landfall pmnet top` shows what is right: counters are published now and then, and a server may
/// still apply what a device has acknowledged.
fn shows<const N: usize>(top: &mut Command, names: [&str; N], is_right: impl Fn([u64; N]) -> bool) {
    let begun = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(300));
        let found = shown(top, names);
        if is_right(found) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{names:?} are {found:?}");
    }
}

fn shown<const N: usize>(top: &mut Command, names: [&str; N]) -> [u64; N] {
    let shown = String::from_utf8(top.output().unwrap().stdout).unwrap();
    names.map(|name| {
        let mut lines = shown.lines().map(str::split_whitespace);
        let count = lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()).flatten());
        count.unwrap_or_else(|| panic!("{name} is counted")).parse().unwrap()
    })
}

#[test]
fn without_a_read_cache_bypasses_and_responses_pass_in_the_kernel() {
    const READS: u64 = 300;
    let Some(net) = has_redis().then(|| Net::new(1)).flatten() else { return };
    let _redis = net.start_redis();
    let _server = net.start_server();
    // With endless busy-polling a device takes all packets; otherwise it lets these pass in the kernel.
    for (spin, passes) in [("50", true), ("always", false)] {
        let _device = net.start_device(0, &["--spin", spin, "--metrics", "127.0.0.1:9151"]);
        let client = net.start_client(1);
        let mut resp = connect(&net, client.address("resp"));
        for value in 0..READS {
            let value = value.to_string();
            assert_eq!(resp.call(&[b"SET", b"key", value.as_bytes()]).unwrap(), Reply::Simple("OK".into()));
            assert_eq!(resp.call(&[b"GET", b"key"]).unwrap(), Reply::Bulk(value.into_bytes()));
        }
        let is_right = |[bypasses, passed, logged]: [u64; 3]| {
            // In the kernel, a request and a response for each read.
            let reads =
                if passes { bypasses == 0 && passed >= 2 * READS } else { bypasses >= READS && passed == 0 };
            logged >= READS && reads
        };
        counted(&net, ["bypasses_total", "passed_total", "logged_total"], is_right);
    }
}

#[test]
fn the_log_of_a_stopped_device_can_be_listed_and_a_session_discarded() {
    let files = tempfile::tempdir().unwrap();
    let (dir, log) = (files.path().join("device"), files.path().join("log"));
    let dir = dir.to_str().unwrap();
    let mut command = Command::new(binary());
    command.args(["pmnet", "switch", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9", "--dir", dir]);
    command.args(["--capacity", "64MiB", "--upstream-ports", "22200-22210", "--number", "0"]);
    let relay = Process::start(command, &log);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let update = |seq: u8| [&[1, 0xfb, 7, 0, seq, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], b"request"].concat();
    for seq in 1..=3 {
        client.send_to(&update(seq), relay.address("listen")).unwrap();
        let mut bytes = [0; 64];
        let got = client.recv(&mut bytes).unwrap();
        assert_eq!((got, &bytes[..8]), (16, &[2, 0, 7, 0, seq, 0, 0, 0][..]));
    }
    relay.kill();
    let look = |more: &[&str]| {
        let output = landfall(&[&["pmnet", "log", "--dir", dir], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let session = format!("{}/7", client.local_addr().unwrap());
    let shown = look(&[]);
    assert!(shown.contains(&format!("{session} to 127.0.0.1:9: numbers 1 to 3, 3 updates")), "{shown}");
    assert!(look(&["--discard", &session]).contains("3 updates discarded"));
    assert!(look(&[]).starts_with("0 updates"));
    let refused = landfall(&["check", dir]);
    assert!(!refused.status.success(), "it is no store");
}

#[test]
fn without_privilege_a_relay_in_front_of_landfall_serve_survives_kills_too() {
    let (place, logs) = (Place::new(), tempfile::tempdir().unwrap());
    let store = place.start(&["--http", "off"]);
    let log = logs.path().join("log");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("pmnet").args(arguments);
        Process::start(command, &log)
    };
    let real = store.resp.to_string();
    let mut server = start(&["server", "--listen", "127.0.0.1:0", "--redis", &real]);
    let listens = server.address("listen").to_string();
    let dir = logs.path().join("device").to_str().unwrap().to_owned();
    let flags = [
        "switch",
        "--server",
        &listens,
        "--dir",
        &dir,
        "--capacity",
        "64MiB",
        "--upstream-ports",
        "22000-22100",
    ];
    let mut relay = start(&[&flags[..], &["--listen", "127.0.0.1:0", "--number", "0"]].concat());
    let front = relay.address("listen").to_string();
    let client =
        start(&["client", "--listen", "127.0.0.1:0", "--server", &front, "--devices", "1", "--spin", "50"]);
    let address = client.address("resp");
    let writers = Writers::start(2, || Resp::connect(address, LIMIT).unwrap());
    writers.wait_for(200);
    relay.kill();
    relay = start(&[&flags[..], &["--listen", &front, "--number", "0"]].concat());
    writers.wait_for(200);
    server.kill();
    server = start(&["server", "--listen", &listens, "--redis", &real, "--spin", "50"]);
    writers.wait_for(200);
    relay.kill();
    server.kill();
    let _server = start(&["server", "--listen", &listens, "--redis", &real, "--spin", "always"]);
    let _relay = start(&[&flags[..], &["--listen", &front, "--number", "0"]].concat());
    must_have(store.resp(), &writers.finish_after(400));
}

#[test]
fn side_cars_and_device_serve_their_counts() {
    const SETS: u64 = 40;
    const GETS: u64 = 7;
    let (place, logs) = (Place::new(), tempfile::tempdir().unwrap());
    let store = place.start(&["--http", "off"]);
    let log = logs.path().join("log");
    let start = |arguments: &[&str]| {
        let mut command = Command::new(binary());
        command.arg("pmnet").args(arguments).args(["--metrics", "127.0.0.1:0"]);
        Process::start(command, &log)
    };
    let real = store.resp.to_string();
    let server = start(&["server", "--listen", "127.0.0.1:0", "--redis", &real]);
    let listens = server.address("listen").to_string();
    let dir = logs.path().join("device").to_str().unwrap().to_owned();
    let region = ["--dir", &dir, "--capacity", "64MiB", "--upstream-ports", "22200-22250"];
    let relay = start(&[&["switch", "--listen", "127.0.0.1:0", "--server", &listens][..], &region].concat());
    let front = relay.address("listen").to_string();
    let client = start(&["client", "--listen", "127.0.0.1:0", "--server", &front, "--devices", "1"]);
    let mut resp = Resp::connect(client.address("resp"), LIMIT).unwrap();
    for value in 0..SETS {
        let value = value.to_string();
        resp.call(&[b"SET", b"key", value.as_bytes()]).unwrap();
    }
    for _ in 0..GETS {
        resp.call(&[b"GET", b"key"]).unwrap();
    }
    let top = |process: &Process| {
        let line = process.lines.iter().find_map(|line| line.strip_prefix("metrics: http://")).unwrap();
        let address = line.strip_suffix("/metrics").unwrap();
        let mut top = Command::new(binary());
        top.args(["pmnet", "top", "--count", "1", "--metrics", address]);
        top
    };
    shows(&mut top(&client), ["client_early_total", "client_bypass_total"], |found| found == [SETS, GETS]);
    // Either may be faster.
    let by = ["client_complete_by_devices_total", "client_complete_by_server_total"];
    shows(&mut top(&client), by, |found| found.iter().sum::<u64>() == SETS);
    shows(&mut top(&relay), ["logged_total"], |found| found == [SETS]);
    let applied = ["server_redis_updates_total", "server_applied_total"];
    shows(&mut top(&server), applied, |found| found == [SETS; 2]);
    // Now only the device can acknowledge.
    server.kill();
    resp.call(&[b"SET", b"key", b"last"]).unwrap();
    shows(&mut top(&client), ["client_complete_by_devices_total"], |[by_devices]| by_devices > 0);
}

#[test]
fn flags_that_would_mean_nothing_are_refused() {
    let relay = ["switch", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let client = ["client", "--listen", "127.0.0.1:0", "--server", "127.0.0.1:9"];
    let in_etcd = ["--etcd", "http://127.0.0.1:9", "--chain", "lab"];
    let cases: [(&[&str], &[&str], &str); 9] = [
        (&relay, &["--chain-file", "/nowhere"], "--name"),
        (&relay, &in_etcd, "--name"),
        (&["server", "--listen", "127.0.0.1:0"], &in_etcd, "--name"),
        (&relay, &["--xdp-mode", "copy"], "cannot be used with"),
        (&relay, &["--log-level", "loud"], "expected error, warn"),
        (&relay, &["--log-format", "xml"], "text, json"),
        (&client, &["--max-pipeline", "0"], "give 1 or more"),
        (&client, &["--max-request", "0"], "1KiB or more"),
        (&client, &["--devices", "251"], "not in 0..=250"),
    ];
    let place = Place::new();
    for (command, flags, says) in cases {
        let mut given = Command::new(binary());
        given.arg("pmnet").args(command).args(flags).current_dir(place.path());
        let output = given.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(says), "{command:?} {flags:?}: {said}");
    }
}
