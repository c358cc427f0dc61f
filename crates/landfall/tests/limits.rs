//! Limits on what clients can make the server hold, and their effect on other clients.

mod common;

use common::faults::Over;
use common::{Place, Reply, Server, bulk, error_text, ok, pattern, wait_until};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn raw(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::REPLY_LIMIT)).unwrap();
    stream.set_write_timeout(Some(common::REPLY_LIMIT)).unwrap();
    stream
}

/// What the server answers to some bytes, until it closes the connection.
fn last_words(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = raw(address);
    // The server may close before everything is sent.
    let _ = stream.write_all(bytes);
    let mut words = Vec::new();
    let _ = stream.read_to_end(&mut words);
    String::from_utf8_lossy(&words).into_owned()
}

/// True once the peer has closed.
fn is_closed(stream: &mut TcpStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).unwrap();
    let mut byte = [0; 4096];
    let until = Instant::now() + limit;
    while Instant::now() < until {
        match stream.read(&mut byte) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
    false
}

#[test]
fn clients_above_the_limit_get_an_error_and_others_continue() {
    let place = Place::new();
    let server = place.start(&["--max-clients", "3"]);
    let mut kept: Vec<_> = (0..3).map(|_| server.resp()).collect();
    kept.iter_mut()
        .for_each(|client| assert_eq!(client.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into())));
    let words = last_words(server.resp, b"");
    assert!(words.starts_with("-ERR max number of clients"), "{words}");
    let words = last_words(server.http, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(words.is_empty() || words.starts_with("HTTP/1.1 503"), "{words}");
    kept.pop();
    let mut again = wait_until(Duration::from_secs(5), || {
        let mut client = server.resp();
        matches!(client.call(&[b"PING"]), Ok(Reply::Simple(_))).then_some(client)
    });
    assert!(again.as_mut().expect("there is room again").call(&[b"SET", b"a", b"1"]).is_ok());
}

#[test]
fn oversize_requests_are_refused_without_being_received() {
    let place = Place::new();
    let server = place.start(&["--max-request", "1MiB", "--max-header", "4KiB"]);
    let words = last_words(server.resp, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1048577\r\n");
    assert!(words.starts_with("-ERR Protocol error: invalid bulk length"), "{words}");
    let words = last_words(server.http, b"PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
    assert!(words.starts_with("HTTP/1.1 413"), "{words}");
    let head = format!("GET /kv/a HTTP/1.1\r\nHost: a\r\nX-Long: {}\r\n\r\n", "x".repeat(5000));
    let words = last_words(server.http, head.as_bytes());
    assert!(words.starts_with("HTTP/1.1 431"), "{words}");
    let words = last_words(server.resp, b"*2000000\r\n");
    assert!(words.starts_with("-ERR Protocol error: invalid multibulk length"), "{words}");
    let fits = pattern(1, 1 << 20);
    assert_eq!(server.resp().call(&[b"SET", b"a", &fits]).unwrap(), ok());
    assert_eq!(server.http().call("PUT", "/kv/b", "", &fits).unwrap().status, 201);
}

#[test]
fn half_requests_and_idle_clients_are_closed_in_time() {
    let place = Place::new();
    let server = place.start(&["--request-timeout", "1", "--idle-timeout", "2"]);
    let mut half_resp = raw(server.resp);
    half_resp.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100\r\nabc").unwrap();
    let mut half_http = raw(server.http);
    half_http.write_all(b"PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc").unwrap();
    let mut idle = raw(server.resp);
    let mut busy = server.resp();
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(
            busy.call(&[b"PING"]).unwrap(),
            Reply::Simple("PONG".into()),
            "active clients stay connected"
        );
    }
    for (stream, who) in
        [(&mut half_resp, "half a command"), (&mut half_http, "half a body"), (&mut idle, "silence")]
    {
        assert!(is_closed(stream, Duration::from_millis(500)), "{who}");
    }
    assert!(server.metric("landfall_timeouts_total") >= 3.0);
    assert_eq!(server.call(&["EXISTS", "a"]), Reply::Int(0));
}

#[test]
fn client_that_trickles_a_request_is_closed() {
    let place = Place::new();
    let server = place.start(&["--request-timeout", "1"]);
    let mut slow = raw(server.resp);
    slow.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n").unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) && slow.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "a byte now and then is no progress");
}

#[test]
fn pipelines_of_a_hundred_thousand_commands_are_answered_in_order() {
    let place = Place::new();
    let server = place.start(&[]);
    let (mut pipelined, mut other) = (server.resp(), server.resp());
    const COMMANDS: usize = 100_000;
    let mut bytes = Vec::new();
    for index in 0..COMMANDS {
        let key = format!("k{}", index % 1000);
        let value = index.to_string();
        let words: [&str; 3] = ["SET", &key, &value];
        bytes.extend_from_slice(b"*3\r\n");
        words
            .iter()
            .for_each(|word| bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes()));
        bytes.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()).as_bytes());
    }
    let stream = raw(server.resp);
    let mut writing = stream.try_clone().unwrap();
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let (pings, late) = std::thread::scope(|threads| {
        let ends = Over(&over);
        threads.spawn(move || writing.write_all(&bytes).unwrap());
        let watch = threads.spawn(|| pings_until(&mut other, &over));
        let mut reader = BufReader::new(stream);
        for index in 0..COMMANDS {
            let value = index.to_string();
            let expected = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
            let mut got = vec![0; expected.len()];
            reader.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), expected, "reply {index}");
        }
        drop(ends);
        watch.join().unwrap()
    });
    let all = begun.elapsed();
    assert!(late < Duration::from_millis(500).max(all / 4), "others waited for {late:?} of {all:?}, again");
    assert!(pings > 5, "another client was answered {pings} times meanwhile");
    assert_eq!(pipelined.call(&[b"GET", b"k999"]).unwrap(), bulk("99999"));
}

