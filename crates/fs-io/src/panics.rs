//! A thread of the service that panics ends the process, and the mount with it.
//!
//! If only the thread ended, its requests would never be answered. A crash is safe at any time: nothing that was durable
//! is lost. The mount is detached first, so that no directory is left that answers "Transport endpoint is not connected".
//! A mount that another process holds stays: its programs wait for the next server.

use landfall_fuse::{Unmount, unmount};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Once;

/// Who has made the mount that a thread serves.
#[derive(Clone, Debug)]
pub(crate) enum Holder {
    /// This process: the mount on this directory ends with it.
    This(PathBuf),
    /// Another process, which keeps it.
    Another,
}

/// Exit code of the process, as for any Rust program that panics.
const EXIT_CODE: i32 = 101;

thread_local! {
    /// Whose mount this thread serves, if it serves one.
    static SERVES: RefCell<Option<Holder>> = const { RefCell::new(None) };
}

/// Runs work without which the mount cannot be served.
pub(crate) fn essential<T>(holder: &Holder, work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            let Ok(Some(holder)) = SERVES.try_with(|serves| serves.borrow_mut().take()) else { return };
            match holder {
                Holder::This(point) => {
                    tracing::error!(
                        "a thread panicked ({panic}): the mount ends; mount again, nothing durable is lost"
                    );
                    // Nobody is left who could be told of a failure.
                    let _ = unmount(&point, Unmount::Lazily);
                }
                Holder::Another => tracing::error!(
                    "a thread panicked ({panic}): start the server again, nothing durable is lost"
                ),
            }
            std::process::exit(EXIT_CODE);
        }));
    });
    SERVES.with(|serves| *serves.borrow_mut() = Some(holder.clone()));
    let done = work();
    SERVES.with(|serves| *serves.borrow_mut() = None);
    done
}
