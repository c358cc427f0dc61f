//! A chain whose members and order are in etcd, with real processes.

mod common;
mod deployment;

use common::etcd::{Etcd, start_etcd};
use common::{Place, Reply, Resp, binary, landfall};
use deployment::{PATIENCE, Process};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const CHAIN: &str = "test";

impl Etcd {
    fn flags(&self) -> [&str; 4] {
        ["--etcd", &self.url, "--chain", CHAIN]
    }

    /// Runs `landfall pmnet chain ...` until etcd answers.
    fn chain(&self, words: &[&str]) -> String {
        let begun = Instant::now();
        loop {
            let output = landfall(&[&["pmnet", "chain"], words, &self.flags()].concat());
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let words = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(begun.elapsed() < PATIENCE, "{words}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn wait_for(&self, line: &str) {
        let begun = Instant::now();
        while !self.chain(&["show"]).contains(line) {
            assert!(begun.elapsed() < PATIENCE, "no {line:?} in {}", self.chain(&["show"]));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Etcd {
    /// Posts JSON as an operator with curl would. Whether etcd accepts it.
    fn post(&self, path: &str, json: &str) -> bool {
        let Ok(mut stream) = TcpStream::connect(self.url.strip_prefix("http://").unwrap()) else {
            return false;
        };
        let head = format!("POST /v3/auth/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{json}", json.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200")
    }

    /// Demands a password from now on. There is one user: root.
    fn demand_password(&self, password: &str) {
        let begun = Instant::now();
        while !self.post("user/add", &format!(r#"{{"name":"root","password":"{password}"}}"#)) {
            assert!(begun.elapsed() < PATIENCE, "etcd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(self.post("user/grant", r#"{"user":"root","role":"root"}"#));
        assert!(self.post("enable", "{}"));
    }
}

#[test]
fn commands_log_in_to_an_etcd_that_demands_it_and_print_no_password() {
    let files = tempfile::tempdir().unwrap();
    let Some(etcd) = start_etcd(&files.path().join("etcd")) else { return };
    etcd.demand_password("correct horse");
    let file = files.path().join("password");
    let run = |words: &[&str], environment: Option<&str>| {
        let mut command = Command::new(binary());
        command.args(["pmnet", "chain"]).args(words).args(etcd.flags()).env_remove("LANDFALL_ETCD_PASSWORD");
        if let Some(password) = environment {
            command.env("LANDFALL_ETCD_PASSWORD", password);
        }
        let output = command.output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(printed).unwrap())
    };
    let by_file = ["--etcd-user", "root", "--etcd-password-file", file.to_str().unwrap()];
    std::fs::write(&file, "correct horse\n").unwrap();
    let (done, text) = run(&[&["init", "--server", "10.0.0.9:51000", "near"], &by_file[..]].concat(), None);
    assert!(done, "{text}");
    let (done, text) = run(&["show", "--etcd-user", "root"], Some("correct horse"));
    assert!(done && text.contains("near"), "{text}");
    std::fs::write(&file, "wrong battery\n").unwrap();
    let (done, text) = run(&[&["show"], &by_file[..]].concat(), None);
    assert!(!done && text.contains(r#"does not let user "root" in"#) && !text.contains("battery"), "{text}");
    let (done, text) = run(&["show"], None);
    assert!(!done && text.contains("give a user and a password"), "{text}");
    let (done, text) = run(&["show", "--etcd-user", "root"], None);
    assert!(!done && text.contains("--etcd-password-file FILE"), "{text}");
}

fn start(arguments: &[&str], log: &Path) -> Process {
    let mut command = Command::new(binary());
    command.arg("pmnet").args(arguments);
    Process::start(command, log)
}

#[test]
fn a_device_marked_as_lost_for_good_is_not_waited_for() {
    let (place, files) = (Place::new(), tempfile::tempdir().unwrap());
    let Some(etcd) = start_etcd(&files.path().join("etcd")) else { return };
    let log = files.path().join("log");
    let store = place.start(&["--http", "off"]);
    let device = |name: &str, listen: &str, server: &str, ports: &str| {
        let dir = files.path().join(name);
        let own = ["switch", "--listen", listen, "--server", server, "--name", name, "--capacity", "64MiB"];
        let more = ["--dir", dir.to_str().unwrap(), "--upstream-ports", ports];
        start(&[&own[..], &more, &etcd.flags()].concat(), &log)
    };
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (front, middle, end) = (free(), free(), free());
    etcd.chain(&["init", "--server", &front, "near", "far"]);
    let real = store.resp.to_string();
    let server = ["server", "--listen", &end, "--redis", &real, "--name", "main"];
    let server = start(&[&server[..], &etcd.flags()].concat(), &log);
    let far = device("far", &middle, &end, "24000-24050");
    let _near = device("near", &front, &middle, "24100-24150");
    etcd.wait_for("device 1   far                  alive");
    etcd.wait_for("member     main                 Server");
    let client = start(&[&["client", "--listen", "127.0.0.1:0"][..], &etcd.flags()].concat(), &log);
    let address: SocketAddr = client.address("resp");
    let set = |value: &str| {
        let mut resp = Resp::connect(address, PATIENCE).unwrap();
        let reply = resp.call(&[b"SET", b"key", value.as_bytes()]);
        assert!(matches!(&reply, Ok(Reply::Simple(ok)) if ok == "OK"), "{reply:?}");
    };
    set("1");
    // Now only devices can acknowledge, and one of them has been lost.
    server.kill();
    set("2");
    far.kill();
    let writer = std::thread::spawn(move || {
        let mut resp = Resp::connect(address, PATIENCE).unwrap();
        resp.call(&[b"SET", b"key", b"3"])
    });
    etcd.wait_for("device 1   far                  not registered");
    assert!(!writer.is_finished(), "acknowledged by one device of two");
    etcd.chain(&["fail", "far"]);
    let reply = writer.join().unwrap();
    assert!(matches!(&reply, Ok(Reply::Simple(ok)) if ok == "OK"), "{reply:?}");
    // The data of the remaining device arrive once the server can be reached again.
    let _server = start(&["server", "--listen", &end, "--redis", &real], &log);
    let dir = files.path().join("spare");
    let spare = ["switch", "--listen", &middle, "--server", &end, "--number", "9", "--capacity", "64MiB"];
    let _spare = start(
        &[&spare[..], &["--dir", dir.to_str().unwrap(), "--upstream-ports", "24000-24050"]].concat(),
        &log,
    );
    deployment::must_have(store.resp(), &[("key".into(), 3)]);
}
