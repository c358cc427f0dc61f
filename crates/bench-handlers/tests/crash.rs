//! Crashes: after each, the store has the contents of the last committed batch, or of the one in flight.
//!
//! Fault model: that of `landfall_media::sim`. Short traces crash after every operation on the medium, with every
//! subset of the pending lines where they are few. Long traces crash at random points with random survivors, both drawn
//! from a seed.
#![allow(clippy::print_stdout, reason = "the number of images is part of the result")]

mod common;

use common::{DEFERRED, Model, Rng, Step, apply, create, open, options};
use landfall_bench_handlers::{HandlerError, Store, Structure};
use landfall_media::Media;
use landfall_media::sim::{CrashImage, CrashState, SimMedia, SimOptions};
use std::sync::Arc;

/// Size of the region of a short trace, bytes: every image is a full copy.
const SHORT_BYTES: u64 = 48 << 10;
/// Maximum number of pending lines for which every subset is tried.
const LINES_MAX: usize = 8;
/// Number of images sampled in each state, including torn ones.
const SAMPLES: u64 = 6;

type Batches = Vec<Vec<Step>>;

fn set(key: &str, len: usize) -> Step {
    Step::Set { key: key.into(), value: vec![key.len() as u8 + len as u8; len] }
}

fn delete(key: &str) -> Step {
    Step::Delete { key: key.into() }
}

/// The states after each batch, starting with the empty one.
fn states(batches: &Batches) -> Vec<Model> {
    let mut model = Model::default();
    let mut states = vec![model.clone()];
    for batch in batches {
        batch.iter().for_each(|step| model.step(step));
        states.push(model.clone());
    }
    states
}

/// Runs batches on a medium. Returns the number of operations on the medium after creation, and after each commit.
fn run(media: &Arc<SimMedia>, structure: Structure, batches: &Batches) -> Result<Vec<u64>, HandlerError> {
    let mut store = create(media, structure)?;
    let mut ends = vec![media.ops().total()];
    for batch in batches {
        batch.iter().try_for_each(|step| apply(&mut store, step))?;
        store.commit()?;
        ends.push(media.ops().total());
    }
    Ok(ends)
}

fn images(state: &CrashState, seed: u64) -> impl Iterator<Item = CrashImage> {
    let all = state.crash_images_exhaustive(LINES_MAX).into_iter().flatten();
    let seeds = (0..SAMPLES).map(move |n| seed * 1000 + n);
    let state = state.clone();
    all.chain(seeds.map(move |seed| state.draw(seed)))
}

/// Opens an image, and returns which of the states it holds.
fn judge(
    image: &CrashImage,
    structure: Structure,
    states: &[Model],
    committed: usize,
) -> (Arc<SimMedia>, Store, usize) {
    let media = SimMedia::restart(image, SimOptions::default());
    let store = open(&media, structure).expect("recovery");
    let found = Model::of(&store).expect("whole after recovery");
    let index = (committed..=committed + 1).find(|index| states.get(*index) == Some(&found));
    let index = index.unwrap_or_else(|| panic!("neither batch {committed} nor the next: {found:?}"));
    (media, store, index)
}

/// Crashes a trace after every operation. Returns the number of images tried.
fn every_crash(structure: Structure, medium: SimOptions, batches: &Batches) -> u64 {
    let fresh = || SimMedia::new(SHORT_BYTES, medium);
    let ends = run(&fresh(), structure, batches).expect("nothing fails");
    let states = states(batches);
    let mut tried = 0;
    for at in 1..=ends[ends.len() - 1] {
        let media = fresh();
        media.freeze_at(at);
        run(&media, structure, batches).expect("nothing fails");
        let committed = ends.iter().filter(|end| **end <= at).count().saturating_sub(1);
        for image in images(&media.frozen().expect("reached"), at) {
            judge(&image, structure, &states, committed);
            tried += 1;
        }
    }
    tried
}

#[test]
fn short_traces_survive_a_crash_after_every_operation() {
    let batches = vec![
        vec![set("a", 10)],
        vec![set("a", 200), set("b", 5)],
        vec![delete("a"), Step::Floor(b"floor".to_vec())],
        vec![set("c", 70), Step::RemoveRow { key: b"session".to_vec() }],
    ];
    for structure in Structure::ALL {
        for medium in [SimOptions::default(), DEFERRED] {
            let tried = every_crash(structure, medium, &batches);
            println!("{structure:?}, {medium:?}: {tried} images");
            assert!(tried > 100);
        }
    }
}

#[test]
fn splits_and_merges_survive_a_crash_after_every_operation() {
    let fill =
        |range: std::ops::Range<u32>| range.map(|n| set(&format!("key{n:02}"), 8)).collect::<Vec<Step>>();
    let empty: Vec<Step> = (0..18).map(|n| delete(&format!("key{n:02}"))).collect();
    let batches = vec![fill(0..8), fill(8..20), empty];
    for structure in Structure::ALL {
        every_crash(structure, SimOptions::default(), &batches);
    }
}

/// Runs batches in one region and crashes repeatedly at random points. The store continues each time from what it
/// finds.
fn campaign(structure: Structure, seed: u64) {
    let mut rng = Rng(seed);
    let mut media = SimMedia::new(common::REGION_BYTES, SimOptions { deferred: seed % 2 == 1 });
    let mut store = create(&media, structure).expect("room");
    let mut model = Model::default();
    for _ in 0..6 {
        // Number of operations until the crash: one or two batches take some dozens.
        media.freeze_at(media.ops().total() + 1 + rng.below(400));
        let mut states = vec![model.clone()];
        let mut committed = 0;
        while media.frozen().is_none() {
            for _ in 0..1 + rng.below(6) {
                let step = rng.step();
                apply(&mut store, &step).expect("room");
                model.step(&step);
            }
            states.push(model.clone());
            store.commit().expect("nothing fails");
            committed += usize::from(media.frozen().is_none());
        }
        let image = media.frozen().expect("reached").draw(rng.draw());
        let (next, opened, index) = judge(&image, structure, &states, committed);
        (media, store, model) = (next, opened, states[index].clone());
    }
}

