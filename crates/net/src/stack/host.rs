//! The table of connections, the queue of those that have something to send, and their timers.

use super::datagram::Outgoing;
use super::latest::Latest;
use super::neighbours::Neighbours;
use super::reordered::Reordered;
use super::table::Table;
use crate::address::{Path, Tuple};
use crate::config::{Config, UNCONNECTED_MAX};
use crate::event::{ConnId, Ended, Event};
use crate::frames::Frames;
use crate::packet::Packet;
use crate::stats::{Drop, Stats};
use crate::tcp::backlog::{Backlog, Due};
use crate::tcp::emit::Header;
use crate::tcp::isn::Secret;
use crate::tcp::time_wait::{Over, TimeWait};
use crate::tcp::{Context, Tcb};
use crate::time::Instant;
use core::net::{IpAddr, SocketAddr};
use landfall_media::{Extent, Sum};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Length of the timer queue below which stale timers are not removed.
const TIMERS_CLEAN_MIN: usize = 1024;
/// Limits per second of challenges (RFC 5961, 7) and of ICMP messages (RFC 1812, 4.3.2.8).
const CHALLENGES_PER_SECOND: u32 = 100;
const ICMP_PER_SECOND: u32 = 1000;
/// First local port of connections that the application opens (RFC 6335, 6).
const PORTS_DYNAMIC: u16 = 49152;

/// Why data were not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// There is no such connection, or its sending side is closed.
    Closed,
    /// The peer's hardware address is not known.
    Unresolved,
    /// The datagram is longer than a packet may be.
    TooLong,
    /// The queue is full.
    Full,
}

/// Why no connection was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The host has no address of that family.
    NoAddress,
    /// The connection table is full.
    Full,
    /// Every local port is in use.
    NoPort,
}

/// What the stack did with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The packet was handled, or dropped and counted.
    Done,
    /// A segment of no connection of this stack, also a SYN, which may be repeated. Another stack that shares the addresses
    /// may have the connection. If none does, the driver gives the segment to [`Stack::refuse`].
    Stray(Tuple),
}

/// A connection began or ended in this stack. Drivers with several stacks behind one address use this to steer
/// segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowChange {
    /// Segments of this tuple belong to this stack from now on.
    Here(Tuple),
    /// Segments of this tuple no longer belong to this stack.
    Gone(Tuple),
}

/// The network stack of a host, or of one worker of a host.
#[derive(Debug)]
pub struct Stack {
    pub(super) config: Config,
    pub(super) secret: Secret,
    /// Ports that the application listens on, and their tags.
    pub(super) listeners: Vec<(u16, u32)>,
    pub(super) udp_ports: Vec<u16>,
    pub(super) table: Table,
    /// Cache of the latest segment's connection.
    pub(super) latest: Option<Latest>,
    pub(super) backlog: Backlog,
    pub(super) time_wait: TimeWait,
    pub(super) neighbours: Neighbours,
    pub(super) events: VecDeque<Event>,
    /// Connections that may have something to send, each of them once.
    pub(super) ready: VecDeque<ConnId>,
    /// Segments of no connection, to be sent.
    pub(super) control: VecDeque<(Path, Header)>,
    /// Whole frames to be sent: ARP, ICMP, neighbour discovery.
    pub(super) raw: VecDeque<Vec<u8>>,
    pub(super) datagrams: VecDeque<Outgoing>,
    /// Stored bytes of the datagram that was filled last, held until the next packet is requested.
    pub(super) datagram_hold: Option<Extent>,
    pub(super) timers: BinaryHeap<Reverse<(Instant, ConnId)>>,
    /// Length of the timer queue at which stale timers are removed.
    pub(super) timers_clean_at: usize,
    pub(super) stats: Stats,
    /// Frames held for paused applications.
    pub(super) held_back: usize,
    pub(super) reordered: Reordered,
    pub(super) limits: Limits,
    pub(super) cookies_until: Option<Instant>,
    pub(super) next_port: u16,
    pub(super) flows: Option<Vec<FlowChange>>,
}

/// How many challenges and ICMP messages may still be sent in this second.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) second: u64,
    pub(super) challenges: u32,
    pub(super) icmp: u32,
    /// Neighbour discovery has its own limit: a flood of echo requests must not hide this host from its neighbours.
    pub(super) discovery: u32,
}

