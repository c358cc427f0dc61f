//! Frames in ordinary memory, with reference counts.

use landfall_media::Extent;
use landfall_net::Frames;

pub const FRAME: u64 = 2048;

/// A region of frames with their reference counts.
pub struct Arena {
    bytes: Vec<u8>,
    refs: Vec<u32>,
    max: usize,
    next: usize,
    pub set_aside: u64,
    /// Where the next bytes that are set aside are copied to.
    gathered: Option<u64>,
}

impl Arena {
    pub fn new(frames: usize) -> Self {
        Self { bytes: Vec::new(), refs: Vec::new(), max: frames, next: 0, set_aside: 0, gathered: None }
    }

    /// A free frame, with one hold.
    pub fn take(&mut self) -> Option<u64> {
        let count = self.refs.len();
        let free = (0..count).map(|i| (self.next + i) % count).find(|frame| self.refs[*frame] == 0);
        let free = free.or_else(|| self.grow())?;
        self.next = free + 1;
        self.refs[free] = 1;
        Some(free as u64 * FRAME)
    }

    /// Adds a frame; all existing ones are in use.
    fn grow(&mut self) -> Option<usize> {
        let frame = self.refs.len();
        if frame == self.max {
            return None;
        }
        self.refs.push(0);
        self.bytes.resize((frame + 1) * FRAME as usize, 0);
        Some(frame)
    }

    /// Copies bytes into a free frame at offset `skip`; the extent carries one hold.
    pub fn store(&mut self, skip: u64, bytes: &[u8]) -> Option<Extent> {
        assert!(skip as usize + bytes.len() <= FRAME as usize);
        let off = self.take()? + skip;
        self.bytes[off as usize..off as usize + bytes.len()].copy_from_slice(bytes);
        Some(Extent::new(off, bytes.len() as u32))
    }

    /// Copies bytes behind others that were set aside; the extent carries one hold.
    fn gather(&mut self, bytes: &[u8]) -> Option<Extent> {
        let fits = |at: &u64| !at.is_multiple_of(FRAME) && at % FRAME + bytes.len() as u64 <= FRAME;
        let Some(at) = self.gathered.filter(fits) else {
            let copy = self.store(0, bytes)?;
            self.gathered = Some(copy.end());
            return Some(copy);
        };
        let copy = Extent::new(at, bytes.len() as u32);
        self.bytes[at as usize..copy.end() as usize].copy_from_slice(bytes);
        self.hold(copy);
        self.gathered = Some(copy.end());
        Some(copy)
    }

    /// Number of frames with at least one hold.
    pub fn held(&self) -> usize {
        self.refs.iter().filter(|refs| **refs > 0).count()
    }

    fn frames(extent: Extent) -> std::ops::Range<usize> {
        if extent.is_empty() {
            return 0..0;
        }
        (extent.off / FRAME) as usize..((extent.end() - 1) / FRAME) as usize + 1
    }
}

impl Frames for Arena {
    fn bytes(&self, extent: Extent) -> &[u8] {
        for frame in Self::frames(extent) {
            assert!(self.refs[frame] > 0, "frame {frame} is read without a hold");
        }
        &self.bytes[extent.off as usize..extent.end() as usize]
    }

    fn hold(&mut self, extent: Extent) {
        for frame in Self::frames(extent) {
            assert!(self.refs[frame] > 0, "frame {frame} is held again after it was free");
            self.refs[frame] += 1;
        }
    }

    fn release(&mut self, extent: Extent) {
        for frame in Self::frames(extent) {
            assert!(self.refs[frame] > 0, "frame {frame} is released more often than held");
            self.refs[frame] -= 1;
            if self.refs[frame] == 0 {
                // A later read of the frame would see these bytes.
                let at = frame * FRAME as usize;
                self.gathered = self.gathered.filter(|gathered| *gathered as usize / FRAME as usize != frame);
                self.bytes[at..at + FRAME as usize].fill(0xdd);
            }
        }
    }

    fn set_aside(&mut self, extent: Extent) -> Option<Extent> {
        let bytes = self.bytes(extent).to_vec();
        let copy = self.gather(&bytes)?;
        self.release(extent);
        self.set_aside += u64::from(extent.len());
        Some(copy)
    }
}
