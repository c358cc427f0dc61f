//! The node of a device: a real [`Device`] with a real log on a simulated medium, and the frames in which packets land.

use super::costs::Core;
use super::datagram::{Datagram, Way};
use super::fabric::{Fabric, Happening};
use super::fault::Broken;
use crate::rng::Rng;
use crate::violation::Violation;
use landfall_heap::{Heap, NewRegion};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{Dirty, Extent, Media, RUN_SIZE, Site};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::device::{Action, Arrival, Device, DeviceConfig, DeviceStats, Side, Verdict, table};
use landfall_pmnet::log::{Keeper, Limits, Log};
use landfall_pmnet::wire::{Body, Header, Packet, kind};
use landfall_pmnet::{Identity, Instant, LogError};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Length of the region, bytes: the smallest that is allowed.
const REGION: u64 = 32 * RUN_SIZE;
/// Length of an Ethernet, an IPv4 and a UDP header, bytes.
const BELOW: usize = 42;

/// Settings of a device.
#[derive(Clone, Debug)]
pub struct DeviceSetup {
    /// Settings of the state machine. Number and incarnation are filled in.
    pub config: DeviceConfig,
    /// Limits of the log.
    pub limits: Limits,
    /// Fences are device I/O.
    pub deferred: bool,
    /// Packets are logged with the headers of lower layers, which are random.
    pub framed: bool,
    /// Distance of two frames, bytes: the larger, the sooner frames are reused.
    pub frame_bytes: u64,
    /// Longest time from a packet to its fence, and longest time of the fence, microseconds.
    pub fence_us: u64,
    /// Forward updates before they are logged, as all devices of a chain but the last do.
    pub forwards_first: bool,
    /// Forward packets that the state machine need not handle without it, as the kernel of a device on the wire does.
    pub passes: bool,
    /// Pause between two rounds of background work, microseconds.
    pub keep_us: u64,
}

/// The frames of a run that the heap has lent.
#[derive(Debug, Default)]
pub struct Landing {
    run: Option<(u64, u64)>,
}

impl Landing {
    /// Stores a packet and takes a reference to its frames. `None` if no run is free.
    pub fn land(&mut self, heap: &Heap, bytes: &[u8], frame: u64) -> Option<Extent> {
        let room = (bytes.len() as u64).next_multiple_of(frame);
        if self.run.is_none_or(|(_, used)| used + room > RUN_SIZE) {
            if let Some((run, _)) = self.run.take() {
                heap.retire_landing_run(run);
            }
            self.run = Some((heap.take_landing_run()?, 0));
        }
        let (run, used) = self.run.as_mut()?;
        let extent = Extent::new(*run + *used, bytes.len() as u32);
        *used += room;
        heap.media().store(extent.off, bytes).ok()?;
        heap.runs().hold(extent);
        Some(extent)
    }
}

#[derive(Debug)]
struct Running {
    device: Device,
    guard: Guard,
    keeper: Keeper,
    landing: Landing,
    /// The batch whose fence is under way.
    dirty: Option<Dirty>,
    /// A fence is scheduled.
    commits: bool,
    /// Packets that are forwarded after the acknowledgement.
    held: Vec<Datagram>,
}

/// A device, running or stopped.
pub(super) struct DeviceNode {
    number: usize,
    /// The device is the last one of the chain.
    last: bool,
    setup: DeviceSetup,
    key: Option<Key>,
    broken: Option<Broken>,
    media: Arc<SimMedia>,
    running: Option<Running>,
    /// The image that a crash has left.
    image: Option<CrashImage>,
    /// A crash in the middle of an operation is scheduled; the device will then be down for so long.
    armed: Option<Duration>,
    life: u64,
    /// Crashes in the middle of recovery.
    pub(super) recovery_crashes: u64,
    /// Counts of former lives.
    counts: DeviceCounts,
}