/// A client that sends one command is answered before clients that sent many at the same time.
#[test]
fn a_single_command_does_not_wait_for_long_pipelines_of_others() {
    const PIPELINES: usize = 200;
    const COMMANDS: usize = 1000;
    let place = Place::new();
    let server = place.start(&["--workers", "1"]);
    let mut other = raw(server.resp);
    let mut pipelined: Vec<TcpStream> = (0..PIPELINES).map(|_| raw(server.resp)).collect();
    for stream in pipelined.iter_mut().chain([&mut other]) {
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
    }
    server.signal("STOP");
    let commands = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(COMMANDS);
    pipelined.iter_mut().for_each(|stream| stream.write_all(&commands).unwrap());
    other.write_all(b"GET n\r\n").unwrap();
    server.signal("CONT");
    let mut lines = BufReader::new(other).lines().map(Result::unwrap);
    // A null bulk string: none was executed before.
    let done =
        lines.next().filter(|line| line != "$-1").map_or(0, |_| lines.next().unwrap().parse().unwrap());
    assert!(done < PIPELINES * COMMANDS / 2, "{done} commands of others were executed first");
}

/// Complete commands that wait for execution release their space without a limit on connections, however much of the
/// region they take.
#[test]
fn floods_of_whole_commands_close_no_connection() {
    const CLIENTS: usize = 60;
    const COMMANDS: usize = 4000;
    let place = Place::new();
    let server = place.start(&["--workers", "1", "--max-output", "64KiB"]);
    let key = "k".repeat(1000);
    let gets = format!("*2\r\n$3\r\nGET\r\n$1000\r\n{key}\r\n").repeat(COMMANDS);
    std::thread::scope(|threads| {
        for _ in 0..CLIENTS {
            let mut stream = raw(server.resp);
            let (mut writing, gets) = (stream.try_clone().unwrap(), &gets);
            threads.spawn(move || writing.write_all(gets.as_bytes()).expect("all is taken"));
            threads.spawn(move || {
                let mut replies = vec![0; b"$-1\r\n".len() * COMMANDS];
                stream.read_exact(&mut replies).expect("all is answered");
            });
        }
    });
}

/// Number of replies, and the longest wait.
/// How many pings were answered, and the longest wait but one: a machine that stands still holds up one.
fn pings_until(client: &mut common::Resp, over: &AtomicBool) -> (u64, Duration) {
    let (mut answered, mut waits) = (0, [Duration::ZERO; 2]);
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        client.call(&[b"PING"]).unwrap();
        waits[0] = waits[0].max(begun.elapsed());
        waits.sort_unstable();
        answered += 1;
    }
    (answered, waits[0])
}

