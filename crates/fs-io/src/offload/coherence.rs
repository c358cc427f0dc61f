//! Holders and their leases with everything that comes late, is lost, or is overtaken: nobody is answered with what is not so any
//! more (`docs/format/fs-network.md`, "Leases").

use super::cache::{Begun, Cache, Heard};
use crate::leases::{Change, State};
use crate::lives::{Lives, MountNumber};
use landfall_fs::InodeNumber;
use landfall_fuse::{Attr, Entry, Node, Op, REPLY_HEADER_BYTES, Reply, Request, SetAttr, Unique};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MOUNTS: usize = 3;
const THREADS: usize = 2;
const DIRECTORIES: [u64; 2] = [1, 2];
const FILES: [u64; 3] = [11, 12, 13];
/// What may be on its way to a holder.
const WORDS_MAX: usize = 3;
const NAMES: [&str; 2] = ["a", "b"];

/// A call of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    LookUp(u64, usize),
    GetAttr(u64),
    Change(u64),
    Link(u64, u64, usize),
    Unlink(u64, usize),
    Rename((u64, usize), (u64, usize)),
}

impl Call {
    fn request(self) -> Request<'static> {
        let name = |at: usize| OsStr::new(NAMES[at]);
        let (node, op) = match self {
            Self::LookUp(directory, at) => (directory, Op::Lookup { name: name(at) }),
            Self::GetAttr(node) => (node, Op::GetAttr { fh: None }),
            Self::Change(node) => (node, Op::SetAttr(SetAttr::default())),
            Self::Link(node, directory, at) => (directory, Op::Link { target: Node(node), name: name(at) }),
            Self::Unlink(directory, at) => (directory, Op::Unlink { name: name(at) }),
            Self::Rename((directory, at), (new_parent, to)) => {
                let (new_parent, new_name) = (Node(new_parent), name(to));
                (directory, Op::Rename { name: name(at), new_parent, new_name, flags: 0 })
            }
        };
        let (unique, node) = (Unique(2), Node(node));
        Request { unique, opcode: 0, node, uid: 0, gid: 0, pid: 0, supplementary_group: None, op }
    }
}

/// What the server has: each change makes a node another one.
#[derive(Clone, Debug, Default)]
struct Tree {
    versions: BTreeMap<u64, u64>,
    names: BTreeMap<(u64, usize), u64>,
}

impl Tree {
    fn at(&self, directory: u64, at: usize) -> Option<u64> {
        self.names.get(&(directory, at)).copied()
    }

    fn attr(&self, node: u64) -> Attr {
        Attr { ino: node, size: self.versions.get(&node).copied().unwrap_or(0), ..Attr::default() }
    }

    fn entry(&self, node: u64) -> Reply {
        let entry = Entry { node: Node(node), attr: self.attr(node), ..Entry::default() };
        Reply::entry(Unique(2), &entry)
    }

    fn touch(&mut self, nodes: &[u64]) {
        nodes.iter().for_each(|node| *self.versions.entry(*node).or_default() += 1);
    }

    /// The inodes that a call names, and those to which its names lead, if it changes any.
    fn changed_by(&self, call: Call) -> Option<(Vec<u64>, Vec<u64>)> {
        Some(match call {
            Call::LookUp(..) | Call::GetAttr(_) => return None,
            Call::Change(node) => (vec![node], Vec::new()),
            Call::Link(node, directory, _) => (vec![directory, node], Vec::new()),
            Call::Unlink(directory, at) => (vec![directory], self.at(directory, at).into_iter().collect()),
            Call::Rename(from, to) => {
                let found = [self.at(from.0, from.1), self.at(to.0, to.1)];
                (vec![from.0, to.0], found.into_iter().flatten().collect())
            }
        })
    }

    /// The reply to a call, which is executed.
    fn execute(&mut self, call: Call) -> Reply {
        let missing = Reply::error(Unique(2), landfall_fuse::Errno::NOENT);
        match call {
            Call::LookUp(directory, at) => match self.at(directory, at) {
                Some(node) => self.entry(node),
                None => Reply::no_entry(Unique(2), Duration::ZERO),
            },
            Call::GetAttr(node) => Reply::attr(Unique(2), &self.attr(node), Duration::ZERO),
            Call::Change(node) => {
                self.touch(&[node]);
                Reply::ok(Unique(2))
            }
            Call::Link(node, directory, at) => {
                if self.names.contains_key(&(directory, at)) {
                    return missing;
                }
                self.names.insert((directory, at), node);
                self.touch(&[node, directory]);
                self.entry(node)
            }
            Call::Unlink(directory, at) => {
                let Some(node) = self.names.remove(&(directory, at)) else { return missing };
                self.touch(&[node, directory]);
                Reply::ok(Unique(2))
            }
            Call::Rename(from, to) => {
                let Some(node) = self.names.remove(&from) else { return missing };
                let replaced = self.names.insert(to, node);
                self.touch(&[node, from.0, to.0]);
                self.touch(replaced.as_slice());
                Reply::ok(Unique(2))
            }
        }
    }

