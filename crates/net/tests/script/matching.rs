//! Compares a segment with the expected one, and shows both when they differ.

use super::runner::{Flow, pattern};
use super::text::{Echo, Opt, Wanted, Written};
use crate::support::wire::{ACK, PSH, Seg, long, word};

/// The first difference between a sent segment and the expected one.
pub fn differs(flow: &Flow, seg: &Seg, want: &Written) -> Option<String> {
    let flags = seg.flags & !PSH;
    let rel = seg.seq.wrapping_sub(flow.iss.unwrap_or(0));
    let ack = (seg.has(ACK)).then(|| seg.ack.wrapping_sub(flow.irs));
    let wrong = |what: &str| Some(format!("{what} differs"));
    if flags != want.flags || (want.push && !seg.has(PSH)) {
        return wrong("flags");
    }
    if rel != want.seq || seg.payload.len() as u32 != want.len {
        return wrong("sequence number or length");
    }
    if ack != want.ack {
        return wrong("acknowledgement");
    }
    if want.window.is_some_and(|window| window != seg.window) {
        return wrong("window");
    }
    if (seg.ecn == 2) != want.words.iter().any(|w| w == "ect0") || seg.ecn == 3 {
        return wrong("ECN field");
    }
    if seg.payload.iter().enumerate().any(|(i, byte)| *byte != pattern(rel.wrapping_add(i as u32))) {
        return wrong("payload");
    }
    options_differ(flow, seg, want.options.as_deref()).then(|| "options differ".to_owned())
}

fn options_differ(flow: &Flow, seg: &Seg, want: Option<&[Opt]>) -> bool {
    let have = seg.option_list();
    let Some(want) = want else { return have.iter().any(|(kind, _)| *kind != 8) };
    have.len() != want.len() || !want.iter().all(|opt| have.iter().any(|have| is(flow, have, opt)))
}

fn is(flow: &Flow, (kind, value): &(u8, Vec<u8>), want: &Opt) -> bool {
    match want {
        Opt::Mss(size) => *kind == 2 && word(value, 0) == *size,
        Opt::WindowScale(shift) => *kind == 3 && value[0] == *shift,
        Opt::SackPermitted => *kind == 4,
        Opt::Timestamps(ours, echo) => *kind == 8 && timestamps_match(flow, value, *ours, *echo),
        Opt::Sack(blocks) => {
            let at = |i: usize| long(value, i).wrapping_sub(flow.irs);
            let have = (0..value.len() / 8).map(|i| (at(8 * i), at(8 * i + 4)));
            *kind == 5 && have.eq(blocks.iter().copied())
        }
    }
}

fn timestamps_match(flow: &Flow, value: &[u8], ours: Wanted, echo: Echo) -> bool {
    let offset = i64::from(long(value, 0).wrapping_sub(flow.first_ts.unwrap_or(0)).cast_signed());
    let echoed = i64::from(long(value, 4));
    ours.is_none_or(|want| want == offset) && !matches!(echo, Echo::Of(want) if want != echoed)
}

/// A segment in the notation of the scripts.
pub fn show(flow: &Flow, seg: &Seg) -> String {
    let letters = [(2, 'S'), (1, 'F'), (4, 'R'), (8, 'P'), (32, 'U'), (64, 'E'), (128, 'W'), (16, '.')];
    let flags: String = letters.iter().filter(|(bit, _)| seg.has(*bit)).map(|(_, letter)| *letter).collect();
    let rel = seg.seq.wrapping_sub(flow.iss.unwrap_or(0)).cast_signed();
    let ack = if seg.has(ACK) { format!(" ack {}", seg.ack.wrapping_sub(flow.irs)) } else { String::new() };
    let options: Vec<String> = seg.option_list().iter().map(|option| show_option(flow, option)).collect();
    let options = if options.is_empty() { String::new() } else { format!(" <{}>", options.join(",")) };
    let ecn = ["", " ect1", " ect0", " ce"][usize::from(seg.ecn)];
    let len = seg.payload.len();
    let flags = if flags.is_empty() { "-".to_owned() } else { flags };
    format!("{flags} {rel}({len}){ack} win {}{options}{ecn}", seg.window)
}

fn show_option(flow: &Flow, (kind, value): &(u8, Vec<u8>)) -> String {
    match kind {
        2 => format!("mss {}", word(value, 0)),
        3 => format!("wscale {}", value[0]),
        4 => "sackOK".to_owned(),
        8 => {
            let ours = long(value, 0).wrapping_sub(flow.first_ts.unwrap_or(0)).cast_signed();
            format!("ts {ours} {}", long(value, 4))
        }
        5 => {
            let at = |i: usize| long(value, i).wrapping_sub(flow.irs);
            let list: Vec<_> =
                (0..value.len() / 8).map(|i| format!("{}:{}", at(8 * i), at(8 * i + 4))).collect();
            format!("sack {}", list.join(" "))
        }
        _ => format!("option {kind} {value:?}"),
    }
}
