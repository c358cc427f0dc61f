//! The server's side-car, between PMNet and a real server of the Redis protocol.
//!
//! A batch of requests becomes one `MULTI ... EXEC` together with the rows of its sessions, so that effects and rows
//! are committed together. The side-car watches the key with its generation from each transaction to the next: if
//! another side-car takes over, or the keys are flushed, `EXEC` does nothing.

pub use super::state::{RedisReport, ServerSideConfig, ServerSideReports};

use super::commit::{Commit, keep, too_long};
use super::doubts::settle;
use super::ledger::{Flush, Ledger, Meta, Staged};
use super::poison::REFUSAL;
use super::rejected::Rejection;
use super::resp;
use super::state::{Link, Redis};
use super::upstream::{Upstream, UpstreamError, refuse_errors};
use crate::runtime::{Application, Network, Outcome, RuntimeError, Saved, random, serve};
use landfall_pmnet::Work;
use landfall_pmnet::server::{ResponseTooLong, Trouble};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Most attempts to take over, if other side-cars try to do so at the same time.
const TAKE_OVER_MAX: u32 = 10;
/// Most attempts to write the rows again, if another program flushes the keys at the same time.
const RESTORES_MAX: u32 = 10;

/// Runs the server's side-car until `stop` is true.
///
/// # Errors
/// [`RuntimeError`]: a system call failed, or the side-car cannot continue, for example because another has taken over.
pub fn run(
    config: ServerSideConfig,
    reports: Arc<ServerSideReports>,
    stop: Arc<AtomicBool>,
) -> Result<(), RuntimeError> {
    let options = config.options.clone();
    let network = reports.network.clone();
    let mut application = Redis::new(config, reports, Arc::clone(&stop))?;
    serve(options, &mut application, network, &stop)
}

/// Reads the rejected commands that are kept in the real server, oldest first.
///
/// # Errors
/// [`UpstreamError`].
pub fn rejected(config: &ServerSideConfig) -> Result<Vec<Rejection>, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let meta = Meta::fetch(&mut upstream, &config.prefix)?.unwrap_or_default();
    let mut found = Vec::new();
    for number in meta.rejected.saturating_sub(config.rejected_max)..meta.rejected {
        upstream.push(&[b"GET", Ledger::rejected_key(&config.prefix, number).as_bytes()]);
        let reply = upstream.call(None)?;
        found.extend(resp::bulk(&reply).and_then(Rejection::from_bytes));
    }
    Ok(found)
}

impl Redis {
    /// Takes over the keys of the prefix: a side-car that has watched the generation before commits nothing any more.
    /// Returns the ledger and the generation before.
    pub(super) fn take_over(&self, upstream: &mut Upstream) -> Result<(Ledger, u64), UpstreamError> {
        let prefix = &self.config.prefix;
        let key = Ledger::meta_key(prefix);
        for _ in 0..TAKE_OVER_MAX {
            upstream.push(&[b"WATCH", key.as_bytes()]);
            refuse_errors(&upstream.call(None)?, "to watch a key")?;
            let before = Meta::fetch(upstream, prefix)?.unwrap_or_default();
            let meta = Meta { generation: random()?, ..before };
            if let Some(ledger) = self.claim(upstream, meta)? {
                return Ok((ledger, before.generation));
            }
        }
        Err(UpstreamError::Fenced)
    }

    /// Writes our generation and reads every row, in one transaction. `None` if another side-car was faster.
    fn claim(&self, upstream: &mut Upstream, meta: Meta) -> Result<Option<Ledger>, UpstreamError> {
        let prefix = &self.config.prefix;
        upstream.push(&[b"MULTI"]);
        upstream.push(&[b"SET", Ledger::meta_key(prefix).as_bytes(), meta.to_text().as_bytes()]);
        let mut chunks = 0;
        for words in Ledger::reads(prefix, meta.slots) {
            upstream.push(&words.iter().map(String::as_bytes).collect::<Vec<_>>());
            chunks += 1;
        }
        upstream.push(&[b"EXEC"]);
        upstream.send()?;
        for _ in 0..chunks + 2 {
            refuse_errors(&upstream.reply(None)?, "the rows of sessions")?;
        }
        let reply = upstream.reply(None)?;
        refuse_errors(&reply, "the rows of sessions")?;
        let Some(parts) = resp::elements_of(&reply) else { return Ok(None) };
        let mut ledger = Ledger::new(prefix, meta);
        let mut slot = 0;
        for values in &parts[1..] {
            refuse_errors(values, "the rows of sessions")?;
            for value in resp::elements_of(values).unwrap_or_default() {
                ledger.found(slot, resp::bulk(value))?;
                slot += 1;
            }
        }
        Ok(Some(ledger))
    }

