//! A node: what it knows of the chain, and the threads that keep it up to date.

use crate::clients::ClientAddress;
use crate::counters::Counters;
use crate::error::NodeError;
use crate::lease::{Lease, boot_time};
use crate::progress::CopyProgress;
use crate::settings::Settings;
use crate::slot::Slot;
use crate::state_file::StateFile;
use crate::troubles::Troubles;
use crate::views::Views;
use landfall_chain::{
    Acknowledged, Compression, Copied, Downstream, HEARTBEAT_STREAM, Heartbeat, Hello, Proof, Reason,
    Refusal, Sending, Standing, Upstream, View, Welcome,
};
use landfall_heap::{Heap, HeapError, RecordView, SlotId, spaces};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq;

/// How often the view is read.
const WATCH_EVERY: Duration = Duration::from_millis(200);
/// How often a higher floor is noted.
const FLOOR_EVERY: Duration = Duration::from_secs(1);
/// How long a hello of the node before says that it is there.
const HEARD_FOR: Duration = Duration::from_secs(1);
/// Numbers of connections of one life.
const INCARNATIONS_BITS: u32 = 32;

/// What a node may do for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    First,
    /// It answers reads.
    Replica,
    /// It does not hold the chain's data yet, or not for sure.
    Waiting,
    /// It is not in the chain any more.
    Removed,
    /// It has no proof that it still has its place: another node may have taken it.
    Fenced,
}

impl Role {
    const ALL: [Self; 5] = [Self::First, Self::Replica, Self::Waiting, Self::Removed, Self::Fenced];
}

/// Says which operation comes next in the log of files.
pub type NextOperation = Box<dyn Fn() -> u64 + Send + Sync>;
/// Says the key under which other nodes know a record of a log.
pub type LogKey = Box<dyn Fn(SlotId, &RecordView<'_>) -> Result<Vec<u8>, HeapError> + Send + Sync>;

/// A node of a chain.
pub struct Node {
    settings: Settings,
    pub(crate) heap: Arc<Heap>,
    view: Mutex<Arc<View>>,
    /// Connections of an older generation are to be closed.
    generation: AtomicU64,
    pub(crate) downstream: Mutex<Downstream>,
    upstream: Mutex<Upstream>,
    /// With a lease only.
    heartbeat: Option<Mutex<Heartbeat>>,
    /// Held while a message of a stream is executed.
    streams: Box<[Mutex<()>]>,
    state: Mutex<StateFile>,
    pub(crate) slots: Box<[Slot]>,
    incarnations: AtomicU64,
    /// Numbers of reports, which grow from life to life, too.
    pub(crate) reports: AtomicU64,
    /// Signalled when somebody waits for room behind.
    pub(crate) room_wanted: Condvar,
    pub(crate) is_full_behind: AtomicBool,
    /// Everything that the chain must know is at the node behind: clients are answered.
    is_ready: AtomicBool,
    /// Records are listed that the node behind may lack.
    lists_unsent: AtomicBool,
    /// A [`Role`].
    role: AtomicU8,
    is_first: AtomicBool,
    /// A copy has found a record that cannot be read, so that the next one keeps nothing.
    has_found_damage: AtomicBool,
    /// In which version of the view the node before has said hello, and when.
    heard: Mutex<Option<(u64, Instant)>>,
    /// When the node was told to stop.
    stops: OnceLock<Instant>,
    /// Signalled when the view or what is known of the node behind changes.
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Index of the next operation of the log of files, where there are files.
    next_operation: OnceLock<NextOperation>,
    log_key: OnceLock<LogKey>,
    /// Where clients connect to it, once it listens.
    clients: OnceLock<Option<ClientAddress>>,
    copying: Mutex<Option<CopyProgress>>,
    pub(crate) troubles: Troubles,
    /// What it has sent.
    pub counters: Counters,
}

/// What tells a region from others, also from one that was made anew in its place: its salt.
fn region_of(heap: &Heap) -> String {
    heap.geometry().salt.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Settings { node, views, .. } = &self.settings;
        write!(f, "Node {{ {node}, {}, {:?} }}", views.describe(), self.role())
    }
}

