//! What a node knows of the node before it.

use crate::hello::{Hello, Reason, Refusal, Welcome};
use crate::view::View;
use crate::wire::{COPY_STREAM, HEARTBEAT_STREAM, ROOM_STREAM};
use std::collections::{BTreeMap, BTreeSet};

/// A stream that was opened.
#[derive(Clone, Copy, Debug)]
struct Stream {
    incarnation: u64,
    /// The connection that has it.
    connection: u64,
    /// The number of the last message.
    number: u64,
}

/// A copy that this node receives.
#[derive(Clone, Debug)]
struct Copy {
    /// Records of this node with a lower seq were there before it began.
    begun: u64,
    /// Hashes of keys that chunks have deleted since it began.
    deleted: BTreeSet<u64>,
    /// A chunk has deleted everything.
    flushed: bool,
}

/// What becomes of a copied record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It counts, if there is no record of its key.
    IfAbsent,
    /// Something newer has come in a chunk.
    Older,
}

/// What a node knows of the node before it, and which messages it obeys.
#[derive(Clone, Debug)]
pub struct Upstream {
    me: String,
    chain: String,
    version: u64,
    /// The node before; `None` if this one is the first.
    before: Option<String>,
    /// `since` of this node in the view.
    since: u64,
    /// The `since` for which it is in step, durably.
    in_step: u64,
    streams: BTreeMap<u8, Stream>,
    copy: Option<Copy>,
}

impl Upstream {
    /// For a node that is in step for `in_step`; 0: it is behind. It knows of no view.
    pub fn new(me: &str, in_step: u64) -> Self {
        Self {
            me: me.into(),
            chain: String::new(),
            version: 0,
            before: None,
            since: 0,
            in_step,
            streams: BTreeMap::new(),
            copy: None,
        }
    }

    /// Another view counts: all streams are closed. If this node is no member, nobody is before it.
    pub fn set_view(&mut self, view: &View) {
        self.chain.clone_from(&view.name);
        self.version = view.version;
        self.before = view.before(&self.me).map(|member| member.name.clone());
        self.since = view.find(&self.me).map_or(0, |(_, member)| member.since);
        self.streams.clear();
        self.copy = None;
    }

    /// True if this node holds everything that the chain has acknowledged.
    pub fn is_in_step(&self) -> bool {
        self.since != 0 && self.in_step == self.since
    }

    /// The `since` for which this node is in step; 0: it is behind.
    pub fn in_step(&self) -> u64 {
        self.in_step
    }

    /// `since` of this node in the view.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// The node before, if there is one.
    pub fn before(&self) -> Option<&str> {
        self.before.as_deref()
    }

