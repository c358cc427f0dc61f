//! Settings that cannot work are refused at the start, with a message that says what to do.

mod common;
mod xdp;

use common::{Place, Refused, binary, ok, run, wait_until};
use landfall_testbed::LinkOptions;
use std::time::Duration;
use xdp::{Net, OWN};

/// Fails unless the server ended at its start, with these words in its error output.
fn says(outcome: Result<common::Server, Refused>, words: &[&str]) {
    let refused = outcome.err().unwrap_or_else(|| panic!("it started; expected: {words:?}"));
    assert!(refused.code.is_some_and(|code| code != 0 && code != 101), "{refused}");
    for word in words {
        assert!(refused.words.contains(word), "{word:?} is missing in: {refused}");
    }
    assert!(!refused.words.contains("panicked"), "{refused}");
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_to_do() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let open = "--insecure-no-password";
    says(net.try_start_on("nowhere0", &place, &[open]), &["nowhere0", "ip link"]);
    says(net.try_start(&place, &["--ip", OWN, "--workers", "2"]), &["--workers", "ethtool -L", "1 queue"]);
    says(net.try_start(&place, &["--ip", "10.9.0.1/24"]), &["10.9.0.1", "leave --ip away"]);
    says(net.try_start(&place, &["--ip", "10.9.0/24"]), &["10.9.0/24", "ADDRESS/PREFIX"]);
    says(net.try_start(&place, &["--ip", "10.9.0.3/33"]), &["10.9.0.3/33", "ADDRESS/PREFIX"]);
    for address in ["224.0.0.1/4", "0.0.0.0/0", "255.255.255.255/32", "ff02::1/128"] {
        says(net.try_start(&place, &["--ip", address]), &["unicast"]);
    }
    for mac in ["02:00:00:00:00", "02:00:00:00:00:00:01", "not a mac", "01:00:00:00:00:01", "+2:0:0:0:0:1"] {
        says(net.try_start(&place, &["--ip", OWN, "--mac", mac]), &[mac, "02:00:00:00:00:01"]);
    }
    says(net.try_start(&place, &["--ip", OWN, "--mac", "00:00:00:00:00:00"]), &["00:00:00:00:00:00"]);
    says(net.try_start(&place, &["--ip", OWN, "--spin", "soon"]), &["soon", "microseconds"]);
    says(net.try_start(&place, &["--ip", OWN, "--xdp-mode", "zero"]), &["zero-copy"]);
    says(
        net.try_start(&place, &["--ip", OWN, "--xdp-mode", "zero-copy"]),
        &["zero-copy", "`auto` or `copy`"],
    );
    says(net.try_start(&place, &["--ip", OWN, "--resp", "127.0.0.1:0"]), &["port"]);
    says(net.try_start_on("lo", &place, &[open]), &["lo"]);
    assert_eq!(net.start(&place, &[]).call(&["SET", "a", "1"]), ok(), "nothing of them is left");
}

#[test]
fn other_machines_are_not_served_without_a_password_by_accident() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    says(
        net.try_start_on(&net.interface, &place, &["--ip", OWN]),
        &["--password-file", "--insecure-no-password"],
    );
    says(net.try_start_on(&net.interface, &place, &[]), &["--password-file", "--insecure-no-password"]);
    let password = place.file("password", "secret\n");
    let flags = ["--ip", OWN, "--password-file", password.to_str().unwrap()];
    let server = net.try_start_on(&net.interface, &place, &flags).unwrap();
    let mut client = server.resp();
    assert!(common::error_text(&client.call(&[b"GET", b"a"]).unwrap()).starts_with("NOAUTH"));
    assert_eq!(client.call(&[b"AUTH", b"secret"]).unwrap(), ok());
}