    fn connect(&mut self) -> Result<Link, UpstreamError> {
        let mut upstream = Upstream::connect(&self.config.access())?;
        self.check_durable(&mut upstream)?;
        let (ledger, before) = self.take_over(&mut upstream)?;
        // No other side-car has taken over since, and no transaction was committed whose replies were lost.
        let is_old = |known: &Ledger| known.meta.generation == before && known.has_rows_of(&ledger);
        let settled = self.known.take().is_some_and(|known| is_old(&known));
        let mut link = Link { upstream, ledger, doubt: settled, settled, flushed: false, scriptless: false };
        self.find_behind(&mut link)?;
        if !link.ledger.watch(&mut link.upstream)? {
            self.restore(&mut link, None)?;
        }
        if !settled {
            self.keep_doubts(&mut link)?;
        }
        self.replicate(&mut link, None)?;
        Ok(link)
    }

    /// Keeps the commands in doubt of an earlier connection, except those that were executed.
    fn keep_doubts(&mut self, link: &mut Link) -> Result<(), UpstreamError> {
        link.upstream.push(&[b"GET", Ledger::doubt_key(&self.config.prefix).as_bytes()]);
        let reply = link.upstream.call(None)?;
        if let Some(noted) = resp::bulk(&reply) {
            link.doubt = true;
            let doubts = settle(Rejection::in_doubt(noted), link)?;
            keep(doubts, self, link, None)?;
        }
        link.settled = true;
        Ok(())
    }

    /// Executes a batch, and what may have ended connections alone. Behind something that failed nothing is executed.
    fn execute_parts(
        &mut self,
        batch: &[Work],
        link: &mut Link,
        network: &mut Network,
    ) -> Result<Vec<Outcome>, UpstreamError> {
        let mut outcomes: Vec<Outcome> = Vec::with_capacity(batch.len());
        for part in self.poison.parts(batch) {
            if outcomes.iter().any(|outcome| matches!(outcome, Outcome::Failed)) {
                break;
            }
            let mut commit = Commit::new(part);
            if self.poison.is_refused(part) {
                tracing::error!(
                    "the Redis server ends the connection whenever a command is sent: it is refused"
                );
                commit.refuse_all(REFUSAL);
            }
            match commit.run(self, link, network) {
                Ok(done) => outcomes.extend(done),
                Err(error) => {
                    if matches!(error, UpstreamError::Lost(_)) {
                        self.poison.note_lost(part);
                    }
                    return Err(error);
                }
            }
            self.poison.note_done(part);
        }
        outcomes.resize_with(batch.len(), || Outcome::Failed);
        Ok(outcomes)
    }

    /// Writes all rows again after another program has flushed the keys, until they stay.
    pub(super) fn restore(
        &mut self,
        link: &mut Link,
        network: Option<&mut Network>,
    ) -> Result<(), UpstreamError> {
        tracing::warn!(
            prefix = link.ledger.prefix(),
            "the rows of sessions were flushed; writing them again"
        );
        let staged: Staged = link.ledger.stage(std::iter::empty(), 0, Flush::Certain);
        link.upstream.speak(false).then(|| link.upstream.call(None)).transpose()?;
        for _ in 0..RESTORES_MAX {
            // The generation was flushed with the rows, so that there is no key to watch.
            link.ledger.write(&mut link.upstream, &staged, &[])?;
            self.report.restored += 1;
            // The keys may be flushed again before they are watched.
            if link.ledger.watch(&mut link.upstream)? {
                link.flushed = false;
                return self.replicate(link, network);
            }
        }
        Err(UpstreamError::flushed("to keep the rows of sessions"))
    }
}

impl Application for Redis {
    type Error = UpstreamError;

    fn load(&mut self) -> Result<Saved, UpstreamError> {
        self.link = None;
        let link = self.connect()?;
        let mut saved = link.ledger.saved();
        saved.behind = self.behind.0.iter().map(|(key, gap)| (*key, gap.confirmed)).collect();
        self.link = Some(link);
        self.report.connections += 1;
        self.publish();
        Ok(saved)
    }

