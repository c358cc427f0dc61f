//! Fuzz targets: clients and servers with any packets in any order from any sender. They do not panic, a server hands
//! out work in order, and every limit is kept.

use bolero::TypeGenerator;
use landfall_pmnet::client::Event;
use landfall_pmnet::server::Silence;
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Fragment, Packet, Part, Refusal, Role, Start, Wanted};
use landfall_pmnet::{Client, ClientConfig, Instant, Server, ServerConfig, SessionKey, SessionRow, Work};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// A packet of any type with numbers near the relevant ones.
#[derive(Clone, Debug, TypeGenerator)]
struct Any {
    kind: u8,
    session: u8,
    device: u8,
    seq: u8,
    is_bypass: bool,
    number: u8,
    index: u8,
    count: u8,
    bytes: [u8; 3],
}

#[derive(Clone, Debug, TypeGenerator)]
enum Step {
    Packet(Any),
    Raw([u8; 20]),
    Wait(u8),
    Ask { is_bypass: bool, len: u8 },
    Work,
    Commit,
    Fail,
    Transmit,
    End,
    Devices(u8),
}

impl Any {
    fn bytes(&self) -> Vec<u8> {
        let base = if self.is_bypass { FIRST_BYPASS } else { 0 };
        let mut packet =
            Packet::new(u16::from(self.session % 3), base + u32::from(self.seq % 24), self.body());
        // The hash is then wrong, as in packets of the authors' release.
        if self.device < 128 {
            packet.header.ack_count = self.device % 4;
        }
        packet.to_bytes()
    }

    fn body(&self) -> Body<'_> {
        let count = u16::from(self.count % 4) + 1;
        let fragment =
            Fragment { index: u16::from(self.index) % count, count, total: u32::from(self.count) % 13 };
        let (nonce, number) = (u64::from(self.number % 2), u32::from(self.number % 24));
        match self.kind % 23 {
            0 => Body::Update(&self.bytes),
            1 => Body::UpdateFragment(fragment, &self.bytes),
            2 => Body::PmnetAck,
            3 => Body::Response(&self.bytes),
            4 => Body::ResponseFragment(fragment, &self.bytes),
            5 => Body::CacheResponse(&self.bytes),
            6 => Body::Bypass { after: None, request: &self.bytes },
            7 => Body::Bypass { after: Some(number), request: &self.bytes },
            8 => Body::BypassFragment { fragment, after: number, request: &self.bytes },
            9 => Body::Recover { incarnation: nonce },
            10 => Body::ServerAck,
            11 => Body::Retransmit { count: number.saturating_mul(number) + 1 },
            12 => Body::SessionStart {
                nonce,
                asks: [Start::Plain, Start::Leased, Start::Resumes][usize::from(self.count % 3)],
            },
            13 => Body::SessionStarted {
                nonce,
                first_update: number,
                first_bypass: FIRST_BYPASS,
                incarnation: nonce,
                lease: count % 2,
            },
            14 => Body::SessionEnd,
            15 => Body::SessionEnded,
            16 => Body::SessionRefused(
                [Refusal::InUse, Refusal::Unknown, Refusal::NoRoom][usize::from(self.number % 3)],
            ),
            17 => Body::JointAck(&self.bytes),
            18 => Body::ResponsePart(
                Part { offset: number, total: number + self.bytes.len() as u32 + u32::from(self.count % 2) },
                &self.bytes,
            ),
            20 => Body::HeldRequest { nonce },
            21 => Body::Held { nonce, number: self.device % 2, count: u32::from(self.count % 2) },
            19 => Body::ResponseRequest(Wanted { offset: number, len: u32::from(self.count), check: 0 }),
            _ => Body::Heartbeat { nonce, role: Role::Device, number: 1 },
        }
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 1))
}

/// A server whose application commits in order, and checks that numbers in rows never decrease.
struct Host {
    server: Server,
    pending: Vec<Work>,
    rows: BTreeMap<SessionKey, SessionRow>,
    now: Instant,
}

