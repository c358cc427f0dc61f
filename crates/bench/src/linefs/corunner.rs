//! A program that needs cores and memory beside the loads: the kernel of PARSEC's streamcluster, of our own.
//!
//! Points in so many dimensions lie in an array that is larger than the caches. Threads take blocks of it in turns, and for
//! each point find the nearest of some centres: memory is read in sequence, once for all centres, and every core computes.

use crate::common::clients::Random;
use crate::common::sys::take_lowest_priority;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Dimensions of a point, as in streamcluster's largest input.
const DIMENSIONS: usize = 128;
/// Centres. The paper's input asks for 10 to 20.
const CENTRES: usize = 16;
/// Points that a thread takes at once.
const BLOCK: usize = 256;
/// Most rounds through all points: if nobody ends it, it ends by itself.
const ROUNDS_MAX: u64 = 100_000;

/// Bytes of the points: more than the caches of any machine that this runs on, and for a quick run.
const POINT_BYTES: [usize; 2] = [256 << 20, 8 << 20];

/// Bytes of the points for a campaign that is quick or is not.
pub(super) const fn point_bytes(quick: bool) -> usize {
    POINT_BYTES[quick as usize]
}

/// The priority of the program's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// That of everything else.
    Same,
    /// They run where nothing else wants to.
    Lowest,
}

/// What the threads compute with.
#[derive(Debug)]
struct Points {
    coordinates: Vec<f32>,
    centres: Vec<f32>,
}

impl Points {
    /// Points of so many bytes; those of one block at least.
    fn new(bytes: usize) -> Self {
        let mut random = Random::new(1);
        // A generator's whole cycle would be most of the time here.
        let noise: Vec<f32> = (0..1009).map(|_| (random.next() >> 40) as f32 / (1 << 24) as f32).collect();
        let blocks = (bytes / (BLOCK * DIMENSIONS * size_of::<f32>())).max(1);
        let coordinates: Vec<f32> = noise.iter().copied().cycle().take(blocks * BLOCK * DIMENSIONS).collect();
        let centres = coordinates.iter().rev().copied().take(CENTRES * DIMENSIONS).collect();
        Self { coordinates, centres }
    }

    fn blocks(&self) -> u64 {
        (self.coordinates.len() / (BLOCK * DIMENSIONS)) as u64
    }

    /// The sum of the squared distances of a block's points to the nearest centres.
    fn cost_of(&self, block: u64) -> f32 {
        let len = BLOCK * DIMENSIONS;
        let points = &self.coordinates[(block % self.blocks()) as usize * len..][..len];
        points.chunks_exact(DIMENSIONS).map(|point| self.nearest(point)).sum()
    }

    fn nearest(&self, point: &[f32]) -> f32 {
        let to = |centre: &[f32]| point.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
        self.centres.chunks_exact(DIMENSIONS).map(to).fold(f32::INFINITY, f32::min)
    }
}

/// The program, running.
#[derive(Debug)]
pub(super) struct CoRunner {
    began: Instant,
    points: Arc<Points>,
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl CoRunner {
    /// With points of so many bytes, on so many threads of a priority.
    pub(super) fn start(bytes: usize, threads: usize, priority: Priority) -> Self {
        let (points, over) = (Arc::new(Points::new(bytes)), Arc::new(AtomicBool::new(false)));
        let next = Arc::new(AtomicU64::new(0));
        let began = Instant::now();
        let thread = |_| {
            let (points, over, next) = (Arc::clone(&points), Arc::clone(&over), Arc::clone(&next));
            std::thread::spawn(move || {
                if priority == Priority::Lowest {
                    take_lowest_priority();
                }
                compute(&points, &over, &next)
            })
        };
        let threads = (0..threads).map(thread).collect();
        Self { began, points, over, threads }
    }

    /// Ends it. Returns the time of one round through all points, ms.
    pub(super) fn end(mut self) -> f64 {
        let (blocks, seconds) = (self.join(), self.began.elapsed().as_secs_f64());
        seconds * 1000.0 * self.points.blocks() as f64 / blocks as f64
    }

    /// The blocks that were computed.
    fn join(&mut self) -> u64 {
        self.over.store(true, Ordering::Release);
        self.threads.drain(..).map(|thread| thread.join().expect("the co-runner panicked")).sum()
    }
}

impl Drop for CoRunner {
    fn drop(&mut self) {
        self.join();
    }
}

/// Computes blocks until it is over, but at least one, so that there is always something to report, and until all
/// rounds are done. Returns how many.
fn compute(points: &Points, over: &AtomicBool, next: &AtomicU64) -> u64 {
    let (mut computed, mut cost) = (0, 0.0);
    while computed == 0 || !over.load(Ordering::Acquire) {
        let block = next.fetch_add(1, Ordering::Relaxed);
        if block / points.blocks() >= ROUNDS_MAX {
            break;
        }
        cost += points.cost_of(block);
        computed += 1;
    }
    std::hint::black_box(cost);
    computed
}

/// The time of one round without anything beside it, ms, over so much time.
pub(super) fn alone(bytes: usize, threads: usize, time: Duration) -> f64 {
    let runner = CoRunner::start(bytes, threads, Priority::Same);
    std::thread::sleep(time);
    runner.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_the_distance_to_the_nearest_centre() {
        let mut points = Points::new(0);
        points.coordinates.fill(1.0);
        points.centres.fill(4.0);
        points.centres[5 * DIMENSIONS..6 * DIMENSIONS].fill(3.0);
        let each = 4.0 * DIMENSIONS as f32;
        assert_eq!(points.nearest(&points.coordinates[..DIMENSIONS]), each);
        assert_eq!(points.cost_of(0), each * BLOCK as f32);
        assert_eq!(points.cost_of(7), points.cost_of(0), "rounds go on at the first block");
    }

    #[test]
    fn threads_share_the_rounds_and_end_when_they_are_asked_or_have_done_all_but_not_without_a_block() {
        let points = Points::new(0);
        let (over, next) = (AtomicBool::new(false), AtomicU64::new(ROUNDS_MAX - 2));
        assert_eq!(compute(&points, &over, &next), 2);
        over.store(true, Ordering::Release);
        assert_eq!(compute(&points, &over, &AtomicU64::new(0)), 1);
        assert!(CoRunner::start(0, 1, Priority::Same).end() > 0.0);
        let mut runner = CoRunner::start(0, 2, Priority::Lowest);
        assert_eq!(runner.threads.len(), 2);
        runner.join();
        assert!(runner.threads.is_empty());
    }
}
