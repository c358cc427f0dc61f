//! Runs a server in one thread: it receives datagrams, passes batches of work to the application, and sends datagrams.

use super::application::{Application, Outcome};
use super::clock::Clock;
use super::entropy::random;
use super::key::{guard, without_seal};
use super::network::{Network, ServerOptions, ServerReport, WAIT_MAX};
use super::published::Published;
use super::socket::{self, DATAGRAM_BYTES_MAX, RuntimeError, Waiter};
use landfall_pmnet::{Server, Ticket, Work};
use landfall_spin::SpinWait;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pauses between attempts to load double from the first to the last of these.
const LOAD_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// Serves until `stop` is true.
///
/// # Errors
/// [`RuntimeError`].
pub fn serve<A: Application>(
    mut options: ServerOptions,
    application: &mut A,
    published: Arc<Published<ServerReport>>,
    stop: &AtomicBool,
) -> Result<(), RuntimeError> {
    let socket = socket::open(options.listen)?;
    let port = socket.local_addr().map_or(options.listen.port(), |address| address.port());
    let guard = guard(options.key.as_ref())?;
    options.server.mtu = without_seal(options.server.mtu, &guard);
    options.server.foreign &= !guard.is_keyed();
    let clock = Clock::default();
    let server = Server::new(options.server.clone(), 0, [], 0, clock.now());
    let buffer = vec![0; DATAGRAM_BYTES_MAX];
    let report = ServerReport { listens: socket.local_addr().ok(), ..ServerReport::default() };
    let published_at = clock.now();
    let (idle, busy, waiter) = (SpinWait::new(options.spin), SpinWait::new(options.spin), Waiter::new()?);
    let mut network = Network {
        socket,
        guard,
        port,
        server,
        clock,
        buffer,
        idle,
        busy,
        waiter,
        options,
        report,
        published,
        published_at,
    };
    while !stop.load(Ordering::Relaxed) {
        if !network.begin(application, stop)? {
            break;
        }
        if let Err(error) = network.incarnation(application, stop)? {
            end_if_fatal(application, &error)?;
            let next = if stop.load(Ordering::Relaxed) {
                "stopping"
            } else {
                "starting over with its committed state"
            };
            tracing::warn!(%error, next, "the application behind PMNet has failed");
        }
    }
    Ok(())
}

fn end_if_fatal<A: Application>(application: &A, error: &A::Error) -> Result<(), RuntimeError> {
    if application.is_fatal(error) {
        return Err(RuntimeError::Application(error.to_string().into()));
    }
    Ok(())
}

impl Network {
    /// Begins a new incarnation with the committed state. False if `stop` was set before.
    fn begin<A: Application>(
        &mut self,
        application: &mut A,
        stop: &AtomicBool,
    ) -> Result<bool, RuntimeError> {
        let mut pause = LOAD_PAUSES[0];
        loop {
            match application.load() {
                Ok(saved) => {
                    let (config, now) = (self.options.server.clone(), self.clock.now());
                    self.server = Server::new(config, random()?, saved.rows, saved.floor, now);
                    saved.behind.iter().for_each(|(key, last)| self.server.fall_behind(*key, *last));
                    self.report.incarnations += 1;
                    self.publish();
                    return Ok(true);
                }
                Err(error) => {
                    end_if_fatal(application, &error)?;
                    tracing::warn!(%error, "the application behind PMNet does not answer; trying again");
                }
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOAD_PAUSES[1]);
        }
    }

    /// Runs an incarnation until the application fails or `stop` is set.
    fn incarnation<A: Application>(
        &mut self,
        application: &mut A,
        stop: &AtomicBool,
    ) -> Result<Result<(), A::Error>, RuntimeError> {
        while !stop.load(Ordering::Relaxed) {
            self.receive();
            self.expire();
            self.send();
            while let Some(trouble) = self.server.poll_trouble() {
                application.trouble(&trouble);
            }
            let batch = self.batch();
            if batch.is_empty() {
                let due = self.due(WAIT_MAX);
                let Self { idle, waiter, socket, .. } = self;
                let ours = socket.as_fd();
                idle.until(due, |most| waiter.wait(&[ours], most), |ready| ready[0])?;
                continue;
            }
            match application.execute(&batch, self) {
                Ok(outcomes) => self.settle(application, &batch, outcomes),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }

    fn settle<A: Application>(&mut self, application: &A, batch: &[Work], outcomes: Vec<Outcome>) {
        assert_eq!(batch.len(), outcomes.len(), "an outcome for each piece of work");
        self.report.batches += 1;
        self.report.work += batch.len() as u64;
        let now = self.clock.now();
        for (work, outcome) in batch.iter().zip(outcomes) {
            let ticket: Ticket = work.ticket();
            match outcome {
                Outcome::Committed => self.server.committed(ticket, now),
                Outcome::Response { bytes, changed } => self.respond(application, ticket, bytes, changed),
                Outcome::Failed => self.server.failed(ticket),
            }
        }
        self.send();
    }

    /// Sends a response. One that is too long is replaced by the application's error: a client never gets a part of a
    /// response.
    fn respond<A: Application>(&mut self, application: &A, ticket: Ticket, bytes: Vec<u8>, changed: bool) {
        let now = self.clock.now();
        if let Err(too_long) = self.server.respond(ticket, bytes, changed, now) {
            tracing::warn!(%too_long, "a response is replaced by an error");
            let mut words = application.too_long(&too_long);
            words.truncate(too_long.max);
            // The error was cut to the longest response, so that it is not refused.
            let _ = self.server.respond(ticket, words, changed, now);
        }
    }
}
