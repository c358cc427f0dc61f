//! The loads from which the costs come: at one server, and at chains.

use super::costs::{self, Loads, Ran, Spent};
use super::course::{Cost, Operation};
use super::kinds::Simulated;
use crate::common::error::BenchError;
use crate::common::peers::Programs;
use crate::files::{LoadChoice, check_leveldb, prepare, run_here};
use crate::linefs::args::{LinefsArgs, LinefsLoad};
use crate::linefs::clients::write_all;
use crate::linefs::corunner::{self, CoRunner, Priority};
use crate::linefs::overdue::{LOAD_MAX, Overdue};
use crate::linefs::place::{ALONE, Kind, Place, empty, empty_and_wait};

/// The applications of Figure 8 that write, and their threads. No other server takes part in what only reads.
pub(super) const APPLICATIONS: [(LoadChoice, u32); 5] = [
    (LoadChoice::LeveldbSync, 1),
    (LoadChoice::LeveldbFill, 1),
    (LoadChoice::LeveldbFillRandom, 1),
    (LoadChoice::Varmail, 16),
    (LoadChoice::Fileserver, 16),
];

/// Writes of the sequential loads in a MiB.
const WRITES_IN_MIB: u64 = 64;

/// What is measured in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    Alone,
    Chain(Simulated),
}

/// What one turn has found.
#[derive(Debug)]
pub(crate) enum Measuring {
    Alone(Box<Alone>),
    Chain(Box<Chain>),
}

/// One server without a chain, and what is measured beside it.
#[derive(Debug)]
pub(crate) struct Alone {
    pub(super) fence: Cost,
    pub(super) hop: f64,
    pub(super) loads: Loads,
    pub(super) applications: Vec<Option<Spent>>,
}

/// A chain.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(super) loads: Loads,
    /// Two clients that write, and one beside a program of the lowest priority.
    pub(super) two: Spent,
    pub(super) beside: Spent,
    pub(super) applications: Vec<Option<Spent>>,
}

impl Alone {
    /// A write of a file that is written in sequence. It syncs at its end only.
    pub(super) fn write(&self) -> Operation {
        Operation { syncs: 0.0, ..self.loads.write.operation(1, self.fence) }
    }

    pub(super) fn append(&self) -> Operation {
        self.loads.append.operation(1, self.fence)
    }

    pub(super) fn application(&self, at: usize) -> Option<Operation> {
        let (_, threads) = APPLICATIONS.get(at)?;
        Some(self.applications.get(at)?.as_ref()?.operation(*threads, self.fence))
    }
}

impl Chain {
    pub(super) fn contention(&self) -> f64 {
        (self.beside.work_of_byte() / self.loads.write.work_of_byte()).max(1.0)
    }
}

impl Measured {
    pub(crate) fn all() -> Vec<Self> {
        std::iter::once(Self::Alone).chain(Simulated::ALL.map(Self::Chain)).collect()
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Alone => ALONE,
            Self::Chain(simulated) => simulated.place(),
        }
    }

    pub(super) fn simulated(self) -> Option<Simulated> {
        match self {
            Self::Alone => None,
            Self::Chain(simulated) => Some(simulated),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Alone => Kind::Alone,
            Self::Chain(Simulated::Chain) => Kind::Chain,
            Self::Chain(Simulated::NotParallel) => Kind::NotParallel,
            Self::Chain(Simulated::Assise) => Kind::Assise,
        }
    }

    /// One turn.
    pub(crate) fn once(self, programs: &Programs, args: &LinefsArgs) -> Result<Measuring, BenchError> {
        let settings = args.of_loads();
        let (fence, hop) = match self {
            Self::Alone => (costs::fence(&args.dir)?, costs::hop()?),
            Self::Chain(_) => (Cost::default(), 0.0),
        };
        let bytes = args.region_bytes(LinefsLoad::Simulated);
        let place = Place::new(self.kind(), programs, &settings, bytes)?;
        let overdue = Overdue::watch(place.pids(), LOAD_MAX);
        let turn = Turn { place: &place, args };
        overdue.end("loads whose costs are measured", turn.measure(self, (fence, hop)))
    }
}

/// A place during one turn.
struct Turn<'a> {
    place: &'a Place,
    args: &'a LinefsArgs,
}

impl Turn<'_> {
    fn measure(&self, what: Measured, (fence, hop): (Cost, f64)) -> Result<Measuring, BenchError> {
        // Memory and blocks were touched before.
        self.write(1)?;
        let loads = Loads { write: self.write(1)?, append: self.load(LoadChoice::Append, 1)? };
        if what == Measured::Alone {
            let applications = self.applications()?;
            return Ok(Measuring::Alone(Box::new(Alone { fence, hop, loads, applications })));
        }
        let (bytes, threads) = (corunner::point_bytes(self.args.quick), self.args.co_threads());
        let runner = CoRunner::start(bytes, threads, Priority::Lowest);
        let beside = self.write(1)?;
        drop(runner);
        let (two, applications) = (self.write(2)?, self.applications()?);
        Ok(Measuring::Chain(Box::new(Chain { loads, two, beside, applications })))
    }

    /// Clients write a file each. The files are removed.
    fn write(&self, clients: u32) -> Result<Spent, BenchError> {
        let mib = self.args.mib_of_client(clients);
        let spent = Spent::by(self.place, !self.args.quick, || {
            let written = write_all(self.place.files(), clients, mib)?;
            let count = (written.mib() * WRITES_IN_MIB as f64).max(1.0);
            Ok(Ran { count, seconds: written.seconds(), cpu_ns: written.cpu_ns() })
        })?;
        self.empty()?;
        Ok(spent)
    }

    fn load(&self, load: LoadChoice, threads: u32) -> Result<Spent, BenchError> {
        let settings = self.args.of_loads();
        prepare(load, self.place.files(), &settings)?;
        let spent = Spent::by(self.place, !self.args.quick, || {
            let loaded = run_here(load, threads, self.place.files(), &settings)?;
            let (count, seconds) = (loaded.ran.count().max(1.0), loaded.ran.seconds());
            Ok(Ran { count, seconds, cpu_ns: loaded.cpu_ns })
        })?;
        self.empty()?;
        Ok(spent)
    }

    /// What was written is removed, and free.
    fn empty(&self) -> Result<(), BenchError> {
        let empty = if self.args.quick { empty } else { empty_and_wait };
        empty(self.place.files())
    }

    /// All applications; `None` for those that need what is not here.
    fn applications(&self) -> Result<Vec<Option<Spent>>, BenchError> {
        let has_leveldb = check_leveldb().is_ok();
        let one = |(load, threads)| {
            let needs_leveldb = !matches!(load, LoadChoice::Varmail | LoadChoice::Fileserver);
            (has_leveldb || !needs_leveldb).then(|| self.load(load, threads)).transpose()
        };
        APPLICATIONS.into_iter().map(one).collect()
    }
}
