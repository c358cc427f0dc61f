//! Faults of a system, from its schedule or injected by tests, and their repair.

use super::super::datagram::{Datagram, Way};
use super::super::device::ahead;
use super::super::fabric::{Fabric, Happening, Repair, Rule};
use super::super::fault::Fault;
use super::super::oracle::TotalLoss;
use super::{PmnetWorld, server_address};
use crate::violation::Violation;
use landfall_pmnet::wire::{Body, FIRST_BYPASS, Packet};
use std::time::Duration;

impl PmnetWorld {
    /// Adds a line to the diary.
    pub(super) fn note(&mut self, what: impl std::fmt::Display) {
        self.diary.push(format!("{:>10} us  {what}", self.fabric.now.nanos() / 1000));
    }

    /// The faults and repairs so far, one line each.
    pub fn diary(&self) -> &[String] {
        &self.diary
    }

    /// Injects a fault.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn inject(&mut self, fault: Fault) -> Result<(), Violation> {
        self.note(format_args!("{fault:?}"));
        let fabric = &mut self.fabric;
        match fault {
            Fault::DeviceCrash { device, down, inside } => {
                if inside {
                    let ahead = ahead(&mut fabric.rng);
                    self.devices[device].arm(ahead, down);
                } else {
                    self.crash_device(device);
                    repair_after(&mut self.fabric, down, Repair::Device(device));
                }
            }
            Fault::MediumFails { device, down } => {
                self.summary.media_failures += 1;
                self.devices[device].fail_next_fence();
                repair_after(fabric, down, Repair::Device(device));
            }
            Fault::DeviceLoss { device, down } => {
                self.lose_device(device);
                repair_after(&mut self.fabric, down, Repair::Device(device));
            }
            Fault::ServerCrash { down } => {
                self.crash_server();
                repair_after(&mut self.fabric, down, Repair::Server);
            }
            Fault::ServerLoss { down } => {
                if self.server.fail_over() {
                    self.summary.fail_overs += 1;
                    repair_after(&mut self.fabric, down, Repair::Server);
                }
            }
            Fault::ReplicaCrash { replica, down, wiped } => {
                self.summary.replica_crashes += 1;
                self.server.stop_replica(replica, wiped);
                repair_after(fabric, down, Repair::Replica(replica));
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
                repair_after(fabric, lasts, Repair::Link { hop, up, down });
            }
        }
        Ok(())
    }

    /// Sends updates of a session that no client ever has.
    fn send_junk(&mut self, client: usize) {
        for seq in [0, 1, 2, 5000] {
            let bytes = Packet::new(u16::MAX, seq, Body::Update(b"junk")).to_bytes();
            let datagram = Datagram::new(self.clients[client].address, server_address(), bytes);
            self.fabric.after(Duration::ZERO, Happening::Arrive { hop: 0, way: Way::Up, datagram });
        }
    }

    /// Sends all packets that a server sends about a session's updates from the clients' side. If there is a key, also
    /// sends them from the server's side, and updates with the client's address.
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

    pub(super) fn repair(&mut self, repair: Repair) -> Result<(), Violation> {
        if self.calm {
            return Ok(());
        }
        self.note(format_args!("repair of {repair:?}"));
        match repair {
            Repair::Device(device) => self.start_device(device)?,
            Repair::Server => self.start_server()?,
            Repair::Replica(replica) => self.server.start_replica(replica, &mut self.fabric),
            Repair::Link { hop, up, down } => self.fabric.repair(hop, up, down),
        }
        Ok(())
    }

    pub(super) fn crash_if_frozen(&mut self, device: usize) {
        if self.devices[device].is_frozen() {
            self.note(format_args!("device {device} crashes in the middle of an operation"));
            let down = self.devices[device].armed();
            self.crash_device(device);
            repair_after(&mut self.fabric, down.unwrap_or_default(), Repair::Device(device));
        }
    }

    /// Crashes a device at this moment. The image that the crash leaves is drawn.
    pub fn crash_device(&mut self, device: usize) {
        if self.devices[device].is_running() {
            self.summary.device_crashes += 1;
            self.devices[device].crash(&mut self.fabric);
        }
    }

    /// Removes a device with its log. Another one with an empty log may be started in its place.
    pub fn lose_device(&mut self, device: usize) {
        self.summary.device_losses += 1;
        self.devices[device].lose();
        self.lost[device] = true;
        if self.lost.iter().all(|lost| *lost) {
            self.loss = Some(TotalLoss { at: self.history.tick() });
        }
    }

    /// Starts a device from the image of its crash, or with an empty log.
    ///
    /// # Errors
    /// The image cannot be opened.
    pub fn start_device(&mut self, device: usize) -> Result<(), Violation> {
        if self.devices[device].is_closed() {
            self.crash_device(device);
        }
        self.devices[device].start(&mut self.fabric)
    }

    /// Crashes the server. The surviving prefix of its batches under way is drawn.
    pub fn crash_server(&mut self) {
        if self.server.is_up() {
            self.summary.server_crashes += 1;
            self.server.crash(&mut self.fabric);
        }
    }

    /// Stops the server and removes its last batches, even confirmed ones.
    pub fn server_goes_back(&mut self, batches: usize) {
        self.note(format_args!("the server loses {batches} batches"));
        self.server.go_back(batches);
    }

    /// Starts the server if it does not run.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn start_server(&mut self) -> Result<(), Violation> {
        match self.server.is_up() {
            false => self.server.start(&mut self.fabric),
            true => Ok(()),
        }
    }

    /// Stops a replica.
    pub fn stop_replica(&mut self, replica: usize) {
        self.server.stop_replica(replica, false);
    }

    /// Starts a replica again.
    pub fn start_replica(&mut self, replica: usize) {
        self.server.start_replica(replica, &mut self.fabric);
    }

    /// Makes a client start another session.
    ///
    /// # Errors
    /// A violation of the rules.
    pub fn restart_client(&mut self, client: usize) -> Result<(), Violation> {
        self.clients[client].leave(&mut self.history);
        self.clients[client].start(&mut self.fabric, &mut self.history)
    }

    /// Removes a client permanently.
    pub fn remove_client(&mut self, client: usize) {
        self.clients[client].leave(&mut self.history);
    }

    /// Adds a rule by which links drop or delay packets.
    pub fn add_rule(&mut self, rule: Rule) {
        self.fabric.rules.push(rule);
    }

    /// Removes all rules.
    pub fn clear_rules(&mut self) {
        self.fabric.rules.clear();
    }
}

fn repair_after(fabric: &mut Fabric, delay: Duration, repair: Repair) {
    fabric.after(delay, Happening::Repair(repair));
}
