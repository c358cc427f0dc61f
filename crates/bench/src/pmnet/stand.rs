//! A contestant that has been started: its hosts, its devices and its servers.

use super::app::App;
use super::app::On;
use super::args::ServeKind;
use super::course::{Course, LOGGER_PORT, PLAIN_PORT, PMNET_PORT, RESP_PORT, Seat};
use super::design::{Design, Spec, Waits};
use super::lab::Lab;
use super::load::{Channel, Framing, Patience, PmnetChannel, StreamChannel, UdpChannel};
use super::serve::counts::{self, Executed};
use crate::common::clients::conn::{Conn, wait_for_replicas};
use crate::common::clients::http::{Http, metric};
use crate::common::error::BenchError;
use crate::common::measure::cpu::CpuTime;
use crate::common::measure::proc::is_zombie;
use crate::common::measure::stats::whole;
use crate::common::peers::{Server, UNSET, end_of_log, launch, spawn};
use crate::common::progress::say;
use clap::ValueEnum;
use landfall_resp::Reply;
use landfall_testbed::Host;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The address at which devices report their counts, each on its own host.
const METRICS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9151);
/// The address at which a server of PMNet tells what it has executed, on its own host.
const COUNTS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9152);
/// Bytes of a device's log.
const LOG_BYTES: u64 = 256 << 20;
/// Bytes of a handler's region.
const HANDLER_BYTES: u64 = 256 << 20;
/// Bytes of a `landfall serve` region.
const REGION_BYTES: u64 = 512 << 20;
/// The longest wait until replicas follow their primary.
const FOLLOW_MAX: Duration = Duration::from_secs(60);
/// Redis logs commands that take longer than this, ms.
const SLOW_MS: &str = "500";
const ANYWHERE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
/// A server that speaks RESP, for the processes on its host.
pub(crate) const LOCAL_RESP: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), RESP_PORT);

/// The hosts and processes of a contestant. Fields drop in order: processes end before their hosts and folders.
#[derive(Debug)]
pub(crate) struct Stand {
    pub(crate) devices: Vec<Server>,
    /// The server that executes requests comes last. Replicas and loggers come before it.
    pub(crate) servers: Vec<Server>,
    pub(crate) course: Course,
    pub(crate) scratch: TempDir,
    /// A folder on the ordinary file system, if the contestant needs one.
    pub(crate) on_file: Option<TempDir>,
    spec: Spec,
    /// How long clients busy-poll for answers before they wait in the kernel.
    busy_poll: Duration,
}

/// What differs between runs of one [`Spec`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Bytes of a device's log.
    pub(crate) log_bytes: u64,
    /// Bytes of a handler's region.
    pub(crate) region_bytes: u64,
    /// Whether redis stores what it receives.
    pub(crate) persists: bool,
    /// Whether a plain server reports the time of each step.
    pub(crate) stamps: bool,
}

impl Extent {
    /// Returns the sizes that a run needs. A quick run has a quarter of them, which takes less time to map.
    pub(crate) fn of(lab: &Lab) -> Self {
        let parts = if lab.args.quick { 4 } else { 1 };
        let (log_bytes, region_bytes) = (LOG_BYTES / parts, HANDLER_BYTES / parts);
        Self { log_bytes, region_bytes, persists: true, stamps: false }
    }
}

impl Stand {
    /// Starts everything, and waits until it serves.
    pub(crate) fn start(lab: &Lab, spec: Spec, extent: Extent) -> Result<Self, BenchError> {
        let course = Course::new(spec.design.place(), spec.design.beside())?;
        let scratch = folder_in(&lab.args.dir)?;
        let needs_file = matches!(spec.design, Design::Pmnet { log: On::File, .. }) || spec.app.is_on_file();
        let on_file = needs_file.then(|| folder_in(&lab.args.file_dir)).transpose()?;
        let mut stand = Self {
            devices: Vec::new(),
            servers: Vec::new(),
            course,
            scratch,
            on_file,
            spec,
            busy_poll: Duration::from_micros(lab.args.look_us),
        };
        for number in 0..stand.course.devices.len() {
            let device = stand.start_device(lab, number, extent.log_bytes)?;
            stand.devices.push(device);
        }
        if spec.app.speaks_resp() {
            let server = stand.start_resp(lab, extent)?;
            stand.servers.push(server);
        }
        stand.start_replicas(lab, extent)?;
        stand.start_front(lab, extent)?;
        Ok(stand)
    }

