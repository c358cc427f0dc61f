//! A worker's round over AF_XDP: send what was queued, take what has arrived, wait if there was nothing.

use crate::flows::{Flows, Forwarded, Stray};
use crate::landing::{Departures, Landing};
use crate::memory::Memory;
use crate::offload::Offload;
use crate::sys::{monotonic_ns, unix_ns};
use landfall_media::{Batch, Extent, prefetch};
use landfall_net::{Drop, FlowChange, Instant, Packet, Received, Stack};
use landfall_sockets::{
    ConnId, Event, Frames, Outgoing, Part, Poller, Transport, TransportError, Wait, Waker, WriteBack,
};
use landfall_spin::Spin;
use landfall_xdp::{Socket, Steering, XdpError};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Packets taken in one poll, approximately.
const BATCH_PACKETS: usize = 256;
/// Packets taken from the ring at a time.
const PORTION_PACKETS: u32 = 16;
/// Segments with PUSH taken in one poll, approximately: whole requests or pipelines, so as many peers wait for the
/// answers. With more, server and peers would take turns, each idle while the other works.
const BATCH_PUSHES: u64 = 32;
/// How many packets before its turn the next packet is prefetched, since it lies in the cache of the core that ran the
/// kernel.
const AHEAD: usize = 1;
/// Polls in one round that find packets but no event for the worker, at most.
const POLLS_MAX: u32 = 64;
/// Interval of attempts to take a run while there is no landing space.
const STARVED_RETRY: Duration = Duration::from_millis(10);
/// How long a stopping transport waits for peers to receive what is left.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How long a stopping transport waits for the FINs of peers that have received everything.
const STOP_IDLE_MAX: Duration = Duration::from_millis(200);
/// Closed connections that are remembered before those that have ended are removed from the list.
const CLOSED_MIN: usize = 256;
/// The poller's name of descriptors that the worker has it watch.
const WATCHED: u64 = 1;
/// Interval at which the offset between the clocks is measured again.
const CLOCKS_EVERY: Duration = Duration::from_secs(1);

/// The transport of one worker.
pub(crate) struct PacketTransport {
    worker: usize,
    socket: Option<Socket>,
    stack: Stack,
    flows: Arc<Flows>,
    _steering: Arc<Steering>,
    landing: Landing,
    departures: Departures,
    /// Sends sequences of segments as long packets.
    offload: Option<Offload>,
    poller: Poller,
    /// What the worker has the poller watch.
    watched: Vec<OwnedFd>,
    waker: Waker,
    write_back: WriteBack,
    spin: Spin,
    /// A poll that finds nothing makes the kernel poll the device.
    polls: bool,
    packet: Packet,
    received: Vec<landfall_xdp::Received>,
    ready: Vec<Event>,
    /// Sends that were accepted but not reported, because the connection's queue is full.
    unreported: Vec<(ConnId, Outgoing)>,
    /// Connections that were closed while there was still something to send.
    closed: Vec<landfall_net::ConnId>,
    closed_max: usize,
    /// Packets of this queue that were forwarded to the worker that has their connection.
    forwarded: u64,
    link_down: bool,
    partial_checksums_told: bool,
    /// Unix time less monotonic time, nanoseconds, and when it was measured.
    clock_offset: (u64, Instant),
}

impl PacketTransport {
    pub(crate) fn new(
        worker: usize,
        parts: (Socket, Stack, Arc<Flows>, Arc<Steering>),
        (landing, departures, offload): (Landing, Departures, Option<Offload>),
        (spin, polls): (Duration, bool),
    ) -> Result<Self, TransportError> {
        let (socket, stack, flows, steering) = parts;
        let failed = |what| move |source| TransportError::System { what, source };
        let waker = Waker::new().map_err(failed("making an eventfd"))?;
        flows.set_waker(worker, waker.clone());
        let mut poller = Poller::new().map_err(failed("epoll_create1"))?;
        poller.watch(socket.descriptor()).map_err(failed("watching an AF_XDP socket"))?;
        poller.watch_edges(waker.descriptor()).map_err(failed("watching an eventfd"))?;
        Ok(Self {
            worker,
            socket: Some(socket),
            stack,
            flows,
            _steering: steering,
            landing,
            departures,
            offload,
            poller,
            watched: Vec::new(),
            waker,
            write_back: WriteBack::new(true),
            spin: Spin::new(spin),
            polls,
            packet: Packet::default(),
            received: Vec::new(),
            ready: Vec::new(),
            unreported: Vec::new(),
            closed: Vec::new(),
            closed_max: CLOSED_MIN,
            forwarded: 0,
            link_down: false,
            partial_checksums_told: false,
            clock_offset: (unix_ns() - monotonic_ns(), now()),
        })
    }

