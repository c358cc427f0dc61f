//! Landing space of the epoll transport.

use crate::frames::Frames;
use crate::sys::Region;
use landfall_media::{Extent, RUN_SIZE};

/// Bytes that one receive asks for.
const RECEIVE_MAX: u32 = 256 << 10;

/// The run that is being filled, if any.
pub(super) struct Landing {
    current: Option<Filling>,
    starved: bool,
}

#[derive(Clone, Copy)]
struct Filling {
    run: Extent,
    filled: u32,
}

impl Landing {
    pub(super) const fn new() -> Self {
        Self { current: None, starved: false }
    }

    /// True while a connection needs space and there is none.
    pub(super) const fn starved(&self) -> bool {
        self.starved
    }

    pub(super) fn space(&mut self, frames: &mut dyn Frames) -> Option<Extent> {
        if self.current.is_none() {
            let run = frames.take_run().map(Region::run);
            self.starved = run.is_none();
            self.current = run.map(|run| Filling { run, filled: 0 });
        }
        let Filling { run, filled } = self.current?;
        Some(Extent::new(run.off + u64::from(filled), (run.len() - filled).min(RECEIVE_MAX)))
    }

    /// Accounts for received bytes: holds them, and retires the run if it is full.
    pub(super) fn landed(&mut self, frames: &mut dyn Frames, len: u32) -> Extent {
        let filling = self.current.as_mut().expect("bytes are received only into a run");
        let extent = Extent::new(filling.run.off + u64::from(filling.filled), len);
        filling.filled += len;
        frames.hold(extent);
        if u64::from(filling.filled) == RUN_SIZE {
            self.retire(frames);
        }
        extent
    }

    /// Retires the current run, full or not.
    pub(super) fn retire(&mut self, frames: &mut dyn Frames) {
        if let Some(Filling { run, .. }) = self.current.take() {
            frames.retire_run(run.off);
        }
    }
}
