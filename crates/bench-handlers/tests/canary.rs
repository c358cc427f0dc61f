//! The canary: with any one flush or fence left out, a check must fail. If one survives, either the checks are blind
//! there or the protocol does not need the step.
#![allow(clippy::print_stdout, reason = "what noticed each belongs to the result")]

mod common;

use common::{Model, Step, apply, create, open};
use landfall_bench_handlers::{HandlerError, Structure};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, Site};
use std::sync::Arc;

/// The sites of the pool's protocol; no other is used.
const SITES: [Site; 6] =
    [Site::Record, Site::Commit, Site::Data, Site::Order, Site::Superblock, Site::SuperblockFence];
const REGION_BYTES: u64 = 96 << 10;
const STRUCTURE: Structure = Structure::BTree;

/// A trace that leaves one site out, from the place on where that hurts. False: what was found is wrong.
type Trace = fn(Option<Site>) -> Result<bool, HandlerError>;

const TRACES: [(&str, Trace); 4] = [
    ("a crash after creation", creation),
    ("a crash after commits", commits),
    ("recovery, further commits, a crash", recovery),
    ("the process dies, then the power fails in recovery", death),
];

#[test]
fn traces_pass_where_nothing_is_left_out() {
    for (name, trace) in TRACES {
        assert!(trace(None).expect("nothing fails"), "{name}");
    }
}

#[test]
fn every_flush_and_every_fence_left_out_is_caught() {
    for site in SITES {
        let fails = |trace: &Trace| !matches!(trace(Some(site)), Ok(true));
        let caught = TRACES.iter().find(|(_, trace)| fails(trace));
        let (name, _) = caught.unwrap_or_else(|| panic!("nothing notices that {site:?} is left out"));
        println!("{site:?}: caught by {name}");
    }
}

/// What recovery flushes again is a step of its own, though its site is that of a commit.
#[test]
fn records_that_recovery_does_not_flush_again_are_caught() {
    for site in [Site::Record, Site::Order] {
        assert!(!matches!(death(Some(site)), Ok(true)), "{site:?}");
    }
}

#[test]
fn no_other_site_matters() {
    for site in Site::ALL.into_iter().filter(|site| !SITES.contains(site)) {
        for (name, trace) in TRACES {
            assert!(trace(Some(site)).expect("nothing fails"), "{name}, {site:?}");
        }
    }
}

fn lie(media: &SimMedia, skip: Option<Site>) {
    skip.into_iter().for_each(|site| media.skip_site(site));
}

fn set(number: u64) -> Step {
    Step::Set { key: vec![b'a' + (number % 3) as u8], value: number.to_le_bytes().to_vec() }
}

/// Crashes so that everything pending is lost.
fn crash(media: &SimMedia) -> Arc<SimMedia> {
    SimMedia::from_image(media.crash_state().durable_image(), SimOptions::default())
}

fn creation(skip: Option<Site>) -> Result<bool, HandlerError> {
    let media = SimMedia::new(REGION_BYTES, SimOptions::default());
    lie(&media, skip);
    create(&media, STRUCTURE)?;
    // It said that there is a pool: one that is not there is one that is lost.
    landfall_bench_handlers::Pool::open(crash(&media))?;
    Ok(true)
}

fn commits(skip: Option<Site>) -> Result<bool, HandlerError> {
    let media = SimMedia::new(REGION_BYTES, SimOptions::default());
    let (mut store, mut model) = (create(&media, STRUCTURE)?, Model::default());
    lie(&media, skip);
    for number in 0..5 {
        apply(&mut store, &set(number))?;
        model.step(&set(number));
        store.commit()?;
    }
    Ok(Model::of(&open(&crash(&media), STRUCTURE)?)? == model)
}

/// What recovery has brought home must be there when the log is overwritten.
fn recovery(skip: Option<Site>) -> Result<bool, HandlerError> {
    let media = SimMedia::new(REGION_BYTES, SimOptions::default());
    let (mut store, mut model) = (create(&media, STRUCTURE)?, Model::default());
    for number in 0..6 {
        apply(&mut store, &set(number))?;
        model.step(&set(number));
        store.commit()?;
    }
    let media = crash(&media);
    lie(&media, skip);
    let mut store = open(&media, STRUCTURE)?;
    for number in 0..3 {
        store.put_row(b"r", &[number])?;
        model.rows.insert(b"r".to_vec(), vec![number]);
        store.commit()?;
    }
    Ok(Model::of(&open(&crash(&media), STRUCTURE)?)? == model)
}

/// A record is visible and not durable when recovery begins, and its lines reach the medium before it does.
fn death(skip: Option<Site>) -> Result<bool, HandlerError> {
    let media = SimMedia::new(REGION_BYTES, SimOptions::default());
    let (mut store, mut model) = (create(&media, STRUCTURE)?, Model::default());
    for number in 0..3 {
        apply(&mut store, &set(number))?;
        model.step(&set(number));
        store.commit()?;
    }
    media.fail_at(media.ops().fences + 1);
    apply(&mut store, &set(3))?;
    apply(&mut store, &set(4))?;
    let before = model.clone();
    model.step(&set(3));
    model.step(&set(4));
    assert!(store.commit().is_err());
    let visible = media.bytes(Extent::new(0, REGION_BYTES as u32))?.to_vec();
    let durable = media.crash_state().durable_image();
    for at in 1..100 {
        let media = SimMedia::from_image(durable.clone(), SimOptions::default());
        media.store(0, &visible)?;
        lie(&media, skip);
        media.freeze_at(media.ops().total() + at);
        open(&media, STRUCTURE)?;
        let Some(state) = media.frozen() else { return Ok(true) };
        for seed in 0..40 {
            let media = SimMedia::from_image(state.crash_image_seeded(seed), SimOptions::default());
            let found = Model::of(&open(&media, STRUCTURE)?)?;
            if found != model && found != before {
                return Ok(false);
            }
        }
    }
    panic!("recovery has an end");
}
