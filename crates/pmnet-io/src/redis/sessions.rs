//! Lists and clears the sessions of a server's side-car, whose rows are in the real server.

use super::ledger::{Ledger, Staged};
use super::noted::Noted;
use super::state::{Redis, ServerSideConfig};
use super::upstream::{Upstream, UpstreamError};
use landfall_pmnet::{SessionKey, SessionRow};
use std::time::{Duration, SystemTime};

/// A session in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Row of the session.
    pub row: SessionRow,
    /// When the row was written last; `None` for rows of versions that did not store the time.
    pub written: Option<SystemTime>,
    /// The real server has lost confirmed updates of the session.
    pub behind: bool,
}

impl Listed {
    /// Time since the row was written last.
    pub fn idle(&self) -> Option<Duration> {
        self.written.and_then(|written| written.elapsed().ok())
    }
}

/// All sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The sessions, in order of client and number.
    pub sessions: Vec<Listed>,
    /// The floor: every session whose row was evicted used numbers up to this one only.
    pub floor: u32,
}

/// Result of clearing a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleared {
    /// The row is deleted.
    Removed,
    /// The session was open and is ended now. Its row is evicted like those of other ended sessions.
    Ended,
    /// The session is unchanged.
    Kept(Kept),
}

/// Why a session is not cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    /// The session is open, and clearing it was not forced.
    #[error(
        "it is open. Updates above {applied} that devices hold, or its client sends, would be refused and lost, though \
         they may have been reported as durable; --force ends it all the same"
    )]
    Open {
        /// Last update that is applied.
        applied: u32,
    },
    /// Confirmed updates of the session are lost.
    #[error("confirmed updates of it are lost: see `landfall pmnet reconcile` first")]
    Behind,
    /// Without the row, sessions that begin later would have too few numbers.
    #[error("its numbers are too high: sessions that begin after its row is deleted would begin above them")]
    High,
    /// The session is that of a client without session starts, and clearing it was not forced.
    #[error(
        "it is one of a client without session starts: once its row is deleted, no such session can begin; --force \
         deletes it all the same"
    )]
    Foreign,
    /// The row has changed since it was listed.
    #[error("it has changed in the meantime: list the sessions again")]
    Changed,
}

/// Lists all sessions. Changes nothing.
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

/// Clears sessions, and returns the result for each. A side-car that is running ends, unless there is nothing to clear.
///
/// # Errors
/// [`UpstreamError`]. Nothing is changed then.
pub fn clear(
    config: &ServerSideConfig,
    wanted: &[Listed],
    force: bool,
) -> Result<Vec<(SessionKey, Cleared)>, UpstreamError> {
    let mut decisions: Vec<(Listed, Cleared)> = wanted.iter().map(|one| (*one, decide(one, force))).collect();
    if decisions.iter().all(|(_, decision)| matches!(decision, Cleared::Kept(_))) {
        return Ok(names(&decisions));
    }
    let mut upstream = Upstream::connect(&config.access())?;
    let redis = Redis::new(config.clone(), Default::default(), Default::default())?;
    let (ledger, _) = redis.take_over(&mut upstream)?;
    for (listed, decision) in &mut decisions {
        if !matches!(decision, Cleared::Kept(_)) && ledger.row(&listed.row.key) != Some(&listed.row) {
            *decision = Cleared::Kept(Kept::Changed);
        }
    }
    let staged = stage(&ledger, &decisions);
    ledger.write_alone(&mut upstream, &staged, &[])?;
    Ok(names(&decisions))
}

fn names(decisions: &[(Listed, Cleared)]) -> Vec<(SessionKey, Cleared)> {
    decisions.iter().map(|(listed, decision)| (listed.row.key, *decision)).collect()
}

fn decide(Listed { row, behind, .. }: &Listed, force: bool) -> Cleared {
    match row {
        _ if *behind => Cleared::Kept(Kept::Behind),
        row if !row.ended && !force => Cleared::Kept(Kept::Open { applied: row.update }),
        row if !row.ended => Cleared::Ended,
        row if !row.is_evictable() => Cleared::Kept(Kept::High),
        row if row.nonce == 0 && !force => Cleared::Kept(Kept::Foreign),
        _ => Cleared::Removed,
    }
}

/// Stages the changes. Deleted rows raise the floor, so that a late copy of one of their updates is recognized as
/// applied. Sessions that are ended here come last in the order of eviction.
fn stage(ledger: &Ledger, decisions: &[(Listed, Cleared)]) -> Staged {
    let of = |wanted: Cleared| {
        decisions.iter().filter(move |(_, decision)| *decision == wanted).map(|(listed, _)| listed.row)
    };
    let last = ledger.last_touched();
    // The number is a value in the real server, which another program may have changed to the highest one.
    let touched = |at: usize| last.saturating_add(1 + at as u64);
    let ended = of(Cleared::Ended).enumerate();
    let ended = ended.map(|(at, row)| SessionRow { ended: true, touched: touched(at), ..row });
    let mut staged = ledger.stage_rows(ended);
    for row in of(Cleared::Removed) {
        ledger.stage_drop(&row.key, row.height() + 1, &mut staged);
    }
    staged
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Meta;
    use super::*;

    fn listed(update: u32, ended: bool) -> Listed {
        let key = SessionKey { client: "10.0.0.1:40000".parse().unwrap(), session: 7 };
        let row = SessionRow { key, nonce: 1, update, bypass: 1 << 31, ended, touched: 3, lease: 0 };
        Listed { row, written: None, behind: false }
    }

    #[test]
    fn sessions_are_ended_behind_a_row_with_the_highest_number() {
        for (last, touched) in [(3, 4), (u64::MAX, u64::MAX)] {
            let mut one = listed(4, false);
            one.row.touched = last;
            let mut ledger = Ledger::new("p", Meta { slots: 1, ..Meta::default() });
            ledger.found(0, Some(&one.row.to_bytes())).unwrap();
            let staged = stage(&ledger, &[(one, Cleared::Ended)]);
            ledger.apply(&staged);
            let ended = SessionRow { ended: true, touched, ..one.row };
            assert_eq!(ledger.row(&one.row.key), Some(&ended));
        }
    }

    #[test]
    fn unsafe_deletions_need_force_and_some_are_always_refused() {
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
            assert_eq!([decide(&one, false), decide(&one, true)], [gently, by_force], "{one:?}");
        }
    }
}