/// Counts of a device over all its lives.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceCounts {
    /// Updates that were sent again.
    pub(super) resent: u64,
    /// Updates that were not logged.
    pub(super) not_logged: u64,
    /// Packets that were held.
    pub(super) held: u64,
    /// Packets that were dropped because too many were held.
    pub(super) held_dropped: u64,
    /// Acknowledgements of other devices that were merged with the device's own.
    pub(super) joined: u64,
}

impl DeviceNode {
    /// Creates a device with an empty log.
    pub(super) fn new(
        (number, last): (usize, bool),
        setup: DeviceSetup,
        key: Option<Key>,
        broken: Option<Broken>,
        fabric: &mut Fabric,
    ) -> Result<Self, Violation> {
        let media = blank(&setup)?;
        let mut node = Self {
            number,
            last,
            setup,
            key,
            broken,
            media: Arc::clone(&media),
            running: None,
            image: None,
            armed: None,
            life: 0,
            recovery_crashes: 0,
            counts: DeviceCounts::default(),
        };
        node.run(media, fabric)?;
        Ok(node)
    }

    fn run(&mut self, media: Arc<SimMedia>, fabric: &mut Fabric) -> Result<(), Violation> {
        if let Some(Broken::DeviceSkips(site)) = self.broken {
            media.skip_site(site);
        }
        let (log, _) = Log::open(Arc::clone(&media) as Arc<dyn Media>, self.setup.limits)?;
        let keeper = log.keeper();
        let config = DeviceConfig {
            number: Some(self.number as u8),
            incarnation: fabric.rng.draw(),
            ..self.setup.config
        };
        let device = Device::new(config, log, fabric.now);
        self.running = Some(Running {
            device,
            guard: Guard::of(self.key.as_ref(), || fabric.rng.draw()),
            keeper,
            landing: Landing::default(),
            dirty: None,
            commits: false,
            held: Vec::new(),
        });
        (self.media, self.armed) = (media, None);
        self.life += 1;
        let keep = fabric.pause(1, self.setup.keep_us);
        fabric.after(keep, Happening::Keep { device: self.number, life: self.life });
        Ok(())
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Makes the read cache wait at each start until the other devices have sent the updates in their logs to the
    /// server.
    fn replace(&mut self) {
        let wait = self.setup.config.resend_pause_max;
        if let Some(cache) = &mut self.setup.config.cache {
            cache.replacement_wait = cache.packet_life + wait;
        }
    }

    /// The updates in the device's log.
    pub(super) fn identities(&self) -> Vec<Identity> {
        self.running.as_ref().map_or_else(Vec::new, |running| running.device.log().identities(|_| true))
    }

    pub(super) fn stats(&self) -> Option<&DeviceStats> {
        self.running.as_ref().map(|running| running.device.stats())
    }

    /// Counts over all lives of the device.
    pub(super) fn counts(&self) -> DeviceCounts {
        let mut counts = self.counts;
        if let Some(stats) = self.stats() {
            counts.resent += stats.resent;
            counts.not_logged += stats.not_logged.values().sum::<u64>();
            counts.held += stats.held;
            counts.held_dropped += stats.held_dropped;
            counts.joined += stats.joined;
        }
        counts
    }

    // ---- faults ----

    /// Schedules a crash in the middle of an operation: after so many more stores, flushes and fences.
    pub(super) fn arm(&mut self, ahead: u64, down: Duration) {
        if self.running.is_some() {
            self.media.freeze_at(self.media.ops().total() + ahead);
            self.armed = Some(down);
        }
    }

    /// The downtime after a scheduled crash, if there is one.
    pub(super) fn armed(&self) -> Option<Duration> {
        self.armed
    }

    /// Makes the next fence fail.
    pub(super) fn fail_next_fence(&mut self) {
        self.media.fail_at(self.media.ops().fences + 1);
    }

    /// True if the medium is closed after a failed fence.
    pub(super) fn is_closed(&self) -> bool {
        self.running.is_some() && self.media.closed().is_some()
    }

    /// Ignores an error if the medium has failed before.
    fn ignore_if_closed(&self, outcome: Result<(), LogError>) -> Result<(), Violation> {
        match outcome {
            Err(_) if self.is_closed() => Ok(()),
            other => Ok(other?),
        }
    }

    /// True if the moment of a scheduled crash has passed. No packet leaves the device after it.
    pub(super) fn is_frozen(&self) -> bool {
        self.armed.is_some() && self.media.frozen().is_some()
    }

    /// Crashes the device, and keeps one of the images that the crash may leave.
    pub(super) fn crash(&mut self, fabric: &mut Fabric) {
        if self.running.is_some() {
            let state = self.media.frozen().filter(|_| self.armed.is_some());
            let state = state.unwrap_or_else(|| self.media.crash_state());
            self.image = Some(state.draw(fabric.rng.draw()));
            self.stop();
        }
    }

    /// Removes the device with its log.
    pub(super) fn lose(&mut self) {
        self.stop();
        self.image = None;
        self.replace();
    }

    fn stop(&mut self) {
        self.counts = self.counts();
        (self.running, self.armed) = (None, None);
        self.life += 1;
    }

    /// Starts the device from the image that the crash has left, or as a new device with an empty log.
    pub(super) fn start(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        if self.running.is_some() {
            return Ok(());
        }
        let Some(mut image) = self.image.take() else { return self.run(blank(&self.setup)?, fabric) };
        if fabric.rng.one_in(5) {
            image = self.crash_recovery(&image, fabric)?;
        }
        let media = SimMedia::restart(&image, options(&self.setup));
        self.run(media, fabric)
    }

    fn crash_recovery(&mut self, image: &CrashImage, fabric: &mut Fabric) -> Result<CrashImage, Violation> {
        let media = SimMedia::restart(image, options(&self.setup));
        media.freeze_at(1 + fabric.rng.below(20));
        let _ = Log::open(Arc::clone(&media) as Arc<dyn Media>, self.setup.limits)?;
        self.recovery_crashes += 1;
        let state = media.frozen().unwrap_or_else(|| media.crash_state());
        Ok(state.draw(fabric.rng.draw()))
    }

    // ---- events ----

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.running.as_ref()?.device.next_timeout()
    }

