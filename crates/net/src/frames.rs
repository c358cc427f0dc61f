//! The stack's interface to the memory that packets land in: frames with reference counts.

use landfall_media::Extent;

/// Memory that packets land in and that replies are sent from.
///
/// The stack does not copy payload. It holds the frames of received segments for as long as it needs them, and the
/// frames of replies until the peer acknowledges them.
pub trait Frames {
    /// The bytes of an extent. The caller has a hold on the extent.
    fn bytes(&self, extent: Extent) -> &[u8];

    /// Adds one hold to each frame that the extent touches.
    fn hold(&mut self, extent: Extent);

    /// Drops one hold of each frame that the extent touches.
    fn release(&mut self, extent: Extent);

    /// Copies held bytes out of their frames into a frame that collects such copies. The copy carries one hold, and the
    /// hold on the original is released. `None`: there is no space, and nothing has changed.
    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let _ = extent;
        None
    }
}