impl Limits {
    pub(super) fn roll(&mut self, now: Instant, secret: &Secret) {
        let second = now.millis() / 1000;
        if second != self.second {
            // The number of challenges per second is not predictable. Otherwise an attacker who forges segments could
            // count the challenges and learn whether one of the segments caused one (CVE-2016-5696).
            let more = secret.number(second) % u64::from(CHALLENGES_PER_SECOND);
            let challenges = CHALLENGES_PER_SECOND / 2 + more as u32;
            *self = Self { second, challenges, icmp: ICMP_PER_SECOND, discovery: ICMP_PER_SECOND };
        }
    }
}

impl Stack {
    /// A new stack. `secret` is random and unknown to peers: sequence numbers and cookies are derived from it.
    pub fn new(config: Config, secret: [u64; 2]) -> Self {
        let secret = Secret::new(secret);
        Self {
            table: Table::new(config.stack_id, secret.table_seed(), config.connections_max),
            next_port: PORTS_DYNAMIC | (secret.table_seed() as u16 & 0x3fff),
            config,
            secret,
            listeners: Vec::new(),
            udp_ports: Vec::new(),
            latest: None,
            backlog: Backlog::default(),
            time_wait: TimeWait::default(),
            neighbours: Neighbours::default(),
            events: VecDeque::new(),
            ready: VecDeque::new(),
            control: VecDeque::new(),
            raw: VecDeque::new(),
            datagrams: VecDeque::new(),
            datagram_hold: None,
            timers: BinaryHeap::new(),
            timers_clean_at: TIMERS_CLEAN_MIN,
            stats: Stats::default(),
            held_back: 0,
            reordered: Reordered::default(),
            limits: Limits {
                second: 0,
                challenges: CHALLENGES_PER_SECOND,
                icmp: ICMP_PER_SECOND,
                discovery: ICMP_PER_SECOND,
            },
            cookies_until: None,
            flows: None,
        }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Enables [`Self::take_flow_changes`], and [`Received::Stray`] for segments of no connection.
    pub fn share_flows(&mut self) {
        self.flows.get_or_insert_default();
    }

    /// Calls `each` for every connection that began or ended since the last call.
    pub fn take_flow_changes(&mut self, mut each: impl FnMut(FlowChange)) {
        self.flows.iter_mut().for_each(|flows| flows.drain(..).for_each(&mut each));
    }

    /// Accepts connections to a port; their events carry `tag`.
    pub fn listen(&mut self, port: u16, tag: u32) {
        self.listeners.push((port, tag));
    }

    /// Delivers datagrams to a port.
    pub fn bind_udp(&mut self, port: u16) {
        self.udp_ports.push(port);
    }

    /// Opens a connection. `next_hop` is the peer, or the router to it. [`Event::Connected`] or [`Event::Ended`]
    /// follows.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        next_hop: IpAddr,
    ) -> Result<ConnId, ConnectError> {
        let family = |address: &&IpAddr| address.is_ipv4() == remote.is_ipv4();
        let local = *self.config.addresses.iter().find(family).ok_or(ConnectError::NoAddress)?;
        if self.table.is_full() {
            return Err(ConnectError::Full);
        }
        let tuple = self.free_tuple(local, remote).ok_or(ConnectError::NoPort)?;
        let remote_mac = self.neighbours.fresh(now, next_hop);
        let path = Path { tuple, local_mac: self.config.mac, remote_mac: remote_mac.unwrap_or_default() };
        let (iss, offset) = (self.secret.isn(now, &tuple), self.secret.timestamp_offset(&tuple));
        let mut tcb = Tcb::opening(&self.config, path, iss, offset);
        tcb.unresolved = remote_mac.is_none();
        let id = self.insert(tcb);
        // One question serves all connections that wait (RFC 1122, 2.3.2.1: not more than one a second).
        if remote_mac.is_none() && self.neighbours.wait(next_hop, id) {
            self.solicit(now, next_hop);
        }
        self.settle(id);
        Ok(id)
    }

