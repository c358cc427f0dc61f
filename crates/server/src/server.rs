//! Starts and stops the server: the store, the listeners, the workers, the background thread.

use crate::chain;
use crate::config::{Config, ConfigError, XdpConfig};
use crate::counters::Counters;
use crate::loads::Loads;
use crate::maintenance::{self, Maintenance};
use crate::shared::{ChosenTransport, Shared, WorkerHandle};
use crate::store::{self, Known, StoreError};
use crate::supervise;
use crate::worker::{LISTENER_CHAIN, LISTENER_HTTP, LISTENER_RESP, Worker};
use crate::writes::{InRegion, PlainWrites};
use landfall_chain_io::Settings;
use landfall_fs::LeftLog;
use landfall_media::Media;
use landfall_sockets::{Transport, TransportError};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pending connections that the kernel queues for a worker.
const BACKLOG: i32 = 1024;

/// How long a port of a server that was killed may stay in use.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(1);
/// Pause before a port is tried again.
const BIND_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The place in the chain cannot be taken.
    #[error(transparent)]
    Chain(#[from] landfall_chain_io::NodeError),
    /// The node behind cannot be connected to.
    #[error(transparent)]
    ChainStart(#[from] chain::StartError),
    /// The transport cannot be opened.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The interface cannot be opened for AF_XDP.
    #[error(transparent)]
    Packets(#[from] landfall_packets::PacketsError),
    /// Environment: the server cannot listen on an address.
    #[error(
        "cannot listen on {address}: {source} (is another server running there? port 0 picks a free one)"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// Environment: a thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<Result<(), TransportError>>>,
    loaders: Vec<JoinHandle<()>>,
    maintenance: Option<JoinHandle<()>>,
}

impl Server {
    /// Opens the store and serves it.
    ///
    /// # Errors
    /// [`ServerError`] says what is wrong and what to do.
    pub fn start(config: Config) -> Result<Self, ServerError> {
        Self::start_over(config, Box::new(InRegion), |_| Ok::<_, ServerError>(()), |_| Vec::new())
    }

    /// As [`Self::start`], with another destination of plain writes, for measurements. `may_begin` and `when_locked` are
    /// called as in [`store::open_when_locked`]; the latter returns what clients of files have left.
    ///
    /// # Errors
    /// As [`Self::start`]; those of `may_begin`.
    pub fn start_over<E: From<ServerError> + From<StoreError>>(
        config: Config,
        writes: Box<dyn PlainWrites>,
        may_begin: impl FnOnce(Option<&dyn Media>) -> Result<(), E>,
        when_locked: impl FnOnce(&Path) -> Vec<Arc<LeftLog>>,
    ) -> Result<Self, E> {
        let in_chain = check_settings(&config)?;
        let may_begin = |media: Option<&dyn Media>| {
            check_places(&config, in_chain.as_ref(), media)?;
            may_begin(media)
        };
        let when_locked = |path: &Path| {
            let floor = in_chain.as_ref().map_or(Ok(0), Settings::floor);
            let next_seq = floor.map_err(ServerError::from)?;
            Ok::<_, E>(Known { left: when_locked(path), next_seq })
        };
        let store = store::open_when_locked::<E>(&config, may_begin, when_locked)?;
        Ok(Self::start_with(config, writes, store, in_chain)?)
    }

    /// Serves a store.
    fn start_with(
        config: Config,
        writes: Box<dyn PlainWrites>,
        store: store::Store,
        in_chain: Option<Settings>,
    ) -> Result<Self, ServerError> {
        let fits = store.engine.heap().check_transports(config.workers);
        fits.map_err(|source| StoreError::Heap { path: store.path.clone(), source })?;
        store.engine.heap().reserve_landing(config.workers as u32);
        set_up_heap(&config, store.engine.heap())?;
        if in_chain.is_some() {
            let log_of_files = u32::from(store.files.files().is_some());
            store.engine.heap().reserve_admitted(config.workers as u32 + log_of_files);
        }
        let chain = chain::open(in_chain, &store)?;
        let on_chain = chain::address(chain.as_ref());
        config.check_address(on_chain)?;
        let listeners = Listeners::bind(&config, on_chain)?;
        let opened = open_transports(&config, &store, on_chain)?;
        let at = |listeners: &[TcpListener], configured: Option<SocketAddr>| match opened.own_address {
            Some(ip) => configured.map(|address| SocketAddr::new(ip, address.port())),
            None => listeners.first().and_then(|l| l.local_addr().ok()),
        };
        let loads = Loads::of(store.engine.heap());
        let shared = Arc::new(Shared {
            bound_resp: at(&listeners.resp, config.resp),
            bound_http: at(&listeners.http, config.http),
            engine: store.engine,
            logs: store.logs,
            files: store.files,
            chain,
            writes,
            recovered: store.recovered,
            recovery_ns: store.took.as_nanos() as u64,
            counters: Counters::default(),
            started: Instant::now(),
            run_id: hex(&store::random::<20>()?),
            transport: opened.chosen,
            transport_counters: (0..config.workers).map(|_| Default::default()).collect(),
            clients: Default::default(),
            next_client: AtomicU64::new(1),
            cursors: Default::default(),
            maintenance: std::sync::OnceLock::new(),
            loads,
            stopping: AtomicBool::new(false),
            workers: std::sync::OnceLock::new(),
            config,
        });
        log_recovery(&shared);
        chain::announce(&shared);
        chain::start(&shared)?;
        Self::spawn(shared, listeners, opened.makers)
    }

    fn spawn(
        shared: Arc<Shared>,
        listeners: Listeners,
        makers: Vec<MakeTransport>,
    ) -> Result<Self, ServerError> {
        let mut server = Self { shared, workers: Vec::new(), loaders: Vec::new(), maintenance: None };
        let (handles_in, handles_out) = std::sync::mpsc::sync_channel(makers.len());
        let per_worker = listeners.split(makers.len());
        for (id, (maker, listeners)) in makers.into_iter().zip(per_worker).enumerate() {
            let shared = Arc::clone(&server.shared);
            let handles = handles_in.clone();
            // A transport belongs to the thread that created it.
            let work = move || {
                landfall_sockets::run_soon_when_woken();
                let mut transport = maker()?;
                for (listener, tag) in listeners {
                    transport.listen(listener, tag)?;
                }
                let _ = handles.send((id, transport.waker()));
                drop(handles);
                while shared.workers.get().is_none() && !shared.is_stopping() {
                    std::thread::yield_now();
                }
                let serve = || Worker::new(Arc::clone(&shared), id, transport).run();
                let outcome = supervise::essential("a worker", serve);
                if let Err(error) = &outcome {
                    tracing::error!(%error, worker = id, "a worker failed: stopping");
                    shared.stop();
                }
                outcome
            };
            let thread = std::thread::Builder::new().name(format!("worker-{id}")).spawn(work);
            server.workers.push(thread.map_err(ServerError::Thread)?);
        }
        drop(handles_in);
        server.collect_handles(&handles_out)?;
        if let Some(loads) = &server.shared.loads {
            server.loaders = loads.spawn(&server.shared).map_err(ServerError::Thread)?;
        }
        let background = Maintenance::new(Arc::clone(&server.shared));
        let work = || supervise::essential("background work", move || background.run());
        let thread = std::thread::Builder::new().name("maintenance".into()).spawn(work);
        server.maintenance = Some(thread.map_err(ServerError::Thread)?);
        Ok(server)
    }

    /// Waits until every worker has its transport.
    fn collect_handles(
        &mut self,
        handles: &std::sync::mpsc::Receiver<(usize, landfall_sockets::Waker)>,
    ) -> Result<(), ServerError> {
        let mut wakers: Vec<_> = handles.iter().collect();
        if wakers.len() < self.workers.len() {
            self.shared.stopping.store(true, std::sync::atomic::Ordering::Release);
            for worker in self.workers.drain(..) {
                if let Ok(Err(error)) = worker.join() {
                    return Err(error.into());
                }
            }
        }
        wakers.sort_by_key(|(id, _)| *id);
        let handle = |(_, waker)| WorkerHandle {
            waker,
            waiters: AtomicU64::new(0),
            loading: AtomicBool::new(false),
            logs_grown: AtomicBool::new(false),
        };
        let _ = self.shared.workers.set(wakers.into_iter().map(handle).collect());
        Ok(())
    }

    /// State that the workers share: bound addresses, counters, the engine.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Waits until the server has stopped, because it was told to or because a worker failed.
    ///
    /// # Errors
    /// The error of a worker.
    pub fn join(mut self) -> Result<(), ServerError> {
        let mut outcome = Ok(());
        for worker in self.workers.drain(..) {
            outcome = outcome.and(worker.join().expect("a worker panicked"));
        }
        self.shared.stop();
        if let Some(thread) = self.maintenance.take() {
            thread.join().expect("the background thread panicked");
        }
        self.shared.loads.iter().for_each(|loads| loads.stop());
        for thread in self.loaders.drain(..) {
            thread.join().expect("a thread that reads the region panicked");
        }
        self.shared.chain.iter().for_each(|node| node.join());
        maintenance::leave_clean(&self.shared);
        Ok(outcome?)
    }
}

/// Checks what the settings say among themselves, and returns the place in a chain.
fn check_settings(config: &Config) -> Result<Option<Settings>, ServerError> {
    config.check_exposure()?;
    config.check_memory()?;
    config.check_files()?;
    Ok(chain::settings(config)?)
}

/// Checks that the server can serve where its settings say so, before its region is created or changed. What is opened for
/// that is closed again: whatever has changed meanwhile is refused later.
fn check_places(
    config: &Config,
    in_chain: Option<&Settings>,
    media: Option<&dyn Media>,
) -> Result<(), ServerError> {
    store::check_workers(config, config.workers, media)?;
    media.map_or(Ok(()), |media| check_integrity(config, media))?;
    let on_chain = in_chain.map_or(Ok(None), Settings::listens)?;
    config.check_address(on_chain)?;
    if let Some(xdp) = &config.xdp {
        let (settings, _) = network_settings(config, xdp, on_chain)?;
        landfall_packets::Network::check(&settings)?;
        return Ok(());
    }
    drop(landfall_sockets::open(config.transport, (0, 0))?);
    [config.resp, config.http, on_chain].into_iter().flatten().try_for_each(check_port)
}

/// Values up to this length that came in separate packets are copied beside others: a quarter of a frame.
const CONSOLIDATED_MAX: u32 = 512;

/// Configures the heap for the settings and the transport.
fn set_up_heap(config: &Config, heap: &landfall_heap::Heap) -> Result<(), ServerError> {
    if config.xdp.is_some() {
        heap.consolidate_up_to(CONSOLIDATED_MAX);
    }
    check_integrity(config, &**heap.media())?;
    heap.set_integrity(config.integrity).map_err(|error| StoreError::from(error).into())
}

/// Sums of packets certify values only where a fence is fast.
fn check_integrity(config: &Config, media: &dyn Media) -> Result<(), ServerError> {
    let slow = media.commit_mode() == landfall_media::CommitMode::Deferred;
    if config.integrity == landfall_heap::Integrity::Tcp && slow {
        return Err(ConfigError::SlowFences.into());
    }
    Ok(())
}

/// Creates a worker's transport, on the worker's thread.
type MakeTransport = Box<dyn FnOnce() -> Result<Box<dyn Transport>, TransportError> + Send>;

/// The chosen transport, and a constructor for each worker.
struct Opened {
    chosen: ChosenTransport,
    makers: Vec<MakeTransport>,
    /// The served address, if the kernel does not listen on it.
    own_address: Option<IpAddr>,
}

/// Opens the transport once here, so that a refusal fails the start instead of a worker.
fn open_transports(
    config: &Config,
    store: &store::Store,
    on_chain: Option<SocketAddr>,
) -> Result<Opened, ServerError> {
    let media = store.engine.heap().media();
    if let Some(xdp) = &config.xdp {
        return open_network(config, xdp, media.pin_image().unwrap_or((0, 0)), on_chain);
    }
    let image = media.image().unwrap_or((0, 0));
    let probe = landfall_sockets::open(config.transport, image)?;
    let chosen = ChosenTransport { name: probe.transport.name(), reason: probe.reason };
    let request = match chosen.name {
        "uring" => landfall_sockets::TransportRequest::Uring,
        _ => landfall_sockets::TransportRequest::Epoll,
    };
    let make =
        || -> MakeTransport { Box::new(move || Ok(landfall_sockets::open(request, image)?.transport)) };
    Ok(Opened { chosen, makers: (0..config.workers).map(|_| make()).collect(), own_address: None })
}

/// How the interface is to be opened, and what listens at which of its ports.
fn network_settings(
    config: &Config,
    xdp: &XdpConfig,
    on_chain: Option<SocketAddr>,
) -> Result<(landfall_packets::Settings, Vec<(u16, u32)>), ServerError> {
    let port = |address: Option<SocketAddr>, tag| address.map(|address| (address.port(), tag));
    let ports =
        [port(config.resp, LISTENER_RESP), port(config.http, LISTENER_HTTP), port(on_chain, LISTENER_CHAIN)];
    let ports: Vec<(u16, u32)> = ports.into_iter().flatten().collect();
    if ports.iter().any(|(port, _)| *port == 0) {
        // With sockets the kernel selects a port.
        let expected = "one from 1 to 65535: with --xdp there is no automatic choice";
        return Err(ConfigError::Value { what: "port to serve on", text: "0".into(), expected }.into());
    }
    let settings = landfall_packets::Settings {
        interface: xdp.interface.clone(),
        address: xdp.address,
        mac: xdp.mac,
        ports: ports.iter().map(|(port, _)| *port).collect(),
        spin: xdp.spin,
        mode: xdp.mode,
        busy_poll: xdp.busy_poll,
        offload: xdp.offload,
        bounce: xdp.bounce,
        pin: xdp.pin.clone(),
        workers: config.workers,
    };
    Ok((settings, ports))
}

/// Opens the interface once, and one of its queues for each worker.
fn open_network(
    config: &Config,
    xdp: &XdpConfig,
    image: (usize, u64),
    on_chain: Option<SocketAddr>,
) -> Result<Opened, ServerError> {
    let (settings, ports) = network_settings(config, xdp, on_chain)?;
    let network = landfall_packets::Network::open(settings, image)?;
    let served = network.address();
    let elsewhere = on_chain.filter(|at| at.ip() != served);
    if let Some(listens) = elsewhere {
        return Err(ConfigError::ViewElsewhere { listens, served }.into());
    }
    let chosen = ChosenTransport { name: "xdp", reason: network.reason() };
    let make = |worker| -> MakeTransport {
        let (network, ports) = (Arc::clone(&network), ports.clone());
        Box::new(move || network.transport(worker, &ports))
    };
    let makers = (0..config.workers).map(make).collect();
    Ok(Opened { chosen, makers, own_address: Some(served) })
}

/// One listening socket per worker and protocol; the kernel distributes connections over them.
struct Listeners {
    resp: Vec<TcpListener>,
    http: Vec<TcpListener>,
    chain: Vec<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config, on_chain: Option<SocketAddr>) -> Result<Self, ServerError> {
        if config.xdp.is_some() {
            return Ok(Self { resp: Vec::new(), http: Vec::new(), chain: Vec::new() });
        }
        let bind =
            |address: Option<SocketAddr>| address.map_or(Ok(Vec::new()), |a| bind_all(a, config.workers));
        Ok(Self { resp: bind(config.resp)?, http: bind(config.http)?, chain: bind(on_chain)? })
    }

    fn split(self, workers: usize) -> Vec<Vec<(TcpListener, u32)>> {
        let mut split: Vec<Vec<_>> = (0..workers).map(|_| Vec::new()).collect();
        let all = [(self.resp, LISTENER_RESP), (self.http, LISTENER_HTTP), (self.chain, LISTENER_CHAIN)];
        for (listeners, tag) in all {
            for (worker, listener) in split.iter_mut().zip(listeners) {
                worker.push((listener, tag));
            }
        }
        split
    }
}

/// Checks that a port is nobody's. Without SO_REUSEPORT, a port of another server is refused instead of shared.
fn check_port(address: SocketAddr) -> Result<(), ServerError> {
    bind_soon(address).map(drop).map_err(|source| ServerError::Listen { address, source })
}

fn bind_all(address: SocketAddr, count: usize) -> Result<Vec<TcpListener>, ServerError> {
    let listen = |source| ServerError::Listen { address, source };
    if address.port() != 0 {
        check_port(address)?;
    }
    let first = bind_one(address, true).map_err(listen)?;
    let bound = first.local_addr().map_err(listen)?;
    let mut all = vec![first];
    for _ in 1..count {
        all.push(bind_one(bound, true).map_err(listen)?);
    }
    Ok(all)
}

/// Binds a port that may just be given back. The kernel closes the sockets of a killed process's ring a little after the
/// process has ended.
fn bind_soon(address: SocketAddr) -> std::io::Result<TcpListener> {
    let until = Instant::now() + GIVEN_BACK_WITHIN;
    loop {
        match bind_one(address, false) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(BIND_AGAIN_AFTER);
            }
            outcome => return outcome,
        }
    }
}

fn bind_one(address: SocketAddr, shared: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn log_recovery(shared: &Shared) {
    let (found, heap) = (&shared.recovered, shared.engine.heap());
    tracing::info!(medium = %heap.media().describe(), "region opened");
    for note in &found.notes {
        tracing::warn!("{note}");
    }
    for damaged in &found.damaged {
        let key = damaged.named.as_ref().map(|(_, key, _)| String::from_utf8_lossy(key).into_owned());
        tracing::error!(slot = damaged.slot.0, key, what = %damaged.what, "a record is damaged");
    }
    tracing::info!(
        keys = shared.engine.stats().keys.iter().sum::<u64>(),
        logs = shared.logs.stats().logs,
        inodes = shared.files.files().map_or(0, |files| files.inode_count()),
        records = found.records,
        unacknowledged_kept = found.resolved.accepted,
        unacknowledged_dropped = found.resolved.rejected,
        corrected = found.corrected.len(),
        damaged = found.damaged.len(),
        ms = shared.recovery_ns / 1_000_000,
        "recovered"
    );
}
