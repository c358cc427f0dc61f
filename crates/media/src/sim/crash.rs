//! What a crash may leave behind.

use super::chunks::{Chunks, Line};
use super::lines::{Lines, Versions};
use super::rng::Rng;
use crate::units::LINE_SIZE;
use std::sync::Arc;

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

    /// What is left after a crash that lost everything pending.
    pub fn durable(&self) -> CrashImage {
        CrashImage { lines: self.lines.without_pending() }
    }

    /// What is left after a crash that lost nothing.
    pub fn newest(&self) -> CrashImage {
        self.with(|_, _, versions| Some(versions[versions.len() - 1].line))
    }

    /// What may be left after a crash. Equal states and seeds give equal images.
    ///
    /// Each seed also draws what share of the lines survives, from none to all, so that a few hundred seeds cover the
    /// rare cases where a single line is lost, or only one survives.
    pub fn draw(&self, seed: u64) -> CrashImage {
        let mut rng = Rng::new(seed);
        let through_of_8 = [0, 1, 4, 7, 8][rng.below(5)];
        self.with(|index, _, versions| {
            let survives = rng.below(8) < through_of_8;
            survives.then(|| survivor(self.lines.durable_line(index), versions, &mut rng))
        })
    }

    /// An image with the lines that `survivor` yields for pending ones. `None`: the line is lost.
    fn with(&self, mut survivor: impl FnMut(u64, usize, &Versions) -> Option<Line>) -> CrashImage {
        let mut image = self.durable();
        for (bit, (index, versions)) in self.lines.pending().iter().enumerate() {
            if let Some(line) = survivor(*index, bit, versions) {
                image.lines.survive(*index, line);
            }
        }
        image
    }

    /// The bytes of [`Self::durable`].
    pub fn durable_image(&self) -> Vec<u8> {
        self.lines.durable().to_vec()
    }

    /// The bytes of [`Self::draw`].
    pub fn crash_image_seeded(&self, seed: u64) -> Vec<u8> {
        self.draw(seed).to_vec()
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

    fn subset(&self, mask: u64) -> CrashImage {
        let newest = |_, bit: usize, versions: &Versions| {
            (mask >> bit & 1 == 1).then(|| versions[versions.len() - 1].line)
        };
        self.with(newest)
    }
}

/// The bytes that a crash has left. Cheap to clone; [`super::SimMedia::restart`] continues with them.
#[derive(Clone, Debug)]
pub struct CrashImage {
    pub(super) lines: Lines,
}

impl CrashImage {
    /// All bytes of the region.
    pub fn to_vec(&self) -> Vec<u8> {
        self.lines.durable().to_vec()
    }

    /// The parts of the region that something was stored to, with their offsets. All other bytes are zero.
    pub fn stored(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.lines.durable().stored()
    }
}

/// Images are equal whose bytes are. It costs as much as what is not shared.
impl PartialEq for CrashImage {
    fn eq(&self, other: &Self) -> bool {
        self.lines.durable().has_bytes_of(other.lines.durable())
    }
}

impl Eq for CrashImage {}

impl From<Vec<u8>> for CrashImage {
    /// # Panics
    /// If these are not whole lines.
    fn from(bytes: Vec<u8>) -> Self {
        assert_is_whole(bytes.len() as u64);
        Self { lines: Lines::new(Chunks::new(&bytes)) }
    }
}

/// # Panics
/// If a region cannot have this length.
pub(super) fn assert_is_whole(len: u64) {
    assert!(len.is_multiple_of(LINE_SIZE), "a region is a whole number of lines, not {len} bytes");
}

/// The images of [`CrashState::crash_images_exhaustive`].
#[derive(Clone, Debug)]
pub struct Subsets {
    state: CrashState,
    next: u64,
    end: u64,
}

impl Iterator for Subsets {
    type Item = CrashImage;

    fn next(&mut self) -> Option<CrashImage> {
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
        _ => torn(durable, versions, rng),
    }
}

/// Each word is drawn at random from the durable contents or any later ones, whatever was drawn for the others: only an
/// aligned 8-byte store is atomic, and bytes that are not fenced become durable in any order.
fn torn(durable: &Line, versions: &Versions, rng: &mut Rng) -> Line {
    let choices = rng.next().to_le_bytes();
    let mut line = *durable;
    for (word, choice) in choices.into_iter().enumerate() {
        let later = (usize::from(choice) % (versions.len() + 1)).checked_sub(1);
        if let Some(version) = later.map(|at| &versions[at].line) {
            line[word * 8..][..8].copy_from_slice(&version[word * 8..][..8]);
        }
    }
    line
}

/// One choice for each word of a line.
const _: () = assert!(LINE_SIZE as usize == size_of::<[u64; 8]>());
