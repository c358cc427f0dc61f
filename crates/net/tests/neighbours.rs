//! Everything beside TCP (ARP, neighbour discovery, echo, datagrams), and its effect on connections.

mod support;

use landfall_net::{BYTES_MAX, ConnId, Drop, Ended, Event, Instant, SendError};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use support::wire::{self, OUR_MAC, PEER_MAC, checksum, ip_frame, octets, pseudo_header, put_word, word};
use support::{Host, address, address_v6, config, sent};

const NOW: Instant = Instant::from_nanos(5_000_000_000);

fn host() -> Host {
    Host::new(config(0), 3)
}

fn arp(operation: u8, from: (&[u8; 6], [u8; 4]), target: [u8; 4]) -> Vec<u8> {
    let mut frame = [&OUR_MAC[..], from.0, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation], from.0, &from.1].concat();
    frame.extend([0; 6]);
    frame.extend(target);
    frame
}

fn icmp_v6(from: IpAddr, to: IpAddr, hop_limit: u8, body: &[u8]) -> Vec<u8> {
    let mut message = body.to_vec();
    let sum = checksum(&[&pseudo_header(from, to, 58, message.len()), &message]);
    (message[2], message[3]) = ((sum >> 8) as u8, sum as u8);
    let mut frame = ip_frame(from, to, 58, 0, &message);
    frame[21] = hop_limit;
    frame
}

fn group(of: IpAddr) -> IpAddr {
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&octets(of)[13..]);
    group.into()
}

fn solicitation(target: IpAddr) -> Vec<u8> {
    [&[135, 0, 0, 0, 0, 0, 0, 0], &octets(target)[..], &[1, 1], &PEER_MAC].concat()
}

fn advertisement(target: IpAddr, mac: [u8; 6]) -> Vec<u8> {
    [&[136, 0, 0, 0, 0x60, 0, 0, 0], &octets(target)[..], &[2, 1], &mac].concat()
}

fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8], sum: Option<u16>) -> Vec<u8> {
    let mut datagram = Vec::new();
    put_word(&mut datagram, from.port());
    put_word(&mut datagram, to.port());
    put_word(&mut datagram, 8 + payload.len() as u16);
    put_word(&mut datagram, 0);
    datagram.extend(payload);
    let pseudo = pseudo_header(from.ip(), to.ip(), 17, datagram.len());
    let sum = sum.unwrap_or_else(|| checksum(&[&pseudo, &datagram]));
    (datagram[6], datagram[7]) = ((sum >> 8) as u8, sum as u8);
    ip_frame(from.ip(), to.ip(), 17, 0, &datagram)
}

#[test]
fn arp_questions_about_our_addresses_are_answered_and_others_are_not() {
    let mut host = host();
    host.deliver(NOW, &arp(1, (&PEER_MAC, [10, 0, 0, 2]), [10, 0, 0, 1]));
    let reply = sent(&mut host, NOW).remove(0);
    assert_eq!(reply[..6], PEER_MAC);
    assert_eq!(reply[6..12], OUR_MAC);
    assert_eq!(reply[20..22], [0, 2]);
    assert_eq!((&reply[22..28], &reply[28..32]), (&OUR_MAC[..], &[10, 0, 0, 1][..]));
    assert_eq!((&reply[32..38], &reply[38..42]), (&PEER_MAC[..], &[10, 0, 0, 2][..]));
    // Another host's address; gratuitous; cut short; from a group; not Ethernet and IPv4.
    host.deliver(NOW, &arp(1, (&PEER_MAC, [10, 0, 0, 2]), [10, 0, 0, 9]));
    host.deliver(NOW, &arp(1, (&PEER_MAC, [10, 0, 0, 3]), [10, 0, 0, 3]));
    let good = arp(1, (&PEER_MAC, [10, 0, 0, 2]), [10, 0, 0, 1]);
    (14..good.len()).for_each(|len| host.deliver(NOW, &good[..len]));
    host.deliver(NOW, &arp(1, (&[0xff; 6], [10, 0, 0, 2]), [10, 0, 0, 1]));
    let mut odd = good;
    odd[15] = 6;
    host.deliver(NOW, &odd);
    assert_eq!(sent(&mut host, NOW), Vec::<Vec<u8>>::new());
    assert_eq!(host.stack.stats().dropped(Drop::NotOurs), 2);
}

