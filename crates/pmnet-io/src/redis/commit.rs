//! Executes and commits a batch of work in the real server.
//!
//! All changes of a batch are in one transaction with the rows. Reads follow the transaction, so that a session reads
//! its own writes. If the server refuses a command when it is queued, it aborts the whole transaction. The refused
//! command is then left out: a bypass is answered with the error, an update is kept as rejected. The remaining commands
//! are tried again.

use super::job::Job;
use super::ledger::{Command, Flush, Ledger, REPLACE, RESTORE, Staged, unstamp};
use super::rejected::Rejection;
use super::resp;
use super::state::{Link, Redis};
use super::upstream::{Replied, UpstreamError, refuse_errors};
use crate::runtime::{Network, Outcome};
use landfall_pmnet::{SessionKey, SessionRow, Work};
use std::ops::Range;

/// Most attempts at one transaction. Each attempt leaves out the commands that were refused in the one before.
const ATTEMPTS_MAX: u32 = 8;
/// The answer to a bypass whose reply is lost.
const LOST: &[u8] =
    b"-LANDFALL the command may have been executed before the server restarted; its reply is lost\r\n";
const ABORTED: &[u8] = b"-EXECABORT Transaction discarded because of previous errors.\r\n";

/// A batch that is being committed.
pub(super) struct Commit<'w> {
    pieces: Vec<Piece<'w>>,
}

/// A piece of work.
struct Piece<'w> {
    work: &'w Work,
    /// The parsed request; `None` for a row alone, and for an update that was rejected.
    job: Option<Job>,
    rejection: Option<Rejection>,
    outcome: Option<Outcome>,
}

/// A transaction that was sent.
#[derive(Default)]
struct Sent {
    /// The numbers of each piece's commands.
    spans: Vec<(usize, Range<usize>)>,
    /// Number of commands, including the side-car's own, which follow those of the pieces.
    commands: usize,
    staged: Staged,
    /// Commands that replace a row, by number, and the row that they must have replaced.
    replaced: Vec<(usize, SessionRow)>,
    /// Numbers of the side-car's own scripts.
    scripts: Vec<usize>,
    kept: Vec<Rejection>,
    /// The transaction stores a note of the commands in doubt.
    doubt: bool,
}

/// Result of a transaction.
enum Verdict {
    /// The transaction is committed; these are the replies.
    Committed(Vec<Vec<u8>>),
    /// Nothing was executed. Refused commands are marked, and another attempt may succeed.
    Again,
    /// Nothing was executed, and another attempt would fail, too.
    Refused(Vec<u8>),
}

impl<'w> Piece<'w> {
    fn new(work: &'w Work) -> Self {
        let mut piece = Self { work, job: None, rejection: None, outcome: None };
        match work {
            Work::Bypass { lost: true, .. } => piece.answer(LOST.to_vec(), false),
            Work::Update { request, .. } | Work::Bypass { request, .. } => match Job::read(request) {
                Ok(job) => piece.job = Some(job),
                Err(error) => piece.refuse(&resp::error(&error.to_string())),
            },
            Work::Row { .. } => {}
        }
        piece
    }

    /// Handles a request that the real server, or the side-car, refuses to execute.
    fn refuse(&mut self, error: &[u8]) {
        match self.work {
            Work::Update { request, row, .. } => {
                self.job = None;
                self.rejection = Some(Rejection::new(row.key, row.update, error, request));
            }
            _ if self.job.as_ref().is_some_and(|job| job.transaction) => self.answer(ABORTED.to_vec(), false),
            _ => self.answer(error.to_vec(), false),
        }
    }

    fn answer(&mut self, bytes: Vec<u8>, changed: bool) {
        self.outcome = Some(Outcome::Response { bytes, changed });
    }

    fn session(&self) -> SessionKey {
        self.work.ticket().session()
    }