#[test]
fn long_traces_survive_repeated_crashes() {
    for structure in Structure::ALL {
        for seed in 0..40 {
            println!("{structure:?}, seed {seed}");
            campaign(structure, seed);
        }
    }
}

/// A region whose last batch is committed, and is applied at home in part or not at all.
fn unfinished(structure: Structure) -> (Vec<u8>, Model) {
    let batches = vec![vec![set("a", 10), set("b", 20)], vec![set("a", 300), delete("b")], vec![set("c", 5)]];
    let media = SimMedia::new(SHORT_BYTES, SimOptions::default());
    run(&media, structure, &batches).expect("nothing fails");
    (media.crash_state().durable_image(), states(&batches).pop().expect("there are some"))
}

#[test]
fn a_crash_in_recovery_is_survived() {
    let structure = Structure::RedBlack;
    let (image, model) = unfinished(structure);
    let media = SimMedia::from_image(image.clone(), SimOptions::default());
    open(&media, structure).expect("recovery");
    for at in 1..=media.ops().total() {
        let media = SimMedia::from_image(image.clone(), SimOptions::default());
        media.freeze_at(at);
        open(&media, structure).expect("recovery");
        for image in images(&media.frozen().expect("reached"), at) {
            judge(&image, structure, std::slice::from_ref(&model), 0);
        }
    }
}

/// The process ends in the middle of a commit, so that its stores are visible; then the power fails.
#[test]
fn a_power_failure_after_the_end_of_the_process_is_survived() {
    let structure = Structure::BTree;
    let media = SimMedia::new(SHORT_BYTES, SimOptions::default());
    let mut store = create(&media, structure).expect("room");
    let batches = vec![vec![set("a", 10)], vec![set("a", 20), set("b", 1)], vec![set("a", 30)]];
    let states = states(&batches);
    for batch in &batches[..2] {
        batch.iter().try_for_each(|step| apply(&mut store, step)).expect("room");
        store.commit().expect("nothing fails");
    }
    // The third batch's record is stored, but never fenced: to the next process it looks complete.
    media.fail_at(media.ops().fences + 1);
    apply(&mut store, &batches[2][0]).expect("room");
    assert!(store.commit().is_err());
    drop(store);
    let visible =
        media.bytes(landfall_media::Extent::new(0, SHORT_BYTES as u32)).expect("in bounds").to_vec();
    let durable = media.crash_state().durable();
    for at in 1..200 {
        let media = SimMedia::restart(&durable, SimOptions::default());
        media.store(0, &visible).expect("in bounds");
        media.freeze_at(media.ops().total() + at);
        open(&media, structure).expect("recovery");
        let Some(state) = media.frozen() else { return };
        for image in images(&state, at) {
            judge(&image, structure, &states, 2);
        }
    }
    panic!("recovery has an end");
}

#[test]
fn a_failed_commit_closes_the_store_until_it_is_opened_again() {
    let structure = Structure::HashMap;
    let media = SimMedia::new(SHORT_BYTES, SimOptions::default());
    let mut store = create(&media, structure).expect("room");
    apply(&mut store, &set("a", 10)).expect("room");
    store.commit().expect("nothing fails");
    media.fail_at(media.ops().fences + 1);
    apply(&mut store, &set("b", 10)).expect("room");
    assert!(matches!(store.commit(), Err(HandlerError::Media(_))));
    assert!(matches!(apply(&mut store, &set("c", 10)), Err(HandlerError::Closed)));
    assert!(matches!(store.commit(), Err(HandlerError::Closed)));
    assert_eq!(store.len().expect("readable"), 1, "the batch that failed is not shown");
    let states = states(&vec![vec![set("a", 10)], vec![set("b", 10)]]);
    for seed in 0..20 {
        judge(&media.crash_state().draw(seed), structure, &states, 1);
    }
}

#[test]
fn a_damaged_pool_is_an_error_and_never_a_panic() {
    for structure in Structure::ALL {
        let media = SimMedia::new(SHORT_BYTES, SimOptions::default());
        let fill = (0..30).map(|n| set(&format!("key{n}"), 9)).collect();
        run(&media, structure, &vec![fill, vec![delete("key3")]]).expect("nothing fails");
        let whole =
            media.bytes(landfall_media::Extent::new(0, SHORT_BYTES as u32)).expect("in bounds").to_vec();
        let heap = 4096 + 2 * common::LOG_BYTES;
        let mut rng = Rng(structure.tag());
        for _ in 0..1500 {
            let media = SimMedia::from_image(whole.clone(), SimOptions::default());
            let Ok(mut store) = Store::open(Arc::clone(&media) as Arc<dyn Media>, options(structure)) else {
                panic!("nothing is damaged yet")
            };
            for _ in 0..1 + rng.below(3) {
                let word = heap + rng.below(1200) * 8;
                let other = heap + rng.below(140) * 64 + rng.below(2);
                let flip = rng.below(2) == 0;
                if flip {
                    media.damage(word + rng.below(8), 1 << rng.below(8))
                } else {
                    _ = media.store_u64(word, other)
                }
            }
            _ = store.check();
            _ = (store.entries(), store.rows());
            for n in 0..32 {
                let key = format!("key{n}");
                let step = if rng.below(2) == 0 { set(&key, 100) } else { delete(&key) };
                _ = apply(&mut store, &step);
            }
            _ = store.commit();
        }
    }
}
