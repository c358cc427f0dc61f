//! `landfall bench pmnet`: the evaluation of "PMNet: In-Network Data Persistence" (ISCA 2021, section VI), repeated
//! here.
//!
//! Read [`sections`] first: it names the comparisons. Contestants run in turns within each round ([`compare`]), each
//! with hosts, devices and servers of its own ([`stand`]): namespaces in a row, joined by veth pairs ([`course`]), the
//! device the real `landfall pmnet switch`. Clients are in this process ([`load`]), on a core of their own. A run ends
//! once servers have executed what devices acknowledged ([`settle`]).

mod app;
mod args;
mod awake;
mod breakdown;
mod choices;
mod compare;
mod course;
mod design;
mod lab;
mod load;
mod model;
mod recovery;
mod report;
mod sections;
mod serve;
mod settle;
mod stand;
mod sys;
mod work;

pub use args::{AppChoice, PmnetArgs, PmnetSection, PmnetServerArgs, ServeKind};

pub(crate) use serve::run as serve;

pub(crate) use report::Results;
#[cfg(test)]
pub(crate) use report::tests::sample;

use crate::common::error::BenchError;
use crate::common::progress::say;
use crate::common::report::write_report;
use lab::Lab;
use std::time::Instant;

/// Runs the campaign. After Ctrl-C what has been measured is still reported.
pub(crate) fn run(args: &PmnetArgs) -> Result<(), BenchError> {
    let lab = Lab::set_up(args.bounded())?;
    let mut results = Results::new(&lab);
    let begun = Instant::now();
    let outcome = sections::measure(&lab, &mut results);
    results.took_seconds = begun.elapsed().as_secs_f64();
    if results.is_empty() {
        return outcome.and(Err(BenchError::Nothing("nothing was measured; the lines above say why")));
    }
    let path = write_report(&lab.args.out, &results)?;
    say(format_args!("report: {}", path.display()));
    outcome
}
