//! What changes, as it happens.
//!
//! A look takes in the whole state, and events are the difference to what was told before. So nothing can be missed,
//! however long a source was away, and however much of its history etcd has compacted since. Where etcd's revision is
//! that of the look before, its answer is not looked at any further.

use crate::backoff::{Backoff, PAUSE_MAX};
use crate::chain::Chain;
use crate::error::MembersError;
use crate::etcd::EtcdLook;
use crate::file::FileLook;
use crate::member::Member;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Events that wait for the owner. While they do, the source is not looked at.
pub const QUEUED_MAX: usize = 256;
/// Looks that fail in a row before the source counts as lost: an editor may be writing, a connection may be reset.
const FAILURES_MAX: u32 = 2;
/// How often it is tried to queue an event.
const QUEUE_AGAIN: Duration = Duration::from_millis(10);
/// The shortest time between two looks.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Something that has changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The chain is this one now. The first event, unless the source is lost from the beginning.
    ChainChanged(Chain),
    /// A member has registered, or has registered with another incarnation or address.
    Alive(Member),
    /// A member's lease has ended, or it has resigned. This is how it was.
    Gone(Member),
    /// The source cannot be asked, or what it says makes no sense. What was told before is the best that is known.
    SourceLost(MembersError),
    /// It can again; what has changed meanwhile follows.
    SourceBack,
}

/// The changes of a source, looked for by a thread of its own. Dropping it ends the thread, within the time of a call.
#[derive(Debug)]
pub struct Watch {
    events: Receiver<Event>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(look: Look, every: Duration) -> Result<Self, MembersError> {
        let (queue, events) = sync_channel(QUEUED_MAX);
        let (stop, stopped) = sync_channel(1);
        let every = every.clamp(EVERY_MIN, PAUSE_MAX);
        let watcher = Watcher { look, told: Told::default(), failures: 0, queue, stopped };
        let thread = std::thread::Builder::new().name("members".to_owned());
        let thread = thread.spawn(move || watcher.run(every)).map_err(MembersError::Thread)?;
        Ok(Self { events, stop: Some(stop), thread: Some(thread) })
    }

    /// The next event, waiting for `wait` at most.
    pub fn event(&self, wait: Duration) -> Option<Event> {
        self.events.recv_timeout(wait).ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nobody to tell here.
            let _ = thread.join();
        }
    }
}

/// How a source is looked at again and again.
#[derive(Debug)]
pub(crate) enum Look {
    /// A file.
    File(FileLook),
    /// A chain in etcd.
    Etcd(EtcdLook),
}

impl Look {
    fn look(&mut self) -> Result<Option<View>, MembersError> {
        match self {
            Self::File(file) => file.look(),
            Self::Etcd(etcd) => etcd.look(),
        }
    }

    fn forget(&mut self) {
        match self {
            Self::File(file) => file.forget(),
            Self::Etcd(etcd) => etcd.forget(),
        }
    }
}

/// The thread's side.
struct Watcher {
    look: Look,
    told: Told,
    /// Looks that have failed in a row.
    failures: u32,
    queue: SyncSender<Event>,
    stopped: Receiver<()>,
}

/// The owner is gone.
struct Stopped;

impl Watcher {
    fn run(mut self, every: Duration) {
        let mut backoff = Backoff::new();
        loop {
            let Ok(well) = self.round() else { return };
            if well {
                backoff.reset();
            }
            let pause = if well { every } else { every.max(backoff.pause()) };
            if self.stopped_within(pause) {
                return;
            }
        }
    }

    /// One look, and the events that come of it. Whether the source was well.
    fn round(&mut self) -> Result<bool, Stopped> {
        match self.look.look().and_then(|view| view.map(|view| self.told.next(view)).transpose()) {
            Ok(events) => {
                self.back()?;
                for event in events.into_iter().flatten() {
                    self.queue(event)?;
                }
                Ok(true)
            }
            Err(error) => {
                // What is wrong must be looked at again, though it does not change.
                self.look.forget();
                self.lost(error)?;
                Ok(false)
            }
        }
    }

    fn back(&mut self) -> Result<(), Stopped> {
        let lost = self.failures >= FAILURES_MAX;
        self.failures = 0;
        if lost { self.queue(Event::SourceBack) } else { Ok(()) }
    }

    fn lost(&mut self, error: MembersError) -> Result<(), Stopped> {
        self.failures = self.failures.saturating_add(1);
        if self.failures == FAILURES_MAX { self.queue(Event::SourceLost(error)) } else { Ok(()) }
    }

