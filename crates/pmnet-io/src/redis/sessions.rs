//! The sessions of a server's side-car, as the real server has them: to see, and to clear.

use super::behind::Noted;
use super::ledger::{Ledger, Staged};
use super::server::{Redis, ServerSideConfig};
use super::upstream::{Upstream, UpstreamError};
use landfall_pmnet::{SessionKey, SessionRow};
use std::time::{Duration, SystemTime};

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its row.
    pub row: SessionRow,
    /// When that was written last; `None` for rows from before that was noted.
    pub written: Option<SystemTime>,
    /// The real server has lost updates of it that it had confirmed.
    pub behind: bool,
}

impl Listed {
    /// For how long nothing of it was committed.
    pub fn idle(&self) -> Option<Duration> {
        self.written.and_then(|written| written.elapsed().ok())
    }
}

/// All sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// By client and number.
    pub sessions: Vec<Listed>,
    /// Every session that was evicted used lower numbers, or this one.
    pub floor: u32,
}

/// What became of a session that was to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// Its row is gone.
    Removed,
    /// It was open, and has ended: its row goes as those of other sessions that have.
    Ended,
    /// It stays as it is.
    Kept(Kept),
}

/// Why a session stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    /// It is open, and that was not forced.
    #[error(
        "it is open. Updates above {applied} that devices hold, or its client sends, would be refused and lost, though they may have been \
         reported as durable; --force ends it all the same"
    )]
    Open {
        /// The last update that is applied.
        applied: u32,
    },
    /// Confirmed updates of it are lost.
    #[error("updates of it that were confirmed are lost: see `landfall pmnet reconcile` first")]
    Behind,
    /// Sessions that begin later would have too few numbers.
    #[error("its numbers are too high: sessions that begin after its row had gone would begin above them")]
    High,
    /// It is one of a client that knows no session start, and that was not forced.
    #[error(
        "it is one of a client without session starts: once its row has gone, no such session can begin; --force removes it all the same"
    )]
    Foreign,
    /// It is not as it was when it was looked at.
    #[error("it has changed in the meantime: look again")]
    Changed,
}

/// All sessions. Changes nothing.
///
/// # Errors
/// [`UpstreamError`].
pub fn list(config: &ServerSideConfig) -> Result<Listing, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let ledger = Ledger::fetch(&mut upstream, &config.prefix)?;
    let noted = Noted::fetch(&mut upstream, &config.prefix)?;
    let floor = ledger.meta.floor;
    let listed = |(row, written): (SessionRow, Option<SystemTime>)| Listed {
        row,
        written,
        behind: noted.0.contains_key(&row.key),
    };
    Ok(Listing { sessions: ledger.into_listed().map(listed).collect(), floor })
}

/// Clears sessions, and tells what became of each. A side-car that runs is ended, unless there is nothing to do.
///
/// # Errors
/// [`UpstreamError`]; nothing is changed then.
pub fn clear(
    config: &ServerSideConfig,
    wanted: &[Listed],
    force: bool,
) -> Result<Vec<(SessionKey, Cleared)>, UpstreamError> {
    let mut fates: Vec<(Listed, Cleared)> = wanted.iter().map(|one| (*one, fate(one, force))).collect();
    if fates.iter().all(|(_, fate)| matches!(fate, Cleared::Kept(_))) {
        return Ok(names(&fates));
    }
    let mut upstream = Upstream::connect(&config.access())?;
    let redis = Redis::new(config.clone(), Default::default(), Default::default())?;
    let (ledger, _) = redis.take_over(&mut upstream)?;
    for (listed, fate) in &mut fates {
        if !matches!(fate, Cleared::Kept(_)) && ledger.row(&listed.row.key) != Some(&listed.row) {
            *fate = Cleared::Kept(Kept::Changed);
        }
    }
    let staged = stage(&ledger, &fates);
    ledger.write_alone(&mut upstream, &staged, &[])?;
    Ok(names(&fates))
}

fn names(fates: &[(Listed, Cleared)]) -> Vec<(SessionKey, Cleared)> {
    fates.iter().map(|(listed, fate)| (listed.row.key, *fate)).collect()
}

fn fate(Listed { row, behind, .. }: &Listed, force: bool) -> Cleared {
    match row {
        _ if *behind => Cleared::Kept(Kept::Behind),
        row if !row.ended && !force => Cleared::Kept(Kept::Open { applied: row.update }),
        row if !row.ended => Cleared::Ended,
        row if !row.is_evictable() => Cleared::Kept(Kept::High),
        row if row.nonce == 0 && !force => Cleared::Kept(Kept::Foreign),
        _ => Cleared::Removed,
    }
}

/// Rows that go raise the floor, so that a late copy of an update of theirs is taken for what it is; those that end come last in the order
/// in which rows go.
fn stage(ledger: &Ledger, fates: &[(Listed, Cleared)]) -> Staged {
    let of =
        |wanted: Cleared| fates.iter().filter(move |(_, fate)| *fate == wanted).map(|(listed, _)| listed.row);
    let last = ledger.last_touched();
    let ended =
        (last + 1..).zip(of(Cleared::Ended)).map(|(touched, row)| SessionRow { ended: true, touched, ..row });
    let mut staged = ledger.stage_rows(ended);
    for row in of(Cleared::Removed) {
        ledger.stage_drop(&row.key, row.height() + 1, &mut staged);
    }
    staged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(update: u32, ended: bool) -> Listed {
        let key = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session: 7 };
        let row = SessionRow { key, nonce: 1, update, bypass: 1 << 31, ended, touched: 3, lease: 0 };
        Listed { row, written: None, behind: false }
    }

    #[test]
    fn what_is_unsafe_is_refused_unless_it_is_forced_and_some_of_it_even_then() {
        let (open, ended) = (listed(4, false), listed(4, true));
        let high = listed(1 << 31, true);
        let behind = Listed { behind: true, ..ended };
        let foreign = Listed { row: SessionRow { nonce: 0, ..ended.row }, ..ended };
        for (one, gently, by_force) in [
            (ended, Cleared::Removed, Cleared::Removed),
            (open, Cleared::Kept(Kept::Open { applied: 4 }), Cleared::Ended),
            (high, Cleared::Kept(Kept::High), Cleared::Kept(Kept::High)),
            (behind, Cleared::Kept(Kept::Behind), Cleared::Kept(Kept::Behind)),
            (foreign, Cleared::Kept(Kept::Foreign), Cleared::Removed),
        ] {
            assert_eq!([fate(&one, false), fate(&one, true)], [gently, by_force], "{one:?}");
        }
    }
}