    /// Sends what the stack has. While the link is down this does nothing, as if packets were lost, and connections
    /// continue when the link is up again.
    fn flush(&mut self, frames: &mut dyn Frames) -> Result<(), XdpError> {
        let outcome = self.flush_now(frames);
        let down = matches!(outcome, Err(XdpError::LinkDown { .. }));
        if std::mem::replace(&mut self.link_down, down) != down {
            match &outcome {
                Err(error) => tracing::warn!(%error, "nothing can be sent"),
                Ok(()) => tracing::info!("the link is up again"),
            }
        }
        if down { Ok(()) } else { outcome }
    }

    /// Sends what the stack has, and makes the kernel take it.
    fn flush_now(&mut self, frames: &mut dyn Frames) -> Result<(), XdpError> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let now = now();
        let (departures, mut last_alone) = (&mut self.departures, None);
        while departures.has_room(socket, frames)? {
            if !self.stack.poll_transmit(now, &mut Memory(frames), &mut self.packet) {
                break;
            }
            match (&mut self.offload, self.packet.cut) {
                (Some(offload), Some(cut)) => {
                    // Earlier packets of this connection go first.
                    if last_alone == self.packet.conn {
                        departures.kick(socket, frames)?;
                    }
                    offload.send(&self.packet, cut, frames);
                }
                _ => {
                    departures.send(&self.packet, socket, frames);
                    last_alone = self.packet.conn;
                }
            }
        }
        if let Some(error) = self.offload.as_ref().and_then(Offload::refused) {
            tracing::warn!(%error, "long packets are not taken: every segment is sent alone from now on");
            self.offload = None;
            self.stack.send_short_packets();
        }
        departures.kick(socket, frames)
    }

    /// Fills chunks into the ring of the interface, until it is full.
    fn refill(&mut self, frames: &mut dyn Frames) {
        self.landing.recycle_landed(frames);
        let Some(socket) = &mut self.socket else { return };
        self.landing.fill(socket, frames);
        self.report_starvation();
    }

    fn report_starvation(&mut self) {
        if self.landing.became_starved() {
            self.ready.push(Event::Starved);
        }
    }

    /// Takes packets that have arrived; returns their number.
    fn take_packets(&mut self, frames: &mut dyn Frames) -> usize {
        let mut taken = 0;
        let pushed = self.stack.stats().pushed;
        while taken < BATCH_PACKETS
            && self.stack.stats().pushed - pushed < BATCH_PUSHES
            && self.receive(taken == 0) > 0
        {
            taken += self.take_portion(frames);
        }
        taken
    }

    /// Takes the next few descriptors from the ring; returns their number.
    fn receive(&mut self, may_poll: bool) -> u32 {
        let Some(socket) = &mut self.socket else { return 0 };
        self.received.clear();
        let count = socket.receive(PORTION_PACKETS, &mut self.received);
        // An error of the call also shows at the next kick.
        if count > 0 || !may_poll || !self.polls || socket.wake_receive().is_err() {
            return count;
        }
        socket.receive(PORTION_PACKETS, &mut self.received)
    }

    /// Handles the packets whose descriptors were taken; returns their number.
    fn take_portion(&mut self, frames: &mut dyn Frames) -> usize {
        let now = now();
        if now.since(self.clock_offset.1) > CLOCKS_EVERY {
            self.clock_offset = (unix_ns() - monotonic_ns(), now);
        }
        let packets = std::mem::take(&mut self.received);
        for (index, packet) in packets.iter().enumerate() {
            if let Some(next) = packets.get(index + AHEAD)
                && self.landing.is_in_region()
            {
                prefetch(frames.bytes(Extent::new(next.addr, next.len)));
            }
            // Packets in several parts do not fit the MTU that was checked, so none of their parts is a whole packet.
            if packet.is_part {
                self.landing.discard(packet, frames);
            } else {
                self.take_one(now, frames, packet);
            }
        }
        self.received = packets;
        self.received.len()
    }

    /// Handles a whole packet; parts of it that are not held are recycled.
    fn take_one(&mut self, now: Instant, frames: &mut dyn Frames, packet: &landfall_xdp::Received) {
        let stamp = if packet.stamp_ns == 0 { now.nanos() } else { packet.stamp_ns };
        let arrival_ns = stamp + self.clock_offset.0;
        let landed = self.landing.land(packet, frames);
        self.report_starvation();
        let Some(landed) = landed else { return };
        self.take_packet(now, frames, landed, arrival_ns);
        self.landing.done(landed.off, frames);
    }

    fn take_packet(&mut self, now: Instant, frames: &mut dyn Frames, packet: Extent, arrival_ns: u64) {
        let outcome = self.stack.receive(now, &mut Memory(frames), packet, arrival_ns);
        let Received::Stray(tuple) = outcome else { return };
        frames.hold(packet);
        let forwarded = self.flows.forward(self.worker, &tuple, Stray { packet, arrival_ns });
        if forwarded == Forwarded::Unknown {
            self.stack.refuse(now, &Memory(frames), packet);
        }
        if forwarded == Forwarded::Yes {
            self.forwarded += 1;
        } else {
            frames.release(packet);
        }
    }

    /// Handles packets that arrived at another worker's queue.
    fn take_strays(&mut self, frames: &mut dyn Frames) -> usize {
        if !self.flows.is_shared() {
            return 0;
        }
        let strays = self.flows.collect(self.worker);
        for stray in &strays {
            let now = now();
            let outcome = self.stack.receive(now, &mut Memory(frames), stray.packet, stray.arrival_ns);
            if let Received::Stray(_) = outcome {
                self.stack.refuse(now, &Memory(frames), stray.packet);
            }
            frames.release(stray.packet);
        }
        strays.len()
    }

    /// Waits for at most `limit`, and reports what has come for watched descriptors.
    fn wait(&mut self, limit: Option<Duration>) -> Result<(), TransportError> {
        self.poller.wait(limit).map_err(|source| TransportError::System { what: "epoll_wait", source })?;
        if self.poller.ready().any(|name| name == WATCHED) {
            self.ready.push(Event::Woken);
        }
        Ok(())
    }

    /// As [`Self::poll_once`], and looks for what has come for watched descriptors.
    fn look(&mut self, frames: &mut dyn Frames) -> Result<bool, TransportError> {
        if !self.watched.is_empty() {
            self.wait(Some(Duration::ZERO))?;
        }
        Ok(self.poll_once(frames))
    }

    /// Takes packets and events; true if there were any.
    fn poll_once(&mut self, frames: &mut dyn Frames) -> bool {
        let mut found = self.take_packets(frames) + self.take_strays(frames) > 0;
        let now = now();
        if self.stack.deadline().is_some_and(|at| at <= now) {
            self.stack.handle_time(now, &mut Memory(frames));
            found = true;
        }
        self.note_flows();
        while let Some(event) = self.stack.poll_event() {
            self.report(frames, event);
        }
        if self.waker.take() {
            self.ready.push(Event::Woken);
        }
        self.ready.extend(std::iter::from_fn(|| self.write_back.collect()));
        found || !self.ready.is_empty()
    }

    fn note_flows(&mut self) {
        let (flows, worker) = (&self.flows, self.worker);
        self.stack.take_flow_changes(|change| match change {
            FlowChange::Here(tuple) => flows.begin(tuple, worker),
            FlowChange::Gone(tuple) => flows.end(tuple, worker),
        });
    }

    fn report(&mut self, frames: &mut dyn Frames, event: landfall_net::Event) {
        use landfall_net::Event as Net;
        let event = match event {
            Net::Accepted { conn, tag, remote } => {
                Event::Accepted { conn: ConnId(conn.0), listener: tag, peer: Some(remote) }
            }
            Net::Received { conn, extent, sum, arrival_ns } => {
                Event::Received { conn: ConnId(conn.0), extent: extent.with_sum(Some(sum)), arrival_ns }
            }
            Net::Writable { conn } => return self.report_sent(ConnId(conn.0)),
            Net::Eof { conn } => Event::Eof { conn: ConnId(conn.0) },
            Net::Ended { conn, how } => {
                self.report_sent(ConnId(conn.0));
                let error = (how != landfall_net::Ended::Closed).then(|| error_of(how));
                Event::Closed { conn: ConnId(conn.0), error }
            }
            Net::Datagram { extent, .. } => return frames.release(extent),
            Net::Connected { .. } => return,
        };
        self.ready.push(event);
    }

    fn report_sent(&mut self, conn: ConnId) {
        if let Some(index) = self.unreported.iter().position(|(other, _)| *other == conn) {
            let (conn, buffers) = self.unreported.swap_remove(index);
            self.ready.push(Event::Sent { conn, buffers });
        }
    }

    /// Warns once of a wrong setting at the sender.
    fn warn_of_partial_checksums(&mut self) {
        let count = self.stack.stats().dropped(Drop::PartialChecksum);
        if count > 0 && !self.partial_checksums_told {
            self.partial_checksums_told = true;
            tracing::warn!(
                packets = count,
                "packets arrive without their checksums, which the sender leaves to a network card that is not there: \
                 switch that off at the sender (ethtool -K INTERFACE tx off)"
            );
        }
    }

    fn remember_closed(&mut self, id: landfall_net::ConnId) {
        if self.stack.queued(id) == 0 {
            return;
        }
        self.closed.push(id);
        if self.closed.len() > self.closed_max {
            self.forget_closed();
            self.closed_max = CLOSED_MIN.max(2 * self.closed.len());
        }
    }

    fn forget_closed(&mut self) {
        let stack = &self.stack;
        self.closed.retain(|id| stack.queued(*id) > 0);
    }

    /// How long a stop may take in the current state.
    fn stop_limit(&mut self) -> Duration {
        self.forget_closed();
        if self.closed.is_empty() { STOP_IDLE_MAX } else { STOP_MAX }
    }

    /// The time limit of a wait.
    fn limit(&self, wait: Wait, begun: Instant) -> Option<Duration> {
        let left = wait.timeout.map(|timeout| timeout.saturating_sub(now().since(begun)));
        let deadline = self.stack.deadline().map(|at| at.since(now()));
        let starved = self.landing.is_starved().then_some(STARVED_RETRY);
        [left, deadline, starved].into_iter().flatten().min()
    }

    /// Polls, and then blocks, until something has happened or the time is over.
    fn wait_for_something(&mut self, frames: &mut dyn Frames, wait: Wait) -> Result<(), TransportError> {
        let begun = now();
        while self.ready.is_empty() {
            if self.busy_poll(frames, wait, begun)? {
                continue;
            }
            if wait.timeout.is_some_and(|timeout| now().since(begun) >= timeout) {
                return Ok(());
            }
            if self.spin.is_endless() {
                continue;
            }
            let limit = self.limit(wait, begun);
            let slept = now();
            self.wait(limit)?;
            if self.poll_once(frames) {
                self.spin.woke(now().since(slept));
                self.flush(frames).map_err(failed)?;
            }
            self.refill(frames);
        }
        Ok(())
    }

    /// Busy-polls for as long as that was useful lately; true if something was found.
    fn busy_poll(
        &mut self,
        frames: &mut dyn Frames,
        wait: Wait,
        begun: Instant,
    ) -> Result<bool, TransportError> {
        let span = self.spin.span().min(wait.timeout.unwrap_or(Duration::MAX));
        let started = now();
        loop {
            if self.look(frames)? {
                self.spin.found();
                if self.ready.is_empty() {
                    // Acknowledgements and the like are answered at once.
                    self.flush(frames).map_err(failed)?;
                    self.refill(frames);
                }
                return Ok(true);
            }
            let waited = now().since(started);
            if waited >= span || wait.timeout.is_some_and(|timeout| now().since(begun) >= timeout) {
                self.spin.gave_up();
                return Ok(false);
            }
            std::hint::spin_loop();
        }
    }

    /// Waits a little longer if there are too few events for a batch.
    fn linger(&mut self, frames: &mut dyn Frames, wait: Wait) {
        if wait.events_min <= 1 || wait.linger.is_zero() {
            return;
        }
        let begun = now();
        while self.ready.len() < wait.events_min as usize && now().since(begun) < wait.linger {
            self.poll_once(frames);
            std::hint::spin_loop();
        }
    }
}

