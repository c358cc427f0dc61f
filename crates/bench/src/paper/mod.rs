//! `landfall bench paper`: the measurements of "Packets as Persistent In-Memory Data Structures" (HotNets 2021) and of
//! PASTE's write-ahead log, repeated on this machine.
//!
//! Read [`sections`] first: it names the comparisons. All servers of a comparison run in turns within each round
//! ([`compare`]), each started afresh at one end of a veth pair ([`wire`]) and pinned to a core of its own, the client
//! at the other end on another; figures are medians over the rounds, ratios are taken round by round.

mod args;
mod bulk;
mod callgrind;
mod compare;
mod contestant;
mod lab;
mod report;
mod script;
mod sections;
mod stages;
pub(crate) mod sys;
mod trip;
mod walserver;
mod wire;
mod wrk;

pub use args::{PaperArgs, PaperSection, StagesArgs, WalServerArgs};

pub(crate) use stages::run as stages;
pub(crate) use walserver::run as wal_server;

pub(crate) use report::Results;
#[cfg(test)]
pub(crate) use report::tests::sample;

use crate::common::error::BenchError;
use crate::common::progress::say;
use crate::common::report::write_report;
use lab::Lab;
use std::time::Instant;

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &PaperArgs) -> Result<(), BenchError> {
    let lab = Lab::set_up(args.bounded())?;
    let mut results = Results::new(&lab);
    let begun = Instant::now();
    let outcome = sections::measure(&lab, &mut results);
    results.servers = lab.abouts.take();
    results.took_seconds = begun.elapsed().as_secs_f64();
    if results.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&lab.args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}
