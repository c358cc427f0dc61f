//! Cuts long packets into segments, as a device with segmentation offload does.

use super::wire::{ACK, FIN, PSH, checksum, fix_checksums, long, word};
use landfall_net::{Cut, LONG_LEN_MAX};
use std::collections::VecDeque;

/// The frames that result from cutting `frame`. Panics if the stack's description of the packet is wrong.
pub fn cut(frame: &[u8], how: Cut) -> VecDeque<Vec<u8>> {
    let (header_len, segment_len, tcp_at) =
        (usize::from(how.header_len), usize::from(how.segment_len), usize::from(how.tcp_at));
    assert!(frame.len() <= LONG_LEN_MAX, "{} bytes", frame.len());
    assert_eq!(
        (how.ipv4, tcp_at, how.checksum_at),
        (word(frame, 12) == 0x0800, if how.ipv4 { 34 } else { 54 }, 16)
    );
    assert_eq!(header_len, tcp_at + usize::from(frame[tcp_at + 12] >> 4) * 4);
    check_headers(frame, tcp_at, how.ipv4);
    let (header, payload) = frame.split_at(header_len);
    assert!(payload.len() > segment_len, "a single segment needs no cut");
    let count = payload.len().div_ceil(segment_len);
    let segment = |(index, part): (usize, &[u8])| {
        let mut out = [header, part].concat();
        let seq = long(header, tcp_at + 4).wrapping_add((index * segment_len) as u32);
        put(&mut out, tcp_at + 4, (seq >> 16) as u16);
        put(&mut out, tcp_at + 6, seq as u16);
        assert_eq!(out[tcp_at + 13] & !(ACK | PSH | FIN), 0, "flags that not every segment may have");
        if index + 1 < count {
            out[tcp_at + 13] &= !(PSH | FIN);
        }
        let len = out.len();
        if how.ipv4 {
            put(&mut out, 16, (len - 14) as u16)
        } else {
            put(&mut out, 18, (len - 54) as u16)
        }
        fix_checksums(&mut out);
        out
    };
    payload.chunks(segment_len).enumerate().map(segment).collect()
}

/// Checks lengths and checksums of the long packet. The TCP checksum field holds the sum of addresses and length, which
/// the cut continues.
fn check_headers(frame: &[u8], tcp_at: usize, ipv4: bool) {
    let tcp_len = frame.len() - tcp_at;
    let addresses = if ipv4 {
        assert_eq!(usize::from(word(frame, 16)), frame.len() - 14);
        assert_eq!(checksum(&[&frame[14..34]]), 0, "the IP header's checksum");
        26..34
    } else {
        assert_eq!(usize::from(word(frame, 18)), tcp_len);
        22..54
    };
    let rest = [0, 6, (tcp_len >> 8) as u8, tcp_len as u8];
    assert_eq!(word(frame, tcp_at + 16), !checksum(&[&frame[addresses], &rest]));
}

fn put(out: &mut [u8], at: usize, word: u16) {
    out[at..at + 2].copy_from_slice(&[(word >> 8) as u8, word as u8]);
}