impl Node {
    /// Reads view and state. The region was opened with [`Settings::floor`].
    ///
    /// # Errors
    /// [`NodeError`] says what is wrong and what to do.
    pub fn open(settings: Settings, heap: &Arc<Heap>) -> Result<Arc<Self>, NodeError> {
        let (view, mut state, mut upstream) = settings.read()?;
        let me = &settings.node;
        if state.note_region(&region_of(heap))? {
            tracing::warn!("the region is not the one that this node had: it is behind");
            if settings.views.lease().is_some() || view.is_first(me) {
                // With etcd, it has said that it is in step.
                return Err(NodeError::FirstIsBehind { node: me.clone(), chain: view.name });
            }
            upstream = Upstream::new(me, state.state().since);
            upstream.set_view(&view);
        }
        state
            .change(|state| (state.starts, state.seen) = (state.starts + 1, state.seen.max(view.version)))?;
        let is_first = view.is_first(me);
        let mut downstream = Downstream::new(settings.streams);
        downstream.set_view(&view, me);
        downstream.number_questions_above(state.state().starts << INCARNATIONS_BITS);
        let heartbeat = settings.views.lease().map(|lease| {
            let mut heartbeat = Heartbeat::new(lease.limit(), boot_time());
            // Nobody was the first one before, or those who were have stopped to answer before this one was.
            if is_first && (view.is_first_one() || view.version == state.state().led) {
                heartbeat.forget_promises();
            }
            heartbeat.set_view(view.version);
            Mutex::new(heartbeat)
        });
        Ok(Arc::new(Self {
            heap: Arc::clone(heap),
            view: Mutex::new(Arc::new(view)),
            generation: AtomicU64::new(0),
            downstream: Mutex::new(downstream),
            upstream: Mutex::new(upstream),
            heartbeat,
            streams: (0..=u8::MAX).map(|_| Mutex::default()).collect(),
            incarnations: AtomicU64::new(state.state().starts << INCARNATIONS_BITS),
            reports: AtomicU64::new(state.state().starts << INCARNATIONS_BITS),
            room_wanted: Condvar::new(),
            is_full_behind: AtomicBool::new(false),
            state: Mutex::new(state),
            slots: (0..settings.streams).map(|_| Slot::new(settings.compression, settings.spin)).collect(),
            is_ready: AtomicBool::new(false),
            lists_unsent: AtomicBool::new(true),
            role: AtomicU8::new(Role::Waiting as u8),
            is_first: AtomicBool::new(is_first),
            has_found_damage: AtomicBool::new(false),
            heard: Mutex::default(),
            stops: OnceLock::new(),
            changed: Condvar::new(),
            threads: Mutex::default(),
            next_operation: OnceLock::new(),
            log_key: OnceLock::new(),
            clients: OnceLock::new(),
            copying: Mutex::default(),
            troubles: Troubles::default(),
            counters: Counters::default(),
            settings,
        }))
    }

    /// How far the copy to the node behind has come; `None`: there is none.
    pub fn copying(&self) -> Option<CopyProgress> {
        self.copying.lock().clone()
    }

    /// Notes how far the copy to the node behind has come.
    pub(crate) fn note_copying(&self, progress: Option<CopyProgress>) {
        self.settings.views.note_copy(progress.as_ref());
        *self.copying.lock() = progress;
    }

    /// The node has files. `next` says which operation their log expects.
    pub fn carry_files(&self, next: NextOperation) {
        let _ = self.next_operation.set(next);
    }

    /// Index of the next operation of the log of files; 0 without files.
    pub(crate) fn next_operation(&self) -> u64 {
        self.next_operation.get().map_or(0, |next| next())
    }

    /// The node has logs.
    pub fn carry_logs(&self, key: LogKey) {
        let _ = self.log_key.set(key);
    }

    /// The key under which other nodes know a record of a log; `None`: the one that it has.
    pub(crate) fn log_key(&self, slot: SlotId, view: &RecordView<'_>) -> Result<Option<Vec<u8>>, HeapError> {
        let key = self.log_key.get().filter(|_| spaces::LOGS.contains(&view.space()));
        key.map(|key| key(slot, view)).transpose()
    }

    /// Starts a thread that ends when [`Self::is_stopping`], and is waited for by [`Self::join`].
    ///
    /// # Errors
    /// [`NodeError::Thread`].
    pub fn spawn(&self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), NodeError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(work).map_err(NodeError::Thread)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Ends all waits for the node behind, which then fail. Batches that are not complete are sent at the next start.
    pub fn stop(&self) {
        let _ = self.stops.set(Instant::now());
        self.notify();
    }

    /// [`Self::stop`], and waits for the threads. Notes that nothing needs to be sent again, if that is so.
    pub fn join(&self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        threads.into_iter().for_each(|thread| thread.join().expect("a thread of the chain panicked"));
        self.note_floor();
    }

