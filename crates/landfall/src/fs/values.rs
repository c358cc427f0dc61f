//! `landfall fs import-key` and `export-key`: a key's value becomes a file, and a file a key's value, by reference. The
//! server of the region does it (`LF.PUBLISH`, `LF.ADOPT`).

use crate::client::{Client, ClientError, ServerArgs};
use crate::demo::wire::Reply;
use crate::output::fail;
use clap::Args;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The line of `INFO files` that names the mountpoint, and the one that names where mounts of other processes connect.
const MOUNTPOINT: &str = "files_mountpoint:";
const SOCKET: &str = "files_socket:";

/// Flags of `landfall fs import-key`.
#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    /// Key of the server
    key: OsString,
    /// File to make, on the mount of the same server (`landfall serve --files`)
    path: PathBuf,
    /// Leave a file alone that has the name
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Flags of `landfall fs export-key`.
#[derive(Debug, Args)]
pub(super) struct ExportArgs {
    /// File on the mount of the server (`landfall serve --files`)
    path: PathBuf,
    /// Key to set
    key: OsString,
    /// Leave a key alone that exists
    #[arg(long)]
    new: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Why nothing was made.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the server has no files mounted: start it with --files MOUNTPOINT")]
    NotMounted,
    #[error(
        "the server's mounts are processes of their own (--files-offload), for which it makes no files of values: copy through \
         a mount, or start it with --files MOUNTPOINT and --files-commands instead"
    )]
    Offloaded,
    #[error("{}: it is not below {}, where the server's files are mounted", path.display(), point.display())]
    Elsewhere { path: PathBuf, point: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{0} exists, and --new leaves it alone")]
    Exists(String),
}

/// Makes a file of a key's value.
pub(super) fn import(args: &ImportArgs) -> ExitCode {
    ended(reach(&args.server, &args.path).and_then(|(mut client, file)| {
        let words = [b"LF.PUBLISH", args.key.as_bytes(), file.as_os_str().as_bytes()];
        relink(&mut client, words, args.new)
    }))
}

/// Makes a key's value of a file.
pub(super) fn export(args: &ExportArgs) -> ExitCode {
    ended(reach(&args.server, &args.path).and_then(|(mut client, file)| {
        relink(&mut client, [b"LF.ADOPT", file.as_os_str().as_bytes(), args.key.as_bytes()], args.new)
    }))
}

fn ended(done: Result<(), ValueError>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

/// Connects to a server. Returns the path of a file on its mount, from the mountpoint on.
fn reach(server: &ServerArgs, path: &Path) -> Result<(Client, PathBuf), ValueError> {
    let mut client = Client::connect(server, Duration::ZERO)?;
    let file = within(path, &mountpoint(&mut client)?)?;
    Ok((client, file))
}

/// Sends a command: its name, what there is, and what is made of it.
fn relink(client: &mut Client, words: [&[u8]; 3], only_new: bool) -> Result<(), ValueError> {
    let option = only_new.then_some(&b"NX"[..]);
    let all: Vec<&[u8]> = words.into_iter().chain(option).collect();
    match client.call(&all)? {
        Reply::Nil => Err(ValueError::Exists(String::from_utf8_lossy(words[2]).into())),
        _ => Ok(()),
    }
}

/// Where the server's files are mounted, as it says.
fn mountpoint(client: &mut Client) -> Result<PathBuf, ValueError> {
    let Reply::Bulk(text) = client.call(&[b"INFO", b"files"])? else { return Err(ValueError::NotMounted) };
    mountpoint_in(&text)
}

/// What `INFO files` says of it.
fn mountpoint_in(text: &[u8]) -> Result<PathBuf, ValueError> {
    let named =
        |name: &str| text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()));
    let Some(point) = named(MOUNTPOINT) else {
        return Err(named(SOCKET).map_or(ValueError::NotMounted, |_| ValueError::Offloaded));
    };
    Ok(OsString::from_vec(point.strip_suffix(b"\r").unwrap_or(point).to_vec()).into())
}

/// The path of a file, which need not exist, from the mountpoint on.
fn within(path: &Path, point: &Path) -> Result<PathBuf, ValueError> {
    let failed = |source| ValueError::Io { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(failed)?;
    let elsewhere = |_| ValueError::Elsewhere { path: path.to_owned(), point: point.to_owned() };
    Ok(parent.strip_prefix(point).map_err(elsewhere)?.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_whose_mounts_are_other_processes_is_told_apart_from_one_without_files() {
        let point = mountpoint_in(b"# Files\r\nfiles:mounted\r\nfiles_mountpoint:/srv/files\r\n");
        assert_eq!(point.unwrap(), Path::new("/srv/files"));
        assert!(matches!(mountpoint_in(b"files:kept\r\n"), Err(ValueError::NotMounted)));
        let offloaded = mountpoint_in(b"files:offloaded\r\nfiles_socket:/srv/offload.sock\r\n").unwrap_err();
        assert!(offloaded.to_string().contains("copy through a mount"), "{offloaded}");
    }

    #[test]
    fn paths_begin_at_the_mountpoint() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().canonicalize().unwrap();
        std::fs::create_dir(point.join("d")).unwrap();
        assert_eq!(within(&point.join("d/../d/f"), &point).unwrap(), Path::new("d/f"));
        assert_eq!(within(&point.join("f"), &point).unwrap(), Path::new("f"));
        assert!(matches!(within(Path::new("/f"), &point), Err(ValueError::Elsewhere { .. })));
        assert!(matches!(within(&point.join("none/f"), &point), Err(ValueError::Io { .. })));
        assert!(matches!(within(Path::new("/"), &point), Err(ValueError::Io { .. })));
    }
}
