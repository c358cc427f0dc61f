//! Limits on what clients can make the server hold over AF_XDP, and their effect on other clients.

mod common;
mod xdp;

use common::{Place, Reply, Server, error_text, ok, pattern, wait_until};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use xdp::Net;

const FREE: &str = "landfall_runs{use=\"free\"}";

#[test]
fn full_region_refuses_writers_and_serves_readers_and_deletes_make_room() {
    let Some(net) = Net::new() else { return };
    for place in [Some(Place::new()), Place::in_memory()].into_iter().flatten() {
        for len in [100_000, 1024] {
            fill_and_empty(&net, &place, len);
            std::fs::remove_file(place.region()).unwrap();
        }
    }
}

fn fill_and_empty(net: &Net, place: &Place, len: usize) {
    let flags = ["--capacity", "40MiB"];
    let server = net.start(place, &flags);
    let stored = fill(&server, "fill", len);
    // A small value may find no record while a large one still finds landing space.
    fill(&server, "rest", 100_000);
    assert!(stored > 4_000_000 / len as u64, "{stored} values of {len} bytes fit");
    let mut client = server.resp();
    let value = pattern(7, 100_000);
    // Compaction may find a little space at any time.
    let refused = (0..100).any(|index| {
        server.http().call("PUT", &format!("/kv/put{index}"), "", &value).unwrap().status == 507
    });
    assert!(refused, "100 more fit");
    for index in [0, stored / 2, stored - 1] {
        let got = client.call(&[b"GET", format!("fill:{index}").as_bytes()]).unwrap();
        assert!(got == Reply::Bulk(pattern(index, len)), "fill:{index} of {stored}");
    }
    for index in 0..stored / 2 {
        let key = format!("fill:{index}");
        assert_eq!(client.call(&[b"DEL", key.as_bytes()]).unwrap(), Reply::Int(1), "deletes still work");
    }
    let again =
        wait_until(xdp::PATIENCE, || (client.call(&[b"SET", b"more", &value]).ok()? == ok()).then_some(()));
    assert!(again.is_some(), "deletes have made room");
    server.kill();
    let server = net.start(place, &flags);
    assert_eq!(server.call(&["STRLEN", "more"]), Reply::Int(100_000));
    assert_eq!(server.call(&["EXISTS", "fill:0"]), Reply::Int(0));
    assert_eq!(server.call(&["EXISTS", &format!("fill:{}", stored - 1)]), Reply::Int(1));
    assert!(server.stop().success());
}

/// Writes until the region stays full; returns the number of values that fit in a row.
fn fill(server: &Server, name: &str, len: usize) -> u64 {
    let (mut client, mut stored, mut refusals) = (server.resp(), None, 0);
    for index in 0..100_000u64 {
        let key = format!("{name}:{index}");
        match client.call(&[b"SET", key.as_bytes(), &pattern(index, len)]) {
            Ok(Reply::Simple(_)) => refusals = 0,
            Ok(reply) => {
                assert!(error_text(&reply).starts_with("OOM"), "{reply:?}");
                stored.get_or_insert(index);
                refusals += 1;
            }
            // A request without landing space closes its connection.
            Err(_) => client = server.resp(),
        }
        if refusals == 20 {
            return stored.unwrap_or(index);
        }
    }
    panic!("it never becomes full");
}

