//! Formats a JSON report as text tables.

use crate::json::Json;

/// Maximum depth of objects that are printed; deeper ones are omitted.
const DEPTH_MAX: usize = 4;

/// Scalars as `name  value` lines, lists of objects as tables with a heading.
pub(crate) fn render(report: &Json) -> String {
    let mut out = String::new();
    object(report, "", 0, &mut out);
    out
}

fn object(json: &Json, prefix: &str, depth: usize, out: &mut String) {
    let Json::Object(members) = json else { return };
    for (name, value) in members {
        let name = format!("{prefix}{name}");
        match value {
            Json::Object(_) if depth < DEPTH_MAX => object(value, &format!("{name}."), depth + 1, out),
            Json::Array(items) if matches!(items.first(), Some(Json::Object(_))) => {
                *out += &format!("  {name}:\n{}", rows(items));
            }
            _ => *out += &format!("  {name:<28} {}\n", scalar(value)),
        }
    }
}

fn rows(items: &[Json]) -> String {
    let Some(Json::Object(first)) = items.first() else { return String::new() };
    let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
    let mut table = vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    table.extend(
        items
            .iter()
            .map(|item| names.iter().map(|name| item.get(name).map_or_else(String::new, scalar)).collect()),
    );
    align(&table)
}

fn align(table: &[Vec<String>]) -> String {
    let columns = table.first().map_or(0, Vec::len);
    let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        format!("    {}\n", cells.collect::<Vec<_>>().join("  "))
    };
    table.iter().map(line).collect()
}

fn scalar(json: &Json) -> String {
    match json {
        Json::Null => "-".to_owned(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => text.clone(),
        Json::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(" "),
        Json::Object(_) => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn report_is_shown_as_lines_and_tables() {
        let report = r#"{"cycles": 2, "media": {"kind": "file"}, "runs": [{"n": 1, "lost": 0}, {"n": 12}]}"#;
        let shown = render(&json::parse(report).unwrap());
        let expected = [
            "  cycles                       2",
            "  media.kind                   file",
            "  runs:",
            "     n  lost",
            "     1     0",
            "    12      ",
        ];
        assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    }
}
