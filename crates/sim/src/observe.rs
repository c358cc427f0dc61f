//! Reads all keys as a client does: by scans in both directions, and each key by name.

use crate::oracle::{Key, State, Value, differences};
use crate::violation::{Violation, ensure};
use landfall_kv::{Engine, Item, RangeQuery, Recovered, Recovery};
use landfall_media::Media;
use std::sync::Arc;

/// Databases that workloads use.
pub(crate) const SPACES: u8 = 2;
/// Shards of the engines that are opened here: few, so that several keys share one.
const SHARDS: usize = 4;
/// Keys of one page of a scan: few, so that scans have several pages.
const PAGE: usize = 7;

/// Opens a region that is not damaged.
///
/// # Errors
/// Recovery reports damage.
pub fn recover(media: &Arc<dyn Media>) -> Result<Engine, Violation> {
    let (engine, recovered) = open(media)?;
    let damaged =
        recovered.damaged.len() as u64 + recovered.damaged_values + recovered.corrected.len() as u64;
    ensure!(damaged == 0, "recovery reports damage where there is none: {recovered:?}");
    ensure!(engine.stats().damaged == 0, "recovery quarantines keys where there is no damage: {recovered:?}");
    Ok(engine)
}

/// Opens a region that may be damaged.
pub(crate) fn open(media: &Arc<dyn Media>) -> Result<(Engine, Recovered), Violation> {
    Ok(Recovery::run(Arc::clone(media), SHARDS)?)
}

/// Reads all keys, and checks that scans and reads by name agree.
///
/// # Errors
/// The first difference.
pub fn observe(engine: &Engine, now_ms: u64) -> Result<State, Violation> {
    let mut state = State::new();
    for space in 0..SPACES {
        let up = scan(engine, space, false, now_ms)?;
        let mut down = scan(engine, space, true, now_ms)?;
        down.reverse();
        ensure!(up == down, "space {space}: a scan up and a scan down disagree");
        ensure!(up.is_sorted_by(|a, b| a.0 < b.0), "space {space}: a scan is out of order");
        ensure!(
            engine.count(space).ungated() >= up.len() as u64,
            "space {space}: fewer keys counted than there are"
        );
        state.extend(up);
    }
    for (key, value) in &state {
        let found = read(engine, key, now_ms)?;
        ensure!(found.as_ref() == Some(value), "{key:?} reads {found:?} by name and {value:?} in order");
        let range = value.bytes.len() / 3..value.bytes.len() / 2;
        let part = engine.get_part(key.space, &key.bytes, now_ms, |_| range.clone())?.ungated();
        let part = part.map(|part| part.to_vec(engine.heap())).transpose()?;
        ensure!(part.as_deref() == Some(&value.bytes[range]), "{key:?} reads otherwise in part");
    }
    Ok(state)
}

/// Reads one key by name.
pub(crate) fn read(engine: &Engine, key: &Key, now_ms: u64) -> Result<Option<Value>, Violation> {
    let item = engine
        .get(key.space, &key.bytes, now_ms)
        .map_err(|e| Violation::from(e).during(format!("{key:?}")))?;
    item.ungated().map(|item| value_of(&item)).transpose()
}

pub(crate) fn value_of(item: &Item<'_>) -> Result<Value, Violation> {
    let bytes = item.bytes()?;
    ensure!(bytes.len() == item.len, "a value of {} bytes says it has {}", bytes.len(), item.len);
    Ok(Value { bytes: bytes.as_ref().into(), expiry_ms: item.expiry_ms })
}

fn scan(engine: &Engine, space: u8, reverse: bool, now_ms: u64) -> Result<Vec<(Key, Value)>, Violation> {
    let mut query = RangeQuery { reverse, ..RangeQuery::all(space) };
    let mut found = Vec::new();
    loop {
        let page = engine.range(&query, PAGE, now_ms)?.ungated();
        for (key, item) in page.items {
            let key = Key { space, bytes: key.as_slice().into() };
            let item = item.map_err(|error| Violation::from(error).during(format!("{key:?} in a scan")))?;
            found.push((key, value_of(&item)?));
        }
        match page.last {
            Some(last) => query.resume_after(last),
            None => return Ok(found),
        }
    }
}

/// Checks that the engine returns exactly `expected`.
pub(crate) fn expect_state(engine: &Engine, expected: &State, now_ms: u64) -> Result<(), Violation> {
    let found = observe(engine, now_ms)?;
    let differences = differences(expected, &found);
    ensure!(differences.is_empty(), "a running engine returns another state: {}", differences.join("; "));
    Ok(())
}
