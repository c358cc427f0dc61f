//! Limits before authentication: incomplete requests and unauthenticated clients are bounded, and do not take resources
//! from authenticated ones.

mod common;

use common::{Place, Reply, Resp, Server, ok, pattern, wait_until};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn raw(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(common::REPLY_LIMIT)).unwrap();
    stream.set_write_timeout(Some(common::REPLY_LIMIT)).unwrap();
    stream
}

/// Sends as much of `bytes` as the server accepts, then reads until the server closes.
fn last_words(mut stream: TcpStream, bytes: &[u8]) -> String {
    let mut words = Vec::new();
    // A separate reader: a reset would discard what the server sends before it closes.
    let mut reading = stream.try_clone().unwrap();
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| reading.read_to_end(&mut words));
        let _ = stream.write_all(bytes);
        if let Err(error) = reader.join().unwrap() {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it was not closed");
        }
    });
    String::from_utf8_lossy(&words).into_owned()
}

/// A server with a password, and a client that is authenticated.
fn guarded(place: &Place, flags: &[&str]) -> (Server, Resp) {
    let password = place.file("password", "secret\n");
    let server = place.start(&[&["--password-file", password.to_str().unwrap()], flags].concat());
    let mut client = server.resp();
    assert_eq!(client.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    (server, client)
}

fn runs_free(server: &Server) -> f64 {
    server.metric("landfall_runs{use=\"free\"}")
}

#[test]
fn empty_commands_are_released_as_they_arrive() {
    for transport in ["uring", "epoll"] {
        for empty in [&b"\r\n"[..], b"*0\r\n"] {
            let place = Place::new();
            let server = place.start(&["--transport", transport]);
            let before = runs_free(&server);
            let mut stream = raw(server.resp);
            stream.write_all(&empty.repeat((16 << 20) / empty.len())).unwrap();
            let let_go = wait_until(Duration::from_secs(20), || {
                let received = server.metric("landfall_input_bytes_total") >= (16 << 20) as f64;
                (received && runs_free(&server) >= before - 4.0).then_some(())
            });
            assert!(let_go.is_some(), "{transport}: {} of {before} runs are free", runs_free(&server));
            stream.write_all(b"PING\r\n").unwrap();
            let mut pong = [0; 7];
            stream.read_exact(&mut pong).unwrap();
            assert_eq!(&pong, b"+PONG\r\n");
        }
    }
}

#[test]
fn unauthenticated_clients_may_send_little() {
    let place = Place::new();
    let (server, mut client) = guarded(&place, &[]);
    let words = last_words(raw(server.resp), &b"\r\n".repeat(4 << 20));
    assert!(words.is_empty() || words.starts_with("-NOAUTH too much"), "{words}");
    let words = last_words(raw(server.resp), b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$16385\r\n");
    assert!(words.starts_with("-ERR Protocol error: unauthenticated bulk length"), "{words}");
    let words = last_words(raw(server.resp), b"*11\r\n");
    assert!(words.starts_with("-ERR Protocol error: unauthenticated multibulk length"), "{words}");
    // A client that sends the password first may send the rest at once.
    let mut pipelined = b"AUTH secret\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$3000000\r\n".to_vec();
    pipelined.extend(pattern(1, 3_000_000));
    pipelined.extend(b"\r\nQUIT\r\n");
    assert_eq!(last_words(raw(server.resp), &pipelined), "+OK\r\n+OK\r\n+OK\r\n");
    assert_eq!(client.call(&[b"STRLEN", b"a"]).unwrap(), Reply::Int(3_000_000));
}

#[test]
fn uploads_without_credentials_take_no_room_from_clients_with_them() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let (server, mut client) = guarded(&place, &["--transport", transport]);
        let head = "PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 10000001\r\n\r\n";
        let body = vec![b'x'; 10_000_000];
        let uploads: Vec<TcpStream> = std::thread::scope(|threads| {
            let upload = || {
                let mut stream = raw(server.http);
                stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
                // The server closes long before all of this has been sent.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
                stream
            };
            let uploads: Vec<_> = (0..6).map(|_| threads.spawn(upload)).collect();
            uploads.into_iter().map(|upload| upload.join().unwrap()).collect()
        });
        for index in 0..100_u64 {
            let reply =
                client.call(&[b"SET", format!("k{}", index % 50).as_bytes(), &pattern(index, 100_000)]);
            assert_eq!(reply.unwrap(), ok(), "{transport}: SET {index}");
        }
        drop(uploads);
        let refused = last_words(raw(server.http), head.as_bytes());
        assert!(refused.starts_with("HTTP/1.1 401"), "{transport}: from the head alone: {refused}");
        // A short request is read, and the connection stays open.
        let short = "PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
        let health = "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let mut stream = raw(server.http);
        stream.write_all(short.as_bytes()).unwrap();
        let mut first = vec![0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first, b"HTTP/1.1 401");
        let rest = last_words(stream, format!("abcde{health}").as_bytes());
        assert!(rest.contains("HTTP/1.1 200"), "{transport}: {rest}");
    }
}

