//! What happens to a system, by itself or by hand.

use super::super::Fault;
use super::super::device::ahead;
use super::super::fabric::{Datagram, Fabric, Happening, Mend, Rule, Way};
use super::super::oracle::TotalLoss;
use super::{PmnetWorld, server_address};
use crate::violation::Violation;
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet};
use std::time::Duration;

impl PmnetWorld {
    /// Notes what is done, for people.
    pub(super) fn note(&mut self, what: impl std::fmt::Display) {
        self.diary.push(format!("{:>10} us  {what}", self.fabric.now.nanos() / 1000));
    }

    /// What has been done to the system so far, a line each.
    pub fn diary(&self) -> &[String] {
        &self.diary
    }

    /// A fault comes.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn suffer(&mut self, fault: Fault) -> Result<(), Violation> {
        self.note(format_args!("{fault:?}"));
        let fabric = &mut self.fabric;
        match fault {
            Fault::DeviceCrash { device, down, inside } => {
                if inside {
                    let ahead = ahead(&mut fabric.rng);
                    self.devices[device].arm(ahead, down);
                } else {
                    self.crash_device(device);
                    mend_after(&mut self.fabric, down, Mend::Device(device));
                }
            }
            Fault::MediumFails { device, down } => {
                self.summary.media_failures += 1;
                self.devices[device].fail_next_fence();
                mend_after(fabric, down, Mend::Device(device));
            }
            Fault::DeviceLoss { device, down } => {
                self.lose_device(device);
                mend_after(&mut self.fabric, down, Mend::Device(device));
            }
            Fault::ServerCrash { down } => {
                self.crash_server();
                mend_after(&mut self.fabric, down, Mend::Server);
            }
            Fault::ServerLoss { down } => {
                if self.server.fail_over() {
                    self.summary.fail_overs += 1;
                    mend_after(&mut self.fabric, down, Mend::Server);
                }
            }
            Fault::ReplicaCrash { replica, down, wiped } => {
                self.summary.replica_crashes += 1;
                self.server.stop_replica(replica, wiped);
                mend_after(fabric, down, Mend::Replica(replica));
            }
            Fault::ClientCrash { client } => {
                self.summary.client_crashes += 1;
                self.clients[client].crash(fabric, &mut self.history)?;
            }
            Fault::Forgery { client } => {
                self.summary.forgeries += 1;
                self.forge(client);
            }
            Fault::Junk { client } => {
                self.summary.forgeries += 1;
                self.send_junk(client);
            }
            Fault::Partition { hop, up, down, lasts } => {
                self.summary.partitions += 1;
                fabric.cut(hop, up, down);
                mend_after(fabric, lasts, Mend::Link { hop, up, down });
            }
        }
        Ok(())
    }

    /// Updates of a session that no client ever has.
    fn send_junk(&mut self, client: usize) {
        for seq in [0, 1, 2, 5000] {
            let bytes = Packet::new(u16::MAX, seq, Body::Update(b"junk")).to_bytes();
            let datagram = Datagram::new(self.clients[client].address, server_address(), bytes);
            self.fabric.after(Duration::ZERO, Happening::Arrive { hop: 0, way: Way::Up, datagram });
        }
    }

    /// All that a server says of a session's updates, from the clients' side; where there is a key, from the server's side, too,
    /// and an update in the client's name.
    fn forge(&mut self, client: usize) {
        const LAST: u32 = FIRST_BYPASS - 1;
        let client = &self.clients[client];
        for (seq, body) in [
            (0, Body::Recover { incarnation: 1 }),
            (1, Body::Retransmit { count: 3 }),
            (1, Body::Response(b"done")),
            (LAST, Body::ServerAck),
        ] {
            let bytes = Packet::new(client.number(), seq, body).to_bytes();
            let datagram = Datagram::new(server_address(), client.address, bytes);
            if self.is_keyed {
                let (hop, datagram) = (self.devices.len(), datagram.clone());
                self.fabric.after(Duration::ZERO, Happening::Arrive { hop, way: Way::Down, datagram });
            }
            self.fabric.after(Duration::ZERO, Happening::Arrive { hop: 0, way: Way::Up, datagram });
        }
        if self.is_keyed {
            for seq in 1..10 {
                let bytes = Packet::new(client.number(), seq, Body::Update(b"forged")).to_bytes();
                let datagram = Datagram::new(client.address, server_address(), bytes);
                self.fabric.after(Duration::ZERO, Happening::Arrive { hop: 0, way: Way::Up, datagram });
            }
        }
    }

    pub(super) fn mend(&mut self, mend: Mend) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.note(format_args!("{mend:?}"));
        match mend {
            Mend::Device(device) => self.start_device(device)?,
            Mend::Server => self.start_server()?,
            Mend::Replica(replica) => self.server.start_replica(replica, &mut self.fabric),
            Mend::Link { hop, up, down } => self.fabric.mend(hop, up, down),
        }
        Ok(())
    }

    pub(super) fn crash_if_frozen(&mut self, device: usize) {
        if self.devices[device].is_frozen() {
            self.note(format_args!("device {device} crashes inside"));
            let down = self.devices[device].armed();
            self.crash_device(device);
            mend_after(&mut self.fabric, down.unwrap_or_default(), Mend::Device(device));
        }
    }

    /// A device stops at this moment; what a crash leaves is drawn.
    pub fn crash_device(&mut self, device: usize) {
        if self.devices[device].is_running() {
            self.summary.device_crashes += 1;
            self.devices[device].crash(&mut self.fabric);
        }
    }

    /// A device is lost with its log; another one with an empty log may be started in its place.
    pub fn lose_device(&mut self, device: usize) {
        self.summary.device_losses += 1;
        self.devices[device].lose();
        self.lost[device] = true;
        if self.lost.iter().all(|lost| *lost) {
            self.loss = Some(TotalLoss { at: self.history.tick() });
        }
    }

    /// A device starts, from what it has left or with an empty log.
    ///
    /// # Errors
    /// What it has left cannot be opened.
    pub fn start_device(&mut self, device: usize) -> Result<(), Violation> {
        if self.devices[device].is_closed() {
            self.crash_device(device);
        }
        self.devices[device].start(&mut self.fabric)
    }

    /// The server stops; what of its batches under way survives is drawn.
    pub fn crash_server(&mut self) {
        if self.server.is_up() {
            self.summary.server_crashes += 1;
            self.server.crash(&mut self.fabric);
        }
    }

    /// The server stops, and loses so many batches, whatever it has confirmed of them.
    pub fn server_goes_back(&mut self, batches: usize) {
        self.note(format_args!("the server loses {batches} batches"));
        self.server.go_back(batches);
    }

    /// The server starts, if it does not run.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn start_server(&mut self) -> Result<(), Violation> {
        match self.server.is_up() {
            false => self.server.start(&mut self.fabric),
            true => Ok(()),
        }
    }

    /// A replica stops.
    pub fn stop_replica(&mut self, replica: usize) {
        self.server.stop_replica(replica, false);
    }

    /// A replica is back.
    pub fn start_replica(&mut self, replica: usize) {
        self.server.start_replica(replica, &mut self.fabric);
    }

    /// A client begins another session.
    ///
    /// # Errors
    /// What the rules do not allow.
    pub fn restart_client(&mut self, client: usize) -> Result<(), Violation> {
        self.clients[client].leave(&mut self.history);
        self.clients[client].start(&mut self.fabric, &mut self.history)
    }

    /// A client is forgotten for good.
    pub fn forget_client(&mut self, client: usize) {
        self.clients[client].leave(&mut self.history);
    }

    /// Has links take packets away.
    pub fn add_rule(&mut self, rule: Rule) {
        self.fabric.rules.push(rule);
    }

    /// Links take nothing away any more.
    pub fn clear_rules(&mut self) {
        self.fabric.rules.clear();
    }
}

fn mend_after(fabric: &mut Fabric, delay: Duration, mend: Mend) {
    fabric.after(delay, Happening::Mend(mend));
}