#[test]
fn interface_without_an_address_is_refused_unless_one_is_given() {
    let Some(net) = Net::with(&LinkOptions::default()) else { return };
    let place = Place::new();
    let links = || {
        let output = net.server.command("ip").args(["-6", "addr", "show", &net.interface]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains("fe80:").then_some(())
    };
    wait_until(xdp::PATIENCE, links).expect("a link-local address, which the kernel gives every interface");
    says(net.try_start(&place, &[]), &["has no address", "--ip"]);
    net.client.ip(&format!("addr add 10.9.0.2/24 dev {}\n", net.client_interface)).unwrap();
    assert_eq!(net.start(&place, &[]).call(&["SET", "a", "1"]), ok());
}

#[test]
fn packets_that_do_not_fit_a_chunk_are_refused_and_the_largest_that_fit_are_served() {
    let Some(net) = Net::with(&LinkOptions { mtu: 9000, ..xdp::link() }) else { return };
    let place = Place::new();
    says(net.try_start(&place, &["--ip", OWN]), &["9000", "3822", "ip link set"]);
    let mtu = |mtu: u32| {
        for (host, interface) in [(&net.server, &net.interface), (&net.client, &net.client_interface)] {
            host.ip(&format!("link set {interface} mtu {mtu}\n")).unwrap();
        }
    };
    for size in [3822, 3400, 1774, 1280, 576] {
        mtu(size);
        let server = net.start(&place, &[]);
        let mut resp = server.resp();
        for len in [10, 1024, 3500, 100_000] {
            let value = common::pattern(u64::from(size) + len, len as usize);
            assert_eq!(resp.call(&[b"SET", b"a", &value]).unwrap(), ok(), "{size}");
            assert!(resp.call(&[b"GET", b"a"]).unwrap() == common::Reply::Bulk(value), "{size}: {len}");
        }
    }
}

#[test]
fn interface_of_another_server_is_refused_and_that_server_continues() {
    let Some(net) = Net::new() else { return };
    let (place, other) = (Place::new(), Place::new());
    let server = net.start(&place, &[]);
    says(net.try_start(&other, &["--ip", "10.9.0.4/24"]), &["stop"]);
    assert_eq!(server.call(&["SET", "a", "1"]), ok());
    server.kill();
    assert_eq!(net.start(&other, &[]).call(&["SET", "a", "1"]), ok());
}

#[test]
fn user_without_privileges_learns_which_are_needed() {
    let Some(net) = Net::new() else { return };
    if !common::has_program("setpriv", &["--version"]) {
        return;
    }
    // The program lies in a directory that other users cannot read: the test uses a copy that all may run.
    let place = Place::new();
    let program = std::env::temp_dir().join(format!("landfall-nobody-{}", std::process::id()));
    common::install_program(&binary(), &program);
    let dir = place.path().join("data");
    std::fs::create_dir(&dir).unwrap();
    for path in [place.path(), &dir] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let mut command = net.server.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program).arg("serve");
    command.args(["--xdp", &net.interface, "--ip", OWN, "--insecure-no-password", "--workers", "1"]);
    command.args(["--capacity", "64MiB", "--dir"]).arg(&dir);
    let (well, text) = run(&mut command, xdp::PATIENCE);
    std::fs::remove_file(&program).unwrap();
    assert!(!well, "{text}");
    for word in ["CAP_", "run as root"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn region_on_a_file_works_with_packets_in_memory() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--media", "file"]);
    let value = common::pattern(5, 5000);
    assert_eq!(server.resp().call(&[b"SET", b"a", &value]).unwrap(), ok());
    server.kill();
    let server = net.start(&place, &["--media", "file"]);
    assert_eq!(server.call(&["GET", "a"]), common::Reply::Bulk(value));
}

#[test]
fn sender_without_checksums_learns_how_to_compute_them() {
    let Some((testbed, net)) = landfall_testbed::Testbed::new().ok().zip(Net::new()) else { return };
    let client = testbed.host("careless").unwrap();
    let server_host = testbed.host("server").unwrap();
    let (interface, _) = testbed.link(&server_host, &client, &xdp::link()).unwrap();
    let place = Place::new();
    let mut command = server_host.command(binary().to_str().unwrap());
    command.env("NO_COLOR", "1");
    let flags = ["--xdp", &interface, "--ip", OWN, "--insecure-no-password", "--workers", "1"];
    let ports = ["--resp", "127.0.0.1:6479", "--http", "127.0.0.1:6480"];
    let server = place.try_start_by(command, &[&flags[..], &ports].concat()).unwrap();
    let limit = Duration::from_secs(2);
    let refused = client.enter(|| std::net::TcpStream::connect_timeout(&server.resp, limit));
    assert!(refused.is_err(), "packets without checksums are dropped");
    let told = wait_until(xdp::PATIENCE, || place.log().contains("ethtool -K").then_some(()));
    assert!(told.is_some(), "{}", place.log());
    drop(net);
}