    pub(super) fn handle_timeout(&mut self, fabric: &mut Fabric) {
        let Some(running) = &mut self.running else { return };
        running.device.handle_timeout(fabric.now);
        self.act(fabric);
    }

    /// Handles a packet that arrives from one of the device's sides.
    pub(super) fn handle(&mut self, way: Way, datagram: Datagram, fabric: &mut Fabric) {
        if self.running.is_none() || !datagram.is_sound() {
            return;
        }
        if self.broken == Some(Broken::LogsDenied) && datagram.payload.first() == Some(&kind::RECOVER) {
            return self.deny(&datagram, fabric);
        }
        let sees_bypasses = self.setup.config.sees_bypasses();
        if self.setup.passes && !table::is_delivered(&datagram.payload, sees_bypasses) {
            return self.send(way, datagram, fabric);
        }
        let first = self.forwards_first(way, &datagram);
        if first {
            self.send(way, datagram.clone(), fabric);
            fabric.enter(Core::Device(self.number), |costs| costs.take);
        }
        let Some(running) = &mut self.running else { return };
        let verdict = running.take(&self.setup, self.broken, (way, &datagram), fabric);
        if self.is_frozen() {
            return;
        }
        match self.running.as_mut().filter(|running| self.last && running.device.wants_commit()) {
            // With a cost model, the last device forwards after its acknowledgement: only the server waits for what it
            // forwards.
            Some(running) if way == Way::Up && fabric.cores.is_some() && verdict == Verdict::Forward => {
                running.held.push(datagram);
            }
            _ if verdict == Verdict::Forward && !first => self.send(way, datagram, fabric),
            _ => {}
        }
        self.act(fabric);
    }

