//! Adaptive busy-polling for loops that wait for packets. [`Spin`] decides how long to busy-poll before a loop blocks in
//! the kernel, and [`SpinWait`] does both for a whole loop. [`Alarm`] limits the time that a loop blocks, without setting
//! a timer for each wait.
//!
//! Blocking costs two context switches, tens of microseconds; busy-polling costs a core. So a worker busy-polls for a
//! while after an event, and for a shorter time whenever polling finds nothing.

#![forbid(unsafe_code)]

mod alarm;
mod spin;
mod spin_wait;

pub use alarm::Alarm;
pub use spin::Spin;
pub use spin_wait::SpinWait;
