//! Measures the time of a device's own instructions: the pipeline runs in this process, over a log on tmpfs, without a
//! network.

use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use landfall_media::{Extent, OpenOptions, RUN_SIZE};
use landfall_pmnet::device::{Arrival, Device, DeviceConfig, Side};
use landfall_pmnet::log::{Limits, Log};
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet};
use landfall_pmnet::{Flow, Instant};
use landfall_server::store::open_region;
use landfall_sim::pmnet::Landing;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant as Wall};

/// Packets of one round.
const PACKETS: u32 = 8_000;
/// Updates of a session; a device takes at most 4096.
const SESSION: u32 = 2_000;
const FRAME: u64 = 2048;
const REGION: u64 = 192 * RUN_SIZE;
/// Bytes of the headers in front of a packet: Ethernet, IPv4, UDP.
const HEADERS: usize = 42;

/// The cost of each stage, ns a packet. Each packet is the only one of its round.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Pipeline {
    /// An update is parsed, matched and logged.
    pub(crate) take: f64,
    /// The fence ends, and the acknowledgement is built.
    pub(crate) fence: f64,
    /// Another device's acknowledgement is parsed, matched, and joined with this device's own.
    /// 0 in reports from before this was measured separately: there, `look` is the cost of both.
    #[serde(default)]
    pub(crate) join: f64,
    /// A packet that is only sent on is parsed and matched.
    pub(crate) look: f64,
}

/// Measures a pipeline with updates of so many bytes, over a log in a separate folder in `place`.
pub(crate) fn measure(place: &Path, payload: usize) -> Result<Pipeline, BenchError> {
    let dir = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(place);
    let dir = dir.map_err(BenchError::file(place))?;
    let mut stage = Stage::open(dir.path(), payload)?;
    let mut sum = Pipeline::default();
    for number in 0..PACKETS {
        if number % SESSION == 0 {
            check_stop()?;
        }
        stage.update(number, &mut sum)?;
        stage.acknowledgement(number, &mut sum)?;
        stage.other(number, &mut sum)?;
    }
    let each = |ns: f64| ns / f64::from(PACKETS);
    Ok(Pipeline { take: each(sum.take), fence: each(sum.fence), join: each(sum.join), look: each(sum.look) })
}

struct Stage {
    device: Device,
    /// This device is the only one of its server.
    alone: Flow,
    /// The server has other devices, too.
    chained: Flow,
    request: Vec<u8>,
    landing: Landing,
    began: Wall,
}

