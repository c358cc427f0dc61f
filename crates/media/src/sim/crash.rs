//! What a crash may leave behind.

use std::sync::Arc;

use super::lines::{Line, Lines, Versions};
use super::rng::Rng;
use crate::units::LINE_SIZE;

/// Most pending lines whose subsets are ever enumerated: 2 to this power images.
pub const EXHAUSTIVE_LINES_MAX: usize = 24;

/// One moment in the history of a region, from which crash images can be drawn. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CrashState {
    lines: Arc<Lines>,
}

impl CrashState {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines: Arc::new(lines) }
    }

    /// Lines whose contents after a crash are uncertain.
    pub fn pending_count(&self) -> usize {
        self.lines.pending().len()
    }

    /// The image after a crash that lost everything pending.
    pub fn durable_image(&self) -> Vec<u8> {
        self.lines.durable().to_vec()
    }

    /// One possible image after a crash. Equal states and seeds give equal images.
    ///
    /// Each seed also draws what share of the lines survives, from none to all, so that a few hundred seeds cover the
    /// rare cases where a single line is lost, or only one survives.
    pub fn crash_image_seeded(&self, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        let through_of_8 = [0, 1, 4, 7, 8][rng.below(5)];
        let mut image = self.durable_image();
        for (index, versions) in self.lines.pending() {
            if rng.below(8) < through_of_8 {
                put(&mut image, *index, &survivor(self.lines.durable_line(*index), versions, &mut rng));
            }
        }
        image
    }

    /// Every image in which each pending line has its durable or its newest contents: 2 to the power of
    /// [`CrashState::pending_count`] images. The first is the one that lost everything.
    /// `None` when more than `lines_max` lines, or [`EXHAUSTIVE_LINES_MAX`], are pending.
    pub fn crash_images_exhaustive(&self, lines_max: usize) -> Option<Subsets> {
        let lines = self.pending_count();
        (lines <= lines_max.min(EXHAUSTIVE_LINES_MAX)).then(|| Subsets {
            state: self.clone(),
            next: 0,
            end: 1 << lines,
        })
    }

    fn subset(&self, mask: u64) -> Vec<u8> {
        let mut image = self.durable_image();
        for (bit, (index, versions)) in self.lines.pending().iter().enumerate() {
            if let (1, Some(newest)) = (mask >> bit & 1, versions.last()) {
                put(&mut image, *index, &newest.line);
            }
        }
        image
    }
}

/// The images of [`CrashState::crash_images_exhaustive`].
#[derive(Clone, Debug)]
pub struct Subsets {
    state: CrashState,
    next: u64,
    end: u64,
}

impl Iterator for Subsets {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mask = (self.next < self.end).then_some(self.next)?;
        self.next += 1;
        Some(self.state.subset(mask))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.end - self.next) as usize;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Subsets {}

/// The contents after the crash of a line that was written at least in part: the newest, an older, or a torn version.
fn survivor(durable: &Line, versions: &Versions, rng: &mut Rng) -> Line {
    let any = versions[rng.below(versions.len())].line;
    match rng.below(4) {
        0 | 1 => versions[versions.len() - 1].line,
        2 => any,
        _ => torn(durable, &any, rng),
    }
}

/// Each word is drawn at random from one of the two: only an aligned 8-byte store is atomic.
fn torn(durable: &Line, version: &Line, rng: &mut Rng) -> Line {
    let choice = rng.next();
    let mut line = *durable;
    for word in 0..line.len() / 8 {
        if choice >> word & 1 == 1 {
            line[word * 8..][..8].copy_from_slice(&version[word * 8..][..8]);
        }
    }
    line
}

fn put(image: &mut [u8], index: u64, line: &Line) {
    image[(index * LINE_SIZE) as usize..][..line.len()].copy_from_slice(line);
}
