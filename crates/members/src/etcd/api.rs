//! Calls of etcd's v3 API through its JSON gateway.

use super::cluster::{Cluster, Repeat, Request};
use super::http::Endpoint;
use super::wire::{coded, decoded, end_of, is_not_found, number};
use crate::error::MembersError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;

/// Calls with a time limit each.
pub(super) struct Api<'e> {
    cluster: &'e Cluster,
    limit: Duration,
}

/// A revision of one etcd cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Revision {
    #[serde(default)]
    cluster_id: String,
    #[serde(default, deserialize_with = "number")]
    revision: u64,
}

/// The keys of a range.
#[derive(Debug)]
pub(super) struct Range {
    /// The revision of the entries.
    pub(super) revision: Revision,
    /// In the order of keys.
    pub(super) entries: Vec<Entry>,
    /// Whether there are more keys than were requested.
    pub(super) more: bool,
}

/// A key and its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    /// Revision of its last change.
    pub(super) modified: u64,
}

/// A lease that etcd has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease(u64);

impl<'e> Api<'e> {
    pub(super) fn new(cluster: &'e Cluster, limit: Duration) -> Self {
        Self { cluster, limit }
    }

    /// All keys with a prefix, at most `limit` of them.
    pub(super) fn range_of(&self, prefix: &str, limit: usize) -> Result<Range, MembersError> {
        self.range(
            json!({"key": coded(prefix), "range_end": coded(end_of(prefix)), "limit": limit.to_string()}),
        )
    }

    /// One key.
    pub(super) fn get(&self, key: &str) -> Result<Option<Entry>, MembersError> {
        Ok(self.range(json!({"key": coded(key)}))?.entries.into_iter().next())
    }

    fn range(&self, request: serde_json::Value) -> Result<Range, MembersError> {
        let (endpoint, range): (_, RangeAnswer) = self.call("/v3/kv/range", &request)?;
        let entry = |kv: KeyValue| {
            let key = decoded(endpoint, &kv.key)?;
            let key = String::from_utf8(key).map_err(|_| endpoint.nonsense("a key that is no text"))?;
            Ok(Entry { key, value: decoded(endpoint, &kv.value)?, modified: kv.mod_revision })
        };
        let entries = range.kvs.into_iter().map(entry).collect::<Result<_, MembersError>>()?;
        Ok(Range { revision: range.header, entries, more: range.more })
    }

    /// Writes a key if its last change is that of revision `modified`; 0 means that the key does not exist. False if the
    /// condition does not hold.
    pub(super) fn swap(
        &self,
        key: &str,
        modified: u64,
        value: &[u8],
        lease: Option<Lease>,
    ) -> Result<bool, MembersError> {
        let key = coded(key);
        let lease = lease.map_or(0, |lease| lease.0).to_string();
        let compare =
            json!({"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": modified.to_string()});
        let put = json!({"request_put": {"key": key, "value": coded(value), "lease": lease}});
        let request = json!({"compare": [compare], "success": [put]});
        Ok(self.call_once::<TxnAnswer>("/v3/kv/txn", &request)?.succeeded)
    }

    /// A new lease, and its TTL, which may be longer than requested.
    pub(super) fn grant(&self, ttl: Duration) -> Result<(Lease, Duration), MembersError> {
        let request = json!({"TTL": ttl.as_secs().to_string(), "ID": "0"});
        let (endpoint, answer): (_, LeaseAnswer) = self.call("/v3/lease/grant", &request)?;
        if answer.id == 0 || answer.ttl == 0 {
            return Err(endpoint.nonsense("a lease without number or life"));
        }
        Ok((Lease(answer.id), Duration::from_secs(answer.ttl)))
    }

    /// Renews a lease. Returns its TTL, or `None` if it has ended.
    pub(super) fn keep_alive(&self, lease: Lease) -> Result<Option<Duration>, MembersError> {
        let request = json!({"ID": lease.0.to_string()});
        let (endpoint, answer): (_, Streamed<LeaseAnswer>) = self.call("/v3/lease/keepalive", &request)?;
        let answer = answer.result.ok_or_else(|| endpoint.nonsense("no result"))?;
        Ok((answer.ttl > 0).then(|| Duration::from_secs(answer.ttl)))
    }