fn now() -> Instant {
    Instant::from_nanos(monotonic_ns())
}

fn failed(error: XdpError) -> TransportError {
    TransportError::System { what: "AF_XDP", source: io::Error::other(error.to_string()) }
}

fn error_of(how: landfall_net::Ended) -> io::Error {
    use landfall_net::Ended;
    io::Error::from(match how {
        Ended::Reset => io::ErrorKind::ConnectionReset,
        Ended::Refused => io::ErrorKind::ConnectionRefused,
        Ended::TimedOut => io::ErrorKind::TimedOut,
        Ended::Aborted | Ended::Closed => io::ErrorKind::ConnectionAborted,
    })
}

impl Transport for PacketTransport {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn listen(&mut self, listener: std::net::TcpListener, tag: u32) -> Result<(), TransportError> {
        // The ports are served from the start; a kernel socket would answer as well.
        drop((listener, tag));
        Ok(())
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    fn watch(&mut self, descriptor: OwnedFd) -> io::Result<()> {
        self.poller.watch_edges_as(descriptor.as_raw_fd(), WATCHED)?;
        self.watched.push(descriptor);
        Ok(())
    }

    fn poll(
        &mut self,
        frames: &mut dyn Frames,
        wait: Wait,
        events: &mut Vec<Event>,
    ) -> Result<(), TransportError> {
        self.flush(frames).map_err(failed)?;
        self.refill(frames);
        for _ in 0..POLLS_MAX {
            if !self.look(frames)? || !self.ready.is_empty() {
                break;
            }
            self.flush(frames).map_err(failed)?;
            self.refill(frames);
        }
        let may_wait = wait.timeout.is_none_or(|timeout| !timeout.is_zero());
        if may_wait && self.ready.is_empty() {
            self.wait_for_something(frames, wait)?;
        }
        if may_wait && !self.ready.is_empty() {
            self.linger(frames, wait);
        }
        self.warn_of_partial_checksums();
        events.append(&mut self.ready);
        Ok(())
    }

