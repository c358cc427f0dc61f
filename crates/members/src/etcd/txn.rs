//! Transactions: conditions, and what is done where they hold or do not.

use super::http::Endpoint;
use super::keys::{Entry, FoundJson, Lease, Revision};
use super::wire::{coded, end_of, number};
use crate::error::MembersError;
use serde::Deserialize;
use serde_json::{Value, json};

/// A transaction: `then` if all conditions hold, `otherwise` if one does not. etcd takes 128 operations in one by
/// default, and no two of them may write the same key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions.
    pub when: Vec<Condition>,
    /// Carried out if all of them hold.
    pub then: Vec<Op>,
    /// Carried out if one does not hold.
    pub otherwise: Vec<Op>,
}

/// A condition on one key. A key that does not exist has version 0 and revisions 0, and no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Which key.
    pub key: String,
    /// What of it is compared.
    pub target: Target,
    /// How what etcd has relates to what is given.
    pub relation: Relation,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// How often the key was written since it was created.
    Version(u64),
    /// The revision in which the key was created.
    Created(u64),
    /// The revision of its last change.
    Modified(u64),
    /// Its value.
    Value(Vec<u8>),
}

/// How what etcd has relates to what is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is equal.
    Equal,
    /// It is not equal.
    NotEqual,
    /// It is less.
    Less,
    /// It is greater.
    Greater,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads a key.
    Get {
        /// Which key.
        key: String,
    },
    /// Reads all keys with a prefix.
    GetPrefix {
        /// Which prefix, not empty.
        prefix: String,
    },
    /// Writes a key.
    Put {
        /// Which key.
        key: String,
        /// Its value.
        value: Vec<u8>,
        /// The lease that it ends with.
        lease: Option<Lease>,
    },
    /// Deletes a key.
    Delete {
        /// Which key.
        key: String,
    },
    /// Deletes all keys with a prefix.
    DeletePrefix {
        /// Which prefix, not empty.
        prefix: String,
    },
}

/// What a transaction has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxnOutcome {
    /// Whether all conditions did hold.
    pub succeeded: bool,
    /// The revision in which it was carried out.
    pub revision: Revision,
    /// One answer for each operation that was carried out.
    pub answers: Vec<OpAnswer>,
}

/// The answer of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpAnswer {
    /// What was read.
    Found(Vec<Entry>),
    /// It was written.
    Written,
    /// So many keys were deleted.
    Deleted(u64),
}

impl Condition {
    /// The key exists, or does not.
    pub fn exists(key: impl Into<String>, exists: bool) -> Self {
        let relation = if exists { Relation::NotEqual } else { Relation::Equal };
        Self { key: key.into(), target: Target::Version(0), relation }
    }

    /// The key's last change is that of this revision; 0 means that the key does not exist.
    pub fn unchanged_since(key: impl Into<String>, modified: u64) -> Self {
        Self { key: key.into(), target: Target::Modified(modified), relation: Relation::Equal }
    }

    fn json(&self) -> Value {
        let (target, field, value) = match &self.target {
            Target::Version(version) => ("VERSION", "version", version.to_string()),
            Target::Created(revision) => ("CREATE", "create_revision", revision.to_string()),
            Target::Modified(revision) => ("MOD", "mod_revision", revision.to_string()),
            Target::Value(value) => ("VALUE", "value", coded(value)),
        };
        let relation = match self.relation {
            Relation::Equal => "EQUAL",
            Relation::NotEqual => "NOT_EQUAL",
            Relation::Less => "LESS",
            Relation::Greater => "GREATER",
        };
        json!({"key": coded(&self.key), "target": target, "result": relation, field: value})
    }
}

impl Op {
    fn json(&self) -> Value {
        match self {
            Self::Get { key } => json!({"request_range": one(key)}),
            Self::GetPrefix { prefix } => json!({"request_range": all(prefix)}),
            Self::Put { key, value, lease } => json!({"request_put": put(key, value, *lease)}),
            Self::Delete { key } => json!({"request_delete_range": one(key)}),
            Self::DeletePrefix { prefix } => json!({"request_delete_range": all(prefix)}),
        }
    }
}

impl Txn {
    pub(super) fn json(&self) -> Value {
        let ops = |ops: &[Op]| ops.iter().map(Op::json).collect::<Vec<_>>();
        let when: Vec<_> = self.when.iter().map(Condition::json).collect();
        json!({"compare": when, "success": ops(&self.then), "failure": ops(&self.otherwise)})
    }
}

/// The range of one key.
pub(super) fn one(key: &str) -> Value {
    json!({"key": coded(key)})
}

/// The range of all keys with a prefix.
pub(super) fn all(prefix: &str) -> Value {
    json!({"key": coded(prefix), "range_end": coded(end_of(prefix))})
}

/// The JSON of a write.
pub(super) fn put(key: &str, value: &[u8], lease: Option<Lease>) -> Value {
    let lease = lease.map_or(0, Lease::id).to_string();
    json!({"key": coded(key), "value": coded(value), "lease": lease})
}

#[derive(Deserialize)]
pub(super) struct TxnJson {
    // Without a header it is no answer to this question.
    header: Revision,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<OpJson>,
}

#[derive(Deserialize)]
struct OpJson {
    #[serde(default)]
    response_range: Option<FoundJson>,
    #[serde(default)]
    response_delete_range: Option<DeletedJson>,
}

#[derive(Deserialize)]
pub(super) struct DeletedJson {
    #[serde(default, deserialize_with = "number")]
    pub(super) deleted: u64,
}

impl TxnJson {
    pub(super) fn outcome(self, endpoint: &Endpoint) -> Result<TxnOutcome, MembersError> {
        let answer = |op: OpJson| match (op.response_range, op.response_delete_range) {
            (Some(found), _) => Ok(OpAnswer::Found(found.entries(endpoint)?)),
            (None, Some(DeletedJson { deleted })) => Ok(OpAnswer::Deleted(deleted)),
            (None, None) => Ok(OpAnswer::Written),
        };
        let answers = self.responses.into_iter().map(answer).collect::<Result<_, MembersError>>()?;
        Ok(TxnOutcome { succeeded: self.succeeded, revision: self.header, answers })
    }
}