    fn start_device(&self, lab: &Lab, number: usize, log_bytes: u64) -> Result<Server, BenchError> {
        let seat = &self.course.devices[number];
        let on_file = matches!(self.spec.design, Design::Pmnet { log: On::File, .. });
        let base = self.on_file.as_ref().filter(|_| on_file).unwrap_or(&self.scratch).path();
        let dir = make_dir(&base.join(format!("device-{number}")))?;
        let mut command = lab.command_on(&seat.host, lab.args.server_core, &lab.landfall);
        command.args(["pmnet", "switch"]).args(&seat.interfaces);
        command.arg("--dir").arg(&dir).arg("--capacity").arg(log_bytes.to_string());
        command.args(["--metrics", &METRICS.to_string(), "--log-level", "warn"]);
        // Devices that share a core with other processes must wait in the kernel: busy-polling would starve the others.
        let alone = self.spec.design.is_logged_on_the_way() && self.course.devices.len() == 1;
        let spins = self.is_behind() && alone;
        let busy_poll = lab.args.device_spin.to_string();
        command.args(["--spin", if spins { "always" } else { &busy_poll }]);
        if self.course.devices.len() > 1 {
            command.args(["--number", &number.to_string()]);
            command.args((number + 1 == self.course.devices.len()).then_some("--last"));
        }
        if let (Design::Pmnet { cache: true, .. }, Some(flag)) =
            (self.spec.design, lab.cache_flag(self.spec.app))
        {
            command.args(flag);
        }
        launch(command, &dir, "landfall pmnet switch")
    }

    /// Starts loggers or servers on the replicas' hosts.
    fn start_replicas(&mut self, lab: &Lab, extent: Extent) -> Result<(), BenchError> {
        if self.spec.app.is_on_redis() {
            return self.start_redis_replicas(lab);
        }
        let logs = matches!(self.spec.design, Design::ServerLog { .. } | Design::ClientLog { .. });
        for number in 0..self.course.replicas.len() {
            let (host, address) = self.course.replicas[number].clone();
            let kind = if logs { ServeKind::Logger } else { ServeKind::Udp };
            let name = format!("replica-{number}");
            let process = Process { host: &host, kind, name: &name, at: address, extent, spin: false };
            let command = self.process(lab, &process)?;
            self.servers.push(launch(command, &self.scratch.path().join(&name), &name)?);
        }
        Ok(())
    }

    /// Starts the process that clients, a logger or a device send requests to.
    fn start_front(&mut self, lab: &Lab, extent: Extent) -> Result<(), BenchError> {
        let (design, spins) = (self.spec.design, self.spec.waits == Waits::Spin);
        let resp = self.spec.app.speaks_resp();
        if resp && !design.is_pmnet() {
            return Ok(());
        }
        let (kind, port) = match design {
            _ if resp => (ServeKind::Sidecar, PMNET_PORT),
            Design::Tcp => (ServeKind::Tcp, PLAIN_PORT),
            Design::Bypass | Design::Pmnet { .. } | Design::Nic => (ServeKind::Pmnet, PMNET_PORT),
            _ => (ServeKind::Udp, PLAIN_PORT),
        };
        // Only the process that answers the client busy-polls. The others wait in the kernel.
        let answers = matches!(design, Design::Direct | Design::ClientServer | Design::Tcp);
        let (host, at) = (self.course.server.clone(), SocketAddr::new(ANYWHERE.into(), port));
        let at = if kind == ServeKind::Udp || kind == ServeKind::Tcp { at } else { Course::at_server(port) };
        let process = Process { host: &host, kind, name: "server", at, extent, spin: spins && answers };
        let mut command = self.process(lab, &process)?;
        if matches!(kind, ServeKind::Pmnet | ServeKind::Sidecar) {
            command.arg("--counts").arg(COUNTS.to_string());
        }
        let replicated = matches!(design, Design::Replicated | Design::Pmnet { devices: 2.., .. });
        if replicated {
            command.arg("--replicas").arg(self.replica_addresses());
        }
        if resp {
            command.arg("--forward").arg(LOCAL_RESP.to_string());
        }
        let server = launch(command, &self.scratch.path().join("server"), "the server")?;
        self.servers.push(server);
        self.start_logger(lab, extent)
    }

