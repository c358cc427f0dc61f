//! A reply in the form that the kernel takes: a `msghdr`.

use super::region::Region;
use crate::outgoing::{Outgoing, Part};

use std::mem;

/// Pieces of one `sendmsg`; a longer reply takes several calls. Below `IOV_MAX` (1024), and few enough that the pinned
/// array fits into a page.
pub(crate) const SEND_PIECES_MAX: usize = 256;

/// Bytes of one `sendmsg`, at most. The operation of the ring ends only when all its bytes are sent, so this is the
/// resolution at which the progress of a slow reader is visible.
pub(crate) const SEND_BYTES_MAX: usize = 256 << 10;

/// A reply being sent: its buffers, its progress, and the `msghdr` of the next pieces.
///
/// While the kernel may read the `msghdr` (`in_flight`), nothing in this type moves, changes or is freed: all of it is
/// in one box, the methods that change it assert this, and dropping leaks the box.
pub(crate) struct Message {
    pinned: Box<Pinned>,
    in_flight: bool,
}

struct Pinned {
    out: Outgoing,
    /// The first part that is not completely sent, and how many of its bytes are sent.
    part: usize,
    part_sent: usize,
    /// Bytes of all parts, and how many of them are sent.
    len: usize,
    sent: usize,
    pieces: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl Message {
    pub(crate) fn new() -> Self {
        Self { pinned: Box::new(Pinned::new()), in_flight: false }
    }

    /// Takes a reply, to send it from its start.
    pub(crate) fn load(&mut self, mut out: Outgoing) {
        out.seal_bytes();
        let pinned = self.idle();
        debug_assert!(pinned.out.is_empty(), "a reply is loaded over one that was not taken");
        (pinned.len, pinned.sent) = (out.len(), 0);
        pinned.out = out;
        (pinned.part, pinned.part_sent) = (0, 0);
    }

    /// Gathers the next pieces and returns their bytes; zero when everything was sent.
    pub(crate) fn prepare(&mut self, region: Region) -> usize {
        self.idle().gather(region)
    }

    /// Bytes of the reply that were not sent yet.
    pub(crate) fn unsent(&self) -> usize {
        self.pinned.len - self.pinned.sent
    }

    /// Counts bytes as sent.
    pub(crate) fn advance(&mut self, sent: usize) {
        self.idle().advance(sent);
    }

    /// Returns the buffers with their contents.
    pub(crate) fn take(&mut self) -> Outgoing {
        let pinned = self.idle();
        (pinned.len, pinned.sent) = (0, 0);
        mem::take(&mut pinned.out)
    }

    /// Ends the operation: the kernel no longer reads this message.
    pub(crate) fn completed(&mut self) {
        assert!(self.in_flight, "a send completed that was not in flight");
        self.in_flight = false;
    }

    /// Begins the operation: the kernel reads this message until [`Self::completed`].
    pub(super) fn begin(&mut self) {
        assert!(!self.in_flight, "a message is sent twice at once");
        self.in_flight = true;
    }

    pub(super) fn header(&self) -> *const libc::msghdr {
        &raw const self.pinned.header
    }

    /// The only piece to send, if there is exactly one.
    pub(super) fn single_piece(&self) -> Option<(*const u8, u32)> {
        match self.pinned.pieces.as_slice() {
            [piece] => u32::try_from(piece.iov_len).ok().map(|len| (piece.iov_base.cast_const().cast(), len)),
            _ => None,
        }
    }

    fn idle(&mut self) -> &mut Pinned {
        assert!(!self.in_flight, "a message in flight is left alone");
        &mut self.pinned
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.in_flight {
            // The kernel may still read the message: leaking the memory is better than reusing it during a send.
            Box::leak(mem::replace(&mut self.pinned, Box::new(Pinned::new())));
        }
    }
}

impl Pinned {
    fn new() -> Self {
        // SAFETY: all-zero is a valid msghdr: null pointers and zero lengths.
        let header = unsafe { mem::zeroed() };
        Self { out: Outgoing::new(), part: 0, part_sent: 0, len: 0, sent: 0, pieces: Vec::new(), header }
    }

