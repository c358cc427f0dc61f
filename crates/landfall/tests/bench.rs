//! `landfall bench` starts the program with the measurements, or says how to build it; the server is built without
//! them.

mod common;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs `landfall bench` from a folder without another program.
fn bench_in(folder: &Path) -> Output {
    let program = folder.join("landfall");
    if !program.exists() {
        common::install_program(&common::binary(), &program);
    }
    let mut command = Command::new(program);
    command.args(["bench", "kv", "--quick", "--help"]).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn bench_without_its_program_names_the_command_that_builds_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench_in(folder.path());
    assert_eq!(output.status.code(), Some(1));
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("cargo build --release -p landfall-bench"), "{words}");
}

#[test]
fn bench_becomes_the_program_beside_it_with_all_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    common::install_program(&script, &folder.path().join("landfall-bench"));
    let output = bench_in(folder.path());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "bench kv --quick --help\n");
    assert_eq!(output.status.code(), Some(7));
}
