//! Cache-line write-back instructions, chosen at run time.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{Ordering, compiler_fence};

use crate::error::MediaError;
use crate::units::LINE_SIZE;

/// The instruction that writes a cache line back to a byte-addressable medium.
///
/// Source: Intel SDM volume 2, CLWB, CLFLUSHOPT, CLFLUSH; CPUID leaf 7 and leaf 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlushInstruction {
    /// `clwb`: writes the line back and keeps it in the cache.
    Clwb,
    /// `clflushopt`: writes the line back and evicts it; unordered among lines.
    ClflushOpt,
    /// `clflush`: writes the line back and evicts it; ordered among lines. Every x86-64 CPU has it.
    Clflush,
    /// Nothing: the caches are within the persistence domain (eADR), or durability is not wanted.
    None,
}

impl FlushInstruction {
    /// The best instruction of this CPU.
    pub fn detect() -> Self {
        [Self::Clwb, Self::ClflushOpt].into_iter().find(|i| i.is_supported()).unwrap_or(Self::Clflush)
    }

    /// True when this CPU has the instruction.
    pub fn is_supported(self) -> bool {
        match self {
            Self::Clwb => features() & (1 << 24) != 0,
            Self::ClflushOpt => features() & (1 << 23) != 0,
            Self::Clflush | Self::None => true,
        }
    }

    /// The name used by the `--flush` flag and in logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Clwb => "clwb",
            Self::ClflushOpt => "clflushopt",
            Self::Clflush => "clflush",
            Self::None => "none",
        }
    }

    /// Starts writing back every line that `addr..addr + len` touches. Durable after [`store_fence`].
    ///
    /// # Safety
    /// The range must be mapped, and the CPU must have the instruction.
    #[inline]
    pub(super) unsafe fn write_back(self, addr: *const u8, len: usize) {
        let (start, len) = whole_lines(addr, len);
        // Stores before this point must not be moved past the flushes by the compiler.
        compiler_fence(Ordering::SeqCst);
        // SAFETY: rounding down to a line stays within the line's page; the caller vouches for the rest.
        unsafe {
            match self {
                Self::Clwb => each_line(start, len, |p| clwb(p)),
                Self::ClflushOpt => each_line(start, len, |p| clflushopt(p)),
                Self::Clflush => each_line(start, len, |p| _mm_clflush(p)),
                Self::None => {}
            }
        }
    }
}

impl fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FlushInstruction {
    type Err = MediaError;

    fn from_str(text: &str) -> Result<Self, MediaError> {
        [Self::Clwb, Self::ClflushOpt, Self::Clflush, Self::None]
            .into_iter()
            .find(|i| i.name() == text)
            .ok_or(MediaError::Unsupported(
                "unknown flush instruction: use clwb, clflushopt, clflush or none",
            ))
    }
}

/// CPUID.(EAX=7,ECX=0):EBX, or no features where the leaf does not exist.
fn features() -> u32 {
    if __cpuid(0).eax < 7 { 0 } else { __cpuid_count(7, 0).ebx }
}

/// Waits until every line written back by this thread is in the persistence domain.
#[inline]
pub(super) fn store_fence() {
    // SAFETY: sfence exists on every x86-64 CPU and touches no memory of ours.
    unsafe { _mm_sfence() };
    compiler_fence(Ordering::SeqCst);
}

/// The range extended to the start of its first line, so that steps of one line reach every line that it touches.
#[inline(always)]
fn whole_lines(addr: *const u8, len: usize) -> (*const u8, usize) {
    let skip = addr.addr() % LINE_SIZE as usize;
    (addr.wrapping_sub(skip), if len == 0 { 0 } else { len + skip })
}

#[inline(always)]
fn each_line(start: *const u8, len: usize, mut instruction: impl FnMut(*const u8)) {
    for at in (0..len).step_by(LINE_SIZE as usize) {
        instruction(start.wrapping_add(at));
    }
}

/// # Safety
/// `line` must be mapped, and the CPU must have `clwb`.
#[inline(always)]
unsafe fn clwb(line: *const u8) {
    // SAFETY: writes the line back without changing it; not `nomem`, so that earlier stores are not moved past it.
    unsafe { asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)) }
}

/// # Safety
/// `line` must be mapped, and the CPU must have `clflushopt`.
#[inline(always)]
unsafe fn clflushopt(line: *const u8) {
    // SAFETY: see `clwb`.
    unsafe { asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_unknown_names_are_refused() {
        for i in [
            FlushInstruction::Clwb,
            FlushInstruction::ClflushOpt,
            FlushInstruction::Clflush,
            FlushInstruction::None,
        ] {
            assert_eq!(i.to_string().parse::<FlushInstruction>().ok(), Some(i));
        }
        assert!(matches!("wbinvd".parse::<FlushInstruction>(), Err(MediaError::Unsupported(_))));
    }

    #[test]
    fn detection_agrees_with_the_kernels_view_of_the_cpu() {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags: Vec<&str> =
            info.lines().find(|l| l.starts_with("flags")).unwrap_or_default().split_whitespace().collect();
        for i in [FlushInstruction::Clwb, FlushInstruction::ClflushOpt] {
            assert_eq!(i.is_supported(), flags.contains(&i.name()), "{i}");
        }
    }

    #[test]
    fn every_line_that_a_range_touches_is_visited_once() {
        let lines = |addr, len| {
            let mut lines = Vec::new();
            let (start, len) = whole_lines(std::ptr::without_provenance(addr), len);
            each_line(start, len, |line| lines.push(line.addr()));
            lines
        };
        assert_eq!(lines(640, 65), [640, 704]);
        assert_eq!(lines(703, 2), [640, 704], "two bytes on two lines");
        assert_eq!(lines(650, 54), [640]);
        assert_eq!(lines(650, 0), [0; 0]);
    }
}
