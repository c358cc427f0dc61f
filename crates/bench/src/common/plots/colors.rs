//! The colors of series: one for each series of a plot, and one for each server in all plots.

use crate::common::peers::names;
use plotters::prelude::RGBColor;

/// A plot has at most as many series.
pub(crate) const COLORS: [RGBColor; 14] = [
    RGBColor(150, 150, 150),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(106, 61, 154),
    RGBColor(140, 86, 75),
    RGBColor(178, 24, 43),
    RGBColor(128, 128, 0),
    RGBColor(0, 90, 50),
    RGBColor(0, 0, 0),
    RGBColor(255, 127, 200),
];

/// A plot has more series than there are colors. Two series with one color could not be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{series} series, but only {} colors", COLORS.len())]
pub(crate) struct TooManySeries {
    series: usize,
}

/// Returns a color for each name, no color twice.
///
/// A server that several plots show keeps its color. The other series take what is left, in the order of [`COLORS`].
pub(crate) fn colors_of(names: &[&str]) -> Result<Vec<RGBColor>, TooManySeries> {
    let mut colors: Vec<Option<RGBColor>> = Vec::with_capacity(names.len());
    for name in names {
        let known = known_color(name).filter(|color| !colors.contains(&Some(*color)));
        colors.push(known);
    }
    let taken = colors.clone();
    let mut free = COLORS.into_iter().filter(|color| !taken.contains(&Some(*color)));
    let color = |known: Option<RGBColor>| known.or_else(|| free.next());
    let all: Option<Vec<RGBColor>> = colors.into_iter().map(color).collect();
    all.ok_or(TooManySeries { series: names.len() })
}

/// The color of a series that several plots show: one of [`COLORS`].
fn known_color(name: &str) -> Option<RGBColor> {
    Some(match name {
        "discard" => RGBColor(150, 150, 150),
        names::LANDFALL | "PMNet" | "1 device" | "memory" => RGBColor(0, 114, 178),
        "3 devices" | "file" => RGBColor(0, 158, 115),
        names::REDIS_ALWAYS | "server log" | "LevelDB" => RGBColor(213, 94, 0),
        names::REDIS_EVERYSEC | "client log" | "copy + flush" => RGBColor(230, 159, 0),
        names::REDIS_NO => RGBColor(204, 121, 167),
        names::DISCARD => RGBColor(86, 180, 233),
        "the paper" => RGBColor(106, 61, 154),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn distinct(colors: &[RGBColor]) -> usize {
        colors.iter().map(|color| (color.0, color.1, color.2)).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn no_color_stands_for_two_series() {
        assert_eq!(distinct(&COLORS), COLORS.len());
        let names = ["uniform", "memory", "PMNet", "Zipf", names::LANDFALL, names::REDIS_NONE];
        assert_eq!(distinct(&colors_of(&names).unwrap()), names.len());
    }

    #[test]
    fn a_server_keeps_its_color_whatever_else_a_plot_shows() {
        let alone = colors_of(&[names::REDIS_ALWAYS]).unwrap();
        let others = ["a", "b", "c", "d", "e", names::REDIS_ALWAYS];
        assert_eq!(colors_of(&others).unwrap().last(), alone.first());
    }

    #[test]
    fn a_plot_with_more_series_than_colors_is_refused() {
        let names: Vec<String> = (0..=COLORS.len()).map(|series| format!("series {series}")).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        assert_eq!(distinct(&colors_of(&names[1..]).unwrap()), COLORS.len());
        assert_eq!(colors_of(&names).unwrap_err(), TooManySeries { series: COLORS.len() + 1 });
    }
}
