//! Sessions of which the real server has lost confirmed updates: what is lost, and giving that up.

use super::behind::Noted;
use super::ledger::Ledger;
use super::resp;
use super::server::{Redis, ServerSideConfig};
use super::upstream::{Upstream, UpstreamError, refuse_errors};
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
    let commands = ledger.commands(&ledger.stage_rows(raised));
    upstream.push(&[b"WATCH", Ledger::meta_key(&config.prefix).as_bytes()]);
    refuse_errors(&upstream.call(None)?, "to watch a key")?;
    upstream.push(&[b"MULTI"]);
    for command in &commands {
        upstream.push(&command.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    upstream.push(&[b"DEL", Ledger::behind_key(&config.prefix).as_bytes()]);
    upstream.push(&[b"EXEC"]);
    upstream.send()?;
    let mut last = Vec::new();
    for _ in 0..commands.len() + 3 {
        last = upstream.reply(None)?;
        refuse_errors(&last, "to give up what is lost")?;
    }
    if resp::is_null(&last) { Err(UpstreamError::Fenced) } else { Ok(list(&noted)) }
}