    fn start_logger(&mut self, lab: &Lab, extent: Extent) -> Result<(), BenchError> {
        let (host, forward) = match self.spec.design {
            Design::ServerLog { .. } => {
                (self.course.server.clone(), SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PLAIN_PORT))
            }
            Design::ClientLog { .. } => (self.course.client.clone(), Course::at_server(PLAIN_PORT)),
            _ => return Ok(()),
        };
        let at = SocketAddr::new(ANYWHERE.into(), LOGGER_PORT);
        // With replicas on this core, busy-polling for their answers would keep the replicas from running.
        let spin = self.spec.waits == Waits::Spin && self.course.replicas.is_empty();
        let process = Process { host: &host, kind: ServeKind::Logger, name: "logger", at, extent, spin };
        let mut command = self.process(lab, &process)?;
        command.arg("--forward").arg(forward.to_string());
        if !self.course.replicas.is_empty() {
            command.arg("--replicas").arg(self.replica_addresses());
        }
        let logger = launch(command, &self.scratch.path().join("logger"), "the logger")?;
        self.servers.insert(0, logger);
        Ok(())
    }

    fn replica_addresses(&self) -> String {
        let addresses = self.course.replicas.iter().map(|(_, address)| address.to_string());
        addresses.collect::<Vec<_>>().join(",")
    }

    /// Returns whether one process takes all of the servers' core. Processes whose work the client does not wait for
    /// then run on the client's core, while the client pauses.
    fn is_behind(&self) -> bool {
        self.spec.waits != Waits::Block
    }

    fn process(&self, lab: &Lab, process: &Process<'_>) -> Result<Command, BenchError> {
        let logs = process.kind == ServeKind::Logger;
        let on_file = self.on_file.as_ref().filter(|_| self.spec.app.is_on_file() && !logs);
        let dir = make_dir(&on_file.unwrap_or(&self.scratch).path().join(process.name))?;
        let behind = self.is_behind() && !process.spin;
        let core = if behind { lab.args.client_core } else { lab.args.server_core };
        let mut command = lab.command_on(process.host, core, &lab.landfall);
        let kind =
            process.kind.to_possible_value().map(|kind| kind.get_name().to_owned()).unwrap_or_default();
        command.args(["bench", "pmnet-server", "--kind", &kind, "--listen", &process.at.to_string()]);
        command.arg("--dir").arg(&dir).arg("--capacity").arg(process.extent.region_bytes.to_string());
        if let (Some(structure), false) = (self.spec.app.structure(), logs) {
            command.args(["--structure", structure.name()]);
        }
        command.args(process.spin.then_some("--spin"));
        command.args((process.extent.stamps && process.kind == ServeKind::Udp).then_some("--stamps"));
        // A background process that wakes up does not preempt the client.
        command.args(behind.then_some("--background"));
        Ok(command)
    }

    /// Starts redis-server or `landfall serve` on the server's host.
    fn start_resp(&self, lab: &Lab, extent: Extent) -> Result<Server, BenchError> {
        let server = &self.course.server;
        if self.spec.app == App::Landfall {
            let dir = make_dir(&self.scratch.path().join("serve"))?;
            let serve_bytes = REGION_BYTES * extent.region_bytes / HANDLER_BYTES;
            let mut command = match self.is_behind() {
                true => lab.command_behind(server, &lab.landfall),
                false => lab.command_on(server, lab.args.server_core, &lab.landfall),
            };
            let at = SocketAddr::new(ANYWHERE.into(), RESP_PORT).to_string();
            command.args(["serve", "--resp", &at, "--workers", "1", "--insecure-no-password"]);
            command
                .args(["--scrub-rate", "0", "--capacity", &serve_bytes.to_string()])
                .arg("--dir")
                .arg(&dir);
            return launch(command, &dir, "landfall serve");
        }
        self.start_redis(lab, &Redis { host: server, name: "redis", of: None, persists: extent.persists })
    }

    /// Starts replicas of the server's redis, and returns once they follow. Each syncs every update, as the server
    /// does.
    fn start_redis_replicas(&mut self, lab: &Lab) -> Result<(), BenchError> {
        for number in 0..self.course.replicas.len() {
            let (host, _) = &self.course.replicas[number];
            let (name, of) = (format!("replica-{number}"), Course::primary_for(number as u8));
            let redis = Redis { host, name: &name, of: Some(of), persists: true };
            let replica = self.start_redis(lab, &redis)?;
            self.servers.insert(0, replica);
        }
        let wanted = self.course.replicas.len();
        if wanted == 0 { Ok(()) } else { self.course.server.enter(|| wait_for_followers(wanted)) }
    }

    fn start_redis(&self, lab: &Lab, redis: &Redis<'_>) -> Result<Server, BenchError> {
        let program = lab.redis.as_ref().ok_or_else(Lab::no_redis)?;
        let base = self.on_file.as_ref().unwrap_or(&self.scratch).path();
        let dir = make_dir(&base.join(redis.name))?;
        let mut command = match self.is_behind() {
            true => lab.command_behind(redis.host, program),
            false => lab.command_on(redis.host, lab.args.server_core, program),
        };
        command.args(["--bind", "0.0.0.0", "--protected-mode", "no", "--port", &RESP_PORT.to_string()]);
        command.args(["--save", "", "--daemonize", "no", "--repl-diskless-sync-delay", "0"]);
        if redis.persists {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
        if let Some(of) = redis.of {
            command.args(["--replicaof", &of.ip().to_string(), &of.port().to_string()]);
        }
        command.args(["--auto-aof-rewrite-percentage", "0"]).arg("--dir").arg(&dir);
        command.args(["--latency-monitor-threshold", SLOW_MS]);
        let began = Instant::now();
        let child = spawn(command, &dir, Stdio::null())?;
        let peer = "redis".to_owned();
        let mut server =
            Server { child, peer, dir, resp: LOCAL_RESP, http: None, about: String::new(), began };
        redis.host.enter(|| server.wait_ready())?;
        server.resp = UNSET;
        Ok(server)
    }

    /// Opens a channel for the clients' requests. To be called on the client's host.
    pub(crate) fn open_channel(&self) -> Result<Box<dyn Channel>, BenchError> {
        let (spec, clients) = (self.spec, self.spec.clients);
        let patience =
            if spec.waits == Waits::Spin { Patience::Spins } else { Patience::BusyPolls(self.busy_poll) };
        Ok(match spec.design {
            Design::Bypass => {
                let at = Course::at_server(PMNET_PORT);
                Box::new(PmnetChannel::open(at, clients, 1, (patience, true))?)
            }
            Design::Pmnet { .. } | Design::Nic => {
                let (at, devices) = (Course::at_server(PMNET_PORT), spec.design.devices());
                Box::new(PmnetChannel::open(at, clients, devices, (patience, false))?)
            }
            _ if spec.app.speaks_resp() => {
                let at = Course::at_server(RESP_PORT);
                let replicas = self.course.replicas.len() as u8;
                let framing = if replicas > 0 { Framing::RespOn { replicas } } else { Framing::Resp };
                Box::new(StreamChannel::open(at, clients, framing, patience)?)
            }
            Design::Tcp => {
                let at = Course::at_server(PLAIN_PORT);
                Box::new(StreamChannel::open(at, clients, Framing::Lengths, patience)?)
            }
            Design::ServerLog { .. } => {
                Box::new(UdpChannel::open(Course::at_server(LOGGER_PORT), clients, patience)?)
            }
            Design::ClientLog { .. } => {
                Box::new(UdpChannel::open(Course::at_client(LOGGER_PORT), clients, patience)?)
            }
            _ => Box::new(UdpChannel::open(Course::at_server(PLAIN_PORT), clients, patience)?),
        })
    }

    /// Returns the address at which an application can be filled by plain requests. `None` if its server speaks only
    /// PMNet or TCP.
    pub(crate) fn plain_address(&self) -> Option<SocketAddr> {
        let plain = !self.spec.design.is_pmnet() && self.spec.design != Design::Tcp;
        plain.then(|| Course::at_server(PLAIN_PORT))
    }

    /// Opens a channel that fills an application through the devices that are measured.
    pub(crate) fn open_filler(&self, clients: usize) -> Result<Box<dyn Channel>, BenchError> {
        if self.spec.design == Design::Tcp {
            let at = Course::at_server(PLAIN_PORT);
            return Ok(Box::new(StreamChannel::open(at, clients, Framing::Lengths, Patience::WAITS)?));
        }
        let at = Course::at_server(PMNET_PORT);
        Ok(Box::new(PmnetChannel::open(at, clients, self.spec.design.devices(), (Patience::WAITS, false))?))
    }

    /// Returns a counter of a device. `None` if there is no such device or counter.
    pub(crate) fn count(&self, device: usize, name: &str) -> Result<Option<u64>, BenchError> {
        let Some(seat) = self.course.devices.get(device) else { return Ok(None) };
        Ok(metric(&counts_of(seat)?, &format!("landfall_pmnet_{name}")).map(whole))
    }

    /// Returns what the server of PMNet has executed so far, as it published last.
    pub(crate) fn executed(&self) -> Result<Executed, BenchError> {
        self.course.server.enter(|| counts::ask(COUNTS))
    }

    /// Fails if a process has died.
    pub(crate) fn check_alive(&self) -> Result<(), BenchError> {
        let mut all = self.devices.iter().chain(&self.servers);
        if all.any(|server| is_zombie(server.pid())) {
            return Err(BenchError::Died(self.spec.describe()));
        }
        Ok(())
    }

    /// Reports the state of all processes after a failure: the devices' counters and the ends of the logs.
    pub(crate) fn report_state(&self) {
        for seat in &self.course.devices {
            let counts = counts_of(seat).unwrap_or_default();
            let told = counts.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
            told.for_each(|line| say(format_args!("    {line}")));
        }
        for server in self.devices.iter().chain(&self.servers) {
            say(format_args!("    {}: {:?}", server.peer, server.cpu()));
            end_of_log(&server.dir).lines().for_each(|line| say(format_args!("      {line}")));
        }
        if self.spec.app.speaks_resp() && self.spec.app != App::Landfall {
            let told = self.course.server.enter(doctor);
            let told = told.unwrap_or_else(|error| format!("no report from redis: {error}"));
            told.lines().for_each(|line| say(format_args!("      {line}")));
        }
    }

    /// Returns the CPU time that each device has used so far.
    pub(crate) fn cpu_of_devices(&self) -> Vec<CpuTime> {
        self.devices.iter().map(Server::cpu).collect()
    }

    /// Returns the CPU time that each server, logger and side-car has used so far.
    pub(crate) fn cpu_of_servers(&self) -> Vec<CpuTime> {
        self.servers.iter().map(Server::cpu).collect()
    }

    /// Restarts the server in its folder after it was killed.
    pub(crate) fn restart_server(&mut self, lab: &Lab, extent: Extent) -> Result<(), BenchError> {
        self.start_front(lab, extent)
    }
}

