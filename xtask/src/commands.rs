//! The table of commands, and their dispatch.

use crate::error::Error;
use crate::workspace::Workspace;
use crate::{campaign, ci, peers, sans_io, tidy, vm};

/// One developer command.
pub(crate) struct Command {
    /// The word after `cargo xtask`.
    pub(crate) name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Result<(), Error>,
}

/// All commands. `SPECIFICATION.md` may name no other.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "ci",
        usage: "ci [--only STEP[,STEP]] [--skip STEP[,STEP]] [--keep-going] [--verbose]",
        about: "all checks that must pass before a change lands, in order, with a closing table",
        run: ci::command,
    },
    Command {
        name: "peers",
        usage: "peers",
        about: "install the programs that tests compare against (redis, wrk, curl, redis-py)",
        run: peers::command,
    },
    Command {
        name: "sans-io",
        usage: "sans-io",
        about: "prove that the cores do no I/O, read no clock, start no thread and draw no entropy",
        run: sans_io::command,
    },
    Command {
        name: "tidy",
        usage: "tidy",
        about: "house rules over every source file: sizes, unsafe, layers, links, promises",
        run: tidy::command,
    },
    Command {
        name: "crash",
        usage: "crash [--cycles N] [--seed S] [--paged]",
        about: "the long kill -9 campaign against a release build of the server",
        run: campaign::crash::command,
    },
    Command {
        name: "attack",
        usage: "attack [--seconds N] [--only NAME[,NAME]] | attack copies [--cycles N] [--seed N]",
        about: "a release build of the server under attack, beside a well-behaved client; or killed between copies",
        run: campaign::attack::command,
    },
    Command {
        name: "suites",
        usage: "suites [--rounds N] [--operations N] [--seed S]",
        about: "foreign test suites on a mount of files: pjdfstest, and fsx N times",
        run: campaign::suites::command,
    },
    Command {
        name: "programs",
        usage: "programs [--cycles N] [--seed S] [--only NAME[,NAME]] [--with mount|library|server|all] [--built FOLDER]",
        about: "programs that people run (git, databases, a compiler) on a mount of files, killed with its server or alone",
        run: campaign::programs::command,
    },
    Command {
        name: "fuzz",
        usage: "fuzz [--seconds N] [--seed S] [TARGET]",
        about: "run the fuzz targets with new seeds until the time is up",
        run: campaign::fuzz::command,
    },
    Command {
        name: "sim",
        usage: "sim [--seeds N] [--seed S]",
        about: "run the simulator's tests over many seeds",
        run: campaign::sim::command,
    },
    Command {
        name: "vm",
        usage: "vm [--cycles N] [--seed S] [--mode devdax|fsdax|eadr|all] [--transport sockets|xdp|all] [--kernel DEB] [--keep] | vm host [--nvdimm [--alone|--replica]] [--cycles N] [--seed S] [--kernel DEB] [--keep] | vm image [--out DIR] [--kernel DEB]",
        about: "the server in a virtual machine with persistent memory; the machine is killed repeatedly; or a host in one, whose kernel panics; or that host's kernel and first file system, for `landfall bench linefs --machine`",
        run: vm::command,
    },
];

/// Runs the command that `words` name. Without words, or with `help`, lists the commands.
///
/// # Errors
/// [`Error::Usage`] where no such command exists, otherwise what the command reports.
pub(crate) fn dispatch(words: &[String]) -> Result<(), Error> {
    let Some((name, rest)) = words.split_first() else { return help() };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        return help();
    }
    let command = COMMANDS.iter().find(|c| c.name == name).ok_or_else(|| unknown(name))?;
    if rest.iter().any(|word| word == "--help" || word == "-h") {
        return help();
    }
    (command.run)(&Workspace::find()?, rest)
}

fn unknown(name: &str) -> Error {
    Error::Usage(format!("no command `{name}`; `cargo xtask help` lists them"))
}

fn help() -> Result<(), Error> {
    println!("Developer commands of Landfall\n");
    for command in COMMANDS {
        println!("  cargo xtask {}\n      {}", command.usage, command.about);
    }
    println!("  cargo xtask help\n      this list\n");
    println!("Steps of ci, in order:\n{}", ci::describe_steps());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_command_is_refused_with_advice() {
        let refused = dispatch(&["frobnicate".to_owned()]).unwrap_err().to_string();
        assert!(refused.contains("frobnicate") && refused.contains("cargo xtask help"), "{refused}");
    }

    #[test]
    fn command_names_are_distinct() {
        for (i, command) in COMMANDS.iter().enumerate() {
            assert!(COMMANDS[..i].iter().all(|earlier| earlier.name != command.name), "{}", command.name);
        }
    }
}