#[test]
fn value_in_tiny_packets_does_not_take_the_region_from_others() {
    let Some(net) = Net::new() else { return };
    // Packets carry 248 bytes, and each lands in a chunk of 2 KiB: the value takes eight times its length.
    net.client.ip(&format!("link set {} mtu 300\n", net.client_interface)).unwrap();
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "64MiB"]);
    let value = pattern(3, 12_000_000);
    let fits = &value[..200_000];
    assert_eq!(server.resp().call(&[b"SET", b"fits", fits]).unwrap(), ok());
    assert!(server.resp().call(&[b"GET", b"fits"]).unwrap() == Reply::Bulk(fits.to_vec()));
    for round in 0..3 {
        let outcome = server.resp().call(&[b"SET", b"a", &value]);
        match &outcome {
            Ok(Reply::Simple(_)) => {
                assert!(server.resp().call(&[b"GET", b"a"]).unwrap() == Reply::Bulk(value.clone()))
            }
            Ok(refusal) => assert!(error_text(refusal).starts_with("OOM"), "{refusal:?}"),
            // The server closes the connection while the value is still arriving.
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}")
            }
        }
        let again = wait_until(xdp::PATIENCE, || {
            (server.resp().call(&[b"SET", b"other", &pattern(4, 20_000)]).ok()? == ok()).then_some(())
        });
        assert!(again.is_some(), "round {round}: others find no space");
        assert!(server.resp().call(&[b"GET", b"fits"]).unwrap() == Reply::Bulk(fits.to_vec()));
    }
    assert!(matches!(server.call(&["DEL", "a"]), Reply::Int(_)));
    xdp::settles(&server, FREE, |runs| runs >= 30.0);
}

#[test]
fn a_thousand_half_requests_do_not_pin_the_region() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "64MiB"]);
    let stalled: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = xdp::stream(&server, server.resp);
            stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$2000\r\nhalf of a value").unwrap();
            stream
        })
        .collect();
    let mut client = server.resp();
    for index in 0..300u64 {
        let (key, value) = (format!("k{}", index % 5), pattern(index, 60_000));
        assert_eq!(client.call(&[b"SET", key.as_bytes(), &value]).unwrap(), ok());
    }
    assert_eq!(client.call(&[b"DEL", b"k0", b"k1", b"k2", b"k3", b"k4"]).unwrap(), Reply::Int(5));
    xdp::settles(&server, FREE, |runs| runs >= 40.0);
    drop(stalled);
}

#[test]
fn client_that_reads_no_replies_is_bounded_and_cut_and_others_continue() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--request-timeout", "2", "--max-output", "256KiB"]);
    let mut client = server.resp();
    assert_eq!(client.call(&[b"SET", b"big", &pattern(1, 100_000)]).unwrap(), ok());
    let before = server.metric("landfall_process_resident_memory_bytes");
    let mut deaf = xdp::stream(&server, server.resp);
    deaf.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let _ = deaf.write_all(&b"*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n".repeat(20_000));
    let grown = server.metric("landfall_process_resident_memory_bytes") - before;
    assert!(grown < 96e6, "{grown} bytes are held for it");
    xdp::settles(&server, "landfall_timeouts_total", |count| count >= 1.0);
    assert_eq!(client.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
}

#[test]
fn clients_above_the_limit_get_an_error_and_others_continue() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--max-clients", "3"]);
    let mut kept: Vec<_> = (0..3).map(|_| server.resp()).collect();
    kept.iter_mut()
        .for_each(|client| assert_eq!(client.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into())));
    let mut words = String::new();
    let _ = xdp::stream(&server, server.resp).read_to_string(&mut words);
    assert!(words.starts_with("-ERR max number of clients"), "{words}");
    kept.pop();
    let again = wait_until(xdp::PATIENCE, || {
        matches!(server.resp().call(&[b"PING"]), Ok(Reply::Simple(_))).then_some(())
    });
    assert!(again.is_some(), "there is room again");
}

#[test]
fn replies_in_flight_are_sent_whole_when_the_server_stops() {
    let Some(net) = Net::new() else { return };
    let place = Place::new();
    let server = net.start(&place, &["--capacity", "64MiB"]);
    let value = pattern(9, 900_000);
    assert_eq!(server.resp().call(&[b"SET", b"big", &value]).unwrap(), ok());
    let mut client = server.resp();
    assert_eq!(client.call(&[b"PING"]).unwrap(), Reply::Simple("PONG".into()));
    client.push(&[b"GET", b"big"]);
    client.flush().unwrap();
    xdp::settles(&server, "landfall_output_bytes_total", |bytes| bytes >= 900_000.0);
    let stopping = std::thread::spawn(move || server.stop());
    std::thread::sleep(Duration::from_millis(50));
    assert!(client.read().unwrap() == Reply::Bulk(value), "the reply was cut");
    assert!(stopping.join().unwrap().success());
}
