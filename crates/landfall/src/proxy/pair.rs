//! A client and its connection to a server: the bytes that both send to each other, and how that ends.

use landfall_chain_io::ClientAddress;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{SendFlags, send, sockopt};
use std::io::{self, PipeReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A peer of which nothing is heard for so long is asked whether it is there, ...
const ASK_AFTER: Duration = Duration::from_secs(60);
/// ... again and again, ...
const ASK_EVERY: Duration = Duration::from_secs(15);
/// ... so often, ...
const ASK_TIMES: u32 = 4;
/// ... and has vanished then. So has a client that takes none of the bytes that wait for it for as long.
const VANISHED_AFTER: Duration = Duration::from_secs(120);
/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 8 << 10;
/// How long it is waited for the end of a client to which everything has been sent.
const LINGER: Duration = Duration::from_secs(1);
/// Stack of the threads of a client, bytes.
const STACK_BYTES: usize = 256 << 10;

/// A client and its connection to a server. Both threads of the client use the same two descriptors.
pub(super) struct Pair {
    client: Arc<TcpStream>,
    server: TcpStream,
    pub(super) to: ClientAddress,
    /// Since when bytes of the server are waited for; `None` while the client takes some.
    silent_since: Mutex<Option<Instant>>,
}

/// Who takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Client,
    Server,
}

impl Pair {
    pub(super) fn new(client: &Arc<TcpStream>, server: TcpStream, to: &ClientAddress) -> io::Result<Self> {
        set_up(client)?;
        end_if_nothing_is_taken(client)?;
        set_up(&server)?;
        let (client, silent_since) = (Arc::clone(client), Mutex::new(None));
        Ok(Self { client, server, to: to.clone(), silent_since })
    }

    /// Passes bytes on in both directions until the server has ended its own, or the client has gone. From `stop` on it
    /// reads no more requests. Once the requests have ended, the server may be silent for so long.
    pub(super) fn carry(self: &Arc<Self>, stop: &PipeReader, silence_max: Duration) -> io::Result<()> {
        let pair = Arc::clone(self);
        let replies = thread("replies").spawn(move || pair.carry_replies())?;
        let carried =
            self.carry_requests(stop, silence_max).and_then(|()| self.wait_for_replies(silence_max));
        if carried == Err(Gone::Client) {
            self.cut();
        }
        // What a server has said that has ended its direction is passed on still.
        // A panic of the thread has been printed already.
        let _ = replies.join();
        // A client that does not end is no error.
        let _ = linger(&self.client);
        Ok(())
    }

    /// Passes requests on until the client has ended its direction or the proxy stops, and ends that to the server.
    fn carry_requests(&self, stop: &PipeReader, silence_max: Duration) -> Result<(), Gone> {
        self.pass_requests(&*self.client, || self.wait_for_request(stop), silence_max)?;
        // What has arrived before the stop is passed on still.
        let arrived = ioctl_fionread(&*self.client).map_err(|_| Gone::Client)?;
        self.pass_requests((&*self.client).take(arrived), || Ok(true), silence_max)?;
        // A server that has ended already is no error.
        let _ = self.server.shutdown(Shutdown::Write);
        Ok(())
    }

    fn pass_requests(
        &self,
        mut from: impl Read,
        goes_on: impl Fn() -> Result<bool, Gone>,
        silence_max: Duration,
    ) -> Result<(), Gone> {
        let mut piece = [0; PIECE_BYTES];
        while goes_on()? {
            match read(&mut from, &mut piece).map_err(|_| Gone::Client)? {
                0 => break,
                count => self.pass_on(&piece[..count], silence_max)?,
            }
        }
        Ok(())
    }

    /// Waits until there is something to read of the client. False if the proxy stops.
    fn wait_for_request(&self, stop: &PipeReader) -> Result<bool, Gone> {
        let none = PollFlags::empty();
        let client = PollFd::new(&*self.client, PollFlags::IN);
        loop {
            let polled = [client.clone(), PollFd::new(&self.server, none), PollFd::new(stop, none)];
            match wait(polled, None)?.map(|has| !has.is_empty()) {
                [_, true, _] => return Err(Gone::Server),
                [_, _, true] => return Ok(false),
                [true, ..] => return Ok(true),
                [false, ..] => {}
            }
        }
    }

