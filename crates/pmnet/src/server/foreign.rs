//! Sessions of the authors' public release. They have no session start, one numbering for updates and bypasses, and
//! an answer in one packet to each request.
//!
//! What the release does, and how a server handles it: `docs/format/pmnet.md`, "Foreign clients and servers".

use super::bypasses::Request;
use super::row::SessionRow;
use super::session::{Numbering, Session};
use super::state::Server;
use crate::identity::SessionKey;
use crate::wire::{Body, FIRST_BYPASS, Header, Packet, SENT_AGAIN, kind};
use core::net::SocketAddr;
use std::time::Duration;

/// Most bytes of a response. It is sent in one datagram.
const RESPONSE_MAX: usize = 32 << 10;
/// A foreign session may be evicted when no packet of it has arrived for this time.
const SILENT: Duration = Duration::from_secs(3600);

impl Server {
    /// Handles a packet of a foreign client, or of a device that sends it again. False for packets that Landfall's
    /// clients send, too.
    ///
    /// A packet without a session is never refused. A refusal would make a device delete the update, and would make
    /// a client of the release exit with an error.
    pub(super) fn handle_foreign(&mut self, from: SocketAddr, key: SessionKey, packet: &Packet<'_>) -> bool {
        let seq = packet.header.seq;
        if !matches!(packet.body, Body::Update(_) | Body::Bypass { after: None, .. }) || seq >= FIRST_BYPASS {
            return false;
        }
        if seq == 0 {
            self.begin_foreign(from, key, &packet.header);
        }
        let done = self.with(key, |session, ctx| match packet.body {
            Body::Update(bytes) => session.update(seq, None, bytes, ctx),
            body => {
                let bytes = body.bytes().to_vec();
                let request = Request { number: seq | FIRST_BYPASS, seq, after: None, bytes };
                session.bypass(request, None, ctx);
            }
        });
        self.ctx.stats.ignored += u64::from(done.is_none());
        true
    }

    /// Handles number 0, the first packet of a foreign session.
    fn begin_foreign(&mut self, from: SocketAddr, key: SessionKey, header: &Header) {
        let is_first = header.ack_count != SENT_AGAIN;
        let old = match self.table.live.get(&key).map(|session| session.is_over(self.ctx.now) && is_first) {
            Some(false) => return,
            Some(true) => self.drop_session(key),
            None => match self.table.ended(&key) {
                Some(_) => match self.table.retire(&key) {
                    Some(row) => Some(row),
                    None => return,
                },
                None => None,
            },
        };
        let Some(mut evicted) = self.make_room() else {
            self.ctx.stats.early_dropped += 1;
            return;
        };
        evicted.extend(old);
        let bypass = FIRST_BYPASS - 1;
        let row = SessionRow { key, nonce: 0, update: u32::MAX, bypass, ended: false, touched: 0, lease: 0 };
        self.table.live.insert(key, Box::new(Session::begin(from, row, evicted, &self.ctx)));
    }

    /// Evicts rows to make room for another session and returns them; `None` if there is no room.
    pub(super) fn make_room(&mut self) -> Option<Vec<SessionRow>> {
        let max = self.ctx.config.sessions_max;
        self.table.make_room(max).or_else(|| {
            let silent = self.table.silent_foreign(self.ctx.now, SILENT)?;
            Some(self.drop_session(silent).into_iter().collect())
        })
    }

    /// Most bytes of a response in this session. A client of the release understands only responses in one packet.
    pub(super) fn response_max_of(&self, key: &SessionKey) -> usize {
        let numbering = self.table.live.get(key).map(|session| session.numbering());
        let max = self.response_max();
        if numbering == Some(Numbering::Together) { max.min(RESPONSE_MAX) } else { max }
    }

    /// Handles a *no-op*: no log has the update that a foreign session was asked for.
    pub(super) fn absent(&mut self, key: SessionKey, packet: &Packet<'_>) {
        let seq = packet.header.seq;
        let helps = packet.header.kind == kind::NO_OP
            && self.with(key, |session, ctx| session.absent(seq, ctx)) == Some(true);
        self.ctx.stats.ignored += u64::from(!helps);
    }
}
