//! Options of a mount, as `-o a,b=c` gives them.

/// Who may use a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Only the user who has mounted it.
    #[default]
    Owner,
    /// Everybody, as far as permissions allow (`allow_other`).
    Everyone,
}

/// Who checks permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permissions {
    /// The kernel, by owner, group and mode (`default_permissions`).
    #[default]
    Kernel,
    /// The file system.
    FileSystem,
}

/// Options that the kernel keeps for every file system: a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags(u64);

impl MountFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Nothing is written (`ro`).
    pub const READ_ONLY: Self = Self(libc::MS_RDONLY);
    /// The set-user-ID and set-group-ID bits have no effect (`nosuid`).
    pub const NO_SUID: Self = Self(libc::MS_NOSUID);
    /// Devices cannot be used (`nodev`).
    pub const NO_DEV: Self = Self(libc::MS_NODEV);
    /// Programs cannot be executed (`noexec`).
    pub const NO_EXEC: Self = Self(libc::MS_NOEXEC);
    /// Times of access are not kept (`noatime`).
    pub const NO_ATIME: Self = Self(libc::MS_NOATIME);
    /// Writes are synchronous (`sync`).
    pub const SYNC: Self = Self(libc::MS_SYNCHRONOUS);
    /// Changes of directories are synchronous (`dirsync`).
    pub const DIR_SYNC: Self = Self(libc::MS_DIRSYNC);

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True if all of `other` are in the set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags as `mount(2)` takes them.
    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

/// The flags by name, with the name that takes each back.
const FLAGS: &[(&str, &str, MountFlags)] = &[
    ("ro", "rw", MountFlags::READ_ONLY),
    ("nosuid", "suid", MountFlags::NO_SUID),
    ("nodev", "dev", MountFlags::NO_DEV),
    ("noexec", "exec", MountFlags::NO_EXEC),
    ("noatime", "atime", MountFlags::NO_ATIME),
    ("sync", "async", MountFlags::SYNC),
    ("dirsync", "nodirsync", MountFlags::DIR_SYNC),
];
/// Options of `/etc/fstab` that are for `mount(8)` and not for a file system.
const FOR_MOUNT: &[&str] = &[
    "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev",
    "relatime",
];

/// An option that this crate does not know: it is for the file system, or a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherOption {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<String>,
}

impl OtherOption {
    /// The option as [`MountOptions::parse`] takes it.
    #[must_use]
    pub fn as_text(&self) -> String {
        let name = escaped(&self.name);
        self.value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}={}", escaped(value)))
    }
}

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The source that `mount` and `df` show.
    pub fs_name: String,
    /// The type is `fuse.` and this.
    pub subtype: String,
    /// Who may use it.
    pub access: Access,
    /// Who checks permissions.
    pub permissions: Permissions,
    /// Options that every file system has.
    pub flags: MountFlags,
    /// Bytes of the largest READ; `None`: as the kernel likes.
    pub max_read: Option<u32>,
    /// What is left for the file system.
    pub other: Vec<OtherOption>,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fs_name: "landfall".to_owned(),
            subtype: "landfall".to_owned(),
            access: Access::default(),
            permissions: Permissions::default(),
            flags: MountFlags::default(),
            max_read: None,
            other: Vec::new(),
        }
    }
}

/// An option whose value is missing, superfluous or wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the option `{option}` needs {needs}")]
pub struct OptionError {
    /// Its name.
    pub option: String,
    /// What it needs.
    pub needs: &'static str,
}

impl MountOptions {
    /// The type of file system, as the kernel's table has it.
    pub(super) fn kind(&self) -> String {
        format!("fuse.{}", self.subtype)
    }