    /// Passes a part of a request on. A server that does not take it does not hide that the client goes.
    fn pass_on(&self, mut bytes: &[u8], silence_max: Duration) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match send(&self.server, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait_for_room(silence_max)?,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Gone::Server),
            }
        }
        Ok(())
    }

    /// Waits until the server takes bytes, or has gone. A client that has ended its direction may have gone: it waits for so
    /// long.
    fn wait_for_room(&self, silence_max: Duration) -> Result<(), Gone> {
        let (mut asks, mut most) = (PollFlags::RDHUP, None);
        loop {
            let server = PollFd::new(&self.server, PollFlags::OUT);
            let [client, server] = wait([PollFd::new(&*self.client, asks), server], most)?;
            match (client, server.is_empty()) {
                (client, _) if client.intersects(PollFlags::HUP | PollFlags::ERR) => {
                    return Err(Gone::Client);
                }
                (_, false) => return Ok(()),
                (_, true) if most.is_some() => return Err(Gone::Client),
                (client, true) if client.contains(PollFlags::RDHUP) => {
                    (asks, most) = (PollFlags::empty(), Some(silence_max));
                }
                (_, true) => {}
            }
        }
    }

    /// Waits until the server has ended its direction. A reset of the client counts at once, the silence of the server
    /// after a while.
    fn wait_for_replies(&self, silence_max: Duration) -> Result<(), Gone> {
        let (begun, none) = (Instant::now(), PollFlags::empty());
        loop {
            let left = silence_max.saturating_sub(self.silence(begun));
            if left.is_zero() {
                return Err(Gone::Client);
            }
            let polled = [PollFd::new(&*self.client, none), PollFd::new(&self.server, none)];
            match wait(polled, Some(left))?.map(|has| !has.is_empty()) {
                [_, true] => return Ok(()),
                [true, false] => return Err(Gone::Client),
                [false, false] => {}
            }
        }
    }

    /// How long bytes of the server are waited for, from a moment on.
    fn silence(&self, from: Instant) -> Duration {
        let since = *self.silent_since.lock();
        since.map_or(Duration::ZERO, |since| since.max(from).elapsed())
    }

    /// Passes replies on until the server has ended its direction, or the client takes no more.
    fn carry_replies(&self) {
        // An error ends the direction as the end of the stream does.
        let _ = self.pass_replies();
        let _ = self.client.shutdown(Shutdown::Write);
        // Nobody answers what the client still says. The thread that passes requests on is woken by that.
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn pass_replies(&self) -> io::Result<()> {
        let mut piece = [0; PIECE_BYTES];
        loop {
            *self.silent_since.lock() = Some(Instant::now());
            let count = read(&self.server, &mut piece)?;
            *self.silent_since.lock() = None;
            if count == 0 {
                return Ok(());
            }
            (&*self.client).write_all(&piece[..count])?;
        }
    }

    /// Ends both connections; the threads that pass bytes on end by that.
    pub(super) fn cut(&self) {
        // One that has ended already is no error.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

/// A thread of a client.
pub(super) fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into()).stack_size(STACK_BYTES)
}

/// Packets leave at once, and a peer that has vanished is noticed.
fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, ASK_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, ASK_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASK_TIMES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

