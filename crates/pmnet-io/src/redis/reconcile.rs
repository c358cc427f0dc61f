//! Sessions of which the real server has lost confirmed updates: list the lost updates, and let the sessions continue
//! without them.

use super::ledger::Ledger;
use super::noted::Noted;
use super::state::{Redis, ServerSideConfig};
use super::upstream::{Upstream, UpstreamError};
use landfall_pmnet::{SessionKey, SessionRow};

/// A session that is behind: the real server has lost confirmed updates of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The session.
    pub session: SessionKey,
    /// Number of the first lost update.
    pub first: u32,
    /// Number of the last lost update.
    pub last: u32,
}

/// Lists the sessions that are behind. The lost updates were confirmed, so that no device has them any more.
///
/// # Errors
/// [`UpstreamError`].
pub fn behind(config: &ServerSideConfig) -> Result<Vec<Behind>, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let noted = Noted::fetch(&mut upstream, &config.prefix)?;
    Ok(list(&noted))
}

fn list(noted: &Noted) -> Vec<Behind> {
    let each = noted.0.iter().map(|(session, gap)| Behind {
        session: *session,
        first: gap.applied.wrapping_add(1),
        last: gap.confirmed,
    });
    each.collect()
}

/// Discards the lost updates, so that their sessions continue without them: the next side-car starts behind them, with the updates that the
/// logs have. A side-car that is running ends.
///
/// # Errors
/// [`UpstreamError`]. Nothing is changed then.
pub fn discard_lost(config: &ServerSideConfig) -> Result<Vec<Behind>, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let redis = Redis::new(config.clone(), Default::default(), Default::default())?;
    let (ledger, _) = redis.take_over(&mut upstream)?;
    let noted = Noted::fetch(&mut upstream, &config.prefix)?;
    let raised = noted.0.iter().filter_map(|(key, gap)| {
        let row = ledger.row(key)?;
        Some(SessionRow { update: gap.confirmed, ..*row })
    });
    let delete = vec![b"DEL".to_vec(), Ledger::behind_key(&config.prefix).into_bytes()];
    ledger.write_alone(&mut upstream, &ledger.stage_rows(raised), &[delete])?;
    Ok(list(&noted))
}