    /// Ends a lease and deletes its keys. A lease that has ended already is no error.
    pub(super) fn revoke(&self, lease: Lease) -> Result<(), MembersError> {
        let request = json!({"ID": lease.0.to_string()});
        match self.call::<Nothing>("/v3/lease/revoke", &request) {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A call that does no harm if it is carried out twice.
    fn call<T: DeserializeOwned>(
        &self,
        path: &'static str,
        json: &serde_json::Value,
    ) -> Result<(&'e Endpoint, T), MembersError> {
        self.cluster.call(&Request { path, json, repeat: Repeat::Always }, self.limit)
    }

    /// A call that is sent once.
    fn call_once<T: DeserializeOwned>(
        &self,
        path: &'static str,
        json: &serde_json::Value,
    ) -> Result<T, MembersError> {
        let request = Request { path, json, repeat: Repeat::Unsent };
        self.cluster.call(&request, self.limit).map(|(_, answer)| answer)
    }
}

#[derive(Deserialize)]
struct RangeAnswer {
    header: Revision,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Deserialize)]
struct TxnAnswer {
    // Without a header it is no answer to this question.
    #[serde(rename = "header")]
    _header: Revision,
    #[serde(default)]
    succeeded: bool,
}

#[derive(Deserialize)]
struct LeaseAnswer {
    #[serde(default, rename = "ID", deserialize_with = "number")]
    id: u64,
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    ttl: u64,
}

#[derive(Deserialize)]
struct Streamed<T> {
    result: Option<T>,
}

#[derive(Deserialize)]
struct Nothing {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::config::EtcdConfig;
    use crate::etcd::http::{Address, Answer};
    use crate::etcd::tls::Tls;
    use crate::etcd::wire::understand;

    fn endpoint() -> Endpoint {
        let tls = Tls::new(&EtcdConfig::default(), false).unwrap();
        Endpoint::new(Address::parse("127.0.0.1:2379").unwrap(), tls)
    }

    fn understood<T: DeserializeOwned>(status: u16, body: &str) -> Result<T, MembersError> {
        understand(&endpoint(), &Answer { status, body: body.as_bytes().to_vec() })
    }

    #[test]
    fn a_prefix_ends_before_the_next_name() {
        assert_eq!(end_of("/a/"), b"/a0");
    }

    #[test]
    fn numbers_may_be_strings_and_zero_is_left_out() {
        let answer: LeaseAnswer = understood(200, r#"{"ID":"77"}"#).unwrap();
        assert_eq!((answer.id, answer.ttl), (77, 0));
        let answer: LeaseAnswer = understood(200, r#"{"ID":7,"TTL":"5"}"#).unwrap();
        assert_eq!((answer.id, answer.ttl), (7, 5));
        assert!(understood::<LeaseAnswer>(200, r#"{"ID":"x"}"#).is_err());
    }

    #[test]
    fn refusals_keep_the_words_and_the_code() {
        let error = understood::<Nothing>(404, r#"{"error":"no such lease","code":5}"#).err().unwrap();
        assert!(is_not_found(&error), "{error}");
        assert!(error.to_string().contains("no such lease"));
        let error = understood::<Nothing>(503, "busy").err().unwrap();
        assert!(
            matches!(error, MembersError::Refused { status: 503, code: 0, ref message, .. } if message == "busy")
        );
    }

    #[test]
    fn a_refusal_in_a_stream_comes_with_the_status_of_a_success() {
        let json = r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#;
        let error = understood::<Streamed<LeaseAnswer>>(200, json).err().unwrap();
        assert!(matches!(error, MembersError::Refused { status: 503, code: 14, .. }), "{error:?}");
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        assert!(understood::<TxnAnswer>(200, "{}").is_err());
        assert!(understood::<RangeAnswer>(200, "[]").is_err());
    }
}
