//! A worker: it receives requests, answers them, and receives the next ones.

use crate::aside::{Aside, Deferred};
use crate::counters::RequestKind;
use crate::effects::Effects;
use crate::execute::{execute, refusal};
use crate::landing::{Landing, SetAside};
use crate::service::{Answer, Service, number_of};
use crate::syncs::{Syncs, Waiting};
use crate::transport::{Incoming, Transport};
use crate::turns;
use crate::{data, directories};
use landfall_fs::Patience;
use landfall_fuse::{
    Decoder, DirBuffer, Errno, KeptRequest, LockRequest, Op, Read, ReadDir, Reply, Request, Sent,
};
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::Instant;

/// One worker, with a transport and landing runs of its own.
pub(crate) struct Worker<T> {
    pub(crate) service: Arc<Service>,
    pub(crate) syncs: Arc<Syncs>,
    pub(crate) aside: Arc<Aside>,
    pub(crate) transport: T,
    pub(crate) decoder: Decoder,
    pub(crate) landing: Landing,
}

impl<T: Transport> Worker<T> {
    /// Works until the transport ends.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let (mut joined, mut entries) = (Vec::new(), DirBuffer::default());
        loop {
            let sent = match self.transport.receive(&self.decoder, &mut self.landing, &mut joined)? {
                Incoming::Ended => return Ok(()),
                Incoming::Request(request) => {
                    let begun = Instant::now();
                    if self.sets_aside(&request, begun) {
                        Sent::Done
                    } else {
                        let sent = self.answer(&request, &mut entries)?;
                        self.service.common.counters.requests(RequestKind::of(&request.op)).note(begun);
                        sent
                    }
                }
                Incoming::Malformed(malformed) => {
                    tracing::error!(error = %malformed, "the kernel sends a malformed request");
                    match malformed.unique {
                        Some(unique) => self.transport.reply(&Reply::error(unique, Errno::IO))?,
                        None => Sent::Done,
                    }
                }
            };
            self.landing.answered();
            if sent == Sent::Ended {
                return Ok(());
            }
        }
    }

    /// Sets a request aside that changes something, if the log takes nothing for now: false if it is to be answered here.
    fn sets_aside(&mut self, request: &Request<'_>, begun: Instant) -> bool {
        // From another machine, no request comes before this one is answered.
        let may_wait = !self.service.is_elsewhere() && Effects::of(request).is_some();
        if !may_wait || !self.service.files.is_log_crowded() || !self.transport.may_owe_more() {
            return false;
        }
        let bytes = if let Op::Write(write) = &request.op { write.size } else { 0 };
        let Some(kept) = KeptRequest::of(request).filter(|_| self.aside.has_room(bytes.into())) else {
            return false;
        };
        let landed = match bytes {
            0 => SetAside::nothing(self.service.files.heap()),
            bytes => match self.landing.set_aside(bytes) {
                Ok(landed) => landed,
                // There is no room for it beside those that are received next.
                Err(_) => return false,
            },
        };
        self.service.note_received(request.unique);
        self.aside.add(Deferred { request: kept, landed, to: self.transport.later(), begun });
        true
    }

    /// Answers a request.
    fn answer(&mut self, request: &Request<'_>, entries: &mut DirBuffer) -> io::Result<Sent> {
        self.service.note_received(request.unique);
        match &request.op {
            Op::ReadDir(dir) => return self.list(request, *dir, directories::read, entries),
            Op::ReadDirPlus(dir) => return self.list(request, *dir, directories::read_plus, entries),
            Op::SetLock(asked) if self.service.is_shared() => {
                return self.lock(request, asked, Patience::None);
            }
            Op::SetLockWait(asked) if self.service.is_shared() => {
                return self.lock(request, asked, Patience::Waits);
            }
            Op::Interrupt { unique } if self.aside.interrupt(*unique) => {
                return Ok(Sent::Done);
            }
            _ => {}
        }
        if let Err(errno) = self.prepare(request) {
            return self.transport.reply(&Reply::error(request.unique, errno));
        }
        if let Op::Read(read) = &request.op {
            return self.read(request, read);
        }
        let (unique, answered) = execute(&self.service, &mut self.landing, request);
        let sent = match answered {
            Ok(Answer::Now(reply)) => self.transport.reply(&reply),
            Ok(Answer::Bytes(bytes)) => self.transport.reply_data(unique, &[IoSlice::new(&bytes)]),
            Ok(Answer::Nothing) => return Ok(Sent::Done),
            Ok(Answer::Durable(number, reply)) => return self.reply_durable(request, Some(number), reply),
            Ok(Answer::AllDurable(reply)) => return self.reply_durable(request, None, reply),
            Err(errno) => self.transport.reply(&refusal(&self.service, request, unique, errno)),
        };
        self.service.note_answered(request.unique);
        sent
    }

    /// What comes before a request holds a turn, or a file.
    fn prepare(&self, request: &Request<'_>) -> Result<(), Errno> {
        self.service.keep_numbers(request)?;
        if self.service.is_elsewhere() && Effects::of(request).is_some() {
            self.service.wait_for_log()?;
        }
        if let Op::Write(write) = &request.op {
            self.service.keep_pace(u64::from(write.size));
        }
        Ok(())
    }

    /// Answers a READ.
    fn read(&mut self, request: &Request<'_>, read: &Read) -> io::Result<Sent> {
        let (turn, unique) = (turns::take(&self.service, request), turns::lease(&self.service, request));
        let errno = match data::read(&self.service, &mut self.transport, (request, unique), read) {
            Ok(sent) => return Ok(sent),
            Err(errno) => errno,
        };
        drop(turn);
        let sent = self.transport.reply(&refusal(&self.service, request, unique, errno));
        self.service.note_answered(request.unique);
        sent
    }

    fn reply_durable(
        &mut self,
        request: &Request<'_>,
        number: Option<landfall_fs::InodeNumber>,
        reply: Reply,
    ) -> io::Result<Sent> {
        let (to, waiter) = (self.transport.later(), self.service.files.waiter());
        let waiting = Waiting { to, unique: request.unique, number, reply, waiter };
        self.syncs.wait(&self.service, waiting);
        Ok(Sent::Done)
    }

    /// Answers a request for a lock, unless it waits.
    fn lock(&mut self, request: &Request<'_>, asked: &LockRequest, patience: Patience) -> io::Result<Sent> {
        let (locking, mount) = (&self.service.common.locking, self.service.mount());
        let of = (request.unique, number_of(request.node));
        match locking.set(mount, of, asked, patience, self.transport.later()) {
            Some(reply) => self.transport.reply(&reply),
            None => Ok(Sent::Done),
        }
    }

    fn list(
        &mut self,
        request: &Request<'_>,
        dir: ReadDir,
        read: fn(&Service, landfall_fuse::Node, ReadDir, &mut DirBuffer) -> Result<(), Errno>,
        entries: &mut DirBuffer,
    ) -> io::Result<Sent> {
        let unique = turns::lease(&self.service, request);
        match read(&self.service, request.node, dir, entries) {
            Ok(()) => self.transport.reply_data(unique, &[IoSlice::new(entries.as_bytes())]),
            Err(errno) => self.transport.reply(&Reply::error(unique, errno)),
        }
    }
}