#[test]
fn a_body_without_credentials_does_not_land_where_none_are_asked_for() {
    let place = Place::new();
    let (server, _) = guarded(&place, &[]);
    for framing in ["Content-Length: 10000001", "Transfer-Encoding: chunked"] {
        let head = format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
        let refused = last_words(raw(server.http), head.as_bytes());
        assert!(refused.starts_with("HTTP/1.1 401"), "from the head alone: {refused}");
        // Who knows the password may.
        let head = head.replace("\r\n\r\n", "\r\nAuthorization: Bearer secret\r\n\r\n");
        let body =
            if framing.starts_with('C') { vec![b'x'; 10_000_001] } else { b"1\r\nx\r\n0\r\n\r\n".to_vec() };
        let mut stream = raw(server.http);
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).unwrap();
        let mut first = vec![0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(first, b"HTTP/1.1 200");
    }
}

#[test]
fn clients_without_the_password_do_not_keep_those_with_it_out() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let flags = ["--transport", transport, "--max-clients", "20", "--workers", "2"];
        let (server, mut first) = guarded(&place, &flags);
        let strangers: Vec<TcpStream> =
            (0..40).map(|index| raw(if index % 2 == 0 { server.resp } else { server.http })).collect();
        let ask = |mut stranger: &TcpStream| {
            // Some of them go on asking for what needs no password.
            let _ = stranger.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        };
        let authenticated = || {
            strangers.iter().skip(1).step_by(2).for_each(ask);
            let mut client = Resp::connect(server.resp, common::REPLY_LIMIT).ok()?;
            (client.call(&[b"AUTH", b"secret"]).ok()? == ok()).then_some(client)
        };
        // All places are taken. Strangers have five seconds for the password.
        let mut clients: Vec<Resp> = Vec::new();
        for _ in 0..10 {
            clients.push(wait_until(common::REPLY_LIMIT, authenticated).expect("a stranger gives way"));
        }
        // Nobody with the password has lost a place.
        assert!(
            clients.iter_mut().all(|client| client.call(&[b"SET", b"a", b"b"]).unwrap() == ok()),
            "{transport}"
        );
        assert_eq!(first.call(&[b"GET", b"a"]).unwrap(), common::bulk("b"));
        drop(strangers);
    }
}

