//! A seeded campaign over PMNet: a system and its faults are drawn from the seed, and in the end the oracle judges.

use super::client::Workload;
use super::codec::SimCodec;
use super::device::DeviceSetup;
use super::fabric::Faults;
use super::fault::{Broken, Fault};
use super::oracle::Promise;
use super::server::ServerSetup;
use super::setup::{PmnetSummary, Setup};
use super::world::PmnetWorld;
use crate::rng::Rng;
use crate::violation::Violation;
use landfall_pmnet::Dialect;
use landfall_pmnet::auth::Key;
use landfall_pmnet::cache;
use landfall_pmnet::client::ClientConfig;
use landfall_pmnet::device::{CacheConfig, DeviceConfig, LinearizableConfig};
use landfall_pmnet::log::Limits;
use landfall_pmnet::server::{ServerConfig, Silence};
use std::time::Duration;

/// Longest time until the system must be idle after faults have ended.
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// Longest time that a packet is under way: four hops, with a delay of 20 ms on each.
const PACKET_LIFE: Duration = Duration::from_millis(100);
/// Added to seeds of campaigns with foreign clients, so that they differ from the other campaigns.
const FOREIGN_SEEDS: u64 = 0xF0E1;
/// Most crashes of devices in one run. They are few, because each copies a region three times.
const DEVICE_CRASHES_MAX: usize = 3;

/// A campaign drawn from one seed.
pub struct PmnetCampaign;

impl PmnetCampaign {
    /// Runs the campaign of `seed`, with the built-in fault `broken`, if any.
    ///
    /// # Errors
    /// The first thing that the rules do not allow.
    pub fn run(seed: u64, broken: Option<Broken>) -> Result<PmnetSummary, Violation> {
        let mut draw = Draw { rng: Rng::new(seed) };
        let devices = match broken {
            Some(_) => 1,
            None => draw.rng.between(0, 3),
        };
        let span = Duration::from_millis(draw.rng.between(20, 1500) as u64);
        let mut setup = draw.setup(devices, span, broken);
        let lasts = if broken.is_none() && draw.rng.one_in(4) {
            draw.silence(devices, span, &mut setup)
        } else {
            Duration::ZERO
        };
        let shape = format!("{:?}", (devices, &setup.clients, &setup.server, &setup.links, &setup.client));
        let world = PmnetWorld::new(setup)?;
        Self::play(world, span + lasts).map_err(|violation| Violation(format!("{violation}\n{shape}")))
    }

    /// Runs the campaign of `seed` with clients of the authors' release beside ours.
    ///
    /// # Errors
    /// The first thing that the rules do not allow.
    pub fn run_foreign(seed: u64, broken: Option<Broken>) -> Result<PmnetSummary, Violation> {
        let mut draw = Draw { rng: Rng::new(seed ^ FOREIGN_SEEDS) };
        let devices = if broken.is_some() { 1 } else { draw.rng.between(0, 1) };
        let span = Duration::from_millis(draw.rng.between(20, 1500) as u64);
        let mut setup = draw.setup(devices, span, broken);
        draw.make_foreign(&mut setup);
        let shape = format!("{:?}", (devices, &setup.clients, &setup.server, &setup.links, &setup.client));
        let world = PmnetWorld::new(setup)?;
        Self::play(world, span).map_err(|violation| Violation(format!("{violation}\n{shape}")))
    }

    fn play(mut world: PmnetWorld, span: Duration) -> Result<PmnetSummary, Violation> {
        if let Err(violation) = world.run_for(span) {
            return Err(world.explain(violation));
        }
        world.finish(SETTLE_MAX)
    }
}

fn key() -> Option<Key> {
    Key::from_hex("000102030405060708090a0b0c0d0e0f")
}

/// Draws the settings of a system.
struct Draw {
    rng: Rng,
}

