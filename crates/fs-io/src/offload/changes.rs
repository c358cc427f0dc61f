//! What a mount on another machine has changed, and does not know to be durable: if its server is lost, these changes may be,
//! too (`docs/format/fs-network.md`, "A server that is away").

use super::message::{EVERYTHING, ServerLife};
use std::collections::{HashMap, HashSet};

/// The inodes with such changes. No more than the server has operations that are not durable, and what is done while one
/// question is answered.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The server that serves the mount, or has served it last.
    life: ServerLife,
    /// The inodes, and the number of the last change of each.
    changed: HashMap<u64, u64>,
    /// Inodes that have lost changes, of which no `fsync` has said so.
    lost: HashSet<u64>,
    /// The number of the next change.
    next: u64,
    /// The server was asked whether everything below this number is durable.
    asked: Option<u64>,
    /// The last server that has ended in good order: all that it has done is durable.
    ended: Option<ServerLife>,
}

impl Changes {
    /// A server serves the mount from now on. Returns how many inodes have lost changes with the one before.
    pub(super) fn serve(&mut self, life: ServerLife) -> usize {
        self.asked = None;
        if std::mem::replace(&mut self.life, life) == life {
            return 0;
        }
        let changed = self.changed.len();
        self.lost.extend(self.changed.drain().map(|(inode, _)| inode));
        changed
    }

    /// The server `by` has changed an inode.
    pub(super) fn note(&mut self, by: ServerLife, inode: u64) {
        // Its answer may be looked at late.
        if self.ended == Some(by) {
            return;
        }
        if by == self.life {
            self.changed.insert(inode, self.next);
            self.next += 1;
        } else {
            self.lost.insert(inode);
        }
    }

    /// What [`Self::end_sync`] needs to know of the beginning.
    pub(super) fn begin_sync(&self) -> u64 {
        self.next
    }

    /// The server `by` has made durable what was done on an inode before `begun`.
    pub(super) fn end_sync(&mut self, by: ServerLife, inode: u64, begun: u64) {
        if by == self.life && self.changed.get(&inode).is_some_and(|last| *last < begun) {
            self.changed.remove(&inode);
        }
    }

    /// True if an inode has lost changes, and no `fsync` has said so.
    pub(super) fn is_lost(&self, inode: u64) -> bool {
        self.lost.contains(&inode)
    }

    /// True, once, if an inode has lost changes.
    pub(super) fn take_lost(&mut self, inode: u64) -> bool {
        self.lost.remove(&inode)
    }

    /// The number to ask the server with, if there is something to ask.
    pub(super) fn ask(&mut self) -> Option<u64> {
        if self.asked.is_some() || self.changed.is_empty() {
            return None;
        }
        self.asked = Some(self.next);
        self.asked
    }

    /// The server has answered: everything below that number is durable; [`EVERYTHING`], unasked: all that it has done.
    pub(super) fn answer(&mut self, number: u64) {
        if number == EVERYTHING {
            self.changed.clear();
            self.ended = Some(self.life);
        } else if self.asked == Some(number) {
            self.asked = None;
            self.changed.retain(|_, last| *last >= number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: ServerLife = [1; 16];
    const SECOND: ServerLife = [2; 16];
    const THIRD: ServerLife = [3; 16];

    fn served() -> Changes {
        let mut changes = Changes::default();
        assert_eq!(changes.serve(FIRST), 0);
        changes
    }

    #[test]
    fn what_another_server_may_not_have_is_lost_once() {
        let mut changes = served();
        changes.note(FIRST, 5);
        changes.note(FIRST, 6);
        assert_eq!(changes.serve(FIRST), 0, "the connection was cut, and nothing is lost");
        assert!(!changes.take_lost(5));
        let begun = changes.begin_sync();
        changes.end_sync(FIRST, 6, begun);
        assert_eq!(changes.serve(SECOND), 1);
        assert!(changes.take_lost(5) && !changes.take_lost(5) && !changes.take_lost(6));
        changes.note(FIRST, 7);
        assert!(changes.take_lost(7), "the answer of the lost server comes late");
    }

    #[test]
    fn a_sync_says_nothing_of_what_was_changed_meanwhile() {
        let mut changes = served();
        changes.note(FIRST, 5);
        let begun = changes.begin_sync();
        changes.note(FIRST, 5);
        changes.end_sync(FIRST, 5, begun);
        assert_eq!(changes.serve(SECOND), 1);
        changes.note(SECOND, 8);
        let begun = changes.begin_sync();
        changes.end_sync(FIRST, 8, begun);
        assert_eq!(changes.serve(FIRST), 1, "it was the other server that said so");
    }

    #[test]
    fn the_answer_to_a_question_frees_what_was_changed_before_it() {
        let mut changes = served();
        assert_eq!(changes.ask(), None, "nothing was changed");
        changes.note(FIRST, 5);
        let number = changes.ask().expect("something was changed");
        assert_eq!(changes.ask(), None, "one question at a time");
        changes.note(FIRST, 6);
        changes.answer(number);
        assert_eq!(changes.serve(SECOND), 1);
        assert!(!changes.take_lost(5) && changes.take_lost(6));
        changes.note(SECOND, 9);
        changes.answer(EVERYTHING);
        changes.note(SECOND, 10);
        assert_eq!(
            changes.serve(FIRST),
            0,
            "it has ended in good order, and the holder looks at an answer late"
        );
        changes.note(SECOND, 10);
        assert!(!changes.take_lost(10), "later still");
        changes.note(FIRST, 5);
        assert_eq!(changes.serve(THIRD), 1);
        changes.note(THIRD, 5);
        let number = changes.ask().expect("something was changed");
        changes.serve(THIRD);
        changes.answer(number);
        assert_eq!(changes.serve(FIRST), 1, "that was asked over another connection");
    }
}
