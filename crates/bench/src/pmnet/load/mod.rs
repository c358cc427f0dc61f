//! Closed-loop clients in one thread: each sends a request, waits for its end, and sends the next.

mod channel;
mod pmnet;
mod stream;
mod udp;

pub(crate) use channel::{By, Channel, Done, Patience};
pub(crate) use pmnet::PmnetChannel;
pub(crate) use stream::{Framing, StreamChannel};
pub(crate) use udp::UdpChannel;

use super::work::{Ask, Workload};
use crate::common::clients::builtin::histogram;
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// The other end counts as hung after this long without a reply.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// Polls without a reply between two checks of the clock and of Ctrl-C.
const LOOKS: u32 = 256;
/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Requests in front of the run that do not count. They take no longer than the run, unless the first one does.
    pub(crate) warm_up: u64,
    /// The run takes longer if nothing is completed in this time, so that it always has something to report. A server
    /// that is silent for too long is an error.
    pub(crate) length: Duration,
    /// The pause after each request, if there is one.
    pub(crate) rest: Option<Rest>,
}

/// A pause between requests, in which other processes may use the core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) length: Duration,
    /// Whether the client sleeps. Otherwise it yields until the pause is over, which keeps its caches warm.
    pub(crate) sleeps: bool,
}

impl Rest {
    fn take(self) {
        if self.sleeps {
            return std::thread::sleep(self.length);
        }
        let begun = Instant::now();
        while begun.elapsed() < self.length {
            std::thread::yield_now();
        }
    }
}

/// The measurements of a run. Latencies are in ns.
#[derive(Debug)]
pub(crate) struct Measured<M> {
    pub(crate) all: Histogram<u64>,
    pub(crate) updates: Histogram<u64>,
    pub(crate) took: Duration,
    /// Transactions. Without transactions, every request counts as one.
    pub(crate) transactions: u64,
    pub(crate) from_cache: u64,
    pub(crate) by_devices: u64,
    /// Bypasses that change something.
    pub(crate) locks: u64,
    pub(crate) sent_again: u64,
    /// Requests that were completed, with those in front of the measured part and after it.
    pub(crate) completed: u64,
    /// The counters at the start and at the end of the measured part.
    pub(crate) marks: (M, M),
}

struct Client {
    work: Box<dyn Workload>,
    ask: Ask,
    sent: Instant,
}

struct Run<'a> {
    channel: &'a mut dyn Channel,
    clients: Vec<Client>,
    done: Vec<Done>,
    under_way: usize,
    completed: u64,
    heard: Instant,
    rest: Option<Rest>,
}

/// Runs a load. `mark` reads the counters at the start and at the end of the measured part.
pub(crate) fn drive<M>(
    channel: &mut dyn Channel,
    workloads: Vec<Box<dyn Workload>>,
    plan: Plan,
    mark: impl Fn() -> Result<M, BenchError>,
) -> Result<Measured<M>, BenchError> {
    let now = Instant::now();
    let client = |work| Client { work, ask: Ask::default(), sent: now };
    let clients: Vec<Client> = workloads.into_iter().map(client).collect();
    let (done, rest) = (Vec::new(), plan.rest);
    let mut run = Run { channel, clients, done, under_way: 0, completed: 0, heard: now, rest };
    (0..run.clients.len()).try_for_each(|client| run.next(client, &[]))?;
    let begun = Instant::now();
    let mut left = plan.warm_up;
    while left > 0 && (left == plan.warm_up || begun.elapsed() < plan.length) {
        left = left.saturating_sub(run.step(None, true)?);
    }
    let (first, again, begun) = (mark()?, run.channel.sent_again(), Instant::now());
    let mut counts = Counts {
        all: histogram(),
        updates: histogram(),
        transactions: 0,
        from_cache: 0,
        by_devices: 0,
        locks: 0,
    };
    while counts.all.is_empty() || begun.elapsed() < plan.length {
        run.step(Some(&mut counts), true)?;
    }
    let took = begun.elapsed();
    let (last, sent_again) = (mark()?, run.channel.sent_again() - again);
    while run.under_way > 0 {
        run.step(None, false)?;
    }
    let Counts { all, updates, transactions, from_cache, by_devices, locks } = counts;
    Ok(Measured {
        all,
        updates,
        took,
        transactions,
        from_cache,
        by_devices,
        locks,
        sent_again,
        completed: run.completed,
        marks: (first, last),
    })
}

struct Counts {
    all: Histogram<u64>,
    updates: Histogram<u64>,
    transactions: u64,
    from_cache: u64,
    by_devices: u64,
    locks: u64,
}

impl Counts {
    fn add(&mut self, client: &Client, done: &Done, now: Instant) {
        let nanos = u64::try_from(now.duration_since(client.sent).as_nanos()).unwrap_or(u64::MAX);
        self.all.saturating_record(nanos);
        if client.ask.update {
            self.updates.saturating_record(nanos);
        }
        self.locks += u64::from(client.ask.locks);
        self.transactions += u64::from(client.ask.ends);
        self.from_cache += u64::from(done.by == By::Cache);
        self.by_devices += u64::from(done.by == By::Devices);
    }
}

