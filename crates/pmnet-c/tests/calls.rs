//! The results of the calls in a C program.

mod common;

use common::{SYSTEM_LIBRARIES, cc, crate_dir, has, libraries, run};
use std::process::Command;

#[test]
fn each_call_returns_what_the_header_says() {
    if !has("cc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("calls");
    let mut command = cc();
    command.arg(crate_dir().join("tests/calls.c")).arg(libraries().join("libpmnet.a"));
    run(command.args(SYSTEM_LIBRARIES).arg("-o").arg(&program));
    run(&mut Command::new(program));
}
