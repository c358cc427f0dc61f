//! Dispatches segments: to their connection, to a listener, or to a reset.

use super::arrival::Arrival;
use super::host::{FlowChange, Received, Stack};
use crate::address::{PROTOCOL_TCP, Path, Tuple, pseudo_sum};
use crate::config::Mac;
use crate::event::{ConnId, Event};
use crate::frames::Frames;
use crate::stats::Drop;
use crate::tcp::backlog::{Half, completes, syn_ack};
use crate::tcp::emit::Header;
use crate::tcp::segment::{self, Segment};
use crate::tcp::seq::Seq;
use crate::tcp::{Agreed, Context, Numbers, Tcb, cookie};
use crate::time::Instant;
use core::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long after the last cookie was sent a cookie may be acknowledged.
const COOKIES_VALID: Duration = Duration::from_secs(128);

/// A segment with both ends.
pub(super) struct Addressed {
    pub(super) segment: Segment,
    from_port: u16,
    to_port: u16,
}

/// Parses and checks a segment.
pub(super) fn parse(arrival: &Arrival<'_>) -> Result<Addressed, Drop> {
    let ip = &arrival.ip;
    let (from_port, to_port) = segment::ports(ip.payload).ok_or(Drop::Malformed)?;
    let broadcast = ip.from == IpAddr::from([255; 4]);
    if from_port == 0 || to_port == 0 || ip.from.is_multicast() || ip.from.is_unspecified() || broadcast {
        return Err(Drop::Malformed);
    }
    let pseudo = pseudo_sum(ip.from, ip.to, PROTOCOL_TCP, ip.payload.len());
    let segment = segment::parse(ip.payload, arrival.off, pseudo, arrival.arrival_ns, ip.congested)?;
    Ok(Addressed { segment, from_port, to_port })
}

impl Stack {
    /// The path of replies: to the hardware address that delivered the segment.
    pub(super) fn path_back(&self, arrival: &Arrival<'_>, segment: &Addressed) -> Path {
        let local = SocketAddr::new(arrival.ip.to, segment.to_port);
        let remote = SocketAddr::new(arrival.ip.from, segment.from_port);
        Path { tuple: Tuple { local, remote }, local_mac: self.config.mac, remote_mac: arrival.from_mac }
    }

    /// Handles a segment of a connection.
    pub(super) fn receive_known(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        conn: ConnId,
        from_mac: Mac,
        segment: Segment,
    ) {
        self.with(now, frames, conn, |tcb, context| {
            let before = tcb.progress();
            let proves_path = tcb.is_repeated_after_timeout(&segment) || tcb.is_keep_alive(&segment);
            tcb.receive(context, segment);
            // Routers change, so replies go to the hardware address that the peer's latest segment came from. Only a
            // sender that knows the connection's numbers can advance it, or keep it alive: a forged segment does not divert
            // replies.
            if proves_path || tcb.progress() != before {
                tcb.path.remote_mac = from_mac;
            }
        });
        self.bound_reordered(now, frames);
    }

    /// Handles a segment that belongs to no established connection: of a half-open one, of one in TIME-WAIT, or of
    /// none.
    pub(super) fn receive_unknown(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        path: Path,
        segment: Segment,
    ) -> Result<Received, Drop> {
        if self.backlog.get(&path.tuple).is_some() {
            return self.receive_half_open(now, frames, &path, segment);
        }
        if let Some(over) = self.time_wait.get(&path.tuple).copied() {
            let listens = self.tag_of(path.tuple.local.port()).is_some();
            if !listens || !over.yields_to(&segment) {
                let answer = over.answer(now, &segment);
                answer.into_iter().for_each(|header| self.send_control(path, header));
                if over.restarts_lifetime(&segment) {
                    self.time_wait.insert(over.restarted(now), self.config.time_wait_max);
                }
                return Ok(Received::Done);
            }
            self.time_wait.remove(&path.tuple);
            return self.receive_syn(now, &path, &segment, Some(over.next_iss()));
        }
        if self.opens(&path, &segment) {
            // The peer may have sent it to another stack before: two would answer with different numbers, and one of them
            // would reset the connection of the other one.
            if self.flows.is_some() {
                return Ok(Received::Stray(path.tuple));
            }
            return self.receive_syn(now, &path, &segment, None);
        }
        if self.accept_cookie(now, frames, &path, segment) {
            return Ok(Received::Done);
        }
        if self.flows.is_some() {
            return Ok(Received::Stray(path.tuple));
        }
        self.answer_stray(now, &path, &segment)?;
        Ok(Received::Done)
    }

