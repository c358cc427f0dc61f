//! Common clients of other projects against the server over AF_XDP.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;
mod xdp;

use common::{Place, Reply, Server, has_program, ok, pattern, run, wait_until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xdp::{Net, SERVER};

const LIMIT: Duration = Duration::from_secs(100);

fn succeeds(command: &mut Command) -> String {
    let (well, text) = run(command, LIMIT);
    assert!(well, "{command:?}: {text}");
    text
}

fn at(server: &Server) -> [String; 2] {
    [server.resp.ip().to_string(), server.resp.port().to_string()]
}

/// Runs `check` with a server over IPv4 and one over IPv6, each with an address of its own.
fn over_both(check: impl Fn(&Server, &Place)) {
    let Some(net) = Net::new() else { return };
    for address in [xdp::OWN, xdp::OWN_V6] {
        let place = Place::new();
        check(&net.start_at(&place, address, &["--capacity", "256MiB"]), &place);
    }
}

#[test]
fn redis_cli_reads_writes_and_scans() {
    if !has_program("redis-cli", &["--version"]) {
        return;
    }
    over_both(|server, place| {
        let [host, port] = at(server);
        let cli = |words: &[&str]| {
            succeeds(server.client("redis-cli").args(["-h", &host, "-p", &port]).args(words))
        };
        assert_eq!(cli(&["set", "greeting", "hello"]).trim(), "OK");
        assert_eq!(cli(&["get", "greeting"]).trim(), "hello");
        assert_eq!(cli(&["lf.range", "a", "z", "limit", "10"]), "greeting\nhello\n");
        assert_eq!(cli(&["-3", "get", "greeting"]).trim(), "hello");
        assert_eq!(cli(&["--scan"]).lines().count(), 1);
        assert!(cli(&["info", "server"]).contains("multiplexing_api:xdp"));
        let file = place.file("large", &"x".repeat(3 << 20));
        let put = format!("redis-cli -h {host} -p {port} -x set large < {}", file.display());
        assert_eq!(succeeds(server.client("sh").args(["-c", &put])).trim(), "OK");
        assert_eq!(cli(&["strlen", "large"]).trim(), (3 << 20).to_string());
        // redis-cli adds the newline.
        assert_eq!(cli(&["get", "large"]).len(), (3 << 20) + 1);
    });
}

#[test]
fn redis_benchmark_ends_without_an_error() {
    if !has_program("redis-benchmark", &["--version"]) {
        return;
    }
    over_both(|server, _| {
        let [host, port] = at(server);
        for more in [&["-c", "50", "-P", "1"][..], &["-c", "20", "-P", "16"]] {
            let mut command = server.client("redis-benchmark");
            command.args(["-h", &host, "-p", &port, "-n", "5000", "-d", "1024", "-r", "500", "-q"]);
            let text = succeeds(command.args(["-t", "ping,set,get,incr,mset"]).args(more));
            assert_eq!(text.matches("requests per second").count(), 6, "{text}");
            assert!(!text.to_lowercase().contains("error"), "{text}");
        }
    });
}

const PYTHON: &str = r#"
import sys, redis
r = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), client_name="py")
assert r.ping()
big = bytes(range(256)) * 4096
assert r.set("big", big) and r.get("big") == big and r.strlen("big") == 1 << 20
with r.pipeline(transaction=False) as pipe:
    for i in range(2000):
        pipe.set(f"k{i:04}", f"{i}-" * 100)
    assert pipe.execute() == [True] * 2000
with r.pipeline(transaction=False) as pipe:
    for i in range(2000):
        pipe.get(f"k{i:04}")
    assert pipe.execute() == [(f"{i}-" * 100).encode() for i in range(2000)]
with r.pipeline(transaction=False) as pipe:
    for i in range(8):
        pipe.set(f"big{i}", big[i:] + big[:i])
        pipe.get(f"big{i}")
    assert pipe.execute() == [x for i in range(8) for x in (True, big[i:] + big[:i])]
with r.pipeline() as pipe:
    pipe.multi(); pipe.incr("n"); pipe.incrby("n", 41); pipe.get("n")
    assert pipe.execute() == [1, 42, b"42"]
with r.pipeline() as pipe:
    pipe.watch("n")
    r.set("n", 7)
    pipe.multi(); pipe.set("n", 0)
    try:
        pipe.execute()
        raise SystemExit("a watched key was overwritten")
    except redis.WatchError:
        pass
assert len(list(r.scan_iter("k*", count=37))) == 2000
assert r.mget("k0001", "nothing") == [b"1-" * 100, None]
assert r.info()["redis_version"]
print("fine")
"#;

#[test]
fn redis_py_pipelines_watches_and_moves_large_values() {
    let has_redis = |python: &PathBuf| run(Command::new(python).args(["-c", "import redis"]), LIMIT).0;
    let pythons = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
    let Some(python) = pythons.into_iter().filter(|python| python.exists()).find(has_redis) else {
        eprintln!("SKIP: redis-py: not installed, see `cargo xtask peers`");
        return;
    };
    over_both(|server, place| {
        let script = place.file("client.py", PYTHON);
        let text = succeeds(server.client(python.to_str().unwrap()).arg(script).args(at(server)));
        assert!(text.ends_with("fine\n"), "{text}");
    });
}

