//! A middlebox between two hosts that loses, duplicates, delays, reorders, damages and cuts frames.
//!
//! [`fate`] decides from a seed what happens to a frame. [`mod@line`] holds frames until they are due. The thread in this
//! module receives and sends them.

mod fate;
mod line;

pub use fate::{Faults, Tally};

use crate::host::Host;
use crate::link::{self, LinkOptions};
use crate::sys::{self, PacketSocket};
use crate::unavailable::Unavailable;
use fate::Judge;
use line::Line;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest frame that is forwarded, bytes.
const FRAME_BYTES_MAX: usize = 1 << 16;
/// Most frames that the thread takes from one side before it polls the other.
const BATCH_FRAMES: usize = 64;

/// A host between two others, with a thread that forwards frames. The thread stops when this value is dropped.
///
/// What happens to the n-th frame of a direction depends only on the seed and on n. VLAN tags are not kept.
#[derive(Debug)]
pub struct Middlebox {
    shared: Arc<Mutex<Shared>>,
    /// Closed to stop the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<io::Result<()>>>,
    _host: Host,
}

#[derive(Debug)]
struct Shared {
    faults: Faults,
    tallies: [Tally; 2],
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // The state is plain numbers, which are consistent after any panic.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Middlebox {
    pub(crate) fn between(
        a: &Host,
        b: &Host,
        options: &LinkOptions,
        faults: Faults,
    ) -> Result<(Self, String, String), Unavailable> {
        let link::Through { host, ends: [name_a, name_b], here: [here_a, here_b] } =
            link::join_through("middlebox", [a, b], options)?;
        let middlebox = Self::start(host, [&here_a, &here_b], faults);
        let middlebox = middlebox.map_err(|e| Unavailable::new("the middlebox's packet sockets", e))?;
        Ok((middlebox, name_a, name_b))
    }

    fn start(host: Host, interfaces: [&String; 2], faults: Faults) -> io::Result<Self> {
        let open = || Ok([PacketSocket::open(interfaces[0])?, PacketSocket::open(interfaces[1])?]);
        let sockets: [PacketSocket; 2] = host.enter(|| open().map_err(|e: io::Error| e))?;
        let shared = Arc::new(Mutex::new(Shared { faults, tallies: Default::default() }));
        let (reader, writer) = io::pipe()?;
        let mover = Mover::new(sockets, reader, shared.clone());
        let thread = std::thread::Builder::new().name("middlebox".to_owned()).spawn(|| mover.run())?;
        Ok(Self { shared, stop: Some(writer), thread: Some(thread), _host: host })
    }

    /// The counts so far, for frames from the first host and for frames from the second.
    pub fn tallies(&self) -> [Tally; 2] {
        lock(&self.shared).tallies
    }

    /// Changes the faults for frames that arrive from now on. The seed does not change.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.shared).faults = faults;
    }
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        let succeeded = matches!(ended, None | Some(Ok(Ok(()))));
        // While the test's own panic unwinds, a second panic here would abort the process and hide the first.
        assert!(succeeded || std::thread::panicking(), "the middlebox failed: {ended:?}");
    }
}

/// The thread's state. Direction 0 is from the first socket to the second.
struct Mover {
    sockets: [PacketSocket; 2],
    stop: PipeReader,
    shared: Arc<Mutex<Shared>>,
    judges: [Judge; 2],
    lines: [Line; 2],
    buffer: Vec<u8>,
}

impl Mover {
    fn new(sockets: [PacketSocket; 2], stop: PipeReader, shared: Arc<Mutex<Shared>>) -> Self {
        let seed = lock(&shared).faults.seed;
        let judges = [Judge::new(seed), Judge::new(!seed)];
        Self { sockets, stop, shared, judges, lines: Default::default(), buffer: vec![0; FRAME_BYTES_MAX] }
    }

    fn run(mut self) -> io::Result<()> {
        let started = Instant::now();
        loop {
            let now = started.elapsed();
            let more = self.take(0, now)? | self.take(1, now)?;
            self.deliver(0, now)?;
            self.deliver(1, now)?;
            let due = self.lines.iter().filter_map(Line::next_due).min();
            let timeout = if more { Some(Duration::ZERO) } else { due.map(|due| due.saturating_sub(now)) };
            let [a, b] = &self.sockets;
            if sys::wait([a, b], self.stop.as_raw_fd(), timeout)? {
                return Ok(());
            }
        }
    }

    /// Receives up to a batch of frames of one direction. True if more frames may be waiting.
    fn take(&mut self, direction: usize, now: Duration) -> io::Result<bool> {
        for _ in 0..BATCH_FRAMES {
            let length = match self.sockets[direction].receive(&mut self.buffer) {
                Err(error) if is_transient(&error) => return Ok(false),
                length => length?,
            };
            let mut shared = lock(&self.shared);
            let (faults, tally) = (shared.faults, &mut shared.tallies[direction]);
            let verdict = self.judges[direction].judge(&self.buffer[..length], &faults, tally);
            for (delay, frame) in verdict {
                self.lines[direction].add(now, delay, frame, &faults, tally);
            }
        }
        Ok(true)
    }

    fn deliver(&mut self, direction: usize, now: Duration) -> io::Result<()> {
        while let Some(frame) = self.lines[direction].take_due(now) {
            match self.sockets[1 - direction].send(&frame) {
                // The frame is longer than the MTU, or the far end is down or busy: it is lost, as on a wire.
                Err(error) if is_transient(&error) || is_refusal(&error) => {
                    lock(&self.shared).tallies[direction].refused += 1;
                }
                sent => {
                    sent?;
                    lock(&self.shared).tallies[direction].sent += 1;
                }
            }
        }
        Ok(())
    }
}

/// True for errors after which the socket still works. The kernel reports `ENETDOWN` once when an interface goes down.
fn is_transient(error: &io::Error) -> bool {
    let transient = [libc::EAGAIN, libc::EINTR, libc::ENOBUFS, libc::ENETDOWN];
    error.raw_os_error().is_some_and(|code| transient.contains(&code))
}

fn is_refusal(error: &io::Error) -> bool {
    let refusals = [libc::EMSGSIZE, libc::EINVAL, libc::ENXIO, libc::ENODEV];
    error.raw_os_error().is_some_and(|code| refusals.contains(&code))
}