    fn gather(&mut self, region: Region) -> usize {
        self.advance(0);
        self.pieces.clear();
        let mut skip = self.part_sent;
        let parts = self.out.parts().iter().skip(self.part).take(SEND_PIECES_MAX);
        self.pieces.extend(parts.map(|part| piece(&self.out.bytes, region, *part, mem::take(&mut skip))));
        let bytes = self.clip(SEND_BYTES_MAX);
        self.header.msg_iov = self.pieces.as_mut_ptr();
        self.header.msg_iovlen = self.pieces.len();
        bytes
    }

    /// Removes what lies beyond `len_max` bytes from the pieces; returns their remaining bytes.
    fn clip(&mut self, len_max: usize) -> usize {
        let mut bytes = 0;
        for index in 0..self.pieces.len() {
            let piece = &mut self.pieces[index];
            piece.iov_len = piece.iov_len.min(len_max - bytes);
            bytes += piece.iov_len;
            if bytes == len_max {
                self.pieces.truncate(index + 1);
                break;
            }
        }
        bytes
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        self.part_sent += sent;
        while let Some(part) = self.out.parts().get(self.part) {
            let len = part_len(*part);
            if self.part_sent < len {
                return;
            }
            self.part_sent -= len;
            self.part += 1;
        }
        assert!(self.part_sent == 0, "{} bytes more were sent than there were", self.part_sent);
    }
}

const fn part_len(part: Part) -> usize {
    match part {
        Part::Bytes { start, end } => (end - start) as usize,
        Part::Stored(extent) => extent.len() as usize,
    }
}

/// A part without its first `skip` bytes.
fn piece(bytes: &[u8], region: Region, part: Part, skip: usize) -> libc::iovec {
    let start = match part {
        Part::Bytes { start, end } => bytes[start as usize..end as usize].as_ptr(),
        Part::Stored(extent) => region.address(extent).cast_const(),
    };
    libc::iovec { iov_base: start.wrapping_add(skip).cast_mut().cast(), iov_len: part_len(part) - skip }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_media::Extent;

    /// A reply of 300 stored bytes around 10 protocol bytes, over an image at address 4096.
    fn loaded() -> (Message, Region) {
        let mut out = Outgoing::new();
        out.push_stored(Extent::new(0, 100));
        out.bytes.extend_from_slice(b"0123456789");
        out.push_stored(Extent::new(500, 0));
        out.push_stored(Extent::new(1000, 200));
        let mut message = Message::new();
        message.load(out);
        (message, Region::new((4096, 4096)))
    }

    #[test]
    fn a_partial_send_continues_where_it_stopped() {
        let (mut message, region) = loaded();
        assert_eq!(message.prepare(region), 310);
        message.advance(105);
        assert_eq!(message.prepare(region), 205);
        assert_eq!(message.pinned.pieces[0].iov_len, 5);
        message.advance(5);
        assert_eq!(message.prepare(region), 200);
        assert_eq!(message.single_piece(), Some((std::ptr::without_provenance(4096 + 1000), 200)));
        message.advance(200);
        assert_eq!(message.prepare(region), 0);
        assert_eq!(message.take().stored().count(), 3);
    }

    #[test]
    fn a_reply_of_many_parts_is_sent_in_turns() {
        let mut out = Outgoing::new();
        (0..600).for_each(|i| out.push_stored(Extent::new(i, 1)));
        let mut message = Message::new();
        message.load(out);
        let region = Region::new((4096, 4096));
        let mut turns = Vec::new();
        loop {
            match message.prepare(region) {
                0 => break,
                bytes => turns.push(bytes),
            }
            message.advance(*turns.last().expect("a turn was just pushed"));
        }
        assert_eq!(turns, [256, 256, 88]);
    }

    #[test]
    #[should_panic(expected = "left alone")]
    fn a_message_in_flight_cannot_be_changed() {
        let (mut message, region) = loaded();
        message.prepare(region);
        message.begin();
        message.advance(1);
    }
}
