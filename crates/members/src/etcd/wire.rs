//! What the gateway's JSON looks like: keys and values are in base64, 64-bit numbers are strings, fields that are zero
//! are omitted, and a refusal comes in one of three forms.

use super::http::{Answer, Endpoint};
use crate::error::MembersError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};

/// gRPC's code *not found*, which etcd returns for an unknown lease.
const NOT_FOUND: u32 = 5;
/// gRPC's code *unauthenticated*: the token has expired, or was issued before users or roles have changed.
const UNAUTHENTICATED: u32 = 16;
/// What etcd says in place of [`UNAUTHENTICATED`] if users or roles have changed.
const OLD_REVISION: &str = "revision of auth store is old";

/// The JSON of an answer.
pub(super) fn understand<T: DeserializeOwned>(
    endpoint: &Endpoint,
    answer: &Answer,
) -> Result<T, MembersError> {
    if answer.status != 200 {
        return Err(refusal(endpoint, answer));
    }
    streamed_refusal(endpoint, &answer.body)?;
    serde_json::from_slice(&answer.body).map_err(|_| endpoint.nonsense("not the JSON that was expected"))
}

/// The refusal of a call whose answer is a stream, which comes with the status of a success.
pub(super) fn streamed_refusal(endpoint: &Endpoint, json: &[u8]) -> Result<(), MembersError> {
    #[derive(Deserialize)]
    struct Streamed {
        error: StreamedError,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct StreamedError {
        message: String,
        #[serde(alias = "grpc_code")]
        code: u32,
        http_code: u16,
    }
    match serde_json::from_slice::<Streamed>(json) {
        Ok(Streamed { error }) => Err(refused(endpoint, error.http_code, error.code, &error.message)),
        Err(_) => Ok(()),
    }
}

fn refusal(endpoint: &Endpoint, answer: &Answer) -> MembersError {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Refusal {
        error: String,
        message: String,
        code: u32,
    }
    let refusal = serde_json::from_slice(&answer.body).unwrap_or_else(|_| Refusal {
        // A server that is no gateway says so in text.
        message: String::from_utf8_lossy(&answer.body).trim().to_owned(),
        ..Refusal::default()
    });
    let message = if refusal.message.is_empty() { refusal.error } else { refusal.message };
    refused(endpoint, answer.status, refusal.code, &message)
}

pub(super) fn refused(endpoint: &Endpoint, status: u16, code: u32, message: &str) -> MembersError {
    /// Longest part of a message that is passed on, characters.
    const MESSAGE_MAX: usize = 200;
    MembersError::Refused {
        endpoint: endpoint.name().to_owned(),
        status,
        code,
        message: message.chars().filter(|char| !char.is_control()).take(MESSAGE_MAX).collect(),
    }
}

/// Whether the other addresses would answer the same: etcd has understood the request and refuses it.
pub(super) fn is_final(error: &MembersError) -> bool {
    match error {
        MembersError::Login { .. } => true,
        MembersError::Refused { status, code, .. } => *status < 500 && *code != 0 && !is_token_refused(error),
        _ => false,
    }
}

/// Whether etcd does not accept the token any more.
pub(super) fn is_token_refused(error: &MembersError) -> bool {
    match error {
        MembersError::Refused { code: UNAUTHENTICATED, .. } => true,
        MembersError::Refused { message, .. } => message.contains(OLD_REVISION),
        _ => false,
    }
}

/// Whether etcd does not know the lease.
pub(super) fn is_not_found(error: &MembersError) -> bool {
    matches!(error, MembersError::Refused { code: NOT_FOUND, .. })
}

pub(super) fn coded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decoded(endpoint: &Endpoint, text: &str) -> Result<Vec<u8>, MembersError> {
    STANDARD.decode(text).map_err(|_| endpoint.nonsense("no base64"))
}

/// The first key behind all those with this prefix. Text has no byte above 0xf4.
pub(super) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A number of 64 bits: a string, as protobuf's JSON has it, or a number.
pub(super) fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Text(String),
        Number(u64),
    }
    match Either::deserialize(from)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(|_| D::Error::custom("no number")),
    }
}
