//! Metrics: the Prometheus text format, an HTTP server for it, and what every system says of its region.
#![forbid(unsafe_code)]

mod region;
mod serve;
mod text;

pub use region::region;
pub use serve::{ListenError, check, serve};
pub use text::{CONTENT_TYPE, Kind, Text};