    fn request(&self) -> &'w [u8] {
        match self.work {
            Work::Update { request, .. } | Work::Bypass { request, .. } => request,
            Work::Row { .. } => &[],
        }
    }

    fn commands(&self) -> impl Iterator<Item = &'w [u8]> {
        let request = self.request();
        self.job.iter().flat_map(|job| job.commands.iter()).map(move |range| &request[range.clone()])
    }

    /// True if the piece belongs into the transaction: all pieces but reads do.
    fn writes(&self) -> bool {
        !matches!(self.work, Work::Bypass { .. }) || self.job.as_ref().is_some_and(|job| job.changes)
    }

    fn is_typed_update(&self) -> bool {
        matches!(self.work, Work::Update { .. }) && self.job.as_ref().is_some_and(|job| job.typed)
    }

    /// `Some(true)` if the reply must be RESP3, `Some(false)` if it must be RESP2, `None` if it does not matter.
    fn resp3(&self) -> Option<bool> {
        let bypass = matches!(self.work, Work::Bypass { .. });
        self.job.as_ref().filter(|_| bypass).map(|job| job.resp3)
    }

    /// Sets the outcome from the replies of a committed transaction. Returns the rejection of an update that failed.
    fn settle(&mut self, replies: &[Vec<u8>]) -> Option<Rejection> {
        let failed = replies.iter().find(|reply| resp::is_error(reply));
        match (self.work, &self.job) {
            (Work::Bypass { .. }, Some(job)) if !job.transaction => self.answer(replies.concat(), true),
            (Work::Bypass { .. }, _) => {
                let mut bytes = Vec::new();
                resp::put_array(&mut bytes, replies.len());
                bytes.extend(replies.concat());
                self.answer(bytes, true);
            }
            _ => self.outcome = Some(Outcome::Committed),
        }
        match self.work {
            Work::Update { request, row, .. } => {
                failed.map(|error| Rejection::new(row.key, row.update, error, request))
            }
            _ => None,
        }
    }
}

impl<'w> Commit<'w> {
    pub(super) fn new(batch: &'w [Work]) -> Self {
        Self { pieces: batch.iter().map(Piece::new).collect() }
    }

    /// Nothing is sent to the real server but the rows, and what says that updates were rejected.
    pub(super) fn refuse_all(&mut self, error: &[u8]) {
        for piece in &mut self.pieces {
            piece.refuse(error);
            piece.rejection = piece.rejection.take().map(Rejection::of_poison);
        }
    }

    /// Executes all pieces, and returns an outcome for each.
    pub(super) fn run(
        mut self,
        redis: &mut Redis,
        link: &mut Link,
        network: &mut Network,
    ) -> Result<Vec<Outcome>, UpstreamError> {
        let wanted = |resp3| self.pieces.iter().any(|piece| piece.resp3() == Some(resp3));
        match (wanted(false), wanted(true)) {
            (true, true) => {
                self.pass(false, Some(false), redis, link, network)?;
                self.pass(true, None, redis, link, network)?;
            }
            (_, resp3) => self.pass(resp3, None, redis, link, network)?,
        }
        let outcomes = self.pieces.into_iter().map(|piece| piece.outcome.unwrap_or(Outcome::Failed));
        Ok(outcomes.collect())
    }

    /// Executes all pending pieces. With `only`, bypasses of the other protocol are left out.
    fn pass(
        &mut self,
        resp3: bool,
        only: Option<bool>,
        redis: &mut Redis,
        link: &mut Link,
        network: &mut Network,
    ) -> Result<(), UpstreamError> {
        for _ in 0..ATTEMPTS_MAX {
            self.fail_behind_failures();
            let fits =
                |piece: &Piece<'_>| only.is_none() || piece.resp3().is_none_or(|wanted| Some(wanted) == only);
            let pending: Vec<usize> = (0..self.pieces.len())
                .filter(|at| self.pieces[*at].outcome.is_none() && fits(&self.pieces[*at]))
                .collect();
            if pending.is_empty() || self.attempt(&pending, resp3, redis, link, network)? {
                return Ok(());
            }
        }
        self.refuse_writes(b"-ERR the server refused commands in every attempt\r\n");
        Ok(())
    }

