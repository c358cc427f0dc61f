//! Helpers for the tests: choose seeds, report the seed that failed, create and open regions.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::print_stdout, reason = "a seed that is not printed cannot be repeated")]

use landfall_heap::{NewRegion, SlotId, Source, Writer};
use landfall_kv::{Engine, KvError, Recovered, Recovery, SetRequest};
use landfall_media::sim::{CrashImage, SimMedia, SimOptions};
use landfall_media::{Media, RUN_SIZE};
use landfall_sim::Violation;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The first seed by default. It is fixed, so that a plain `cargo test` is repeatable.
const FIRST_SEED: u64 = 1;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// The number of runs that the environment asks for, or `default_count`.
pub fn count(default_count: u64) -> u64 {
    from_environment("LANDFALL_SIM_SEEDS").unwrap_or(default_count)
}

/// The first seed and the number of seeds that the environment asks for, or `default_count` seeds.
fn seeds(default_count: u64) -> (u64, u64) {
    match (from_environment("LANDFALL_SIM_SEED"), from_environment("LANDFALL_SIM_SEEDS")) {
        (None, count) => (FIRST_SEED, count.unwrap_or(default_count)),
        (Some(first), count) => (first, count.unwrap_or(1)),
    }
}

/// True if the environment chooses the seeds.
pub fn seeds_are_chosen() -> bool {
    ["LANDFALL_SIM_SEED", "LANDFALL_SIM_SEEDS"].iter().any(|name| from_environment(name).is_some())
}

/// Runs `campaign` on every core over the seeds that the environment asks for, or over `default_count` seeds. Returns
/// the results in no particular order.
///
/// # Panics
/// If a seed fails, once the seeds under way have ended. The message has the command that repeats the seed.
pub fn over_seeds<T: std::fmt::Debug + Send>(
    test: &str,
    default_count: u64,
    campaign: impl Fn(u64) -> Result<T, Violation> + Sync,
) -> Vec<T> {
    let (first, count) = seeds(default_count);
    println!("{test}: {count} seeds from {first}");
    let (next, outcomes) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.saturating_add(count) {
                return;
            }
            let outcome = run_seed(test, seed, &campaign);
            if outcome.is_err() {
                next.store(u64::MAX / 2, Ordering::Relaxed);
            }
            outcomes.lock().expect("no seed panics outside of its run").push(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner().expect("no seed panics outside of its run");
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|failure| panic!("{failure}"))).collect()
}

fn run_seed<T: std::fmt::Debug>(
    test: &str,
    seed: u64,
    campaign: &impl Fn(u64) -> Result<T, Violation>,
) -> Result<T, String> {
    let again = format!("LANDFALL_SIM_SEED={seed} cargo test -p landfall-sim --test {test} -- --nocapture");
    match catch_unwind(AssertUnwindSafe(|| campaign(seed))) {
        Ok(Ok(summary)) => {
            println!("seed {seed}: {summary:?}");
            Ok(summary)
        }
        Ok(Err(violation)) => Err(format!("seed {seed}: {violation}\nagain with: {again}")),
        Err(_) => Err(format!("seed {seed} panicked\nagain with: {again}")),
    }
}

/// An empty region of `runs` MiB, opened.
pub fn create(runs: u64, options: SimOptions) -> (Arc<SimMedia>, Engine) {
    let media = SimMedia::new(runs * RUN_SIZE, options);
    let new = NewRegion { salt: [42; 16], hash_seed: 7, created_ms: 1 };
    landfall_heap::create(&*media, &new).expect("a region can be created");
    let engine = reopen(&media);
    (media, engine)
}

/// Opens the region on `media`.
pub fn reopen(media: &Arc<SimMedia>) -> Engine {
    try_reopen(media).expect("the region opens").0
}

/// Opens the region on `media`, which may be damaged, and returns the report of recovery, too.
pub fn try_reopen(media: &Arc<SimMedia>) -> Result<(Engine, Recovered), KvError> {
    Recovery::run(Arc::clone(media) as Arc<dyn Media>, 4)
}

/// A medium that holds an image.
pub fn medium(image: impl Into<CrashImage>) -> Arc<SimMedia> {
    SimMedia::restart(&image.into(), SimOptions::default())
}

/// Some of the images that a crash at this moment may leave: one without the pending lines, and four samples.
pub fn crash_now(media: &SimMedia) -> impl Iterator<Item = Arc<SimMedia>> {
    let state = media.crash_state();
    let images = std::iter::once(state.durable());
    images.chain((0..4).map(move |seed| state.draw(seed))).map(medium)
}

/// Writes a key in database 0.
pub fn set(engine: &Engine, writer: &mut Writer, key: &[u8], value: &[u8]) -> SlotId {
    let request =
        SetRequest { space: 0, key, key_at: None, value: Source::Bytes(value), expiry_ms: 0, arrival_ns: 1 };
    engine.set(writer, &request).expect("there is room").ungated().slot
}

/// Opens the region on `media` and reads a key of database 0.
pub fn get(media: &Arc<SimMedia>, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
    let engine = reopen(media);
    let item = engine.get(0, key, 0)?.ungated();
    Ok(item.map(|item| item.to_vec()).transpose()?)
}