/// A process of `landfall bench pmnet-server`.
struct Process<'a> {
    host: &'a Host,
    kind: ServeKind,
    name: &'a str,
    at: SocketAddr,
    extent: Extent,
    spin: bool,
}

/// A redis-server.
struct Redis<'a> {
    host: &'a Host,
    name: &'a str,
    /// The primary, if this redis-server is a replica.
    of: Option<SocketAddr>,
    /// Whether it has an append-only file, synced with each batch of commands.
    persists: bool,
}

/// Waits until `wanted` replicas follow the server's redis. To be called on the server's host.
fn wait_for_followers(wanted: usize) -> Result<(), BenchError> {
    wait_for_replicas(&mut Conn::open(LOCAL_RESP, "redis")?, wanted, FOLLOW_MAX)
}

/// Returns Redis's report on what took longer than [`SLOW_MS`], such as a wait for the disk. To be called on its host.
fn doctor() -> Result<String, BenchError> {
    let mut redis = Conn::open(LOCAL_RESP, "redis")?;
    match redis.ask(&[b"LATENCY", b"DOCTOR"])? {
        Reply::Bulk(text) => Ok(String::from_utf8_lossy(text).into_owned()),
        other => Ok(format!("{other:?}")),
    }
}

/// Returns a device's metrics.
fn counts_of(seat: &Seat) -> Result<String, BenchError> {
    let body = seat.host.enter(|| {
        let mut body = Vec::new();
        Http::open(METRICS)?.get("/metrics", &mut body)?;
        Ok::<_, BenchError>(body)
    })?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn folder_in(base: &Path) -> Result<TempDir, BenchError> {
    let made = tempfile::Builder::new().prefix("landfall-bench-").tempdir_in(base);
    made.map_err(BenchError::file(base))
}

fn make_dir(dir: &Path) -> Result<PathBuf, BenchError> {
    std::fs::create_dir_all(dir).map_err(BenchError::file(dir))?;
    Ok(dir.to_owned())
}