    /// Answers a server's request as if the log had no updates of the session.
    fn deny(&self, asked: &Datagram, fabric: &mut Fabric) {
        let Ok(header) = Header::parse(&asked.payload) else { return };
        let bytes = Packet::new(header.session, header.seq, Body::Other(b"")).to_bytes();
        self.send(Way::Up, Datagram::new(asked.to, asked.from, bytes), fabric);
    }

    /// True if the device forwards a packet before it logs the packet.
    pub(super) fn forwards_first(&self, way: Way, datagram: &Datagram) -> bool {
        self.setup.forwards_first
            && !self.last
            && way == Way::Up
            && table::is_always_forwarded(&datagram.payload)
    }

    fn send(&self, way: Way, datagram: Datagram, fabric: &mut Fabric) {
        let hop = if way == Way::Up { self.number + 1 } else { self.number };
        fabric.send(hop, way, datagram);
    }

    /// Sends the packets that the device has queued, and schedules a fence if updates wait for one.
    fn act(&mut self, fabric: &mut Fabric) {
        while let Some(action) = self.running.as_mut().and_then(|running| running.device.poll_action()) {
            if let Some((way, datagram)) = self.datagram(fabric.now, action)
                && !self.is_frozen()
            {
                self.send(way, datagram, fabric);
            }
        }
        let Some(running) = &mut self.running else { return };
        if running.device.wants_commit() && !running.commits && running.dirty.is_none() {
            running.commits = true;
            let delay = fabric.done_in().unwrap_or_else(|| fabric.pause(0, self.setup.fence_us));
            fabric.after(delay, Happening::Commit { device: self.number, life: self.life });
        }
    }

    fn sealed(
        &mut self,
        now: Instant,
        towards: Side,
        (from, to): (SocketAddr, SocketAddr),
        mut payload: Vec<u8>,
    ) -> Datagram {
        if let Some(running) = &mut self.running {
            running.guard.seal(Ends::of(towards, from, to), now.nanos(), &mut payload);
        }
        Datagram::new(from, to, payload)
    }

    fn datagram(&mut self, now: Instant, action: Action) -> Option<(Way, Datagram)> {
        let device = &mut self.running.as_mut()?.device;
        match action {
            Action::Datagram { towards, from, to, payload } => {
                let way = if towards == Side::Server { Way::Up } else { Way::Down };
                Some((way, self.sealed(now, towards, (from, to), payload)))
            }
            Action::Logged { identity, stored } => {
                let bytes = device.log().bytes_of(&stored).ok()?;
                device.sent(&stored);
                let payload = bytes[stored.header_at..].to_vec();
                let ends = (identity.flow.client, identity.flow.server);
                Some((Way::Up, self.sealed(now, Side::Server, ends, payload)))
            }
        }
    }

    /// Begins a fence.
    pub(super) fn begin(&mut self, life: u64, fabric: &mut Fabric) -> Result<(), Violation> {
        let Some(running) = self.running.as_mut().filter(|_| life == self.life) else { return Ok(()) };
        running.commits = false;
        running.dirty = running.device.begin_commit();
        if running.dirty.is_none() {
            return Ok(());
        }
        if self.broken == Some(Broken::DeviceAcksEarly) {
            running.dirty = None;
            running.device.finish_commit(Ok(()))?;
            self.act(fabric);
            return Ok(());
        }
        fabric.enter(Core::Device(self.number), |costs| costs.fence);
        let delay = fabric.done_in().unwrap_or_else(|| fabric.pause(1, self.setup.fence_us));
        fabric.after(delay, Happening::Fence { device: self.number, life: self.life });
        Ok(())
    }

