//! Sessions of which the real server has lost confirmed updates: what is lost, and giving that up.

use super::behind::Noted;
use super::ledger::Ledger;
use super::server::{Redis, ServerSideConfig};
use super::upstream::{Upstream, UpstreamError};
use landfall_pmnet::{SessionKey, SessionRow};

/// A session that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Whose.
    pub session: SessionKey,
    /// The first update that is lost.
    pub first: u32,
    /// The last one.
    pub last: u32,
}

/// The sessions that are behind. The updates that are named were confirmed, so that no device has them any more.
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

/// Gives up what is lost: the next side-car goes on behind it, with what the logs have. A side-car that runs is ended.
///
/// # Errors
/// [`UpstreamError`]; nothing is changed then.
pub fn give_up_lost(config: &ServerSideConfig) -> Result<Vec<Behind>, UpstreamError> {
    let mut upstream = Upstream::connect(&config.access())?;
    let redis = Redis::new(config.clone(), Default::default(), Default::default())?;
    let (ledger, _) = redis.take_over(&mut upstream)?;
    let noted = Noted::fetch(&mut upstream, &config.prefix)?;
    let raised = noted.0.iter().filter_map(|(key, gap)| {
        let row = ledger.row(key)?;
        Some(SessionRow { update: gap.confirmed, ..*row })
    });
    let forget = vec![b"DEL".to_vec(), Ledger::behind_key(&config.prefix).into_bytes()];
    ledger.write_alone(&mut upstream, &ledger.stage_rows(raised), &[forget])?;
    Ok(list(&noted))
}