#[test]
fn strangers_that_come_all_the_time_keep_no_client_with_the_password_out() {
    const CLIENTS: usize = 30;
    let place = Place::new();
    let (server, mut first) = guarded(&place, &["--max-clients", "60", "--workers", "2"]);
    let is_over = AtomicBool::new(false);
    let mut clients = Vec::new();
    std::thread::scope(|scope| {
        // Each of them stays as long as it may.
        scope.spawn(|| {
            let mut strangers = VecDeque::new();
            while !is_over.load(Ordering::Relaxed) {
                strangers.extend(TcpStream::connect(server.resp).ok());
                if strangers.len() > 400 {
                    strangers.pop_front();
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..CLIENTS {
            let client = Resp::connect(server.resp, common::REPLY_LIMIT)
                .ok()
                .and_then(|mut client| (client.call(&[b"AUTH", b"secret"]).ok()? == ok()).then_some(client));
            clients.extend(client);
            std::thread::sleep(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // On a busy machine a client may be so slow that many others come before its password.
    assert!(clients.len() > CLIENTS * 2 / 3, "{} of {CLIENTS} have come in", clients.len());
    assert!(clients.iter_mut().all(|client| client.call(&[b"SET", b"a", b"b"]).unwrap() == ok()));
    assert_eq!(first.call(&[b"GET", b"a"]).unwrap(), common::bulk("b"));
}

/// A client that is busy sending reads the refusal only once it has sent everything: a reset before that would take it.
#[test]
fn whoever_sends_all_of_a_long_request_first_reads_why_it_was_refused() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let (server, _) = guarded(&place, &["--transport", transport, "--max-request", "64MiB"]);
        let body = vec![b'x'; 12 << 20];
        let put = |len: usize| format!("PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n");
        for (address, head, refusal) in [
            (server.http, put(body.len()), "HTTP/1.1 401"),
            (server.http, put(body.len() << 2), "HTTP/1.1 4"),
            (
                server.resp,
                format!("*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n", body.len()),
                "-ERR Protocol error",
            ),
        ] {
            let mut stream = raw(address);
            stream.write_all(head.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            stream.write_all(&body).unwrap_or_else(|error| panic!("{transport}, {refusal}: {error}"));
            let mut words = String::new();
            stream.read_to_string(&mut words).unwrap();
            assert!(words.starts_with(refusal), "{transport}: {words}");
        }
    }
}

/// To a client of HTTP/1.0 the end of the connection is the end of what it has asked for.
#[test]
fn a_scan_that_is_cut_off_by_a_stop_is_reset_where_its_end_is_that_of_the_connection() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--transport", transport]);
        let mut client = server.resp();
        for number in 0..48_u64 {
            let key = format!("k{number}");
            assert_eq!(client.call(&[b"SET", key.as_bytes(), &pattern(number, 1 << 20)]).unwrap(), ok());
        }
        let mut stream = raw(server.http);
        stream.write_all(b"GET /kv HTTP/1.0\r\n\r\n").unwrap();
        stream.read_exact(&mut [0; 1 << 20]).unwrap();
        let stopping = std::thread::spawn(move || server.stop());
        std::thread::sleep(Duration::from_millis(300));
        let end = stream.read_to_end(&mut Vec::new());
        assert_eq!(end.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset), "{transport}");
        assert!(stopping.join().unwrap().success());
    }
}

/// Every page in a browser may send such requests to this machine, and their bodies are the page's.
#[test]
fn a_request_of_http_at_the_port_of_redis_ends_its_connection() {
    let place = Place::new();
    let server = place.start(&[]);
    assert_eq!(server.call(&["SET", "k", "v"]), ok());
    for head in ["POST / HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nhost: a"] {
        let mut stream = raw(server.resp);
        stream.write_all(format!("{head}\r\nA: b\r\n\r\nFLUSHALL\r\n").as_bytes()).unwrap();
        let mut words = String::new();
        let _ = stream.read_to_string(&mut words);
        assert!(words.contains("HTTP has a port of its own"), "{words}");
        assert_eq!(server.call(&["GET", "k"]), common::bulk("v"));
    }
}

#[test]
fn half_requests_beyond_their_share_yield_to_whole_ones() {
    for flags in [&["--transport", "uring"][..], &["--transport", "epoll", "--workers", "2"]] {
        let place = Place::new();
        let server = place.start(flags);
        let mut half = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000\r\n".to_vec();
        half.extend(pattern(1, 60_000));
        let mut client = server.resp();
        let mut stalled = Vec::new();
        for index in 0..1800_u64 {
            let mut stream = raw(server.resp);
            stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = stream.write_all(&half);
            stalled.push(stream);
            if index % 10 == 0 {
                let key = format!("k{}", index % 50);
                let reply = client.call(&[b"SET", key.as_bytes(), &pattern(index, 60_000)]).unwrap();
                assert_eq!(reply, ok(), "{flags:?}: with {index} half requests");
            }
        }
        let held = server.metric("landfall_unfinished_bytes");
        assert!(server.metric("landfall_unfinished_closed_total") > 0.0, "{held} bytes are held");
        assert!(held < (40 << 20) as f64);
        // A client that gets a reply gets the reason.
        let told = stalled.iter_mut().find_map(|stream| {
            stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            let mut words = [0; 200];
            stream.read(&mut words).ok().filter(|len| *len > 0).map(|len| words[..len].to_vec())
        });
        assert!(told.is_none_or(|words| words.starts_with(b"-OOM unfinished requests")));
        drop(stalled);
        let gone = wait_until(Duration::from_secs(20), || {
            (server.metric("landfall_unfinished_bytes") == 0.0).then_some(())
        });
        assert!(gone.is_some(), "{} bytes are still counted", server.metric("landfall_unfinished_bytes"));
    }
}

/// A few bytes in each run that requests land in keep it, however little they are together.
#[test]
fn many_short_half_requests_that_trickle_do_not_refuse_writers() {
    for (clients, bytes) in [(300, 1), (2, 1500)] {
        let place = Place::new();
        let server = place.start(&[]);
        let begin = |_| {
            let mut stream = raw(server.resp);
            stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1000000\r\n").unwrap();
            stream
        };
        let mut trickling: Vec<TcpStream> = (0..clients).map(begin).collect();
        let mut client = server.resp();
        for index in 0..400_u64 {
            trickling.iter_mut().for_each(|stream| drop(stream.write_all(&vec![b'x'; bytes])));
            let reply = client
                .call(&[b"SET", format!("k{}", index % 5).as_bytes(), &pattern(index, 200_000)])
                .unwrap();
            assert_eq!(reply, ok(), "write {index} beside {clients} clients with {bytes} bytes each");
        }
        assert_eq!(server.metric("landfall_unfinished_closed_total"), 0.0, "nobody has to go for that");
    }
}

#[test]
fn steady_slow_reader_is_not_cut() {
    for transport in ["uring", "epoll"] {
        let place = Place::new();
        let server = place.start(&["--request-timeout", "3", "--transport", transport]);
        const LEN: usize = 24 << 20;
        let value = pattern(1, LEN);
        assert_eq!(server.http().call("PUT", "/kv/big", "", &value).unwrap().status, 201);
        let mut stream = raw(server.resp);
        stream.write_all(b"GET big\r\n").unwrap();
        let (mut got, mut buffer) = (Vec::new(), vec![0; 256 << 10]);
        let header = format!("${LEN}\r\n").len();
        let begun = Instant::now();
        while got.len() < header + LEN + 2 {
            // About 4 MiB a second: the kernel buffers less than a second of that.
            let due = Duration::from_secs_f64(got.len() as f64 / (4 << 20) as f64);
            std::thread::sleep(due.saturating_sub(begun.elapsed()));
            let len = stream.read(&mut buffer).unwrap();
            assert!(len > 0, "{transport}: cut after {} bytes", got.len());
            got.extend_from_slice(&buffer[..len]);
        }
        assert!(got[header..header + LEN] == value[..], "{transport}");
        assert_eq!(server.metric("landfall_timeouts_total"), 0.0);
    }
}

/// Several commands are parsed before they are executed, and one of them may revoke the permissions that they were
/// parsed with.
#[test]
fn reset_in_a_pipeline_applies_the_limits_of_strangers_at_once() {
    let place = Place::new();
    let (server, _client) = guarded(&place, &[]);
    let mut stream = raw(server.resp);
    stream.write_all(b"AUTH secret\r\n").unwrap();
    // A connection that is not trusted receives in small portions; none of them contains the last command.
    for _ in 0..10 {
        let mut done = [0; 5];
        stream.read_exact(&mut done).unwrap();
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$100000\r\n").unwrap();
        stream.write_all(&[b'b'; 100_000]).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.read_exact(&mut [0; 5]).unwrap();
    let mut pipelined = b"*1\r\n$4\r\nPING\r\n*1\r\n$5\r\nRESET\r\n*2\r\n$3\r\nGET\r\n$20000\r\n".to_vec();
    pipelined.extend(b"a".repeat(20_000));
    pipelined.extend_from_slice(b"\r\n");
    let words = last_words(stream, &pipelined);
    assert_eq!(words, "+PONG\r\n+RESET\r\n-ERR Protocol error: unauthenticated bulk length\r\n");
}
