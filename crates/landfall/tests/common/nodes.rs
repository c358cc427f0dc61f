//! Servers of a chain that have files, and mount them in turn.

use super::chain::Chain;
use super::{can_mount, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for a mount to begin.
pub(crate) const MOUNT_LIMIT: Duration = Duration::from_secs(60);

/// Nodes with files, each with a directory to mount them on.
pub(crate) struct Nodes {
    pub(crate) chain: Chain,
    pub(crate) points: Vec<tempfile::TempDir>,
}

impl Nodes {
    /// `None` where FUSE mounts are not possible. None of them runs.
    pub(crate) fn new(count: usize, flags: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        // Of a small region, what is kept for workers and for what is on its way is a large part.
        let mut chain = Chain::new(count, &[&["--capacity", "256MiB"], flags].concat());
        let points: Vec<tempfile::TempDir> = (0..count).map(|_| tempfile::tempdir().unwrap()).collect();
        for (node, point) in chain.nodes.iter_mut().zip(&points) {
            node.flags = vec!["--files".into(), point.path().to_str().unwrap().into()];
        }
        Some(Self { chain, points })
    }

    pub(crate) fn at(&self, node: usize, name: &str) -> PathBuf {
        self.points[node].path().join(name)
    }

    /// Waits until a node has mounted the files.
    pub(crate) fn wait_until_mounted(&self, node: usize) {
        let here = fs::metadata(self.points[node].path().parent().unwrap()).unwrap().dev();
        let mounted = wait_until(MOUNT_LIMIT, || {
            fs::metadata(self.points[node].path()).ok().filter(|root| root.dev() != here)
        });
        assert!(mounted.is_some(), "{node} does not mount: {}", self.chain.words());
    }

    pub(crate) fn kill(&mut self, node: usize) {
        self.chain.kill(node);
        self.unmount(node);
    }

    pub(crate) fn unmount(&self, node: usize) {
        let _ = landfall_fuse::unmount(self.points[node].path(), landfall_fuse::Unmount::Lazily);
    }

    /// Everything at the mount of a node.
    pub(crate) fn tree(&self, node: usize) -> BTreeMap<PathBuf, Seen> {
        let (mut all, root) = (BTreeMap::new(), self.points[node].path());
        look(root, root, &mut all);
        all
    }

    /// The first node is killed, and removed. The next one mounts what it has had.
    pub(crate) fn replace_first(&mut self, first: usize, next: usize, tree: &BTreeMap<PathBuf, Seen>) {
        self.kill(first);
        self.chain.remove(first);
        self.wait_until_mounted(next);
        assert_eq!(self.tree(next), *tree, "{}", self.chain.words());
    }

    /// Ends all nodes that run, the last one first, and checks every region.
    pub(crate) fn end(mut self, running: &[usize]) {
        self.chain.end(running);
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // After an end in good order there is nothing left to do.
        (0..self.points.len()).for_each(|node| self.unmount(node));
    }
}

/// What a program sees of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    number: u64,
    mode: u32,
    owner: (u32, u32),
    nlink: u64,
    mtime_ns: (i64, i64),
    content: Vec<u8>,
}

fn look(root: &Path, path: &Path, all: &mut BTreeMap<PathBuf, Seen>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let content = match meta.file_type() {
        kind if kind.is_file() => fs::read(path).unwrap(),
        kind if kind.is_symlink() => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
        _ => Vec::new(),
    };
    let seen = Seen {
        number: meta.ino(),
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        nlink: meta.nlink(),
        mtime_ns: (meta.mtime(), meta.mtime_nsec()),
        content,
    };
    all.insert(path.strip_prefix(root).unwrap().to_owned(), seen);
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            look(root, &entry.unwrap().path(), all);
        }
    }
}
