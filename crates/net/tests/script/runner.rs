//! Runs a script.

use super::matching::{differs, show};
use super::text::{self, Echo, Opt, When, Written};
use crate::support::wire::{self, ACK, PEER_MAC, SYN, Seg, encode_options, ip_frame, put_long, put_word};
use crate::support::{Host, address, address_v6};
use landfall_net::{Config, CongestionControl, ConnId, Event, Instant};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Port that scripts listen on and connect to.
const PORT: u16 = 80;
/// Initial sequence number of the peer: its stream soon passes the wrap of sequence numbers.
const PEER_ISN: u32 = 0xffff_f000;

/// The byte at position `place` of either stream, counted from its SYN.
pub fn pattern(place: u32) -> u8 {
    (place ^ place >> 8 ^ place >> 16).wrapping_mul(37) as u8
}

/// A connection of the script.
#[derive(Clone, Debug)]
pub struct Flow {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub iss: Option<u32>,
    pub irs: u32,
    pub first_ts: Option<u32>,
    last_ts: u32,
    conn: Option<ConnId>,
    sent: u32,
    received: u32,
}

/// A script that is being run.
struct Runner {
    name: String,
    line: String,
    number: usize,
    host: Host,
    start: Instant,
    now: Instant,
    previous: Instant,
    family6: bool,
    flows: BTreeMap<u32, Flow>,
    out: VecDeque<(Instant, Seg)>,
    events: VecDeque<Event>,
}

/// Runs the script in `text`, and panics where the stack does not do what the script says. Each script runs with and
/// without long packets, which makes no difference on the wire.
pub fn run(name: &str, text: &str) {
    run_with(name, text, false);
    run_with(&format!("{name}, long packets"), text, true);
}

fn run_with(name: &str, text: &str, long_packets: bool) {
    let mut config = Config::new(wire::OUR_MAC, vec![address(0), address_v6(0)]);
    config.long_packets = long_packets;
    let mut family6 = false;
    for line in text.lines().map(str::trim) {
        if let Some(setting) = line.strip_prefix("config ") {
            let (name, value) = setting.split_once(' ').expect("config NAME VALUE");
            family6 |= name == "family" && value == "6";
            configure(&mut config, name, value.trim());
        }
    }
    let start = Instant::from_nanos(1_000_000_000);
    let mut runner = Runner {
        name: name.to_owned(),
        line: String::new(),
        number: 0,
        host: Host::new(config, 77),
        start,
        now: start,
        previous: start,
        family6,
        flows: BTreeMap::new(),
        out: VecDeque::new(),
        events: VecDeque::new(),
    };
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() && !line.starts_with("config ") {
            (runner.number, runner.line) = (number + 1, line.to_owned());
            runner.step();
        }
    }
    runner.finish();
}

fn configure(config: &mut Config, name: &str, value: &str) {
    let seconds = || Duration::from_secs_f64(value.parse().expect("seconds"));
    let number = || value.parse::<usize>().expect("a number");
    match name {
        "family" => {}
        "mtu" => config.mtu = number() as u16,
        "connections_max" => config.connections_max = number(),
        "backlog_max" => config.backlog_max = number(),
        "time_wait_max" => config.time_wait_max = number(),
        "receive_window" => config.receive_window = number() as u32,
        "send_queue" => config.send_queue = number(),
        "waiting_frames_max" => config.waiting_frames_max = number(),
        "waiting_frames_per_connection" => config.waiting_frames_per_connection = number(),
        "set_aside_after" => config.set_aside_after = seconds(),
        "rto_min" => config.rto_min = seconds(),
        "user_timeout" => config.user_timeout = seconds(),
        "keep_alive" => config.keep_alive = (value != "off").then(seconds),
        "owns_addresses" => config.owns_addresses = value == "yes",
        "ecn" => config.ecn = value == "on",
        "congestion" if value == "newreno" => config.congestion = CongestionControl::NewReno,
        "congestion" if value == "cubic" => config.congestion = CongestionControl::Cubic,
        _ => panic!("no setting {name} {value}"),
    }
}

