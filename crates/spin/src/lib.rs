//! Adaptive busy-polling for loops that wait for packets. [`Spin`] decides how long to busy-poll before a loop blocks in
//! the kernel, and [`SpinWait`] does both for a whole loop. [`Alarm`] limits the time that a loop blocks, without setting
//! a timer for each wait. [`prefer_slices_of`] says how soon a thread is to run once it is woken.
//!
//! Blocking costs two context switches, tens of microseconds; busy-polling costs a core. So a worker busy-polls for a
//! while after an event, and for a shorter time whenever polling finds nothing.

#![deny(unsafe_code)]

mod alarm;
mod slices;
mod spin;
mod spin_wait;
mod sys;

pub use alarm::Alarm;
pub use slices::prefer_slices_of;
pub use spin::Spin;
pub use spin_wait::SpinWait;
