//! The helper of `mount(8)` for `/etc/fstab`: its options are flags of `landfall fs mount`, whichever these are.

use super::{FsCliError, MountArgs, mount_in_background};
use clap::{ArgAction, Args, Command, FromArgMatches, Parser};
use landfall_fuse::{MountOptions, OtherOption};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Name under which `mount(8)` starts this program for the type `fuse.landfall`.
pub(crate) const HELPER_NAME: &str = "mount.fuse.landfall";
/// Log of a mount by servers elsewhere, which has no directory here.
const LOG_FILE: &str = "/var/log/landfall-mount.log";
/// Flags of `landfall fs mount` that the rest of the line in `/etc/fstab` stands for.
const NOT_OPTIONS: [&str; 4] = ["dir", "offload", "server", "background"];

/// What `mount(8)` passes to its helpers.
#[derive(Debug, Parser)]
#[command(name = HELPER_NAME, about = "Mounts files of a region: the helper of mount(8) for the type fuse.landfall")]
struct HelperArgs {
    /// Directory of the region, or a DAX device. With `-o offload`, the socket of a `landfall fs serve`; with `-o server`,
    /// HOST:PORT,... of servers elsewhere
    source: PathBuf,
    /// Directory to mount on
    mountpoint: PathBuf,
    /// Options of `landfall fs mount -o`, and its flags, as NAME or NAME=VALUE
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Do everything but mount
    #[arg(short = 'f', action = ArgAction::SetTrue)]
    fake: bool,
    /// Of no meaning here
    #[arg(short = 's', action = ArgAction::SetTrue)]
    sloppy: bool,
    /// Of no meaning here
    #[arg(short = 'n', action = ArgAction::SetTrue)]
    no_mtab: bool,
    /// Of no meaning here
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Of no meaning here
    #[arg(short = 't', value_name = "TYPE")]
    file_system: Option<String>,
}

/// Runs as the helper of `mount(8)`.
pub(crate) fn help_mount() -> ExitCode {
    let args = HelperArgs::parse();
    let mount = match args.mount() {
        Ok(mount) => mount,
        Err(error) => return crate::output::fail(&error),
    };
    let parsed = command().try_get_matches_from(&mount).and_then(|found| MountArgs::from_arg_matches(&found));
    let mounted = match parsed {
        Err(error) => error.exit(),
        Ok(parsed) => parsed.with_options().and_then(|(checked, _)| {
            let again = ["fs".into()].into_iter().chain(mount);
            if args.fake { Ok(()) } else { mount_in_background(&checked, again) }
        }),
    };
    match mounted {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::output::fail(&error),
    }
}

/// `landfall fs mount`.
fn command() -> Command {
    MountArgs::augment_args(Command::new("mount").bin_name("landfall fs mount"))
}

impl HelperArgs {
    /// The same as flags of `landfall fs mount`, behind its name.
    fn mount(&self) -> Result<Vec<OsString>, FsCliError> {
        let mut options = MountOptions::default();
        self.options.iter().try_for_each(|text| options.apply(text))?;
        let mut mount: Vec<OsString> = vec!["mount".into(), "--background".into()];
        let mut place = "--dir";
        let has_log = options.other.iter().any(|option| long(option) == "log-file");
        let others = std::mem::take(&mut options.other);
        for (at, option) in others.iter().enumerate() {
            // The last of several counts: mount(8) has those of the command line behind those of the line in the file.
            if others[at + 1..].iter().any(|later| long(later) == long(option)) {
                continue;
            }
            match (&option.name[..], &option.value) {
                ("server", None) => place = "--server",
                ("offload", None) => place = "--offload",
                // `shared` is of the propagation of mounts to mount(8), which keeps it.
                ("sharing", None) => mount.push("--shared".into()),
                _ => mount.extend(flag(option).map_or_else(|| rest(option), |flag| vec![flag.into()])),
            }
        }
        if place == "--dir" && self.source.is_relative() {
            return Err(FsCliError::Relative { place: self.source.clone() });
        }
        mount.extend(["-o".into(), options.as_text().into(), place.into(), self.source.clone().into()]);
        if place == "--server" && !has_log {
            mount.extend(["--log-file".into(), LOG_FILE.into()]);
        }
        mount.push(self.mountpoint.clone().into());
        Ok(mount)
    }
}

/// What is no flag, for the `-o` of `landfall fs mount`, which may refuse it.
fn rest(option: &OtherOption) -> Vec<OsString> {
    vec!["-o".into(), option.as_text().into()]
}

/// The name of the flag that an option may name: options may have `_` where flags have `-`.
fn long(option: &OtherOption) -> String {
    option.name.replace('_', "-")
}

/// The flag of `landfall fs mount` that an option names.
fn flag(option: &OtherOption) -> Option<String> {
    let command = command();
    let long = long(option);
    let mut flags = command.get_arguments().filter(|flag| flag.get_long() == Some(&long));
    let flag = flags.find(|flag| !NOT_OPTIONS.contains(&flag.get_id().as_str()))?;
    match &option.value {
        Some(value) if flag.get_action().takes_values() => Some(format!("--{long}={value}")),
        None if !flag.get_action().takes_values() => Some(format!("--{long}")),
        _ => None,
    }
}
