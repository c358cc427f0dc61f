//! Watching a source of membership, and reporting its changes as events.
//!
//! Each poll reads the whole state, and the events are its difference from the state reported before. So no change can
//! be missed, however long a source was unreachable, and however much of its history etcd has compacted since. If
//! etcd's revision is that of the poll before, the rest of its answer is ignored.

use crate::backoff::{Backoff, PAUSE_MAX};
use crate::chain::Chain;
use crate::error::MembersError;
use crate::etcd::EtcdPoller;
use crate::file::FilePoller;
use crate::member::Member;
use crate::view::View;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most events that wait for the owner. While so many wait, the source is not polled.
pub const QUEUED_MAX: usize = 256;
/// Polls that fail in a row before the source counts as lost. One may fail because an editor is writing the file, or
/// because a connection was reset.
const FAILURES_MAX: u32 = 2;
/// Interval of attempts to queue an event.
const QUEUE_AGAIN: Duration = Duration::from_millis(10);
/// The shortest time between two polls.
const EVERY_MIN: Duration = Duration::from_millis(10);

/// Something that has changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The chain has changed to this one. It is the first event, unless the source is lost from the beginning.
    ChainChanged(Chain),
    /// A member has registered, or has registered with another incarnation or address.
    Alive(Member),
    /// A member's lease has ended, or the member has resigned. Its last state.
    Gone(Member),
    /// The source is unreachable or its contents are invalid. The state reported before remains the best known one.
    SourceLost(MembersError),
    /// The source is usable again. Events for the changes since then follow.
    SourceBack,
}

/// The changes of a source, which a thread polls. Dropping the watch ends the thread, within the time of one call.
#[derive(Debug)]
pub struct Watch {
    events: Receiver<Event>,
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(poller: Poller, every: Duration) -> Result<Self, MembersError> {
        let (queue, events) = sync_channel(QUEUED_MAX);
        let (stop, stopped) = sync_channel(1);
        let every = every.clamp(EVERY_MIN, PAUSE_MAX);
        let watcher = Watcher { poller, reported: Reported::default(), failures: 0, queue, stopped };
        let thread = std::thread::Builder::new().name("members".to_owned());
        let thread = thread.spawn(move || watcher.run(every)).map_err(MembersError::Thread)?;
        Ok(Self { events, stop: Some(stop), thread: Some(thread) })
    }

    /// The next event. Blocks for `wait` at most.
    pub fn event(&self, wait: Duration) -> Option<Event> {
        self.events.recv_timeout(wait).ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

/// Polls a source.
#[derive(Debug)]
pub(crate) enum Poller {
    /// A file.
    File(FilePoller),
    /// A chain in etcd.
    Etcd(EtcdPoller),
}

impl Poller {
    fn poll(&mut self) -> Result<Option<View>, MembersError> {
        match self {
            Self::File(file) => file.poll(),
            Self::Etcd(etcd) => etcd.poll(),
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
    poller: Poller,
    reported: Reported,
    /// Polls that have failed in a row.
    failures: u32,
    queue: SyncSender<Event>,
    stopped: Receiver<()>,
}

/// The owner has dropped the watch.
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

    /// Polls once and queues the resulting events. True if the source was usable.
    fn round(&mut self) -> Result<bool, Stopped> {
        match self.poller.poll().and_then(|view| view.map(|view| self.reported.next(view)).transpose()) {
            Ok(events) => {
                self.back()?;
                for event in events.into_iter().flatten() {
                    self.queue(event)?;
                }
                Ok(true)
            }
            Err(error) => {
                // The next poll reads the source again even if the source does not change.
                self.poller.forget();
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

    /// Queues an event. Blocks until the owner has taken enough of the earlier ones.
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

/// The state that was reported to the owner.
#[derive(Default)]
struct Reported {
    chain: Option<Chain>,
    members: BTreeMap<String, Member>,
}

impl Reported {
    /// The events that lead to `view`: first the chain, then members that are gone, then members that are alive.
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

    /// Whether the chain is a new one.
    ///
    /// A different chain whose epoch did not grow is a mistake, or comes from an etcd that was restored from an old copy.
    /// No client may follow it, because other clients may have followed a newer one.
    ///
    /// # Errors
    /// [`MembersError::EpochNotRaised`].
    fn is_news(&self, chain: &Chain) -> Result<bool, MembersError> {
        match &self.chain {
            None => Ok(true),
            Some(before) if before == chain => Ok(false),
            Some(before) if before.epoch < chain.epoch => Ok(true),
            Some(before) => Err(MembersError::EpochNotRaised { seen: before.epoch, found: chain.epoch }),
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
    fn a_member_with_a_new_incarnation_is_reported_again() {
        let mut reported = Reported::default();
        assert_eq!(reported.next(view(1, &[("a", 1), ("b", 1)])).unwrap().len(), 3);
        let events = reported.next(view(1, &[("a", 2)])).unwrap();
        let [Event::Gone(b), Event::Alive(a)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((b.name.as_str(), a.incarnation), ("b", 2));
        assert!(reported.next(view(1, &[("a", 2)])).unwrap().is_empty());
    }

    #[test]
    fn a_chain_whose_epoch_did_not_grow_is_not_followed() {
        let mut reported = Reported::default();
        reported.next(view(5, &[])).unwrap();
        let server = "10.0.0.8:51000".parse().unwrap();
        let other = View { chain: Chain { server, ..chain(5) }, ..view(5, &[]) };
        assert!(matches!(reported.next(other), Err(MembersError::EpochNotRaised { seen: 5, found: 5 })));
        assert!(matches!(
            reported.next(view(4, &[])),
            Err(MembersError::EpochNotRaised { seen: 5, found: 4 })
        ));
        assert_eq!(reported.next(view(6, &[])).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn applying_all_events_yields_the_state_of_the_source(
            views in proptest::collection::vec(proptest::collection::btree_map("[a-d]", 0..3_u64, 0..4), 1..20)
        ) {
            let mut reported = Reported::default();
            let mut known = BTreeMap::new();
            for lives in views {
                let members: Vec<(&str, u64)> = lives.iter().map(|(name, life)| (name.as_str(), *life)).collect();
                for event in reported.next(view(1, &members)).unwrap() {
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
