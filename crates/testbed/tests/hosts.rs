//! Tests of hosts, lossy wires and middleboxes.
#![allow(clippy::print_stderr, reason = "a skipped test reports why")]

use landfall_testbed::{Faults, Host, LinkOptions, Testbed};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Stands for the datagram that follows the last number.
const END: u32 = u32::MAX;
const PATIENCE: Duration = Duration::from_secs(10);

fn testbed() -> Option<Testbed> {
    Testbed::new().inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()
}

fn bind(host: &Host, address: &str) -> UdpSocket {
    let socket = host.enter(|| UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

#[test]
fn linked_hosts_reach_each_other_over_ipv4_and_ipv6() {
    let Some(testbed) = testbed() else { return };
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    let addresses = [("10.1.0.1/24", "fd01::1/64"), ("10.1.0.2/24", "fd01::2/64")]
        .map(|(v4, v6)| vec![v4.to_owned(), v6.to_owned()]);
    let options = LinkOptions { mtu: 1400, queues: 2, addresses, checksum_offload: false };
    testbed.link(&a, &b, &options).unwrap();
    for (from, to) in [("10.1.0.1:0", "10.1.0.2:7"), ("[fd01::1]:0", "[fd01::2]:7")] {
        let (client, server) = (bind(&a, from), bind(&b, to));
        client.send_to(b"ping", to).unwrap();
        let (length, back) = server.recv_from(&mut [0; 16]).unwrap();
        assert_eq!((length, back), (4, client.local_addr().unwrap()));
    }
}

#[test]
fn hosts_of_a_switch_reach_each_other_unless_a_cable_is_cut() {
    let Some(testbed) = testbed() else { return };
    let hosts = ["a", "b", "c"].map(|name| testbed.host(name).unwrap());
    let addresses = ["10.1.0.1/24", "10.1.0.2/24", "10.1.0.3/24"];
    let places: Vec<_> = hosts.iter().zip(addresses).collect();
    let switch = testbed.switch(&places).unwrap();
    let sockets = [("10.1.0.1:7", &hosts[0]), ("10.1.0.2:7", &hosts[1]), ("10.1.0.3:7", &hosts[2])]
        .map(|(address, host)| bind(host, address));
    let reaches = |from: usize, to: usize| {
        let address = sockets[to].local_addr().unwrap();
        sockets[from].send_to(b"ping", address).unwrap();
        sockets[to].recv_from(&mut [0; 16]).is_ok()
    };
    assert!((0..3).all(|from| (0..3).filter(|to| *to != from).all(|to| reaches(from, to))));
    switch.cut(1).unwrap();
    sockets[1].set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(reaches(0, 2) && !reaches(0, 1));
    switch.mend(1).unwrap();
    // The bridge forwards to the port a moment later.
    assert!((0..50).any(|_| reaches(0, 1)));
}

#[test]
fn a_lossy_wire_loses_about_the_configured_share_of_frames_and_a_stream_survives_it() {
    let Some(testbed) = testbed() else { return };
    for (lose, lost) in [(0, 0..1), (1000, 100..320)] {
        let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
        let options = LinkOptions::between("10.1.0.1/24", "10.1.0.2/24");
        let wire = testbed.lossy_wire(&a, &b, &options, lose);
        let Some((_wire, _, _)) = wire.inspect_err(|reason| eprintln!("SKIP: {reason}")).ok() else { return };
        // Address resolution and TCP both retransmit, so that the stream gets through.
        let listener = b.enter(|| TcpListener::bind("10.1.0.2:80")).unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let mut client = a.enter(|| TcpStream::connect("10.1.0.2:80")).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let copy = sent.clone();
        let writer = std::thread::spawn(move || client.write_all(&copy).unwrap());
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        writer.join().unwrap();
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
        let (from, to) = (bind(&a, "10.1.0.1:0"), bind(&b, "10.1.0.2:7"));
        to.set_nonblocking(true).unwrap();
        let mut arrived = 0;
        for _ in 0..2000 {
            from.send_to(b"one of many", "10.1.0.2:7").unwrap();
            while to.recv_from(&mut [0; 16]).is_ok() {
                arrived += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(100));
        while to.recv_from(&mut [0; 16]).is_ok() {
            arrived += 1;
        }
        assert!(
            lost.contains(&(2000 - arrived)),
            "{arrived} of 2000 arrived where {lose} of 10,000 are lost"
        );
    }
}

#[test]
fn commands_run_inside_the_host() {
    let Some(testbed) = testbed() else { return };
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    let options = LinkOptions { mtu: 1234, ..LinkOptions::between("10.1.0.1/24", "10.1.0.2/24") };
    let (name, _) = testbed.link(&a, &b, &options).unwrap();
    let output = a.command("ip").args(["-o", "addr"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("10.1.0.1/24") && text.contains(&name) && !text.contains("10.1.0.2"), "{text}");
    let output = b.command("ip").args(["-o", "link"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("mtu 1234"));
    assert!(a.ip("link set nosuch up\n").unwrap_err().reason.contains("nosuch"));
}

#[test]
fn congestion_control_is_the_hosts_own() {
    let Some(testbed) = testbed() else { return };
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    let default = b.congestion_control();
    // Every kernel has `reno`, and every namespace may choose it.
    a.set_congestion_control("reno").unwrap();
    assert_eq!((a.congestion_control().as_str(), b.congestion_control()), ("reno", default));
    assert!(a.set_congestion_control("none such").unwrap_err().to_string().contains("none such of a"));
}

#[test]
fn nothing_is_left_in_the_machine() {
    let Some(testbed) = testbed() else { return };
    // A host stands for the machine: on the real machine, other programs may change the interfaces.
    let machine = testbed.host("machine").unwrap();
    let links = || machine.command("ip").args(["-o", "link"]).output().unwrap().stdout;
    let before = links();
    let hosts = machine.enter(|| {
        let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
        testbed.link(&a, &b, &LinkOptions::default()).unwrap();
        (a, b)
    });
    assert_eq!(links(), before, "interfaces are in the hosts only");
    drop(hosts);
    assert_eq!(links(), before);
}

/// Two hosts with a middlebox between them, and a socket on each.
fn through(faults: Faults) -> Option<(landfall_testbed::Middlebox, UdpSocket, UdpSocket)> {
    let testbed = testbed()?;
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    a.disable_ipv6().unwrap();
    b.disable_ipv6().unwrap();
    let options = LinkOptions::between("10.1.0.1/24", "10.1.0.2/24");
    let (middlebox, _, _) = testbed.middlebox(&a, &b, &options, Faults::default()).unwrap();
    let (from, to) = (bind(&a, "10.1.0.1:9"), bind(&b, "10.1.0.2:9"));
    from.connect("10.1.0.2:9").unwrap();
    to.connect("10.1.0.1:9").unwrap();
    // Address resolution takes place before faults are injected.
    from.send(b"hello").unwrap();
    assert_eq!(to.recv(&mut [0; 8]).unwrap(), 5);
    middlebox.set_faults(faults);
    Some((middlebox, from, to))
}

/// Sends numbered datagrams, one at a time, so that no buffer overflows. Returns the numbers that arrived.
fn numbers(
    middlebox: &landfall_testbed::Middlebox,
    from: &UdpSocket,
    to: &UdpSocket,
    count: u32,
) -> Vec<u32> {
    let (mut got, first) = (Vec::new(), middlebox.tallies()[0].received);
    to.set_nonblocking(true).unwrap();
    for n in 0..count {
        from.send(&n.to_le_bytes()).unwrap();
        let started = Instant::now();
        while middlebox.tallies()[0].received < first + u64::from(n) + 1 {
            assert!(started.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        drain(to, &mut got);
    }
    let started = Instant::now();
    let done = |middlebox: &landfall_testbed::Middlebox| {
        let tally = middlebox.tallies()[0];
        tally.sent == tally.received - tally.lost + tally.duplicated
    };
    while !done(middlebox) {
        assert!(started.elapsed() < PATIENCE, "{:?}", middlebox.tallies());
    }
    // A last datagram, sent without faults, shows that no other is still under way.
    middlebox.set_faults(Faults::default());
    from.send(b"the end").unwrap();
    while got.last() != Some(&END) {
        assert!(started.elapsed() < PATIENCE, "{:?}", middlebox.tallies());
        drain(to, &mut got);
    }
    got.pop();
    got
}

fn drain(to: &UdpSocket, got: &mut Vec<u32>) {
    let mut datagram = [0; 8];
    loop {
        match to.recv(&mut datagram) {
            Ok(4) => got.push(u32::from_le_bytes([datagram[0], datagram[1], datagram[2], datagram[3]])),
            Ok(7) => got.push(END),
            Ok(length) => panic!("a datagram of {length} bytes"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn middlebox_without_faults_forwards_everything_in_order() {
    let Some((middlebox, from, to)) = through(Faults::default()) else { return };
    assert_eq!(numbers(&middlebox, &from, &to, 500), (0..500).collect::<Vec<_>>());
    to.send(b"back").unwrap();
    from.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(from.recv(&mut [0; 8]).unwrap(), 4);
}

#[test]
fn middlebox_loses_and_duplicates_what_its_tally_counts() {
    let faults = Faults { seed: 1, lose: 1000, duplicate: 500, ..Faults::default() };
    let Some((middlebox, from, to)) = through(faults) else { return };
    let got = numbers(&middlebox, &from, &to, 2000);
    let tally = middlebox.tallies()[0];
    assert!((100..320).contains(&tally.lost) && (40..160).contains(&tally.duplicated), "{tally:?}");
    let missing = (0..2000).filter(|n| !got.contains(n)).count() as u64;
    let repeated = got.len() as u64 - (2000 - missing);
    assert_eq!((missing, repeated), (tally.lost, tally.duplicated));
}

#[test]
fn middlebox_reorders() {
    let hold = Duration::from_millis(2);
    let Some((middlebox, from, to)) = through(Faults { reorder: 1000, hold, ..Faults::default() }) else {
        return;
    };
    let got = numbers(&middlebox, &from, &to, 1000);
    let mut sorted = got.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>(), "nothing is lost");
    assert_ne!(got, sorted, "{:?}", middlebox.tallies());
}

#[test]
fn damaged_and_cut_frames_are_caught_by_the_kernel() {
    let faults = Faults { corrupt: 2000, truncate: 2000, ..Faults::default() };
    let Some((middlebox, from, to)) = through(faults) else { return };
    let got = numbers(&middlebox, &from, &to, 1000);
    let tally = middlebox.tallies()[0];
    assert!(tally.corrupted > 100 && tally.truncated > 100, "{tally:?}");
    assert!(got.len() > 500 && got.len() < 900, "{}", got.len());
    assert!(got.is_sorted() && got.iter().all(|n| *n < 1000), "no damaged datagram is delivered");
}

#[test]
fn tcp_comes_through_a_bad_middlebox_unharmed() {
    let Some(testbed) = testbed() else { return };
    let (a, b) = (testbed.host("a").unwrap(), testbed.host("b").unwrap());
    let options = LinkOptions::between("10.1.0.1/24", "10.1.0.2/24");
    let hold = Duration::from_millis(1);
    let faults = Faults {
        lose: 50,
        duplicate: 100,
        reorder: 100,
        hold,
        corrupt: 20,
        truncate: 20,
        ..Faults::default()
    };
    let (middlebox, _, _) = testbed.middlebox(&a, &b, &options, faults).unwrap();
    let listener = b.enter(|| TcpListener::bind("10.1.0.2:80")).unwrap();
    let sent: Vec<u8> = (0..500_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let expected = sent.clone();
    let sender = std::thread::spawn(move || {
        let mut stream = a.enter(|| TcpStream::connect("10.1.0.2:80")).unwrap();
        stream.write_all(&sent).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == expected, "{} bytes", got.len());
    let [there, back] = middlebox.tallies();
    assert!(there.lost + there.duplicated + there.corrupted > 0 && back.received > 0, "{there:?} {back:?}");
}