impl Stage {
    fn open(dir: &Path, payload: usize) -> Result<Self, BenchError> {
        let (media, _) = open_region(dir, REGION, OpenOptions::default()).map_err(|error| failed(&error))?;
        let (log, _) = Log::open(media, Limits::default()).map_err(|error| failed(&error))?;
        log.heap().reserve_landing(1);
        // No timeout expires, however long this process takes between two packets.
        let keep_back = Duration::from_secs(1);
        let config = DeviceConfig {
            number: Some(0),
            keep_back,
            heartbeat_every: Duration::ZERO,
            ..DeviceConfig::default()
        };
        let device = Device::new(config, log, Instant::from_nanos(1));
        let [alone, chained] = [2, 3].map(|server| Flow {
            client: ([10, 0, 0, 1], 40_000).into(),
            server: ([10, 0, 0, server], 51_000).into(),
        });
        let (landing, began) = (Landing::default(), Wall::now());
        Ok(Self { device, alone, chained, request: vec![7; payload], landing, began })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Lands a packet as a network card would. It is held until it is released.
    fn land(&mut self, packet: &[u8]) -> Result<Extent, BenchError> {
        let frame = [&[0; HEADERS][..], packet].concat();
        let landed = self.landing.land(self.device.log().heap(), &frame, FRAME);
        landed.ok_or(BenchError::Nothing("a packet cannot land: the region is full"))
    }

    /// Measures the time that the device spends on a packet, ns.
    fn show(&mut self, (from, to): (SocketAddr, SocketAddr), packet: &[u8]) -> Result<f64, BenchError> {
        let at = self.land(packet)?;
        let now = self.now();
        let side = if from == self.alone.client { Side::Clients } else { Side::Server };
        let arrival =
            Arrival { side, from, to, payload: packet, packet: at, header_at: HEADERS, arrival_ns: 1 };
        let began = Wall::now();
        std::hint::black_box(self.device.handle(&arrival, now));
        let ns = began.elapsed().as_nanos() as f64;
        self.device.log().heap().runs().release(at);
        Ok(ns)
    }

    /// Measures the fence and the sending of what waited for it, ns. Also returns the number of packets sent.
    fn commit(&mut self) -> Result<(f64, usize), BenchError> {
        let began = Wall::now();
        self.device.commit().map_err(|error| failed(&error))?;
        let sent = std::iter::from_fn(|| self.device.poll_action()).count();
        Ok((began.elapsed().as_nanos() as f64, sent))
    }

    fn update(&mut self, number: u32, sum: &mut Pipeline) -> Result<(), BenchError> {
        self.start_session(self.alone, number)?;
        let Flow { client, server } = self.alone;
        let packet = self.packet(number);
        sum.take += self.show((client, server), &packet)?;
        let (fence, acknowledged) = self.commit()?;
        sum.fence += fence;
        if acknowledged == 0 {
            return Err(BenchError::Nothing("the pipeline acknowledges nothing"));
        }
        Ok(())
    }

    fn acknowledgement(&mut self, number: u32, sum: &mut Pipeline) -> Result<(), BenchError> {
        self.start_session(self.chained, number)?;
        let Flow { client, server } = self.chained;
        let packet = self.packet(number);
        self.show((client, server), &packet)?;
        self.commit()?;
        let (session, seq) = place(number);
        let mut other = Packet::new(session, seq, Body::PmnetAck);
        other.header.ack_count = 1;
        sum.join += self.show((server, client), &other.to_bytes())?;
        // The device learns of other devices from the first acknowledgement.
        if std::iter::from_fn(|| self.device.poll_action()).count() == 0 && number > 0 {
            return Err(BenchError::Nothing("the pipeline joins no acknowledgements"));
        }
        Ok(())
    }

    fn other(&mut self, number: u32, sum: &mut Pipeline) -> Result<(), BenchError> {
        let Flow { client, server } = self.alone;
        let (session, seq) = place(number);
        let packet = Packet::new(session, seq, Body::Other(&self.request)).to_bytes();
        sum.look += self.show((client, server), &packet)?;
        Ok(())
    }

    /// Shows the device that the server has accepted the session of a first update. A device keeps few other sessions.
    fn start_session(&mut self, Flow { client, server }: Flow, number: u32) -> Result<(), BenchError> {
        let (session, first_update) = place(number);
        if first_update == 1 {
            let started = Body::SessionStarted {
                nonce: 1,
                first_update,
                first_bypass: FIRST_BYPASS,
                incarnation: 1,
                lease: 0,
            };
            self.show((server, client), &Packet::new(session, 0, started).to_bytes())?;
        }
        Ok(())
    }

    fn packet(&self, number: u32) -> Vec<u8> {
        let (session, seq) = place(number);
        Packet::new(session, seq, Body::Update(&self.request)).to_bytes()
    }
}

/// Returns the session and the number of an update.
fn place(number: u32) -> (u16, u32) {
    ((number / SESSION) as u16, number % SESSION + 1)
}

fn failed(error: &dyn std::fmt::Display) -> BenchError {
    BenchError::Store(error.to_string())
}

#[cfg(test)]
#[allow(clippy::print_stderr, reason = "a test says what it skips")]
mod tests {
    use super::*;

    #[test]
    fn every_stage_takes_time_and_the_region_is_large_enough() {
        let place = Path::new("/dev/shm");
        if !place.is_dir() {
            eprintln!("SKIP: /dev/shm: there is none");
            return;
        }
        let Pipeline { take, fence, join, look } = measure(place, 1000).unwrap();
        assert!([take, fence, join, look].iter().all(|ns| *ns > 0.0), "{take} {fence} {join} {look}");
    }
}
