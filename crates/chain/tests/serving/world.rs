//! Nodes around the rules of the crate: what each knows of the registry and of its neighbours, and by which clock.

use super::registry::Registry;
use landfall_chain::{
    Change, Copying, Downstream, Heartbeat, Manager, Member, Proof, Registration, Standing, View, Welcome,
};
use std::time::Duration;

const NODES: usize = 3;
/// How long a proof lasts: T/2.
const LASTS: Duration = Duration::from_secs(1);
/// Longest time between two events, microseconds.
const PACE_MAX: usize = 10_000;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    None,
    /// A proof lasts for ever.
    ProofsLast,
    /// The manager does not wait.
    Hurries,
    /// Silence counts although the registry was not read meanwhile.
    SilenceInPieces,
    /// The manager writes without conditions.
    Insists,
    /// Whoever has answered a heartbeat leads at once.
    NoPromise,
    /// A proof counts from its answer on.
    ProofsAreYoung,
    /// A node takes from one that is behind what it sends, and stays in step.
    StaysInStep,
    /// A node that is behind makes others fall behind although nobody is before it.
    Unasked,
    /// A node falls behind although the next view may rest on its being in step.
    Obeys,
}

impl Canary {
    /// Each is caught within some hundred seeds of a chain with a manager.
    pub const SOON: [Self; 4] = [Self::ProofsLast, Self::NoPromise, Self::ProofsAreYoung, Self::StaysInStep];
    /// Each is caught within some thousand seeds of a chain with a manager.
    pub const LATE: [Self; 4] = [Self::Hurries, Self::SilenceInPieces, Self::Insists, Self::Obeys];
    /// Each is caught within some hundred seeds of a chain that people change.
    pub const BY_PEOPLE: [Self; 2] = [Self::StaysInStep, Self::Unasked];
}

/// Who changes the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changes {
    /// The manager, by the registry.
    Managed,
    /// People, who see to it that a node that they remove does not run. No node needs a proof.
    ByPeople,
}

/// Where a round of an agent is.
enum Round {
    Idle,
    Asked(Duration),
    Answered(Duration, Box<Registry>),
    Registers(Registration),
    Campaigns,
    Applies(Box<(Registry, Change)>),
}

/// Where a heartbeat is.
#[derive(Clone, Copy)]
enum Beat {
    Idle,
    Asked(Duration, u64),
    Answered(Duration, u64, Proof),
}

/// The end of a copy, under way.
#[derive(Clone, Copy)]
struct CopyEnd {
    to: (usize, u64),
    version: u64,
    since: u64,
    has: u64,
}

/// A node that has taken its place.
struct Joined {
    since: u64,
    view: View,
    downstream: Downstream,
    /// The node behind, and its process.
    peer: Option<(usize, u64)>,
    heartbeat: Heartbeat,
    leads: bool,
    beat: Beat,
    copying: Option<Copying>,
    copy_end: Option<CopyEnd>,
    /// A write is under way.
    writes: bool,
    /// The node behind knows what this one is: it welcomes the node before.
    is_ready: bool,
    /// The node before has said hello in this view.
    is_asked: bool,
}

/// A process.
struct Live {
    process: u64,
    is_stopped: bool,
    manager: Manager,
    round: Round,
    newest: Option<View>,
    /// A member behind this one holds everything, by the last reading.
    has_sound_behind: bool,
    proven: Option<Duration>,
    has_left: bool,
    joined: Option<Joined>,
}

struct Node {
    /// Its clock goes at so many thousandths of the right speed.
    rate: u64,
    offset: u64,
    is_cut_off: bool,
    since: u64,
    led: u64,
    /// The number of the last write that it has.
    has: u64,
    live: Option<Live>,
}

pub struct World {
    draw: u64,
    canary: Canary,
    changes: Changes,
    now_us: u64,
    registry: Registry,
    nodes: Vec<Node>,
    processes: u64,
    acknowledged: u64,
    reads: u64,
}

