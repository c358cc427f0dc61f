//! Common clients of other projects, as installed.

mod common;

use common::{BUILD_LIMIT, Place, Server, build_go_client, has_program, python_with_redis, run};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(40);

fn port(server: &Server) -> String {
    server.resp.port().to_string()
}

fn succeeds(command: &mut Command, limit: Duration) -> String {
    let (well, text) = run(command, limit);
    assert!(well, "{command:?}: {text}");
    text
}

#[test]
fn redis_cli_reads_writes_and_scans() {
    if !has_program("redis-cli", &["--version"]) {
        return;
    }
    let place = Place::new();
    let server = place.start(&[]);
    let cli =
        |words: &[&str]| succeeds(Command::new("redis-cli").args(["-p", &port(&server)]).args(words), LIMIT);
    assert_eq!(cli(&["set", "greeting", "hello"]).trim(), "OK");
    assert_eq!(cli(&["get", "greeting"]).trim(), "hello");
    assert_eq!(cli(&["set", "session", "abc", "ex", "3600", "nx"]).trim(), "OK");
    assert_eq!(cli(&["lf.range", "a", "z", "limit", "10"]), "greeting\nhello\nsession\nabc\n");
    assert_eq!(cli(&["-3", "get", "greeting"]).trim(), "hello");
    assert_eq!(cli(&["--scan"]).lines().count(), 2);
    assert_eq!(cli(&["-n", "3", "dbsize"]).trim(), "0");
    assert!(cli(&["info", "persistence"]).contains("aof_"), "exporters read these");
    assert!(cli(&["config", "get", "maxclients"]).contains("10000"));
    let file = place.file("large", &"x".repeat(3 << 20));
    let put = format!("redis-cli -p {} -x set large < {}", port(&server), file.display());
    assert_eq!(succeeds(Command::new("sh").args(["-c", &put]), LIMIT).trim(), "OK");
    assert_eq!(cli(&["strlen", "large"]).trim(), (3 << 20).to_string());
}

const PYTHON: &str = r#"
import sys, redis
# The protocol can be chosen from version 5 on.
speaks = [{}] if int(redis.__version__.split(".")[0]) < 5 else [{"protocol": 2}, {"protocol": 3}, {}]
for options in speaks:
    r = redis.Redis(port=int(sys.argv[1]), client_name="py", **options)
    assert r.ping()
    r.flushall()
    assert r.set("a", b"\x00\r\n\xff" * 1000)
    assert r.get("a") == b"\x00\r\n\xff" * 1000
    assert r.get("missing") is None
    assert r.set("x", 1, px=100000, nx=True) and not r.set("x", 2, nx=True)
    assert 99000 < r.pttl("x") <= 100000
    with r.pipeline(transaction=False) as pipe:
        for i in range(1000):
            pipe.set(f"k{i:04}", i)
        assert pipe.execute() == [True] * 1000
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
    assert r.get("n") == b"7"
    assert len(list(r.scan_iter("k*", count=37))) == 1000
    assert r.mget("k0001", "nothing") == [b"1", None]
    assert r.dbsize() == 1003 and r.delete("a", "x", "y") == 2
    assert r.expire("n", 1000) and r.ttl("n") > 990 and r.persist("n") and r.ttl("n") == -1
    try:
        r.incr("k0001", "x")
        raise SystemExit("a bad number was taken")
    except redis.ResponseError:
        pass
    assert r.info()["redis_version"]
    assert any(c["name"] == "py" for c in r.client_list())
print("fine")
"#;

#[test]
fn redis_py_as_installed_pipelines_watches_and_scans() {
    if let Some(python) = python_with_redis() {
        run_python(&Place::new(), &python);
    }
}

#[test]
fn current_redis_py_pipelines_watches_and_scans_in_both_protocols() {
    let place = Place::new();
    let venv = place.path().join("venv");
    let made = has_program("python3", &["--version"])
        && run(Command::new("python3").args(["-m", "venv"]).arg(&venv), LIMIT).0
        && run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "redis>=5"]), BUILD_LIMIT).0;
    if !made {
        eprintln!("SKIP: redis-py 5: not to be had");
        return;
    }
    run_python(&place, &venv.join("bin/python3"));
}

fn run_python(place: &Place, python: &Path) {
    let server = place.start(&[]);
    let script = place.file("client.py", PYTHON);
    let text = succeeds(Command::new(python).arg(script).arg(port(&server)), LIMIT);
    assert!(text.ends_with("fine\n"), "{text}");
}

#[test]
fn go_redis_pipelines_watches_and_scans() {
    let place = Place::new();
    let Some(client) = build_go_client(&place) else { return };
    let server = place.start(&[]);
    let text = succeeds(Command::new(&client).arg(server.resp.to_string()), LIMIT);
    assert!(text.ends_with("fine\n"), "{text}");
}