    pub(super) fn free_tuple(&mut self, local: IpAddr, remote: SocketAddr) -> Option<Tuple> {
        (0..u16::MAX - PORTS_DYNAMIC).find_map(|_| {
            self.next_port = if self.next_port == u16::MAX { PORTS_DYNAMIC } else { self.next_port + 1 };
            let tuple = Tuple { local: SocketAddr::new(local, self.next_port), remote };
            let free = self.table.find(&tuple).is_none() && self.time_wait.get(&tuple).is_none();
            free.then_some(tuple)
        })
    }

    /// Bytes of a connection that are queued and not acknowledged.
    pub fn queued(&self, conn: ConnId) -> usize {
        self.table.get(conn).map_or(0, Tcb::queued)
    }

    /// True if the application should queue more. After false, [`Event::Writable`] follows when half of the queue is
    /// free.
    pub fn is_writable(&mut self, conn: ConnId) -> bool {
        let limit = self.config.send_queue;
        let Some(tcb) = self.table.get_mut(conn) else { return false };
        let room = tcb.queued() < limit;
        tcb.wants_room |= !room;
        room
    }

    /// Queues bytes that do not lie in frames. The bytes are copied.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub fn send_bytes(&mut self, conn: ConnId, bytes: &[u8]) -> Result<(), SendError> {
        let tcb = self.table.get_mut(conn).filter(|tcb| tcb.may_send()).ok_or(SendError::Closed)?;
        tcb.send_bytes(bytes);
        self.make_ready(conn);
        Ok(())
    }

    /// Queues stored bytes by reference. Their hold passes to the stack, also when this fails. `sum` is the sum of the
    /// bytes, if it is known.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub fn send_stored(
        &mut self,
        frames: &mut dyn Frames,
        conn: ConnId,
        extent: Extent,
        sum: Option<Sum>,
    ) -> Result<(), SendError> {
        let Some(tcb) = self.table.get_mut(conn).filter(|tcb| tcb.may_send()) else {
            frames.release(extent);
            return Err(SendError::Closed);
        };
        tcb.send_stored(extent, sum);
        self.make_ready(conn);
        Ok(())
    }

    /// Pauses reception: arriving data are held back, and the window closes. If both sides close in the meantime, the
    /// data that were held back are delivered before [`Event::Ended`].
    pub fn pause(&mut self, conn: ConnId) {
        if let Some(tcb) = self.table.get_mut(conn) {
            tcb.pause();
        }
    }

    /// Resumes reception after [`Self::pause`].
    pub fn resume(&mut self, now: Instant, frames: &mut dyn Frames, conn: ConnId) {
        self.with(now, frames, conn, Tcb::resume);
    }

    /// Closes the sending side after everything queued; the peer may continue to send.
    pub fn shut_down(&mut self, conn: ConnId) {
        if let Some(tcb) = self.table.get_mut(conn) {
            tcb.close();
            self.settle(conn);
        }
    }

    /// Closes a connection. Queued data are still sent as long as the peer takes some of them every minute. No event of
    /// the connection follows, and events that were not polled yet are removed. If the peer has sent data that were
    /// held back by [`Self::pause`], or sends more, the connection is reset (RFC 9293, 3.6.1).
    pub fn close(&mut self, now: Instant, frames: &mut dyn Frames, conn: ConnId) {
        self.forget_events(frames, conn);
        self.with(now, frames, conn, Tcb::orphan);
    }

    /// Resets a connection; no event of it follows.
    pub fn abort(&mut self, now: Instant, frames: &mut dyn Frames, conn: ConnId) {
        self.forget_events(frames, conn);
        self.with(now, frames, conn, |tcb, _| {
            tcb.orphaned = true;
            tcb.end(Ended::Aborted);
        });
    }

    /// Removes the queued events of a connection and releases their extents.
    pub(super) fn forget_events(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.events.retain(|event| {
            let its = event.conn() == Some(conn);
            if let (true, Event::Received { extent, .. }) = (its, event) {
                frames.release(*extent);
            }
            !its
        });
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Self::handle_time`] must be called, at the latest. The call may find no timer expired.
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        [timer, self.backlog.deadline(), self.time_wait.deadline(), self.neighbours.deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Handles expired timers.
    pub fn handle_time(&mut self, now: Instant, frames: &mut dyn Frames) {
        self.limits.roll(now, &self.secret);
        while let Some(Reverse((_, id))) = self.timers.peek().copied().filter(|Reverse((at, _))| *at <= now) {
            self.timers.pop();
            self.table.timer_fired(id);
            self.with(now, frames, id, Tcb::handle_time);
        }
        self.time_wait.handle_time(now);
        self.handle_backlog(now);
        self.solicit_again(now, frames);
    }

    pub(super) fn handle_backlog(&mut self, now: Instant) {
        let (config, control, flows) = (&self.config, &mut self.control, &mut self.flows);
        self.backlog.handle_time(now, |half, due| match due {
            Due::Again if control.len() < UNCONNECTED_MAX => {
                control.push_back((half.path, half.answer(now, config)));
            }
            Due::Again => {}
            Due::Gone => flows.iter_mut().for_each(|flows| flows.push(FlowChange::Gone(half.path.tuple))),
        });
    }

    /// Fills the next packet to send; false when there is none. The extents that a packet refers to are held at least
    /// until the next call of any method.
    pub fn poll_transmit(&mut self, now: Instant, frames: &mut dyn Frames, packet: &mut Packet) -> bool {
        self.release_datagram(frames);
        let filled = self.transmit_unconnected(packet) || self.transmit_connected(now, frames, packet);
        if filled {
            self.stats.sent += packet.segments() as u64;
        }
        filled
    }

    /// Clears [`Config::long_packets`]: every segment is a packet from now on.
    pub fn send_short_packets(&mut self) {
        self.config.long_packets = false;
    }

    /// Releases the stored bytes of the datagram that was filled last.
    pub(super) fn release_datagram(&mut self, frames: &mut dyn Frames) {
        self.datagram_hold.take().into_iter().for_each(|extent| frames.release(extent));
    }

    pub(super) fn transmit_unconnected(&mut self, packet: &mut Packet) -> bool {
        if let Some((path, header)) = self.control.pop_front() {
            header.emit_alone(&path, packet);
        } else if let Some(raw) = self.raw.pop_front() {
            packet.set_bytes(&raw);
        } else if let Some(datagram) = self.datagrams.pop_front() {
            self.datagram_hold = datagram.emit(packet);
        } else {
            return false;
        }
        true
    }

    pub(super) fn transmit_connected(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        packet: &mut Packet,
    ) -> bool {
        while let Some(id) = self.ready.front().copied() {
            let resolved = self.table.get(id).is_some_and(|tcb| !tcb.unresolved);
            let sent =
                resolved && self.with_context(now, frames, id, |tcb, context| tcb.transmit(context, packet));
            if sent {
                packet.conn = Some(id);
                return true;
            }
            self.ready.pop_front();
            self.table.leave_ready(id);
            self.settle_timer(id);
        }
        false
    }

    /// Length of the timer queue: a few entries per connection.
    #[doc(hidden)]
    pub fn timers_queued(&self) -> usize {
        self.timers.len()
    }

    /// Counters so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Connections, half-open connections, and connections in TIME-WAIT.
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.table.len(), self.backlog.len(), self.time_wait.len())
    }

    /// Pieces of streams that wait for a hole to be filled or for the application. Each of them holds a frame, except
    /// for small pieces behind holes.
    pub fn waiting_frames(&self) -> usize {
        self.held_back + self.reordered.kept().pieces
    }

    /// Bytes of memory that out-of-order data occupy.
    pub fn waiting_bytes(&self) -> usize {
        self.reordered.kept().bytes
    }

    /// Ends all connections: peers get resets, and every frame is released. The packets that [`Self::poll_transmit`]
    /// fills afterwards are the last ones.
    pub fn end_all(&mut self, now: Instant, frames: &mut dyn Frames) {
        for id in self.table.ids() {
            self.abort(now, frames, id);
        }
        for event in self.events.drain(..) {
            if let Event::Received { extent, .. } | Event::Datagram { extent, .. } = event {
                frames.release(extent);
            }
        }
        self.release_datagram(frames);
        self.datagrams.drain(..).for_each(|datagram| datagram.release(frames));
    }

    /// Runs `act` on a connection and handles the consequences.
    pub(super) fn with(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        id: ConnId,
        work: impl FnOnce(&mut Tcb, &mut Context<'_>),
    ) {
        let ended = self.with_context(now, frames, id, |tcb, context| {
            work(tcb, context);
            tcb.ended.is_some()
        });
        if ended {
            self.reap(now, frames, id);
        }
        self.settle(id);
    }

    pub(super) fn with_context<T: Default>(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        id: ConnId,
        work: impl FnOnce(&mut Tcb, &mut Context<'_>) -> T,
    ) -> T {
        let Some(tcb) = self.table.get_mut(id) else { return T::default() };
        let before = (tcb.held_back(), tcb.reordered());
        let mut context = Context {
            now,
            id,
            config: &self.config,
            frames,
            events: &mut self.events,
            stats: &mut self.stats,
            held_back: self.held_back,
            challenges_left: &mut self.limits.challenges,
            replies: &mut self.control,
        };
        let out = work(tcb, &mut context);
        let after = (tcb.held_back(), tcb.reordered());
        self.held_back = self.held_back + after.0 - before.0;
        self.reordered.note(id, before.1, after.1);
        out
    }

    /// Removes a connection that has ended.
    pub(super) fn reap(&mut self, now: Instant, frames: &mut dyn Frames, id: ConnId) {
        let Some(how) = self.table.get(id).and_then(|tcb| tcb.ended) else { return };
        let final_header = self.with_context(now, frames, id, |tcb, context| {
            let final_header = tcb.final_header(context);
            tcb.deliver_rest(context);
            tcb.release(context.frames);
            final_header
        });
        let Some(tcb) = self.table.remove(id) else { return };
        if let Some(header) = final_header {
            self.send_control(tcb.path, header);
        }
        if tcb.waits_after_closing() {
            let over = Over::of(now, &tcb);
            self.time_wait.insert(over, self.config.time_wait_max);
        }
        self.note_flow(FlowChange::Gone(tcb.path.tuple));
        if !tcb.orphaned {
            self.events.push_back(Event::Ended { conn: id, how });
        }
    }

    pub(super) fn insert(&mut self, tcb: Tcb) -> ConnId {
        let tuple = tcb.path.tuple;
        self.stats.opened += 1;
        self.note_flow(FlowChange::Here(tuple));
        self.table.insert(tcb)
    }

    pub(super) fn note_flow(&mut self, change: FlowChange) {
        if let Some(flows) = &mut self.flows {
            flows.push(change);
        }
    }

    /// Queues a connection to send, and its timer, after something happened to it.
    pub(super) fn settle(&mut self, id: ConnId) {
        self.make_ready(id);
        self.settle_timer(id);
    }

    pub(super) fn make_ready(&mut self, id: ConnId) {
        if self.table.enter_ready(id) {
            self.ready.push_back(id);
        }
    }

    /// Queues the deadline of the connection, unless an earlier one is queued.
    pub(super) fn settle_timer(&mut self, id: ConnId) {
        if let Some(at) = self.table.timer_to_queue(id) {
            if self.timers.len() >= self.timers_clean_at {
                // Connections that were removed have left stale timers.
                let table = &self.table;
                self.timers.retain(|Reverse((_, id))| table.get(*id).is_some());
                self.timers_clean_at = (2 * self.timers.len()).max(TIMERS_CLEAN_MIN);
            }
            self.timers.push(Reverse((at, id)));
        }
    }

    pub(super) fn send_control(&mut self, path: Path, header: Header) {
        if self.control.len() < UNCONNECTED_MAX {
            self.control.push_back((path, header));
        }
    }

    pub(super) fn send_raw(&mut self, frame: Vec<u8>) {
        if self.raw.len() < UNCONNECTED_MAX {
            self.raw.push_back(frame);
        }
    }
}

impl Stack {
    /// Drops out-of-order data until all connections together keep no more than allowed.
    pub(super) fn bound_reordered(&mut self, now: Instant, frames: &mut dyn Frames) {
        while let Some(conn) = self.reordered.beyond(self.config.waiting_bytes_max) {
            self.stats.drop(Drop::TooMuchWaiting);
            self.with_context(now, frames, conn, |tcb, context| tcb.drop_furthest(context.frames));
        }
    }
}