    /// Checks that a hello comes from the node before this one, in the view that counts.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self, hello: &Hello, version: u64) -> Result<(), Refusal> {
        if hello.chain != self.chain || hello.to != self.me {
            let text = format!(
                "this is {} of the chain {}, not {} of {}: check the addresses of the view",
                self.me, self.chain, hello.to, hello.chain
            );
            return Err(Refusal::new(Reason::Other, text));
        }
        self.check_view(version)?;
        if self.before.as_deref() != Some(&*hello.from) {
            let text = format!("{} is not before {} in version {version}", hello.from, self.me);
            return Err(Refusal::new(Reason::View, text));
        }
        Ok(())
    }

    /// A connection asks for a stream. From now on no other connection has it.
    ///
    /// # Errors
    /// Why it does not get it.
    pub fn hello(&mut self, hello: &Hello, version: u64, connection: u64) -> Result<Welcome, Refusal> {
        self.check(hello, version)?;
        if self.streams.get(&hello.stream).is_some_and(|stream| stream.incarnation >= hello.incarnation) {
            return Err(newer());
        }
        let incarnation = hello.incarnation;
        self.streams.insert(hello.stream, Stream { incarnation, connection, number: 0 });
        if !self.is_in_step() && ![ROOM_STREAM, HEARTBEAT_STREAM].contains(&hello.stream) {
            // The sender may have completed batches without this node. The copy misses them.
            self.copy = None;
        }
        Ok(Welcome { since: self.in_step, files: 0 })
    }

    /// This node is behind, as the node before it is, which has said hello: what comes from there is less than everything. The
    /// caller has noted it durably. No connection has a stream any more: those behind this node are to be told first.
    pub fn fall_behind(&mut self) {
        self.in_step = 0;
        self.streams.clear();
        self.copy = None;
    }

    /// A message of a stream with a number: it may be executed now.
    ///
    /// # Errors
    /// Why it may not.
    pub fn admit(&mut self, stream: u8, connection: u64, version: u64, number: u64) -> Result<(), Refusal> {
        self.check_view(version)?;
        let known = self.streams.get_mut(&stream).filter(|known| known.connection == connection);
        let known = known.ok_or_else(newer)?;
        // A message that waits is executed again.
        if number != known.number && number != known.number + 1 {
            let text = format!("message {number} follows {}", known.number);
            return Err(Refusal::new(Reason::Message, text));
        }
        known.number = number;
        Ok(())
    }

    /// A copy begins. `seq` is the one that the next record of this node gets. The caller notes durably that this node is
    /// behind, before it deletes anything.
    ///
    /// # Errors
    /// This node is in step.
    pub fn begin_copy(&mut self, seq: u64) -> Result<(), Refusal> {
        if self.is_in_step() {
            return Err(Refusal::new(Reason::Copy, format!("{} is in step and needs no copy", self.me)));
        }
        self.in_step = 0;
        self.copy = Some(Copy { begun: seq, deleted: BTreeSet::new(), flushed: false });
        Ok(())
    }

    /// What becomes of a copied record.
    ///
    /// # Errors
    /// The copy is over.
    pub fn copied(&self, hash: u64) -> Result<Copied, Refusal> {
        let copy = self.copy.as_ref().ok_or_else(over)?;
        Ok(if copy.flushed || copy.deleted.contains(&hash) { Copied::Older } else { Copied::IfAbsent })
    }

    /// Records of this node with a lower seq were there before the copy began. They stay only if the node before has the same.
    ///
    /// # Errors
    /// The copy is over.
    pub fn old_below(&self) -> Result<u64, Refusal> {
        self.copy.as_ref().map(|copy| copy.begun).ok_or_else(over)
    }

    /// A chunk deletes a key.
    pub fn note_deleted(&mut self, hash: u64) {
        if let Some(copy) = &mut self.copy {
            copy.deleted.insert(hash);
        }
    }

    /// A chunk deletes every key.
    pub fn note_flushed(&mut self) {
        if let Some(copy) = &mut self.copy {
            copy.flushed = true;
            copy.deleted.clear();
        }
    }

    /// True while a copy is received.
    pub fn is_copying(&self) -> bool {
        self.copy.is_some()
    }

    /// The copy ends: this node is in step. The caller has noted it durably with `note`.
    ///
    /// # Errors
    /// The copy is over, or is for another view; what `note` returns.
    pub fn end_copy(
        &mut self,
        since: u64,
        note: impl FnOnce() -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        if self.copy.is_none() || since != self.since {
            return Err(over());
        }
        note()?;
        self.in_step = since;
        self.copy = None;
        Ok(())
    }

    /// A connection of the copy is closed, or any other: it has no stream any more.
    pub fn closed(&mut self, connection: u64) {
        let of_copy = self.streams.get(&COPY_STREAM).is_some_and(|stream| stream.connection == connection);
        if of_copy {
            self.copy = None;
        }
    }

    fn check_view(&self, version: u64) -> Result<(), Refusal> {
        if version == self.version {
            return Ok(());
        }
        let text = format!("{} has version {} of the view, not {version}", self.me, self.version);
        Err(Refusal::new(Reason::View, text))
    }
}

fn newer() -> Refusal {
    Refusal::new(Reason::Newer, "a newer connection has this stream")
}

