//! Counts passed, failed and skipped tests in the output of test programs.

/// The marker that a test prints at the start of a line when it cannot run here.
const SKIP: &str = "SKIP: ";

/// Counts of tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran and passed.
    pub(crate) passed: usize,
    /// Failed tests, and programs that were aborted.
    pub(crate) failed: usize,
    /// Tests that are ignored or that skip themselves.
    pub(crate) skipped: usize,
    /// The reasons that skipped tests printed.
    pub(crate) skips: Vec<String>,
}

impl Tally {
    /// Adds `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.skips.extend_from_slice(&other.skips);
    }

    /// Parses the output of a test program under `--show-output`. `success` is whether it exited with 0.
    ///
    /// A passed test that printed `SKIP: ` counts as skipped. A program that fails without a failed test was aborted,
    /// and counts as one failure.
    pub(crate) fn read(stdout: &str, stderr: &str, success: bool) -> Self {
        let mut tally = Self::default();
        for line in stdout.lines() {
            tally.add_result(line);
        }
        let ran = stdout.lines().any(|line| line.starts_with("test result: "));
        if success && !ran {
            // A program with its own harness counts as one test.
            tally.passed = 1;
        }
        tally.move_skips(skips(stdout));
        tally.move_skips(
            stderr.lines().filter_map(|line| line.strip_prefix(SKIP)).map(str::to_owned).collect(),
        );
        if !success && tally.failed == 0 {
            tally.failed = 1;
        }
        tally
    }

    fn add_result(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for count in counts.1.split("; ") {
            let Some((number, what)) = count.split_once(' ') else { continue };
            let number = number.parse().unwrap_or(0);
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }

    fn move_skips(&mut self, skips: Vec<String>) {
        let moved = skips.len().min(self.passed);
        self.passed -= moved;
        self.skipped += moved;
        self.skips.extend(skips);
    }
}

/// The reasons that skipped tests printed, one line for each test. The output of failed tests is ignored.
fn skips(stdout: &str) -> Vec<String> {
    let mut skips = Vec::new();
    let (mut failures, mut said) = (false, false);
    for line in stdout.lines() {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            said = false;
        } else if matches!(line, "successes:" | "failures:") {
            (failures, said) = (line == "failures:", false);
        } else if let Some(why) = line.strip_prefix(SKIP)
            && !failures
            && !said
        {
            skips.push(why.to_owned());
            said = true;
        }
    }
    skips
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Keep, run};
    use std::time::Duration;

    const OUTPUT: &str = "
running 4 tests
test a ... ok
test b ... ok
test c ... FAILED
test d ... ignored

successes:

---- a stdout ----
SKIP: redis: not installed
SKIP: said twice by one test
---- b stdout ----
not a SKIP: line

successes:
    a
    b

failures:

---- c stdout ----
SKIP: but then it failed
thread 'c' panicked

failures:
    c

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.01s
";

    #[test]
    fn test_that_skips_itself_counts_as_skipped() {
        let tally = Tally::read(OUTPUT, "", false);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (1, 1, 2));
        assert_eq!(tally.skips, ["redis: not installed"]);
    }

    #[test]
    fn several_results_are_summed() {
        let one =
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1s\n";
        let tally = Tally::read(&one.repeat(2), "", true);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (6, 0, 2));
    }

    #[test]
    fn aborted_program_is_a_failure() {
        assert_eq!(Tally::read("running 3 tests\n", "signal", false).failed, 1);
        let all_passed = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(Tally::read(all_passed, "", false).failed, 1);
    }

    #[test]
    fn program_with_its_own_harness_is_one_test() {
        assert_eq!(Tally::read("fine\n", "", true).passed, 1);
        let skipped = Tally::read("", "SKIP: all: no kernel\n", true);
        assert_eq!((skipped.passed, skipped.skipped), (0, 1));
    }

    /// Runs this test program once more, under the real harness, as a test that cannot run here.
    #[test]
    fn skip_is_recognized_through_the_real_harness() {
        const INNER: &str = "XTASK_TALLY_INNER";
        if std::env::var_os(INNER).is_some() {
            return eprintln!("SKIP: inner: on purpose");
        }
        let name = "ci::tally::tests::skip_is_recognized_through_the_real_harness";
        let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
        inner.args([name, "--exact", "--show-output"]).env(INNER, "1");
        let finished = run(&mut inner, Keep::Both, Duration::from_secs(20)).unwrap();
        let tally = Tally::read(&finished.stdout, &finished.stderr, finished.success);
        assert_eq!((tally.passed, tally.failed, tally.skipped), (0, 0, 1), "{}", finished.stdout);
        assert_eq!(tally.skips, ["inner: on purpose"]);
    }
}
