//! Archives in the format that the kernel unpacks as its first file system: cpio, "new ASCII".
//!
//! Source: the kernel's Documentation/driver-api/early-userspace/buffer-format.rst. It is implemented here, so that no
//! external program and no file owned by root is needed.

use std::collections::BTreeSet;

const MAGIC: &str = "070701";
/// Name of the entry that ends the archive.
const TRAILER: &str = "TRAILER!!!";
/// Alignment of names and contents, bytes.
const ALIGN: usize = 4;
const FOLDER_MODE: u32 = 0o040_755;
const FILE_MODE: u32 = 0o100_644;
const PROGRAM_MODE: u32 = 0o100_755;

/// An archive that is being written.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    folders: BTreeSet<String>,
}

impl Archive {
    /// Adds a file and its parent folders. `path` has no leading slash.
    pub(super) fn file(&mut self, path: &str, contents: &[u8]) {
        self.folders_above(path);
        self.entry(path, FILE_MODE, contents);
    }

    /// Adds an executable file.
    pub(super) fn program(&mut self, path: &str, contents: &[u8]) {
        self.folders_above(path);
        self.entry(path, PROGRAM_MODE, contents);
    }

    /// Returns the whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn folders_above(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            let folder = &path[..at];
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER_MODE, &[]);
            }
        }
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.entries += 1;
        let len = u32::try_from(contents.len()).expect("no file of the guest has 4 GiB");
        let name_len = u32::try_from(name.len() + 1).expect("a short name");
        // inode, mode, user, group, links, time, length, device, device, device, device, name's length, sum
        let fields = [self.entries, mode, 0, 0, 1, 0, len, 0, 0, 0, 0, name_len, 0];
        self.bytes.extend_from_slice(MAGIC.as_bytes());
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(contents);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_entry_match_the_format() {
        let mut archive = Archive::default();
        archive.program("init", b"hello");
        let bytes = archive.finish();
        let head = concat!(
            "070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000", "00000005",
            "00000000", "00000000", "00000000", "00000000", "00000005", "00000000",
        );
        assert_eq!(&bytes[..110], head.as_bytes());
        assert_eq!(&bytes[110..124], b"init\0\0hello\0\0\0");
        assert!(bytes[124..].starts_with(b"070701"));
        assert!(bytes.ends_with(b"TRAILER!!!\0\0\0\0"), "{:?}", bytes[124..].escape_ascii().to_string());
    }

    #[test]
    fn folders_come_once_and_before_their_contents() {
        let mut archive = Archive::default();
        archive.file("lib/a/x", b"");
        archive.file("lib/a/y", b"");
        let text = String::from_utf8(archive.finish()).unwrap();
        let at = |name: &str| text.match_indices(name).map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!((at("lib\0").len(), at("lib/a\0").len()), (1, 1));
        assert!(at("lib\0")[0] < at("lib/a\0")[0] && at("lib/a\0")[0] < at("lib/a/x\0")[0]);
        assert_eq!(at("lib/a/y\0").len(), 1);
    }
}