    /// True for a SYN to a port that the application listens on.
    fn opens(&self, path: &Path, segment: &Segment) -> bool {
        let flags = segment.flags;
        flags.syn && !flags.ack && !flags.rst && self.tag_of(path.tuple.local.port()).is_some()
    }

    fn tag_of(&self, port: u16) -> Option<u32> {
        self.listeners.iter().find(|(known, _)| *known == port).map(|(_, tag)| *tag)
    }

    /// RFC 9293, 3.10.7.2: handles a SYN to a port that the application listens on.
    fn receive_syn(
        &mut self,
        now: Instant,
        path: &Path,
        segment: &Segment,
        iss: Option<Seq>,
    ) -> Result<Received, Drop> {
        let tag = self.tag_of(path.tuple.local.port()).ok_or(Drop::NoListener)?;
        if self.table.is_full() {
            return Err(Drop::Full);
        }
        let agreed = Agreed::of(segment, &self.config, path.tuple.local.is_ipv4());
        let offset = self.secret.timestamp_offset(&path.tuple);
        if self.backlog.len() >= self.config.backlog_max {
            self.answer_with_cookie(now, path, segment, &agreed, offset);
            return Ok(Received::Done);
        }
        let iss = iss.unwrap_or_else(|| self.secret.isn(now, &path.tuple));
        let half = Half::new(now, *path, Numbers { iss, irs: segment.seq }, agreed, offset, tag);
        self.send_control(*path, half.answer(now, &self.config));
        self.backlog.insert(half);
        self.note_flow(FlowChange::Here(path.tuple));
        Ok(Received::Done)
    }

    fn answer_with_cookie(
        &mut self,
        now: Instant,
        path: &Path,
        segment: &Segment,
        agreed: &Agreed,
        offset: u32,
    ) {
        let iss = cookie::make(&self.secret, now, &path.tuple, segment.seq, agreed.mss);
        let clock = cookie::timestamp((now.millis() as u32).wrapping_add(offset), agreed);
        // Without timestamps the peer returns nothing but the segment size.
        let agreed = if agreed.timestamp.is_some() {
            *agreed
        } else {
            Agreed { window_scale: None, sack: false, ecn: false, ..*agreed }
        };
        let numbers = Numbers { iss, irs: segment.seq };
        self.send_control(*path, syn_ack(&self.config, path, numbers, &agreed, clock));
        self.stats.cookies_sent += 1;
        self.cookies_until = Some(now + COOKIES_VALID);
    }

    /// Handles a segment for a half-open connection (RFC 9293, 3.10.7.4; RFC 5961).
    fn receive_half_open(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        path: &Path,
        segment: Segment,
    ) -> Result<Received, Drop> {
        let Some(half) = self.backlog.get(&path.tuple).copied() else { return Ok(Received::Done) };
        if segment.flags.rst {
            if segment.seq != half.irs + 1 {
                return Err(Drop::Reset);
            }
            self.backlog.remove(&path.tuple);
            self.note_flow(FlowChange::Gone(path.tuple));
            return Ok(Received::Done);
        }
        if segment.flags.syn {
            // The SYN-ACK was lost, or the peer has restarted and opens a new connection.
            if segment.seq == half.irs {
                self.send_control(*path, half.answer(now, &self.config));
                self.backlog.answered_again(&path.tuple);
                return Ok(Received::Done);
            }
            self.backlog.remove(&path.tuple);
            self.note_flow(FlowChange::Gone(path.tuple));
            return self.receive_syn(now, path, &segment, None);
        }
        if !completes(&half, &segment, &self.config) {
            let bad_ack = segment.flags.ack && segment.ack != half.iss + 1;
            // The peer may also have been answered with a cookie, while there was no room.
            if bad_ack && self.accept_cookie(now, frames, path, segment) {
                self.backlog.remove(&path.tuple);
                return Ok(Received::Done);
            }
            if bad_ack {
                self.reset(path, &segment);
            }
            return Err(Drop::BadAck);
        }
        if self.table.is_full() {
            return Err(Drop::Full);
        }
        self.backlog.remove(&path.tuple);
        let numbers = Numbers { iss: half.iss, irs: half.irs };
        let mut tcb = Tcb::accepted(now, &self.config, *path, numbers, &half.agreed, half.timestamp_offset);
        tcb.sample_handshake(half.round_trip(now));
        self.accept(now, frames, tcb, half.tag, segment);
        Ok(Received::Done)
    }

