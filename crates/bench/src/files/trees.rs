//! Trees of sources: what developers do all day. The programs are those of the machine.

use crate::common::command;
use crate::files::args::FsArgs;
use crate::files::ran::{Failed, Ran, for_seconds, timed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of the tree.
const FILES: u32 = 4000;
/// Files of it in a quick run.
const FILES_QUICK: u32 = 40;
/// Files of one folder.
const FOLDER_FILES: u32 = 20;
/// Functions of the shortest file, and of the longest one. Most files are short, as in real trees: some KiB.
const FUNCTIONS: (u32, u32) = (8, 400);
/// Modules of the crate that is built.
const MODULES: u32 = 40;

fn count(args: &FsArgs) -> u32 {
    if args.quick { FILES_QUICK } else { FILES }
}

/// A file of the tree.
fn source(number: u32) -> String {
    let longest = FUNCTIONS.1 / (number % 17 + 1);
    let function = |at| {
        format!(
            "pub fn f{at}(x: u64) -> u64 {{\n    x.rotate_left({}) ^ {}\n}}\n",
            at % 63,
            u64::from(number) * 7919 + u64::from(at)
        )
    };
    (0..longest.max(FUNCTIONS.0)).map(function).collect()
}

/// Runs a program that is to succeed.
fn succeed(command: &mut Command, name: &'static str) -> Result<(), Failed> {
    command::succeed(command, name)?;
    Ok(())
}

/// Where the archive lies: beside the files, on the file system that is compared with.
fn archive(files: &Path) -> PathBuf {
    files.with_file_name("tree.tar")
}

fn unpack(files: &Path) -> Result<(), Failed> {
    succeed(Command::new("tar").arg("-xf").arg(archive(files)).arg("-C").arg(files), "tar")
}

fn git(files: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(files.join("tree")).args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]);
    git
}

/// Makes the archive of the tree.
pub(super) fn prepare_archive(files: &Path, args: &FsArgs) -> Result<(), Failed> {
    let made = tempfile::tempdir_in(archive(files).parent().unwrap_or(files))?;
    for number in 0..count(args) {
        let folder = made.path().join(format!("tree/folder-{}", number / FOLDER_FILES));
        fs::create_dir_all(&folder)?;
        fs::write(folder.join(format!("file-{number}.rs")), source(number))?;
    }
    succeed(Command::new("tar").arg("-cf").arg(archive(files)).arg("-C").arg(made.path()).arg("tree"), "tar")
}

/// Makes a repository of the tree.
pub(super) fn prepare_repository(files: &Path, args: &FsArgs) -> Result<(), Failed> {
    prepare_archive(files, args)?;
    unpack(files)?;
    succeed(git(files).args(["init", "-q"]), "git")?;
    succeed(git(files).args(["add", "-A"]), "git")?;
    succeed(git(files).args(["commit", "-q", "-m", "all"]), "git")
}

/// Makes a crate without dependencies.
pub(super) fn prepare_crate(files: &Path) -> Result<(), Failed> {
    let sources = files.join("src");
    fs::create_dir_all(&sources)?;
    let manifest = "[package]\nname = \"built\"\nversion = \"0.0.0\"\nedition = \"2021\"\n[workspace]\n";
    fs::write(files.join("Cargo.toml"), manifest)?;
    let modules: String = (0..MODULES).map(|number| format!("pub mod m{number};\n")).collect();
    fs::write(sources.join("lib.rs"), modules)?;
    (0..MODULES).try_for_each(|number| Ok(fs::write(sources.join(format!("m{number}.rs")), source(number))?))
}

/// `tar -xf`: files a second.
pub(super) fn untar(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    timed(f64::from(count(args)), || unpack(files))
}

/// `git status`, repeatedly.
pub(super) fn git_status(files: &Path, args: &FsArgs) -> Result<Ran, Failed> {
    for_seconds(args.seconds, || succeed(git(files).args(["status", "--porcelain"]), "git"))
}

/// `cargo build`: builds a second, of which there is one.
pub(super) fn build(files: &Path) -> Result<Ran, Failed> {
    let mut cargo = Command::new("cargo");
    // The caller may be built by cargo itself, and say so to what it starts.
    cargo
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .env("CARGO_TARGET_DIR", files.join("target"));
    cargo.args(["build", "--offline", "--quiet", "--manifest-path"]).arg(files.join("Cargo.toml"));
    timed(1.0, || succeed(&mut cargo, "cargo"))
}
