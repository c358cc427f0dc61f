//! A page of metrics: Prometheus text format, version 0.0.4.

use std::fmt::{Display, Write as _};

/// `Content-Type` of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A value that goes up and down.
    Gauge,
    /// Cumulative buckets, their sum and their count.
    Histogram,
    /// It may be either.
    Untyped,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Untyped => "untyped",
        }
    }
}

/// A page of metrics.
#[derive(Clone, Debug)]
pub struct Text {
    prefix: &'static str,
    text: String,
}

impl Text {
    /// Creates an empty page. The names of its metrics begin with `prefix` and an underscore.
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Begins a metric, whose samples follow. `help` has no line ends and no backslashes.
    pub fn metric(&mut self, kind: Kind, name: &str, help: &str) {
        let (prefix, kind) = (self.prefix, kind.name());
        self.line(format_args!("# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}"));
    }

    /// Adds a sample, with its labels and their values.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let prefix = self.prefix;
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        match &labels[..] {
            [] => self.line(format_args!("{prefix}_{name} {value}")),
            some => self.line(format_args!("{prefix}_{name}{{{}}} {value}", some.join(","))),
        }
    }

    /// Adds a counter of one value.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(Kind::Counter, name, help);
        self.sample(name, &[], value);
    }

    /// Adds counters, each with name, help text and value.
    pub fn counters<const N: usize>(&mut self, all: [(&str, &str, u64); N]) {
        all.into_iter().for_each(|(name, help, value)| self.counter(name, help, value));
    }

    /// Adds a gauge of one value.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.metric(Kind::Gauge, name, help);
        self.sample(name, &[], value);
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.text
    }
}

/// Escapes a label's value as the format requires.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_prometheus_text_format() {
        let mut text = Text::new("some");
        text.counters([("packets_total", "Packets", 3)]);
        text.gauge("entries", "Entries", 4);
        text.metric(Kind::Gauge, "state", "States");
        text.sample("state", &[("of", "x"), ("why", "a \"b\" \\\n")], -1);
        let expected = "# HELP some_packets_total Packets\n# TYPE some_packets_total counter\nsome_packets_total 3\n\
                        # HELP some_entries Entries\n# TYPE some_entries gauge\nsome_entries 4\n\
                        # HELP some_state States\n# TYPE some_state gauge\n\
                        some_state{of=\"x\",why=\"a \\\"b\\\" \\\\\\n\"} -1\n";
        assert_eq!(String::from(text), expected);
    }
}
