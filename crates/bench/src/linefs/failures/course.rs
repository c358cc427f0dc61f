//! The course of one run: what fails, and when.

use super::replica::ReplicaHost;
use super::report::{Event, FailureSample, Part};
use super::windows::sort;
use crate::common::clients::conn::info_field;
use crate::common::error::BenchError;
use crate::common::peers::Programs;
use crate::common::progress::check_stop;
use crate::common::sys;
use crate::files::{LoadChoice, Operation, prepare, repeat_during};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::etcd::Etcd;
use crate::linefs::hosts::{From, Host, LIMIT, Program};
use crate::linefs::machine::PART_BYTES;
use crate::linefs::overdue::Overdue;
use crate::linefs::place::scratch_in;
use crate::linefs::servers::{
    Served, Servers, Setting, doors, region_of, socket_of, wait_until_in_step, wait_until_known,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What programs do.
const LOAD: LoadChoice = LoadChoice::Varmail;
/// Threads of the load, as where it runs by itself.
const THREADS: u32 = 16;
/// The servers of the chain: the one that takes writes, the replica that fails, and the other one, which is behind the first
/// once that replica has come back at the end.
const FIRST: usize = 0;
const REPLICA: usize = 1;
const NEXT: usize = 2;
/// Parts that go ahead of the first one. The files that were prepared are published, and regions are written for the first
/// time: that takes long, and would be most of the quiet time's p99.
const WARM_UP_PARTS: f64 = 3.0;
/// Time limit of the whole load.
const LOAD_MAX: Duration = Duration::from_secs(1200);

/// Everything but the load and its own host. Fields drop in order: mounts before servers.
struct Course<'a> {
    setting: Setting<'a>,
    /// Length of a part, seconds.
    seconds: f64,
    /// Another host of the first server, and a program there.
    other: Option<(Host, Program)>,
    replica_host: Option<ReplicaHost>,
    servers: Servers,
}

/// One run, at servers that have just been started.
pub(crate) fn once(programs: &Programs, args: &LinefsArgs) -> Result<FailureSample, BenchError> {
    let settings = args.of_loads();
    let scratch = scratch_in(&settings)?;
    let etcd = Etcd::start(scratch.path())?;
    let bytes = args.region_bytes(LinefsLoad::Failures).next_multiple_of(PART_BYTES);
    let files = if args.machine.is_some() { Served::ToMachines } else { Served::Offloaded };
    let setting = Setting { programs, scratch: scratch.path(), bytes, files, etcd: Some(&etcd), flags: &[] };
    let mut course = Course::start(setting, args.seconds, args.machine.as_deref())?;
    let host = Host::mount(From::Socket(&socket_of(scratch.path(), FIRST)), &scratch.path().join("files"))?;
    prepare(LOAD, host.point(), &settings)?;
    let (mut failed, overdue) = (None, Overdue::watch(vec![host.pid()], LOAD_MAX));
    let ran = repeat_during(LOAD, THREADS, host.point(), &settings, |began| {
        course.run(began).unwrap_or_else(|error| {
            // Programs must not wait for servers that do not come back.
            sys::kill(host.pid());
            failed = Some(error);
            Vec::new()
        })
    });
    let ran = overdue.end("varmail while hosts and servers fail", ran);
    if let Some(error) = failed {
        return Err(error);
    }
    let ran = ran?;
    let mut operations: Vec<Operation> = ran.operations;
    sort(&mut operations);
    let takeover_seconds = course.take_over(host)?;
    let machine = args.machine.is_some();
    Ok(FailureSample { parts: ran.found, operations, takeover_seconds, machine })
}

impl<'a> Course<'a> {
    fn start(setting: Setting<'a>, seconds: f64, image: Option<&Path>) -> Result<Self, BenchError> {
        let servers = Servers::in_chain(setting)?;
        wait_until_known(setting)?;
        let mut course = Self { setting, seconds, other: None, replica_host: None, servers };
        course.start_other()?;
        let (socket, place) = course.of_replica_host();
        course.replica_host = Some(match image {
            None => ReplicaHost::process(&socket, &place)?,
            Some(image) => {
                let region = region_of(setting.scratch, REPLICA);
                ReplicaHost::machine(image, (&region, setting.bytes), &doors(), &place)?
            }
        });
        Ok(course)
    }

    /// The socket of the replica, and the place of its host.
    fn of_replica_host(&self) -> (PathBuf, PathBuf) {
        let scratch = self.setting.scratch;
        (socket_of(scratch, REPLICA), scratch.join("replica-host"))
    }