    fn execute(&mut self, batch: &[Work], network: &mut Network) -> Result<Vec<Outcome>, UpstreamError> {
        let closed = || UpstreamError::Lost(std::io::ErrorKind::NotConnected.into());
        let mut link = self.link.take().ok_or_else(closed)?;
        let outcomes = self.execute_parts(batch, &mut link, network);
        // If replicas are missing, only the confirmation is missing. The connection can still be used.
        if matches!(outcomes, Ok(_) | Err(UpstreamError::Replicas { .. })) {
            self.link = Some(link);
        } else {
            // With replicas, the last commit may not be confirmed.
            if self.config.replicas == 0 {
                self.confirmed = link.ledger.clone().into_rows();
            }
            self.known = Some(link.ledger).filter(|_| link.settled);
        }
        self.publish();
        outcomes
    }

    fn trouble(&mut self, trouble: &Trouble) {
        self.note_trouble(trouble);
    }

    fn too_long(&self, response: &ResponseTooLong) -> Vec<u8> {
        too_long(response.len, response.max)
    }

    fn is_fatal(&self, error: &UpstreamError) -> bool {
        use UpstreamError::{Fenced, Foreign, Undurable};
        matches!(error, Fenced | Foreign { .. } | Undurable { .. })
    }
}

impl Drop for Redis {
    /// After a clean end, no command is in doubt: deletes the note.
    fn drop(&mut self) {
        let Some(link) = self.link.as_mut().filter(|link| link.doubt && link.settled) else { return };
        // The transaction does nothing if another side-car has taken over, because the note is then that side-car's.
        link.upstream.push(&[b"MULTI"]);
        link.upstream.push(&[b"DEL", Ledger::doubt_key(&self.config.prefix).as_bytes()]);
        link.upstream.push(&[b"EXEC"]);
        // If this fails, the next start reports the commands needlessly.
        let sent = link.upstream.send();
        let _ = sent.and_then(|()| (0..3).try_for_each(|_| link.upstream.reply(None).map(drop)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_pmnet::{SessionKey, SessionRow};
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};

    type Words = Vec<Vec<u8>>;

    /// A server of one connection, whose keys another program flushes.
    #[derive(Default)]
    struct Flushing {
        keys: BTreeMap<Vec<u8>, Vec<u8>>,
        /// Keys are flushed behind so many transactions.
        flushes: u32,
        /// Keys were flushed since they were watched.
        is_flushed: bool,
        queue: Option<Vec<Words>>,
    }

    impl Flushing {
        fn start(mut self) -> SocketAddr {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    input.extend_from_slice(&buffer[..len]);
                    while let Some(command) = take_command(&mut input) {
                        let reply = self.answer(command);
                        stream.write_all(&reply).unwrap();
                    }
                }
            });
            address
        }

        fn answer(&mut self, command: Words) -> Vec<u8> {
            if command[0] == b"EXEC" {
                return self.exec();
            }
            if let Some(queue) = &mut self.queue {
                queue.push(command);
                return b"+QUEUED\r\n".to_vec();
            }
            match command[0].as_slice() {
                b"MULTI" => self.queue = Some(Vec::new()),
                b"WATCH" => self.is_flushed = false,
                _ => return self.execute(&command),
            }
            b"+OK\r\n".to_vec()
        }

        fn exec(&mut self) -> Vec<u8> {
            let commands = self.queue.take().unwrap_or_default();
            if std::mem::take(&mut self.is_flushed) {
                return b"*-1\r\n".to_vec();
            }
            let mut reply = Vec::new();
            resp::put_array(&mut reply, commands.len());
            commands.iter().for_each(|command| reply.extend(self.execute(command)));
            if self.flushes > 0 {
                self.flushes -= 1;
                self.keys.clear();
                self.is_flushed = true;
            }
            reply
        }

        fn execute(&mut self, command: &[Vec<u8>]) -> Vec<u8> {
            match command[0].as_slice() {
                b"GET" => self.get(&command[1]),
                b"MGET" => {
                    let mut reply = Vec::new();
                    resp::put_array(&mut reply, command.len() - 1);
                    command[1..].iter().for_each(|key| reply.extend(self.get(key)));
                    reply
                }
                b"SET" => {
                    self.keys.insert(command[1].clone(), command[2].clone());
                    b"+OK\r\n".to_vec()
                }
                name => panic!("unexpected {}", name.escape_ascii()),
            }
        }

