//! The guest's first file system: scripts, kernel modules, the binary, and the programs and libraries needed.

use super::cpio::Archive;
use super::kernel::Kernel;
use super::modules::{HOST, load_more, load_order};
use super::plan::{MEDIA, NETWORKS};
use super::stop::Stop;
use super::{folder, obtain};
use crate::args::Grammar;
use crate::error::Error;
use crate::process::{self, Keep};
use crate::workspace::Workspace;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The first process of a guest that serves, and that of one that mounts.
const INIT: &str = include_str!("guest/init.sh");
const HOST_INIT: &str = include_str!("guest/host.sh");
/// Programs of the host that the guest uses. For all other programs it uses applets of busybox.
const PROGRAMS: &[&str] = &["busybox", "ndctl", "mkfs.ext4", "ip", "ethtool", "dd"];
/// The library of files.
const LIBRARY: &str = "liblandfall_files.so";
/// Folders of programs that may be missing in a user's PATH.
const MORE_FOLDERS: &[&str] = &["/usr/sbin", "/sbin"];
/// Time limit for reading, stripping or unpacking one file.
const FILE_LIMIT: Duration = Duration::from_secs(60);

const GRAMMAR: Grammar = Grammar { values: &["out", "kernel"], switches: &[], words_max: 0 };

/// `cargo xtask vm image`: writes what a machine needs that is the host of a server, for `landfall bench linefs --machine`.
///
/// # Errors
/// [`Stop::Skip`] without a program or a kernel; [`Stop::Failed`] where nothing can be written.
pub(super) fn command(workspace: &Workspace, line: &[String]) -> Result<(), Stop> {
    let args = GRAMMAR.parse(line)?;
    let given = args.list("kernel").last().map(PathBuf::from);
    let (kernel, binary) = obtain(workspace, given.as_deref(), &["--release"])?;
    let base = folder(workspace);
    let out = args.list("out").last().map_or_else(|| base.join("image"), PathBuf::from);
    fs::create_dir_all(&out).map_err(|source| Error::file("create", &out, source))?;
    let image = out.join("kernel");
    fs::copy(&kernel.image, &image).map_err(|source| Error::file("write", &image, source))?;
    let scratch = base.join(format!("image-{}", std::process::id()));
    fs::create_dir_all(&scratch).map_err(|source| Error::file("create", &scratch, source))?;
    let built = build(&kernel, &binary, &scratch, &out.join("initrd"));
    fs::remove_dir_all(&scratch).map_err(|source| Error::file("remove", &scratch, source))?;
    built?;
    println!("  kernel and initrd are in {}", out.display());
    Ok(())
}

/// Writes the file system of the guests, which run `binary`, to `into`: `init` serves, `host` mounts.
/// `scratch` is a folder for intermediate files.
///
/// # Errors
/// [`Stop::Skip`] for a missing program or module, [`Stop::Failed`] for files that cannot be read.
pub(super) fn build(kernel: &Kernel, binary: &Path, scratch: &Path, into: &Path) -> Result<(), Stop> {
    let mut archive = Archive::default();
    archive.program("init", INIT.as_bytes());
    archive.program("host", HOST_INIT.as_bytes());
    let fragments =
        MEDIA.iter().map(|m| (m.name, m.script)).chain(NETWORKS.iter().map(|n| (n.name, n.script)));
    for (name, script) in fragments {
        archive.file(&format!("guest/{name}.sh"), script.as_bytes());
    }
    add_modules(kernel, &mut archive)?;
    let mut libraries = BTreeSet::new();
    for name in PROGRAMS {
        let path = find(name).ok_or_else(|| Stop::Skip(format!("no program {name}")))?;
        archive.program(&format!("bin/{name}"), &read(&path)?);
        libraries.extend(libraries_of(&path)?);
    }
    archive.program("bin/landfall", &read(&stripped(binary, scratch))?);
    libraries.extend(libraries_of(binary)?);
    archive.program(&format!("lib/{LIBRARY}"), &read(&library_beside(binary)?)?);
    for library in &libraries {
        archive.program(library.trim_start_matches('/'), &read(Path::new(library))?);
    }
    fs::write(into, archive.finish()).map_err(|e| Error::file("write", into, e).into())
}

