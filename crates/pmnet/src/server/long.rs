//! Responses longer than one window, and the room for them.

use super::context::Context;
use crate::pieces::Response;
use landfall_net::Instant;

/// A response for which there is room, or that there was no room for it.
#[derive(Debug)]
pub(super) enum Reserved {
    /// The response is to be sent and stored.
    Kept(Response),
    /// There was no room. The client will repeat the bypass.
    Postponed,
}

impl Reserved {
    /// Bytes of the response if it is longer than one window; 0 otherwise.
    pub(super) fn long_bytes(&self, ctx: &Context) -> usize {
        match self {
            Self::Kept(response) if response.bytes.len() > ctx.sizes.response_window() => {
                response.bytes.len()
            }
            _ => 0,
        }
    }
}

/// The long response of a session. It is the session's newest response, because a client has one bypass at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Long {
    pub(super) number: u32,
    pub(super) bytes: usize,
    /// Whether the bypass has changed something, so that it must not be executed again.
    pub(super) changed: bool,
    /// When the client has last requested a part of the response.
    pub(super) asked: Instant,
}
