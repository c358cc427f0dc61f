//! What the holder of a mount on another machine keeps of the server's answers, and answers by itself:
//! `docs/format/fs-network.md`, "Leases".
//!
//! The kernel keeps nothing: it asks the holder each time. So what a recall drops is dropped at once, and nobody waits for the
//! kernel's locks.

mod layout;
mod lookups;
mod nodes;
mod term;

use crate::effects::Effects;
use landfall_fuse::{Device, Errno, Handle, Op, OpenFlags, Opened, Reply, Request, Sent, Unique};
use layout::{ATTR_BYTES, ATTR_OUT_BYTES, ENTRY_BYTES, entry_of, parts_of};
use lookups::Lookups;
use nodes::{Kept, Nodes, Question, Said, Slice};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use term::Term;

/// A file that would take more than one part in so many of the room is read from the server each time. Nothing of one inode takes
/// more.
const FILE_SHARE: usize = 8;
/// Bytes that are read at once from a file that is read from its beginning to its end.
const AHEAD_BYTES: u32 = 128 << 10;
/// Recalls that are remembered one by one while a request is on its way.
const RECALLS_MAX: usize = 64;
/// Errors that say what an inode is: it has no such attribute, can have none, or has one that is longer than the caller's room.
const LASTING: [i32; 3] = [libc::ENODATA, libc::ERANGE, libc::EOPNOTSUPP];

/// A request that is on its way to the server.
#[derive(Debug, Default)]
enum Flight {
    #[default]
    None,
    /// What it finds may be kept, but for what was recalled meanwhile.
    Finds { recalled: SmallVec<[u64; 4]>, all_recalled: bool },
    /// It changes these inodes. Nobody knows what they are meanwhile.
    Changes {
        nodes: SmallVec<[u64; 4]>,
        /// Directories in which it changes names.
        parents: SmallVec<[u64; 2]>,
        /// It is not known what the names lead to, so that any inode may change.
        changes_any: bool,
    },
}

impl Flight {
    fn finds() -> Self {
        Self::Finds { recalled: SmallVec::new(), all_recalled: false }
    }

    /// Whether an inode may be another one already than what is kept says.
    fn may_change(&self, node: u64) -> bool {
        matches!(self, Self::Changes { nodes, changes_any, .. } if *changes_any || nodes.contains(&node))
    }

    /// Somebody has changed an inode, or is about to.
    fn recall(&mut self, node: u64) {
        match self {
            Self::None => {}
            Self::Finds { all_recalled, recalled } if recalled.len() == RECALLS_MAX => {
                (*all_recalled, *recalled) = (true, SmallVec::new());
            }
            Self::Finds { recalled, .. } => recalled.push(node),
            // The names may lead elsewhere now.
            Self::Changes { parents, changes_any, .. } => *changes_any |= parents.contains(&node),
        }
    }

    fn recall_all(&mut self) {
        match self {
            Self::None => {}
            Self::Finds { all_recalled, .. } => *all_recalled = true,
            Self::Changes { parents, changes_any, .. } => *changes_any |= !parents.is_empty(),
        }
    }

    /// Whether what it has found of an inode may be kept.
    fn has_found(&self, node: u64) -> bool {
        matches!(self, Self::Finds { recalled, all_recalled } if !all_recalled && !recalled.contains(&node))
    }
}

/// What a server has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard<'a> {
    pub(super) reply: &'a [u8],
    /// If the request finds something, that may be kept; if it changes something, more than it names has changed.
    pub(super) is_marked: bool,
    /// The server's number.
    pub(super) server: u64,
}

/// What is to be done with a request.
#[derive(Debug)]
pub(super) enum Begun {
    /// This is the answer.
    Answer(Answer),
    /// The server is asked, then [`Cache::end`] follows. A READ asks for so many bytes, which may be more than the kernel's.
    Ask { read_bytes: Option<u32> },
}

/// An answer for the kernel.
#[derive(Debug)]
pub(super) struct Answer {
    head: Vec<u8>,
    /// What is kept, behind it.
    data: Option<Slice>,
}

impl Answer {
    fn of(reply: &Reply) -> Self {
        Self { head: reply.as_bytes().to_vec(), data: None }
    }

    /// A body of these parts.
    fn made(unique: Unique, parts: &[&[u8]]) -> Self {
        let header = Reply::data(unique, parts.iter().map(|part| part.len()).sum());
        Self { head: [&[header.as_bytes()], parts].concat().concat(), data: None }
    }

    fn data(unique: Unique, (part, range): Slice) -> Self {
        Self { data: Some((part, range.clone())), ..Self::of(&Reply::data(unique, range.len())) }
    }

    fn data_bytes(&self) -> &[u8] {
        self.data.as_ref().map_or(&[], |(part, range)| &part[range.clone()])
    }

    /// Sends it.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn send(&self, device: &Device) -> io::Result<Sent> {
        device.send(&[IoSlice::new(&self.head), IoSlice::new(self.data_bytes())])
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> Vec<u8> {
        [&self.head, self.data_bytes()].concat()
    }
}

