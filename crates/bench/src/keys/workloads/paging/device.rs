//! What the device can do: fio reads a file beside the region, directly and at random.

use super::data::Kind;
use crate::common::clients::{find_program, redis_benchmark::run_to_end};
use crate::common::error::BenchError;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of the terse output of fio (version 3): bytes a second of the reads, in KiB, and reads a second.
const KIB_PER_SECOND: usize = 6;
const READS_PER_SECOND: usize = 7;
/// Shares of a processor that fio and the kernel took for it, in percent.
const USER_PERCENT: usize = 87;
const SYSTEM_PERCENT: usize = 88;
const NAME: &str = "fio";

/// fio and its file.
#[derive(Debug)]
pub(super) struct Fio {
    program: PathBuf,
    file: PathBuf,
    bytes: u64,
}

/// What fio read in one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) reads: f64,
    pub(super) bytes: f64,
    /// Processor time of a read, microseconds.
    pub(super) cpu_us: f64,
}

impl Fio {
    /// Writes a file of so many bytes; `None` without fio.
    pub(super) fn on(file: &Path, bytes: u64) -> Result<Option<Self>, BenchError> {
        let Some(program) = find_program(NAME) else { return Ok(None) };
        let fio = Self { program, file: file.into(), bytes };
        let mut command = fio.command();
        command.args(["--rw=write", "--bs=1m", "--end_fsync=1"]);
        run_to_end(command, NAME)?;
        Ok(Some(fio))
    }

    /// Reads at random for a while, so many reads at a time.
    pub(super) fn read(&self, kind: &Kind, depth: usize, seconds: f64) -> Result<Rate, BenchError> {
        let mut command = self.command();
        // Without a map of what was read, fio cuts no read short because others touched a part of it.
        command.args(["--rw=randread", "--norandommap", "--time_based"]);
        command.arg(format!("--bssplit={}", kind.reads));
        command.arg(format!("--iodepth={depth}")).arg(format!("--runtime={}ms", (seconds * 1000.0).round()));
        let output = run_to_end(command, NAME)?;
        parse(&output).ok_or_else(|| BenchError::Client {
            program: NAME,
            status: "it ended well, without figures".into(),
            output,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--name=device", "--ioengine=io_uring", "--direct=1", "--randrepeat=0"]);
        command.args(["--fallocate=none", "--output-format=terse", "--terse-version=3"]);
        command.arg(format!("--filename={}", self.file.display())).arg(format!("--size={}", self.bytes));
        command
    }
}

/// fio says other things, too, each on a line of its own.
fn parse(output: &str) -> Option<Rate> {
    let line = output.lines().find(|line| line.starts_with("3;"))?;
    let fields: Vec<&str> = line.split(';').collect();
    let number = |index: usize| fields.get(index)?.trim_end_matches('%').parse::<f64>().ok();
    let (reads, percent) = (number(READS_PER_SECOND)?, number(USER_PERCENT)? + number(SYSTEM_PERCENT)?);
    let cpu_us = percent / 100.0 * 1e6 / reads;
    Some(Rate { reads, bytes: number(KIB_PER_SECOND)? * 1024.0, cpu_us })
}

#[cfg(test)]
mod tests {
    use super::{Rate, parse};

    #[test]
    fn rates_are_read_from_terse_output() {
        let between = "0;".repeat(79);
        let output =
            format!("fio: a remark\n3;fio-3.33;device;0;0;409600;204800;3200;{between}12.000000%;20.0%;7\n");
        let rate = Rate { reads: 3200.0, bytes: 204_800.0 * 1024.0, cpu_us: 100.0 };
        assert_eq!(parse(&output), Some(rate));
    }

    #[test]
    fn output_without_figures_is_no_rate() {
        assert_eq!(parse("fio: engine io_uring not loadable\n"), None);
        assert_eq!(parse("3;fio-3.33;device;0;0;409600\n"), None);
    }
}