#[test]
fn an_unanswered_neighbour_is_solicited_three_times_and_its_queue_is_dropped() {
    let mut host = host();
    let conn = host.stack.connect(NOW, SocketAddr::new(address(1), 80), address(1)).unwrap();
    let orphan = host.stack.connect(NOW, SocketAddr::new(address(1), 81), address(1)).unwrap();
    assert!(host.send(conn, &[7; 3000], 1000, true));
    assert!(host.send(orphan, &[7; 100], 100, true));
    host.stack.shut_down(orphan);
    host.stack.close(NOW, &mut host.arena, orphan);
    let mut now = NOW;
    let mut questions = 0;
    while let Some(at) = host.stack.deadline().filter(|_| host.stack.counts().0 > 0) {
        questions += sent(&mut host, now).iter().filter(|frame| word(frame, 12) == 0x0806).count();
        now = at;
        host.stack.handle_time(now, &mut host.arena);
    }
    assert_eq!((questions, now.since(NOW)), (3, Duration::from_secs(3)));
    let events: Vec<_> = std::iter::from_fn(|| host.stack.poll_event()).collect();
    assert_eq!(events, [Event::Ended { conn, how: Ended::TimedOut }]);
    assert_eq!(host.arena.held(), 0);
}

#[test]
fn an_old_hardware_address_is_resolved_again() {
    let mut host = host();
    let to = |port| SocketAddr::new(address(1), port);
    host.stack.connect(NOW, to(79), address(1)).unwrap();
    host.deliver(NOW, &arp(2, (&PEER_MAC, [10, 0, 0, 2]), [10, 0, 0, 1]));
    sent(&mut host, NOW);
    host.stack.connect(NOW, to(80), address(1)).unwrap();
    assert_eq!(word(&sent(&mut host, NOW)[0], 12), 0x0800, "known: the SYN goes out at once");
    let later = NOW + Duration::from_secs(3600);
    host.stack.connect(later, to(81), address(1)).unwrap();
    assert_eq!(word(&sent(&mut host, later)[0], 12), 0x0806);
    let moved = [2, 0, 0, 0, 0, 99];
    host.deliver(later, &arp(2, (&moved, [10, 0, 0, 2]), [10, 0, 0, 1]));
    assert_eq!(sent(&mut host, later)[0][..6], moved);
}

#[test]
fn unsolicited_hardware_addresses_are_ignored() {
    let mut host = host();
    let attacker = [2, 0, 0, 0, 6, 66];
    let forged = |host: &mut Host| {
        // Answers, requests and announcements; datagrams.
        for operation in [2, 1] {
            host.deliver(NOW, &arp(operation, (&attacker, [10, 0, 0, 2]), [10, 0, 0, 1]));
        }
        let (ours, peer) = (address_v6(0), address_v6(1));
        let mut advertised = icmp_v6(peer, ours, 255, &advertisement(peer, attacker));
        advertised[6..12].copy_from_slice(&attacker);
        host.deliver(NOW, &advertised);
        let mut asked = icmp_v6(peer, group(ours), 255, &solicitation(ours));
        asked[6..12].copy_from_slice(&attacker);
        host.deliver(NOW, &asked);
        let mut datagram = udp(SocketAddr::new(address(1), 9), SocketAddr::new(address(0), 53), b"", None);
        datagram[6..12].copy_from_slice(&attacker);
        host.deliver(NOW, &datagram);
        while let Some(event) = host.stack.poll_event() {
            host.take(&event);
        }
        sent(host, NOW);
    };
    host.stack.bind_udp(53);
    for peer in [address(1), address_v6(1)] {
        forged(&mut host);
        host.stack.connect(NOW, SocketAddr::new(peer, 80), peer).unwrap();
        let question = sent(&mut host, NOW).remove(0);
        assert!(word(&question, 12) == 0x0806 || question[54] == 135, "{peer} is asked for");
        let answer = match peer {
            IpAddr::V4(_) => arp(2, (&PEER_MAC, [10, 0, 0, 2]), [10, 0, 0, 1]),
            IpAddr::V6(_) => icmp_v6(peer, address_v6(0), 255, &advertisement(peer, PEER_MAC)),
        };
        host.deliver(NOW, &answer);
        assert_eq!(sent(&mut host, NOW)[0][..6], PEER_MAC);
        // The forged packets do not change the resolved address, either.
        forged(&mut host);
        host.stack.connect(NOW, SocketAddr::new(peer, 81), peer).unwrap();
        assert_eq!(sent(&mut host, NOW)[0][..6], PEER_MAC);
    }
}

