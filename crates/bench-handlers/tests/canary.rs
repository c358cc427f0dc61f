//! The canary: with any one flush or fence skipped, a check must fail. If none fails, either the checks miss that step
//! or the protocol does not need it.
#![allow(clippy::print_stdout, reason = "the trace that detects each site is part of the result")]

mod common;

use common::{Model, Step, apply, create, open};
use landfall_bench_handlers::{HandlerError, Structure};
use landfall_media::sim::{SimMedia, SimOptions};
use landfall_media::{Extent, Media, Site};
use std::sync::Arc;

/// The sites of the pool's protocol; it uses no others.
const SITES: [Site; 6] =
    [Site::Record, Site::Commit, Site::Data, Site::Order, Site::Superblock, Site::SuperblockFence];
const REGION_BYTES: u64 = 96 << 10;
const STRUCTURE: Structure = Structure::BTree;

/// A trace that skips one site, from the step on where skipping it has an effect. Returns false when the contents found
/// are wrong.
type Trace = fn(Option<Site>) -> Result<bool, HandlerError>;

const TRACES: [(&str, Trace); 4] = [
    ("a crash after creation", creation),
    ("a crash after commits", commits),
    ("recovery, further commits, a crash", recovery),
    ("the process dies, then the power fails in recovery", death),
];

#[test]
fn traces_pass_where_nothing_is_skipped() {
    for (name, trace) in TRACES {
        assert!(trace(None).expect("nothing fails"), "{name}");
    }
}

#[test]
fn every_skipped_flush_and_fence_is_detected() {
    for site in SITES {
        let fails = |trace: &Trace| !matches!(trace(Some(site)), Ok(true));
        let caught = TRACES.iter().find(|(_, trace)| fails(trace));
        let (name, _) = caught.unwrap_or_else(|| panic!("no trace detects that {site:?} is skipped"));
        println!("{site:?}: caught by {name}");
    }
}

/// The flush that recovery repeats is a separate step, although its site is that of a commit.
#[test]
fn a_flush_that_recovery_skips_is_detected() {
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

/// A crash in which everything pending is lost.
fn crash(media: &SimMedia) -> Arc<SimMedia> {
    SimMedia::from_image(media.crash_state().durable_image(), SimOptions::default())
}

fn creation(skip: Option<Site>) -> Result<bool, HandlerError> {
    let media = SimMedia::new(REGION_BYTES, SimOptions::default());
    lie(&media, skip);
    create(&media, STRUCTURE)?;
    // Creation reported success: if there is no pool, it was lost.
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

/// The changes that recovery has applied must be durable when the log is overwritten.
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

/// A record is visible but not durable when recovery begins, and its lines reach the medium before it does.
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