    /// RFC 4987, 3.6: the acknowledgement of a cookie carries everything that the stack did not keep.
    fn accept_cookie(
        &mut self,
        now: Instant,
        frames: &mut dyn Frames,
        path: &Path,
        segment: Segment,
    ) -> bool {
        let expected = self.expects_cookies(now);
        let plain_ack = segment.flags.ack && !segment.flags.syn && !segment.flags.rst;
        let Some(tag) = self.tag_of(path.tuple.local.port()) else { return false };
        if !expected || !plain_ack || self.table.is_full() {
            return false;
        }
        let numbers = Numbers { iss: segment.ack - 1, irs: segment.seq - 1 };
        let timestamps = segment.options.timestamps;
        let agreed = cookie::check(&self.secret, now, &path.tuple, numbers.irs, numbers.iss, timestamps);
        let Some(agreed) = agreed else { return false };
        self.stats.cookies_accepted += 1;
        let offset = self.secret.timestamp_offset(&path.tuple);
        let tcb = Tcb::accepted(now, &self.config, *path, numbers, &agreed, offset);
        self.accept(now, frames, tcb, tag, segment);
        true
    }

    /// True while a cookie that was sent may be acknowledged.
    fn expects_cookies(&self, now: Instant) -> bool {
        self.cookies_until.is_some_and(|until| now <= until)
    }

    fn accept(&mut self, now: Instant, frames: &mut dyn Frames, tcb: Tcb, tag: u32, segment: Segment) {
        let remote = tcb.path.tuple.remote;
        let id = self.insert(tcb);
        self.events.push_back(Event::Accepted { conn: id, tag, remote });
        self.with(now, frames, id, |tcb: &mut Tcb, context: &mut Context<'_>| tcb.receive(context, segment));
    }

    /// Answers a stray segment that the driver returns: no other stack has the connection. A SYN opens one.
    pub(super) fn answer_unowned(&mut self, now: Instant, arrival: &Arrival<'_>) -> Result<(), Drop> {
        let addressed = parse(arrival)?;
        let path = self.path_back(arrival, &addressed);
        if self.opens(&path, &addressed.segment) {
            return self.receive_syn(now, &path, &addressed.segment, None).map(|_| ());
        }
        self.answer_stray(now, &path, &addressed.segment)
    }

    /// Answers a segment of no connection (RFC 9293, 3.10.7.1).
    fn answer_stray(&mut self, now: Instant, path: &Path, segment: &Segment) -> Result<(), Drop> {
        let listens = self.tag_of(path.tuple.local.port()).is_some();
        // Only the first segment proves a cookie. A segment that follows a lost first one must not be refused: the peer
        // retransmits the first one.
        let may_follow_cookie =
            listens && segment.len() > 0 && !segment.flags.syn && self.expects_cookies(now);
        // Where the kernel shares the address, the stack answers only for ports that it listens on.
        if (self.config.owns_addresses || listens) && !may_follow_cookie {
            self.reset(path, segment);
        }
        Err(if segment.flags.syn { Drop::NoListener } else { Drop::NoConnection })
    }

    /// Resets a connection that only the peer has.
    fn reset(&mut self, path: &Path, segment: &Segment) {
        if let Some(header) = Header::reset_for(segment) {
            self.send_control(*path, header);
        }
    }
}
