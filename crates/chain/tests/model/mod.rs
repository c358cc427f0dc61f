//! A model of nodes, connections and operators around the rules of the crate.

mod copies;
mod disk;
mod judge;

use disk::Disk;
use landfall_chain::{
    Copied, Copying, Downstream, Hello, Member, Refusal, Standing, Upstream, View, Welcome,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

const NODES: usize = 3;
const STREAMS: usize = 2;
const KEYS: u8 = 4;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    None,
    /// A node of which nothing is known is not waited for.
    UnknownIsAlone,
    /// An older connection of a stream is still heard.
    OldConnections,
    /// The end of a copy is said though a stream was lost meanwhile.
    EndAnyway,
    /// What a chunk has deleted is copied.
    CopyDeleted,
    /// The first node sends what it may still lose.
    SendEarly,
    /// A restart sends nothing again.
    NoResend,
    /// A node that was removed goes on alone.
    RemovedGoesOn,
    /// A node that was removed and added again goes on with what it had begun.
    AddedGoesOn,
    /// A flush that others have built on is sent again.
    FlushAgain,
    /// A node keeps keys that the node before does not have.
    KeepAll,
    /// What has come in a chunk is deleted, as the page that is compared does not have it.
    DeleteNew,
    /// What a copy before has left is no old record.
    OldOnce,
    /// A copied record replaces what a chunk has brought.
    CopyOver,
    /// The keys behind the last one of the node before are compared with nothing.
    OpenEnd,
    /// A node that starts again goes on behind the newest record that it has, below what it has noted as complete.
    SeqsFall,
}

impl Canary {
    pub const ALL: [Self; 15] = [
        Self::UnknownIsAlone,
        Self::OldConnections,
        Self::EndAnyway,
        Self::CopyDeleted,
        Self::SendEarly,
        Self::NoResend,
        Self::RemovedGoesOn,
        Self::AddedGoesOn,
        Self::FlushAgain,
        Self::KeepAll,
        Self::DeleteNew,
        Self::OldOnce,
        Self::CopyOver,
        Self::OpenEnd,
        Self::SeqsFall,
    ];
}

/// A version of a key: its number, and whether there is a value.
type Version = (u64, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Write(u8, Version),
    Flush,
}

#[derive(Clone, Debug)]
enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refused,
    Chunk(u64, Vec<Record>),
    Acknowledged(u64),
    /// Whether the receiver keeps what it has.
    CopyBegins(u64, bool),
    /// What the sender has of some keys.
    Compare(u64, Range<u8>, Vec<(u8, Version)>),
    /// What of that the receiver has not.
    Lacking(Vec<u8>),
    Copied(u64, u8, Version),
    CopyEnds(u64, u64),
}

/// A connection. What was sent may arrive although the sender has given the connection up.
#[derive(Debug)]
struct Wire {
    to: usize,
    stream: u8,
    version: u64,
    /// The writer at the receiver that executes what arrives.
    worker: usize,
    forth: VecDeque<Message>,
    back: VecDeque<Message>,
    is_held: bool,
    /// The answer to a comparison that waits until it is durable.
    lacking: Option<Vec<u8>>,
}

/// Who waits for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Client,
    Wire(u64, u64),
    Restart,
}

#[derive(Clone, Debug)]
struct Batch {
    records: Vec<Record>,
    origin: Origin,
    is_fenced: bool,
    /// It is sent and waits, or was sent when nobody had to be waited for.
    is_sent: bool,
    is_acknowledged: bool,
}

/// The stream of a writer to the node behind.
#[derive(Clone, Debug, Default)]
struct Link {
    wire: Option<u64>,
    is_welcome: bool,
    number: u64,
    batch: Option<Batch>,
}

#[derive(Clone, Debug)]
struct Copier {
    wire: u64,
    copy: Option<Copying>,
    number: u64,
    /// The receiver keeps what it has.
    keeps: bool,
    /// Keys that were not read so far.
    next: u8,
    /// What was read, and is to be sent.
    page: VecDeque<(u8, Version)>,
    /// A message is not acknowledged.
    waits: bool,
    has_begun: bool,
    has_ended: bool,
}