/// A peer is not asked whether it is there while replies wait for it: the kernel would send them again for a quarter of an
/// hour. A server has no such limit, as it may take no requests for as long as it waits for another one of its chain.
fn end_if_nothing_is_taken(client: &TcpStream) -> io::Result<()> {
    let most = u32::try_from(VANISHED_AFTER.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(client, most)?;
    Ok(())
}

fn read(mut from: impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Reads what a client still says, until it has ended its direction. A connection that ends with bytes unread is reset, and
/// the client would lose what it has not received yet.
pub(super) fn linger(mut client: &TcpStream) -> io::Result<()> {
    let until = Instant::now() + LINGER;
    let mut unread = [0; 4096];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        if client.read(&mut unread)? == 0 {
            return Ok(());
        }
    }
}

/// Waits until something has become of descriptors, or the time is over. Returns what. Ends and errors are always told.
fn wait<const N: usize>(mut polled: [PollFd<'_>; N], most: Option<Duration>) -> Result<[PollFlags; N], Gone> {
    let most = most.map(|most| Timespec {
        tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(most.subsec_nanos()),
    });
    match poll(&mut polled, most.as_ref()) {
        // Nothing has become of any.
        Ok(_) | Err(Errno::INTR) => Ok(polled.map(|fd| fd.revents())),
        // The kernel has no memory: the client is cut off, as nobody can wait for it.
        Err(_) => Err(Gone::Client),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::PipeWriter;
    use std::net::TcpListener;
    use std::sync::mpsc::{Receiver, sync_channel};

    /// How long the server may be silent.
    const SILENCE_MAX: Duration = Duration::from_secs(1);
    /// Time limit for what has to come.
    const LIMIT: Duration = Duration::from_secs(30);

    /// The client's and the server's ends of a pair.
    struct Ends {
        client: TcpStream,
        server: TcpStream,
        /// Something comes when both connections have ended.
        ended: Receiver<()>,
        /// No requests are passed on without it.
        running: PipeWriter,
    }

    fn connected() -> [TcpStream; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_read_timeout(Some(LIMIT)).unwrap();
        [near, far]
    }

    fn carried() -> Ends {
        carried_to(connected())
    }

    fn carried_to([near_server, server]: [TcpStream; 2]) -> Ends {
        let [near_client, client] = connected();
        let to = "10.0.0.1:6479".parse().unwrap();
        let pair = Arc::new(Pair::new(&Arc::new(near_client), near_server, &to).unwrap());
        let ((stop, running), (send, ended)) = (io::pipe().unwrap(), sync_channel(1));
        std::thread::spawn(move || {
            pair.carry(&stop, SILENCE_MAX).unwrap();
            send.send(()).unwrap();
        });
        Ends { client, server, ended, running }
    }

    /// Has the client end its direction behind a request.
    fn ask(Ends { client, server, .. }: &mut Ends) {
        client.write_all(b"GET k\r\n").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut request = Vec::new();
        server.read_to_end(&mut request).unwrap();
        assert_eq!(request, b"GET k\r\n");
    }

    /// What the kernel makes of that, no test waits for.
    #[test]
    fn a_client_that_has_vanished_is_given_up_after_two_minutes() {
        let ([client, _far_client], [server, _far_server]) = (connected(), connected());
        let (client, to) = (Arc::new(client), "10.0.0.1:6479".parse().unwrap());
        let pair = Pair::new(&client, server, &to).unwrap();
        for stream in [&*client, &pair.server] {
            assert!(sockopt::socket_keepalive(stream).unwrap());
            let (after, every) =
                (sockopt::tcp_keepidle(stream).unwrap(), sockopt::tcp_keepintvl(stream).unwrap());
            let times = sockopt::tcp_keepcnt(stream).unwrap();
            assert_eq!((after + every * times).as_secs(), 120);
        }
        let most = sockopt::tcp_user_timeout(&*client).unwrap();
        assert_eq!((most, sockopt::tcp_user_timeout(&pair.server).unwrap()), (120_000, 0));
    }

    #[test]
    fn a_client_that_has_closed_is_given_up_when_the_server_is_silent_for_too_long() {
        let (mut ends, begun) = (carried(), Instant::now());
        ask(&mut ends);
        // Nothing shows that: the end of the client's direction has come already.
        drop(ends.client);
        ends.ended.recv_timeout(LIMIT).expect("it is given up");
        assert!(begun.elapsed() >= SILENCE_MAX, "it could have waited for a reply");
        drop(ends.server);
    }

    /// The server takes no more, and a client that has closed cannot be told from one that has ended its direction.
    #[test]
    fn a_client_that_has_closed_behind_a_request_that_is_not_taken_is_given_up() {
        let to_server = connected();
        sockopt::set_socket_send_buffer_size(&to_server[0], 4096).unwrap();
        sockopt::set_socket_recv_buffer_size(&to_server[1], 4096).unwrap();
        let mut ends = carried_to(to_server);
        // More than the way to the server holds, and less than that to the proxy: the end comes behind it.
        ends.client.write_all(&[b'x'; 48 << 10]).unwrap();
        drop(ends.client);
        ends.ended.recv_timeout(LIMIT).expect("it is given up");
        drop(ends.server);
    }

    #[test]
    fn a_client_that_has_ended_its_direction_gets_replies_as_long_as_some_come() {
        let mut ends = carried();
        ask(&mut ends);
        for _ in 0..8 {
            std::thread::sleep(SILENCE_MAX / 4);
            ends.server.write_all(b"v").unwrap();
        }
        drop(ends.server);
        let mut replies = Vec::new();
        ends.client.read_to_end(&mut replies).unwrap();
        assert_eq!(replies, b"vvvvvvvv");
        ends.ended.recv_timeout(LIMIT).unwrap();
    }

    #[test]
    fn a_client_that_has_ended_its_direction_may_take_its_time_with_replies() {
        const BYTES: usize = 32 << 20;
        let mut ends = carried();
        ask(&mut ends);
        let mut server = ends.server;
        let writing = std::thread::spawn(move || server.write_all("v".repeat(BYTES).as_bytes()));
        std::thread::sleep(2 * SILENCE_MAX);
        let mut replies = Vec::new();
        ends.client.read_to_end(&mut replies).unwrap();
        assert_eq!(replies.len(), BYTES);
        writing.join().unwrap().unwrap();
        ends.ended.recv_timeout(LIMIT).unwrap();
    }

    #[test]
    fn what_a_client_says_after_a_stop_costs_it_no_reply() {
        const BYTES: usize = 1 << 20;
        let mut ends = carried();
        ends.client.write_all(b"GET k\r\n").unwrap();
        ends.server.read_exact(&mut [0; 7]).unwrap();
        drop(ends.running);
        assert_eq!(ends.server.read(&mut [0]).unwrap(), 0, "requests have ended");
        ends.client.write_all(b"GET l\r\n").unwrap();
        ends.server.write_all("v".repeat(BYTES).as_bytes()).unwrap();
        drop(ends.server);
        let mut replies = Vec::new();
        ends.client.read_to_end(&mut replies).unwrap();
        assert_eq!(replies.len(), BYTES);
        drop(ends.client);
        ends.ended.recv_timeout(LIMIT).unwrap();
    }
}