impl Draw {
    fn setup(&mut self, devices: usize, span: Duration, broken: Option<Broken>) -> Setup {
        let mtu = self.pick(&[200, 576, 1500]);
        let clients = self.rng.between(1, 4);
        let replicas = self.rng.between(0, 2);
        let mut setup = Setup {
            seed: self.rng.draw(),
            clients: (0..clients).map(|_| self.workload(span)).collect(),
            client: self.client(devices as u8, mtu),
            devices: (0..devices).map(|_| self.device(broken)).collect(),
            server: self.server(replicas, mtu),
            links: (0..=devices).map(|_| [self.link(), self.link()]).collect(),
            key: self.key(broken),
            faults: self.faults((clients, devices, replicas), span, broken.is_some()),
            promise: Promise::Applied,
            broken,
            costs: None,
        };
        self.promise(&mut setup);
        setup
    }

    /// In some runs, keys must be linearizable: every device handles all packets, and logs updates before it forwards
    /// them.
    fn promise(&mut self, setup: &mut Setup) {
        let is_wanted = match setup.broken {
            Some(broken) => broken == Broken::NothingHeld,
            None => self.rng.one_in(3) && !setup.devices.is_empty(),
        };
        if !is_wanted {
            return;
        }
        setup.promise = Promise::Linearizable;
        let hold_max = Duration::from_millis(self.pick(&[3, 50, 250]));
        let order =
            LinearizableConfig { hold_max, packet_life: PACKET_LIFE, codec: SimCodec::of(setup.broken) };
        for device in &mut setup.devices {
            device.forwards_first = false;
            device.config.linearizable = (setup.broken != Some(Broken::NothingHeld)).then_some(order);
        }
    }

    /// Makes one client or more foreign, and lets device and server accept them.
    fn make_foreign(&mut self, setup: &mut Setup) {
        for (at, workload) in setup.clients.iter_mut().enumerate() {
            if at == 0 || !self.rng.one_in(3) {
                (workload.foreign, workload.long) = (true, 0);
            }
        }
        setup.key = None;
        setup.server.config.foreign = true;
        setup.server.config.sessions_max = self.pick(&[12, 1000, 1000]);
        for device in &mut setup.devices {
            device.config.dialect = Dialect::ForeignClients;
            if device.config.cache.is_some() {
                for faults in setup.links.iter_mut().flatten() {
                    (faults.doubled, faults.late) = (0, 0);
                }
            }
        }
    }