#[test]
fn a_thousand_half_requests_do_not_pin_the_region() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--transport", transport]);
        let stalled: Vec<TcpStream> = (0..1000)
            .map(|_| {
                let mut stream = raw(server.resp);
                stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2000\r\nhalf of a value").unwrap();
                stream
            })
            .collect();
        // Data of other clients now lie between and around theirs; all of these are deleted again.
        let mut client = server.resp();
        for index in 0..300u64 {
            let value = pattern(index, 60_000);
            assert_eq!(client.call(&[b"SET", format!("k{}", index % 5).as_bytes(), &value]).unwrap(), ok());
        }
        assert_eq!(client.call(&[b"DEL", b"k0", b"k1", b"k2", b"k3", b"k4"]).unwrap(), Reply::Int(5));
        let free = "landfall_runs{use=\"free\"}";
        let recovered = wait_until(Duration::from_secs(10), || (server.metric(free) >= 50.0).then_some(()));
        assert!(recovered.is_some(), "{transport}: {} of 63 runs are free", server.metric(free));
        drop(stalled);
    }
}

#[test]
fn client_that_reads_no_replies_is_bounded_and_cut_and_others_continue() {
    let place = Place::new();
    let server = place.start(&["--request-timeout", "2", "--max-output", "256KiB"]);
    let mut client = server.resp();
    assert_eq!(client.call(&[b"SET", b"big", &pattern(1, 100_000)]).unwrap(), ok());
    let before = server.metric("landfall_process_resident_memory_bytes");
    let mut deaf = raw(server.resp);
    deaf.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let command = b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(20_000);
    // The command asks for 2 GB of replies; the server must stop reading requests long before.
    let _ = deaf.write_all(&command);
    let grown = server.metric("landfall_process_resident_memory_bytes") - before;
    assert!(grown < 64e6, "{grown} bytes are held for it");
    let cut = wait_until(Duration::from_secs(10), || {
        (server.metric("landfall_timeouts_total") >= 1.0).then_some(())
    });
    assert!(cut.is_some(), "it is cut");
    assert_eq!(client.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
}

#[test]
fn full_region_refuses_writers_and_serves_readers_and_deletes_make_room() {
    for flags in
        [&["--capacity", "40MiB"][..], &["--capacity", "40MiB", "--transport", "epoll", "--workers", "2"]]
    {
        let place = Place::new();
        let server = place.start(flags);
        let stored = fill(&server);
        assert!(stored > 100, "{stored} values fit");
        let mut client = server.resp();
        let value = pattern(7, 100_000);
        // What a refused value leaves behind in a run may let the compactor make room for some more.
        let is_full = |round: u32| {
            let reply = client.call(&[b"SET", format!("more:{round}").as_bytes(), &value]).unwrap();
            let refused = reply != ok() && error_text(&reply).starts_with("OOM");
            let status = server.http().call("PUT", &format!("/kv/put:{round}"), "", &value).unwrap().status;
            assert!(matches!(status, 201 | 507), "{status}");
            refused && status == 507
        };
        assert!((0..100).any(is_full), "both protocols refuse a value");
        for index in [0, stored / 2, stored - 1] {
            let key = format!("fill:{index}");
            assert_eq!(client.call(&[b"GET", key.as_bytes()]).unwrap(), Reply::Bulk(pattern(index, 100_000)));
        }
        for index in 0..stored / 2 {
            let key = format!("fill:{index}");
            assert_eq!(client.call(&[b"DEL", key.as_bytes()]).unwrap(), Reply::Int(1), "deletes still work");
        }
        let again = wait_until(Duration::from_secs(5), || {
            (client.call(&[b"SET", b"more", &value]).ok()? == ok()).then_some(())
        });
        assert!(again.is_some(), "deletes have made room");
        server.kill();
        let server = place.start(flags);
        assert_eq!(server.call(&["STRLEN", "more"]), Reply::Int(100_000));
        assert_eq!(server.call(&["EXISTS", "fill:0"]), Reply::Int(0));
        assert_eq!(server.call(&["EXISTS", &format!("fill:{}", stored - 1)]), Reply::Int(1));
    }
}

#[test]
fn value_without_room_is_refused_before_it_fills_the_region() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--transport", transport]);
        let words = last_words(server.resp, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$209715200\r\nthe beginning");
        assert!(words.starts_with("-OOM"), "{transport}: {words}");
        let head = b"PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 209715200\r\n\r\nthe beginning";
        let words = last_words(server.http, head);
        assert!(words.starts_with("HTTP/1.1 507"), "{transport}: {words}");
        let mut sending = raw(server.resp);
        let _ = sending.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$209715200\r\n");
        // The server stops reading long before all of this has been sent.
        let sent = (0..200).take_while(|_| sending.write_all(&[b'x'; 1 << 20]).is_ok()).count();
        assert!(sent < 60, "{transport}: {sent} MiB were taken");
        assert_eq!(server.call(&["SET", "a", "1"]), ok(), "{transport}: others continue");
    }
}

