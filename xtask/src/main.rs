//! Developer commands: `cargo xtask help` lists them.
//!
//! Read [`commands::COMMANDS`] first: each command is a name, its usage and a function. The crate has no
//! dependencies, because it is the first thing that a fresh clone builds.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

mod args;
mod campaign;
mod ci;
mod commands;
mod crates;
mod error;
mod functions;
mod json;
mod peers;
mod process;
mod sans_io;
mod seed;
mod service;
mod source;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match commands::dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
