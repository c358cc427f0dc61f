//! The kernel's table of mounts: is a mount still ours?

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `major:minor` of what is mounted on a directory, topmost. `None`: nothing is, or the table cannot be read.
pub(super) fn mounted_on(point: &Path) -> Option<String> {
    find(&std::fs::read("/proc/self/mountinfo").ok()?, point)
}

/// Each line has an id, the parent's id, `major:minor`, a root, the mountpoint, and more. The last line of a mountpoint
/// is its topmost mount.
fn find(table: &[u8], point: &Path) -> Option<String> {
    let of_point = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        let device = fields.nth(2)?;
        let here = unescaped(fields.nth(1)?) == point.as_os_str().as_bytes();
        here.then(|| String::from_utf8_lossy(device).into_owned())
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
        32 31 0:42 / /mnt/c rw - fuse.landfall landfall rw\n\
        short\n";

    #[test]
    fn the_topmost_mount_of_a_directory_is_found() {
        let find = |point: &str| find(TABLE, Path::new(point));
        assert_eq!(find("/mnt/c").as_deref(), Some("0:42"));
        assert_eq!(find("/mnt/a b\\").as_deref(), Some("0:40"));
        assert_eq!(find("/mnt"), None);
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(mounted_on(Path::new("/")).is_some());
    }
}
