//! Interoperability with smoltcp in both roles, with various losses, windows and segment sizes. The streams arrive
//! complete.

mod support;

use landfall_net::{Config, ConnId, Event, Instant};
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{EthernetAddress, IpCidr};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use support::{Faults, Host, Network, address};

/// A network device made of two queues.
struct Queues {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    mtu: usize,
}

struct Taken(Vec<u8>);
struct Room<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Taken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = vec![0; len];
        let out = f(&mut frame);
        self.0.push_back(frame);
        out
    }
}

impl Device for Queues {
    type RxToken<'a> = Taken;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: SmolInstant) -> Option<(Taken, Room<'_>)> {
        self.arrived.pop_front().map(|frame| (Taken(frame), Room(&mut self.sent)))
    }

    fn transmit(&mut self, _: SmolInstant) -> Option<Room<'_>> {
        Some(Room(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut out = DeviceCapabilities::default();
        out.medium = Medium::Ethernet;
        out.max_transmission_unit = self.mtu + 14;
        out.checksum.tcp = Checksum::Both;
        out
    }
}

/// Parameters of a run.
struct Case {
    seed: u64,
    loss: u32,
    mtu: u16,
    /// Receive buffer of smoltcp, and receive window of this stack.
    buffer: usize,
    window: u32,
    ours_opens: bool,
    len: usize,
}

struct Pair {
    now: Instant,
    ours: Host,
    device: Queues,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    network: Network,
    conn: Option<ConnId>,
    got: Vec<u8>,
    sent: [usize; 2],
    eof: bool,
    over: bool,
}

fn data(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 253 + seed) as u8).collect()
}

impl Pair {
    fn new(case: &Case) -> Self {
        let mut config = Config::new([2, 0, 0, 0, 0, 1], vec![address(0)]);
        (config.mtu, config.receive_window) = (case.mtu, case.window);
        let mut ours = Host::new(config, case.seed);
        let mut device = Queues { arrived: VecDeque::new(), sent: VecDeque::new(), mtu: case.mtu.into() };
        let mac = EthernetAddress([2, 0, 0, 0, 0, 2]);
        let mut settings = InterfaceConfig::new(mac.into());
        settings.random_seed = case.seed;
        let mut interface = Interface::new(settings, &mut device, SmolInstant::from_millis(1000));
        interface.update_ip_addrs(|list| list.push(IpCidr::new(address(1).into(), 24)).unwrap());
        let mut socket =
            Socket::new(SocketBuffer::new(vec![0; case.buffer]), SocketBuffer::new(vec![0; case.buffer]));
        let now = Instant::from_nanos(1_000_000_000);
        let (mut conn, mut sockets) = (None, SocketSet::new(Vec::new()));
        if case.ours_opens {
            socket.listen(80).unwrap();
            conn = Some(ours.stack.connect(now, SocketAddr::new(address(1), 80), address(1)).unwrap());
        } else {
            ours.stack.listen(80, 1);
            socket.connect(interface.context(), SocketAddr::new(address(0), 80), 5000).unwrap();
        }
        let socket = sockets.add(socket);
        let faults =
            Faults { loss: case.loss, reordering: case.loss, duplication: case.loss, ..Faults::NONE };
        let faults = Faults { reorder_by: Duration::from_micros(300), ..faults };
        let network = Network::new(case.seed, faults);
        let (got, sent) = (Vec::new(), [0, 0]);
        Self {
            now,
            ours,
            device,
            interface,
            sockets,
            socket,
            network,
            conn,
            got,
            sent,
            eof: false,
            over: false,
        }
    }

    fn time(&self) -> SmolInstant {
        SmolInstant::from_micros((self.now.nanos() / 1000).cast_signed())
    }

