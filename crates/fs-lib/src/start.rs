//! The library's beginning in a process.

mod sys;
