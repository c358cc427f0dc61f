//! From flushed ranges to block-aligned writes.

use smallvec::SmallVec;

use crate::extent::Extent;
use crate::file_write::FileWrite;
use crate::units::BLOCK_SIZE;

/// Maximum length of a single write, bytes: the kernel accepts at most 2 GiB less a page.
const WRITE_BYTES_MAX: u64 = 1 << 30;

/// The writes that cover `ranges`: whole blocks, sorted, merged where they touch, within `len`.
pub(super) fn plan(ranges: &[Extent], len: u64, base: usize) -> SmallVec<[FileWrite; 4]> {
    let mut spans: SmallVec<[(u64, u64); 4]> =
        ranges.iter().map(|r| span(*r, len)).filter(|(from, to)| from < to).collect();
    spans.sort_unstable();
    let mut writes = SmallVec::new();
    let mut rest = spans.into_iter();
    let Some(mut current) = rest.next() else { return writes };
    for next in rest {
        if next.0 <= current.1 {
            current.1 = current.1.max(next.1);
        } else {
            push(&mut writes, current, base);
            current = next;
        }
    }
    push(&mut writes, current, base);
    writes
}

/// The blocks that a range touches, as offsets. `len` is a multiple of a block.
fn span(range: Extent, len: u64) -> (u64, u64) {
    let from = range.off - range.off % BLOCK_SIZE;
    let end = range.off.saturating_add(u64::from(range.len())).min(len);
    (from, if range.is_empty() { from } else { end.next_multiple_of(BLOCK_SIZE) })
}

fn push(writes: &mut SmallVec<[FileWrite; 4]>, (mut from, to): (u64, u64), base: usize) {
    while from < to {
        let len = (to - from).min(WRITE_BYTES_MAX);
        writes.push(FileWrite { extent: Extent::new(from, len as u32), addr: base + from as usize });
        from += len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: usize = 0x10_0000;

    fn extents(ranges: &[Extent], len: u64) -> Vec<(u64, u32)> {
        let writes = plan(ranges, len, BASE);
        assert!(writes.iter().all(|w| w.addr == BASE + w.extent.off as usize));
        writes.iter().map(|w| (w.extent.off, w.extent.len())).collect()
    }

    #[test]
    fn writes_are_whole_blocks_sorted_and_joined() {
        let ranges = [Extent::new(20_000, 10), Extent::new(4095, 2), Extent::new(8192, 1), Extent::new(5, 0)];
        assert_eq!(extents(&ranges, 1 << 20), [(0, 12288), (16384, 4096)]);
    }

    #[test]
    fn writes_stop_at_the_end_of_the_region() {
        let end = 1 << 20;
        assert_eq!(extents(&[Extent::new(end - 1, 500)], end), [(end - 4096, 4096)]);
        assert_eq!(extents(&[Extent::new(end + 4096, 1), Extent::new(u64::MAX, 9)], end), []);
    }

    #[test]
    fn no_write_is_longer_than_the_kernel_takes_at_once() {
        let got = extents(&[Extent::new(0, u32::MAX)], 1 << 40);
        let gib = 1 << 30;
        assert_eq!(got, [(0, gib), (1 << 30, gib), (2 << 30, gib), (3 << 30, gib)]);
    }
}
