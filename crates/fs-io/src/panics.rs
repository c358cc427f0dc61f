//! A thread of the service that panics ends the process, and the mount with it.
//!
//! If only the thread ended, its requests would never be answered. A crash is safe at any time: nothing that was durable
//! is lost. The mount is detached first, so that no directory is left that answers "Transport endpoint is not connected".

use landfall_fuse::{Unmount, unmount};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Once;

/// Exit code of the process, as for any Rust program that panics.
const EXIT_CODE: i32 = 101;

thread_local! {
    /// The mountpoint that this thread serves, if it serves one.
    static SERVES: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Runs work without which the mount cannot be served.
pub(crate) fn essential<T>(point: &Path, work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            if let Ok(Some(point)) = SERVES.try_with(|serves| serves.borrow_mut().take()) {
                tracing::error!(
                    "a thread panicked ({panic}): the mount ends; mount again, nothing durable is lost"
                );
                // Nobody is left who could be told of a failure.
                let _ = unmount(&point, Unmount::Lazily);
                std::process::exit(EXIT_CODE);
            }
        }));
    });
    SERVES.with(|serves| *serves.borrow_mut() = Some(point.to_owned()));
    let done = work();
    SERVES.with(|serves| *serves.borrow_mut() = None);
    done
}