/// A node that runs.
#[derive(Debug)]
struct Live {
    view: View,
    downstream: Downstream,
    upstream: Upstream,
    links: Vec<Link>,
    copier: Option<Copier>,
    /// What clients would read, and what copies find.
    index: BTreeMap<u8, (Version, u64)>,
    /// The seq of what was appended last. What was there at the start has 0.
    appended: u64,
    /// The seq when the first copy in this life began.
    first_copy: Option<u64>,
    /// What the node behind may lack.
    unsent: VecDeque<Record>,
    is_ready: bool,
    connections: u64,
}

#[derive(Debug)]
struct Node {
    disk: Disk,
    live: Option<Live>,
}

#[derive(Debug)]
pub struct World {
    draw: u64,
    canary: Canary,
    nodes: Vec<Node>,
    views: Vec<View>,
    wires: BTreeMap<u64, Wire>,
    wire: u64,
    number: u64,
    acknowledged: BTreeMap<u8, Version>,
    tried: BTreeMap<u8, Vec<Version>>,
    count: u64,
}

fn name(node: usize) -> String {
    char::from(b'a' + node as u8).to_string()
}

impl World {
    pub fn new(seed: u64, canary: Canary) -> Self {
        let member = |node: usize| Member { name: name(node), address: format!("{node}:1"), since: 1 };
        let view = View { name: "chain".into(), version: 1, members: (0..NODES).map(member).collect() };
        let mut nodes: Vec<Node> = (0..NODES).map(|_| Node { disk: Disk::default(), live: None }).collect();
        nodes[0].disk.since = 1;
        let mut world = Self {
            draw: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            canary,
            nodes,
            views: vec![view],
            wires: BTreeMap::new(),
            wire: 0,
            number: 0,
            acknowledged: BTreeMap::new(),
            tried: BTreeMap::new(),
            count: 0,
        };
        (0..NODES).for_each(|node| world.restart(node));
        world
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % bound
    }

    fn newest(&self) -> View {
        self.views.last().expect("there is a first one").clone()
    }

    /// One event, faults among them.
    pub fn step(&mut self) {
        let node = self.below(NODES);
        match self.below(1000) {
            0 | 10 | 11 => self.crash(node),
            1..=4 | 12..=17 => self.restart(node),
            5 | 6 => self.change_view(node),
            7..=9 => self.break_one(),
            _ => self.work(node),
        }
    }

    /// One event that is no fault.
    fn work(&mut self, node: usize) {
        let stream = self.below(STREAMS);
        match self.below(12) {
            0 => self.follow_view(node),
            1 | 2 => self.write(node, stream),
            3 => self.fence(node, stream),
            4 | 5 => self.deliver(),
            6 | 7 => self.copy_step(node),
            8 => self.raise_floor(node),
            _ => self.link_step(node, stream),
        }
    }

    fn crash(&mut self, node: usize) {
        let Some(live) = self.nodes[node].live.take() else { return };
        for batch in live.links.into_iter().filter_map(|link| link.batch).filter(|batch| !batch.is_fenced) {
            // What was not fenced is there or not.
            if self.below(2) == 0 {
                batch.records.iter().for_each(|record| self.nodes[node].disk.write(*record));
            }
        }
        self.wires.retain(|_, wire| wire.to != node);
    }

    fn restart(&mut self, node: usize) {
        let view = self.newest();
        let Node { disk, live } = &mut self.nodes[node];
        let place = view.find(&name(node));
        let may_start = place.is_ok_and(|(place, member)| place > 0 || member.since == disk.since);
        if live.is_some() || !may_start {
            return;
        }
        disk.starts += 1;
        disk.recover(self.canary);
        let mut upstream = Upstream::new(&name(node), disk.since);
        upstream.set_view(&view);
        let mut downstream = Downstream::new(STREAMS);
        downstream.set_view(&view, &name(node));
        let index = disk.keys.iter().map(|(key, (version, _))| (*key, (*version, 0))).collect();
        let links = vec![Link::default(); STREAMS];
        let connections = disk.starts << 32;
        let copier = None;
        let (unsent, is_ready) = (VecDeque::new(), false);
        let (appended, first_copy) = (0, None);
        *live = Some(Live {
            view,
            downstream,
            upstream,
            links,
            copier,
            index,
            appended,
            first_copy,
            unsent,
            is_ready,
            connections,
        });
    }

