//! Tests of the device's log: recovery after crashes, and limits.

mod support;

use landfall_media::Media;
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_pmnet::Identity;
use landfall_pmnet::log::{Limits, Log, Logged, NotLogged, Standing};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::{Landing, blank, flow, identity, open, update};

fn append(log: &mut Log, landing: &mut Landing, identity: Identity, len: usize) -> Logged {
    let bytes = update(&identity, len);
    let extent = landing.land(&log.heap().clone(), &bytes);
    let logged = log.append(identity, extent, 0, 1).unwrap();
    log.heap().runs().release(extent);
    logged
}

fn read(log: &Log, identity: &Identity) -> Option<Vec<u8>> {
    let stored = log.hold(identity).unwrap()?;
    let bytes = log.bytes_of(&stored).unwrap();
    log.release(&stored);
    Some(bytes)
}

#[test]
fn an_update_survives_a_restart_once_its_fence_has_returned() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let update_1 = identity(1, 2, 3);
    assert_eq!(append(&mut log, &mut landing, update_1, 100), Logged::New);
    let mut durable = Vec::new();
    log.commit(|identity, _| durable.push(identity)).unwrap();
    assert_eq!(durable, [update_1]);
    let image = media.crash_image_seeded(1);
    let media = SimMedia::from_image(image, SimOptions::default());
    let log = open(&media, Limits::default());
    assert_eq!(read(&log, &update_1), Some(update(&update_1, 100)));
}

#[test]
fn a_repeated_update_is_known_and_another_packet_with_its_identity_is_not_logged() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let one = identity(1, 1, 1);
    assert_eq!(append(&mut log, &mut landing, one, 100), Logged::New);
    assert_eq!(append(&mut log, &mut landing, one, 100), Logged::Known { durable: false });
    log.commit(|_, _| {}).unwrap();
    assert_eq!(append(&mut log, &mut landing, one, 100), Logged::Known { durable: true });
    assert_eq!(append(&mut log, &mut landing, one, 101), Logged::Not(NotLogged::Collision));
    assert_eq!(read(&log, &one), Some(update(&one, 100)));
}

#[test]
fn an_update_removed_before_its_fence_is_not_acknowledged() {
    let media = blank(true);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    append(&mut log, &mut landing, identity(1, 1, 1), 100);
    append(&mut log, &mut landing, identity(1, 1, 2), 100);
    let mut dirty = log.begin_commit().unwrap();
    log.remove_upto(flow(1), 1, 1, |_| {});
    let outcome = media.fence(&mut dirty, landfall_media::Site::Commit);
    let mut durable = Vec::new();
    log.finish_commit(outcome, |identity, _| durable.push(identity.seq)).unwrap();
    assert_eq!(durable, [2]);
}

#[test]
fn a_confirmed_update_is_not_logged_again() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    log.remove_upto(flow(1), 1, 5, |_| {});
    assert_eq!(append(&mut log, &mut landing, identity(1, 1, 5), 9), Logged::Not(NotLogged::Applied));
    assert_eq!(append(&mut log, &mut landing, identity(1, 1, 6), 9), Logged::New);
}

#[test]
fn every_limit_is_kept() {
    let limits = Limits {
        entries_max: 6,
        session_entries_max: 3,
        queue_max: 5,
        packet_bytes_max: 500,
        ..Limits::default()
    };
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, limits), Landing::default());
    let mut add = |log: &mut Log, client, seq, len| append(log, &mut landing, identity(client, 1, seq), len);
    assert_eq!(add(&mut log, 1, 1, 501), Logged::Not(NotLogged::TooLong));
    for seq in 1..=3 {
        assert_eq!(add(&mut log, 1, seq, 200), Logged::New);
    }
    assert_eq!(add(&mut log, 1, 4, 200), Logged::Not(NotLogged::SessionFull));
    assert_eq!(add(&mut log, 2, 1, 200), Logged::New);
    assert_eq!(add(&mut log, 2, 2, 200), Logged::New);
    assert_eq!(add(&mut log, 3, 1, 200), Logged::Not(NotLogged::QueueFull));
    log.commit(|_, _| {}).unwrap();
    assert_eq!(add(&mut log, 3, 1, 200), Logged::New);
    assert_eq!(add(&mut log, 3, 2, 200), Logged::Not(NotLogged::Full));
}