    /// What a program is told now.
    fn expected(&self, call: Call) -> Vec<u8> {
        self.clone().execute(call).as_bytes().to_vec()
    }
}

/// A request on its way.
enum Stage {
    ToServer,
    /// It waits until leases are recalled.
    Waits {
        change: Change,
        found: Vec<u64>,
    },
    ToHolder {
        reply: Vec<u8>,
        is_marked: bool,
    },
}

enum Word {
    Ask { number: u64, heard: u64 },
    Recall { number: u64, nodes: Vec<u64> },
}

enum Answer {
    Alive(u64),
    Recalled(u64),
}

struct Mount {
    cache: Cache,
    number: MountNumber,
    requests: [Option<(Call, Stage)>; THREADS],
    to_holder: Arc<Mutex<VecDeque<Word>>>,
    to_server: VecDeque<Answer>,
    /// For the server its connection has ended.
    is_cut: bool,
    /// Lookups that its kernel knows of.
    lookups: BTreeMap<u64, u64>,
}

/// A library's lease to write, of a file.
struct Written {
    change: Change,
    /// Nobody keeps anything of the file any more: the library has the lease.
    is_granted: bool,
}

struct World {
    tree: Tree,
    leases: State,
    lives: Lives,
    mounts: Vec<Mount>,
    /// Files of which a library has the lease to write, or asks for it.
    written: BTreeMap<u64, Written>,
    now: Instant,
    /// The same for holders.
    clock: Duration,
    questions: u64,
    next: u32,
    hits: u64,
}

fn inodes(nodes: &[u64]) -> Vec<InodeNumber> {
    nodes.iter().copied().map(InodeNumber).collect()
}

/// Says something to a holder. False if that would have to wait, as it has not heard what was said before.
fn say(words: &Mutex<VecDeque<Word>>, word: Word) -> bool {
    let mut words = words.lock();
    let has_room = words.len() < WORDS_MAX;
    if has_room {
        words.push_back(word);
    }
    has_room
}