    /// An operator removes or adds a node. The first one is always in step.
    fn change_view(&mut self, node: usize) {
        self.change_view_once(node);
        // A node that is removed is often added again before everybody knows.
        if self.below(2) == 0 {
            self.change_view_once(node);
        }
    }

    fn change_view_once(&mut self, node: usize) {
        let view = self.newest();
        let next = match view.find(&name(node)) {
            Ok(_) => view.without(&name(node)),
            Err(_) => view.with(&name(node), &format!("{node}:1")),
        };
        let Ok(next) = next else { return };
        let first = &next.members[0];
        let is_in_step =
            |index: usize| name(index) == first.name && self.nodes[index].disk.since == first.since;
        if (0..NODES).any(is_in_step) {
            self.views.push(next);
        }
    }

    fn follow_view(&mut self, node: usize) {
        let view = self.newest();
        let Some(live) = self.nodes[node].live.as_mut().filter(|live| live.view.version < view.version)
        else {
            return;
        };
        live.upstream.set_view(&view);
        let is_out = live.view.find(&name(node)).map(|(_, member)| member.since).ok()
            != view.find(&name(node)).map(|(_, member)| member.since).ok();
        live.view = view;
        self.reconnect(node);
        let goes_on = match self.newest().find(&name(node)) {
            Err(_) => self.canary == Canary::RemovedGoesOn,
            Ok(_) => self.canary == Canary::AddedGoesOn,
        };
        if is_out && goes_on {
            // As if it had just started.
            if let Some(live) = &mut self.nodes[node].live {
                live.downstream = Downstream::new(STREAMS);
                live.downstream.set_view(&live.view, &name(node));
            }
        } else if is_out {
            self.crash(node);
        }
    }

    /// Forgets what is known of the node behind. The sender's ends of its connections are closed.
    fn reconnect(&mut self, node: usize) {
        let Some(live) = &mut self.nodes[node].live else { return };
        live.downstream.set_view(&live.view, &name(node));
        let wires: Vec<u64> = live.links.iter_mut().filter_map(|link| link.wire.take()).collect();
        live.links.iter_mut().for_each(|link| link.is_welcome = false);
        for link in &mut live.links {
            link.batch.iter_mut().for_each(|batch| batch.is_sent = false);
        }
        let copier = live.copier.take().map(|copier| copier.wire);
        for wire in wires.into_iter().chain(copier) {
            self.let_go(wire);
        }
    }

    /// The sender has given a connection up. What is under way may still arrive.
    fn let_go(&mut self, wire: u64) {
        if let Some(wire) = self.wires.get_mut(&wire) {
            wire.is_held = false;
        }
    }

    fn break_one(&mut self) {
        let held: Vec<u64> = self.wires.iter().filter(|(_, wire)| wire.is_held).map(|(id, _)| *id).collect();
        if held.is_empty() {
            return;
        }
        let broken = held[self.below(held.len())];
        self.let_go(broken);
        if self.below(2) == 0
            && let Some(wire) = self.wires.get_mut(&broken)
        {
            wire.forth.clear();
        }
    }

    /// A client writes at a node that believes to be the first one.
    fn write(&mut self, node: usize, stream: usize) {
        let key = self.below(KEYS.into()) as u8;
        let is_there = self.below(2) == 0;
        let flushes = self.below(12) == 0;
        let Some(live) = &self.nodes[node].live else { return };
        let is_first = live.view.is_first(&name(node)) && live.upstream.is_in_step() && live.is_ready;
        if !is_first {
            return;
        }
        self.number += 1;
        let version = (self.number, is_there);
        let records: Vec<Record> =
            if flushes { vec![Record::Flush] } else { vec![Record::Write(key, version)] };
        if !self.append(node, stream, records, Origin::Client) {
            return;
        }
        let keys = if flushes { 0..KEYS } else { key..key + 1 };
        let version = if flushes { (self.number, false) } else { version };
        keys.for_each(|key| self.tried.entry(key).or_default().push(version));
    }