#[test]
fn a_full_region_accepts_updates_again_after_some_are_removed() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let mut keeper = log.keeper();
    let mut seq = 0;
    loop {
        seq += 1;
        log.raise(flow(1), (seq >> 12) as u16, Standing::Heard);
        let logged = append(&mut log, &mut landing, identity(1, (seq >> 12) as u16, seq), 1800);
        log.commit(|_, _| {}).unwrap();
        if logged == Logged::Not(NotLogged::Full) {
            break;
        }
        assert_eq!(logged, Logged::New);
    }
    assert!(seq > 5_000, "a region of 32 MiB has accepted {seq} updates");
    for session in 0..=(seq >> 12) as u16 {
        log.remove_upto(flow(1), session, seq, |_| {});
    }
    for _ in 0..100 {
        keeper.step().unwrap();
    }
    assert_eq!(append(&mut log, &mut landing, identity(2, 1, 1), 1800), Logged::New);
}

/// Two clients' updates until the region is full, all acknowledged: one client's are removed by a restart's first message
/// from the server, and the other's have to be moved.
fn crowded() -> (Vec<u8>, Vec<Identity>) {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let mut kept = Vec::new();
    for seq in 1.. {
        let one = identity(if seq % 8 == 0 { 2 } else { 1 }, (seq >> 12) as u16, seq);
        log.raise(one.flow, one.session, Standing::Heard);
        if append(&mut log, &mut landing, one, 1800) != Logged::New {
            break;
        }
        log.commit(|_, _| {}).unwrap();
        kept.extend((seq % 8 == 0).then_some(one));
    }
    (media.crash_state().durable_image(), kept)
}

#[test]
fn a_crash_while_updates_are_moved_loses_none() {
    let (image, kept) = crowded();
    let run = |freeze_at: Option<u64>| {
        let media = SimMedia::from_image(image.clone(), SimOptions::default());
        let mut log = open(&media, Limits::default());
        let mut keeper = log.keeper();
        for session in 0..=kept.last().unwrap().session {
            log.remove_upto(flow(1), session, u32::MAX, |_| {});
        }
        let begun = media.ops().total();
        if let Some(op) = freeze_at {
            media.freeze_at(begun + op);
        }
        let moved: u64 = (0..3).map(|_| keeper.step().unwrap().moved_records).sum();
        assert!(moved > 0, "updates had to be moved");
        (media.ops().total() - begun, media.frozen())
    };
    let (ops, _) = run(None);
    for at in (1..=ops).step_by((ops as usize / 100).max(1)) {
        let crashed = run(Some(at)).1.expect("the operation was reached");
        for seed in [2 * at, 2 * at + 1] {
            let media = SimMedia::from_image(crashed.crash_image_seeded(seed), SimOptions::default());
            let log = open(&media, Limits::default());
            for one in &kept {
                assert_eq!(
                    read(&log, one),
                    Some(update(one, 1800)),
                    "{one:?}, crash at {at} of {ops}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn ports_of_clients_survive_a_restart() {
    let media = blank(false);
    let mut log = open(&media, Limits::default());
    for (client, port) in [(1, 600), (2, 601), (1, 602), (3, 602)] {
        assert!(log.set_path(flow(client), port, 1).unwrap());
        log.commit(|_, _| {}).unwrap();
    }
    let media = SimMedia::from_image(media.crash_image_seeded(3), SimOptions::default());
    let log = open(&media, Limits::default());
    assert_eq!(log.paths(), [(flow(2), 601), (flow(3), 602)]);
}

#[test]
fn a_packet_stored_inline_in_its_record_is_read_back() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let short = identity(1, 1, 1);
    let bytes = landfall_pmnet::wire::Packet::new(1, 1, landfall_pmnet::wire::Body::Update(b"ab")).to_bytes();
    let extent = landing.land(&log.heap().clone(), &bytes);
    assert_eq!(log.append(short, extent, 0, 1).unwrap(), Logged::New);
    log.heap().runs().release(extent);
    log.commit(|_, _| {}).unwrap();
    assert_eq!(read(&log, &short), Some(bytes.clone()));
    let media = SimMedia::from_image(media.crash_image_seeded(9), SimOptions::default());
    assert_eq!(read(&open(&media, Limits::default()), &short), Some(bytes));
}

#[test]
fn a_discarded_session_stays_deleted_and_others_are_kept() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    for (client, seq) in [(1, 4), (1, 6), (2, 1)] {
        append(&mut log, &mut landing, identity(client, 1, seq), 300);
    }
    log.commit(|_, _| {}).unwrap();
    let first = log.sessions()[0];
    assert_eq!((first.flow, first.session, first.first, first.last, first.count), (flow(1), 1, 4, 6, 2));
    assert_eq!(log.discard(flow(1), 1).unwrap(), 2);
    let media = SimMedia::from_image(media.crash_image_seeded(9), SimOptions::default());
    assert_eq!(open(&media, Limits::default()).identities(|_| true), [identity(2, 1, 1)]);
}

#[derive(Clone, Debug)]
enum Op {
    Append { client: u16, len: usize },
    Commit,
    Remove { client: u16, back: u32 },
    Keep,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0_u16..3, 30_usize..1500).prop_map(|(client, len)| Op::Append { client, len }),
        3 => Just(Op::Commit),
        2 => (0_u16..3, 0_u32..4).prop_map(|(client, back)| Op::Remove { client, back }),
        1 => Just(Op::Keep),
    ]
}

