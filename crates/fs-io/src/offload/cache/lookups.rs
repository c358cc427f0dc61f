//! Lookups of inodes that the kernel has been told of, by whom. It forgets some of an inode's, or all, and the server is to hear
//! of those that it has counted.

use super::layout::{entry_of, parts_of};
use landfall_fuse::{Op, Request};
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    by_server: u64,
    /// Also those that servers before this one had counted.
    by_holder: u64,
}

#[derive(Debug, Default)]
pub(super) struct Lookups {
    counts: HashMap<u64, Count>,
    /// The number of the present server.
    server: u64,
}

impl Lookups {
    /// A server has answered a request, perhaps with an inode. It may have ended since.
    pub(super) fn note(&mut self, server: u64, request: &Request<'_>, reply: &[u8]) {
        let finds = matches!(
            request.op,
            Op::Lookup { .. }
                | Op::Create { .. }
                | Op::MkNod { .. }
                | Op::MkDir { .. }
                | Op::Symlink { .. }
                | Op::TmpFile { .. }
                | Op::Link { .. }
        );
        let entry =
            parts_of(reply).filter(|(errno, _)| finds && *errno == 0).and_then(|(_, body)| entry_of(body));
        if let Some((node, _)) = entry.filter(|(node, _)| *node != 0) {
            let count = self.counts.entry(node).or_default();
            *(if server == self.server { &mut count.by_server } else { &mut count.by_holder }) += 1;
        }
    }

    /// The holder answers with an inode. It may do so only if the server knows that the kernel knows it: false otherwise.
    pub(super) fn answer(&mut self, node: u64) -> bool {
        let count = self.counts.get_mut(&node).filter(|count| count.by_server > 0);
        count.map(|count| count.by_holder += 1).is_some()
    }

    /// The kernel forgets lookups. Returns how many of them are those of the server with this number, which is to be told: those
    /// of the holder go first. `None`: it is not.
    pub(super) fn forget(&mut self, server: u64, node: u64, lookups: u64) -> Option<u64> {
        let is_present = server == self.server;
        let Some(count) = self.counts.get_mut(&node) else { return is_present.then_some(0) };
        let own = lookups.min(count.by_holder);
        count.by_holder -= own;
        let counted = (lookups - own).min(count.by_server);
        count.by_server -= counted;
        let is_gone = *count == Count::default();
        if is_gone {
            self.counts.remove(&node);
        }
        // It may have given leases of an inode although it has counted no lookup of it.
        (is_present && (counted > 0 || is_gone)).then_some(counted)
    }

    /// Whether the kernel knows an inode.
    pub(super) fn knows(&self, node: u64) -> bool {
        self.counts.contains_key(&node)
    }

    /// Whether the server has counted any.
    pub(super) fn is_counted(&self, node: u64) -> bool {
        self.counts.get(&node).is_some_and(|count| count.by_server > 0)
    }

    /// There is another server, or the same one has ended the mount: what was counted it does not know.
    pub(super) fn begin_server(&mut self, number: u64) {
        self.server = number;
        for count in self.counts.values_mut() {
            *count = Count { by_server: 0, by_holder: count.by_holder + count.by_server };
        }
    }
}