    /// Appends a batch; false if it has to wait.
    fn append(&mut self, node: usize, stream: usize, records: Vec<Record>, origin: Origin) -> bool {
        let Some(live) = &mut self.nodes[node].live else { return false };
        let touches = |other: &Record| match other {
            Record::Flush => true,
            Record::Write(key, _) => records.iter().any(|record| {
                matches!(record, Record::Flush) || matches!(record, Record::Write(own, _) if own == key)
            }),
        };
        let pending =
            live.links.iter().filter_map(|link| link.batch.as_ref()).flat_map(|batch| &batch.records);
        if live.links[stream].batch.is_some() || pending.into_iter().any(touches) {
            return false;
        }
        for record in &records {
            live.appended += 1;
            match record {
                Record::Write(key, version) => live.index.extend([(*key, (*version, live.appended))]),
                Record::Flush => live.index.clear(),
            }
        }
        let (is_fenced, is_acknowledged) = (false, false);
        live.links[stream].batch =
            Some(Batch { records, origin, is_fenced, is_sent: false, is_acknowledged });
        true
    }

    fn fence(&mut self, node: usize, stream: usize) {
        let node = &mut self.nodes[node];
        let Some(batch) = node.live.as_mut().and_then(|live| live.links[stream].batch.as_mut()) else {
            return;
        };
        if !std::mem::replace(&mut batch.is_fenced, true) && batch.origin != Origin::Restart {
            batch.records.iter().for_each(|record| node.disk.write(*record));
        }
    }

    fn raise_floor(&mut self, node: usize) {
        let drawn = if self.below(300) == 0 { 1 << 20 } else { 0 };
        let node = &mut self.nodes[node];
        let Some(live) = node.live.as_ref().filter(|live| live.is_ready) else { return };
        node.disk.seq += drawn;
        if live.links.iter().all(|link| link.batch.is_none()) {
            node.disk.raise_floor();
        }
    }

    fn is_alone(&self, live: &Live, stream: usize) -> bool {
        let unknown = self.canary == Canary::UnknownIsAlone
            && live.downstream.standing() == Standing::Unknown
            && live.links[stream].wire.is_none();
        let removed = self.canary == Canary::RemovedGoesOn && live.downstream.node().is_none();
        unknown || removed || live.downstream.is_complete_alone(stream)
    }

    fn open(&mut self, from: usize, stream: u8) -> Option<u64> {
        let worker = self.below(STREAMS);
        let live = self.nodes[from].live.as_mut()?;
        let to = live.downstream.node()?.name.clone();
        live.connections += 1;
        let (incarnation, version) = (live.connections, live.downstream.version());
        let to_node = (0..NODES).find(|node| name(*node) == to)?;
        self.nodes[to_node].live.as_ref()?;
        let is_in_step = self.nodes[from].live.as_ref().is_some_and(|live| live.upstream.is_in_step());
        let (chain, from) = ("chain".into(), name(from));
        let hello = Hello { stream, incarnation, is_in_step, chain, from, to, password: Vec::new() };
        self.wire += 1;
        let forth = VecDeque::from([Message::Hello(hello)]);
        let wire = Wire {
            to: to_node,
            stream,
            version,
            worker,
            forth,
            back: VecDeque::new(),
            is_held: true,
            lacking: None,
        };
        self.wires.insert(self.wire, wire);
        Some(self.wire)
    }

    /// The thread of a stream does something.
    fn link_step(&mut self, node: usize, stream: usize) {
        let Some(live) = &self.nodes[node].live else { return };
        let Some(wire) = live.links[stream].wire else {
            if live.downstream.node().is_none() && live.view.find(&name(node)).is_ok() {
                self.be_ready(node, stream);
            } else {
                let wire = self.open(node, stream as u8);
                if let Some(live) = &mut self.nodes[node].live {
                    live.links[stream].wire = wire;
                }
            }
            return self.complete(node, stream);
        };
        if !self.wires.get(&wire).is_some_and(|wire| wire.is_held) {
            self.lose(node, stream);
        } else if let Some(message) = self.wires.get_mut(&wire).and_then(|wire| wire.back.pop_front()) {
            self.hear(node, stream, message);
        } else {
            self.send(node, stream, wire);
        }
        self.complete(node, stream);
    }

    fn lose(&mut self, node: usize, stream: usize) {
        let Some(live) = &mut self.nodes[node].live else { return };
        let link = &mut live.links[stream];
        let wire = link.wire.take();
        if std::mem::take(&mut link.is_welcome) {
            live.downstream.lost(stream);
        }
        link.batch.iter_mut().for_each(|batch| batch.is_sent = false);
        wire.into_iter().for_each(|wire| self.let_go(wire));
    }

