//! The guest's kernel: a Debian package, fetched and unpacked into cargo's folder, never installed.

use super::stop::Stop;
use crate::error::Error;
use crate::process::{self, Keep};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The package that depends on the newest kernel for virtual machines. That kernel is small and has all modules needed.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// Time limit for fetching some 30 MB, or the lists of packages.
const FETCH_LIMIT: Duration = Duration::from_secs(240);
/// Time limit for unpacking the package and listing its modules.
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// An unpacked kernel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Kernel {
    /// The kernel itself.
    pub(super) image: PathBuf,
    /// Folder of its modules, with `modules.dep`.
    pub(super) modules: PathBuf,
}

/// The kernel of the package file `given`, or the one unpacked before, or the newest that apt offers.
///
/// # Errors
/// [`Stop::Skip`] where no kernel is available, [`Stop::Failed`] where a package is not a kernel package.
pub(super) fn obtain(cache: &Path, given: Option<&Path>) -> Result<Kernel, Stop> {
    if let Some(package) = given {
        // In a separate folder: a kernel that was requested once must not become the default.
        return unpack(package, &cache.join("given"));
    }
    if let Some(kernel) = cached(cache) {
        return Ok(kernel);
    }
    let package = fetch(cache)?;
    let kernel = unpack(&package, cache);
    let _only_a_download = fs::remove_file(&package);
    kernel
}

/// A kernel that was unpacked before; of several, the last by name.
pub(super) fn cached(cache: &Path) -> Option<Kernel> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(cache).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.extension().is_none_or(|end| end != "partial"));
    folders.sort();
    folders.iter().rev().find_map(|folder| Kernel::in_folder(folder))
}

/// Downloads the package that [`PACKAGE`] depends on.
fn fetch(cache: &Path) -> Result<PathBuf, Stop> {
    if let Ok(package) = try_fetch(cache) {
        return Ok(package);
    }
    // The lists of packages may be missing or old. If they cannot be updated, the second attempt reports it.
    let _tried = process::run(Command::new("apt-get").args(["update", "-qq"]), Keep::Both, FETCH_LIMIT);
    try_fetch(cache)
}

fn try_fetch(cache: &Path) -> Result<PathBuf, Stop> {
    let mut depends = Command::new("apt-cache");
    depends.args(["depends", PACKAGE]);
    let listed = apt(&mut depends)?;
    let Some(name) = kernel_of(&listed) else {
        return Err(Stop::Skip(format!("apt knows no kernel behind {PACKAGE}")));
    };
    let folder = cache.join("download.partial");
    let _old = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| Error::file("create", &folder, e))?;
    println!("  fetching {name}");
    apt(Command::new("apt-get").args(["download", name]).current_dir(&folder))?;
    let entries = fs::read_dir(&folder).map_err(|e| Error::file("list", &folder, e))?;
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| is_package(path));
    found.ok_or_else(|| Stop::Skip(format!("apt-get download {name} left no package")))
}

fn apt(command: &mut Command) -> Result<String, Stop> {
    let finished = process::run(command, Keep::Both, FETCH_LIMIT);
    match finished {
        Ok(finished) if finished.success => Ok(finished.stdout),
        Ok(finished) => {
            let why = finished.stderr.lines().last().unwrap_or_default().to_owned();
            Err(Stop::Skip(format!("no kernel: `{}` {}: {why}", process::line(command), finished.ending)))
        }
        Err(error) => Err(Stop::Skip(format!("no kernel: {error}"))),
    }
}

/// The first dependency that `apt-cache depends` lists.
fn kernel_of(listed: &str) -> Option<&str> {
    let mut depends = listed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.find(|name| name.starts_with("linux-image-"))
}

fn is_package(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "deb")
}

fn unpack(package: &Path, cache: &Path) -> Result<Kernel, Stop> {
    fs::create_dir_all(cache).map_err(|e| Error::file("create", cache, e))?;
    let name = package.file_stem().unwrap_or_default();
    let folder = cache.join(name);
    if let Some(kernel) = Kernel::in_folder(&folder) {
        return Ok(kernel);
    }
    let partial = cache.join("unpacking.partial");
    let _old = fs::remove_dir_all(&partial);
    process::must(
        Command::new("dpkg-deb").arg("--extract").arg(package).arg(&partial),
        Keep::Both,
        UNPACK_LIMIT,
    )?;
    // Newer packages keep modules where depmod does not search.
    if !partial.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", partial.join("lib"))
            .map_err(|e| Error::file("link", &partial, e))?;
    }
    let not_one = || Error::Found(format!("{} has no kernel with modules", package.display()));
    let version = Kernel::version_in(&partial).ok_or_else(not_one)?;
    let mut depmod = Command::new("depmod");
    process::must(depmod.arg("--basedir").arg(&partial).arg(version), Keep::Both, UNPACK_LIMIT)?;
    fs::rename(&partial, &folder).map_err(|e| Error::file("rename", &partial, e))?;
    Kernel::in_folder(&folder).ok_or_else(|| not_one().into())
}

impl Kernel {
    /// Its version, for tests of which features it has.
    pub(super) fn version(&self) -> (u32, u32) {
        let name = self.modules.file_name().unwrap_or_default().to_string_lossy();
        let mut numbers = name.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    }

    fn in_folder(folder: &Path) -> Option<Self> {
        let version = Self::version_in(folder)?;
        let image = folder.join("boot").join(format!("vmlinuz-{version}"));
        let modules = folder.join("lib/modules").join(version);
        (image.is_file() && modules.join("modules.dep").is_file()).then_some(Self { image, modules })
    }

    fn version_in(folder: &Path) -> Option<String> {
        let mut versions = fs::read_dir(folder.join("lib/modules")).ok()?;
        versions.next()?.ok()?.file_name().into_string().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_behind_the_package_is_read_from_apt() {
        let listed = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-9-cloud-amd64\n  Suggests: x\n";
        assert_eq!(kernel_of(listed), Some("linux-image-6.1.0-9-cloud-amd64"));
        assert_eq!(kernel_of("linux-image-cloud-amd64\n"), None);
    }

    #[test]
    fn version_is_read_from_the_folder_of_modules() {
        for (name, version) in
            [("6.1.0-56-cloud-amd64", (6, 1)), ("6.12.95+deb12-amd64", (6, 12)), ("x", (0, 0))]
        {
            let kernel = Kernel { image: PathBuf::new(), modules: Path::new("lib/modules").join(name) };
            assert_eq!(kernel.version(), version);
        }
    }

    #[test]
    fn partially_unpacked_kernels_are_not_used() {
        let cache = std::env::temp_dir().join(format!("landfall-xtask-kernel-{}", std::process::id()));
        let make = |path: &str| {
            let path = cache.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, b"").unwrap();
        };
        make("k1.partial/boot/vmlinuz-1");
        make("k1.partial/lib/modules/1/modules.dep");
        make("k0/boot/vmlinuz-0");
        let before = cached(&cache);
        make("k0/lib/modules/0/modules.dep");
        make("given/k9/boot/vmlinuz-9");
        make("given/k9/lib/modules/9/modules.dep");
        let after = cached(&cache);
        fs::remove_dir_all(&cache).unwrap();
        assert_eq!(before, None);
        assert!(after.unwrap().image.ends_with("k0/boot/vmlinuz-0"));
    }
}
