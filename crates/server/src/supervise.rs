//! A thread of the server that panics ends the process.
//!
//! If only the thread ended, its work would stay unfinished: keys would stay pending, locks would stay held, and a
//! commit would never complete, while the other threads continue. A crash is safe at any time and a restart is quick,
//! so the process ends at once, before destructors run, with [`EXIT_CODE`].

use std::cell::Cell;
use std::sync::Once;

/// Exit code of the process, as for any Rust program that panics.
pub(crate) const EXIT_CODE: i32 = 101;

thread_local! {
    /// Name of the essential work of this thread, if any.
    static ESSENTIAL: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs work that the server cannot continue without.
pub(crate) fn essential<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            report(panic);
            if let Ok(Some(name)) = ESSENTIAL.try_with(Cell::get) {
                tracing::error!(
                    "{name} panicked ({panic}): the server ends; start it again, nothing durable is lost"
                );
                std::process::exit(EXIT_CODE);
            }
        }));
    });
    ESSENTIAL.set(Some(name));
    let done = work();
    ESSENTIAL.set(None);
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const CHILD: &str = "LANDFALL_TEST_PANICKING_CHILD";

    /// A process with a worker that panics while its main thread waits for ever.
    fn panicking_server() {
        std::thread::spawn(|| essential("a worker", || panic!("on purpose")));
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn worker_that_panics_ends_the_process_while_others_live() {
        if std::env::var_os(CHILD).is_some() {
            panicking_server();
        }
        let this = "supervise::tests::worker_that_panics_ends_the_process_while_others_live";
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command.args(["--exact", this, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let words = String::from_utf8_lossy(&child.stderr).into_owned();
        assert_eq!(child.status.code(), Some(EXIT_CODE), "{words}");
        assert!(words.contains("on purpose"), "{words}");
    }

    #[test]
    fn other_threads_may_panic() {
        assert_eq!(essential("a worker", || 7), 7);
        assert!(std::thread::spawn(|| panic!("of a test")).join().is_err());
        assert!(ESSENTIAL.get().is_none());
    }
}
