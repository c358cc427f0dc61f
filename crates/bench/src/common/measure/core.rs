//! The time that a core was busy for all users: a client's process and the kernel's work for it, with interrupts.

use super::cpu::TICK_NS;
use std::fs;

/// Time that a core has been busy since the system's start, nanoseconds, in ticks; 0 where the kernel does not report
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BusyTime(u64);

impl BusyTime {
    /// As of now.
    pub(crate) fn of(core: usize) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        Self(busy_ticks(&stat, core).unwrap_or(0) * TICK_NS)
    }

    /// Nanoseconds since `earlier`.
    pub(crate) const fn since_ns(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// `user`, `nice`, `system`, `irq` and `softirq` of a core's line of `/proc/stat` (proc_stat(5)).
fn busy_ticks(stat: &str, core: usize) -> Option<u64> {
    let name = format!("cpu{core}");
    let mut fields = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut line| (line.next()? == name).then_some(line))?;
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, nice, system) = (next()?, next()?, next()?);
    let (_idle, _iowait) = (next()?, next()?);
    Some(user + nice + system + next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::busy_ticks;

    #[test]
    fn what_is_neither_idle_nor_stolen_is_busy() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu10 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        assert_eq!(busy_ticks(stat, 0), Some(1 + 2 + 3 + 6 + 7));
        assert_eq!(busy_ticks(stat, 10), Some(5));
        assert_eq!(busy_ticks(stat, 1), None);
    }
}