    /// Makes one attempt. True if no piece needs another one.
    fn attempt(
        &mut self,
        pending: &[usize],
        resp3: bool,
        redis: &mut Redis,
        link: &mut Link,
        network: &mut Network,
    ) -> Result<bool, UpstreamError> {
        let (writes, reads): (Vec<usize>, Vec<usize>) =
            pending.iter().partition(|at| self.pieces[**at].writes());
        let hello = link.upstream.speak(resp3);
        let sent = if writes.is_empty() { None } else { Some(self.push_transaction(&writes, redis, link)) };
        for at in &reads {
            self.pieces[*at].commands().for_each(|command| link.upstream.push_bytes(command));
        }
        link.upstream.send()?;
        if hello {
            refuse_errors(&link.upstream.reply(Some(network))?, "RESP3")?;
        }
        let verdict = sent.as_ref().map(|sent| self.verdict(sent, link, network)).transpose()?;
        let answers = fetch_reads(&reads, redis, link, network)?;
        if link.flushed {
            redis.restore(link, Some(network))?;
        }
        let again = matches!(verdict, Some(Verdict::Again));
        if let (Some(sent), Some(verdict)) = (sent, verdict) {
            self.conclude(sent, verdict, redis, link, network)?;
        }
        if !again {
            self.fail_behind_failures();
            self.answer_reads(&reads, answers, redis);
        }
        Ok(!again)
    }

    fn answer_reads(&mut self, reads: &[usize], answers: Vec<Option<Vec<u8>>>, redis: &mut Redis) {
        for (at, answer) in reads.iter().zip(answers) {
            let piece = &mut self.pieces[*at];
            match answer {
                _ if piece.outcome.is_some() => {}
                Some(answer) => {
                    redis.report.bypasses += 1;
                    piece.answer(answer, false);
                }
                None => piece.outcome = Some(Outcome::Failed),
            }
        }
    }

    fn push_transaction(&self, writes: &[usize], redis: &Redis, link: &mut Link) -> Sent {
        let mut sent = Sent::default();
        link.upstream.push(&[b"MULTI"]);
        let mut doubt = Vec::new();
        let mut flush = Flush::No;
        for at in writes {
            let piece = &self.pieces[*at];
            let first = sent.commands;
            for command in piece.commands() {
                link.upstream.push_bytes(command);
                sent.commands += 1;
            }
            sent.spans.push((*at, first..sent.commands));
            sent.kept.extend(piece.rejection.clone());
            flush = flush.max(piece.job.as_ref().map_or(Flush::No, |job| job.flush));
            if piece.is_typed_update() {
                doubt.extend_from_slice(piece.request());
            }
        }
        if link.scriptless && flush == Flush::Possible {
            flush = Flush::Certain;
        }
        let work = writes.iter().map(|at| self.pieces[*at].work);
        sent.staged = link.ledger.stage(work, sent.kept.len() as u64, flush);
        sent.push_own(doubt, redis, link);
        sent
    }

    fn verdict(
        &mut self,
        sent: &Sent,
        link: &mut Link,
        network: &mut Network,
    ) -> Result<Verdict, UpstreamError> {
        let answers = sent.fetch(link, network)?;
        let now = resp::bulk(&answers.meta);
        if let Some(parts) = resp::elements_of(&answers.exec) {
            let replies: Vec<Vec<u8>> = parts.into_iter().map(<[u8]>::to_vec).collect();
            sent.apply(link);
            if sent.scripts.iter().any(|at| replies.get(*at).is_some_and(|reply| resp::is_error(reply))) {
                // Whether the rows are still there is unknown.
                (link.scriptless, link.flushed) = (true, true);
            }
            link.check(now)?;
            return Ok(Verdict::Committed(replies));
        }
        link.check(now)?;
        if !resp::is_error(&answers.exec) {
            return Ok(Verdict::Again);
        }
        let users = sent.spans.last().map_or(0, |(_, span)| span.end);
        let own = answers.refused.iter().find(|(command, _)| *command >= users);
        if own.is_some_and(|(command, _)| sent.scripts.contains(command)) {
            link.scriptless = true;
            return Ok(Verdict::Again);
        }
        if let Some((_, error)) = own.or(answers.refused.is_empty().then_some(&(0, answers.exec.clone()))) {
            return Ok(Verdict::Refused(error.clone()));
        }
        for (at, span) in &sent.spans {
            if let Some((_, error)) = answers.refused.iter().find(|(command, _)| span.contains(command)) {
                self.pieces[*at].refuse(error);
            }
        }
        Ok(Verdict::Again)
    }