    /// How many writers the node has.
    pub(crate) fn streams(&self) -> usize {
        self.settings.streams
    }

    /// Bytes per second of a copy, at most; 0: no limit.
    pub(crate) fn copy_rate(&self) -> u64 {
        self.settings.copy_rate
    }

    /// How it sends to the node behind.
    pub(crate) fn sending(&self) -> Sending {
        self.settings.sending
    }

    /// What it packs of what it sends.
    pub(crate) fn compression(&self) -> Compression {
        self.settings.compression
    }

    /// True once the node is to stop.
    pub fn is_stopping(&self) -> bool {
        self.stops.get().is_some()
    }

    /// How long the node has been stopping; `None`: it is not to stop.
    pub(crate) fn stopping_for(&self) -> Option<Duration> {
        self.stops.get().map(Instant::elapsed)
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.settings.node
    }

    /// The view that counts.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock())
    }

    /// The server listens: clients connect to it there, or nowhere.
    pub fn note_clients(&self, address: Option<ClientAddress>) {
        self.views().note_clients(address.as_ref());
        let _ = self.clients.set(address);
    }

    /// Where clients connect to the server, once it listens.
    pub(crate) fn own_clients(&self) -> Option<&Option<ClientAddress>> {
        self.clients.get()
    }

    /// What is known of the node behind, if there is one.
    pub fn behind(&self) -> Option<(String, Standing)> {
        let downstream = self.downstream.lock();
        downstream.node().map(|node| (node.name.clone(), downstream.standing()))
    }

    /// How many nodes behind this one have what it acknowledges.
    pub fn copies_behind(&self) -> u8 {
        self.downstream.lock().copies()
    }

    /// The node behind has answered in view `version`.
    pub(crate) fn note_acknowledged(&self, version: u64, acknowledged: Acknowledged) {
        let mut downstream = self.downstream.lock();
        downstream.note_copies(version, acknowledged.nodes);
        let is_in_step = downstream.standing() == Standing::InStep;
        drop(downstream);
        if is_in_step && self.is_full_behind() {
            self.note_full_behind(false);
        }
        self.note_room(version, acknowledged.room);
    }

    /// What this node says when everything is durable here and behind.
    pub fn acknowledged(&self) -> Acknowledged {
        Acknowledged { nodes: self.copies_behind() + 1, room: self.room() }
    }

    /// What the node may do for clients at this moment, by the clock.
    pub fn role(&self) -> Role {
        match (self.place(), self.views().lease()) {
            (Role::First, Some(lease)) if !lease.is_first() => Role::Fenced,
            (Role::Replica, Some(lease)) if !lease.is_registered() => Role::Fenced,
            (place, _) => place,
        }
    }

    /// The role of a node that has its place for sure.
    fn place(&self) -> Role {
        let role = self.role.load(Ordering::Acquire);
        Role::ALL.into_iter().find(|known| *known as u8 == role).unwrap_or(Role::Waiting)
    }

    /// Where the node has its view from.
    pub fn views(&self) -> &dyn Views {
        &*self.settings.views
    }

    /// Finds the role anew, after something has changed on which it depends.
    fn find_role(&self) {
        let view = self.view();
        let is_out = self.downstream.lock().is_out();
        let role = match view.find(self.name()) {
            Err(_) => Role::Removed,
            Ok(_) if is_out => Role::Removed,
            Ok(_) if !self.is_in_step() || !self.is_ready() => Role::Waiting,
            Ok((0, _)) if !self.may_lead() => Role::Waiting,
            Ok((0, _)) => Role::First,
            Ok(_) => Role::Replica,
        };
        self.is_first.store(view.is_first(self.name()), Ordering::Release);
        self.role.store(role as u8, Ordering::Release);
        self.views().note_in_step(self.upstream.lock().in_step());
    }

    /// True if no older first node may still answer clients because of what this one has told it.
    fn may_lead(&self) -> bool {
        self.heartbeat.as_ref().is_none_or(|heartbeat| heartbeat.lock().may_lead(boot_time()))
    }

    /// The node before asks whether the view still counts. The guard of [`Self::admit`] is held.
    pub fn answer_heartbeat(&self) -> Proof {
        let heartbeat = self.heartbeat.as_ref();
        heartbeat.map_or(Proof { age: None }, |heartbeat| heartbeat.lock().answer(boot_time()))
    }

    /// The node behind has answered a heartbeat that began at `begun`, or nobody behind is in step.
    pub(crate) fn note_proof(&self, lease: &Lease, version: u64, begun: Duration, answer: Proof) {
        let Some(heartbeat) = &self.heartbeat else { return };
        let mut heartbeat = heartbeat.lock();
        heartbeat.prove(version, begun, answer);
        lease.prove_by_chain(heartbeat.proven());
    }

    /// True if no node is before this one.
    pub(crate) fn is_first(&self) -> bool {
        self.is_first.load(Ordering::Acquire)
    }

    /// True if the node holds everything that the chain has acknowledged.
    pub fn is_in_step(&self) -> bool {
        self.upstream.lock().is_in_step()
    }

    /// Records with a lower seq are at the node behind.
    pub fn floor(&self) -> u64 {
        self.state.lock().state().floor
    }

    /// True once everything that the chain must know is at the node behind.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// True if records may be moved, and dropped: none is listed that the node behind may lack.
    pub fn may_change_records(&self) -> bool {
        !self.lists_unsent.load(Ordering::Acquire)
    }

    /// What was listed is at the node behind, or comes there in a copy.
    pub(crate) fn end_list(&self) {
        self.lists_unsent.store(false, Ordering::Release);
    }

    /// True if this node may make the node behind it fall behind. It does so only for a node before it that is there, and so
    /// for a first one that holds everything: otherwise the node behind may be the last one that does.
    pub(crate) fn may_connect(&self) -> bool {
        let version = self.view().version;
        let is_recent = |(heard, at): &(u64, Instant)| *heard == version && at.elapsed() < HEARD_FOR;
        self.is_in_step() || self.heard.lock().as_ref().is_some_and(is_recent)
    }

    /// The node before has said hello in this version of the view.
    fn hear(&self, version: u64) {
        let before = self.heard.lock().replace((version, Instant::now()));
        if !self.is_ready() && before.is_none_or(|(heard, at)| heard != version || at.elapsed() >= HEARD_FOR)
        {
            self.notify();
        }
    }

    /// Ready, unless the connections of this generation are of no use any more.
    pub(crate) fn set_ready_in(&self, generation: u64) {
        self.set_ready();
        if self.generation() != generation {
            self.is_ready.store(false, Ordering::Release);
            self.find_role();
        }
    }

    fn set_ready(&self) {
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            self.find_role();
            tracing::info!(node = self.name(), role = ?self.place(), "the chain is served");
        }
        self.notify();
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Closes all connections to the node behind, and forgets what is known of it.
    pub(crate) fn reconnect(&self) {
        self.reconnect_in(&self.view());
    }

    /// As [`Self::reconnect`], in a view that is about to count.
    fn reconnect_in(&self, view: &View) {
        self.downstream.lock().set_view(view, self.name());
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.notify();
    }

    /// Wakes every thread of the node that waits.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        self.room_wanted.notify_all();
        self.slots.iter().for_each(Slot::notify);
    }

    /// Waits until something changes, at most for `time`.
    pub(crate) fn wait_for_change(&self, time: Duration) {
        let mut downstream = self.downstream.lock();
        if !self.is_stopping() {
            self.changed.wait_for(&mut downstream, time);
        }
    }

    /// Higher than any before, in this life and in earlier ones.
    pub(crate) fn next_incarnation(&self) -> u64 {
        self.incarnations.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A hello for the node behind.
    pub(crate) fn hello_for(&self, view: &View, to: &str, stream: u8) -> Hello {
        Hello {
            stream,
            incarnation: self.next_incarnation(),
            is_in_step: self.is_in_step(),
            chain: view.name.clone(),
            from: self.name().into(),
            to: to.into(),
            password: self.settings.password.clone().unwrap_or_default(),
        }
    }

    /// Follows the view, and notes the floor, until the node stops.
    pub(crate) fn watch(&self) {
        let mut noted = Instant::now();
        let (mut told, mut told_clients) = (String::new(), None);
        while !self.is_stopping() {
            let outcome = self.views().newest().map_err(|error| error.to_string());
            let ignored = outcome.and_then(|view| self.take_view(view)).err().unwrap_or_default();
            if ignored != told && !ignored.is_empty() {
                tracing::warn!("{ignored}: the view that was read before counts");
            }
            self.troubles.note_view(&ignored);
            self.views().note_troubles(&self.own_troubles().join("; "));
            told = ignored;
            self.follow_time();
            self.tell_of_first(&mut told_clients);
            if noted.elapsed() >= FLOOR_EVERY {
                self.note_floor();
                noted = Instant::now();
            }
            self.wait_for_change(WATCH_EVERY);
        }
    }

    /// A first node may answer clients when some time has passed. It notes that it does.
    fn follow_time(&self) {
        if self.place() == Role::Waiting {
            self.find_role();
        }
        if self.heartbeat.is_none() || self.place() != Role::First {
            return;
        }
        let version = self.view().version;
        if let Err(error) = self.state.lock().change(|state| state.led = version) {
            tracing::warn!(%error, "the state of the node cannot be written");
        }
    }

    /// Another view counts from now on, if it is newer; otherwise says why it is ignored.
    fn take_view(&self, next: View) -> Result<(), String> {
        let current = self.view();
        if next == *current {
            return Ok(());
        }
        if next.name != current.name || next.version <= current.version {
            let (View { name, version, .. }, known) = (next, current.version);
            return Err(format!(
                "{} is version {version} of {name} and not a version above {known} of {}",
                self.views().describe(),
                current.name
            ));
        }
        if next.is_first_one() {
            return Err(format!(
                "{} is the first view of a chain that was made anew",
                self.views().describe()
            ));
        }
        if let Err(wrong) = next.follows(&current) {
            return Err(format!(
                "{} does not follow version {}: {wrong}",
                self.views().describe(),
                current.version
            ));
        }
        tracing::info!(version = next.version, members = next.members.len(), "the chain has changed");
        // An older one does not count at the next start. Where that cannot be noted, the chain changes all the same.
        if let Err(error) = self.state.lock().change(|state| state.seen = next.version) {
            tracing::warn!(%error, "the state of the node cannot be written");
        }
        let next = Arc::new(next);
        // What is executed, and waits for a node behind that is none any more, goes on with the next one: all members have it.
        self.reconnect_in(&next);
        // Nothing of the old view is executed any more when the new one counts.
        let streams: Vec<MutexGuard<'_, ()>> = self.streams.iter().map(Mutex::lock).collect();
        *self.view.lock() = Arc::clone(&next);
        self.upstream.lock().set_view(&next);
        if let Some((heartbeat, lease)) = self.heartbeat.as_ref().zip(self.views().lease()) {
            let mut heartbeat = heartbeat.lock();
            heartbeat.set_view(next.version);
            lease.prove_by_chain(None);
        }
        drop(streams);
        self.troubles.forget_streams();
        // Connections of the time between were made with what was known of the old place.
        self.reconnect();
        self.find_role();
        if self.place() == Role::Removed {
            self.views().note_removed();
        }
        tracing::info!(role = ?self.place(), "place in the chain");
        if next.is_first(self.name()) && !self.is_in_step() {
            tracing::error!(
                "this node is the first of the chain and does not hold the chain's data: remove it from the view"
            );
        }
        Ok(())
    }

    fn note_floor(&self) {
        // What may have to be sent again is in no slot before.
        if !self.is_ready() {
            return;
        }
        let floor = self.slots.iter().map(Slot::complete_below).min().unwrap_or(0);
        if let Err(error) = self.raise_floor(floor) {
            tracing::warn!(%error, "the state of the node cannot be written");
        }
    }

    /// Every record with a lower seq is complete.
    pub(crate) fn raise_floor(&self, floor: u64) -> Result<(), NodeError> {
        self.state.lock().change(|state| state.floor = state.floor.max(floor))
    }

    /// A connection asks for a stream of this node.
    ///
    /// # Errors
    /// Why it does not get it.
    pub fn hello(&self, hello: &Hello, version: u64, connection: u64) -> Result<Welcome, Refusal> {
        let password = self.settings.password.as_deref().unwrap_or_default();
        if !bool::from(hello.password.ct_eq(password)) {
            return Err(Refusal::new(Reason::Password, "wrong password: all nodes of a chain have the same"));
        }
        self.upstream.lock().check(hello, version)?;
        self.hear(version);
        if !self.is_ready() {
            return Err(Refusal::new(Reason::View, format!("{} waits for the node behind it", self.name())));
        }
        if self.place() == Role::Removed {
            return Err(Refusal::new(
                Reason::View,
                format!("{} was removed and must be started anew", self.name()),
            ));
        }
        let _stream = self.streams[usize::from(hello.stream)].lock();
        let mut upstream = self.upstream.lock();
        let welcome = upstream.hello(hello, version, connection)?;
        let is_of_writer = hello.stream < HEARTBEAT_STREAM;
        if hello.is_in_step || !upstream.is_in_step() || !is_of_writer {
            return Ok(Welcome { files: self.next_operation(), ..welcome });
        }
        if self.views().lease().is_some() {
            // A next view may rest on what this node is registered as.
            let text = format!(
                "{} has lost its data, and {} has not: the manager takes {0} out",
                hello.from,
                self.name()
            );
            return Err(Refusal::new(Reason::View, text));
        }
        self.note_since(0)?;
        upstream.fall_behind();
        drop(upstream);
        self.tell_that_behind(&hello.from);
        let text = format!(
            "{} is behind now, as {} is, and tells the nodes behind it first",
            self.name(),
            hello.from
        );
        Err(Refusal::new(Reason::View, text))
    }

    /// This node has fallen behind. Before it says so to the node before, the node behind has to know it: connections are made
    /// anew.
    fn tell_that_behind(&self, before: &str) {
        tracing::warn!(
            node = self.name(),
            before,
            "behind, as the node before it has lost its data: it is copied to"
        );
        self.reconnect();
        self.is_ready.store(false, Ordering::Release);
        self.find_role();
        self.notify();
    }

    /// A message of a stream may be executed as long as the guard lives.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admit(
        &self,
        stream: u8,
        connection: u64,
        version: u64,
        number: u64,
    ) -> Result<MutexGuard<'_, ()>, Refusal> {
        let guard = self.streams[usize::from(stream)].lock();
        self.upstream.lock().admit(stream, connection, version, number)?;
        Ok(guard)
    }

    /// A copy begins: this node is behind, durably. The caller then deletes what it does not keep.
    ///
    /// # Errors
    /// The node is in step; its state cannot be written.
    pub fn begin_copy(&self) -> Result<(), Refusal> {
        let mut upstream = self.upstream.lock();
        upstream.begin_copy(self.heap.next_seq())?;
        self.note_since(0)?;
        drop(upstream);
        self.find_role();
        Ok(())
    }

    /// The copy ends: this node is in step, durably.
    ///
    /// # Errors
    /// The copy is over; the state cannot be written.
    pub fn end_copy(&self, since: u64) -> Result<(), Refusal> {
        // Nodes before this one have not asked it so far, and answer by what the others have said.
        self.heartbeat.iter().for_each(|heartbeat| heartbeat.lock().promise(boot_time()));
        self.upstream.lock().end_copy(since, || self.note_since(since))?;
        self.has_found_damage.store(false, Ordering::Release);
        self.find_role();
        tracing::info!(node = self.name(), "the copy has ended: this node is in step");
        self.notify();
        Ok(())
    }

    fn note_since(&self, since: u64) -> Result<(), Refusal> {
        let noted = self.state.lock().change(|state| state.since = since);
        noted.map_err(|error| Refusal::new(Reason::Copy, error.to_string()))
    }

    /// A record that cannot be read is in the way of a copy that keeps what is there.
    pub fn note_damage(&self) {
        self.has_found_damage.store(true, Ordering::Release);
    }

    /// True after [`Self::note_damage`], until a copy has ended.
    pub fn has_found_damage(&self) -> bool {
        self.has_found_damage.load(Ordering::Acquire)
    }

    /// Records with a lower seq were there before the copy began: they stay only if the node before has the same.
    ///
    /// # Errors
    /// The copy is over.
    pub fn old_below(&self) -> Result<u64, Refusal> {
        self.upstream.lock().old_below()
    }

    /// Executes a copied record, unless a chunk has brought something newer.
    ///
    /// # Errors
    /// The copy is over; what `put` returns. `put` must take the record only where there is none of the key.
    pub fn copied<E: From<Refusal>>(&self, hash: u64, put: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let upstream = self.upstream.lock();
        match upstream.copied(hash)? {
            Copied::IfAbsent => put(),
            Copied::Older => Ok(()),
        }
    }

    /// A chunk is about to delete a key, or everything (`None`): no older version is copied after that.
    pub fn note_deleted(&self, hash: Option<u64>) {
        let mut upstream = self.upstream.lock();
        match hash {
            Some(hash) => upstream.note_deleted(hash),
            None => upstream.note_flushed(),
        }
    }

    /// A connection from the node before is closed.
    pub fn closed(&self, connection: u64) {
        self.upstream.lock().closed(connection);
    }
}

/// A node has no room.
pub fn full(node: &str) -> Refusal {
    let text = format!("{node} has no room for what the chain has: start it with a larger --capacity");
    Refusal::new(Reason::Full, text)
}
