//! `landfall fs run`: a program with the library of files.

use crate::output::fail;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The library's file.
const LIBRARY: &str = "liblandfall_files.so";
/// Names the library's file, wherever it is.
const LIBRARY_VARIABLE: &str = "LANDFALL_FS_LIB";
/// Where the library is looked for, from the directory of this program on.
const PLACES: [&str; 3] = ["", "../lib/landfall", "../lib"];
/// The loader loads what this variable names.
const PRELOAD: &str = "LD_PRELOAD";

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Program, and its arguments; a static program just uses the mount
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Environment: the program cannot be started.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(
        "{LIBRARY}: it is not beside this program, nor in ../lib/landfall or ../lib: install it there, name it in \
         {LIBRARY_VARIABLE}, or in the checkout: cargo build --release -p landfall-fs-lib"
    )]
    NoLibrary,
    #[error("{}: {LIBRARY_VARIABLE} names it, and it is no file", .0.display())]
    Named(PathBuf),
    #[error("{}: the loader cannot load a path with a space or a colon: put the library elsewhere", .0.display())]
    Path(PathBuf),
    #[error("{}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
}

/// Replaces this process by the program.
pub(super) fn run(args: &RunArgs) -> ExitCode {
    fail(&start(args).unwrap_or_else(|error| error))
}

/// Returns only if the program cannot be started.
fn start(args: &RunArgs) -> Result<RunError, RunError> {
    let library = library(std::env::var_os(LIBRARY_VARIABLE), std::env::current_exe().ok())?;
    let preload = preload(&library, std::env::var_os(PRELOAD).as_deref())?;
    let Some((program, arguments)) = args.program.split_first() else { return Err(RunError::NoLibrary) };
    let source = Command::new(program).args(arguments).env(PRELOAD, preload).exec();
    Ok(RunError::Start { program: program.into(), source })
}

/// The library's file.
fn library(named: Option<OsString>, own: Option<PathBuf>) -> Result<PathBuf, RunError> {
    if let Some(named) = named {
        let named = PathBuf::from(named);
        return if named.is_file() { absolute(&named) } else { Err(RunError::Named(named)) };
    }
    let directory = own.as_deref().and_then(Path::parent).ok_or(RunError::NoLibrary)?;
    let found = PLACES.iter().map(|place| directory.join(place).join(LIBRARY)).find(|path| path.is_file());
    absolute(&found.ok_or(RunError::NoLibrary)?)
}

/// The program may have another working directory.
fn absolute(path: &Path) -> Result<PathBuf, RunError> {
    std::path::absolute(path).map_err(|source| RunError::Start { program: path.into(), source })
}

/// What the loader loads: the library, and then what it would have loaded without.
fn preload(library: &Path, before: Option<&OsStr>) -> Result<OsString, RunError> {
    if library.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(RunError::Path(library.into()));
    }
    let mut preload = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    Ok(preload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_where_it_is_named_or_beside_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("bin/landfall");
        let at = |place: &str| {
            let path = dir.path().join(place).join(LIBRARY);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let found = || library(None, Some(program.clone())).map(|path| path.canonicalize().unwrap());
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        assert!(matches!(found(), Err(RunError::NoLibrary)));
        for place in ["lib", "lib/landfall", "bin"] {
            let path = at(place);
            assert_eq!(found().unwrap(), path.canonicalize().unwrap());
        }
        let named = at("elsewhere");
        assert_eq!(library(Some(named.clone().into()), Some(program.clone())).unwrap(), named);
        assert!(matches!(library(Some("/absent".into()), Some(program)), Err(RunError::Named(_))));
    }

    #[test]
    fn what_was_loaded_before_still_is() {
        let of = |before: Option<&str>| preload(Path::new("/a/b.so"), before.map(OsStr::new));
        assert_eq!(of(None).unwrap(), "/a/b.so");
        assert_eq!(of(Some("")).unwrap(), "/a/b.so");
        assert_eq!(of(Some("/c.so d.so")).unwrap(), "/a/b.so:/c.so d.so");
        assert!(matches!(preload(Path::new("/a b/c.so"), None), Err(RunError::Path(_))));
    }
}