    /// The application of this stack.
    fn ours(&mut self, data: &[u8]) {
        while let Some(event) = self.ours.stack.poll_event() {
            match event {
                Event::Accepted { conn, .. } => self.conn = Some(conn),
                Event::Eof { .. } => self.eof = true,
                Event::Ended { .. } => self.over = true,
                _ => {}
            }
            self.ours.take(&event);
        }
        let Some(conn) = self.conn else { return };
        while self.sent[0] < data.len() && self.ours.stack.is_writable(conn) {
            let end = (self.sent[0] + 5000).min(data.len());
            if !self.ours.send(conn, &data[self.sent[0]..end], 1000, true) {
                return;
            }
            self.sent[0] = end;
            if end == data.len() {
                self.ours.stack.shut_down(conn);
            }
        }
    }

    /// The application of smoltcp.
    fn theirs(&mut self, data: &[u8]) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        while socket.can_recv() {
            socket
                .recv(|bytes| {
                    self.got.extend_from_slice(bytes);
                    (bytes.len(), ())
                })
                .unwrap();
        }
        if socket.can_send() && self.sent[1] < data.len() {
            self.sent[1] += socket.send_slice(&data[self.sent[1]..]).unwrap();
        }
        if self.sent[1] == data.len() && socket.may_send() {
            socket.close();
        }
    }

    fn exchange(&mut self) {
        while let Some(frame) = self.ours.transmit(self.now) {
            self.network.send(self.now, 0, frame);
        }
        self.interface.poll(self.time(), &mut self.device, &mut self.sockets);
        while let Some(frame) = self.device.sent.pop_front() {
            self.network.send(self.now, 1, frame);
        }
        while let Some((to, frame)) = self.network.deliver(self.now) {
            if to == 0 {
                self.ours.deliver(self.now, &frame);
            } else {
                self.device.arrived.push_back(frame);
            }
        }
    }

    fn next(&mut self) -> Instant {
        let delay = self.interface.poll_delay(self.time(), &self.sockets);
        let theirs = delay.map(|delay| self.now + Duration::from_micros(delay.total_micros().max(1)));
        let busy = (!self.device.arrived.is_empty()).then_some(self.now);
        [theirs, busy, self.ours.stack.deadline(), self.network.next()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.now + Duration::from_millis(1))
    }
}

fn run(case: &Case) {
    let (there, back) = (data(case.len, 1), data(case.len / 2, 2));
    let mut pair = Pair::new(case);
    let end = pair.now + Duration::from_secs(2000);
    let done = |pair: &Pair| pair.over && pair.got.len() == there.len();
    while !done(&pair) && pair.now < end {
        pair.exchange();
        pair.ours(&there);
        pair.theirs(&back);
        let next = pair.next();
        pair.now = next.max(pair.now + Duration::from_nanos(500));
        pair.ours.stack.handle_time(pair.now, &mut pair.ours.arena);
    }
    let received = pair.conn.and_then(|conn| pair.ours.received.get(&conn)).cloned().unwrap_or_default();
    let what =
        format!("seed {} sent {:?}, got {} and {}", case.seed, pair.sent, pair.got.len(), received.len());
    assert!(done(&pair), "not done: {what}");
    assert!(pair.eof && pair.got == there && received == back, "{what}");
    assert_eq!(pair.ours.arena.held(), 0);
}

#[test]
fn streams_to_and_from_smoltcp_arrive_whole_in_both_roles() {
    for ours_opens in [true, false] {
        let case =
            Case { seed: 1, loss: 0, mtu: 1500, buffer: 65_535, window: 1 << 20, ours_opens, len: 1_000_000 };
        run(&case);
    }
}

#[test]
fn streams_to_and_from_smoltcp_survive_loss_reordering_and_duplication() {
    for seed in 0..16 {
        let case = Case {
            seed,
            loss: 100 + 50 * (seed as u32 % 5),
            mtu: [1500, 576, 1280, 1400][seed as usize % 4],
            buffer: [65_535, 4096, 300_000, 1000][seed as usize / 2 % 4],
            window: [1 << 20, 5000, 65_535, 1500][seed as usize / 4 % 4],
            ours_opens: seed % 2 == 0,
            len: 60_000,
        };
        run(&case);
    }
}