/// The expected state of an update.
#[derive(Clone, Debug)]
struct Known {
    bytes: Vec<u8>,
    acknowledged: bool,
    removed: bool,
}

fn play(ops: &[Op], log: &mut Log, known: &mut BTreeMap<Identity, Known>, next: &mut [u32; 3]) {
    let (mut landing, mut keeper) = (Landing::default(), log.keeper());
    for op in ops {
        match op {
            Op::Append { client, len } => {
                let identity = identity(*client, 1, next[usize::from(*client)]);
                next[usize::from(*client)] += 1;
                let bytes = update(&identity, *len);
                if append(log, &mut landing, identity, *len) == Logged::New {
                    known.insert(identity, Known { bytes, acknowledged: false, removed: false });
                }
            }
            Op::Commit => {
                log.commit(|identity, _| known.get_mut(&identity).unwrap().acknowledged = true).unwrap();
            }
            Op::Remove { client, back } => {
                let upto = next[usize::from(*client)].saturating_sub(*back);
                log.remove_upto(flow(*client), 1, upto, |seq| {
                    known.get_mut(&identity(*client, 1, seq)).unwrap().removed = true;
                });
            }
            Op::Keep => {
                keeper.step().unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Crash, check, continue, crash again: every acknowledged update that was not removed is in the log, and no
    /// other ones.
    #[test]
    fn a_crash_at_any_operation_loses_no_acknowledged_update_and_invents_none(
        first in prop::collection::vec(op(), 1..60),
        second in prop::collection::vec(op(), 1..40),
        crash_at in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        deferred in any::<bool>(),
    ) {
        let media = blank(deferred);
        let (mut known, mut next) = (BTreeMap::new(), [1; 3]);
        let mut log = open(&media, Limits::default());
        play(&first, &mut log, &mut known, &mut next);
        let image = media.crash_image_seeded(seed);
        let media = SimMedia::from_image(image, SimOptions { deferred });
        let mut log = open(&media, Limits::default());
        check(&log, &known)?;
        // The second life begins with the recovered updates, and crashes at any operation.
        known.retain(|identity, _| log.contains(identity));
        known.values_mut().for_each(|known| (known.acknowledged, known.removed) = (true, false));
        let upto = crash_at.index(second.len());
        play(&second[..upto], &mut log, &mut known, &mut next);
        let image = media.crash_image_seeded(seed.rotate_left(7));
        let media = SimMedia::from_image(image, SimOptions { deferred });
        check(&open(&media, Limits::default()), &known)?;
    }
}

fn check(log: &Log, known: &BTreeMap<Identity, Known>) -> Result<(), TestCaseError> {
    for (identity, known) in known {
        let found = read(log, identity);
        if known.acknowledged && !known.removed {
            prop_assert!(found.is_some(), "{identity:?} is lost");
        }
        if let Some(found) = found {
            prop_assert_eq!(&found, &known.bytes);
        }
    }
    for identity in log.identities(|_| true) {
        prop_assert!(known.contains_key(&identity), "{identity:?} was never appended");
    }
    Ok(())
}

#[test]
fn a_log_without_its_flushes_is_caught() {
    // The canary: it shows that the check above can fail.
    for site in [landfall_media::Site::Data, landfall_media::Site::Record, landfall_media::Site::Commit] {
        let lost = (0..64).any(|seed| {
            let media = blank(false);
            media.skip_site(site);
            let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
            let one = identity(1, 1, 1);
            append(&mut log, &mut landing, one, 700);
            log.commit(|_, _| {}).unwrap();
            let media = SimMedia::from_image(media.crash_image_seeded(seed), SimOptions::default());
            let (log, _) = Log::open(Arc::clone(&media) as Arc<dyn Media>, Limits::default()).unwrap();
            read(&log, &one).is_none()
        });
        assert!(lost, "nothing was lost without {site:?}");
    }
}

/// Client 1 has a port. Then client 2 gets it, and client 1 gets another one. An update that is found after a crash
/// is sent from the port that it was sent from before, or not at all.
#[test]
fn released_ports_are_assigned_again_and_no_update_changes_its_port() {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let old = identity(1, 7, 5);
    log.set_path(flow(1), 600, 1).unwrap();
    append(&mut log, &mut landing, old, 300);
    log.commit(|_, _| {}).unwrap();
    assert!(!log.remove_path(&flow(1)), "its update is in the log");
    log.remove_upto(flow(1), 7, 5, |_| {});
    assert!(log.remove_path(&flow(1)) && !log.remove_path(&flow(1)));
    let again = |media: &Arc<SimMedia>| {
        open(&SimMedia::from_image(media.crash_image_seeded(3), SimOptions::default()), Limits::default())
    };
    // A removal writes nothing: after a crash the path is found again, and the update is confirmed again.
    let found = again(&media);
    assert_eq!((found.paths(), found.contains(&old)), (vec![(flow(1), 600)], true));
    log.set_path(flow(2), 600, 1).unwrap();
    log.set_path(flow(1), 601, 1).unwrap();
    let new = identity(1, 7, 1);
    assert_eq!(append(&mut log, &mut landing, new, 300), Logged::New, "another session");
    log.commit(|_, _| {}).unwrap();
    let found = again(&media);
    assert_eq!(found.paths(), [(flow(1), 601), (flow(2), 600)]);
    assert_eq!((found.contains(&old), found.contains(&new)), (false, true));
}

/// The keeper works beside whoever ends a commit: it finds updates that are durable, and that nobody has acknowledged.
#[test]
fn updates_that_the_keeper_visits_while_they_become_durable_are_acknowledged_and_stay() {
    let media = blank(false);
    let limits = Limits { queue_max: 4096, ..Limits::default() };
    let (mut log, mut landing) = (open(&media, limits), Landing::default());
    let mut keeper = log.keeper();
    let mut filler = 0;
    while log.heap().runs().free_count() > 12 {
        filler += 1;
        let one = identity(3, (filler >> 12) as u16, filler);
        log.raise(one.flow, one.session, Standing::Heard);
        assert_eq!(append(&mut log, &mut landing, one, 1800), Logged::New);
        log.commit(|_, _| {}).unwrap();
    }
    // Most of some runs goes before the fence ends, and little of them stays.
    log.raise(flow(1), 1, Standing::Heard);
    log.raise(flow(2), 1, Standing::Heard);
    let kept: Vec<Identity> =
        (1..=1500).filter(|seq| seq % 500 > 440).map(|seq| identity(2, 1, seq)).collect();
    for seq in 1..=1500 {
        let client = if seq % 500 > 440 { 2 } else { 1 };
        assert_eq!(append(&mut log, &mut landing, identity(client, 1, seq), 1800), Logged::New);
    }
    let mut dirty = log.begin_commit().unwrap();
    log.remove_upto(flow(1), 1, u32::MAX, |_| {});
    let outcome = media.fence(&mut dirty, landfall_media::Site::Commit);
    let (mut acknowledged, mut moved) = (Vec::new(), 0);
    log.finish_commit(outcome, |identity, _| {
        acknowledged.push(identity);
        moved += (0..8).map(|_| keeper.step().unwrap().moved_records).sum::<u64>();
    })
    .unwrap();
    assert_eq!(acknowledged, kept);
    assert!(moved > 0, "the keeper has nothing to do");
    for one in &kept {
        assert_eq!(read(&log, one), Some(update(one, 1800)), "{one:?}");
    }
}

fn many_ports(count: u32) {
    let media = blank(false);
    let (mut log, mut landing) = (open(&media, Limits::default()), Landing::default());
    let mut keeper = log.keeper();
    let mut free = Vec::new();
    for number in 0..count {
        let flow = flow((number % 20_000) as u16);
        let identity = Identity { flow, session: 1, seq: 1 };
        assert!(log.set_path(flow, 600 + (number % 100) as u16, 1).unwrap(), "{number}");
        assert_eq!(append(&mut log, &mut landing, identity, 40), Logged::New, "{number}");
        log.commit(|_, _| {}).unwrap();
        log.remove_upto(flow, 1, 1, |_| {});
        assert!(log.remove_path(&flow));
        if number % 64 == 0 {
            keeper.step().unwrap();
        }
        if number % (count / 10) == 0 {
            free.push(log.heap().runs().free_count());
        }
    }
    assert!(log.paths().is_empty() && log.is_empty());
    assert!(free.iter().skip(2).all(|now| now + 4 >= free[2]), "the region does not fill up: {free:?}");
}

/// A soak test with `LANDFALL_SOAK_PORTS=1000000`.
#[test]
fn ports_are_assigned_and_released_without_filling_the_log() {
    let ports = std::env::var("LANDFALL_SOAK_PORTS").ok().and_then(|text| text.parse().ok());
    many_ports(ports.unwrap_or(20_000));
}

#[test]
fn sessions_that_no_server_knows_can_use_only_a_part_of_the_log() {
    let media = blank(false);
    let limits = Limits { client_unknown_max: 3, unknown_max: 5, ..Limits::default() };
    let (mut log, mut landing) = (open(&media, limits), Landing::default());
    let mut full = |log: &mut Log, client, session, seq| {
        append(log, &mut landing, identity(client, session, seq), 40) == Logged::Not(NotLogged::Unknown)
    };
    assert!((1..=3).all(|seq| !full(&mut log, 1, seq as u16, seq)), "whatever their sessions");
    assert!(full(&mut log, 1, 9, 1));
    assert!(
        (1..=2).all(|seq| !full(&mut log, 2, 1, seq)) && full(&mut log, 2, 1, 3) && full(&mut log, 3, 1, 1)
    );
    // A session that a server knows does not count, nor do its earlier updates in the log.
    log.raise(flow(1), 1, Standing::Heard);
    assert!((1..=9).all(|seq| !full(&mut log, 1, 1, 10 + seq)));
    assert!(!full(&mut log, 3, 1, 1) && full(&mut log, 3, 1, 2));
    log.remove_upto(flow(3), 1, 1, |_| {});
    assert!(!full(&mut log, 3, 1, 2), "a server-ACK shows that the server knows the session");
}