        fn get(&self, key: &[u8]) -> Vec<u8> {
            let mut reply = Vec::new();
            match self.keys.get(key) {
                Some(value) => resp::put_bulk(&mut reply, value),
                None => reply.extend(b"$-1\r\n"),
            }
            reply
        }
    }

    fn take_command(input: &mut Vec<u8>) -> Option<Words> {
        let (words, bytes) = {
            let request = resp::request(input).unwrap()?;
            let words: Words = request.args().iter().map(|word| word.to_vec()).collect();
            (words, request.bytes)
        };
        input.drain(..bytes);
        Some(words)
    }

    fn side_car(redis: SocketAddr) -> Redis {
        let mut config = ServerSideConfig::new("127.0.0.1:0".parse().unwrap(), redis);
        config.accept_data_loss = true;
        Redis::new(config, Arc::default(), Arc::default()).unwrap()
    }

    /// A connection that has taken over an empty ledger.
    fn link(redis: &Redis, flushed: bool) -> Link {
        let upstream = Upstream::connect(&redis.config.access()).unwrap();
        let ledger = Ledger::new(&redis.config.prefix, Meta { generation: 7, ..Meta::default() });
        Link { upstream, ledger, doubt: false, settled: true, flushed, scriptless: false }
    }

    #[test]
    fn rows_that_are_flushed_again_before_they_are_watched_are_written_once_more() {
        let mut redis = side_car(Flushing { flushes: 2, ..Flushing::default() }.start());
        let mut link = link(&redis, true);
        redis.restore(&mut link, None).unwrap();
        assert_eq!((redis.report.restored, link.flushed), (3, false));
    }

    #[test]
    fn a_side_car_whose_rows_are_flushed_for_ever_gives_up() {
        let mut redis = side_car(Flushing { flushes: u32::MAX, ..Flushing::default() }.start());
        let mut link = link(&redis, true);
        let error = redis.restore(&mut link, None).unwrap_err();
        assert!(matches!(error, UpstreamError::Refused { .. }), "{error}");
        assert_eq!(redis.report.restored, u64::from(RESTORES_MAX));
    }

    #[test]
    fn rows_that_are_flushed_while_a_side_car_takes_over_are_written_again() {
        let key = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session: 7 };
        let row =
            SessionRow { key, nonce: 1, update: 3, bypass: 1 << 31, ended: false, touched: 0, lease: 0 };
        let any = SocketAddr::from(([0; 4], 0));
        let prefix = ServerSideConfig::new(any, any).prefix;
        let meta = Meta { generation: 7, slots: 1, ..Meta::default() };
        let keys = BTreeMap::from([
            (Ledger::meta_key(&prefix).into_bytes(), meta.to_text().into_bytes()),
            (Ledger::row_key(&prefix, 0).into_bytes(), row.to_bytes().to_vec()),
        ]);
        let mut redis = side_car(Flushing { keys, flushes: 1, ..Flushing::default() }.start());
        let mut link = redis.connect().unwrap();
        assert_eq!((redis.report.restored, link.flushed), (1, false));
        link.upstream.push(&[b"GET", Ledger::row_key(&prefix, 0).as_bytes()]);
        let stored = link.upstream.call(None).unwrap();
        assert_eq!(resp::bulk(&stored).unwrap()[..SessionRow::BYTES], row.to_bytes());
    }

    #[test]
    fn rejected_commands_are_kept_although_the_keys_are_flushed_meanwhile() {
        let mut redis = side_car(Flushing { is_flushed: true, ..Flushing::default() }.start());
        let mut link = link(&redis, false);
        let late = Rejection::in_doubt(b"*1\r\n$4\r\nPING\r\n");
        keep(late, &mut redis, &mut link, None).unwrap();
        assert_eq!((redis.report.restored, redis.report.rejected), (1, 1));
        link.upstream.push(&[b"GET", Ledger::rejected_key(&redis.config.prefix, 0).as_bytes()]);
        let stored = link.upstream.call(None).unwrap();
        let kept = resp::bulk(&stored).and_then(Rejection::from_bytes).expect("the command");
        assert_eq!(kept.command(), "PING");
    }
}