impl Host {
    fn new(foreign: bool) -> Self {
        let config = ServerConfig {
            foreign,
            reorder_max: 8,
            sessions_max: 2,
            buffered_bytes_max: 40,
            transmits_max: 50,
            responses_kept: 2,
            silence: Some(Silence { devices: u8::from(!foreign), after: Duration::from_secs(4) }),
            ..ServerConfig::default()
        };
        let now = Instant::from_nanos(1);
        // One session is open, so that the first steps already reach most code.
        let key = SessionKey { client: address(), session: 0 };
        let row = SessionRow {
            key,
            nonce: 9,
            update: 0,
            bypass: FIRST_BYPASS - 1,
            ended: false,
            touched: 0,
            lease: 1,
        };
        let server = Server::new(config, 1, [row], 0, now);
        Self { server, pending: Vec::new(), rows: BTreeMap::from([(key, row)]), now }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Packet(any) => self.server.handle_datagram(address(), &any.bytes(), self.now),
            Step::Raw(bytes) => self.server.handle_datagram(address(), bytes, self.now),
            Step::Wait(millis) => {
                self.now = self.now + Duration::from_millis(u64::from(*millis).pow(2));
                self.server.handle_timeout(self.now);
                assert!(self.server.next_timeout().is_none_or(|at| at > self.now));
            }
            Step::Work => self.pending.extend(self.server.poll_work()),
            Step::Commit if !self.pending.is_empty() => self.commit(),
            Step::Fail => {
                let behind = self.pending.drain(self.pending.len() / 2..);
                behind.for_each(|work| self.server.failed(work.ticket()));
            }
            Step::Transmit => (0..60).for_each(|_| drop(self.server.poll_transmit())),
            _ => {}
        }
        assert!(self.server.stats().sessions <= 2);
    }

    fn commit(&mut self) {
        let work = self.pending.remove(0);
        match &work {
            Work::Row { row, evicted, .. } => {
                self.rows.retain(|key, _| !evicted.contains(key));
                self.rows.insert(row.key, *row);
            }
            Work::Update { row, .. } => {
                let before = self.rows.insert(row.key, *row);
                assert!(
                    before.is_none_or(|before| before.update.wrapping_add(1) <= row.update && !before.ended)
                );
            }
            Work::Bypass { row, lost, .. } => {
                assert!(!lost, "there was no earlier incarnation");
                self.rows.insert(row.key, *row);
            }
        }
        match &work {
            Work::Bypass { ticket, .. } => self.server.respond(*ticket, b"OK", true, self.now).unwrap(),
            other => self.server.committed(other.ticket(), self.now),
        }
    }
}

#[test]
fn fuzz_server_with_any_packets() {
    bolero::check!().with_type::<(bool, Vec<Step>)>().with_max_len(4096).for_each(|(foreign, steps)| {
        let mut host = Host::new(*foreign);
        steps.iter().for_each(|step| host.step(step));
    });
}

fn client_step(client: &mut Client, now: &mut Instant, step: &Step) {
    match step {
        Step::Packet(any) => client.handle_datagram(&any.bytes(), *now),
        Step::Raw(bytes) => client.handle_datagram(bytes, *now),
        Step::Wait(millis) => {
            *now = *now + Duration::from_millis(u64::from(*millis));
            client.handle_timeout(*now);
            assert!(client.next_timeout().is_none_or(|at| at > *now));
        }
        Step::Ask { is_bypass: true, len } => drop(client.bypass(&vec![1; 10 * usize::from(*len)], *now)),
        Step::Ask { len, .. } => drop(client.update(&vec![1; 10 * usize::from(*len)], *now)),
        Step::Transmit => (0..60).for_each(|_| drop(client.poll_transmit())),
        Step::End => client.end(*now),
        Step::Devices(devices) => client.set_devices(devices % 4, *now),
        Step::Work => client.restart(1, 1, *now),
        Step::Commit => client.heartbeat(1),
        Step::Fail => {}
    }
}

#[test]
fn fuzz_client_with_any_packets() {
    bolero::check!().with_type::<Vec<Step>>().with_max_len(4096).for_each(|steps| {
        let mut now = Instant::from_nanos(1);
        let config =
            ClientConfig { devices: 2, window: 4, mtu: 200, requests_max: 6, ..ClientConfig::default() };
        let mut client = Client::new(config, 1, 1, now);
        let mut complete = None;
        let first_bypass = FIRST_BYPASS;
        let started =
            Body::SessionStarted { nonce: 1, first_update: 1, first_bypass, incarnation: 1, lease: 0 };
        client.handle_datagram(&Packet::new(1, 0, started).to_bytes(), now);
        for step in steps {
            client_step(&mut client, &mut now, step);
            while let Some(event) = client.poll_event() {
                if let Event::Complete { id, .. } = event {
                    assert!(complete.replace(id) < Some(id), "updates complete in order");
                }
            }
        }
    });
}
