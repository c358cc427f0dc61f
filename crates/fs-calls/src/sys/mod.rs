//! The functions that replace those of the C library, and the system calls below them.
//!
//! `data` has the calls that are answered here, `opened` and `duplicates` the ones that make descriptors, and `before` those that are
//! passed on after the table has been prepared for them. `start` finds the functions that are replaced.
//!
//! A function that replaces another one may be called at any time: before the constructor has run, in a handler of a
//! signal, in a child of `fork`. Then it does nothing of its own.

// Pointers come from C programs; functions are replaced by name, and called with the registers of their callers.
#![allow(unsafe_code)]
// A register holds what its type says: a descriptor, flags and errors are its lower half, with their sign.
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "registers are what they are")]

mod before;
mod data;
mod duplicates;
mod opened;
mod owner;
mod process;
mod quiet;
mod raw;
mod real;
mod start;
mod statistics;

pub use process::install;