    fn hear(&mut self, node: usize, stream: usize, message: Message) {
        let Some(live) = &mut self.nodes[node].live else { return };
        match message {
            Message::Welcome(welcome) => {
                let version = live.downstream.version();
                live.links[stream].is_welcome = live.downstream.connected(stream, version, welcome);
                live.links[stream].number = 0;
                let Node { disk, live } = &mut self.nodes[node];
                let Some(live) = live.as_mut().filter(|live| !live.is_ready) else { return };
                let in_step = live.downstream.standing() == Standing::InStep;
                if in_step && self.canary != Canary::NoResend {
                    live.unsent = disk.unsent().into();
                } else {
                    live.unsent.clear();
                }
                self.be_ready(node, stream);
            }
            Message::Acknowledged(number) => {
                let link = &mut live.links[stream];
                let is_newest = number == link.number;
                link.batch
                    .iter_mut()
                    .filter(|batch| batch.is_sent && is_newest)
                    .for_each(|batch| batch.is_acknowledged = true);
            }
            _ => self.lose(node, stream),
        }
    }

    /// Sends what the node behind may lack, one record after the other; then clients are answered.
    fn be_ready(&mut self, node: usize, stream: usize) {
        let Node { disk, live } = &mut self.nodes[node];
        let Some(live) = live.as_mut().filter(|live| stream == 0 && !live.is_ready) else { return };
        if live.links[0].batch.is_some() {
            return;
        }
        if let Some(record) = live.unsent.pop_front() {
            self.append(node, 0, vec![record], Origin::Restart);
            return;
        }
        live.is_ready = true;
        if self.canary != Canary::FlushAgain {
            disk.raise_floor();
        }
    }

    fn send(&mut self, node: usize, stream: usize, wire: u64) {
        let canary = self.canary;
        let Some(live) = &mut self.nodes[node].live else { return };
        let is_first = live.view.is_first(&name(node));
        let link = &mut live.links[stream];
        let Some(batch) = link.batch.as_mut().filter(|batch| !batch.is_sent && link.is_welcome) else {
            return;
        };
        let may_send = batch.is_fenced || !is_first || canary == Canary::SendEarly;
        if let Some(wire) = self.wires.get_mut(&wire).filter(|_| may_send) {
            link.number += 1;
            batch.is_sent = true;
            wire.forth.push_back(Message::Chunk(link.number, batch.records.clone()));
        }
    }

    /// Completes a batch that is durable here and behind, or that waits for nobody.
    fn complete(&mut self, node: usize, stream: usize) {
        let Some(live) = &self.nodes[node].live else { return };
        let is_alone = self.is_alone(live, stream);
        let live = self.nodes[node].live.as_mut().expect("it runs");
        let is_complete = |batch: &mut Batch| batch.is_fenced && (batch.is_acknowledged || is_alone);
        let Some(batch) = live.links[stream].batch.take_if(is_complete) else { return };
        if batch.records.contains(&Record::Flush)
            && batch.origin != Origin::Restart
            && self.canary != Canary::FlushAgain
        {
            let disk = &mut self.nodes[node].disk;
            disk.raise_floor();
        }
        match batch.origin {
            Origin::Client => self.note_acknowledged(&batch.records),
            Origin::Wire(wire, number) => {
                if let Some(wire) = self.wires.get_mut(&wire) {
                    let answer = wire.lacking.take().map_or(Message::Acknowledged(number), Message::Lacking);
                    wire.back.push_back(answer);
                }
            }
            Origin::Restart => self.be_ready(node, 0),
        }
    }

    fn note_acknowledged(&mut self, records: &[Record]) {
        for record in records {
            self.count += 1;
            match record {
                Record::Write(key, version) => self.acknowledged.extend([(*key, *version)]),
                Record::Flush => {
                    for key in 0..KEYS {
                        // The number of the flush of this key that was tried last.
                        let tried =
                            self.tried.get(&key).into_iter().flatten().rfind(|(_, is_there)| !is_there);
                        let known = self.acknowledged.get(&key).copied().unwrap_or_default();
                        let version = tried.copied().filter(|version| version.0 > known.0);
                        self.acknowledged.extend(version.map(|version| (key, version)));
                    }
                }
            }
        }
    }

