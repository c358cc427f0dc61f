//! Where a transport receives into, and what it sends from.

use landfall_media::Extent;

/// The memory that a transport receives into and sends from, implemented by the heap.
///
/// The transport, or the kernel on its behalf, may write anywhere into a run between `take_run` and `retire_run`. Bytes
/// that were reported as landed do not change until they are released.
pub trait Frames {
    /// Lends a free run of [`landfall_media::RUN_SIZE`] bytes and returns its region offset. `None`: no run is free.
    fn take_run(&mut self) -> Option<u64>;
    /// True while there is no room for what arrives: no more runs are lent than the transport needs at least.
    fn is_short(&self) -> bool {
        false
    }
    /// Takes a run back: the kernel does not write into it again.
    fn retire_run(&mut self, run_off: u64);
    /// Adds a hold on bytes that the kernel has just written; the consumer of the event releases them.
    fn hold(&mut self, extent: Extent);
    /// Drops one hold on these bytes.
    fn release(&mut self, extent: Extent);

    /// Bytes that are held. Only transports that parse packets call this.
    fn bytes(&self, extent: Extent) -> &[u8] {
        let _ = extent;
        &[]
    }
    /// Stores bytes into a run that is lent to the transport. False: the medium refused.
    fn write(&mut self, off: u64, bytes: &[u8]) -> bool {
        let _ = (off, bytes);
        false
    }
    /// True while there is a hold on the frame at `off`.
    fn is_held(&self, off: u64) -> bool {
        let _ = off;
        true
    }
    /// Copies held bytes into a frame that collects such copies. The copy is held, and the hold on the original is
    /// released.
    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let _ = extent;
        None
    }
}
