//! What a server of PMNet has executed, for whoever connects. A device acknowledges an update before the server has it,
//! so that clients do not see what became of it.

use crate::common::error::BenchError;
use landfall_pmnet_io::runtime::ServerReport;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The longest wait for the counts.
const ASK_MAX: Duration = Duration::from_secs(5);
/// Bytes of [`Executed`] on the wire.
const EXECUTED_BYTES: usize = 24;
/// For messages.
const NAME: &str = "the counts of the server";

/// What a server counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executed {
    /// Updates that the current incarnation has committed. Rejected ones are among them.
    pub(crate) applied: u64,
    /// Updates that changed nothing, because the application refused to execute them.
    pub(crate) rejected: u64,
    /// Incarnations so far.
    pub(crate) incarnations: u64,
}

impl Executed {
    pub(super) fn of(report: &ServerReport, rejected: u64) -> Self {
        Self { applied: report.server.applied, rejected, incarnations: report.incarnations }
    }

    fn to_bytes(self) -> [u8; EXECUTED_BYTES] {
        let mut bytes = [0; EXECUTED_BYTES];
        let counts = [self.applied, self.rejected, self.incarnations];
        for (place, count) in bytes.chunks_exact_mut(8).zip(counts) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; EXECUTED_BYTES]) -> Self {
        let count = |at: usize| bytes[at..].first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
        Self { applied: count(0), rejected: count(8), incarnations: count(16) }
    }
}

/// Tells the counts to whoever connects, on a thread of its own. That thread takes no CPU time until somebody does.
/// Returns the address that was bound.
pub(super) fn tell(
    address: SocketAddr,
    executed: impl Fn() -> Executed + Send + 'static,
) -> Result<SocketAddr, BenchError> {
    let failed = BenchError::connection(NAME);
    let listener = TcpListener::bind(address).map_err(&failed)?;
    let local = listener.local_addr().map_err(&failed)?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // Whoever does not get the counts asks again.
            let _ = stream.and_then(|mut stream| stream.write_all(&executed().to_bytes()));
        }
    });
    Ok(local)
}

/// Reads the counts of the server at an address.
pub(crate) fn ask(address: SocketAddr) -> Result<Executed, BenchError> {
    let read = || -> io::Result<Executed> {
        let mut stream = TcpStream::connect_timeout(&address, ASK_MAX)?;
        stream.set_read_timeout(Some(ASK_MAX))?;
        let mut bytes = [0; EXECUTED_BYTES];
        stream.read_exact(&mut bytes)?;
        Ok(Executed::from_bytes(&bytes))
    };
    read().map_err(BenchError::connection(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn whoever_asks_gets_the_counts_of_now() {
        let applied = Arc::new(AtomicU64::new(7));
        let counted = Arc::clone(&applied);
        let executed = move || Executed {
            applied: counted.load(Ordering::Relaxed),
            rejected: u64::MAX,
            incarnations: 1,
        };
        let address = tell(([127, 0, 0, 1], 0).into(), executed).unwrap();
        for expected in [7, 8] {
            applied.store(expected, Ordering::Relaxed);
            let found = ask(address).unwrap();
            assert_eq!(found, Executed { applied: expected, rejected: u64::MAX, incarnations: 1 });
        }
    }
}