/// What a holder keeps.
pub(super) struct Cache {
    state: Mutex<State>,
    /// It keeps nothing.
    is_off: bool,
}

#[derive(Default)]
struct State {
    term: Term,
    nodes: Nodes,
    /// The request of each thread.
    flights: Vec<Flight>,
    lookups: Lookups,
    /// Of the file that is opened next.
    handle: u64,
}

impl Cache {
    /// As much as so many bytes have room for (0: nothing), of a mount whose requests come to so many threads. Files that it
    /// opens have handles from `handle` on.
    pub(super) fn new(bytes: usize, threads: usize, handle: u64) -> Self {
        let flights = std::iter::repeat_with(Flight::default).take(threads).collect();
        let nodes = Nodes::of_bytes(bytes, bytes / FILE_SHARE);
        let state = State { nodes, flights, handle, ..State::default() };
        Self { state: Mutex::new(state), is_off: bytes == 0 }
    }

    /// A thread has received a request.
    pub(super) fn begin(&self, thread: usize, request: &Request<'_>, now: Duration) -> Begun {
        if matches!(request.op, Op::ReleaseDir(_)) {
            return Begun::Answer(Answer::of(&Reply::ok(request.unique)));
        }
        let mut state = self.state.lock();
        if !self.is_off
            && state.term.holds(now)
            && let Some(answer) = state.answer(request)
        {
            return Begun::Answer(answer);
        }
        let flight = state.flight_of(request);
        state.flights[thread] = flight;
        let read_bytes = if self.is_off { None } else { state.ahead(request) };
        Begun::Ask { read_bytes }
    }

    /// A server has answered a thread's request, or nobody knows what has become of it (`None`).
    pub(super) fn end(&self, thread: usize, request: &Request<'_>, heard: Option<Heard<'_>>) {
        let mut state = self.state.lock();
        let flight = std::mem::take(&mut state.flights[thread]);
        if let Some(Heard { reply, server, .. }) = heard {
            state.lookups.note(server, request, reply);
        }
        match &flight {
            Flight::None => {}
            Flight::Finds { .. } => {
                if let Some(Heard { reply, is_marked: true, .. }) = heard
                    && !self.is_off
                {
                    state.keep(&flight, request, reply);
                }
            }
            Flight::Changes { nodes, parents, changes_any } => {
                // Where it names all that it changes, only what a request does that is sent again is marked.
                let is_known = !*changes_any && !parents.is_empty();
                if !is_known && heard.is_none_or(|heard| heard.is_marked) {
                    state.clear();
                }
                nodes.iter().for_each(|node| state.forget(*node));
            }
        }
    }

    /// The kernel forgets lookups of an inode. Returns how many of them this server has counted, if it is to be told.
    pub(super) fn forget(&self, server: u64, node: u64, lookups: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let counted = state.lookups.forget(server, node, lookups);
        // Nor does the server keep a lease of what it does not know to be known.
        if !state.lookups.is_counted(node) {
            state.nodes.forget(node);
        }
        counted
    }

    /// Those of the inodes that the kernel does not know.
    pub(super) fn unknown(&self, nodes: &[u64]) -> Vec<u64> {
        let state = self.state.lock();
        nodes.iter().copied().filter(|node| !state.lookups.knows(*node)).collect()
    }

    /// Inodes are about to change.
    pub(super) fn recall(&self, nodes: &[u64]) {
        let mut state = self.state.lock();
        nodes.iter().for_each(|node| state.forget(*node));
    }

    /// The server asks whether the holder is there, which says so next.
    pub(super) fn asked(&self, number: u64, heard: u64, now: Duration) {
        let mut state = self.state.lock();
        if !state.term.asked(number, heard, now) {
            state.clear();
        }
    }

    /// The server is away.
    pub(super) fn end_server(&self) {
        let mut state = self.state.lock();
        state.term = Term::default();
        state.clear();
    }

    /// There is a server, which knows of no lookups. It has a number that no other one has had.
    pub(super) fn begin_server(&self, number: u64) {
        self.end_server();
        self.state.lock().lookups.begin_server(number);
    }
}

impl State {
    /// How many bytes a READ asks for instead of those that the kernel wants.
    fn ahead(&mut self, request: &Request<'_>) -> Option<u32> {
        let Op::Read(read) = &request.op else { return None };
        let is_short = read.size < AHEAD_BYTES && self.nodes.has_room_for(request.node.0);
        let kept = self.nodes.get(request.node.0)?;
        (is_short && kept.is_sequential(read.offset)).then_some(AHEAD_BYTES)
    }

    /// What is kept of an inode that nobody is changing.
    fn kept(&mut self, node: u64) -> Option<&Kept> {
        if self.flights.iter().any(|flight| flight.may_change(node)) {
            return None;
        }
        self.nodes.get(node)
    }

    fn attr(&mut self, node: u64) -> Option<[u8; ATTR_BYTES]> {
        self.kept(node).and_then(|kept| kept.attr)
    }