/// Writes until the region is full; returns the number of values that fit.
fn fill(server: &Server) -> u64 {
    let mut client = server.resp();
    for index in 0..2000u64 {
        let key = format!("fill:{index}");
        match client.call(&[b"SET", key.as_bytes(), &pattern(index, 100_000)]).unwrap() {
            Reply::Simple(_) => {}
            reply => {
                assert!(error_text(&reply).starts_with("OOM"), "{reply:?}");
                return index;
            }
        }
    }
    panic!("200 MB fit into 40 MiB");
}

/// The clock of one server, which a test sets.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    /// `None`, and a line that says so, without a C compiler.
    fn new(place: &Place) -> Option<Self> {
        if !common::has_program("cc", &["--version"]) {
            return None;
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/clock.c");
        let (library, offset) = (place.path().join("clock.so"), place.path().join("offset"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        assert!(cc.status().unwrap().success());
        Some(Self { library, offset })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(common::binary());
        command.env("LD_PRELOAD", &self.library).env("CLOCK_OFFSET", &self.offset);
        command
    }

    fn set_off_by(&self, seconds: i64) {
        let new = self.offset.with_extension("new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, &self.offset).unwrap();
    }
}

#[test]
fn a_clock_that_is_set_ends_no_wait_no_request_and_no_connection() {
    const HOUR: i64 = 3600;
    let place = Place::new();
    let Some(clock) = Clock::new(&place) else { return };
    let server = place.try_start_by(clock.command(), &["--idle-timeout", "60", "--request-timeout", "60"]);
    let server = server.unwrap();
    let unix = || match server.call(&["TIME"]) {
        Reply::Array(parts) => match &parts[0] {
            Reply::Bulk(seconds) => String::from_utf8_lossy(seconds).parse::<i64>().unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let mut idle = server.resp();
    assert_eq!(idle.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
    let mut half = raw(server.resp);
    half.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhe").unwrap();
    let begun = unix();

    // Forwards, while a reader waits for two seconds.
    server.call(&["LF.APPEND", "log", "first"]);
    let waits = |ms: &'static str| {
        let begun = Instant::now();
        let reply = server.call(&["LF.READ", "log", "$", "BLOCK", ms]);
        (reply, begun.elapsed())
    };
    let (reply, took) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| waits("2000"));
        std::thread::sleep(Duration::from_millis(500));
        clock.set_off_by(HOUR);
        reader.join().unwrap()
    });
    assert_eq!(reply, Reply::Nil);
    assert!(took >= Duration::from_millis(1900), "the reader waited only {took:?}");
    assert!(unix() >= begun + HOUR, "the clock was set");
    assert_eq!(idle.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
    half.write_all(b"llo\r\n").unwrap();
    let mut answer = [0; 5];
    half.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");

    // Back, while a reader waits for one second. Its reply has a limit of its own.
    let (reply, _) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| waits("1000"));
        std::thread::sleep(Duration::from_millis(500));
        clock.set_off_by(-HOUR);
        reader.join().unwrap()
    });
    assert_eq!(reply, Reply::Nil);
    assert!(unix() < begun, "the clock was set back");
}
