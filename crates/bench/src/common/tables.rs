//! Tables in Markdown, and the numbers in them.

use super::measure::stats::Summary;
use super::plots::Plot;
use super::targets::Target;

/// Markdown so far.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    pub(crate) fn line(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }

    /// A heading or paragraph, with a blank line after it.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.line(text);
        self.line("");
    }

    pub(crate) fn plots(&mut self, plots: &[Plot]) {
        for plot in plots {
            self.paragraph(&format!("![{}]({})", plot.title, plot.file));
        }
    }

    /// A table; rows as long as the head.
    pub(crate) fn table(&mut self, head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        self.line(&format!("| {} |", head.join(" | ")));
        self.line(&format!("|{}|", vec!["---"; head.len()].join("|")));
        for row in rows {
            self.line(&format!("| {} |", row.join(" | ")));
        }
        self.line("");
    }
}

/// What is aimed at, and whether it was reached.
pub(crate) fn target_table(page: &mut Page, targets: &[Target]) {
    page.paragraph("## Targets");
    let rows = targets.iter().map(|target| {
        let sign = target.bound.sign();
        let verdict = match target.met() {
            Some(true) => "pass",
            Some(false) => "**short**",
            None => target.why_unjudged(),
        };
        let wanted = format!("{sign} {} {}", target.wanted, target.unit);
        vec![target.what.clone(), wanted, spread_of(target.measured.as_ref()), verdict.into()]
    });
    page.table(&["target", "wanted", "measured", "verdict"], rows);
}

/// Formats a summary as [`spread`] does, or a dash if nothing was measured.
pub(crate) fn spread_of(summary: Option<&Summary>) -> String {
    summary.map_or("–".into(), spread)
}

/// Formats median and spread: `1.20 (1.10..1.30)`; the median alone of a single sample.
pub(crate) fn spread(summary: &Summary) -> String {
    match summary.samples.len() {
        1 => number(summary.median),
        _ => format!("{} ({}..{})", number(summary.median), number(summary.min), number(summary.max)),
    }
}

/// Formats a number with three significant digits, or as a whole number.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        small if small < 0.1 => format!("{value:.4}"),
        small if small < 10.0 => format!("{value:.2}"),
        middle if middle < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(crate) fn bytes(value: f64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(unit, _)| value >= *unit as f64);
    unit.map_or(format!("{value:.0} B"), |(unit, name)| format!("{:.1} {name}", value / *unit as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::targets::Bound;

    fn of(samples: &[f64]) -> Summary {
        Summary::of(samples.iter().copied()).unwrap()
    }

    #[test]
    fn a_target_without_a_verdict_says_why() {
        let target = |measured| Target {
            what: "lost".into(),
            bound: Bound::DifferenceAtMost,
            wanted: 5.0,
            unit: "%",
            measured,
        };
        let mut page = Page::default();
        target_table(&mut page, &[target(Some(of(&[-5.0]))), target(None), target(Some(of(&[1.0])))]);
        for row in [
            "| lost | ≤ 5 % | -5.00 | not measurable |",
            "| lost | ≤ 5 % | – | not measured |",
            "| lost | ≤ 5 % | 1.00 | pass |",
        ] {
            assert!(page.0.contains(row), "{row}: {}", page.0);
        }
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!(number(0.01234), "0.0123");
        assert_eq!(number(1.2345), "1.23");
        assert_eq!(number(12.345), "12.3");
        assert_eq!(number(123_456.7), "123457");
    }

    #[test]
    fn sizes_are_in_binary_units() {
        assert_eq!(bytes(512.0), "512 B");
        assert_eq!(bytes(1_572_864.0), "1.5 MiB");
    }

    #[test]
    fn a_single_sample_claims_no_spread() {
        assert_eq!(spread(&of(&[2.0])), "2.00");
        assert_eq!(spread(&of(&[2.0, 1.0, 3.0])), "2.00 (1.00..3.00)");
    }
}
