//! Which view follows another one, by who is registered and who is silent.

use crate::view::{MEMBERS_MAX, Member, View};
use std::collections::BTreeMap;
use std::time::Duration;

/// What a node says of itself while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The `since` for which it is in step; 0: it is behind.
    pub in_step: u64,
    /// It answers nobody any more, and waits to be taken out.
    pub leaves: bool,
}

/// What one reading of the registry shows of a node's registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There is none: the node is silent.
    Nothing,
    /// It is registered, and what it says of itself cannot be read. It may be in step, and it may be behind.
    Illegible,
    /// What it says of itself.
    Registration(Registration),
}

impl Heard {
    /// What the node says of itself, if that is known.
    #[must_use]
    pub fn registration(self) -> Option<Registration> {
        match self {
            Self::Registration(registration) => Some(registration),
            Self::Nothing | Self::Illegible => None,
        }
    }
}

/// A node, as one reading of the registry shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Where it listens; `None`: it does not belong to the chain any more, or its address is not known.
    pub address: Option<String>,
    /// What it says of itself. One of which that cannot be read is not taken out, nor added, nor counted as in step.
    pub heard: Heard,
    /// Another number with each time that it has registered.
    pub registered: u64,
}

/// The view that follows, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The view.
    pub view: View,
    /// Nodes that were taken out.
    pub removed: Vec<String>,
    /// The node that was added.
    pub added: Option<String>,
}

/// What a node says, or that it says nothing.
#[derive(Clone, Copy, Debug)]
struct Steady {
    /// The first reading that has shown it.
    begun: Duration,
    is_silent: bool,
    registered: u64,
}

/// Measures silence, and decides about changes of a chain. It is told of each reading of the registry, with the time at
/// which the reading was complete, by a clock that does not jump.
#[derive(Clone, Debug)]
pub struct Manager {
    /// A member that is silent for this long answers nobody any more.
    silence: Duration,
    /// Longest time between two readings that show the same silence.
    gap: Duration,
    last: Option<Duration>,
    steady: BTreeMap<String, Steady>,
}

impl Manager {
    /// `silence` is longer than a node answers clients after the last proof that it was registered.
    pub fn new(silence: Duration) -> Self {
        Self { silence, gap: silence / 2, last: None, steady: BTreeMap::new() }
    }

    /// The registry was read completely at `now`.
    pub fn observe(&mut self, now: Duration, candidates: &[Candidate]) {
        let is_continued = self.last.is_some_and(|last| now.saturating_sub(last) <= self.gap);
        self.last = Some(now);
        let known = std::mem::take(&mut self.steady);
        for Candidate { name, heard, registered, .. } in candidates {
            let (is_silent, registered) = (*heard == Heard::Nothing, *registered);
            let is_same = |known: &&Steady| known.registered == registered && known.is_silent == is_silent;
            let before = known.get(name).filter(|_| is_continued).filter(is_same);
            let begun = before.map_or(now, |known| known.begun);
            self.steady.insert(name.clone(), Steady { begun, is_silent, registered });
        }
    }

    /// The view that follows at the last reading, if one does.
    pub fn next(&self, view: &View, candidates: &[Candidate]) -> Option<Change> {
        let found = |name: &str| candidates.iter().find(|candidate| candidate.name == name);
        let of = |member: &Member| found(&member.name).and_then(|candidate| candidate.heard.registration());
        let is_sound = |member: &Member| {
            of(member)
                .is_some_and(|registration| registration.in_step == member.since && !registration.leaves)
        };
        let is_gone = |member: &Member| {
            let says = of(member).is_some_and(|registration| registration.leaves);
            says || self.is_silent(&member.name)
        };
        let mut members: Vec<Member> =
            view.members.iter().filter(|member| !is_gone(member)).cloned().collect();
        // One that lives and is behind, before one that holds the chain's data, has lost them. A replica may have them, and not
        // have said so yet.
        let lacks =
            |member: &Member| of(member).is_some_and(|registration| registration.in_step != member.since);
        let last_sound = members.iter().rposition(is_sound).unwrap_or(0);
        let mut place = 0;
        members.retain(|member| {
            place += 1;
            let has_lost = lacks(member) && (place == 1 || self.is_steady(&member.name, self.gap));
            place > last_sound || !has_lost
        });
        // The last one that holds the data stays in the view, whether it lives or not.
        if !members.iter().any(is_sound) {
            return None;
        }
        let is_first_known = members.first().is_some_and(is_sound);
        if members.len() < view.members.len() {
            let is_same_first = members.first() == view.members.first();
            return (is_first_known || is_same_first).then(|| removal(view, members));
        }
        let joins = |candidate: &&Candidate| {
            let is_member = view.find(&candidate.name).is_ok();
            !is_member && candidate.heard.registration().is_some_and(|registration| !registration.leaves)
        };
        let addition = |candidate: &Candidate| {
            let next = view.with(&candidate.name, candidate.address.as_deref()?).ok()?;
            Some(Change { view: next, removed: Vec::new(), added: Some(candidate.name.clone()) })
        };
        let has_room = view.members.len() < MEMBERS_MAX;
        candidates.iter().filter(|_| has_room).filter(joins).find_map(addition)
    }

