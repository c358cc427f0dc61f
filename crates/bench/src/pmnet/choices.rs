//! Contestants that several figures share.

use super::app::App;
use super::args::AppChoice;
use super::design::{Design, Spec, Waits};

/// Bytes of a value, and of an ideal handler's payload, unless a figure says otherwise (§VI-A2).
pub(crate) const PAYLOAD: usize = 100;
/// Bytes of a payload in Figure 16.
pub(crate) const LARGE_PAYLOAD: usize = 1000;

/// Returns an application under one load. With a single client, the client pauses and the device busy-polls. Many
/// clients need both cores.
pub(crate) fn app(app: App, design: Design, updates: u32, clients: usize) -> Spec {
    let alone = clients == 1;
    let waits = if alone { Waits::Polls } else { Waits::Block };
    let spec = Spec { app, design, waits, clients, payload: PAYLOAD, updates, rests: alone };
    spec.by_design(design)
}

/// Returns every application that a run measures: the ideal handler, those that are chosen, and chosen structures on a
/// file.
pub(crate) fn measured(apps: &[AppChoice]) -> Vec<App> {
    let chosen = apps.iter().map(|choice| choice.app());
    std::iter::once(App::Ideal).chain(chosen).chain(key_value(apps)).collect()
}

/// Returns the applications of Figure 20: the maps on persistent memory and on a file.
pub(crate) fn key_value(apps: &[AppChoice]) -> Vec<App> {
    let chosen = || apps.iter().map(|choice| choice.app()).filter(|app| app.is_key_value());
    let filed = chosen().filter_map(App::structure).map(App::Filed);
    chosen().chain(filed).collect()
}
