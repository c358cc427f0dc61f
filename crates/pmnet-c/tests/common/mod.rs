//! The system's C compiler, and the libraries that cargo has built beside the test.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the static library needs of the system.
pub(crate) const SYSTEM_LIBRARIES: [&str; 4] = ["-lpthread", "-ldl", "-lm", "-lc"];

/// Whether a program is there; says SKIP if not.
#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
pub(crate) fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIP: {program}: not installed");
    }
    there
}

pub(crate) fn crate_dir() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn header() -> String {
    std::fs::read_to_string(crate_dir().join("include/pmnet.h")).unwrap()
}

/// Where cargo has put `libpmnet.so` and `libpmnet.a`: beside the test, or above.
pub(crate) fn libraries() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let found = exe
        .ancestors()
        .skip(1)
        .take(2)
        .find(|dir| ["libpmnet.so", "libpmnet.a"].iter().all(|name| dir.join(name).exists()));
    found.expect("cargo builds all kinds of the library for its tests").to_owned()
}

/// `cc` with strict settings and our header.
pub(crate) fn cc() -> Command {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"]).arg(crate_dir().join("include"));
    cc
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    output
}
