//! The heap's side of the stack: frames that hold packets, counted by who needs them.

use landfall_media::Extent;

/// Memory that packets land in and replies are sent from.
///
/// The stack never copies payload: it holds the frames in which segments landed for as long as it needs them,
/// and the frames of replies until they are acknowledged.
pub trait Frames {
    /// The bytes of an extent that is held.
    fn bytes(&self, extent: Extent) -> &[u8];

    /// Adds a hold on the frames that the extent touches.
    fn hold(&mut self, extent: Extent);

    /// Drops one hold on the frames that the extent touches.
    fn release(&mut self, extent: Extent);

    /// Copies held bytes out of their frames into space shared by others that wait long; the copy is held and
    /// the original released. `None`: there is no space, and everything stays as it was.
    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let _ = extent;
        None
    }
}