    fn is_silent(&self, name: &str) -> bool {
        self.steady.get(name).is_some_and(|known| known.is_silent) && self.is_steady(name, self.silence)
    }

    /// True if the node has said the same, or nothing, for so long.
    fn is_steady(&self, name: &str, time: Duration) -> bool {
        let now = self.last.unwrap_or_default();
        self.steady.get(name).is_some_and(|known| now.saturating_sub(known.begun) >= time)
    }
}

fn removal(view: &View, members: Vec<Member>) -> Change {
    let stays = |member: &&Member| members.iter().any(|kept| kept.name == member.name);
    let removed =
        view.members.iter().filter(|member| !stays(member)).map(|member| member.name.clone()).collect();
    Change { view: View { version: view.version + 1, members, ..view.clone() }, removed, added: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(5);

    fn view(version: u64, members: &[(&str, u64)]) -> View {
        let member = |(name, since): &(&str, u64)| Member {
            name: (*name).into(),
            address: address(name),
            since: *since,
        };
        View { name: "orders".into(), version, members: members.iter().map(member).collect() }
    }

    fn address(name: &str) -> String {
        format!("127.0.0.1:{}", name.as_bytes()[0])
    }

    fn lives(name: &str, in_step: u64) -> Candidate {
        let heard = Heard::Registration(Registration { in_step, leaves: false });
        Candidate { name: name.into(), address: Some(address(name)), heard, registered: 1 }
    }

    fn leaves(name: &str, in_step: u64) -> Candidate {
        let heard = Heard::Registration(Registration { in_step, leaves: true });
        Candidate { heard, ..lives(name, in_step) }
    }

    fn silent(name: &str) -> Candidate {
        Candidate { heard: Heard::Nothing, ..lives(name, 0) }
    }

    fn illegible(name: &str) -> Candidate {
        Candidate { heard: Heard::Illegible, ..lives(name, 0) }
    }

    /// A manager that has seen the same for so long, every second.
    fn after(seconds: u64, candidates: &[Candidate]) -> Manager {
        let mut manager = Manager::new(SILENCE);
        (0..=seconds).for_each(|second| manager.observe(Duration::from_secs(second), candidates));
        manager
    }

    /// The names in the view that follows after so long.
    fn next(seconds: u64, view: &View, candidates: &[Candidate]) -> Option<Vec<String>> {
        let change = after(seconds, candidates).next(view, candidates)?;
        assert_eq!(change.view.version, view.version + 1);
        assert_eq!(change.view.check(), Ok(()));
        Some(change.view.members.into_iter().map(|member| member.name).collect())
    }

    fn names(names: &str) -> Option<Vec<String>> {
        Some(names.chars().map(String::from).collect())
    }

    #[test]
    fn a_member_is_taken_out_when_it_was_silent_for_long_enough() {
        let view = view(3, &[("a", 1), ("b", 1), ("c", 1)]);
        let seen = [silent("a"), lives("b", 1), lives("c", 1)];
        assert_eq!(next(4, &view, &seen), None);
        assert_eq!(next(5, &view, &seen), names("bc"));
        let seen = [lives("a", 1), silent("b"), silent("c")];
        assert_eq!(next(5, &view, &seen), names("a"));
    }

    #[test]
    fn the_last_one_that_holds_the_data_stays() {
        let both = view(3, &[("a", 1), ("b", 3)]);
        assert_eq!(next(60, &both, &[silent("a"), silent("b")]), None);
        // b lives, and never had the data.
        assert_eq!(next(60, &both, &[silent("a"), lives("b", 0)]), None);
        assert_eq!(next(60, &both, &[silent("a"), lives("b", 2)]), None);
        assert_eq!(next(60, &both, &[leaves("a", 1), lives("b", 0)]), None);
        assert_eq!(next(60, &view(3, &[("a", 1)]), &[leaves("a", 1)]), None);
        // Others do not join before it is back.
        let survivor = view(4, &[("b", 3)]);
        assert_eq!(next(60, &survivor, &[lives("a", 1), silent("b")]), None);
        assert_eq!(next(0, &survivor, &[lives("a", 1), lives("b", 3)]), names("ba"));
    }

    #[test]
    fn a_first_node_that_has_lost_its_disk_makes_room() {
        let view = view(3, &[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(next(0, &view, &[lives("a", 0), lives("b", 1), lives("c", 1)]), names("bc"));
        assert_eq!(next(3, &view, &[lives("a", 0), lives("b", 0), lives("c", 1)]), names("c"));
        // Whether b holds the data is not known: it may come back.
        assert_eq!(next(0, &view, &[lives("a", 0), silent("b"), lives("c", 1)]), None);
        assert_eq!(next(5, &view, &[lives("a", 0), silent("b"), lives("c", 1)]), names("c"));
    }

    #[test]
    fn a_replica_that_has_lost_its_disk_makes_room_for_one_that_has_not() {
        let view = view(3, &[("a", 1), ("b", 1), ("c", 1)]);
        // b may have got in step before c, and is about to say so.
        assert_eq!(next(2, &view, &[lives("a", 1), lives("b", 0), lives("c", 1)]), None);
        assert_eq!(next(3, &view, &[lives("a", 1), lives("b", 0), lives("c", 1)]), names("ac"));
        // It is copied to where it is.
        assert_eq!(next(9, &view, &[lives("a", 1), lives("b", 1), lives("c", 0)]), None);
        assert_eq!(next(9, &view, &[lives("a", 1), lives("b", 0), lives("c", 0)]), None);
    }

    #[test]
    fn a_registered_node_is_added_at_the_end() {
        let view = view(6, &[("b", 1), ("c", 1)]);
        let change = after(0, &[]).next(&view, &[lives("a", 1), lives("b", 1), lives("c", 1)]).unwrap();
        assert_eq!((change.added.as_deref(), change.view.members[2].since), (Some("a"), 7));
        assert_eq!(next(0, &view, &[silent("a"), lives("b", 1), lives("c", 1)]), None);
        assert_eq!(next(0, &view, &[leaves("a", 1), lives("b", 1), lives("c", 1)]), None);
        let stranger = Candidate { address: None, ..lives("a", 1) };
        assert_eq!(next(0, &view, &[stranger, lives("b", 1), lives("c", 1)]), None);
    }

    #[test]
    fn a_member_that_leaves_is_not_waited_for() {
        let view = view(3, &[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(next(0, &view, &[leaves("a", 1), leaves("b", 1), lives("c", 1)]), names("c"));
        assert_eq!(next(0, &view, &[lives("a", 1), leaves("b", 1), lives("c", 1)]), names("ac"));
    }

    #[test]
    fn a_member_of_which_nothing_can_be_read_is_neither_taken_out_nor_counted_nor_added() {
        let all = view(3, &[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(next(60, &all, &[illegible("a"), lives("b", 1), lives("c", 1)]), None);
        assert_eq!(next(60, &all, &[lives("a", 1), illegible("b"), lives("c", 1)]), None);
        // Others are taken out beside it, behind a first one that stays.
        assert_eq!(next(60, &all, &[illegible("a"), silent("b"), lives("c", 1)]), names("ac"));
        // It is not known to be in step: it neither becomes the first one, nor is it the one that remains.
        assert_eq!(next(60, &all, &[leaves("a", 1), illegible("b"), lives("c", 1)]), None);
        assert_eq!(next(60, &all, &[lives("a", 0), illegible("b"), illegible("c")]), None);
        assert_eq!(next(60, &view(3, &[("a", 1), ("b", 1)]), &[silent("a"), illegible("b")]), None);
        assert_eq!(next(60, &view(3, &[("b", 1)]), &[illegible("a"), lives("b", 1)]), None);
    }

    #[test]
    fn silence_is_one_piece() {
        let view = view(3, &[("a", 1), ("b", 1)]);
        let seen = [silent("a"), lives("b", 1)];
        // The registry could not be read for a while: a may have been there.
        let mut manager = after(4, &seen);
        manager.observe(Duration::from_secs(20), &seen);
        assert_eq!(manager.next(&view, &seen), None);
        // It has registered and lost the registration between two readings.
        let mut manager = after(4, &seen);
        let again = [Candidate { registered: 2, ..silent("a") }, lives("b", 1)];
        manager.observe(Duration::from_secs(5), &again);
        assert_eq!(manager.next(&view, &again), None);
        // It is back.
        let mut manager = after(9, &seen);
        let back = [lives("a", 1), lives("b", 1)];
        manager.observe(Duration::from_secs(10), &back);
        assert_eq!(manager.next(&view, &back), None);
    }
}