    /// A message arrives somewhere.
    fn deliver(&mut self) {
        let due: Vec<u64> = self
            .wires
            .iter()
            .filter(|(_, wire)| !wire.forth.is_empty() || !wire.is_held)
            .map(|(id, _)| *id)
            .collect();
        if due.is_empty() {
            return;
        }
        let id = due[self.below(due.len())];
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let (to, stream, version, worker) = (wire.to, wire.stream, wire.version, wire.worker);
        let Some(message) = wire.forth.pop_front() else {
            self.wires.remove(&id);
            self.nodes[to].live.iter_mut().for_each(|live| live.upstream.closed(id));
            return;
        };
        match self.execute(to, id, (stream, version, worker), message.clone()) {
            Ok(true) => {}
            // It is executed again later.
            Ok(false) => {
                self.wires.get_mut(&id).into_iter().for_each(|wire| wire.forth.push_front(message.clone()))
            }
            Err(_) => {
                if let Some(wire) = self.wires.get_mut(&id) {
                    wire.forth.clear();
                    wire.back.push_back(Message::Refused);
                }
            }
        }
    }

    fn execute(
        &mut self,
        node: usize,
        wire: u64,
        (stream, version, worker): (u8, u64, usize),
        message: Message,
    ) -> Result<bool, Refusal> {
        let canary = self.canary;
        let Node { disk, live } = &mut self.nodes[node];
        let Some(live) = live else { return Ok(true) };
        let admit = |live: &mut Live, number: u64| match canary {
            Canary::OldConnections => Ok(()),
            _ => live.upstream.admit(stream, wire, version, number),
        };
        match message {
            Message::Hello(hello) => {
                if !live.is_ready {
                    return Err(Refusal::new(landfall_chain::Reason::View, "not ready"));
                }
                let welcome = live.upstream.hello(&hello, version, wire)?;
                self.answer(wire, Message::Welcome(welcome));
                Ok(true)
            }
            Message::Chunk(number, records) => {
                admit(live, number)?;
                for record in &records {
                    match record {
                        Record::Write(key, (_, false)) => live.upstream.note_deleted(u64::from(*key)),
                        Record::Flush => live.upstream.note_flushed(),
                        Record::Write(..) => {}
                    }
                }
                Ok(self.append(node, worker, records, Origin::Wire(wire, number)))
            }
            Message::CopyBegins(number, keeps) => {
                admit(live, number)?;
                let seq = live.appended + 1;
                let first = *live.first_copy.get_or_insert(seq);
                live.upstream.begin_copy(if canary == Canary::OldOnce { first } else { seq })?;
                disk.since = 0;
                if !keeps {
                    return Ok(self.append(node, worker, vec![Record::Flush], Origin::Wire(wire, number)));
                }
                self.answer(wire, Message::Acknowledged(number));
                Ok(true)
            }
            Message::Compare(number, keys, page) => {
                admit(live, number)?;
                self.compare(node, (wire, worker, number), keys, &page)
            }
            Message::Copied(number, key, copied) => {
                admit(live, number)?;
                let is_absent = live.index.get(&key).is_none_or(|((_, is_there), _)| !is_there);
                let takes = match live.upstream.copied(u64::from(key))? {
                    Copied::IfAbsent => is_absent || canary == Canary::CopyOver,
                    Copied::Older => is_absent && canary == Canary::CopyDeleted,
                };
                if takes {
                    let record = Record::Write(key, copied);
                    return Ok(self.append(node, worker, vec![record], Origin::Wire(wire, number)));
                }
                self.answer(wire, Message::Acknowledged(number));
                Ok(true)
            }
            Message::CopyEnds(number, since) => {
                admit(live, number)?;
                live.upstream.end_copy(since, || {
                    disk.since = since;
                    Ok(())
                })?;
                self.answer(wire, Message::Acknowledged(number));
                Ok(true)
            }
            Message::Welcome(_) | Message::Refused | Message::Acknowledged(_) | Message::Lacking(_) => {
                Ok(true)
            }
        }
    }

    fn answer(&mut self, wire: u64, message: Message) {
        self.wires.get_mut(&wire).into_iter().for_each(|wire| wire.back.push_back(message.clone()));
    }
}
