//! Plots: bars beside each other, lines, stacked bars.

pub(crate) mod bars;
pub(crate) mod chart;
pub(crate) mod colors;
mod scale;

/// A plot that was drawn.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    /// The name of its file in the output folder.
    pub(crate) file: String,
}

/// The largest number of panels in a plot.
pub(crate) const PANELS_MAX: usize = 24;

/// Formats a number for an axis: two consecutive labels must not round to one text.
pub(crate) fn short(value: f64) -> String {
    let trimmed = |value: f64, digits: usize| {
        let text = format!("{value:.digits$}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        if matches!(text, "-0" | "") { "0".to_owned() } else { text.to_owned() }
    };
    match value.abs() {
        large if large >= 1e6 => format!("{} M", trimmed(value / 1e6, 1)),
        large if large >= 1e4 => format!("{:.0} k", value / 1e3),
        large if large >= 1e3 => format!("{} k", trimmed(value / 1e3, 1)),
        large if large >= 10.0 => format!("{value:.0}"),
        large if large >= 0.1 => trimmed(value, 2),
        _ => trimmed(value, 4),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn labels_of_an_axis_tell_its_steps_apart() {
        let labels = [-0.0, 0.002, 0.5, 5.0, 500.0, 1000.0, 1500.0, 50_000.0, 1.5e6].map(short);
        assert_eq!(labels, ["0", "0.002", "0.5", "5", "500", "1 k", "1.5 k", "50 k", "1.5 M"]);
    }
}