#[test]
fn curl_puts_gets_and_deletes_and_twenty_megabytes_come_back_unchanged() {
    if !has_program("curl", &["--version"]) {
        return;
    }
    over_both(|server, place| {
        let url = |key: &str| format!("http://{}/kv/{key}", server.http);
        let answer = place.path().join("answer");
        let curl = |args: &[&str]| {
            let mut command = server.client("curl");
            command.args(["-sS", "-g", "-w", "%{http_code}", "-o"]).arg(&answer).args(args);
            (succeeds(&mut command), std::fs::read(&answer).unwrap_or_default())
        };
        let body = pattern(20, 20_000_000);
        let file = place.path().join("body");
        std::fs::write(&file, &body).unwrap();
        let path = file.to_str().unwrap();
        assert_eq!(curl(&["-T", path, &url("large")]).0, "201");
        let (status, got) = curl(&[&url("large")]);
        assert_eq!((status.as_str(), crc32c::crc32c(&got)), ("200", crc32c::crc32c(&body)));
        assert!(got == body);
        let chunked = ["-T", path, "-H", "Transfer-Encoding: chunked", "-H", "Expect:"];
        assert_eq!(curl(&[&chunked[..], &[&url("chunked")]].concat()).0, "201");
        assert!(curl(&[&url("chunked")]).1 == body);
        assert_eq!(curl(&["-X", "PUT", "-d", "one", &url("c")]).0, "201");
        assert_eq!(curl(&["-X", "PUT", "-d", "two", "-H", "If-None-Match: *", &url("c")]).0, "412");
        assert_eq!(curl(&[&url("c")]), ("200".into(), b"one".to_vec()));
        assert_eq!(curl(&["-X", "DELETE", &url("large")]).0, "204");
        assert_eq!(curl(&[&url("large")]).0, "404");
        server.http().call("GET", "/healthz", "", b"").unwrap();
    });
}

const WRK: &str = r#"
local value = string.rep("v", 1024)
local count = 0
request = function()
  count = count + 1
  local path = "/kv/w" .. (math.floor((count + 1) / 2) % 500)
  if count % 2 == 0 then return wrk.format("GET", path) end
  return wrk.format("POST", path, nil, value)
end
"#;

#[test]
fn wrk_posts_and_gets_without_an_error() {
    if !has_program("wrk", &["--version"]) {
        return;
    }
    over_both(|server, place| {
        let script = place.file("mixed.lua", WRK);
        let mut wrk = server.client("wrk");
        wrk.args(["-t1", "-c16", "-d2s", "--timeout", "30s", "-s"]).arg(script);
        let text = succeeds(wrk.arg(format!("http://{}/", server.http)));
        assert!(text.contains("Requests/sec"), "{text}");
        assert!(!text.contains("Socket errors"), "{text}");
        assert!(server.metric("landfall_http_requests_total") > 100.0);
    });
}

#[test]
fn address_is_shared_with_the_kernel_whose_services_continue() {
    let Some(net) = Net::new() else { return };
    let echo = net.server.enter(|| TcpListener::bind((SERVER, 7000))).unwrap();
    let place = Place::new();
    let server = net.start_shared(&place, &[]);
    assert_eq!(server.resp, SocketAddr::from((SERVER, xdp::RESP_PORT)));
    let echoes = std::thread::spawn(move || {
        let (mut stream, _) = echo.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let mut to_kernel = xdp::stream(&server, SocketAddr::from((SERVER, 7000)));
    let mut resp = server.resp();
    let sent = pattern(3, 3_000_000);
    for (index, part) in sent.chunks(10_000).enumerate() {
        to_kernel.write_all(part).unwrap();
        assert_eq!(resp.call(&[b"SET", format!("k{index}").as_bytes(), part]).unwrap(), ok());
        assert_eq!(resp.call(&[b"GET", format!("k{index}").as_bytes()]).unwrap(), Reply::Bulk(part.to_vec()));
    }
    to_kernel.shutdown(std::net::Shutdown::Write).unwrap();
    let mut back = Vec::new();
    to_kernel.read_to_end(&mut back).unwrap();
    assert!(back == sent, "the kernel's own connection was disturbed");
    echoes.join().unwrap();
    let refused = server.at_clients(|| std::net::TcpStream::connect((SERVER, 7001))).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "the kernel refuses other ports");
}

/// A client on the same virtual link gets long packets uncut; behind a link without offloads the kernel cuts them.
#[test]
fn long_replies_are_sent_in_long_packets_and_arrive_unchanged() {
    for (cut_by_kernel, flags) in
        [(false, &[][..]), (true, &[]), (false, &["--xdp-offload", "off", "--xdp-busy-poll", "20"])]
    {
        let Some(net) = Net::new() else { return };
        if cut_by_kernel {
            net.server.disable_offloads(&net.interface).unwrap();
            net.client.disable_offloads(&net.client_interface).unwrap();
        }
        for address in [xdp::OWN, xdp::OWN_V6] {
            let place = Place::new();
            let server = net.start_at(&place, address, &[&["--capacity", "256MiB"], flags].concat());
            let body = pattern(7, 3_000_001);
            let mut http = server.http();
            assert_eq!(http.call("PUT", "/kv/long", "", &body).unwrap().status, 201);
            for _ in 0..3 {
                assert!(http.call("GET", "/kv/long", "", b"").unwrap().body == body);
            }
            // Counters are published periodically.
            let counted = wait_until(xdp::PATIENCE, || {
                let metrics = server.metrics();
                let segments = *metrics.get("landfall_net_sent_packets")?;
                (segments > 3.0 * 3e6 / 1500.0).then(|| (metrics["landfall_net_offloaded_bursts"], segments))
            });
            let (bursts, segments) = counted.expect("as many segments as it takes");
            match flags.is_empty() {
                // Most segments are in long packets.
                true => {
                    assert!((20.0..segments / 2.0).contains(&bursts), "{bursts} bursts, {segments} segments")
                }
                false => assert!(bursts == 0.0, "{bursts} bursts"),
            }
        }
    }
}