fn name(node: usize) -> String {
    char::from(b'a' + node as u8).to_string()
}

fn index(name: &str) -> usize {
    usize::from(name.as_bytes()[0] - b'a')
}

impl World {
    pub fn new(seed: u64, changes: Changes, canary: Canary) -> Self {
        let member =
            |node: usize| Member { name: name(node), address: format!("{}:1", name(node)), since: 1 };
        let view = View { name: "chain".into(), version: 1, members: (0..NODES).map(member).collect() };
        let mut world = Self {
            draw: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1,
            canary,
            changes,
            now_us: 0,
            registry: Registry::new(view),
            nodes: Vec::new(),
            processes: 0,
            acknowledged: 0,
            reads: 0,
        };
        for node in 0..NODES {
            let (rate, offset) = (960 + world.below(81) as u64, world.below(1 << 30) as u64);
            let since = u64::from(node == 0);
            world.nodes.push(Node { rate, offset, is_cut_off: false, since, led: 0, has: 0, live: None });
            world.start(node);
        }
        world
    }

    pub fn writes(&self) -> u64 {
        self.acknowledged
    }

    pub fn reads(&self) -> u64 {
        self.reads
    }

    pub fn views(&self) -> u64 {
        self.registry.view.version
    }

    fn below(&mut self, bound: usize) -> usize {
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.draw >> 33) as usize % bound
    }

    /// The clock of a node. It goes on while the node is stopped.
    fn clock(&self, node: usize) -> Duration {
        let Node { rate, offset, .. } = self.nodes[node];
        Duration::from_micros(offset + self.now_us * rate / 1000)
    }

    fn start(&mut self, node: usize) {
        self.processes += 1;
        let silence = match self.canary {
            Canary::Hurries => Duration::ZERO,
            _ => LASTS + LASTS / 10,
        };
        self.nodes[node].live = Some(Live {
            process: self.processes,
            is_stopped: false,
            manager: Manager::new(silence),
            round: Round::Idle,
            newest: None,
            has_sound_behind: false,
            proven: None,
            has_left: false,
            joined: None,
        });
    }

    /// One event. Fails at a stale read, or if what was acknowledged is lost.
    pub fn step(&mut self) -> Result<(), String> {
        self.now_us += self.below(PACE_MAX) as u64;
        let node = self.below(NODES);
        match self.below(3000) {
            0 => self.nodes[node].live = None,
            1 | 2 => self.set_stopped(node, true),
            3..=12 => self.set_stopped(node, false),
            13 | 14 => self.nodes[node].is_cut_off = true,
            15..=20 => self.nodes[node].is_cut_off = false,
            21 | 22 => self.registry_ends(node),
            23..=25 if self.changes == Changes::ByPeople => self.people_change(node),
            23 => self.ask_to_leave(node),
            24 | 25 => {
                self.registry.leaving.remove(&name(node));
            }
            26 => self.lose_disk(node),
            27..=40 if self.nodes[node].live.is_none() => self.start(node),
            _ => self.work(node)?,
        }
        self.check_last_node()
    }

    /// The last node that has everything stays in the view.
    fn check_last_node(&self) -> Result<(), String> {
        let has_all = |member: &Member| {
            let Node { since, has, .. } = self.nodes[index(&member.name)];
            since == member.since && has == self.acknowledged
        };
        let view = &self.registry.view;
        if view.members.iter().any(has_all) { Ok(()) } else { Err(format!("nobody has all in {view:?}")) }
    }

    fn set_stopped(&mut self, node: usize, is_stopped: bool) {
        if let Some(live) = &mut self.nodes[node].live {
            live.is_stopped = is_stopped;
        }
    }

    /// The lease of a node's registration ends, for whatever reason. So does that of its place as the manager.
    fn registry_ends(&mut self, node: usize) {
        let Some(alive) = self.registry.alive.remove(&name(node)) else { return };
        if self.registry.manager.is_some_and(|(process, _)| process == alive.process) {
            self.registry.manager = None;
        }
    }

    /// People ask only for what leaves somebody else in step.
    fn ask_to_leave(&mut self, node: usize) {
        if self.others_are_sound(node) {
            self.registry.leaving.insert(name(node));
        }
    }

    /// People remove a node that does not run, or add one that does.
    fn people_change(&mut self, node: usize) {
        let (me, runs) = (name(node), self.nodes[node].live.is_some());
        let view = &self.registry.view;
        let next = match view.find(&me) {
            Ok(_) if !runs && self.others_are_sound(node) => view.without(&me),
            Err(_) if runs => view.with(&me, &format!("{me}:1")),
            _ => return,
        };
        self.registry.view = next.expect("a view");
        self.forget_who_was_there();
    }

    fn others_are_sound(&self, node: usize) -> bool {
        let Registry { view, alive, leaving, .. } = &self.registry;
        view.members.iter().any(|member| {
            let says = alive.get(&member.name).map(|alive| alive.says);
            let is_sound = says == Some(Registration { in_step: member.since, leaves: false });
            let has_it = self.nodes[index(&member.name)].since == member.since;
            index(&member.name) != node && is_sound && has_it && !leaving.contains(&member.name)
        })
    }

    /// A node and its disk are lost, while another one is in step. Both at once are more than a chain survives.
    fn lose_disk(&mut self, node: usize) {
        if !self.others_are_sound(node) {
            return;
        }
        self.registry_ends(node);
        let lost = &mut self.nodes[node];
        (lost.live, lost.since, lost.has, lost.led) = (None, 0, 0, 0);
        self.forget_who_was_there();
    }

    /// What nodes have heard is a second old at most. A second fault meanwhile is one more than a chain survives.
    fn forget_who_was_there(&mut self) {
        (0..NODES).for_each(|node| {
            if let Some(joined) = self.joined(node) {
                joined.is_asked = false;
            }
        });
    }

    /// One event of a node that runs.
    fn work(&mut self, node: usize) -> Result<(), String> {
        if self.nodes[node].live.as_ref().is_none_or(|live| live.is_stopped) {
            return Ok(());
        }
        match self.below(14) {
            0..=3 => self.agent(node),
            4 => self.join(node),
            5 => self.follow_view(node),
            6..=8 => self.beat(node),
            9 => self.connect(node),
            10 => self.copy(node),
            11 => self.lead(node),
            12 => self.write(node),
            _ => self.read(node)?,
        }
        Ok(())
    }

    fn agent(&mut self, node: usize) {
        let (clock, is_cut_off) = (self.clock(node), self.nodes[node].is_cut_off);
        let Some(live) = &mut self.nodes[node].live else { return };
        let process = live.process;
        let next = match std::mem::replace(&mut live.round, Round::Idle) {
            Round::Idle => Round::Asked(clock),
            _ if is_cut_off => Round::Idle,
            Round::Asked(begun) => Round::Answered(begun, Box::new(self.registry.clone())),
            Round::Answered(begun, seen) => self.understand(node, begun, *seen),
            Round::Registers(says) => {
                self.registry.register(&name(node), process, says);
                Round::Idle
            }
            Round::Campaigns => {
                self.registry.campaign(process);
                Round::Idle
            }
            Round::Applies(what) => {
                self.registry.apply(&what.0, &what.1, self.canary == Canary::Insists);
                Round::Idle
            }
        };
        if let Some(live) = &mut self.nodes[node].live {
            live.round = next;
        }
    }

    /// What follows from a reading.
    fn understand(&mut self, node: usize, begun: Duration, seen: Registry) -> Round {
        let (clock, me, canary, in_step) =
            (self.clock(node), name(node), self.canary, self.nodes[node].since);
        let Some(live) = &mut self.nodes[node].live else { return Round::Idle };
        let candidates = seen.candidates();
        if canary == Canary::SilenceInPieces {
            // As if there had been readings all the time.
            (1..8)
                .rev()
                .for_each(|part| live.manager.observe(clock.saturating_sub(LASTS / 5 * part), &candidates));
        }
        live.manager.observe(clock, &candidates);
        live.newest = Some(seen.view.clone());
        let place = seen.view.find(&me).map_or(NODES, |(place, _)| place);
        live.has_sound_behind = seen.view.members.iter().skip(place + 1).any(|member| {
            let says = seen.alive.get(&member.name).map(|alive| alive.says);
            says == Some(Registration { in_step: member.since, leaves: false })
        });
        let since = seen.view.find(&me).map_or(0, |(_, member)| member.since);
        let is_out = live.joined.as_ref().is_some_and(|joined| joined.since != since);
        if is_out {
            live.has_left = true;
            return Round::Idle;
        }
        let known = seen.alive.get(&me).filter(|alive| alive.process == live.process);
        let leaves = seen.leaving.contains(&me);
        if leaves {
            live.has_left = true;
        } else if known.is_some_and(|alive| !alive.says.leaves) {
            live.has_left = false;
            if known.is_some_and(|alive| since != 0 && alive.says.in_step == since) {
                live.proven = Some(if canary == Canary::ProofsAreYoung { clock } else { begun });
            }
        }
        let says = Registration { in_step, leaves };
        match seen.manager {
            _ if known.is_none_or(|alive| alive.says != says) => Round::Registers(says),
            None if self.changes == Changes::Managed => Round::Campaigns,
            None => Round::Idle,
            Some((process, _)) if process == live.process => {
                let change = live.manager.next(&seen.view, &candidates);
                change.map_or(Round::Idle, |change| Round::Applies(Box::new((seen, change))))
            }
            Some(_) => Round::Idle,
        }
    }

    /// Takes the place that the view gives.
    fn join(&mut self, node: usize) {
        let clock = self.clock(node);
        let Node { since: in_step, led, live: Some(live), .. } = &mut self.nodes[node] else { return };
        let Some(view) = live.newest.clone().filter(|_| live.joined.is_none()) else { return };
        let Ok((place, member)) = view.find(&name(node)) else { return };
        if *in_step != member.since && (place == 0 || live.has_sound_behind) {
            return;
        }
        let mut heartbeat = Heartbeat::new(LASTS, clock);
        let was_first = place == 0 && (view.version == 1 || *led == view.version);
        if was_first {
            heartbeat.forget_promises();
        }
        heartbeat.set_view(view.version);
        let mut downstream = Downstream::new(1);
        downstream.set_view(&view, &name(node));
        let (since, beat) = (member.since, Beat::Idle);
        let (peer, leads, copying, copy_end) = (None, false, None, None);
        let (writes, is_ready, is_asked) = (false, false, false);
        let joined = Joined {
            since,
            view,
            downstream,
            peer,
            heartbeat,
            leads,
            beat,
            copying,
            copy_end,
            writes,
            is_ready,
            is_asked,
        };
        live.joined = Some(joined);
    }

    fn follow_view(&mut self, node: usize) {
        let Some(live) = &mut self.nodes[node].live else { return };
        let (Some(joined), Some(newest)) = (&mut live.joined, &live.newest) else { return };
        if newest.version <= joined.view.version {
            return;
        }
        joined.downstream.set_view(newest, &name(node));
        joined.heartbeat.set_view(newest.version);
        (joined.peer, joined.copying, joined.copy_end, joined.leads) = (None, None, None, false);
        (joined.is_asked, joined.view) = (false, newest.clone());
        if joined.downstream.is_out() {
            self.start(node);
        }
    }

    /// The node behind, if it runs and has the same view.
    fn behind(&self, node: usize) -> Option<(usize, u64)> {
        let joined = self.nodes[node].live.as_ref()?.joined.as_ref()?;
        let at = index(&joined.downstream.node()?.name);
        let live = self.nodes[at].live.as_ref().filter(|live| !live.is_stopped)?;
        let is_same = live.joined.as_ref()?.view.version == joined.view.version;
        is_same.then_some((at, live.process))
    }

    fn joined(&mut self, node: usize) -> Option<&mut Joined> {
        self.nodes[node].live.as_mut()?.joined.as_mut()
    }

    fn beat(&mut self, node: usize) {
        let (clock, peer) = (self.clock(node), self.behind(node));
        let Some(joined) = self.joined(node) else { return };
        let version = joined.view.version;
        let next = match joined.beat {
            Beat::Idle => {
                let behind = joined.downstream.node();
                if behind.is_none() || joined.downstream.standing() == Standing::Behind {
                    joined.heartbeat.prove(version, clock, Proof { age: Some(Duration::ZERO) });
                    Beat::Idle
                } else {
                    Beat::Asked(clock, version)
                }
            }
            Beat::Asked(begun, asked) if asked == version => {
                let answer = peer.and_then(|(at, _)| {
                    let clock = self.clock(at);
                    Some(self.joined(at)?.heartbeat.answer(clock))
                });
                answer.map_or(Beat::Idle, |answer| Beat::Answered(begun, version, answer))
            }
            Beat::Asked(..) => Beat::Idle,
            Beat::Answered(begun, asked, answer) => {
                joined.heartbeat.prove(asked, begun, answer);
                Beat::Idle
            }
        };
        if let Some(joined) = self.joined(node) {
            joined.beat = next;
        }
    }

    /// Connects to the node behind, or notices that it is another process.
    fn connect(&mut self, node: usize) {
        let (breaks, canary, in_step) = (self.below(20) == 0, self.canary, self.nodes[node].since);
        let found = self.behind(node);
        let Some(joined) = self.joined(node) else { return };
        let is_behind = in_step != joined.since;
        if joined.downstream.node().is_none() {
            joined.is_ready = true;
        }
        let Some(found) = found else { return };
        if joined.peer.is_some_and(|peer| peer != found || breaks) {
            joined.downstream.lost(0);
            (joined.peer, joined.copying) = (None, None);
            return;
        }
        if joined.peer.is_some() || (is_behind && !joined.is_asked && canary != Canary::Unasked) {
            return;
        }
        let Some(peer) = self.joined(found.0) else { return };
        peer.is_asked = true;
        if !peer.is_ready {
            return;
        }
        let (of_peer, since) = (self.joined(found.0).map_or(0, |peer| peer.since), self.nodes[found.0].since);
        if is_behind && since == of_peer && canary != Canary::StaysInStep {
            if self.changes == Changes::ByPeople || canary == Canary::Obeys {
                self.fall_behind(found.0);
            }
            return;
        }
        let Some(joined) = self.joined(node) else { return };
        if joined.downstream.connected(0, joined.view.version, Welcome { since, files: 0 }) {
            // The receiver of a hello obeys no older copy any more.
            (joined.peer, joined.copy_end, joined.is_ready) = (Some(found), None, true);
        }
    }

    /// A node learns that the one before it is behind, and tells the one behind it before it welcomes anybody.
    fn fall_behind(&mut self, node: usize) {
        self.nodes[node].since = 0;
        let Some(joined) = self.joined(node) else { return };
        let view = joined.view.clone();
        joined.downstream.set_view(&view, &name(node));
        (joined.peer, joined.copying, joined.copy_end, joined.is_ready) = (None, None, None, false);
    }

    /// A step of a copy to the node behind.
    fn copy(&mut self, node: usize) {
        let (found, has, in_step) = (self.behind(node), self.nodes[node].has, self.nodes[node].since);
        let Some(joined) = self.joined(node) else { return };
        if let Some(end) = joined.copy_end.take() {
            return self.end_copy(end);
        }
        let Some(peer) = joined.peer.filter(|peer| found == Some(*peer) && in_step == joined.since) else {
            return;
        };
        match joined.copying.take() {
            None => {
                joined.copying = joined.downstream.begin_copy();
                if joined.copying.is_some() {
                    self.nodes[peer.0].since = 0;
                }
            }
            Some(copy) => {
                let since = joined.downstream.node().map_or(0, |member| member.since);
                if joined.downstream.end_copy(copy) {
                    joined.copy_end = Some(CopyEnd { to: peer, version: joined.view.version, since, has });
                }
            }
        }
    }

    fn end_copy(&mut self, end: CopyEnd) {
        let (at, process) = end.to;
        let clock = self.clock(at);
        let Node { since, has, live: Some(live), .. } = &mut self.nodes[at] else { return };
        let Some(joined) = live.joined.as_mut().filter(|joined| joined.view.version == end.version) else {
            return;
        };
        if live.process != process || live.is_stopped || joined.since != end.since {
            return;
        }
        joined.heartbeat.promise(clock);
        (*since, *has) = (end.since, end.has.max(*has));
    }

    fn lead(&mut self, node: usize) {
        let (clock, canary, notes) = (self.clock(node), self.canary, self.below(2) == 0);
        let Node { since, led, live: Some(live), .. } = &mut self.nodes[node] else { return };
        let Some(joined) = &mut live.joined else { return };
        let is_first = joined.view.is_first(&name(node)) && *since == joined.since;
        let may_lead = joined.heartbeat.may_lead(clock) || canary == Canary::NoPromise;
        joined.leads |= is_first && may_lead;
        if joined.leads && notes {
            *led = joined.view.version;
        }
    }

    /// True if the node answers clients now: as the first one, or as a replica.
    fn answers(&self, node: usize, as_first: bool) -> bool {
        let clock = self.clock(node);
        let Node { since, live: Some(live), .. } = &self.nodes[node] else { return false };
        let Some(joined) = &live.joined else { return false };
        let is_young = |proven: Option<Duration>| {
            proven.is_some_and(|proven| {
                clock.saturating_sub(proven) < LASTS || self.canary == Canary::ProofsLast
            })
        };
        let by_chain = joined.leads && is_young(joined.heartbeat.proven());
        let is_replica = !joined.view.is_first(&name(node));
        let has_place = joined.is_ready && (joined.leads || (is_replica && !as_first));
        let is_proven = self.changes == Changes::ByPeople || is_young(live.proven) || by_chain;
        *since == joined.since && has_place && !live.has_left && is_proven
    }

    /// A write begins, or is complete if every node that must have it is reached.
    fn write(&mut self, node: usize) {
        let may_begin = self.answers(node, true);
        let Some(joined) = self.joined(node) else { return };
        if !joined.writes {
            joined.writes = may_begin;
            return;
        }
        let Some(path) = self.path(node).filter(|_| self.nodes[node].live.is_some()) else { return };
        if !self.joined(node).is_some_and(|joined| joined.leads) {
            return;
        }
        self.acknowledged += 1;
        path.into_iter().for_each(|at| self.nodes[at].has = self.acknowledged);
        if let Some(joined) = self.joined(node) {
            joined.writes = false;
        }
    }

    /// The nodes that have a write; `None` if it has to wait for one.
    fn path(&self, first: usize) -> Option<Vec<usize>> {
        let (mut path, mut node) = (vec![first], first);
        loop {
            let joined = self.nodes[node].live.as_ref()?.joined.as_ref()?;
            if joined.downstream.is_complete_alone(0) {
                return Some(path);
            }
            let next = joined.peer.filter(|peer| self.behind(node) == Some(*peer))?;
            path.push(next.0);
            node = next.0;
        }
    }

    fn read(&mut self, node: usize) -> Result<(), String> {
        if !self.answers(node, false) {
            return Ok(());
        }
        self.reads += 1;
        let (has, least) = (self.nodes[node].has, self.acknowledged);
        if has >= least { Ok(()) } else { Err(format!("{} has answered {has} after {least}", name(node))) }
    }
}