fn over() -> Refusal {
    Refusal::new(Reason::Copy, "the copy cannot go on and begins anew")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Member;

    fn view(version: u64) -> View {
        let member = |name: &str, port: u16, since| Member {
            name: name.into(),
            address: format!("127.0.0.1:{port}"),
            since,
        };
        View { name: "orders".into(), version, members: vec![member("a", 1, 1), member("b", 2, 3)] }
    }

    fn upstream(in_step: u64) -> Upstream {
        let mut upstream = Upstream::new("b", in_step);
        upstream.set_view(&view(5));
        upstream
    }

    fn hello(stream: u8, incarnation: u64) -> Hello {
        let (chain, from, to, password) = ("orders".into(), "a".into(), "b".into(), Vec::new());
        Hello { stream, incarnation, is_in_step: true, chain, from, to, password }
    }

    fn reason<T>(outcome: Result<T, Refusal>) -> Option<Reason> {
        outcome.err().map(|refusal| refusal.reason)
    }

    #[test]
    fn only_the_node_before_is_heard() {
        let mut upstream = upstream(3);
        assert_eq!(upstream.hello(&hello(0, 1), 5, 1), Ok(Welcome { since: 3, files: 0 }));
        assert_eq!(reason(upstream.hello(&hello(0, 2), 4, 1)), Some(Reason::View));
        assert_eq!(
            reason(upstream.hello(&Hello { from: "c".into(), ..hello(0, 2) }, 5, 1)),
            Some(Reason::View)
        );
        assert_eq!(
            reason(upstream.hello(&Hello { to: "c".into(), ..hello(0, 2) }, 5, 1)),
            Some(Reason::Other)
        );
        assert_eq!(
            reason(upstream.hello(&Hello { chain: "x".into(), ..hello(0, 2) }, 5, 1)),
            Some(Reason::Other)
        );
    }

    #[test]
    fn a_newer_connection_takes_the_stream() -> Result<(), Refusal> {
        let mut upstream = upstream(3);
        upstream.hello(&hello(0, 1), 5, 1)?;
        upstream.admit(0, 1, 5, 1)?;
        upstream.hello(&hello(0, 2), 5, 2)?;
        assert_eq!(reason(upstream.admit(0, 1, 5, 2)), Some(Reason::Newer));
        assert_eq!(reason(upstream.hello(&hello(0, 1), 5, 3)), Some(Reason::Newer));
        upstream.admit(0, 2, 5, 1)?;
        assert_eq!(reason(upstream.admit(0, 2, 5, 3)), Some(Reason::Message), "2 is missing");
        upstream.set_view(&view(6));
        assert_eq!(reason(upstream.admit(0, 2, 5, 2)), Some(Reason::View));
        Ok(())
    }

    #[test]
    fn a_copy_takes_what_no_chunk_has_brought() -> Result<(), Refusal> {
        let mut upstream = upstream(1);
        assert!(!upstream.is_in_step(), "in step for an earlier time in the chain");
        upstream.hello(&hello(0, 1), 5, 1)?;
        upstream.hello(&hello(COPY_STREAM, 1), 5, 2)?;
        upstream.begin_copy(1)?;
        upstream.note_deleted(7);
        assert_eq!(upstream.copied(7), Ok(Copied::Older));
        assert_eq!(upstream.copied(8), Ok(Copied::IfAbsent));
        assert_eq!(upstream.old_below(), Ok(1));
        upstream.note_flushed();
        assert_eq!(upstream.copied(8), Ok(Copied::Older));
        upstream.end_copy(3, || Ok(()))?;
        assert!(upstream.is_in_step());
        assert_eq!(reason(upstream.old_below()), Some(Reason::Copy), "nothing is compared without a copy");
        assert_eq!(reason(upstream.begin_copy(1)), Some(Reason::Copy));
        Ok(())
    }

    #[test]
    fn a_stream_that_is_opened_anew_ends_the_copy() -> Result<(), Refusal> {
        let mut upstream = upstream(0);
        upstream.hello(&hello(0, 1), 5, 1)?;
        upstream.hello(&hello(COPY_STREAM, 1), 5, 2)?;
        upstream.begin_copy(1)?;
        assert_eq!(upstream.hello(&hello(0, 2), 5, 3), Ok(Welcome { since: 0, files: 0 }));
        assert_eq!(reason(upstream.end_copy(3, || Ok(()))), Some(Reason::Copy));
        assert!(!upstream.is_in_step());
        Ok(())
    }

    #[test]
    fn a_node_behind_one_that_is_behind_obeys_nothing_that_was_sent_before() -> Result<(), Refusal> {
        let mut upstream = upstream(3);
        assert!(upstream.is_in_step());
        upstream.hello(&hello(0, 1), 5, 1)?;
        upstream.fall_behind();
        assert!(!upstream.is_in_step());
        assert_eq!(reason(upstream.admit(0, 1, 5, 1)), Some(Reason::Newer));
        assert_eq!(upstream.hello(&hello(0, 2), 5, 2), Ok(Welcome { since: 0, files: 0 }));
        Ok(())
    }

    #[test]
    fn what_cannot_be_noted_is_not_so() -> Result<(), Refusal> {
        let mut upstream = upstream(0);
        upstream.begin_copy(1)?;
        let full = || Err(Refusal::new(Reason::Copy, "no space left"));
        assert_eq!(reason(upstream.end_copy(3, full)), Some(Reason::Copy));
        assert!(!upstream.is_in_step());
        Ok(())
    }
}
