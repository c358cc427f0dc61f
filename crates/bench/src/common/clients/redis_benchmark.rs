//! redis-benchmark, the load generator of Redis.

use super::{Load, LoadResult, Operation};
use crate::common::error::BenchError;
use crate::common::progress::check_stop;
use crate::common::sys;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that takes longer counts as hung.
const RUN_SECONDS_MAX: u64 = 300;
const POLL_EVERY: Duration = Duration::from_millis(5);

/// Runs redis-benchmark once.
pub(crate) fn run(program: &Path, load: &Load) -> Result<LoadResult, BenchError> {
    let command = command(Command::new(program), load);
    let output = run_to_end(command, "redis-benchmark")?;
    read(output)
}

/// Parses the output of redis-benchmark.
pub(crate) fn read(output: String) -> Result<LoadResult, BenchError> {
    parse(&output).ok_or_else(|| BenchError::Client {
        program: "redis-benchmark",
        status: "it ended well, without figures".into(),
        output,
    })
}

/// Runs a load generator to its end. Returns its standard output, which must fit in a pipe.
pub(crate) fn run_to_end(mut command: Command, name: &'static str) -> Result<String, BenchError> {
    let program = PathBuf::from(command.get_program());
    let mut child = Running(start(&mut command, Stdio::piped())?);
    let begun = Instant::now();
    let status = loop {
        check_stop()?;
        if let Some(status) = child.0.try_wait().map_err(BenchError::file(&program))? {
            break status;
        }
        if begun.elapsed().as_secs() > RUN_SECONDS_MAX {
            return Err(BenchError::TooLong { what: name.into(), seconds: RUN_SECONDS_MAX });
        }
        std::thread::sleep(POLL_EVERY);
    };
    let output = child.output();
    if !status.success() {
        return Err(BenchError::Client { program: name, status: status.to_string(), output });
    }
    Ok(output)
}

/// Keeps a load up until the guard is dropped.
pub(crate) fn keep_running(program: &Path, load: &Load) -> Result<Running, BenchError> {
    Ok(Running(start(&mut command(Command::new(program), load), Stdio::null())?))
}

/// Adds the arguments of a load to a command that runs redis-benchmark.
pub(crate) fn command(mut command: Command, load: &Load) -> Command {
    let shape = &load.shape;
    command.arg("-h").arg(load.address.ip().to_string()).args(["--csv", "--precision", "3"]);
    command.arg("-p").arg(load.address.port().to_string());
    command.arg("-t").arg(if load.operation == Operation::Set { "set" } else { "get" });
    command.arg("-n").arg(load.requests.to_string());
    command.arg("-c").arg(shape.clients.to_string());
    command.arg("-P").arg(shape.pipeline.to_string());
    command.arg("-d").arg(shape.value_bytes.to_string());
    if shape.random_keys > 0 {
        command.arg("-r").arg(shape.random_keys.to_string());
    }
    command
}

fn start(command: &mut Command, stdout: Stdio) -> Result<Child, BenchError> {
    command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    sys::end_with_parent(command);
    let program = command.get_program().to_string_lossy().into_owned();
    command.spawn().map_err(|source| BenchError::Spawn { program, source })
}

/// A client that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    /// True while the process has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Reads its output. The few lines fit in the pipe, so that the client never had to wait for a reader.
    fn output(&mut self) -> String {
        let mut text = String::new();
        if let Some(stdout) = &mut self.0.stdout {
            // A broken pipe gives a text that does not parse, and that is reported.
            let _ = stdout.read_to_string(&mut text);
        }
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads the `--csv` output: a line of names, a line of values; times are in ms.
fn parse(output: &str) -> Option<LoadResult> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("\"test\""));
    let names: Vec<&str> = lines.next()?.split(',').map(unquote).collect();
    let values: Vec<&str> = lines.next()?.split(',').map(unquote).collect();
    let field = |name: &str| -> Option<f64> {
        let column = names.iter().position(|candidate| *candidate == name)?;
        values.get(column)?.parse().ok()
    };
    Some(LoadResult {
        rps: field("rps")?,
        p50_us: field("p50_latency_ms")? * 1000.0,
        p95_us: field("p95_latency_ms")? * 1000.0,
        p99_us: field("p99_latency_ms")? * 1000.0,
        p999_us: None,
    })
}

fn unquote(cell: &str) -> &str {
    cell.trim().trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::parse;

    const OUTPUT: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\"SET\",\"232558.12\",\"3.117\",\"0.656\",\"2.599\",\"5.311\",\"14.879\",\"15.175\"\n";

    #[test]
    fn csv_output_is_read_in_microseconds() {
        let result = parse(OUTPUT).unwrap();
        assert_eq!(result.rps, 232_558.12);
        assert_eq!((result.p50_us, result.p95_us, result.p99_us), (2599.0, 5311.0, 14879.0));
    }

    #[test]
    fn warnings_in_front_are_skipped() {
        let output = format!("WARNING: Could not fetch server CONFIG\n{OUTPUT}");
        assert_eq!(parse(&output), parse(OUTPUT));
    }

    #[test]
    fn columns_are_found_by_name() {
        let output = "\"test\",\"p99_latency_ms\",\"rps\",\"p95_latency_ms\",\"p50_latency_ms\"\n\"GET\",\"4\",\"1\",\"3\",\"2\"\n";
        let result = parse(output).unwrap();
        assert_eq!((result.rps, result.p50_us, result.p99_us), (1.0, 2000.0, 4000.0));
    }

    #[test]
    fn errors_instead_of_figures_are_no_result() {
        assert_eq!(parse("Error from server: ERR unknown\n"), None);
        assert_eq!(parse("\"test\",\"rps\"\n"), None);
    }
}
