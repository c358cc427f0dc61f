//! What every system says of its region.

use crate::text::{Kind, Text};
use landfall_heap::{CopyPath, Heap};

/// Adds the use of a region, and what was copied in it.
pub fn region(text: &mut Text, heap: &Heap) {
    let counts = heap.runs().counts();
    text.metric(Kind::Gauge, "runs", "Runs of 1 MiB by use.");
    let tables = counts.total.saturating_sub(counts.free + counts.data + counts.slab);
    for (used_for, runs) in
        [("free", counts.free), ("data", counts.data), ("slab", counts.slab), ("table", tables)]
    {
        text.sample("runs", &[("use", used_for)], runs);
    }
    text.gauge("region_bytes", "Size of the region.", heap.media().len());
    if let Some(memory) = heap.memory() {
        text.gauge("region_memory_limit_bytes", "Bytes of the region that may be in memory.", memory.limit);
        text.gauge("region_memory_bytes", "Bytes of the region that are in memory.", memory.resident);
    }
    text.gauge("region_room_bytes", "Bytes that writes may still fill, about.", heap.measured_room_bytes());
    text.gauge(
        "live_bytes",
        "Bytes that current records refer to, each counted once.",
        heap.runs().live_bytes(),
    );
    text.gauge("live_records", "Current records.", heap.runs().live_slots());
    text.counter(
        "zeroed_bytes_total",
        "Bytes zeroed on the medium for records to come.",
        heap.zeroed_bytes(),
    );
    text.counter(
        "unshared_bytes_total",
        "Bytes that keys shared, and that the compactor has put at more than one place.",
        heap.unshared_bytes(),
    );
    text.metric(Kind::Counter, "copied_bytes_total", "Payload bytes that user space copied, by path.");
    for (path, label) in CopyPath::ALL {
        text.sample("copied_bytes_total", &[("path", label)], heap.copies.get(path));
    }
}
