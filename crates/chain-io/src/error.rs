//! Why a node cannot take its place in a chain.

use landfall_chain::ViewError;
use std::io;
use std::path::PathBuf;

/// Why a node cannot take its place in a chain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Environment: a file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Misuse: a document has another form.
    #[error("{from}: no view of a chain, or no state of a node: {source}")]
    Syntax {
        /// The file, or where else it is.
        from: String,
        /// Where, and what is wrong.
        source: toml::de::Error,
    },
    /// Misuse: a view makes no sense, or not for this node.
    #[error("{from}: {source}")]
    View {
        /// The file, or where else it is.
        from: String,
        /// What is wrong.
        source: ViewError,
    },
    /// Misuse: the region belongs to another node or chain.
    #[error(
        "{} says that the region beside it is {node} of the chain {chain}: give the node's own region, or remove that file \
         if the data are to be replaced by those of the chain",
        path.display()
    )]
    Other {
        /// The file.
        path: PathBuf,
        /// The node.
        node: String,
        /// The chain.
        chain: String,
    },
    /// Misuse: the first node of the chain does not have the chain's data.
    #[error(
        "{node} is the first of the chain {chain}, and its region does not hold the chain's data: if the chain is new, run \
         `landfall chain init`; otherwise remove {node} from the view, so that another node is the first one, and add it again"
    )]
    FirstIsBehind {
        /// The node.
        node: String,
        /// The chain.
        chain: String,
    },
    /// Misuse: the chain is said to be as it was before.
    #[error(
        "{from} has version {version} of the chain {chain}, and {node} was in version {seen}: nodes may have missed what was \
         written since. Give the newer view back; if there is none any more, raise `version` above {seen} and leave out every node \
         that was out then, or make a new chain (`landfall chain create`, `landfall chain init` for the node with the data)"
    )]
    OldView {
        /// The file, or where else it is.
        from: String,
        /// The chain.
        chain: String,
        /// Its version.
        version: u64,
        /// The node.
        node: String,
        /// The newest version in which it was.
        seen: u64,
    },
    /// Misuse: another node is the first one.
    #[error(
        "{node} is not the first of the chain, {first} is: only the first one begins with data of its own"
    )]
    NotFirst {
        /// The node.
        node: String,
        /// The first one.
        first: String,
    },
    /// Environment: a thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Environment: there is no view yet, or none any more.
    #[error("{from}: there is no view of the chain")]
    NoView {
        /// Where it should be.
        from: String,
    },
    /// Misuse: the password is too long to be sent.
    #[error("a password of a chain has at most 255 bytes")]
    Password,
}