    /// Parses `a,b=c`: [`Self::apply`] to the defaults.
    ///
    /// # Errors
    /// As for [`Self::apply`].
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        options.apply(text)?;
        Ok(options)
    }

    /// Applies the options of one `-o`; a later option wins over an earlier one. A comma within a value is written `\,`.
    ///
    /// # Errors
    /// An option that is known here has a wrong value.
    pub fn apply(&mut self, text: &str) -> Result<(), OptionError> {
        for option in split(text).iter().filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some((name, value)) => self.apply_value(name, value)?,
                None => self.apply_name(option)?,
            }
        }
        Ok(())
    }

    fn apply_name(&mut self, name: &str) -> Result<(), OptionError> {
        if let Some((on, _, flag)) = FLAGS.iter().find(|(on, off, _)| name == *on || name == *off) {
            let others = MountFlags(self.flags.0 & !flag.0);
            self.flags = if name == *on { others.with(*flag) } else { others };
            return Ok(());
        }
        match name {
            "allow_other" => self.access = Access::Everyone,
            "default_permissions" => self.permissions = Permissions::Kernel,
            "fsname" | "subtype" => return Err(wrong(name, "a name")),
            "max_read" => return Err(wrong(name, "a number of bytes")),
            _ if FOR_MOUNT.contains(&name) || name.starts_with("x-") => {}
            _ => self.other.push(OtherOption { name: name.to_owned(), value: None }),
        }
        Ok(())
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let flag = FLAGS.iter().any(|(on, off, _)| name == *on || name == *off);
        match name {
            "fsname" | "subtype" if value.is_empty() || value.contains('\0') => {
                return Err(wrong(name, "a name"));
            }
            "fsname" => value.clone_into(&mut self.fs_name),
            "subtype" => value.clone_into(&mut self.subtype),
            "max_read" => {
                self.max_read = Some(value.parse().map_err(|_| wrong(name, "a number of bytes"))?);
            }
            "allow_other" | "default_permissions" => return Err(wrong(name, "no value")),
            _ if flag => return Err(wrong(name, "no value")),
            _ if name.starts_with("x-") || name == "comment" => {}
            _ => self.other.push(OtherOption { name: name.to_owned(), value: Some(value.to_owned()) }),
        }
        Ok(())
    }

    /// The options that only FUSE has, for the kernel and for `fusermount3`.
    pub(super) fn fuse_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.permissions == Permissions::Kernel {
            options.push("default_permissions".to_owned());
        }
        if self.access == Access::Everyone {
            options.push("allow_other".to_owned());
        }
        options.extend(self.max_read.map(|bytes| format!("max_read={bytes}")));
        options
    }

    /// All options but [`Self::other`], as [`Self::parse`] and `fusermount3 -o` take them.
    #[must_use]
    pub fn as_text(&self) -> String {
        let mut options = self.fuse_options();
        options.extend(FLAGS.iter().filter(|flag| self.flags.has(flag.2)).map(|flag| flag.0.to_owned()));
        options.push(format!("fsname={}", escaped(&self.fs_name)));
        options.push(format!("subtype={}", escaped(&self.subtype)));
        options.join(",")
    }
}

fn wrong(option: &str, needs: &'static str) -> OptionError {
    OptionError { option: option.to_owned(), needs }
}

/// Splits at commas; a backslash takes the next character as it is.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, parts.last_mut()) {
            (',', _) => parts.push(String::new()),
            ('\\', Some(part)) => part.extend(chars.next()),
            (c, Some(part)) => part.push(c),
            (_, None) => {}
        }
    }
    parts
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_options_are_applied_and_others_are_left_for_the_file_system() {
        let options = MountOptions::parse(
            "ro,allow_other,max_read=65536,nosuid,dir=/a\\,b,fast,x-systemd.automount,defaults,,noatime",
        )
        .unwrap();
        assert_eq!(options.access, Access::Everyone);
        let flags = MountFlags::READ_ONLY.with(MountFlags::NO_SUID).with(MountFlags::NO_ATIME);
        assert_eq!((options.flags, options.max_read), (flags, Some(65536)));
        let other = |name: &str, value: Option<&str>| OtherOption {
            name: name.to_owned(),
            value: value.map(str::to_owned),
        };
        assert_eq!(options.other, [other("dir", Some("/a,b")), other("fast", None)]);
    }

    #[test]
    fn a_later_option_wins() {
        let mut options = MountOptions::parse("ro,fsname=a,fsname=b").unwrap();
        options.apply("rw,dev").unwrap();
        assert_eq!((options.flags, options.fs_name.as_str()), (MountFlags::NONE, "b"));
    }

    #[test]
    fn wrong_values_name_the_option() {
        for (text, error) in [
            ("max_read=many", "the option `max_read` needs a number of bytes"),
            ("max_read", "the option `max_read` needs a number of bytes"),
            ("fsname=", "the option `fsname` needs a name"),
            ("ro=1", "the option `ro` needs no value"),
            ("allow_other=1", "the option `allow_other` needs no value"),
        ] {
            assert_eq!(MountOptions::parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn the_helper_is_given_what_was_parsed() {
        let options = MountOptions::parse("allow_other,ro,max_read=4096,fsname=a\\,b\\\\c,dir=x").unwrap();
        let text = options.as_text();
        assert_eq!(
            text,
            "default_permissions,allow_other,max_read=4096,ro,fsname=a\\,b\\\\c,subtype=landfall"
        );
        let again = MountOptions::parse(&text).unwrap();
        assert_eq!(again, MountOptions { other: Vec::new(), ..options });
    }
}
