//! The requests of clients.

mod kv;
pub(crate) mod resp;
mod tpcc;
mod twitter;

use super::app::App;
use crate::common::clients::zipf::Zipf;
use crate::common::error::BenchError;

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) bytes: Vec<u8>,
    /// Whether the client needs no reply, so that a log may acknowledge the request. Otherwise it is a bypass.
    pub(crate) update: bool,
    /// Whether the request is a bypass that changes something: only the server knows the order of such requests.
    pub(crate) locks: bool,
    /// Whether the request is the last one of a transaction.
    pub(crate) ends: bool,
}

/// Produces one client's requests, one after the other.
pub(crate) trait Workload {
    /// The next request, given the reply to the one before: empty at first, and for an update that a log acknowledged.
    ///
    /// # Errors
    /// [`BenchError::Reply`] for a reply that does not fit the request.
    fn next(&mut self, reply: &[u8], ask: &mut Ask) -> Result<(), BenchError>;
}

/// What all clients of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) app: App,
    /// Bytes of a payload, or of a value.
    pub(crate) payload: usize,
    /// Share of updates, percent.
    pub(crate) updates: u32,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
}

/// Returns a workload for each client, in the application's codec.
pub(crate) fn clients(settings: Settings, count: usize) -> Vec<Box<dyn Workload>> {
    let keys = Zipf::new(settings.keys);
    let client = |number: usize| -> Box<dyn Workload> {
        let seed = settings.seed.wrapping_add(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match settings.app {
            App::Ideal => Box::new(kv::Ideal::new(settings.payload, settings.updates, seed)),
            App::Map(_) | App::Filed(_) => {
                Box::new(kv::KeyValue::new(settings, keys.clone(), kv::Codec::Plain, seed))
            }
            App::Redis(_) | App::Landfall => {
                Box::new(kv::KeyValue::new(settings, keys.clone(), kv::Codec::Resp, seed))
            }
            App::Twitter(_) => Box::new(twitter::Twitter::new(settings.updates, seed)),
            App::Tpcc(_) => Box::new(tpcc::Tpcc::new(settings.updates, number as u64, seed)),
        }
    };
    (0..count).map(client).collect()
}

/// Refuses a reply that says that its request was not executed, in the application's codec. The acknowledgement of a log
/// is empty, and says nothing of that.
pub(crate) fn check_executed(app: App, reply: &[u8]) -> Result<(), BenchError> {
    let codec = if app.speaks_resp() { kv::Codec::Resp } else { kv::Codec::Plain };
    codec.check(reply)
}

/// Requests that fill the application before its clients begin, in its own codec.
pub(crate) fn fill(settings: Settings) -> Vec<Vec<u8>> {
    match settings.app {
        App::Ideal => Vec::new(),
        App::Map(_) | App::Filed(_) => kv::fill(settings, kv::Codec::Plain),
        App::Redis(_) | App::Landfall => kv::fill(settings, kv::Codec::Resp),
        App::Twitter(_) => twitter::fill(),
        App::Tpcc(_) => tpcc::fill(),
    }
}