/// Adds the modules, an ordered list for every guest that serves (`modules/base`), one for each network (`modules/NETWORK`),
/// and one for a guest that mounts (`modules/host`).
fn add_modules(kernel: &Kernel, archive: &mut Archive) -> Result<(), Stop> {
    let text =
        |name: &str| read(&kernel.modules.join(name)).map(|b| String::from_utf8_lossy(&b).into_owned());
    let (dep, builtin) = (text("modules.dep")?, text("modules.builtin")?);
    let lacks = |name| Stop::Skip(format!("this kernel has no module {name}"));
    let base = load_order(&dep, &builtin).map_err(lacks)?;
    add_list("base", &base, kernel, archive)?;
    add_list("host", &load_more(&dep, &builtin, HOST).map_err(lacks)?, kernel, archive)?;
    for network in NETWORKS {
        let mut more = load_more(&dep, &builtin, network.modules).map_err(lacks)?;
        more.retain(|path| !base.contains(path));
        add_list(network.name, &more, kernel, archive)?;
    }
    Ok(())
}

fn add_list(name: &str, paths: &[String], kernel: &Kernel, archive: &mut Archive) -> Result<(), Error> {
    let mut names = String::new();
    for path in paths {
        let (name, bytes) = module(&kernel.modules.join(path))?;
        archive.file(&format!("modules/{name}"), &bytes);
        names.push_str(&format!("{name}\n"));
    }
    archive.file(&format!("modules/{name}"), names.as_bytes());
    Ok(())
}

/// A module's name and its unpacked bytes: some builds of busybox cannot unpack modules.
fn module(path: &Path) -> Result<(String, Vec<u8>), Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let unpackers = [(".xz", "xz"), (".zst", "zstd"), (".gz", "gzip")];
    let Some((name, unpacker)) = unpackers.iter().find_map(|(end, by)| Some((name.strip_suffix(end)?, by)))
    else {
        return Ok((name, read(path)?));
    };
    let mut command = Command::new(unpacker);
    command.args(["-d", "-c"]).arg(path);
    let output = command.output();
    let output = output.map_err(|e| Error::file("unpack", path, e))?;
    if output.status.success() {
        return Ok((name.to_owned(), output.stdout));
    }
    Err(Error::Program { line: process::line(&command), ending: format!("ended with {}", output.status) })
}

/// The binary without debugging information, where it can be stripped: the guest's kernel unpacks it at each boot.
fn stripped(binary: &Path, scratch: &Path) -> PathBuf {
    let small = scratch.join("landfall.stripped");
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(&small).arg(binary);
    let done = process::run(&mut strip, Keep::Both, FILE_LIMIT).is_ok_and(|finished| finished.success);
    if done { small } else { binary.to_owned() }
}

/// The library of files, which cargo builds beside the binary.
fn library_beside(binary: &Path) -> Result<PathBuf, Stop> {
    let library = binary.with_file_name(LIBRARY);
    if library.exists() { Ok(library) } else { Err(Stop::Skip(format!("no {LIBRARY}"))) }
}

fn libraries_of(program: &Path) -> Result<Vec<String>, Error> {
    let listed = process::run(Command::new("ldd").arg(program), Keep::Both, FILE_LIMIT)?;
    // A failure means that the program is linked statically.
    Ok(if listed.success { libraries(&listed.stdout) } else { Vec::new() })
}

/// The paths in the output of `ldd`.
fn libraries(listed: &str) -> Vec<String> {
    listed.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.iter().map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|e| Error::file("read", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_ldd() {
        let listed = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x0)\n";
        assert_eq!(libraries(listed), ["/lib/x/libc.so.6", "/lib64/ld.so.2"]);
    }

    #[test]
    fn scripts_of_the_guest_are_ones_that_a_shell_accepts() {
        let fragments = MEDIA.iter().map(|m| m.script).chain(NETWORKS.iter().map(|n| n.script));
        for script in fragments.chain([INIT, HOST_INIT]) {
            let mut shell = Command::new("sh");
            assert!(shell.args(["-n", "-c", script]).status().unwrap().success(), "{script}");
        }
    }
}
