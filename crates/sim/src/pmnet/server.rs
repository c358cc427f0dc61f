//! The node of the server: a real [`Server`], and an application that commits effects and rows together.

use super::costs::Core;
use super::datagram::{Datagram, Way};
use super::fabric::{Fabric, Happening};
use super::fault::Broken;
use super::request::{Answer, Request};
use super::store::{Effect, Store};
use crate::violation::{Violation, ensure};
use landfall_pmnet::auth::{Ends, Guard, Key};
use landfall_pmnet::device::Side;
use landfall_pmnet::server::{Server, ServerConfig, Ticket, Work};
use landfall_pmnet::wire::kind;
use landfall_pmnet::{Instant, SessionRow};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// Settings of the server and its application.
#[derive(Clone, Debug)]
pub struct ServerSetup {
    /// Settings of the state machine.
    pub config: ServerConfig,
    /// Number of replicas that must have a batch before it counts, in addition to the server.
    pub replicas: usize,
    /// Most batches under way at the same time.
    pub batches_max: usize,
    /// Most pieces of work in one batch.
    pub batch_max: usize,
    /// Longest time until a medium has stored a batch, microseconds.
    pub store_us: u64,
    /// The store refuses one batch in so many, and applies nothing of it; 0: none.
    pub refuses: u64,
}

/// The result of a piece of work, which the server reports once the batch counts.
#[derive(Debug)]
enum Told {
    Committed(Ticket),
    Respond(Ticket, Vec<u8>, bool),
}

#[derive(Debug)]
struct Batch {
    /// Number of batches up to and including this one.
    number: usize,
    told: Vec<Told>,
}

/// The server, running or stopped.
#[derive(Debug)]
pub(super) struct ServerNode {
    setup: ServerSetup,
    address: SocketAddr,
    /// The hop to the clients' side.
    hop: usize,
    key: Option<Key>,
    guard: Guard,
    broken: Option<Broken>,
    pub(super) running: Option<Server>,
    /// The server has started, and replicas still lack batches that it has.
    catching_up: bool,
    pub(super) store: Store,
    under_way: VecDeque<Batch>,
    /// Number of batches whose results were reported.
    confirmed: usize,
    life: u64,
}

impl ServerNode {
    pub(super) fn new(
        setup: ServerSetup,
        (address, hop): (SocketAddr, usize),
        key: Option<Key>,
        broken: Option<Broken>,
    ) -> Self {
        let store = Store::new(setup.replicas);
        Self {
            setup,
            address,
            hop,
            key,
            guard: Guard::default(),
            broken,
            running: None,
            catching_up: false,
            store,
            under_way: VecDeque::new(),
            confirmed: 0,
            life: 0,
        }
    }

    /// Starts the server with the batches on its medium. Sessions continue once every replica has these batches,
    /// because a row is confirmed to any client that asks.
    pub(super) fn start(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        self.life += 1;
        self.catching_up = true;
        self.feed_replicas(fabric);
        self.begin(fabric)
    }

    fn begin(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        if !self.catching_up || self.store.everywhere() < self.store.len() {
            return Ok(());
        }
        (self.catching_up, self.confirmed) = (false, self.store.len());
        let held = self.store.held();
        let rows: Vec<SessionRow> = held.rows.values().copied().collect();
        let (mut config, incarnation) = (self.setup.config.clone(), fabric.rng.draw());
        if let Some(silence) = config.silence.as_mut().filter(|_| self.broken == Some(Broken::EndsUnasked)) {
            silence.devices = 0;
        }
        self.guard = Guard::of(self.key.as_ref(), || incarnation);
        self.running = Some(Server::new(config, incarnation, rows, held.floor, fabric.now));
        self.work(fabric)
    }

    /// True if the server runs, or is starting.
    pub(super) fn is_up(&self) -> bool {
        self.running.is_some() || self.catching_up
    }

    /// Crashes the server. It loses batches that are not committed.
    pub(super) fn crash(&mut self, fabric: &mut Fabric) {
        let survivors = fabric.rng.below(self.setup.batches_max as u64 + 1) as usize;
        self.stop();
        self.store.crash(survivors);
    }

    /// Replaces the lost server by a replica. False if no replica has all confirmed batches.
    pub(super) fn fail_over(&mut self) -> bool {
        if !self.store.fail_over(self.confirmed) {
            return false;
        }
        self.stop();
        true
    }

