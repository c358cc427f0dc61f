//! A client, a device and a server in one process, which passes their packets between them. The device acknowledges an
//! update before the server has received it, and sends the update again, because the first copy is lost.
//!
//! `cargo run -p landfall-pmnet --example in_network_log`

#![allow(clippy::print_stdout, reason = "an example prints its steps")]

use landfall_heap::NewRegion;
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, RUN_SIZE};
use landfall_pmnet::client::Event;
use landfall_pmnet::device::{Action, Arrival, Device, DeviceConfig, Side, Verdict};
use landfall_pmnet::log::{Limits, Log};
use landfall_pmnet::{Client, ClientConfig, Flow, Instant, Server, ServerConfig, Work};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

struct Path {
    flow: Flow,
    device: Device,
    landed: u64,
    now: Instant,
}

impl Path {
    /// Gives a packet to the device. True if the device forwards it.
    fn pass(&mut self, to_server: bool, payload: &[u8]) -> Result<bool, Box<dyn Error>> {
        let heap = Arc::clone(self.device.log().heap());
        let packet = Extent::new(self.landed, payload.len() as u32);
        self.landed += 2048;
        heap.media().store(packet.off, payload)?;
        heap.runs().hold(packet);
        let Flow { client, server } = self.flow;
        let (side, from, to) =
            if to_server { (Side::Clients, client, server) } else { (Side::Server, server, client) };
        let arrival = Arrival { side, from, to, payload, packet, header_at: 0, arrival_ns: 0 };
        let verdict = self.device.handle(&arrival, self.now);
        heap.runs().release(packet);
        self.device.commit()?;
        Ok(verdict == Verdict::Forward)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut now = Instant::from_nanos(1);
    let flow = Flow { client: "10.0.0.1:40000".parse()?, server: "10.0.0.2:51000".parse()? };
    let media = SimMedia::new(32 * RUN_SIZE, SimOptions::default());
    landfall_heap::create(&*media, &NewRegion { salt: [1; 16], hash_seed: 2, created_ms: 0 })?;
    let (log, _) = Log::open(media, Limits::default())?;
    let landed = log.heap().take_landing_run().ok_or("landing space")?;
    let config = DeviceConfig { number: Some(0), heartbeat_every: Duration::ZERO, ..DeviceConfig::default() };
    let mut path = Path { flow, device: Device::new(config, log, now), landed, now };
    let mut client = Client::new(ClientConfig { devices: 1, ..ClientConfig::default() }, 7, 1234, now);
    let mut server = Server::new(ServerConfig::default(), 99, [], 0, now);
    client.update(b"the first update", now)?;
    // The network loses the first copy of each update behind the device.
    let (mut lost, mut applied) = (0, false);
    while !applied {
        while let Some(packet) = client.poll_transmit() {
            if path.pass(true, &packet)? {
                match landfall_pmnet::wire::Header::parse(&packet)?.kind {
                    landfall_pmnet::wire::kind::UPDATE if lost == 0 => lost += 1,
                    _ => server.handle_datagram(flow.client, &packet, now),
                }
            }
        }
        while let Some(work) = server.poll_work() {
            if let Work::Update { request, .. } = &work {
                println!("server: applies {:?}", String::from_utf8_lossy(request));
                applied = true;
            }
            server.committed(work.ticket(), now);
        }
        while let Some((_, packet)) = server.poll_transmit() {
            if path.pass(false, &packet)? {
                client.handle_datagram(&packet, now);
            }
        }
        while let Some(action) = path.device.poll_action() {
            match action {
                Action::Datagram { payload, .. } => client.handle_datagram(&payload, now),
                Action::Logged { stored, .. } => {
                    println!("device: sends it again from its log");
                    server.handle_datagram(flow.client, &path.device.log().bytes_of(&stored)?, now);
                    path.device.sent(&stored);
                }
            }
        }
        while let Some(event) = client.poll_event() {
            if let Event::Complete { by, .. } = event {
                println!("client: durable, by {by:?}; the server has it: {applied}");
            }
        }
        now = now + Duration::from_millis(1);
        path.now = now;
        path.device.handle_timeout(now);
        server.handle_timeout(now);
    }
    println!("device: {} updates in the log", path.device.log().len());
    Ok(())
}
