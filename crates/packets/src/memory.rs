//! Adapter from the server's frames to those of the stack.

use landfall_media::Extent;
use landfall_sockets::Frames;

/// Holds, releases and reads frames through the server's [`Frames`].
pub(crate) struct Memory<'a>(pub(crate) &'a mut dyn Frames);

impl landfall_net::Frames for Memory<'_> {
    fn bytes(&self, extent: Extent) -> &[u8] {
        self.0.bytes(extent)
    }

    fn hold(&mut self, extent: Extent) {
        self.0.hold(extent);
    }

    fn release(&mut self, extent: Extent) {
        self.0.release(extent);
    }

    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        self.0.set_aside(extent)
    }
}
