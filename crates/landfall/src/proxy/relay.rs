//! The clients of a proxy, and which server is theirs.

use super::choice::{Choice, Heard};
use super::pair::{Pair, linger, thread};
use super::reach::reach;
use landfall_chain_io::ClientAddress;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time limit to connect to the first server, at each of its addresses.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// How long a client that is refused may take to receive why.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);
/// How long a server may be silent to a client that has ended its direction, before that counts as gone. It may wait for
/// a reply, or may have closed: both look alike until its kernel has forgotten the connection, some minute later, and many
/// that gave up would have all places until then. A chain that has lost a server answers a write when that is taken out,
/// after T (10 s by default), and another server has begun to answer, after T/2 more at most: the limit is twice that. If T
/// is longer, such a client may lose the reply, as by any lost connection.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long replies on their way may take when the proxy stops.
const GRACE: Duration = Duration::from_secs(5);

struct State {
    choice: Choice,
    first: Option<ClientAddress>,
    open: BTreeMap<u64, Arc<Pair>>,
    next: u64,
    /// Dropped when the proxy stops.
    running: Option<PipeWriter>,
}

/// The clients, and which server is theirs.
pub(super) struct Relay {
    chain: String,
    clients_max: usize,
    clients: AtomicUsize,
    state: Mutex<State>,
    /// Ends when the proxy stops: whoever waits for requests is woken by that.
    stop: PipeReader,
    /// Signalled when a client has ended.
    ended: Condvar,
}

/// Why a client is not connected to a server. The text is an error of RESP.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "MASTERDOWN no server of the chain {chain} says which one takes writes: try again, or see the log of the proxy"
    )]
    NoFirst { chain: String },
    #[error(
        "MASTERDOWN {first}, the first server of the chain {chain}, cannot be reached ({source}): try again, as another one \
         takes its place"
    )]
    Unreachable { chain: String, first: ClientAddress, source: io::Error },
    #[error("MASTERDOWN another server of the chain {chain} has become the first one: try again")]
    Changed { chain: String },
    #[error("ERR the proxy cannot start a thread: {0}")]
    Thread(io::Error),
}

/// One of the clients that there may be at once.
struct Place<'r>(&'r Relay);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Relay {
    pub(super) fn new(chain: &str, servers: usize, clients_max: usize) -> io::Result<Self> {
        let (stop, running) = io::pipe()?;
        let (choice, running) = (Choice::new(servers), Some(running));
        let state = State { choice, first: None, open: BTreeMap::new(), next: 0, running };
        Ok(Self {
            chain: chain.into(),
            clients_max,
            clients: AtomicUsize::new(0),
            state: Mutex::new(state),
            stop,
            ended: Condvar::new(),
        })
    }

    /// Something is heard of a server. If another one is the first, clients of the one before are cut off.
    pub(super) fn note(&self, server: usize, heard: Heard) {
        let (mut state, now) = (self.state.lock(), Instant::now());
        state.choice.note(server, heard, now);
        let first = state.choice.first(now).cloned();
        if first == state.first {
            return;
        }
        match &first {
            None => tracing::warn!("no server says which one takes writes: clients that come are refused"),
            Some(first) => {
                let others = state.open.values().filter(|pair| pair.to != *first);
                let cut_off = others.inspect(|pair| pair.cut()).count();
                tracing::info!(%first, cut_off, "clients are connected to the first server");
            }
        }
        state.first = first;
    }

    /// Serves a client in a thread of its own.
    pub(super) fn accept(self: &Arc<Self>, client: TcpStream) {
        if self.clients.fetch_add(1, Ordering::AcqRel) >= self.clients_max {
            let _full = Place(self);
            // It fits into the buffer of a new connection.
            let _ = (&client).write_all(b"-ERR max number of clients reached\r\n");
            return;
        }
        let (relay, client) = (Arc::clone(self), Arc::new(client));
        let serve = move || {
            let _place = Place(&relay);
            if let Err(refusal) = relay.serve(&client) {
                tracing::debug!(%refusal, "a client is refused");
                // Whoever does not wait for the refusal misses it.
                let _ = refuse(&client, &refusal);
            }
        };
        if let Err(error) = thread("client").spawn(serve) {
            let _none = Place(self);
            tracing::warn!(%error, "a client is not served");
        }
    }

    fn serve(&self, client: &Arc<TcpStream>) -> Result<(), Refusal> {
        let chain = || self.chain.clone();
        let first = self.state.lock().first.clone().ok_or_else(|| Refusal::NoFirst { chain: chain() })?;
        let unreachable = |source| Refusal::Unreachable { chain: chain(), first: first.clone(), source };
        let server = reach(&first, |address| TcpStream::connect_timeout(&address, CONNECT_LIMIT));
        let server = server.map_err(unreachable)?;
        let pair = Arc::new(Pair::new(client, server, &first).map_err(unreachable)?);
        let id = self.open(&pair).ok_or_else(|| Refusal::Changed { chain: chain() })?;
        let carried = pair.carry(&self.stop, SILENCE_MAX);
        self.state.lock().open.remove(&id);
        self.ended.notify_all();
        carried.map_err(Refusal::Thread)
    }

    /// The pair is cut off from now on when it has to be; `None` if it has to be at once.
    fn open(&self, pair: &Arc<Pair>) -> Option<u64> {
        let mut state = self.state.lock();
        if state.running.is_none() || state.first.as_ref().is_some_and(|first| *first != pair.to) {
            return None;
        }
        state.next += 1;
        let id = state.next;
        state.open.insert(id, Arc::clone(pair));
        Some(id)
    }

    /// Reads nothing more of clients, and waits for replies that are on their way.
    pub(super) fn stop(&self) {
        let until = Instant::now() + GRACE;
        let mut state = self.state.lock();
        state.running = None;
        while !state.open.is_empty() && !self.ended.wait_until(&mut state, until).timed_out() {}
        state.open.values().for_each(|pair| pair.cut());
    }
}

/// Says why, and waits until the client has read it.
fn refuse(mut client: &TcpStream, refusal: &Refusal) -> io::Result<()> {
    client.set_write_timeout(Some(REFUSAL_LIMIT))?;
    client.write_all(format!("-{refusal}\r\n").as_bytes())?;
    client.shutdown(Shutdown::Write)?;
    linger(client)
}