impl Run<'_> {
    fn next(&mut self, client: usize, reply: &[u8]) -> Result<(), BenchError> {
        let it = &mut self.clients[client];
        it.work.next(reply, &mut it.ask)?;
        it.sent = Instant::now();
        self.channel.send(client, &it.ask)?;
        self.under_way += 1;
        Ok(())
    }

    /// Waits for replies and starts their clients' next requests. Returns the number of replies.
    fn step(&mut self, mut counts: Option<&mut Counts>, go_on: bool) -> Result<u64, BenchError> {
        let mut done = std::mem::take(&mut self.done);
        let mut looks = 0;
        while done.is_empty() && looks < LOOKS {
            self.channel.receive(&mut done)?;
            looks += 1;
        }
        let now = Instant::now();
        for done in &done {
            self.under_way -= 1;
            counts.iter_mut().for_each(|counts| counts.add(&self.clients[done.client], done, now));
            if go_on {
                self.rest.into_iter().for_each(Rest::take);
                self.next(done.client, &done.reply)?;
            }
        }
        let count = done.len() as u64;
        self.completed += count;
        done.clear();
        self.done = done;
        if count > 0 {
            self.heard = now;
        } else {
            check_stop()?;
            self.complain_of_silence()?;
        }
        Ok(count)
    }

    fn complain_of_silence(&self) -> Result<(), BenchError> {
        if self.heard.elapsed() < SILENCE_MAX {
            return Ok(());
        }
        let what = format!("a reply to {} requests", self.under_way);
        Err(BenchError::TooLong { what, seconds: SILENCE_MAX.as_secs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers at the next poll: reads from a cache, updates from a log.
    #[derive(Default)]
    struct Echo {
        waiting: Vec<(usize, bool)>,
        sent: u64,
        /// It answers nothing before.
        silent_until: Option<Instant>,
    }

    impl Channel for Echo {
        fn send(&mut self, client: usize, ask: &Ask) -> Result<(), BenchError> {
            self.waiting.push((client, ask.update));
            self.sent += 1;
            Ok(())
        }

        fn receive(&mut self, done: &mut Vec<Done>) -> Result<(), BenchError> {
            if self.silent_until.is_some_and(|until| Instant::now() < until) {
                return Ok(());
            }
            let answer = |(client, update)| {
                let by = if update { By::Devices } else { By::Cache };
                Done { client, reply: b"O".to_vec(), by }
            };
            done.extend(self.waiting.drain(..).map(answer));
            Ok(())
        }

        fn sent_again(&self) -> u64 {
            self.sent
        }
    }

    struct Alternate(u64);

    impl Workload for Alternate {
        fn next(&mut self, reply: &[u8], ask: &mut Ask) -> Result<(), BenchError> {
            assert_eq!(reply.is_empty(), self.0 == 0, "the reply to the request before");
            self.0 += 1;
            (ask.update, ask.ends) = (self.0.is_multiple_of(2), self.0.is_multiple_of(4));
            Ok(())
        }
    }

    #[test]
    fn a_client_that_rests_has_so_many_requests_fewer() {
        for sleeps in [true, false] {
            let rest = Some(Rest { length: Duration::from_millis(2), sleeps });
            let plan = Plan { warm_up: 0, length: Duration::from_millis(30), rest };
            let work: Box<dyn Workload> = Box::new(Alternate(0));
            let measured = drive(&mut Echo::default(), vec![work], plan, || Ok(())).unwrap();
            assert!((1..=15).contains(&measured.all.len()), "{}", measured.all.len());
            assert!(measured.all.min() < 1_500_000, "the pause is not part of a latency");
        }
    }

    #[test]
    fn a_run_goes_on_until_something_is_completed() {
        for warm_up in [0, 1] {
            let silent_until = Some(Instant::now() + Duration::from_millis(30));
            let mut echo = Echo { silent_until, ..Echo::default() };
            let plan = Plan { warm_up, length: Duration::from_millis(1), rest: None };
            let measured = drive(&mut echo, vec![Box::new(Alternate(0))], plan, || Ok(())).unwrap();
            assert!(!measured.all.is_empty(), "{warm_up}");
            let slowest = Duration::from_nanos(measured.all.max());
            assert!(
                warm_up > 0 || slowest >= Duration::from_millis(25),
                "the first request counts: {slowest:?}"
            );
        }
    }

    #[test]
    fn every_client_has_one_request_under_way_and_the_warm_up_does_not_count() {
        let mut echo = Echo::default();
        let workloads = (0..3).map(|_| Box::new(Alternate(0)) as Box<dyn Workload>).collect();
        let plan = Plan { warm_up: 30, length: Duration::from_millis(30), rest: None };
        let counter = std::cell::Cell::new(0);
        let mark = || Ok(counter.replace(counter.get() + 1));
        let measured = drive(&mut echo, workloads, plan, mark).unwrap();
        assert_eq!(measured.marks, (0, 1));
        let (all, updates) = (measured.all.len(), measured.updates.len());
        assert!(all > 100 && updates.abs_diff(all / 2) <= 3, "{all} {updates}");
        assert_eq!((measured.from_cache, measured.by_devices), (all - updates, updates));
        assert!(measured.transactions.abs_diff(all / 4) <= 3);
        // Thirty requests and those in flight are not counted. One request follows each counted reply.
        assert_eq!((echo.sent, measured.completed), (33 + all, 33 + all));
        assert_eq!(measured.sent_again, all);
    }
}