    fn send(&mut self, frames: &mut dyn Frames, conn: ConnId, mut out: Outgoing) -> Option<Outgoing> {
        let id = landfall_net::ConnId(conn.0);
        for part in out.parts() {
            // An error means that the connection has ended, and its event follows.
            let _taken = match *part {
                Part::Bytes { start, end } => {
                    self.stack.send_bytes(id, &out.bytes[start as usize..end as usize])
                }
                Part::Stored(extent) => self.stack.send_stored(&mut Memory(frames), id, extent, extent.sum()),
            };
        }
        out.forget_parts();
        if self.stack.queued(id) == 0 || self.stack.is_writable(id) {
            return Some(out);
        }
        self.unreported.push((conn, out));
        None
    }

    fn lands_apart(&self) -> u64 {
        self.landing.chunk()
    }

    fn unsent(&self, conn: ConnId) -> Option<usize> {
        Some(self.stack.queued(landfall_net::ConnId(conn.0)))
    }

    fn pause(&mut self, conn: ConnId) {
        self.stack.pause(landfall_net::ConnId(conn.0));
    }

    fn resume(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.stack.resume(now(), &mut Memory(frames), landfall_net::ConnId(conn.0));
    }

    fn close(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        let id = landfall_net::ConnId(conn.0);
        self.stack.close(now(), &mut Memory(frames), id);
        self.remember_closed(id);
        self.report_sent(conn);
        self.ready.push(Event::Closed { conn, error: None });
    }