impl Runner {
    #[track_caller]
    fn fail(&self, why: &str) -> ! {
        let at = self.now.since(self.start).as_secs_f64();
        panic!("{}:{}: at {at:.6}: {why}\n  line: {}\n", self.name, self.number, self.line)
    }

    fn step(&mut self) {
        let line = self.line.clone();
        let (time, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let at = match text::when(time) {
            When::At(nanos) => Some(self.start + Duration::from_nanos(nanos)),
            When::After(nanos) => Some(self.previous + Duration::from_nanos(nanos)),
            When::Any => None,
        };
        let rest = rest.trim();
        if let Some(expected) = rest.strip_prefix('>') {
            return self.expect(at, expected.trim());
        }
        let Some(at) = at else { self.fail("only what is expected may come at any time") };
        self.previous = at;
        if at > self.now {
            self.advance(at);
            self.check_silence();
        }
        match rest.strip_prefix('<') {
            Some(segment) => {
                self.collect();
                self.check_silence();
                self.arrive(segment.trim());
                self.collect();
            }
            // Calls at a point in time run before the stack is polled for packets.
            None => self.call(rest),
        }
    }

    fn check_silence(&mut self) {
        if let Some((_, seg)) = self.out.pop_front() {
            let (_, flow) = self.flow_of(&seg);
            self.fail(&format!("the stack sent an unexpected segment: {}", show(&flow, &seg)));
        }
    }

    /// Takes the packets and events of the stack. ARP requests are answered without a line in the script.
    fn collect(&mut self) {
        while let Some(frame) = self.host.transmit(self.now) {
            if wire::word(&frame, 12) == 0x0806 {
                self.answer_arp(&frame);
            } else if let Some(seg) = Seg::parse(&frame) {
                self.learn(&seg);
                self.out.push_back((self.now, seg));
            } else {
                self.fail(&format!("sent {} bytes that are not TCP", frame.len()));
            }
        }
        while let Some(event) = self.host.stack.poll_event() {
            self.note(event);
        }
    }

    fn answer_arp(&mut self, question: &[u8]) {
        let mut reply = [&wire::OUR_MAC[..], &PEER_MAC, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &PEER_MAC].concat();
        reply.extend(&question[38..42]);
        reply.extend(&question[22..32]);
        self.host.deliver(self.now, &reply);
    }

    fn learn(&mut self, seg: &Seg) {
        let (number, mut flow) = self.flow_of(seg);
        if seg.has(SYN) {
            flow.iss = Some(seg.seq);
        }
        if let Some((value, _)) = seg.timestamps() {
            flow.last_ts = value;
            flow.first_ts.get_or_insert(value);
        }
        self.flows.insert(number, flow);
    }

    fn note(&mut self, event: Event) {
        if let Event::Received { conn, extent, .. } = event {
            let bytes = landfall_net::Frames::bytes(&self.host.arena, extent).to_vec();
            self.host.take(&event);
            let Some(flow) = self.flows.values_mut().find(|flow| flow.conn == Some(conn)) else {
                self.fail("bytes of an unknown connection")
            };
            let place = flow.received + 1;
            flow.received += bytes.len() as u32;
            let wrong = bytes.iter().enumerate().find(|(i, byte)| **byte != pattern(place + *i as u32));
            if let Some((i, _)) = wrong {
                self.fail(&format!("byte {} of the stream is wrong", place as usize + i));
            }
            return;
        }
        if let Event::Accepted { conn, remote, .. } = event
            && let Some(flow) = self.flows.values_mut().find(|flow| flow.remote == remote)
        {
            (flow.conn, flow.received, flow.sent) = (Some(conn), 0, 0);
        }
        self.events.push_back(event);
    }

    /// Advances the time and handles what is due; stops early when something was sent and `stop` is set.
    fn pass(&mut self, at: Option<Instant>, stop: bool) {
        let end = at.unwrap_or(self.now + Duration::from_secs(7200));
        self.collect();
        while !stop || self.out.is_empty() {
            match self.host.stack.deadline() {
                Some(due) if due <= end => {
                    self.now = self.now.max(due);
                    self.host.stack.handle_time(self.now, &mut self.host.arena);
                    self.collect();
                    if self.host.stack.deadline().is_some_and(|next| next <= self.now) {
                        self.fail("the deadline stays in the past");
                    }
                }
                _ if at.is_none() => self.fail("nothing was sent for two hours"),
                _ => return self.now = self.now.max(end),
            }
        }
    }

    fn advance(&mut self, at: Instant) {
        self.pass(Some(at), false);
    }

    fn expect(&mut self, at: Option<Instant>, text: &str) {
        let (number, text) = flow_number(text);
        let want = text::segment(text);
        if self.out.is_empty() {
            self.pass(at, true);
        }
        let Some((when, seg)) = self.out.pop_front() else { self.fail("the stack sent nothing") };
        self.flow(number);
        let (sender, flow) = self.flow_of(&seg);
        let wrong = if sender == number { differs(&flow, &seg, &want) } else { Some("another flow".into()) };
        if let Some(why) = wrong {
            self.fail(&format!("{why}: the stack sent @{sender} {}", show(&flow, &seg)));
        }
        if at.is_some_and(|at| at != when) {
            let came = when.since(self.start).as_secs_f64();
            self.fail(&format!("it came at {came:.6}"));
        }
        self.previous = when;
    }

    fn hosts(&self) -> (IpAddr, IpAddr) {
        if self.family6 { (address_v6(0), address_v6(1)) } else { (address(0), address(1)) }
    }

    /// The flow with this number. A new number is a peer's connection to the port that the stack listens on.
    fn flow(&mut self, number: u32) -> &mut Flow {
        let (ours, peer) = self.hosts();
        self.flows.entry(number).or_insert_with(|| Flow {
            local: SocketAddr::new(ours, PORT),
            remote: SocketAddr::new(peer, 30_000 + number as u16),
            iss: None,
            irs: PEER_ISN.wrapping_add(number << 20),
            first_ts: None,
            last_ts: 0,
            conn: None,
            sent: 0,
            received: 0,
        })
    }

    /// The flow of a segment that the stack sent.
    fn flow_of(&mut self, seg: &Seg) -> (u32, Flow) {
        let known = self
            .flows
            .iter_mut()
            .find(|(_, flow)| flow.remote == seg.to && (flow.local == seg.from || flow.local.port() == 0));
        let Some((number, flow)) = known else { self.fail(&format!("a segment of no flow: {seg:?}")) };
        flow.local = seg.from;
        (*number, flow.clone())
    }

    fn arrive(&mut self, text: &str) {
        let (number, text) = flow_number(text);
        let written = text::segment(text);
        let frame = self.build(number, &written);
        self.host.deliver(self.now, &frame);
    }

    fn build(&mut self, number: u32, written: &Written) -> Vec<u8> {
        let flow = self.flow(number).clone();
        let has = |word: &str| written.words.iter().any(|w| w == word);
        let push = if written.push { wire::PSH } else { 0 };
        let byte = |i: u32| if has("junk") { 0xee } else { pattern(written.seq.wrapping_add(i)) };
        let seg = Seg {
            from: flow.remote,
            to: flow.local,
            seq: flow.irs.wrapping_add(written.seq),
            ack: written.ack.map_or(0, |ack| flow.iss.unwrap_or(0).wrapping_add(ack)),
            flags: written.flags | push,
            window: written.window.unwrap_or(u16::MAX),
            urgent: if has("urgent") { 7 } else { 0 },
            options: encode_options(&encode(&flow, written.options.as_deref().unwrap_or_default())),
            payload: (0..written.len).map(byte).collect(),
            ecn: if has("ce") { 3 } else { 2 * u8::from(has("ect0")) },
        };
        disturb(&seg, has)
    }

    fn call(&mut self, text: &str) {
        let mut words = text.split_whitespace();
        let name = words.next().expect("a call");
        let rest: Vec<&str> = words.collect();
        let flow_word = rest.iter().find_map(|word| word.strip_prefix('@'));
        let number = flow_word.map_or(1, |n| n.parse().expect("@FLOW"));
        let args: Vec<&str> = rest.into_iter().filter(|word| !word.starts_with('@')).collect();
        match name {
            "listen" => self.host.stack.listen(PORT, 7),
            "connect" => self.connect(number),
            "open" => self.open(number, text),
            "toobig" => self.too_big(number, args[0], args[1]),
            "send" | "stored" => self.send(number, args[0], name == "stored"),
            "pause" | "resume" | "shutdown" | "close" | "abort" => self.act(number, name),
            "nothing" => {
                self.collect();
                self.check_silence();
            }
            _ => self.check(number, name, &args),
        }
    }

    fn connect(&mut self, number: u32) {
        let (ours, peer) = self.hosts();
        let remote = SocketAddr::new(peer, PORT + number as u16);
        let flow = self.flow(number);
        (flow.local, flow.remote, flow.iss) = (SocketAddr::new(ours, 0), remote, None);
        (flow.sent, flow.received) = (0, 0);
        let conn = self.host.stack.connect(self.now, remote, peer).expect("a connection can be opened");
        self.flow(number).conn = Some(conn);
    }

    /// The peer's handshake with a port that the stack listens on. Its SYN is sent twice, so that the stack cannot
    /// measure a round trip.
    fn open(&mut self, number: u32, text: &str) {
        let options = text::options(text);
        let window = text
            .split_whitespace()
            .skip_while(|w| *w != "win")
            .nth(1)
            .map_or(65535, |w| w.parse().expect("win N"));
        let timestamps = options.iter().any(|o| matches!(o, Opt::Timestamps(..)));
        let ecn = text.contains("ecn");
        let mut syn = text::segment("S 0(0)");
        if ecn {
            syn.flags |= wire::ECE | wire::CWR;
        }
        (syn.options, syn.window) = (Some(options.clone()), Some(window));
        let frame = self.build(number, &syn);
        for _ in 0..2 {
            self.host.deliver(self.now, &frame);
            self.collect();
            let Some((_, answer)) = self.out.pop_back() else { self.fail("no answer to the SYN") };
            assert!(answer.has(SYN | ACK), "{answer:?}");
        }
        let mut ack = text::segment(". 1(0) ack 1");
        ack.window = Some(window);
        if timestamps {
            let first = options.iter().find(|o| matches!(o, Opt::Timestamps(..))).cloned();
            if let Some(Opt::Timestamps(value, _)) = first {
                ack.options = Some(vec![Opt::Timestamps(value, Echo::Last)]);
            }
        }
        let frame = self.build(number, &ack);
        self.host.deliver(self.now, &frame);
        self.collect();
        self.check(number, "event", &["accepted"]);
    }

    /// RFC 1191 or RFC 8201: a router reports that the stack's segment was too big.
    fn too_big(&mut self, number: u32, seq: &str, mtu: &str) {
        let flow = self.flow(number).clone();
        let seq = flow.iss.unwrap_or(0).wrapping_add(text::number(Some(seq)) as u32);
        let mtu = text::number(Some(mtu)) as u32;
        let quoted = Seg {
            from: flow.local,
            to: flow.remote,
            seq,
            ack: 0,
            flags: ACK,
            window: 0,
            urgent: 0,
            options: Vec::new(),
            payload: Vec::new(),
            ecn: 0,
        };
        let quoted = quoted.frame()[14..].to_vec();
        let (ours, peer) = (flow.local.ip(), flow.remote.ip());
        let mut message = if self.family6 { vec![2, 0, 0, 0] } else { vec![3, 4, 0, 0] };
        put_long(&mut message, mtu);
        message.extend(&quoted[..quoted.len().min(60)]);
        let pseudo = wire::pseudo_header(peer, ours, 58, message.len());
        let sum = wire::checksum(&[if self.family6 { &pseudo } else { &[] }, &message]);
        (message[2], message[3]) = ((sum >> 8) as u8, sum as u8);
        let frame = ip_frame(peer, ours, if self.family6 { 58 } else { 1 }, 0, &message);
        self.host.deliver(self.now, &frame);
    }

    fn send(&mut self, number: u32, count: &str, stored: bool) {
        let count = text::number(Some(count)) as u32;
        let flow = self.flow(number);
        let (Some(conn), from) = (flow.conn, flow.sent) else { self.fail("no connection") };
        let bytes: Vec<u8> = (0..count).map(|i| pattern(1 + from + i)).collect();
        let done = if stored {
            self.host.send(conn, &bytes, 1024, from % 2 == 0)
        } else {
            self.host.stack.send_bytes(conn, &bytes).is_ok()
        };
        if !done {
            self.fail("nothing could be sent");
        }
        self.flow(number).sent += count;
    }

    fn act(&mut self, number: u32, what: &str) {
        let Some(conn) = self.flow(number).conn else { self.fail("no connection") };
        let (stack, frames) = (&mut self.host.stack, &mut self.host.arena);
        match what {
            "pause" => stack.pause(conn),
            "resume" => stack.resume(self.now, frames, conn),
            "shutdown" => stack.shut_down(conn),
            "close" => stack.close(self.now, frames, conn),
            _ => stack.abort(self.now, frames, conn),
        }
    }

    fn check(&mut self, number: u32, what: &str, args: &[&str]) {
        self.collect();
        let conn = self.flow(number).conn;
        let wanted = args.last().copied().unwrap_or("");
        let stats = *self.host.stack.stats();
        let have = match what {
            "event" => self.event(conn, args),
            "received" => self.flow(number).received.to_string(),
            "held" => self.host.stack.waiting_frames().to_string(),
            "queued" => conn.map_or(0, |conn| self.host.stack.queued(conn)).to_string(),
            "drops" => match stats.drops().find(|(name, _)| *name == args[0]) {
                Some((_, count)) => count.to_string(),
                None => self.fail("no such reason"),
            },
            "stat" => format!("{stats:?}")
                .split([' ', ',', '{', '}'])
                .skip_while(|word| *word != format!("{}:", args[0]))
                .nth(1)
                .unwrap_or("none")
                .to_owned(),
            "counts" => {
                let (open, half, waiting) = self.host.stack.counts();
                let have = format!("{open} {half} {waiting}");
                if have == args.join(" ") { wanted.to_owned() } else { have }
            }
            "writable" => conn.is_some_and(|conn| self.host.stack.is_writable(conn)).to_string(),
            _ => self.fail("no such call"),
        };
        if have != wanted {
            self.fail(&format!("it is {have}"));
        }
    }

    /// The next event, in the notation of the scripts.
    fn event(&mut self, conn: Option<ConnId>, args: &[&str]) -> String {
        let Some(event) = self.events.pop_front() else { return "no event".to_owned() };
        let (of, name) = match event {
            Event::Accepted { conn, .. } => (conn, "accepted".to_owned()),
            Event::Connected { conn } => (conn, "connected".to_owned()),
            Event::Writable { conn } => (conn, "writable".to_owned()),
            Event::Eof { conn } => (conn, "eof".to_owned()),
            Event::Ended { conn, how } => (conn, format!("ended {}", format!("{how:?}").to_lowercase())),
            other => return format!("{other:?}"),
        };
        if Some(of) == conn && name == args.join(" ") {
            args.last().copied().unwrap_or("").to_owned()
        } else {
            format!("{name} of {of:?}, not of {conn:?}")
        }
    }

    fn finish(&mut self) {
        self.collect();
        if let Some((_, seg)) = self.out.pop_front() {
            let (_, flow) = self.flow_of(&seg);
            self.fail(&format!("sent after the end: {}", show(&flow, &seg)));
        }
        if let Some(event) = self.events.pop_front() {
            self.fail(&format!("an unexpected event: {event:?}"));
        }
        self.host.stack.end_all(self.now, &mut self.host.arena);
        while self.host.transmit(self.now).is_some() {}
        let held = (self.host.arena.held(), self.host.stack.waiting_frames());
        if held != (0, 0) {
            self.fail(&format!("frames are still held: {held:?}"));
        }
    }
}

/// Parses `@N` in front of a text.
fn flow_number(text: &str) -> (u32, &str) {
    match text.strip_prefix('@').and_then(|rest| rest.split_once(' ')) {
        Some((number, rest)) => (number.parse().expect("@FLOW"), rest.trim()),
        None => (1, text),
    }
}

/// Options of the peer's segment.
fn encode(flow: &Flow, options: &[Opt]) -> Vec<(u8, Vec<u8>)> {
    let ours = |place: u32| flow.iss.unwrap_or(0).wrapping_add(place);
    let first = flow.first_ts.unwrap_or(0);
    let mut out = Vec::new();
    for option in options {
        let mut value = Vec::new();
        let kind = match option {
            Opt::Mss(size) => {
                put_word(&mut value, *size);
                2
            }
            Opt::WindowScale(shift) => {
                value.push(*shift);
                3
            }
            Opt::SackPermitted => 4,
            Opt::Timestamps(theirs, echo) => {
                put_long(&mut value, theirs.unwrap_or(0) as u32);
                put_long(
                    &mut value,
                    match echo {
                        Echo::Of(offset) => first.wrapping_add(*offset as u32),
                        _ => flow.last_ts,
                    },
                );
                8
            }
            Opt::Sack(blocks) => {
                for (start, end) in blocks {
                    put_long(&mut value, ours(*start));
                    put_long(&mut value, ours(*end));
                }
                5
            }
        };
        out.push((kind, value));
    }
    out
}

/// The frame of a segment, changed as the script says.
fn disturb(seg: &Seg, has: impl Fn(&str) -> bool) -> Vec<u8> {
    let (from, to) = (seg.from.ip(), seg.to.ip());
    let mut tcp = seg.bytes();
    if has("badsum") {
        tcp[16] ^= 0x5a;
    }
    if has("partial") {
        let sum = !wire::checksum(&[&wire::pseudo_header(from, to, 6, tcp.len())]);
        (tcp[16], tcp[17]) = ((sum >> 8) as u8, sum as u8);
    }
    if has("exthdr") {
        // Hop-by-hop options with padding, then destination options.
        let options = [60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
        return ip_frame(from, to, 0, seg.ecn, &[&options[..], &tcp].concat());
    }
    if has("fragment") && from.is_ipv6() {
        return ip_frame(from, to, 44, seg.ecn, &[&[6, 0, 0, 1, 0, 0, 0, 9], &tcp[..]].concat());
    }
    let mut frame = ip_frame(from, to, 6, seg.ecn, &tcp);
    if has("fragment") {
        frame[20] = 0x20;
        wire_v4_header(&mut frame, 20);
    }
    if has("ipopt") {
        frame.splice(34..34, [7, 3, 4, 0]);
        frame[14] = 0x46;
        frame[17] = frame[17].wrapping_add(4);
        wire_v4_header(&mut frame, 24);
    }
    frame
}

fn wire_v4_header(frame: &mut [u8], len: usize) {
    frame[24..26].fill(0);
    let sum = wire::checksum(&[&frame[14..14 + len]]);
    (frame[24], frame[25]) = ((sum >> 8) as u8, sum as u8);
}