    /// Queues an event, however long the owner leaves the others lying.
    fn queue(&self, mut event: Event) -> Result<(), Stopped> {
        loop {
            match self.queue.try_send(event) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(_)) => return Err(Stopped),
                Err(TrySendError::Full(back)) => event = back,
            }
            if self.stopped_within(QUEUE_AGAIN) {
                return Err(Stopped);
            }
        }
    }

    fn stopped_within(&self, pause: Duration) -> bool {
        self.stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout)
    }
}

/// What the owner has been told.
#[derive(Default)]
struct Told {
    chain: Option<Chain>,
    members: BTreeMap<String, Member>,
}

impl Told {
    /// The events that lead to `view`: the chain, then who is gone, then who is alive.
    fn next(&mut self, view: View) -> Result<Vec<Event>, MembersError> {
        let mut events = Vec::new();
        if self.is_news(&view.chain)? {
            events.push(Event::ChainChanged(view.chain.clone()));
            self.chain = Some(view.chain);
        }
        let gone = self.members.values().filter(|member| !view.members.contains_key(&member.name));
        events.extend(gone.cloned().map(Event::Gone));
        let new = view.members.values().filter(|member| self.members.get(&member.name) != Some(*member));
        events.extend(new.cloned().map(Event::Alive));
        self.members = view.members;
        Ok(events)
    }

    /// An epoch that did not grow is a mistake, or an etcd restored from an old copy: no client may follow it, as
    /// others may have gone on.
    fn is_news(&self, chain: &Chain) -> Result<bool, MembersError> {
        match &self.chain {
            None => Ok(true),
            Some(told) if told == chain => Ok(false),
            Some(told) if told.epoch < chain.epoch => Ok(true),
            Some(told) => Err(MembersError::EpochNotRaised { seen: told.epoch, found: chain.epoch }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Role;
    use proptest::prelude::*;

    fn chain(epoch: u64) -> Chain {
        let server = "10.0.0.9:51000".parse().unwrap();
        Chain { name: "lab".into(), epoch, server, replicas: vec![], devices: vec![] }
    }

    fn member(name: &str, incarnation: u64) -> Member {
        let address = "10.0.0.1:1".parse().unwrap();
        Member { name: name.to_owned(), role: Role::Device, address, incarnation, since: 0 }
    }

    fn view(epoch: u64, members: &[(&str, u64)]) -> View {
        let members = members.iter().map(|(name, life)| ((*name).to_owned(), member(name, *life))).collect();
        View { chain: chain(epoch), members }
    }

    #[test]
    fn a_member_that_lives_anew_is_told_again() {
        let mut told = Told::default();
        assert_eq!(told.next(view(1, &[("a", 1), ("b", 1)])).unwrap().len(), 3);
        let events = told.next(view(1, &[("a", 2)])).unwrap();
        let [Event::Gone(b), Event::Alive(a)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((b.name.as_str(), a.incarnation), ("b", 2));
        assert!(told.next(view(1, &[("a", 2)])).unwrap().is_empty());
    }

    #[test]
    fn a_chain_whose_epoch_did_not_grow_is_not_followed() {
        let mut told = Told::default();
        told.next(view(5, &[])).unwrap();
        let server = "10.0.0.8:51000".parse().unwrap();
        let other = View { chain: Chain { server, ..chain(5) }, ..view(5, &[]) };
        assert!(matches!(told.next(other), Err(MembersError::EpochNotRaised { seen: 5, found: 5 })));
        assert!(matches!(told.next(view(4, &[])), Err(MembersError::EpochNotRaised { seen: 5, found: 4 })));
        assert_eq!(told.next(view(6, &[])).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn whoever_follows_the_events_knows_what_the_source_knows(
            views in proptest::collection::vec(proptest::collection::btree_map("[a-d]", 0..3_u64, 0..4), 1..20)
        ) {
            let mut told = Told::default();
            let mut known = BTreeMap::new();
            for lives in views {
                let members: Vec<(&str, u64)> = lives.iter().map(|(name, life)| (name.as_str(), *life)).collect();
                for event in told.next(view(1, &members)).unwrap() {
                    match event {
                        Event::Alive(member) => {
                            prop_assert_ne!(known.insert(member.name, member.incarnation), Some(member.incarnation));
                        }
                        Event::Gone(member) => prop_assert!(known.remove(&member.name).is_some()),
                        _ => {}
                    }
                }
                prop_assert_eq!(&known, &lives);
            }
        }
    }
}
