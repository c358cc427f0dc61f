//! Test support: a device's log on a simulated medium, and packets for it.

#![allow(dead_code, reason = "each test file uses some of the helpers")]

use landfall_heap::{Heap, NewRegion};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, RUN_SIZE};
use landfall_pmnet::device::{Arrival, Device, DeviceConfig, Side, Verdict};
use landfall_pmnet::log::{Limits, Log};
use landfall_pmnet::wire::{Body, Packet};
use landfall_pmnet::{Flow, Identity, Instant};
use std::sync::Arc;
use std::time::Duration;

/// Length of the region: the smallest possible one.
pub const REGION: u64 = 32 * RUN_SIZE;

/// An empty formatted region.
pub fn blank(deferred: bool) -> Arc<SimMedia> {
    let media = SimMedia::new(REGION, SimOptions { deferred });
    let new = NewRegion { salt: [7; 16], hash_seed: 11, created_ms: 1 };
    landfall_heap::create(&*media, &new).unwrap();
    media
}

pub fn open(media: &Arc<SimMedia>, limits: Limits) -> Log {
    Log::open(Arc::clone(media) as Arc<dyn Media>, limits).unwrap().0
}

pub fn flow(client: u16) -> Flow {
    Flow {
        client: format!("10.0.0.1:{}", 40_000 + client).parse().unwrap(),
        server: "10.0.0.2:51000".parse().unwrap(),
    }
}

pub fn identity(client: u16, session: u16, seq: u32) -> Identity {
    Identity { flow: flow(client), session, seq }
}

/// An update's datagram. Its request is unique.
pub fn update(identity: &Identity, len: usize) -> Vec<u8> {
    let mut request = format!("{identity:?} ").into_bytes();
    request.resize(len.max(request.len()), b'x');
    Packet::new(identity.session, identity.seq, Body::Update(&request)).to_bytes()
}

/// Stores packets one after the other in a landing run of the heap, each in its own frames.
#[derive(Debug, Default)]
pub struct Landing {
    run: Option<(u64, u64)>,
}

impl Landing {
    /// Stores a packet and holds it.
    pub fn land(&mut self, heap: &Heap, bytes: &[u8]) -> Extent {
        let room = (bytes.len() as u64).next_multiple_of(2048);
        if self.run.is_none_or(|(_, used)| used + room > RUN_SIZE) {
            if let Some((run, _)) = self.run.take() {
                heap.retire_landing_run(run);
            }
            self.run = Some((heap.take_landing_run().expect("landing space"), 0));
        }
        let (run, used) = self.run.as_mut().unwrap();
        let extent = Extent::new(*run + *used, bytes.len() as u32);
        *used += room;
        heap.media().store(extent.off, bytes).unwrap();
        heap.runs().hold(extent);
        extent
    }
}

/// A device on a simulated medium with its own clock. Each test file adds its own helpers.
pub struct Bench {
    pub media: Arc<SimMedia>,
    pub device: Device,
    pub landing: Landing,
    pub now: Instant,
}

impl Bench {
    pub fn over(media: Arc<SimMedia>, config: DeviceConfig) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let device = Device::new(config, open(&media, Limits::default()), now);
        Self { media, device, landing: Landing::default(), now }
    }

    /// The device after a power failure.
    pub fn restarted(self, config: DeviceConfig) -> Self {
        Self::over(SimMedia::from_image(self.media.crash_image_seeded(5), SimOptions::default()), config)
    }

    /// A packet of a flow arrives on a side.
    pub fn arrive(&mut self, side: Side, Flow { client, server }: Flow, bytes: &[u8]) -> Verdict {
        let (from, to) = match side {
            Side::Clients => (client, server),
            Side::Server => (server, client),
        };
        let heap = Arc::clone(self.device.log().heap());
        let packet = self.landing.land(&heap, bytes);
        let arrival = Arrival { side, from, to, payload: bytes, packet, header_at: 0, arrival_ns: 1 };
        let verdict = self.device.handle(&arrival, self.now);
        heap.runs().release(packet);
        verdict
    }

    pub fn wait(&mut self, span: Duration) {
        self.now = self.now + span;
        self.device.handle_timeout(self.now);
    }
}