    fn start_other(&mut self) -> Result<(), BenchError> {
        let scratch = self.setting.scratch;
        let host = Host::mount(From::Socket(&socket_of(scratch, FIRST)), &scratch.join("other-host"))?;
        let program = Program::start(host.point().join("log"));
        program.wait_until_it_goes_on()?;
        self.other = Some((host, program));
        Ok(())
    }

    fn end_other(&mut self) {
        if let Some((host, program)) = self.other.take() {
            host.kill();
            program.end();
        }
    }

    /// All events, one behind the other, while programs work. Returns when each was.
    fn run(&mut self, began: Instant) -> Result<Vec<Part>, BenchError> {
        wait(self.seconds * WARM_UP_PARTS)?;
        let mut parts = Vec::new();
        for event in Event::ALL {
            let from = began.elapsed().as_secs_f64();
            self.happens(event)?;
            wait(self.seconds)?;
            parts.push(Part { event, from, to: began.elapsed().as_secs_f64() });
            self.is_over(event)?;
        }
        Ok(parts)
    }

    /// Makes it happen, and waits for what follows from it.
    fn happens(&mut self, event: Event) -> Result<(), BenchError> {
        match event {
            Event::Quiet => {}
            Event::ReplicaHostFails => self.replica_host.iter_mut().try_for_each(ReplicaHost::fail)?,
            Event::ReplicaHostReturns => {
                let (socket, place) = self.of_replica_host();
                self.replica_host.iter_mut().try_for_each(|host| host.come_back(&socket, &place))?;
            }
            Event::OtherHostStops => self.other.iter().for_each(|(host, _)| sys::stop(host.pid())),
            Event::OtherHostFails => self.end_other(),
            Event::OtherHostReturns => self.start_other()?,
            Event::ServerFails => {
                let version = self.version()?;
                self.servers.kill(REPLICA);
                self.wait_until_newer(version)?;
                self.program_goes_on()?;
            }
            Event::ServerReturns => {
                let version = self.version()?;
                self.servers.start_again(self.setting, REPLICA)?;
                self.wait_until_newer(version)?;
                wait_until_in_step(self.servers.first())?;
            }
        }
        Ok(())
    }

    /// What has to be so before the next event, and belongs to none.
    fn is_over(&mut self, event: Event) -> Result<(), BenchError> {
        match event {
            Event::OtherHostStops => {
                self.other.iter().for_each(|(host, _)| sys::go_on(host.pid()));
                self.program_goes_on()
            }
            Event::ServerReturns => wait_until_known(self.setting),
            _ => Ok(()),
        }
    }

    /// Waits until the program at the other host has made something durable.
    fn program_goes_on(&self) -> Result<(), BenchError> {
        self.other.iter().try_for_each(|(_, program)| program.wait_until_it_goes_on())
    }

    /// The version of the chain at its first server.
    fn version(&self) -> Result<f64, BenchError> {
        let mut conn = self.servers.first().connect()?;
        let version = info_field(&mut conn, "replication", "chain_version")?;
        version.ok_or_else(|| BenchError::reply("landfall", "no chain_version", "INFO replication"))
    }

    fn wait_until_newer(&self, version: f64) -> Result<(), BenchError> {
        let began = Instant::now();
        while self.version()? <= version {
            check_stop()?;
            if began.elapsed() > LIMIT {
                let what = "a change of the chain by its manager".into();
                return Err(BenchError::TooLong { what, seconds: LIMIT.as_secs() });
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The first server fails for good. Returns the time until a program has made something durable at the next one, in
    /// seconds.
    fn take_over(mut self, host: Host) -> Result<f64, BenchError> {
        self.end_other();
        self.replica_host = None;
        write_durably(&host.point().join("last"))?;
        let scratch = self.setting.scratch;
        let (failed, point) = (Instant::now(), scratch.join("files-at-next"));
        self.servers.kill(FIRST);
        host.kill();
        let next = Host::mount(From::Socket(&socket_of(scratch, NEXT)), &point)?;
        write_durably(&point.join("next"))?;
        let seconds = failed.elapsed().as_secs_f64();
        fs::read(point.join("last")).map_err(BenchError::file(&point.join("last")))?;
        next.kill();
        Ok(seconds)
    }
}

fn write_durably(path: &Path) -> Result<(), BenchError> {
    let write = || {
        fs::write(path, b"durable")?;
        File::open(path)?.sync_all()
    };
    write().map_err(BenchError::file(path))
}

/// Lets programs work for so many seconds.
fn wait(seconds: f64) -> Result<(), BenchError> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < until {
        check_stop()?;
        let left = until.saturating_duration_since(Instant::now());
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
    Ok(())
}