/// The node in a reply with an entry.
fn found(reply: &[u8]) -> Option<u64> {
    let node = u64::from_le_bytes(*reply.get(REPLY_HEADER_BYTES..)?.first_chunk()?);
    (node != 0).then_some(node)
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            tree: Tree::default(),
            leases: State::default(),
            lives: Lives::default(),
            mounts: Vec::new(),
            written: BTreeMap::new(),
            now: Instant::now(),
            clock: Duration::from_secs(9),
            questions: 0,
            next: 0,
            hits: 0,
        };
        for _ in 0..MOUNTS {
            world.mounts.push(Mount {
                cache: Cache::new(1 << 20, THREADS, 0),
                number: MountNumber(0),
                requests: [None, None],
                to_holder: Arc::default(),
                to_server: VecDeque::new(),
                is_cut: false,
                lookups: BTreeMap::new(),
            });
        }
        for at in 0..MOUNTS {
            world.connect(at);
            world.settle(at);
        }
        world
    }

    /// A mount's holder connects, anew perhaps.
    fn connect(&mut self, at: usize) {
        self.next += 1;
        let mount = &mut self.mounts[at];
        mount.cache.end_server();
        for (thread, request) in mount.requests.iter_mut().enumerate() {
            if let Some((call, stage)) = request.take() {
                // Its fate is unknown.
                mount.cache.end(thread, &call.request(), None);
                if let Stage::Waits { change, .. } = stage {
                    self.leases.end(&change, false);
                }
            }
        }
        drop(self.lives.end_mount(mount.number));
        self.leases.leave(mount.number, self.now);
        (mount.number, mount.is_cut) = (MountNumber(self.next), false);
        mount.to_holder = Arc::default();
        mount.to_server.clear();
        mount.cache.begin_server(mount.number.0.into());
        let words = Arc::clone(&mount.to_holder);
        let recall = move |number, inodes: &[InodeNumber]| {
            let nodes = inodes.iter().map(|inode| inode.0).collect();
            say(&words, Word::Recall { number, nodes })
        };
        let id = [u8::try_from(at).unwrap(); 16];
        self.leases.join(mount.number, id, Box::new(recall), self.now);
    }

    /// A program calls. Without the server it is told what is so now.
    fn call(&mut self, at: usize, thread: usize, call: Call) {
        let mount = &mut self.mounts[at];
        if mount.requests[thread].is_some() {
            return;
        }
        match mount.cache.begin(thread, &call.request(), self.clock) {
            Begun::Answer(answer) => {
                let told = answer.bytes();
                assert_eq!(told, self.tree.expected(call), "{call:?} at {at}");
                if let (Call::LookUp(..), Some(node)) = (call, found(&told)) {
                    *mount.lookups.entry(node).or_default() += 1;
                }
                self.hits += 1;
            }
            Begun::Ask { .. } => mount.requests[thread] = Some((call, Stage::ToServer)),
        }
    }

    /// A library asks for the lease to write a file, goes on to ask, or writes.
    fn write(&mut self, node: u64) {
        let written = self.written.entry(node).or_insert_with(|| Written {
            change: self.leases.begin(MountNumber::NONE, &[InodeNumber(node)], &[]),
            is_granted: false,
        });
        if written.is_granted {
            self.tree.touch(&[node]);
        }
        written.is_granted = self.leases.go_on(&mut written.change, self.now).is_none();
    }

    /// A library has its lease no more.
    fn take_back(&mut self, node: u64) {
        if let Some(written) = self.written.remove(&node) {
            self.leases.end(&written.change, false);
        }
    }

    /// The server needs files, as what `Link::enter` returns is needed for.
    fn enter(&mut self, call: Call) {
        let found = |(directory, at)| self.tree.at(directory, at);
        let nodes = match call {
            Call::GetAttr(node) | Call::Change(node) | Call::Link(node, ..) => vec![node],
            Call::LookUp(directory, at) | Call::Unlink(directory, at) => {
                found((directory, at)).into_iter().collect()
            }
            Call::Rename(from, to) => [found(from), found(to)].into_iter().flatten().collect(),
        };
        nodes.into_iter().for_each(|node| self.take_back(node));
    }

    /// The server begins or goes on to answer a request.
    fn serve(&mut self, at: usize, thread: usize) {
        let mount = &mut self.mounts[at];
        if mount.is_cut {
            return;
        }
        let Some((call, stage)) = mount.requests[thread].take() else { return };
        let stage = match stage {
            Stage::ToServer => match self.tree.changed_by(call) {
                None => self.look(at, call),
                Some((named, found)) => {
                    let change = self.leases.begin(mount.number, &inodes(&named), &inodes(&found));
                    Stage::Waits { change, found }
                }
            },
            Stage::Waits { mut change, found } => match self.leases.go_on(&mut change, self.now) {
                Some(_) => Stage::Waits { change, found },
                None => self.execute(at, call, (change, found)),
            },
            arrived => arrived,
        };
        self.mounts[at].requests[thread] = Some((call, stage));
    }

    /// As the service answers what changes nothing.
    fn look(&mut self, at: usize, call: Call) -> Stage {
        // What is found may be kept only if the lease was noted before a library's was taken back, as it is.
        let number = self.mounts[at].number;
        let mut give = |node| self.leases.give(number, InodeNumber(node), self.now);
        let is_marked = match call {
            Call::LookUp(directory, name) => {
                let may_keep = give(directory);
                match self.tree.at(directory, name) {
                    Some(node) => {
                        self.lives.look_up(number, InodeNumber(node));
                        may_keep && give(node)
                    }
                    None => may_keep,
                }
            }
            Call::GetAttr(node) => give(node),
            _ => false,
        };
        self.enter(call);
        Stage::ToHolder { reply: self.tree.expected(call), is_marked }
    }

    /// As `turns` and the service: names may lead elsewhere by now.
    fn execute(&mut self, at: usize, call: Call, (change, found): (Change, Vec<u64>)) -> Stage {
        let number = self.mounts[at].number;
        let (named, now) = self.tree.changed_by(call).expect("it changes something");
        if now != found {
            let next = self.leases.begin(number, &inodes(&named), &inodes(&now));
            self.leases.end(&change, false);
            return Stage::Waits { change: next, found: now };
        }
        self.enter(call);
        let reply = self.tree.execute(call).as_bytes().to_vec();
        if let (Call::Link(..), Some(node)) = (call, super::coherence::found(&reply)) {
            self.lives.look_up(number, InodeNumber(node));
        }
        self.leases.end(&change, true);
        Stage::ToHolder { reply, is_marked: change.had_unnamed }
    }

    /// A reply arrives.
    fn arrive(&mut self, at: usize, thread: usize) {
        let mount = &mut self.mounts[at];
        let Some((call, Stage::ToHolder { reply, is_marked })) =
            mount.requests[thread].take_if(|(_, stage)| matches!(stage, Stage::ToHolder { .. }))
        else {
            return;
        };
        let heard = Heard { reply: &reply, is_marked, server: mount.number.0.into() };
        mount.cache.end(thread, &call.request(), Some(heard));
        if let (Call::LookUp(..) | Call::Link(..), Some(node)) = (call, found(&reply)) {
            *mount.lookups.entry(node).or_default() += 1;
        }
    }

    /// What was said on the control connection arrives, in order.
    fn hear(&mut self, at: usize) {
        let mount = &mut self.mounts[at];
        let word = mount.to_holder.lock().pop_front();
        match word {
            Some(Word::Ask { number, heard }) => {
                mount.cache.asked(number, heard, self.clock);
                mount.to_server.push_back(Answer::Alive(number));
            }
            Some(Word::Recall { number, nodes }) => {
                mount.cache.recall(&nodes);
                mount.to_server.push_back(Answer::Recalled(number));
            }
            None => {}
        }
    }

    fn answer(&mut self, at: usize) {
        let mount = &mut self.mounts[at];
        match mount.to_server.pop_front().filter(|_| !mount.is_cut) {
            Some(Answer::Alive(number)) => self.leases.note_answer(mount.number, number, self.now),
            Some(Answer::Recalled(number)) => self.leases.note_dropped(mount.number, number),
            None => {}
        }
    }

    fn ask(&mut self) {
        self.questions += 1;
        for mount in self.mounts.iter().filter(|mount| !mount.is_cut) {
            let heard = self.leases.heard(mount.number);
            say(&mount.to_holder, Word::Ask { number: self.questions, heard });
        }
    }

    /// A kernel forgets an inode, if nothing is under way there.
    fn forget(&mut self, at: usize, node: u64) {
        let mount = &mut self.mounts[at];
        if mount.is_cut || mount.requests.iter().any(Option::is_some) {
            return;
        }
        let Some(lookups) = mount.lookups.remove(&node) else { return };
        let Some(counted) = mount.cache.forget(mount.number.0.into(), node, lookups) else { return };
        let _ = self.lives.forget(mount.number, InodeNumber(node), counted, |_| false);
        if !self.lives.knows(mount.number, InodeNumber(node)) {
            self.leases.forget(mount.number, InodeNumber(node));
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call(at, thread, call) => self.call(at, thread, call),
            Step::Serve(at, thread) => self.serve(at, thread),
            Step::Arrive(at, thread) => self.arrive(at, thread),
            Step::Finish(at, thread) => {
                (0..3).for_each(|_| self.serve(at, thread));
                self.arrive(at, thread);
            }
            Step::Hear(at) => self.hear(at),
            Step::Answer(at) => self.answer(at),
            Step::Ask => self.ask(),
            Step::Wait(ms) => {
                self.now += Duration::from_millis(ms);
                self.clock += Duration::from_millis(ms);
            }
            Step::Cut(at) => {
                let mount = &mut self.mounts[at];
                mount.is_cut = true;
                self.leases.leave(mount.number, self.now);
            }
            Step::Connect(at) => self.connect(at),
            Step::Lose(at) => self.mounts[at].cache.end_server(),
            Step::Write(node) => self.write(node),
            Step::TakeBack(node) => self.take_back(node),
            Step::Forget(at, node) => self.forget(at, node),
            Step::Settle => (0..MOUNTS).for_each(|at| self.settle(at)),
        }
    }

    /// A mount's holder gets leases: its last answer was heard, and it knows.
    fn settle(&mut self, at: usize) {
        if self.mounts[at].is_cut {
            return;
        }
        for _ in 0..2 {
            self.ask();
            while !self.mounts[at].to_holder.lock().is_empty() {
                self.hear(at);
            }
            while !self.mounts[at].to_server.is_empty() {
                self.answer(at);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Call(usize, usize, Call),
    Serve(usize, usize),
    Arrive(usize, usize),
    /// The server answers, if nothing is in the way, and that arrives.
    Finish(usize, usize),
    Hear(usize),
    Answer(usize),
    Ask,
    Wait(u64),
    Cut(usize),
    Connect(usize),
    /// A thread finds that an earlier connection has ended.
    Lose(usize),
    /// A library asks for the lease of a file, goes on to ask, or writes.
    Write(u64),
    /// It gives the lease back.
    TakeBack(u64),
    Forget(usize, u64),
    Settle,
}

fn call() -> impl Strategy<Value = Call> {
    let (directory, file) = (prop::sample::select(&DIRECTORIES[..]), prop::sample::select(&FILES[..]));
    let place = || (directory.clone(), 0..NAMES.len());
    let node = prop_oneof![directory.clone(), file.clone()];
    prop_oneof![
        10 => place().prop_map(|(directory, at)| Call::LookUp(directory, at)),
        10 => node.prop_map(Call::GetAttr),
        1 => file.clone().prop_map(Call::Change),
        1 => (file, place()).prop_map(|(file, (directory, at))| Call::Link(file, directory, at)),
        1 => place().prop_map(|(directory, at)| Call::Unlink(directory, at)),
        1 => (place(), place()).prop_map(|(from, to)| Call::Rename(from, to)),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let (mount, thread) = (0..MOUNTS, 0..THREADS);
    let one = || (mount.clone(), thread.clone());
    prop_oneof![
        24 => (one(), call()).prop_map(|((at, thread), call)| Step::Call(at, thread, call)),
        12 => one().prop_map(|(at, thread)| Step::Serve(at, thread)),
        6 => one().prop_map(|(at, thread)| Step::Arrive(at, thread)),
        24 => one().prop_map(|(at, thread)| Step::Finish(at, thread)),
        6 => mount.clone().prop_map(Step::Hear),
        6 => mount.clone().prop_map(Step::Answer),
        1 => Just(Step::Ask),
        4 => prop_oneof![4 => Just(10_u64), 4 => Just(300), 1 => Just(1100)].prop_map(Step::Wait),
        1 => (0..20_usize).prop_map(|at| if at < MOUNTS { Step::Cut(at) } else { Step::Ask }),
        1 => (0..4_usize).prop_map(|at| if at < MOUNTS { Step::Connect(at) } else { Step::Ask }),
        1 => (0..20_usize).prop_map(|at| if at < MOUNTS { Step::Lose(at) } else { Step::Ask }),
        2 => (mount.clone(), prop::sample::select(&FILES[..])).prop_map(|(at, node)| Step::Forget(at, node)),
        4 => prop::sample::select(&FILES[..]).prop_map(Step::Write),
        1 => prop::sample::select(&FILES[..]).prop_map(Step::TakeBack),
        6 => Just(Step::Settle),
    ]
}

/// Runs the steps. Returns how many calls were answered without the server.
fn run(steps: &[Step]) -> u64 {
    let mut world = World::new();
    world.tree.names.extend([((1, 0), 11), ((2, 0), 11), ((1, 1), 12)]);
    steps.iter().for_each(|step| world.step(*step));
    world.hits
}

proptest! {
    #[test]
    fn nobody_is_answered_with_what_is_not_so_any_more(steps in prop::collection::vec(step(), 1..400)) {
        run(&steps);
    }
}

#[test]
fn a_holder_whose_leases_have_lapsed_forgets_what_it_has_kept() {
    let look = Step::Call(1, 0, Call::GetAttr(11));
    let change = [Step::Call(0, 0, Call::Change(11)), Step::Finish(0, 0)];
    let before = [look, Step::Finish(1, 0), look, Step::Ask, Step::Ask, Step::Ask, Step::Wait(1100)];
    let steps = [&before[..], &change, &[Step::Settle, look]].concat();
    assert_eq!(run(&steps), 1, "before it was changed, which it could not be told");
}

#[test]
fn holders_answer_in_these_runs() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let steps = prop::collection::vec(step(), 400);
    let hits: u64 = (0..50).map(|_| run(&steps.new_tree(&mut runner).unwrap().current())).sum();
    assert!(hits > 100, "{hits}");
}