    /// Stops the server and removes its last batches, even confirmed ones. This models a server that syncs only
    /// sometimes, or a replica that lags behind.
    pub(super) fn go_back(&mut self, batches: usize) {
        self.stop();
        self.store.go_back(batches);
    }

    fn stop(&mut self) {
        (self.running, self.catching_up) = (None, false);
        self.life += 1;
        self.under_way.clear();
    }

    /// The silence after which sessions end, if they do.
    pub(super) fn silence(&self) -> Option<Duration> {
        self.setup.config.silence.map(|silence| silence.after)
    }

    /// True if the server runs and no batch is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_some() && self.under_way.is_empty()
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.running.as_ref()?.next_timeout()
    }

    pub(super) fn handle_timeout(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        let Some(server) = &mut self.running else { return Ok(()) };
        server.handle_timeout(fabric.now);
        self.work(fabric)
    }

    pub(super) fn handle(&mut self, datagram: &Datagram, fabric: &mut Fabric) -> Result<(), Violation> {
        let Some(server) = self.running.as_mut().filter(|_| datagram.is_sound()) else { return Ok(()) };
        let ends = Ends::of(Side::Server, datagram.from, datagram.to);
        if let Ok(packet) = self.guard.open(ends, fabric.now.nanos(), &datagram.payload) {
            if self.broken == Some(Broken::ConfirmedUnheard) && packet.first() == Some(&kind::CONFIRMED) {
                return Ok(());
            }
            server.handle_datagram(datagram.from, packet, fabric.now);
        }
        self.work(fabric)
    }

    /// Handles that the server's medium has stored its next batch.
    pub(super) fn stored(&mut self, life: u64, fabric: &mut Fabric) -> Result<(), Violation> {
        if life != self.life {
            return Ok(());
        }
        self.store.store_one();
        if !self.store.is_stored() {
            self.write_next(fabric);
        }
        self.confirm(fabric)
    }

    /// Handles that a replica has stored its next batch.
    pub(super) fn replicated(
        &mut self,
        (replica, life): (usize, u64),
        fabric: &mut Fabric,
    ) -> Result<(), Violation> {
        let copy = &mut self.store.replicas[replica];
        if copy.life != life || copy.down {
            return Ok(());
        }
        (copy.has, copy.busy) = (copy.has + 1, false);
        self.feed_replicas(fabric);
        self.begin(fabric)?;
        self.confirm(fabric)
    }

    /// Stops a replica. A batch under way to it is lost. With `wiped`, an empty replica will take its place.
    pub(super) fn stop_replica(&mut self, replica: usize, wiped: bool) {
        let copy = &mut self.store.replicas[replica];
        (copy.down, copy.busy) = (true, false);
        copy.life += 1;
        if wiped {
            copy.has = 0;
        }
    }

    /// Starts a replica again. It is sent the batches that it lacks.
    pub(super) fn start_replica(&mut self, replica: usize, fabric: &mut Fabric) {
        self.store.replicas[replica].down = false;
        self.feed_replicas(fabric);
    }

    fn feed_replicas(&mut self, fabric: &mut Fabric) {
        for replica in 0..self.store.replicas.len() {
            if self.is_up() && self.store.is_behind(replica) {
                self.store.replicas[replica].busy = true;
                let life = self.store.replicas[replica].life;
                let costs = fabric.cores.as_ref().map(|cores| cores.costs.replicate());
                let delay = costs.unwrap_or_else(|| fabric.pause(10, 2 * self.setup.store_us));
                fabric.after(delay, Happening::Replicated { replica, life });
            }
        }
    }

    fn write_next(&mut self, fabric: &mut Fabric) {
        fabric.enter(Core::Server, |costs| costs.commit);
        let delay = fabric.done_in().unwrap_or_else(|| fabric.pause(1, self.setup.store_us));
        fabric.after(delay, Happening::Stored { life: self.life });
    }

    /// Reports the results of batches that the server's medium and all replicas have.
    fn confirm(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        let everywhere = match self.broken {
            Some(Broken::ServerConfirmsEarly) => usize::MAX,
            _ => self.store.everywhere(),
        };
        while self.under_way.front().is_some_and(|batch| batch.number <= everywhere) {
            let batch = self.under_way.pop_front().expect("it is there");
            self.confirmed = self.confirmed.max(batch.number);
            let Some(server) = &mut self.running else { break };
            fabric.enter(Core::Server, |_| Duration::ZERO);
            for told in batch.told {
                match told {
                    Told::Committed(ticket) => server.committed(ticket, fabric.now),
                    Told::Respond(ticket, bytes, changed) => {
                        server.respond(ticket, bytes, changed, fabric.now).expect("answers are short");
                    }
                }
            }
        }
        self.work(fabric)
    }

    /// Takes work from the server's state machine and commits it, and sends packets.
    fn work(&mut self, fabric: &mut Fabric) -> Result<(), Violation> {
        while self.under_way.len() < self.setup.batches_max {
            let Some(server) = &mut self.running else { return Ok(()) };
            let work: Vec<Work> =
                std::iter::from_fn(|| server.poll_work()).take(self.setup.batch_max).collect();
            if work.is_empty() {
                break;
            }
            if self.setup.refuses > 0 && fabric.rng.one_in(self.setup.refuses) {
                work.iter().for_each(|work| server.failed(work.ticket()));
                break;
            }
            self.commit(work, fabric)?;
        }
        self.transmit(fabric);
        Ok(())
    }

    fn transmit(&mut self, fabric: &mut Fabric) {
        let Some(server) = &mut self.running else { return };
        while let Some((to, mut bytes)) = server.poll_transmit() {
            let ends = Ends::to_client(to, self.address.port());
            self.guard.seal(ends, fabric.now.nanos(), &mut bytes);
            fabric.send(self.hop, Way::Down, Datagram::new(self.address, to, bytes));
        }
    }

    /// Executes a batch, and begins its commit.
    fn commit(&mut self, work: Vec<Work>, fabric: &mut Fabric) -> Result<(), Violation> {
        let was_stored = self.store.is_stored();
        let (mut effects, mut told) = (Vec::new(), Vec::new());
        for work in work {
            fabric.enter(Core::Server, |costs| costs.execute);
            let from = effects.len();
            told.push(self.execute(work, &mut effects)?);
            effects[from..].iter().for_each(|effect| self.store.apply(effect));
        }
        let number = self.store.append(effects);
        self.under_way.push_back(Batch { number, told });
        if was_stored {
            self.write_next(fabric);
        }
        self.feed_replicas(fabric);
        match self.broken {
            Some(Broken::ServerConfirmsEarly) => self.confirm(fabric),
            _ => Ok(()),
        }
    }

    fn execute(&self, work: Work, effects: &mut Vec<Effect>) -> Result<Told, Violation> {
        match work {
            Work::Update { ticket, request, row } => {
                let Some(Request::Set { key, id, pad }) = Request::from_bytes(&request) else {
                    return Err(Violation(format!(
                        "{row:?}: an update of {} bytes is malformed",
                        request.len()
                    )));
                };
                effects.push(Effect::Set { session: (row.key, row.nonce), key, id, pad });
                if self.broken != Some(Broken::RowForgotten) {
                    effects.push(Effect::Row(row));
                }
                Ok(Told::Committed(ticket))
            }
            Work::Bypass { ticket, lost: true, .. } => {
                Ok(Told::Respond(ticket, Answer::Lost.to_bytes(0), false))
            }
            Work::Bypass { ticket, request, row, lost: false } => {
                let (answer, changed) = self.bypass(&request, row, effects)?;
                Ok(Told::Respond(ticket, answer, changed))
            }
            Work::Row { ticket, row, evicted, floor } => {
                ensure!(floor >= self.store.held().floor, "the floor is lowered to {floor}");
                effects.extend(evicted.into_iter().map(Effect::Evict));
                effects.extend([Effect::Row(row), Effect::Floor(floor)]);
                Ok(Told::Committed(ticket))
            }
        }
    }

    /// Executes a bypass. Returns the answer, and whether the state has changed.
    fn bypass(
        &self,
        request: &[u8],
        row: SessionRow,
        effects: &mut Vec<Effect>,
    ) -> Result<(Vec<u8>, bool), Violation> {
        let held = self.store.held();
        match Request::from_bytes(request) {
            Some(Request::Get { key }) => {
                Ok((Answer::Value(held.register(key)).to_bytes(held.pad(key)), false))
            }
            Some(Request::Count { key }) => Ok((Answer::Value(held.counter(key)).to_bytes(0), false)),
            Some(Request::Add { key, id }) => {
                effects.push(Effect::Add { key, id });
                if self.broken != Some(Broken::BypassRowForgotten) {
                    effects.push(Effect::Row(row));
                }
                Ok((Answer::Value(held.counter(key) + 1).to_bytes(0), true))
            }
            other => Err(Violation(format!("{row:?}: {other:?} is not a bypass"))),
        }
    }
}
