//! The kernel's table of mounts: is a mount still ours?

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the table says of a mount.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// `major:minor`.
    device: String,
    kind: String,
}

/// `major:minor` of what is mounted on a directory, topmost. `None`: nothing is, or the table cannot be read.
pub(super) fn mounted_on(point: &Path) -> Option<String> {
    Some(read(point)?.device)
}

/// The type of file system that is mounted on a directory, topmost. `None` as for [`mounted_on`].
pub(super) fn kind_of(point: &Path) -> Option<String> {
    Some(read(point)?.kind)
}

fn read(point: &Path) -> Option<Entry> {
    find(&std::fs::read("/proc/self/mountinfo").ok()?, point)
}

/// Each line has an id, the parent's id, `major:minor`, a root, the mountpoint, options, any number of tags, a dash, the
/// type, and more. The last line of a mountpoint is its topmost mount.
fn find(table: &[u8], point: &Path) -> Option<Entry> {
    let of_point = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let here = unescaped(fields.nth(1)?) == point.as_os_str().as_bytes();
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        here.then(|| Entry { device: text(device), kind: text(kind) })
    };
    table.split(|byte| *byte == b'\n').filter_map(of_point).next_back()
}

/// Takes back the octal escapes of blanks and backslashes.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut left = field;
    while let Some((byte, rest)) = left.split_first() {
        let octal =
            rest.get(..3).filter(|_| *byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                left = &rest[3..];
            }
            None => {
                out.push(*byte);
                left = rest;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw - ext4 /dev/a rw\n\
        30 22 0:40 / /mnt/a\\040b\\134 rw - fuse.landfall landfall rw\n\
        31 30 0:41 / /mnt/c rw - tmpfs tmpfs rw\n\
        32 31 0:42 / /mnt/c rw shared:7 master:1 - fuse.landfall landfall rw\n\
        short\n";

    #[test]
    fn the_topmost_mount_of_a_directory_is_found() {
        let find = |point: &str| find(TABLE, Path::new(point)).map(|found| (found.device, found.kind));
        let of = |device: &str, kind: &str| Some((device.to_owned(), kind.to_owned()));
        assert_eq!(find("/mnt/c"), of("0:42", "fuse.landfall"));
        assert_eq!(find("/mnt/a b\\"), of("0:40", "fuse.landfall"));
        assert_eq!(find("/"), of("8:1", "ext4"));
        assert_eq!(find("/mnt"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounted_on(Path::new("/")).is_some());
    }
}
