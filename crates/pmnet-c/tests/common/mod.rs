//! Helpers to compile C programs with the system's compiler and with the libraries that cargo has built.
#![allow(dead_code, reason = "each test uses some of the helpers")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The system libraries that the static library needs.
pub(crate) const SYSTEM_LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lc"];

/// Whether a program is installed. Prints SKIP if not.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
pub(crate) fn has(program: &str) -> bool {
    let is_installed =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !is_installed {
        eprintln!("SKIP: {program}: not installed");
    }
    is_installed
}

pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn header() -> String {
    std::fs::read_to_string(crate_dir().join("include/pmnet.h")).unwrap()
}

/// The directory with `libpmnet.so` and `libpmnet.a`: that of the test, or its parent.
pub(crate) fn libraries() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe
        .ancestors()
        .skip(1)
        .take(2)
        .find(|dir| ["libpmnet.so", "libpmnet.a"].iter().all(|name| dir.join(name).exists()));
    found.expect("cargo builds all kinds of the library for its tests").to_owned()
}

/// The C compiler with strict warnings and this crate's header.
pub(crate) fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(crate_dir().join("include"));
    cc
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    output
}