    /// The answer to a request, as far as leases allow.
    fn answer(&mut self, request: &Request<'_>) -> Option<Answer> {
        let (node, unique) = (request.node.0, request.unique);
        match &request.op {
            Op::Lookup { name } => self.look_up(request, name.as_bytes()),
            Op::GetAttr { .. } => {
                let valid_for = [0; ATTR_OUT_BYTES - ATTR_BYTES];
                Some(Answer::made(unique, &[&valid_for, &self.attr(node)?]))
            }
            Op::Read(read) => {
                self.kept(node)?.read(read.offset, read.size).map(|slice| Answer::data(unique, slice))
            }
            Op::Open(_) => {
                self.attr(node)?;
                self.handle = self.handle.wrapping_add(1);
                let opened = Opened { fh: Handle(self.handle), flags: OpenFlags::DIRECT_IO };
                Some(Answer::of(&Reply::opened(unique, opened)))
            }
            Op::OpenDir(_) => Some(Answer::of(&Reply::opened(unique, Opened::default()))),
            _ => {
                let said = self.kept(node)?.said(&question(request)?)?;
                Some(match said {
                    Said::Bytes(bytes) => Answer::data(unique, (bytes.clone(), 0..bytes.len())),
                    Said::Error(errno) => Answer::of(&Reply::error(unique, Errno::from_raw(*errno))),
                })
            }
        }
    }

    fn look_up(&mut self, request: &Request<'_>, name: &[u8]) -> Option<Answer> {
        let node = self.kept(request.node.0)?.name(name)?;
        if node == 0 {
            return Some(Answer::of(&Reply::no_entry(request.unique, Duration::ZERO)));
        }
        let attr = self.attr(node)?;
        let valid_for = [0; ENTRY_BYTES - ATTR_BYTES - 8];
        let answer = || Answer::made(request.unique, &[&node.to_le_bytes(), &valid_for, &attr]);
        self.lookups.answer(node).then(answer)
    }

    /// What a request does, on its way to the server.
    fn flight_of(&mut self, request: &Request<'_>) -> Flight {
        let Some(Effects { nodes, names, .. }) = Effects::of(request) else {
            let finds = matches!(request.op, Op::Lookup { .. } | Op::GetAttr { .. } | Op::Read(_));
            return if finds || question(request).is_some() { Flight::finds() } else { Flight::None };
        };
        let mut nodes: SmallVec<[u64; 4]> = nodes.into_iter().map(|node| node.0).collect();
        let mut changes_any = false;
        for (parent, name) in &names {
            match self.nodes.get(parent.0).and_then(|kept| kept.name(name.as_bytes())) {
                Some(0) => {}
                Some(child) => nodes.push(child),
                None => changes_any = true,
            }
        }
        let parents = names.into_iter().map(|(parent, _)| parent.0).collect();
        Flight::Changes { nodes, parents, changes_any }
    }

    /// Keeps what a request has found.
    fn keep(&mut self, flight: &Flight, request: &Request<'_>, reply: &[u8]) {
        let node = request.node.0;
        let Some((errno, body)) = parts_of(reply) else { return };
        if !flight.has_found(node) {
            return;
        }
        match &request.op {
            Op::Lookup { name } if errno == 0 => {
                let Some((child, attr)) = entry_of(body) else { return };
                if child == 0 || flight.has_found(child) {
                    self.nodes.keep_name(node, name.as_bytes(), child);
                }
                if child != 0 && flight.has_found(child) {
                    self.nodes.keep_attr(child, attr);
                }
            }
            Op::GetAttr { .. } if errno == 0 => {
                if let Some(attr) = body.last_chunk() {
                    self.nodes.keep_attr(node, *attr);
                }
            }
            Op::Read(read) if errno == 0 => self.nodes.keep_part(node, read.offset, body),
            _ => {
                let Some(question) = question(request) else { return };
                match errno {
                    0 => self.nodes.keep_said(node, question, Said::Bytes(body.into())),
                    _ if LASTING.contains(&errno) => self.nodes.keep_said(node, question, Said::Error(errno)),
                    _ => {}
                }
            }
        }
    }

    /// An inode is not what is kept of it any more.
    fn forget(&mut self, node: u64) {
        self.nodes.forget(node);
        self.flights.iter_mut().for_each(|flight| flight.recall(node));
    }

    fn clear(&mut self) {
        self.nodes.clear();
        self.flights.iter_mut().for_each(Flight::recall_all);
    }
}

/// The question that a request asks about its inode, if it is nothing else.
fn question(request: &Request<'_>) -> Option<Question> {
    match &request.op {
        Op::Statx { .. } => Some(Question::Statx),
        Op::ReadLink => Some(Question::Link),
        Op::GetXattr { name, size } => {
            Some(Question::Extended { name: name.as_bytes().to_vec(), size: *size })
        }
        // Others are not told all names.
        Op::ListXattr { size } => Some(Question::AllExtended { size: *size, is_root: request.uid == 0 }),
        Op::ReadDir(dir) => Some(Question::Entries { offset: dir.offset, size: dir.size }),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
