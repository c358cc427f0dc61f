//! Reports: what was measured is kept as JSON, and everything else is drawn from it.
//!
//! The measuring command writes its report by [`write_report`], which draws it by the function that also draws a kept report:
//! [`draw_report`]. So a report that is drawn anew looks as if it had just been measured.

use super::error::BenchError;
use super::plots::Plot;
use serde::de::{DeserializeOwned, Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The results of one kind of benchmark.
pub(crate) trait Report: Serialize + DeserializeOwned {
    /// The names of its files, before their dot.
    const NAME: &'static str;
    /// The version of the layout of its JSON file.
    const SCHEMA: u32;
    /// What is aimed at, and what was measured of it.
    type Target: Serialize;

    /// Compares the results with the targets.
    fn judge(&self) -> Vec<Self::Target>;
    /// Draws every plot that there is data for into a folder.
    fn plots(&self, out: &Path) -> Result<Vec<Plot>, BenchError>;
    /// Returns the report as Markdown.
    fn markdown(&self, targets: &[Self::Target], plots: &[Plot]) -> String;
}

/// A JSON file.
#[derive(Serialize, Deserialize)]
struct Kept<R> {
    results: R,
}

/// Any version of a report.
#[derive(Deserialize)]
struct Versioned {
    schema: u32,
}

/// Returns the path of a report's JSON file in a folder.
fn json_path<R: Report>(folder: &Path) -> PathBuf {
    folder.join(format!("{}.json", R::NAME))
}

/// Writes the JSON file, the plots and the Markdown file into a folder, created if absent. Returns the path of the
/// Markdown file.
pub(crate) fn write_report<R: Report>(out: &Path, results: &R) -> Result<PathBuf, BenchError> {
    fs::create_dir_all(out).map_err(BenchError::file(out))?;
    let path = json_path::<R>(out);
    let json = serde_json::json!({ "results": results, "targets": results.judge() });
    let json = serde_json::to_vec_pretty(&json);
    let json = json.map_err(|error| BenchError::File { path: path.clone(), source: error.into() })?;
    fs::write(&path, json).map_err(BenchError::file(&path))?;
    draw_report(out, results)
}

/// Writes the plots and the Markdown file into a folder. Returns the path of the Markdown file.
pub(crate) fn draw_report<R: Report>(out: &Path, results: &R) -> Result<PathBuf, BenchError> {
    let plots = results.plots(out)?;
    let path = out.join(format!("{}.md", R::NAME));
    let text = results.markdown(&results.judge(), &plots);
    fs::write(&path, text).map_err(BenchError::file(&path))?;
    Ok(path)
}

/// Reads the report that is kept in a folder. `None` if there is none of this kind.
pub(crate) fn read_report<R: Report>(folder: &Path) -> Result<Option<R>, BenchError> {
    let path = json_path::<R>(folder);
    let json = match fs::read(&path) {
        Ok(json) => json,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(BenchError::file(&path)(error)),
    };
    let kept = parse::<R>(&json).map_err(|reason| BenchError::Report { path, bench: R::NAME, reason })?;
    Ok(Some(kept))
}

fn parse<R: Report>(json: &[u8]) -> Result<R, serde_json::Error> {
    let Kept::<Versioned> { results: Versioned { schema } } = serde_json::from_slice(json)?;
    if schema != R::SCHEMA {
        let reason = format!("its layout is version {schema}, this build reads version {}", R::SCHEMA);
        return Err(serde_json::Error::custom(reason));
    }
    let kept: Kept<R> = serde_json::from_slice(json)?;
    Ok(kept.results)
}

/// Reads one of `all` by the name that reports have for it. `what` says in errors what was expected.
pub(crate) fn by_name<'de, D: Deserializer<'de>, T, N: AsRef<str>>(
    from: D,
    all: impl IntoIterator<Item = T>,
    name: impl Fn(&T) -> N,
    what: &str,
) -> Result<T, D::Error> {
    let read = String::deserialize(from)?;
    let found = all.into_iter().find(|one| name(one).as_ref() == read);
    found.ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&read), &what))
}