    /// In some runs, there is a key. Not in all, because seals reject late copies of bypasses, so that faults which
    /// show only through such copies are caught only in runs without a key.
    fn key(&mut self, broken: Option<Broken>) -> Option<Key> {
        let is_keyed = match broken {
            Some(broken) => broken == Broken::SealsUnchecked,
            None => self.rng.one_in(2),
        };
        is_keyed.then(key).flatten()
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.below(from.len() as u64) as usize]
    }

    fn millis(&mut self, low: usize, high: usize) -> Duration {
        Duration::from_millis(self.rng.between(low, high) as u64)
    }

    fn workload(&mut self, span: Duration) -> Workload {
        let requests = self.rng.between(5, 60) as u64;
        let fair = 2 * span.as_micros() as u64 / requests;
        Workload {
            requests,
            session_requests: self.pick(&[4, 20, 1000]),
            pause_us: self.pick(&[fair, fair, fair / 10 + 1, 50]),
            keys: self.pick(&[1, 2, 4]),
            bypasses: self.pick(&[0, 10, 40, 70]),
            gets: self.pick(&[40, 90]),
            long: self.pick(&[0, 10, 50]),
            pad_max: self.pick(&[600, 6000]),
            foreign: false,
        }
    }

    fn client(&mut self, devices: u8, mtu: u16) -> ClientConfig {
        ClientConfig {
            devices,
            mtu,
            window: self.pick(&[1, 4, 32, 256]),
            requests_max: self.pick(&[1, 2, 16, 64]),
            timeout_start: Duration::from_millis(self.pick(&[1, 5, 50])),
            timeout_max: Duration::from_millis(self.pick(&[20, 200, 1000])),
            ..ClientConfig::default()
        }
    }

    fn cache(&mut self, broken: Option<Broken>) -> Option<CacheConfig> {
        let is_broken = broken.is_some_and(Broken::is_in_caches);
        let is_on = self.rng.one_in(2) || is_broken;
        let limits = cache::Limits {
            entries_max: self.pick(&[1, 3, 100]),
            bytes_max: self.pick(&[100, 4096, 1 << 20]),
            updates_max: self.pick(&[2, 65_536, 65_536]),
            reads_max: self.pick(&[1, 4096]),
            touching_max: self.pick(&[1, 4096, 4096]),
            sessions_max: self.pick(&[2, 65_536, 65_536]),
            ..cache::Limits::default()
        };
        let packet_life = self.pick(&[PACKET_LIFE, 4 * PACKET_LIFE]);
        let config = CacheConfig { limits, packet_life, ..CacheConfig::new(SimCodec::of(broken)) };
        is_on.then_some(config)
    }

    fn device(&mut self, broken: Option<Broken>) -> DeviceSetup {
        let config = DeviceConfig {
            resend_after: Duration::from_millis(self.pick(&[2, 10, 100])),
            resend_pause_max: Duration::from_millis(self.pick(&[50, 5000])),
            resend_window: self.pick(&[8, 256]),
            heartbeat_every: Duration::from_millis(self.pick(&[0, 5, 100])),
            heartbeats_missed_max: self.pick(&[1, 3]),
            cache: self.cache(broken),
            keep_back: Duration::from_micros(self.pick(&[0, 5, 1000, 1_000_000])),
            ..DeviceConfig::default()
        };
        let limits = Limits {
            entries_max: self.pick(&[4, 64, 1 << 20, 1 << 20]),
            session_entries_max: self.pick(&[3, 4096, 4096]),
            queue_max: self.pick(&[2, 1024, 1024]),
            sessions_max: self.pick(&[2, 1 << 16]),
            ..Limits::default()
        };
        DeviceSetup {
            config,
            limits,
            deferred: self.rng.one_in(2),
            framed: self.rng.one_in(2),
            frame_bytes: self.pick(&[2048, 65536]),
            fence_us: self.pick(&[1, 50, 2000]),
            forwards_first: self.rng.one_in(2),
            passes: self.rng.one_in(2),
            keep_us: self.pick(&[500, 20_000]),
        }
    }

    fn server(&mut self, replicas: usize, mtu: u16) -> ServerSetup {
        let config = ServerConfig {
            mtu,
            reorder_max: self.pick(&[64, 4096]),
            sessions_max: self.pick(&[8, 12, 1000]),
            retransmit_max: self.millis(5, 1000),
            recover_after: self.millis(1, 50),
            recover_max: Duration::from_secs(self.pick(&[1, 30])),
            retry_after: self.millis(1, 100),
            responses_kept: self.pick(&[1, 64]),
            responses_bytes_max: self.pick(&[100, 4 << 20]),
            buffered_bytes_max: self.pick(&[8000, 256 << 20, 256 << 20]),
            ..ServerConfig::default()
        };
        ServerSetup {
            config,
            replicas,
            batches_max: self.rng.between(1, 4),
            batch_max: self.pick(&[1, 4, 64]),
            store_us: self.pick(&[10, 300, 5000]),
            refuses: self.pick(&[0, 0, 10]),
        }
    }

    /// One direction of a hop. One of eight has no faults.
    fn link(&mut self) -> Faults {
        if self.rng.one_in(8) {
            return Faults::default();
        }
        Faults {
            loss: self.pick(&[0, 1, 5, 15, 30]),
            doubled: self.pick(&[0, 2, 20]),
            late: self.pick(&[0, 5, 40]),
            late_us: self.pick(&[100, 1000, 20_000]),
            damaged: self.pick(&[0, 1, 10]),
        }
    }

    /// Makes silent sessions end, and cuts a part of the system off for about as long as a silence. Returns how much
    /// longer the run must last.
    fn silence(&mut self, devices: usize, span: Duration, setup: &mut Setup) -> Duration {
        let after = Duration::from_secs(self.pick(&[4, 8]));
        setup.server.config.silence = Some(Silence { devices: devices as u8, after });
        let lasts = after / 2 + self.millis(0, 12_000);
        for _ in 0..self.rng.between(0, 2) {
            let (hop, (up, down)) = (
                self.rng.between(0, devices),
                self.pick(&[(true, true), (true, true), (true, false), (false, true)]),
            );
            let begin = Duration::from_micros(self.rng.below(span.as_micros() as u64));
            setup.faults.push((begin, Fault::Partition { hop, up, down, lasts }));
        }
        lasts + after
    }

    fn faults(
        &mut self,
        (clients, devices, replicas): (usize, usize, usize),
        span: Duration,
        is_broken: bool,
    ) -> Vec<(Duration, Fault)> {
        let mut faults = Vec::new();
        if devices > 0 {
            for _ in 0..self.rng.between(0, DEVICE_CRASHES_MAX) {
                let device = self.rng.below(devices as u64) as usize;
                let (down, inside) = (self.millis(1, 60), !self.rng.one_in(3));
                faults.push(Fault::DeviceCrash { device, down, inside });
            }
            if self.rng.one_in(6) {
                let device = self.rng.below(devices as u64) as usize;
                faults.push(Fault::MediumFails { device, down: self.millis(1, 100) });
            }
        }
        // At least one device of a chain is never lost, so that acknowledged updates must survive.
        if devices > 1 && self.rng.one_in(3) {
            let first = self.rng.below(devices as u64) as usize;
            for at in 0..self.rng.between(1, devices - 1) {
                faults.push(Fault::DeviceLoss { device: (first + at) % devices, down: self.millis(1, 60) });
            }
        }
        for _ in 0..self.rng.below(4) {
            faults.push(Fault::ServerCrash { down: self.millis(1, 100) });
        }
        if replicas > 0 {
            for _ in 0..self.rng.below(3) {
                let replica = self.rng.below(replicas as u64) as usize;
                let (down, wiped) = (self.millis(1, 100), self.rng.one_in(3));
                faults.push(Fault::ReplicaCrash { replica, down, wiped });
            }
            if self.rng.one_in(4) {
                faults.push(Fault::ServerLoss { down: self.millis(1, 100) });
            }
        }
        for _ in 0..self.rng.below(3) {
            faults.push(Fault::ClientCrash { client: self.rng.below(clients as u64) as usize });
        }
        for _ in 0..self.rng.below(3) {
            faults.push(Fault::Forgery { client: self.rng.below(clients as u64) as usize });
        }
        for _ in 0..self.rng.below(3) {
            faults.push(Fault::Junk { client: self.rng.below(clients as u64) as usize });
        }
        for _ in 0..self.rng.below(4) {
            let hop = self.rng.between(0, devices);
            let (up, down) = self.pick(&[(true, true), (true, false), (false, true)]);
            faults.push(Fault::Partition { hop, up, down, lasts: self.millis(1, 200) });
        }
        let micros = span.as_micros() as u64;
        let at = |fault| (Duration::from_micros(self.rng.below(micros)), fault);
        let mut faults: Vec<_> = faults.into_iter().map(at).collect();
        if devices > 0 && (is_broken || self.rng.one_in(3)) {
            self.disaster(clients, devices, span, &mut faults);
        }
        faults
    }

    /// Updates do not reach the server for a while. Then all devices and all clients crash, so that only the logs have
    /// the updates.
    fn disaster(
        &mut self,
        clients: usize,
        devices: usize,
        span: Duration,
        faults: &mut Vec<(Duration, Fault)>,
    ) {
        let begin = Duration::from_micros(self.rng.below(span.as_micros() as u64 / 2));
        let lasts = span / 4;
        faults.push((begin, Fault::Partition { hop: devices, up: true, down: false, lasts }));
        let crash = begin + lasts * 3 / 4;
        for device in 0..devices {
            let inside = self.rng.one_in(2);
            faults.push((crash, Fault::DeviceCrash { device, down: self.millis(1, 20), inside }));
        }
        for client in 0..clients {
            faults.push((crash - Duration::from_micros(500), Fault::Forgery { client }));
            let late = Duration::from_micros(self.rng.below(500));
            faults.push((crash + late, Fault::ClientCrash { client }));
        }
    }
}