    /// Ends a fence. The device acknowledges the updates that the fence covers.
    pub(super) fn finish(&mut self, life: u64, fabric: &mut Fabric) -> Result<(), Violation> {
        let Some(running) = self.running.as_mut().filter(|_| life == self.life) else { return Ok(()) };
        let Some(mut dirty) = running.dirty.take() else { return Ok(()) };
        let outcome = self.media.fence(&mut dirty, Site::Commit);
        let finished = running.device.finish_commit(outcome);
        let held = std::mem::take(&mut running.held);
        fabric.enter(Core::Device(self.number), |_| Duration::ZERO);
        self.act(fabric);
        held.into_iter().for_each(|datagram| self.send(Way::Up, datagram, fabric));
        self.ignore_if_closed(finished)
    }

    /// Executes a step of background work.
    pub(super) fn keep(&mut self, life: u64, fabric: &mut Fabric) -> Result<(), Violation> {
        let Some(running) = self.running.as_mut().filter(|_| life == self.life) else { return Ok(()) };
        let kept = running.keeper.step().map(|_| ());
        let delay = fabric.pause(1, self.setup.keep_us);
        fabric.after(delay, Happening::Keep { device: self.number, life: self.life });
        self.ignore_if_closed(kept)
    }
}

impl Running {
    /// Lands a packet and passes it to the device. If no frame is free or the seal is wrong, the packet is forwarded
    /// without being handled.
    fn take(
        &mut self,
        setup: &DeviceSetup,
        broken: Option<Broken>,
        (way, datagram): (Way, &Datagram),
        fabric: &mut Fabric,
    ) -> Verdict {
        if broken == Some(Broken::RefusalsUnheard) && datagram.payload.first() == Some(&kind::SESSION_REFUSED)
        {
            return Verdict::Forward;
        }
        let side = side(broken, way, datagram);
        let towards = if way == Way::Up { Side::Server } else { Side::Clients };
        let ends = Ends::of(towards, datagram.from, datagram.to);
        let payload = match self.guard.open(ends, fabric.now.nanos(), &datagram.payload) {
            Ok(payload) => payload,
            Err(_) if broken == Some(Broken::SealsUnchecked) => &datagram.payload,
            Err(_) => return self.device.unseen(side),
        };
        let mut bytes = Vec::new();
        if setup.framed {
            bytes.extend((0..BELOW).map(|_| fabric.rng.draw() as u8));
        }
        let header_at = bytes.len();
        bytes.extend_from_slice(payload);
        let heap = Arc::clone(self.device.log().heap());
        let Some(packet) = self.landing.land(&heap, &bytes, setup.frame_bytes) else {
            return self.device.unseen(side);
        };
        let arrival = Arrival {
            side,
            from: datagram.from,
            to: datagram.to,
            payload,
            packet,
            header_at,
            arrival_ns: fabric.now.nanos(),
        };
        let verdict = self.device.handle(&arrival, fabric.now);
        heap.runs().release(packet);
        verdict
    }
}

/// The side that a packet comes from. With the fault [`Broken::SidesConfused`], the side that its type belongs to.
fn side(broken: Option<Broken>, way: Way, datagram: &Datagram) -> Side {
    let came_in = if way == Way::Up { Side::Clients } else { Side::Server };
    let kind = datagram.payload.first().copied().unwrap_or_default();
    match broken {
        Some(Broken::SidesConfused) if !table::matching(kind).ingress.counts_from(came_in) => {
            came_in.across()
        }
        _ => came_in,
    }
}

fn options(setup: &DeviceSetup) -> SimOptions {
    SimOptions { deferred: setup.deferred }
}

/// A formatted, empty region.
fn blank(setup: &DeviceSetup) -> Result<Arc<SimMedia>, Violation> {
    let media = SimMedia::new(REGION, options(setup));
    let new = NewRegion { salt: [7; 16], hash_seed: 11, created_ms: 1 };
    landfall_heap::create(&*media, &new)?;
    Ok(media)
}

/// Number of media operations until a crash: often few, so that it hits the middle of a packet or a fence.
pub(super) fn ahead(rng: &mut Rng) -> u64 {
    1 + if rng.one_in(2) { rng.below(12) } else { rng.below(300) }
}