    fn conclude(
        &mut self,
        sent: Sent,
        verdict: Verdict,
        redis: &mut Redis,
        link: &mut Link,
        network: &mut Network,
    ) -> Result<(), UpstreamError> {
        let replies = match verdict {
            Verdict::Committed(replies) => replies,
            Verdict::Again => return Ok(()),
            Verdict::Refused(error) => {
                redis.report.refused += 1;
                let text = String::from_utf8_lossy(&error);
                tracing::warn!(error = %text.trim_end(), "the Redis server refuses a transaction; its updates wait");
                self.refuse_writes(&error);
                return Ok(());
            }
        };
        sent.check_rows(&replies, redis);
        let mut late = Vec::new();
        for (at, span) in &sent.spans {
            late.extend(self.pieces[*at].settle(&replies[span.clone()]));
            match self.pieces[*at].work {
                Work::Update { .. } => redis.report.updates += 1,
                Work::Bypass { .. } => redis.report.bypasses += 1,
                Work::Row { .. } => {}
            }
        }
        redis.report.transactions += 1;
        redis.reject(&sent.kept);
        keep(late, redis, link, Some(network))?;
        link.settled = true;
        redis.replicate(link, Some(network))
    }

    /// Refuses all pending pieces that write: bypasses are answered with the error, updates and rows wait.
    fn refuse_writes(&mut self, error: &[u8]) {
        for at in 0..self.pieces.len() {
            let pending = self.pieces[at].outcome.is_none() && self.pieces[at].writes();
            match self.pieces[at].work {
                _ if !pending => {}
                Work::Bypass { .. } => {
                    self.fail_behind_failures();
                    if self.pieces[at].outcome.is_none() {
                        self.pieces[at].answer(error.to_vec(), false);
                    }
                }
                _ => self.pieces[at].outcome = Some(Outcome::Failed),
            }
        }
    }

    /// Fails the pieces behind a failed piece of the same session, because a session's work must stay in order.
    fn fail_behind_failures(&mut self) {
        let mut failed: Vec<SessionKey> = Vec::new();
        for piece in &mut self.pieces {
            match piece.outcome {
                Some(Outcome::Failed) => failed.push(piece.session()),
                None if failed.contains(&piece.session()) => piece.outcome = Some(Outcome::Failed),
                _ => {}
            }
        }
    }
}

/// Fetches the replies to reads. Their total size is bounded. A reply beyond the bound is not kept, and its command is
/// executed again in a later batch.
fn fetch_reads(
    reads: &[usize],
    redis: &Redis,
    link: &mut Link,
    network: &mut Network,
) -> Result<Vec<Option<Vec<u8>>>, UpstreamError> {
    let (max, mut room) = (network.response_max(), redis.config.options.server.responses_long_bytes_max);
    let mut answers = Vec::new();
    for at in 0..reads.len() {
        let most = if at == 0 { max } else { max.min(room) };
        answers.push(match link.upstream.reply_up_to(most, Some(network))? {
            Replied::Whole(reply) => {
                room = room.saturating_sub(reply.len());
                Some(reply)
            }
            Replied::TooLong(len) => (len > max).then(|| too_long(len, max)),
        });
    }
    Ok(answers)
}

/// The replies to a transaction and to the commands that follow it.
struct Answers {
    /// Commands that were refused when they were queued, by number, with the error.
    refused: Vec<(usize, Vec<u8>)>,
    exec: Vec<u8>,
    meta: Vec<u8>,
}