#[test]
fn redis_benchmark_runs_without_an_error() {
    if !has_program("redis-benchmark", &["--version"]) {
        return;
    }
    let place = Place::new();
    let server = place.start(&[]);
    for pipeline in ["1", "16"] {
        let mut bench = Command::new("redis-benchmark");
        bench.args([
            "-p",
            &port(&server),
            "-n",
            "10000",
            "-c",
            "50",
            "-d",
            "1024",
            "-r",
            "1000",
            "-P",
            pipeline,
            "-q",
        ]);
        let text = succeeds(bench.args(["-t", "ping,set,get,incr,mset"]), LIMIT);
        assert!(text.contains("SET: ") && text.contains("GET: ") && text.contains("MSET"), "{text}");
        assert!(!text.contains("rror"), "{text}");
    }
    assert_eq!(server.metric("landfall_errors_total"), 0.0);
}

#[test]
fn curl_stores_reads_and_asks_conditionally() {
    if !has_program("curl", &["--version"]) {
        return;
    }
    let place = Place::new();
    let server = place.start(&[]);
    let base = format!("http://{}/kv", server.http);
    let curl = |words: &[&str]| {
        let mut command = Command::new("curl");
        command
            .args(["-sS", "-o", place.path().join("out").to_str().unwrap(), "-w", "%{http_code}"])
            .args(words);
        let status = succeeds(&mut command, LIMIT);
        (status, std::fs::read_to_string(place.path().join("out")).unwrap_or_default())
    };
    let large = place.file("large", &"0123456789".repeat(300_000));
    let data = format!("@{}", large.display());
    let url = |key: &str| format!("{base}/{key}");
    // curl sends `Expect: 100-continue` for bodies above a mebibyte, and waits a second if the server does not answer
    // it.
    let (status, _) = curl(&[
        "-X",
        "PUT",
        "--data-binary",
        &data,
        "--expect100-timeout",
        "30",
        "-H",
        "Expect: 100-continue",
        &url("large"),
    ]);
    assert_eq!(status, "201");
    let (status, body) = curl(&[&url("large")]);
    assert_eq!((status.as_str(), body.len()), ("200", 3_000_000));
    let (status, _) =
        curl(&["-X", "PUT", "-H", "Transfer-Encoding: chunked", "--data-binary", &data, &url("chunked")]);
    assert_eq!(status, "201");
    assert_eq!(curl(&[&url("chunked")]).1, body);
    assert_eq!(curl(&["-X", "PUT", "-d", "one", "-H", "If-None-Match: *", &url("c")]).0, "201");
    assert_eq!(curl(&["-X", "PUT", "-d", "two", "-H", "If-None-Match: *", &url("c")]).0, "412");
    let head = succeeds(Command::new("curl").args(["-sSI", &url("c")]), LIMIT);
    let etag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an ETag").trim().to_owned();
    assert_eq!(curl(&["-H", &format!("If-None-Match: {etag}"), &url("c")]).0, "304");
    assert_eq!(curl(&["-X", "PUT", "-d", "two", "-H", &format!("If-Match: {etag}"), &url("c")]).0, "204");
    assert_eq!(curl(&["-X", "PUT", "-d", "three", "-H", &format!("If-Match: {etag}"), &url("c")]).0, "412");
    assert_eq!(curl(&[&url("c")]), ("200".into(), "two".into()));
    assert_eq!(curl(&["-X", "PUT", "-d", "x", "-H", "X-Landfall-TTL: 1500ms", &url("brief")]).0, "201");
    let listing = curl(&[&format!("{base}?prefix=c&limit=10&format=ndjson")]).1;
    assert_eq!(listing.lines().count(), 2, "{listing}");
    assert_eq!(curl(&["-X", "DELETE", &url("c")]).0, "204");
    assert_eq!(curl(&[&url("c")]).0, "404");
    let root = format!("http://{}", server.http);
    assert_eq!(curl(&[&format!("{root}/healthz")]).0, "200");
    assert!(curl(&[&format!("{root}/metrics")]).1.contains("landfall_commits_total"));
    std::thread::sleep(Duration::from_millis(1600));
    assert_eq!(curl(&[&url("brief")]).0, "404");
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
    let place = Place::new();
    let server = place.start(&[]);
    let script = place.file("mixed.lua", WRK);
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", "-c16", "-d2s", "--timeout", "30s", "-s"])
        .arg(script)
        .arg(format!("http://{}/", server.http));
    let text = succeeds(&mut wrk, LIMIT);
    assert!(text.contains("Requests/sec"), "{text}");
    assert!(!text.contains("Socket errors"), "{text}");
    // The first reads may come before the first writes.
    let failed = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("Non-2xx or 3xx responses: ")?.parse::<u64>().ok());
    assert!(failed.unwrap_or(0) < 500 * 16, "{text}");
    assert!(server.metric("landfall_http_requests_total") > 1000.0);
}
