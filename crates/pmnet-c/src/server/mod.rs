//! The server's calls, without pointers. A thread of the library serves the socket; the application's threads
//! receive requests and answer them.

mod queue;

pub(crate) use queue::{Answer, Piece};

use crate::error::CallError;
use landfall_pmnet::{Instant, Server, SessionRow, Work};
use landfall_pmnet_io::runtime::{
    Application, Network, Outcome, Published, RuntimeError, Saved, ServerOptions, ServerReport, serve,
};
use queue::Queue;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest wait before the thread checks whether it should stop.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Pause between two checks of whether the server listens.
const START_PAUSE: Duration = Duration::from_millis(1);

/// The state of a `PMNet_server`.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    response_max: usize,
}

impl Running {
    /// Starts the thread and waits until the server listens.
    pub(crate) fn open(options: ServerOptions, rows: Vec<SessionRow>, floor: u32) -> Result<Self, CallError> {
        let response_max =
            Server::new(options.server.clone(), 0, [], 0, Instant::from_nanos(0)).response_max();
        let pipe = std::io::pipe().map_err(|source| CallError::Kernel { what: "make a pipe", source })?;
        let (queue, stop) = (Arc::new(Queue::new(pipe)), Arc::new(AtomicBool::new(false)));
        let bridge = Bridge {
            queue: Arc::clone(&queue),
            saved: Some(Saved { rows, floor, ..Saved::default() }),
            floor,
        };
        let published: Arc<Published<ServerReport>> = Arc::default();
        let thread = spawn(options, bridge, Arc::clone(&published), Arc::clone(&stop))?;
        let address = queue.wait_for_start(START_PAUSE, || published.get().listens);
        let mut running =
            Self { address: ([0; 4], 0).into(), queue, stop, thread: Some(thread), response_max };
        running.address = address?;
        Ok(running)
    }

    /// The next request and the number of requests behind it; `None` after the timeout.
    pub(crate) fn recv(&self, most: Option<Duration>) -> Result<Option<(Arc<Piece>, u32)>, CallError> {
        self.queue.recv(most)
    }

    pub(crate) fn answer(&self, id: u64, answer: Answer<'_>) -> Result<(), CallError> {
        match answer {
            Answer::Response { bytes, .. } if bytes.len() > self.response_max => {
                Err(CallError::Response { len: bytes.len(), max: self.response_max })
            }
            answer => self.queue.answer(id, answer),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            // The thread catches its panics, so there is no error to handle.
            let _ = thread.join();
        }
    }
}

fn spawn(
    options: ServerOptions,
    mut bridge: Bridge,
    published: Arc<Published<ServerReport>>,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, CallError> {
    let run = move || {
        let queue = Arc::clone(&bridge.queue);
        let serve = || serve(options, &mut bridge, published, &stop);
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(serve));
        queue.end(match ended {
            Ok(Ok(())) => CallError::Ended { reason: "it was closed".to_owned() },
            Ok(Err(error)) => error.into(),
            Err(_) => CallError::Ended { reason: "a defect in the library".to_owned() },
        });
    };
    let builder = std::thread::Builder::new().name("pmnet-server".to_owned());
    builder.spawn(run).map_err(|source| CallError::Kernel { what: "start a thread", source })
}

/// The application in the view of the runtime. It passes batches to the queue.
struct Bridge {
    queue: Arc<Queue>,
    saved: Option<Saved>,
    floor: u32,
}

/// Why the application cannot continue.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("cannot read a pipe: {0}")]
    Pipe(#[from] std::io::Error),
    /// The rows that were passed at the start are no longer those that are stored.
    #[error("the rows were asked for twice")]
    Loaded,
}

impl Application for Bridge {
    type Error = BridgeError;

    fn load(&mut self) -> Result<Saved, BridgeError> {
        self.saved.take().ok_or(BridgeError::Loaded)
    }

    fn execute(&mut self, batch: &[Work], network: &mut Network) -> Result<Vec<Outcome>, BridgeError> {
        self.queue.offer(batch, &mut self.floor);
        loop {
            if let Some(outcomes) = self.queue.outcomes() {
                return Ok(outcomes);
            }
            if network.wait_for(self.queue.woken(), WAIT_MAX)? {
                self.queue.take_woken()?;
            }
        }
    }

    /// Every error is fatal, because only the application knows which rows are stored.
    fn is_fatal(&self, _: &BridgeError) -> bool {
        true
    }
}