impl Sent {
    /// Appends the side-car's own commands, `EXEC`, and the `WATCH` for the next transaction.
    fn push_own(&mut self, doubt: Vec<u8>, redis: &Redis, link: &mut Link) {
        let prefix = link.ledger.prefix().to_owned();
        let mut own: Vec<Command> = Vec::new();
        let first = link.ledger.meta.rejected;
        for (number, rejection) in (first..).zip(&self.kept) {
            own.push(words(&[
                b"SET",
                Ledger::rejected_key(&prefix, number).as_bytes(),
                &rejection.to_bytes(),
            ]));
            if let Some(old) = number.checked_sub(redis.config.rejected_max) {
                own.push(words(&[b"DEL", Ledger::rejected_key(&prefix, old).as_bytes()]));
            }
        }
        let doubt_key = Ledger::doubt_key(&prefix);
        if !doubt.is_empty() {
            own.push(words(&[b"SET", doubt_key.as_bytes(), &doubt]));
        } else if link.doubt {
            own.push(words(&[b"DEL", doubt_key.as_bytes()]));
        }
        self.doubt = !doubt.is_empty();
        own.extend(link.ledger.commands(&self.staged));
        let replaces = own.iter().enumerate().filter(|(_, command)| command[0] == REPLACE);
        let numbers = replaces.map(|(at, _)| self.commands + at);
        let known = numbers.zip(link.ledger.replaced(&self.staged));
        self.replaced = known.filter_map(|(at, row)| Some((at, row?))).collect();
        let scripts = own.iter().enumerate().filter(|(_, command)| command[0] == RESTORE);
        self.scripts = scripts.map(|(at, _)| self.commands + at).collect();
        for command in &own {
            link.upstream.push(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
        }
        self.commands += own.len();
        let meta = Ledger::meta_key(&prefix);
        link.upstream.push(&[b"EXEC"]);
        link.upstream.push(&[b"WATCH", meta.as_bytes()]);
        link.upstream.push(&[b"GET", meta.as_bytes()]);
    }

    /// Detects that something other than this side-car has changed a row.
    fn check_rows(&self, replies: &[Vec<u8>], redis: &mut Redis) {
        for (at, row) in &self.replaced {
            let was = replies.get(*at).and_then(|reply| resp::bulk(reply));
            if was.and_then(unstamp).map(|(was, _)| was) != Some(*row) {
                redis.report.foreign_rows += 1;
                tracing::error!(
                    client = %row.key.client, session = row.key.session, prefix = redis.config.prefix,
                    "something other than this side-car has changed or removed the row of a session; the row is correct again: \
                     no other program may write keys with this prefix"
                );
            }
        }
    }

    /// Notes that the transaction is committed. Updates that it rejected are not kept yet.
    fn apply(&self, link: &mut Link) {
        link.ledger.apply(&self.staged);
        (link.doubt, link.settled) = (self.doubt, false);
    }

    fn fetch(&self, link: &mut Link, network: &mut Network) -> Result<Answers, UpstreamError> {
        refuse_errors(&link.upstream.reply(Some(network))?, "transactions")?;
        let mut refused = Vec::new();
        for command in 0..self.commands {
            let reply = link.upstream.reply(Some(network))?;
            if resp::is_error(&reply) {
                refused.push((command, reply));
            }
        }
        let exec = link.upstream.reply(Some(network))?;
        refuse_errors(&link.upstream.reply(Some(network))?, "to watch a key")?;
        let meta = link.upstream.reply(Some(network))?;
        Ok(Answers { refused, exec, meta })
    }
}

/// Stores updates that were rejected when they were executed, after the transaction that counts them as applied is
/// committed. If the side-car ends in between, its next start finds them in the note of commands in doubt.
pub(super) fn keep(
    mut late: Vec<Rejection>,
    redis: &mut Redis,
    link: &mut Link,
    mut network: Option<&mut Network>,
) -> Result<(), UpstreamError> {
    if late.is_empty() {
        return Ok(());
    }
    let refused = "to keep rejected commands";
    for _ in 0..ATTEMPTS_MAX {
        let staged = link.ledger.stage(std::iter::empty(), late.len() as u64, Flush::No);
        let mut sent = Sent { staged, kept: late, ..Sent::default() };
        link.upstream.push(&[b"MULTI"]);
        sent.push_own(Vec::new(), redis, link);
        link.upstream.send()?;
        for _ in 0..=sent.commands {
            refuse_errors(&link.upstream.reply(network.as_deref_mut())?, refused)?;
        }
        let exec = link.upstream.reply(network.as_deref_mut())?;
        refuse_errors(&exec, refused)?;
        refuse_errors(&link.upstream.reply(network.as_deref_mut())?, refused)?;
        let meta = link.upstream.reply(network.as_deref_mut())?;
        if !resp::is_null(&exec) {
            sent.apply(link);
            redis.reject(&sent.kept);
            return Ok(());
        }
        // Another program has flushed the keys, or another side-car has taken over, which is an error.
        link.check(resp::bulk(&meta))?;
        if link.flushed {
            redis.restore(link, network.as_deref_mut())?;
        }
        late = sent.kept;
    }
    Err(UpstreamError::flushed(refused))
}

/// The error that a client gets in the place of a reply that is too long.
pub(super) fn too_long(len: usize, max: usize) -> Vec<u8> {
    resp::error(&format!(
        "ERR the reply of {len} bytes is longer than the {max} that the server's side-car takes; the command was executed: \
         raise --max-reply of landfall pmnet server, or ask for less at once"
    ))
}

fn words(words: &[&[u8]]) -> Command {
    words.iter().map(|word| word.to_vec()).collect()
}
