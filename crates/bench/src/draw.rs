//! `landfall bench draw`: draws kept reports anew.

use crate::common::error::BenchError;
use crate::common::progress::say;
use crate::common::report::{Report, draw_report, read_report};
use crate::{files, keys, linefs, paper, pmnet};
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of `landfall bench draw`.
#[derive(Clone, Debug, Args)]
pub struct DrawArgs {
    /// Folders that a measurement wrote its report into (`--out`): kv.json, paper.json, pmnet.json, fs.json or linefs.json is
    /// read, and the plots and the Markdown file beside it are written anew
    #[arg(value_name = "FOLDER", required = true)]
    pub folders: Vec<PathBuf>,
}

/// Draws the reports of all folders. The first that cannot be drawn ends it.
pub(crate) fn run(args: &DrawArgs) -> Result<(), BenchError> {
    for folder in &args.folders {
        for path in draw_folder(folder, folder)? {
            say(format_args!("report: {}", path.display()));
        }
    }
    Ok(())
}

/// Draws every report that is kept in `folder` into `out`. Returns the paths of the Markdown files.
fn draw_folder(folder: &Path, out: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let kinds = [
        draw_kind::<keys::Results>,
        draw_kind::<paper::Results>,
        draw_kind::<pmnet::Results>,
        draw_kind::<files::Results>,
        draw_kind::<linefs::Results>,
    ];
    let drawn: Result<Vec<_>, _> =
        kinds.into_iter().filter_map(|draw| draw(folder, out).transpose()).collect();
    let drawn = drawn?;
    if drawn.is_empty() {
        return Err(BenchError::NoReport(folder.into()));
    }
    Ok(drawn)
}

fn draw_kind<R: Report>(folder: &Path, out: &Path) -> Result<Option<PathBuf>, BenchError> {
    let results = read_report::<R>(folder)?;
    results.map(|results| draw_report(out, &results)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::report::write_report;
    use std::collections::BTreeMap;
    use std::fs;

    /// The files that a report is drawn as, and their bytes.
    fn drawn_files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let reports = ["kv.md", "paper.md", "pmnet.md", "fs.md", "linefs.md"];
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let drawn = paths.filter(|path| name(path).ends_with(".svg") || reports.contains(&&*name(path)));
        drawn.map(|path| (name(&path), fs::read(&path).unwrap())).collect()
    }

    fn folders_below(folder: &Path) -> Vec<PathBuf> {
        let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let below: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
        let deeper = below.iter().flat_map(|folder| folders_below(folder)).collect::<Vec<_>>();
        below.into_iter().chain(deeper).collect()
    }

    #[test]
    fn kept_plots_and_tables_are_what_the_kept_reports_draw() {
        let results =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results").canonicalize().unwrap();
        let mut reports = 0;
        for folder in folders_below(&results) {
            let kept = drawn_files(&folder);
            if kept.is_empty() {
                continue;
            }
            let out = tempfile::tempdir().unwrap();
            let hint = format!("`landfall bench draw {}` draws it anew", folder.display());
            reports += draw_folder(&folder, out.path()).unwrap().len();
            let drawn = drawn_files(out.path());
            let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(
                names(&kept),
                names(&drawn),
                "a plot is there that no report draws, or one is missing; {hint}"
            );
            let stale: Vec<&String> = kept.keys().filter(|name| kept[*name] != drawn[*name]).collect();
            assert!(stale.is_empty(), "{stale:?}: not what the report draws; {hint}");
        }
        assert!(reports >= 6, "{reports} reports");
    }

    /// Writes a report as the measuring command does, reads it, draws it elsewhere, and compares.
    fn survives_json<R: Report>(results: &R) {
        let (measured, drawn) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write_report(measured.path(), results).unwrap();
        let paths = draw_folder(measured.path(), drawn.path()).unwrap();
        assert_eq!(paths, [drawn.path().join(format!("{}.md", R::NAME))]);
        let (before, after) = (drawn_files(measured.path()), drawn_files(drawn.path()));
        assert!(before.len() > 1 && before == after, "{}", R::NAME);
        // What is read is all that was written.
        let read = read_report::<R>(measured.path()).unwrap().unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(results).unwrap());
    }

    #[test]
    fn reports_survive_json_and_are_drawn_to_the_same_bytes() {
        survives_json(&keys::full_sample());
        survives_json(&paper::sample());
        survives_json(&pmnet::sample());
        survives_json(&files::sample());
        survives_json(&linefs::sample());
    }

    fn refused(folder: &Path) -> String {
        run(&DrawArgs { folders: vec![folder.into()] }).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_report_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let none = refused(folder.path());
        assert!(
            none.contains("no kv.json, paper.json, pmnet.json, fs.json or linefs.json")
                && none.contains("--out"),
            "{none}"
        );
        let json = folder.path().join("kv.json");
        for (text, why) in [
            ("{ \"results\": {", "EOF"),
            ("{ \"chart\": 1 }", "missing field `results`"),
            ("{ \"results\": { \"schema\": 1 } }", "version 1, this build reads version 2"),
            ("{ \"results\": { \"schema\": 2 } }", "missing field"),
        ] {
            fs::write(&json, text).unwrap();
            let refused = refused(folder.path());
            assert!(refused.contains(why) && refused.contains("`landfall bench kv`"), "{refused}");
        }
        assert_eq!(drawn_files(folder.path()), BTreeMap::new(), "nothing is drawn");
    }
}