#[test]
fn neighbour_discovery_answers_neighbours_and_hosts_without_an_address() {
    let (ours, peer) = (address_v6(0), address_v6(1));
    let mut host = host();
    host.deliver(NOW, &icmp_v6(peer, group(ours), 255, &solicitation(ours)));
    let reply = sent(&mut host, NOW).remove(0);
    assert_eq!((&reply[..6], reply[54], reply[58]), (&PEER_MAC[..], 136, 0x60), "solicited, override");
    assert_eq!(reply[21], 255);
    assert_eq!((&reply[62..78], &reply[78..86]), (&octets(ours)[..], &[2, 1, 2, 0, 0, 0, 0, 1][..]));
    assert_eq!(checksum(&[&pseudo_header(ours, peer, 58, 32), &reply[54..]]), 0);
    // Duplicate address detection (RFC 4862, 5.4.3; RFC 4861, 7.2.4): to all nodes, not solicited.
    let nobody = IpAddr::from([0_u16; 8]);
    host.deliver(NOW, &icmp_v6(nobody, group(ours), 255, &solicitation(ours)[..24]));
    let reply = sent(&mut host, NOW).remove(0);
    assert_eq!((&reply[..6], reply[58]), (&[0x33, 0x33, 0, 0, 0, 1][..], 0x20));
    assert_eq!(reply[38..54], [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    // Not from the link; for another host's address; with a wrong checksum.
    host.deliver(NOW, &icmp_v6(peer, group(ours), 254, &solicitation(ours)));
    host.deliver(NOW, &icmp_v6(peer, ours, 255, &solicitation(peer)));
    let mut bad = icmp_v6(peer, ours, 255, &solicitation(ours));
    bad[60] ^= 1;
    host.deliver(NOW, &bad);
    assert!(sent(&mut host, NOW).is_empty());
}

#[test]
fn a_connection_continues_after_a_solicited_advertisement_and_no_other() {
    let (ours, peer) = (address_v6(0), address_v6(1));
    let mut host = host();
    host.deliver(NOW, &icmp_v6(peer, ours, 255, &advertisement(peer, [2, 9, 9, 9, 9, 9])));
    let to = SocketAddr::new(peer, 80);
    host.stack.connect(NOW, to, peer).unwrap();
    let question = sent(&mut host, NOW).remove(0);
    assert_eq!((&question[..6], question[54]), (&[0x33, 0x33, 0xff, 0, 0, 2][..], 135));
    host.deliver(NOW, &icmp_v6(peer, ours, 255, &advertisement(peer, PEER_MAC)));
    let syn = sent(&mut host, NOW).remove(0);
    assert_eq!((&syn[..6], syn[20]), (&PEER_MAC[..], 6));
}

#[test]
fn echo_requests_are_answered_a_bounded_number_of_times_a_second() {
    let mut host = host();
    let mut request = vec![8, 0, 0, 0, 1, 2, 3, 4, 5];
    let sum = checksum(&[&request]);
    (request[2], request[3]) = ((sum >> 8) as u8, sum as u8);
    let frame = ip_frame(address(1), address(0), 1, 0, &request);
    host.deliver(NOW, &frame);
    let reply = sent(&mut host, NOW).remove(0);
    assert_eq!((reply[34], &reply[38..]), (0, &request[4..]));
    assert_eq!(checksum(&[&reply[34..]]), 0);
    let v6 = icmp_v6(address_v6(1), address_v6(0), 64, &[128, 0, 0, 0, 9, 8, 7, 6, 5]);
    host.deliver(NOW, &v6);
    let reply = sent(&mut host, NOW).remove(0);
    assert_eq!((reply[54], &reply[58..]), (129, &[9, 8, 7, 6, 5][..]));
    assert_eq!(checksum(&[&pseudo_header(address_v6(0), address_v6(1), 58, 9), &reply[54..]]), 0);
    for _ in 0..5000 {
        host.deliver(NOW, &frame);
    }
    assert!(sent(&mut host, NOW).len() <= 1000);
    // Neighbour solicitations are still answered.
    let (ours, peer) = (address_v6(0), address_v6(1));
    host.deliver(NOW, &icmp_v6(peer, group(ours), 255, &solicitation(ours)));
    assert_eq!(sent(&mut host, NOW).len(), 1);
    let mut wrong = frame;
    wrong[40] ^= 1;
    host.deliver(NOW + Duration::from_secs(2), &wrong);
    assert!(sent(&mut host, NOW).is_empty());
}

#[test]
fn datagrams_arrive_with_their_sum_or_without_one_and_are_answered() {
    let mut host = host();
    host.stack.bind_udp(53);
    let (peer, ours) = (SocketAddr::new(address(1), 9), SocketAddr::new(address(0), 53));
    let arrives = |host: &mut Host, frame: &[u8]| {
        host.deliver(NOW, frame);
        let Some(Event::Datagram { port, remote, extent, .. }) = host.stack.poll_event() else {
            return None;
        };
        let bytes = landfall_net::Frames::bytes(&host.arena, extent).to_vec();
        landfall_net::Frames::release(&mut host.arena, extent);
        Some((port, remote, bytes))
    };
    assert_eq!(arrives(&mut host, &udp(peer, ours, b"abc", None)), Some((53, peer, b"abc".to_vec())));
    assert_eq!(arrives(&mut host, &udp(peer, ours, b"", None)), Some((53, peer, Vec::new())));
    assert!(arrives(&mut host, &udp(peer, ours, b"abc", Some(0))).is_some(), "RFC 768: none");
    assert_eq!(arrives(&mut host, &udp(peer, ours, b"abc", Some(1))), None);
    let partial = !checksum(&[&pseudo_header(peer.ip(), ours.ip(), 17, 11)]);
    assert_eq!(arrives(&mut host, &udp(peer, ours, b"abc", Some(partial))), None);
    let (peer6, ours6) = (SocketAddr::new(address_v6(1), 9), SocketAddr::new(address_v6(0), 53));
    assert!(arrives(&mut host, &udp(peer6, ours6, b"abc", None)).is_some());
    assert_eq!(arrives(&mut host, &udp(peer6, ours6, b"abc", Some(0))), None, "RFC 8200, 8.1");
    let elsewhere = SocketAddr::new(address(0), 54);
    assert_eq!(arrives(&mut host, &udp(peer, elsewhere, b"abc", None)), None);
    let stats = *host.stack.stats();
    let drops = [Drop::Checksum, Drop::PartialChecksum, Drop::NoListener].map(|why| stats.dropped(why));
    assert_eq!(drops, [2, 1, 1]);
    // Answers: bytes, then stored bytes.
    let stored = host.arena.store(3, b"stored").unwrap();
    host.stack.send_datagram(&mut host.arena, 53, peer, b"and ", Some((stored, None))).unwrap();
    let frame = sent(&mut host, NOW).remove(0);
    assert_eq!(&frame[42..], b"and stored");
    assert_eq!(checksum(&[&pseudo_header(ours.ip(), peer.ip(), 17, 18), &frame[34..]]), 0);
    let nobody = SocketAddr::new(IpAddr::from([10, 0, 0, 77]), 1);
    let stored = host.arena.store(3, b"stored").unwrap();
    let failed = host.stack.send_datagram(&mut host.arena, 53, nobody, b"", Some((stored, None)));
    assert_eq!(failed, Err(SendError::Unresolved));
    let long = vec![0; 1473];
    assert_eq!(host.stack.send_datagram(&mut host.arena, 53, peer, &long, None), Err(SendError::TooLong));
    assert_eq!(host.arena.held(), 0);
}

#[test]
fn a_packet_never_has_more_bytes_beside_frames_than_fit_into_one() {
    let mut big = config(0);
    big.mtu = 3400;
    let mut host = Host::new(big, 1);
    host.stack.bind_udp(53);
    let peer = SocketAddr::new(address(1), 9);
    host.deliver(NOW, &udp(peer, SocketAddr::new(address(0), 53), b"hello", None));
    if let Some(event @ Event::Datagram { extent, .. }) = host.stack.poll_event() {
        assert!(event.conn().is_none());
        landfall_net::Frames::release(&mut host.arena, extent);
    }
    let long = vec![0; BYTES_MAX];
    assert_eq!(host.stack.send_datagram(&mut host.arena, 53, peer, &long, None), Err(SendError::TooLong));
    // The limit for TCP: `Host::transmit` checks each packet.
    let mut world = support::World::with(1, support::Faults::NONE, |config| config.mtu = 3400);
    let client = world.connect();
    let data: Vec<u8> = (0..50_000_u32).map(|i| (i * 7) as u8).collect();
    world.hosts[0].stack.send_bytes(client, &data).unwrap();
    assert!(world.run_until(|world| world.hosts[1].received.values().any(|got| got.len() == data.len())));
    assert!(world.hosts[1].received.values().all(|got| *got == data));
}

#[test]
fn segments_to_groups_and_from_impossible_senders_are_dropped() {
    let mut host = host();
    host.stack.listen(80, 1);
    let syn = |from: IpAddr, to: IpAddr| wire::Seg {
        from: SocketAddr::new(from, 1000),
        to: SocketAddr::new(to, 80),
        seq: 1,
        ack: 0,
        flags: wire::SYN,
        window: 1000,
        urgent: 0,
        options: Vec::new(),
        payload: Vec::new(),
        ecn: 0,
    };
    host.deliver(NOW, &syn(address_v6(1), group(address_v6(0))).frame());
    for from in [[0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]] {
        host.deliver(NOW, &syn(from.into(), address(0)).frame());
    }
    let mut frame = syn(address(1), address(0)).frame();
    frame[..6].fill(0xff);
    host.deliver(NOW, &frame);
    let mut frame = syn(address(1), address(0)).frame();
    frame[6..12].fill(0xff);
    host.deliver(NOW, &frame);
    assert!(sent(&mut host, NOW).is_empty());
    assert_eq!(host.stack.counts(), (0, 0, 0));
    host.deliver(NOW, &syn(address(1), address(0)).frame());
    assert_eq!(sent(&mut host, NOW).len(), 1);
}

#[test]
fn queued_events_of_a_connection_are_removed_when_it_is_closed() {
    let mut world = support::World::new(1, support::Faults::NONE);
    let client = world.connect();
    assert!(world.run_until(|world| world.accepted().is_some()));
    let server = world.accepted().unwrap();
    world.hosts[0].stack.send_bytes(client, b"nobody will read this").unwrap();
    let now = world.now;
    let frame = world.hosts[0].transmit(now).unwrap();
    let host = &mut world.hosts[1];
    host.deliver(now, &frame);
    host.stack.close(now, &mut host.arena, server);
    assert_eq!(host.stack.poll_event(), None);
    assert_eq!(host.arena.held(), 0);
    let other: Option<ConnId> = None;
    assert_eq!(world.hosts[1].stack.poll_event().and_then(|event| event.conn()), other);
}

#[test]
fn the_timer_queue_stays_short() {
    let mut world = support::World::new(1, support::Faults::NONE);
    let client = world.connect();
    assert!(world.run_until(|world| world.accepted().is_some()));
    for _ in 0..2000 {
        world.hosts[0].stack.send_bytes(client, b"x").unwrap();
        world.run_for(Duration::from_millis(50));
    }
    for host in &world.hosts {
        assert!(host.stack.timers_queued() < 10, "{}", host.stack.timers_queued());
    }
}
