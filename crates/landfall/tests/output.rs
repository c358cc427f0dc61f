//! Commands whose output nobody reads on, as in `landfall stats | head`.

mod common;

use common::{Place, Resp, binary, own_address};
use std::fs::File;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Runs a command whose standard output and error nobody reads: how it ends.
fn unread(arguments: &[&str]) -> ExitStatus {
    let [(_, out), (_, errors)] = [(); 2].map(|()| std::io::pipe().unwrap());
    // The ends to read from are closed by now.
    Command::new(binary()).args(arguments).stdin(Stdio::null()).stdout(out).stderr(errors).status().unwrap()
}

/// Runs a command whose standard output nobody reads: how it ends, and what it says about that.
fn told(arguments: &[&str], out: impl Into<Stdio>) -> (ExitStatus, String) {
    let mut command = Command::new(binary());
    let output = command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn();
    let output = output.unwrap().wait_with_output().unwrap();
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_command_whose_reader_is_gone_ends_quietly() {
    let place = Place::new();
    let server = place.start(&[]);
    let resp = server.resp.to_string();
    let mut client = Resp::connect(server.resp, Duration::from_secs(20)).unwrap();
    client.call(&[b"LF.APPEND", b"log", b"entry"]).unwrap();
    let commands: [&[&str]; 4] = [
        &["stats", "--resp", &resp],
        &["wal", "read", "log", "--addr", &resp],
        &["wal", "list", "--addr", &resp],
        &["pmnet", "table"],
    ];
    for command in commands {
        let (status, errors) = told(command, closed());
        assert_eq!((status.code(), errors.as_str()), (Some(0), ""), "{command:?}");
        assert_eq!(unread(command).code(), Some(0), "{command:?}");
    }
    server.stop();
}

#[test]
fn a_check_that_nobody_reads_ends_with_its_verdict() {
    let place = Place::new();
    place.start(&[]).stop();
    let dir = place.dir();
    let dir = dir.to_str().unwrap();
    for (arguments, code) in [
        (&["check", dir][..], 0),
        (&["check", dir, "--json"], 0),
        (&["check", "/nowhere"], 2),
        (&["check", "/nowhere", "--json"], 2),
    ] {
        assert_eq!(unread(arguments).code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_fails_the_command() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (status, errors) = told(&["pmnet", "table"], full);
    assert_eq!(status.code(), Some(1));
    assert!(errors.starts_with("landfall: standard output: "), "{errors}");
}

#[test]
fn a_server_whose_start_nobody_reads_serves() {
    let place = Place::new();
    let address = own_address();
    let dir = place.dir();
    let flags =
        ["serve", "--capacity", "64MiB", "--http", "127.0.0.1:0", "--resp", &address.to_string(), "--dir"];
    let mut command = Command::new(binary());
    command.args(flags).arg(dir).stdin(Stdio::null()).stdout(closed()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    let reply = loop {
        if let Ok(mut client) = Resp::connect(address, Duration::from_secs(20)) {
            break client.call(&[b"PING"]);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", server.try_wait());
        std::thread::sleep(Duration::from_millis(20));
    };
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(reply.unwrap(), common::Reply::Simple("PONG".to_owned()));
}
