//! Simulates a chain whose servers have machines of their own, with replicas that are idle and busy, from costs that were measured
//! in the same run: after LineFS, Figures 4, 6 and 8. One machine cannot show these.
//!
//! [`measured`] runs a few loads at one server and at chains of three, all on this machine; [`costs`] divides what they use by
//! operations and bytes; [`course`] says who does what after what; [`engine`] and [`processors`] let time pass. The same
//! courses on one simulated machine stand beside what was measured on this one ([`rows::Check`]).

mod costs;
mod course;
mod engine;
mod kinds;
mod measured;
mod processors;
mod rows;
mod show;
mod simulate;

pub(super) use measured::Measured;
pub(super) use rows::Model;
pub(super) use show::{draw, show};
#[cfg(test)]
pub(super) use simulate::tests::sample;
