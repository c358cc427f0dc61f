//! Serving crates open results only through a reply, which then waits for the tickets that the results depend on.

use super::{Finding, RustFile};
use crate::source::{Source, line_of, words};

/// Crates in which nothing may be shown before it is durable.
const SERVING: [&str; 9] =
    ["heap", "kv", "wal", "pmnet", "pmnet-io", "bench-handlers", "resp", "http", "server"];
/// The replies, and the code that opens results for a reply.
const GATES: [&str; 3] =
    ["crates/heap/src/ticket.rs", "crates/server/src/reply.rs", "crates/server/src/resp/call.rs"];

/// Checks that no result is opened without a reply.
pub(crate) fn check(files: &[RustFile<'_>]) -> Vec<Finding> {
    files.iter().filter(|file| serves(file.path)).flat_map(check_file).collect()
}

fn serves(path: &str) -> bool {
    SERVING.iter().any(|name| path.starts_with(&format!("crates/{name}/src/"))) && !path.contains("test")
}

fn check_file(file: &RustFile<'_>) -> Vec<Finding> {
    if GATES.contains(&file.path) {
        return Vec::new();
    }
    let code = Source::new(file.text).without_tests().code;
    let found = |word, what| {
        words(&code, word).map(|at| Finding::new(file.path, line_of(&code, at), what)).collect::<Vec<_>>()
    };
    let mut findings =
        found("ungated", "a result is shown before it is durable: open it through the reply that shows it");
    findings.extend(code.match_indices("Gate for ").map(|(at, _)| {
        Finding::new(
            file.path,
            line_of(&code, at),
            "only replies may be gates: they wait for the tickets of what they show",
        )
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, rust_files};
    use super::*;

    fn found(path: &str, text: &str) -> usize {
        check(&rust_files(&fixture::files(&[(path, text)]))).len()
    }

    #[test]
    fn results_opened_without_a_reply_are_caught() {
        let early = "fn f() { engine.get(0, key, 1)?.ungated() }\n";
        assert_eq!(found("crates/server/src/resp/strings.rs", early), 1);
        assert_eq!(found("crates/kv/tests/model.rs", early), 0);
        assert_eq!(found("crates/sim/src/world.rs", early), 0);
        let test = format!("#[cfg(test)]\nmod tests {{ {early} }}\n");
        assert_eq!(found("crates/kv/src/engine.rs", &test), 0);
    }

    #[test]
    fn gates_that_are_not_replies_are_caught() {
        let gate = "impl Gate for Nothing { fn hold_until(&mut self, _: &Tickets) {} }\n";
        assert_eq!(found("crates/server/src/http/values.rs", gate), 1);
        assert_eq!(found("crates/server/src/reply.rs", gate), 0);
    }
}