    fn reset(&mut self, frames: &mut dyn Frames, conn: ConnId) {
        self.stack.abort(now(), &mut Memory(frames), landfall_net::ConnId(conn.0));
        self.report_sent(conn);
        self.ready.push(Event::Closed { conn, error: None });
    }

    fn write_back(&mut self, id: u64, batch: Batch) {
        let poller = &mut self.poller;
        if let Err(error) = self.write_back.begin(id, batch, |descriptor| poller.watch_edges(descriptor)) {
            self.ready.push(Event::WrittenBack { id, outcome: Err(error) });
        }
    }

    fn write_back_now(&mut self, batch: &Batch) -> io::Result<()> {
        self.write_back.now(batch)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let passed_on = ("passed_on_packets", self.forwarded);
        let offload = Offload::counters(self.offload.as_ref());
        std::iter::once(passed_on).chain(offload).chain(counters(&self.stack, self.socket.as_ref())).collect()
    }

    fn shut_down(&mut self, frames: &mut dyn Frames) -> Result<(), TransportError> {
        // Peers get time to receive what was sent to them, and a little time to close; the remaining connections are
        // reset.
        let begun = now();
        while self.stack.counts().0 > 0 && now() < begun + self.stop_limit() {
            self.poll_once(frames);
            for event in self.ready.drain(..) {
                if let Event::Received { extent, .. } = event {
                    frames.release(extent);
                }
            }
            self.flush(frames).map_err(failed)?;
            self.refill(frames);
            std::thread::yield_now();
        }
        self.stack.end_all(now(), &mut Memory(frames));
        self.flush(frames).map_err(failed)?;
        self.write_back.end();
        self.socket = None;
        self.landing.clear(frames);
        self.departures.clear(frames);
        Ok(())
    }
}

/// Counters for `INFO` and `/metrics`.
fn counters(stack: &Stack, socket: Option<&Socket>) -> Vec<(&'static str, u64)> {
    let stats = stack.stats();
    let (connections, half_open, time_wait) = stack.counts();
    let mut out = vec![
        ("received_packets", stats.received),
        ("sent_packets", stats.sent),
        ("retransmitted_segments", stats.retransmitted),
        ("retransmission_timeouts", stats.timeouts),
        ("loss_recoveries", stats.recoveries),
        ("out_of_order_segments", stats.out_of_order),
        ("set_aside_bytes", stats.set_aside_bytes),
        ("syn_cookies_sent", stats.cookies_sent),
        ("syn_cookies_accepted", stats.cookies_accepted),
        ("challenge_acks", stats.challenges),
        ("connections", connections as u64),
        ("half_open", half_open as u64),
        ("time_wait", time_wait as u64),
        ("waiting_frames", stack.waiting_frames() as u64),
        ("waiting_bytes", stack.waiting_bytes() as u64),
    ];
    if let Some(kernel) = socket.and_then(|socket| socket.statistics().ok()) {
        out.push(("kernel_dropped_no_chunk", kernel.fill_ring_empty));
        out.push(("kernel_dropped_ring_full", kernel.rx_ring_full));
        out.push(("kernel_dropped_other", kernel.rx_dropped));
    }
    out.extend(DROPPED.into_iter().zip(stats.drops().map(|(_, count)| count)));
    out
}

/// Names of the reasons for dropped packets, in the order of [`landfall_net::DROPS`].
const DROPPED: [&str; landfall_net::DROPS.len()] = [
    "dropped_malformed",
    "dropped_protocol",
    "dropped_not_ours",
    "dropped_fragment",
    "dropped_ip_checksum",
    "dropped_checksum",
    "dropped_partial_checksum",
    "dropped_no_listener",
    "dropped_no_connection",
    "dropped_full",
    "dropped_syn",
    "dropped_reset",
    "dropped_out_of_window",
    "dropped_paws",
    "dropped_bad_ack",
    "dropped_duplicate",
    "dropped_too_much_waiting",
    "dropped_closed",
];
