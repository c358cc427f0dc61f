//! One connection: requests are answered one after the other.

use super::client::Client;
use super::server::Link;
use super::shared::{Boot, Named, ServerLife};
use super::sys;
use landfall_fs_link::{MESSAGE_BYTES_MAX, Reason, Refusal, Reply, Request, VERSION};
use landfall_media::NVDIMM_BEGIN;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, send, sendmsg};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How what a library says ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// That its process has ended.
    Ended,
    Nothing,
}

/// A connection.
pub(super) struct Connection {
    pub(super) link: Result<Arc<Link>, Reason>,
    pub(super) socket: OwnedFd,
    /// Process at the other end.
    pub(super) process: i32,
    /// Readable when libraries are served no more.
    pub(super) stop: OwnedFd,
}

impl Connection {
    /// Answers requests until the other end closes the socket, or libraries are served no more.
    pub(super) fn serve(self) {
        // A process that has ended already has nothing more to say. One that has no number here, in a namespace that is not
        // within this one, gets no region: nobody could know when it ends.
        let Ok(process) = sys::watch_process(self.process) else { return };
        let mut client = None;
        let ended = self.answer_all(&mut client);
        if let Err(error) = &ended {
            tracing::debug!(%error, "a connection of a library ends");
        }
        let (Some(client), Ok(link)) = (client, &self.link) else { return };
        client.finish(link.shared());
        // As long as the process lives it may store to what was granted to it, whatever it does with its socket. Of one in a
        // virtual machine that is known if it was said; otherwise its runs are used again after the machine's next boot.
        let has_ended = match client.place() {
            None => wait_for(process.as_fd(), self.stop.as_fd()).is_ok_and(|has_ended| has_ended),
            Some(_) => ended.is_ok_and(|said| said == Said::Ended),
        };
        if has_ended {
            link.forget(&client);
        }
    }

    fn answer_all(&self, client: &mut Option<Arc<Client>>) -> io::Result<Said> {
        let mut buffer = [0; MESSAGE_BYTES_MAX];
        loop {
            if !wait_for(self.socket.as_fd(), self.stop.as_fd())? {
                return Ok(Said::Nothing);
            }
            let (len, _) = recv(&self.socket, &mut buffer[..], RecvFlags::empty())?;
            if len == 0 {
                return Ok(Said::Nothing);
            }
            match (Request::decode(&buffer[..len]), &*client) {
                (Ok(Request::Hello { version, device }), None) if !self.is_door() => {
                    *client = self.greet(version, None, Named::Here(device))?;
                }
                // Only the door of this server says so.
                (Ok(Request::HelloFrom { version, mount, boot, life }), None) if self.is_door() => {
                    *client = self.greet(version, Some((boot, life)), Named::Machine(mount))?;
                }
                (Ok(Request::Left), Some(client)) if self.is_door() => {
                    self.link.iter().for_each(|link| client.finish(link.shared()));
                }
                (Ok(Request::Ended), Some(client)) if self.is_door() && client.is_over() => {
                    return Ok(Said::Ended);
                }
                (Ok(request), Some(client)) => self.send(&self.answer(client, request))?,
                _ => self.send(&refused(Reason::Message, Duration::ZERO))?,
            }
        }
    }

    /// True if this process is at the other end, which lets virtual machines in.
    fn is_door(&self) -> bool {
        u32::try_from(self.process).is_ok_and(|process| process == std::process::id())
    }

    /// The first answer, with the region and the control memory, which a virtual machine has already.
    fn greet(
        &self,
        version: u16,
        machine: Option<(Boot, ServerLife)>,
        named: Named,
    ) -> io::Result<Option<Arc<Client>>> {
        let greeted = self.link.as_ref().map_err(|reason| *reason).and_then(|link| {
            let is_known = version == VERSION;
            is_known.then_some(()).ok_or(Reason::Version)?;
            let client = match machine {
                // It has another region.
                Some((_, life)) if !link.is_of(life) => Err(Reason::Mount),
                Some((boot, _)) => link.attach_from(boot, self.process, named),
                None => link.attach(self.process, named),
            };
            Ok((link, client?))
        });
        let (link, client) = match greeted {
            Ok(greeted) => greeted,
            Err(reason) => {
                self.send(&refused(reason, Duration::ZERO))?;
                return Ok(None);
            }
        };
        let hash_seed = link.shared().files.heap().geometry().hash_seed;
        let (begin, control) = client.place().map_or((0, 0), |place| (NVDIMM_BEGIN, place - NVDIMM_BEGIN));
        let welcome = Reply::Welcome { client: client.number(), hash_seed, begin, control };
        let sent = match client.place() {
            None => self.send_with(&welcome, &[link.region(), client.memory()]),
            Some(_) => self.send(&welcome),
        };
        if sent.is_err() {
            // Nothing was granted to it.
            client.finish(link.shared());
            link.forget(&client);
        }
        sent.map(|()| Some(client))
    }

    fn answer(&self, client: &Client, request: Request) -> Reply {
        let Ok(link) = &self.link else { return refused(Reason::Medium, Duration::ZERO) };
        let answered = match request {
            Request::Hello { .. } | Request::HelloFrom { .. } | Request::Left | Request::Ended => {
                Err(Reason::Message)
            }
            Request::Acquire { kind, inode } => {
                return match link.acquire(client, kind, inode) {
                    Ok((place, generation)) => Reply::Lease { place, generation },
                    Err((reason, wait)) => refused(reason, wait),
                };
            }
            Request::Map { place, generation, offset, end } => client
                .map(link.shared(), (place, generation), offset..end)
                .map(|(parts, end)| Reply::Parts { end, parts }),
            Request::Release { place, generation } => {
                link.release(client, place, generation).map(|()| Reply::Done)
            }
            Request::Sync => client.sync(link.shared()).map(|()| Reply::Done),
            Request::Refill => client.refill(link.shared()).map(|()| Reply::Done),
        };
        answered.unwrap_or_else(|reason| refused(reason, Duration::ZERO))
    }

    fn send(&self, reply: &Reply) -> io::Result<()> {
        send(&self.socket, &reply.encode(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    fn send_with(&self, reply: &Reply, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(files));
        sendmsg(&self.socket, &[IoSlice::new(&reply.encode())], &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

fn refused(reason: Reason, wait: Duration) -> Reply {
    let errno = match reason {
        Reason::Version | Reason::Message => libc::EPROTO,
        Reason::Medium | Reason::WriteBack | Reason::Always => libc::EOPNOTSUPP,
        Reason::Inode | Reason::Mount => libc::EBADF,
        Reason::Left => libc::EAGAIN,
        Reason::Space => libc::ENOSPC,
        Reason::Revoked => libc::ESTALE,
        Reason::Fenced => libc::ESHUTDOWN,
        Reason::Many => libc::EMFILE,
        Reason::Region => libc::EIO,
    };
    // A part of a millisecond counts as one: asking sooner is useless.
    let wait_ms = u32::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u32::MAX);
    Reply::Refused(Refusal { reason, errno: errno.unsigned_abs(), wait_ms })
}

/// Waits until a descriptor is readable, or has ended. False if `stop` is readable first.
pub(super) fn wait_for(file: BorrowedFd<'_>, stop: BorrowedFd<'_>) -> io::Result<bool> {
    loop {
        let mut polled =
            [PollFd::from_borrowed_fd(file, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut polled, None) {
            Err(rustix::io::Errno::INTR) => continue,
            done => done?,
        };
        if !polled[1].revents().is_empty() {
            return Ok(false);
        }
        if !polled[0].revents().is_empty() {
            return Ok(true);
        }
    }
}
