//! A proxy between the server's side-car and Redis that breaks connections around `EXEC`, where a break does most harm.

use super::loopback::until;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";
/// The reply of `EXEC` if the watched key has changed.
const NOTHING_DONE: &[u8] = b"*-1\r\n";

/// What happens to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Redis executes the transaction; the side-car does not get the reply.
    LoseReply,
    /// Redis never gets the end of the transaction.
    LoseRequest,
    /// Redis gets the end of the transaction only after the side-car has connected again.
    Delay,
}

/// State that all connections share.
#[derive(Default)]
struct Shared {
    /// What to do with the next transaction that contains the marker.
    wanted: Mutex<Option<(Cut, &'static str)>>,
    done: AtomicU64,
    /// Delayed transactions that were executed nevertheless.
    executed_late: AtomicU64,
    /// The newest connection that forwarded a transaction of users.
    newest: AtomicU64,
    stop: AtomicBool,
}

pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn start(redis: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::new(Shared::default()));
        let all = Arc::clone(&shared);
        std::thread::spawn(move || {
            for (number, side_car) in (1..).zip(listener.incoming()) {
                if all.stop.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(redis) = TcpStream::connect(redis) else { continue };
                Link::start(number, side_car.unwrap(), redis, &all);
            }
        });
        Self { address, shared }
    }

    /// Breaks the connection around the next transaction that contains `marker`, and returns afterwards.
    pub(crate) fn cut(&self, cut: Cut, marker: &'static str) {
        let before = self.shared.done.load(Ordering::SeqCst);
        *self.shared.wanted.lock().unwrap() = Some((cut, marker));
        until("a cut", || (self.shared.done.load(Ordering::SeqCst) > before).then_some(()));
    }

    /// True if a cut waits for its transaction.
    pub(crate) fn is_ready(&self) -> bool {
        self.shared.wanted.lock().unwrap().is_some()
    }

    pub(crate) fn executed_late(&self) -> u64 {
        self.shared.executed_late.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// One connection of the side-car.
struct Link {
    number: u64,
    side_car: TcpStream,
    redis: TcpStream,
    shared: Arc<Shared>,
    /// What is done with a transaction; replies are kept back from then on.
    cut: Mutex<Option<Cut>>,
}

impl Link {
    fn start(number: u64, side_car: TcpStream, redis: TcpStream, shared: &Arc<Shared>) {
        redis.set_nodelay(true).unwrap();
        side_car.set_nodelay(true).unwrap();
        let link =
            Arc::new(Self { number, side_car, redis, shared: Arc::clone(shared), cut: Mutex::default() });
        let other = Arc::clone(&link);
        std::thread::spawn(move || other.requests().unwrap_or_else(|| other.close()));
        std::thread::spawn(move || link.replies().unwrap_or_else(|| link.close()));
    }

    fn close(&self) {
        let _ = self.side_car.shutdown(Shutdown::Both);
        let _ = self.redis.shutdown(Shutdown::Both);
    }

    fn done(&self) {
        self.close();
        self.shared.done.fetch_add(1, Ordering::SeqCst);
    }

    /// Forwards requests until either side has closed, or a transaction is cut.
    fn requests(&self) -> Option<()> {
        let (mut bytes, mut transaction) = (vec![0; 64 << 10], Vec::new());
        loop {
            let chunk = read(&self.side_car, &mut bytes)?;
            transaction.extend_from_slice(chunk);
            if let Some(at) = find(&transaction, EXEC) {
                let rest = transaction.split_off(at + EXEC.len());
                match self.wanted(&transaction) {
                    Some(cut) => return self.cut(cut, chunk),
                    None => transaction = rest,
                }
            }
            (&self.redis).write_all(chunk).ok()?;
        }
    }

    /// What to do with a transaction, other than forwarding it.
    fn wanted(&self, transaction: &[u8]) -> Option<Cut> {
        if find(transaction, b"key:").is_some() {
            self.shared.newest.fetch_max(self.number, Ordering::SeqCst);
        }
        let mut wanted = self.shared.wanted.lock().unwrap();
        let cut = wanted.filter(|(_, marker)| find(transaction, marker.as_bytes()).is_some());
        cut.map(|(cut, _)| {
            *wanted = None;
            cut
        })
    }

    fn cut(&self, cut: Cut, chunk: &[u8]) -> Option<()> {
        *self.cut.lock().unwrap() = Some(cut);
        match cut {
            Cut::LoseReply => {}
            Cut::LoseRequest => {
                self.done();
                return Some(());
            }
            Cut::Delay => {
                self.side_car.shutdown(Shutdown::Both).ok()?;
                let newest = || self.shared.newest.load(Ordering::SeqCst);
                until("the side-car's next connection", || (newest() > self.number).then_some(()));
            }
        }
        (&self.redis).write_all(chunk).ok()
    }

    fn replies(&self) -> Option<()> {
        let (mut bytes, mut kept) = (vec![0; 64 << 10], Vec::new());
        loop {
            let chunk = read(&self.redis, &mut bytes)?;
            let Some(cut) = *self.cut.lock().unwrap() else {
                (&self.side_car).write_all(chunk).ok()?;
                continue;
            };
            kept.extend_from_slice(chunk);
            // After EXEC the side-car reads its own key, whose text begins like this.
            if find(&kept, b"\r\n1 ").is_some() {
                let late = cut == Cut::Delay && find(&kept, NOTHING_DONE).is_none();
                self.shared.executed_late.fetch_add(late.into(), Ordering::SeqCst);
                self.done();
                return Some(());
            }
        }
    }
}

fn read<'b>(mut stream: &TcpStream, bytes: &'b mut [u8]) -> Option<&'b [u8]> {
    let len = stream.read(bytes).ok().filter(|len| *len > 0)?;
    Some(&bytes[..len])
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
