//! The server's calls, without pointers: a thread serves, the application's threads take requests and answer them.

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

/// Longest rest without a look at whether it is time to stop.
const REST_MAX: Duration = Duration::from_millis(100);
/// Pause between looks at whether the server listens.
const START_PAUSE: Duration = Duration::from_millis(1);

/// What is behind `PMNet_server`.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    queue: Arc<Queue>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    response_max: usize,
}

impl Running {
    /// Starts the thread, and waits until it listens.
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

    /// The next request and how many are behind it; `None` if none came in time.
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
            // It catches its panics.
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

/// The application, as the runtime sees it.
struct Bridge {
    queue: Arc<Queue>,
    saved: Option<Saved>,
    floor: u32,
}

/// Why the bridge cannot go on.
#[derive(Debug, thiserror::Error)]
enum BridgeError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("cannot read a pipe: {0}")]
    Pipe(#[from] std::io::Error),
    /// What was given at the start is no longer what is stored.
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
            if network.wait_for(self.queue.woken(), REST_MAX)? {
                self.queue.take_woken()?;
            }
        }
    }

    /// Only the application's own restart knows what is stored.
    fn is_fatal(&self, _: &BridgeError) -> bool {
        true
    }
}
