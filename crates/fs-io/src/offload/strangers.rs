//! Connections that have not said what they are.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};

/// Most of them at a time.
const STRANGERS_MAX: usize = 64;

/// Connections that have not said what they are. They keep nobody out: when there are too many, the one that has waited
/// longest makes way, and who speaks at once has not waited.
#[derive(Default)]
pub(super) struct Strangers(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    /// In the order in which they came.
    connections: VecDeque<(u64, TcpStream)>,
    /// How many have come.
    count: u64,
}

/// One of them, until it is dropped.
pub(super) struct Stranger<'s> {
    strangers: &'s Strangers,
    number: u64,
}

impl Strangers {
    /// Takes a connection in.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn admit(&self, stream: &TcpStream) -> io::Result<Stranger<'_>> {
        let kept = stream.try_clone()?;
        let mut waiting = self.0.lock();
        waiting.count += 1;
        let number = waiting.count;
        waiting.connections.push_back((number, kept));
        if waiting.connections.len() > STRANGERS_MAX {
            // An error means that it has ended.
            let _ = waiting.connections.pop_front().map(|(_, oldest)| oldest.shutdown(Shutdown::Both));
        }
        Ok(Stranger { strangers: self, number })
    }
}

impl Drop for Stranger<'_> {
    fn drop(&mut self) {
        self.strangers.0.lock().connections.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn the_one_that_has_waited_longest_makes_way_and_one_that_has_spoken_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0);
        let strangers = Strangers::default();
        let (mut known, its_end) = connect();
        drop(strangers.admit(&its_end).unwrap());
        let pairs: Vec<(TcpStream, TcpStream)> = (0..=STRANGERS_MAX).map(|_| connect()).collect();
        let admitted: Vec<_> = pairs.iter().map(|(_, end)| strangers.admit(end).unwrap()).collect();
        let is_open = |stream: &mut TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.read(&mut [0]).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        };
        let open: Vec<bool> = pairs.into_iter().map(|(mut stream, _)| is_open(&mut stream)).collect();
        assert!(!open[0] && is_open(&mut known));
        drop(admitted);
        assert!(strangers.0.lock().connections.is_empty());
    }
}
