//! Calls of etcd's v3 API through its JSON gateway.

use super::cluster::{Cluster, EtcdClient, Repeat, Request};
use super::http::Endpoint;
use super::keys::{Entry, Lease, Range, RangeJson, Revision};
use super::txn::{Condition, DeletedJson, Op, Txn, TxnJson, TxnOutcome, all, one, put};
use super::wire::{is_not_found, number};
use crate::error::MembersError;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Calls that each end within a time limit, over all addresses.
///
/// A read is confirmed by a majority of etcd. A write goes to a second address only if the first has certainly not
/// received it. So after [`MembersError::Unreachable`], and after a refusal with a status of 500 or more, a write may
/// have been made or not: read back what it is about before it is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'e> {
    cluster: &'e Cluster,
    limit: Duration,
}

impl EtcdClient {
    /// Calls with this time limit each.
    pub fn within(&self, limit: Duration) -> Calls<'_> {
        Calls { cluster: self.cluster(), limit }
    }
}

impl<'e> Calls<'e> {
    /// One key.
    ///
    /// # Errors
    /// Those of etcd, as for all calls.
    pub fn get(&self, key: &str) -> Result<Option<Entry>, MembersError> {
        Ok(self.range(&one(key))?.entries.into_iter().next())
    }

    /// All keys with a prefix, which is not empty; at most `limit` of them, unless that is 0.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn get_prefix(&self, prefix: &str, limit: usize) -> Result<Range, MembersError> {
        let mut request = all(prefix);
        request["limit"] = limit.to_string().into();
        self.range(&request)
    }

    fn range(&self, request: &Value) -> Result<Range, MembersError> {
        let (endpoint, range): (_, RangeJson) = self.call("/v3/kv/range", request)?;
        range.range(endpoint)
    }

    /// Writes a key, which ends with the lease if there is one. Returns the revision.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn put(&self, key: &str, value: &[u8], lease: Option<Lease>) -> Result<Revision, MembersError> {
        let (_, answer): (_, Header) = self.call_once("/v3/kv/put", &put(key, value, lease))?;
        Ok(answer.header)
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn delete(&self, key: &str) -> Result<bool, MembersError> {
        Ok(self.delete_range(&one(key))? > 0)
    }

    /// Deletes all keys with a prefix, which is not empty. Returns how many there were.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn delete_prefix(&self, prefix: &str) -> Result<u64, MembersError> {
        self.delete_range(&all(prefix))
    }

    fn delete_range(&self, request: &Value) -> Result<u64, MembersError> {
        let (_, answer): (_, DeletedJson) = self.call_once("/v3/kv/deleterange", request)?;
        Ok(answer.deleted)
    }

    /// Carries out a transaction.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn txn(&self, txn: &Txn) -> Result<TxnOutcome, MembersError> {
        let (endpoint, answer): (_, TxnJson) = self.call_once("/v3/kv/txn", &txn.json())?;
        answer.outcome(endpoint)
    }

    /// Writes a key if its last change is that of revision `modified`; 0 means that the key does not exist. False if the
    /// condition does not hold.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn swap(
        &self,
        key: &str,
        modified: u64,
        value: &[u8],
        lease: Option<Lease>,
    ) -> Result<bool, MembersError> {
        let put = Op::Put { key: key.to_owned(), value: value.to_owned(), lease };
        let when = vec![Condition::unchanged_since(key, modified)];
        Ok(self.txn(&Txn { when, then: vec![put], otherwise: Vec::new() })?.succeeded)
    }

    /// A new lease, and its TTL, which may be longer than requested.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn grant(&self, ttl: Duration) -> Result<(Lease, Duration), MembersError> {
        let request = json!({"TTL": ttl.as_secs().to_string(), "ID": "0"});
        let (endpoint, answer): (_, LeaseJson) = self.call("/v3/lease/grant", &request)?;
        match (Lease::new(answer.id), answer.ttl) {
            (Some(lease), 1..) => Ok((lease, Duration::from_secs(answer.ttl))),
            _ => Err(endpoint.nonsense("a lease without number or life")),
        }
    }

    /// Renews a lease. Returns its TTL, or `None` if it has ended.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn keep_alive(&self, lease: Lease) -> Result<Option<Duration>, MembersError> {
        let request = json!({"ID": lease.id().to_string()});
        let (endpoint, answer): (_, Streamed<LeaseJson>) = self.call("/v3/lease/keepalive", &request)?;
        let answer = answer.result.ok_or_else(|| endpoint.nonsense("no result"))?;
        Ok((answer.ttl > 0).then(|| Duration::from_secs(answer.ttl)))
    }

    /// Ends a lease and deletes its keys. A lease that has ended already is no error.
    ///
    /// # Errors
    /// Those of etcd.
    pub fn revoke(&self, lease: Lease) -> Result<(), MembersError> {
        let request = json!({"ID": lease.id().to_string()});
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
        json: &Value,
    ) -> Result<(&'e Endpoint, T), MembersError> {
        self.cluster.call(&Request { path, json, repeat: Repeat::Always }, self.limit)
    }

    /// A call that is sent once.
    fn call_once<T: DeserializeOwned>(
        &self,
        path: &'static str,
        json: &Value,
    ) -> Result<(&'e Endpoint, T), MembersError> {
        self.cluster.call(&Request { path, json, repeat: Repeat::Unsent }, self.limit)
    }
}

#[derive(Deserialize)]
struct Header {
    header: Revision,
}

#[derive(Deserialize)]
struct LeaseJson {
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
    use crate::etcd::wire::{end_of, understand};

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
        assert_eq!(end_of("a\u{10ffff}"), b"a\xf4\x8f\xbf\xc0");
    }

    #[test]
    fn numbers_may_be_strings_and_zero_is_left_out() {
        let answer: LeaseJson = understood(200, r#"{"ID":"77"}"#).unwrap();
        assert_eq!((answer.id, answer.ttl), (77, 0));
        let answer: LeaseJson = understood(200, r#"{"ID":7,"TTL":"5"}"#).unwrap();
        assert_eq!((answer.id, answer.ttl), (7, 5));
        assert!(understood::<LeaseJson>(200, r#"{"ID":"x"}"#).is_err());
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
        let error = understood::<Streamed<LeaseJson>>(200, json).err().unwrap();
        assert!(matches!(error, MembersError::Refused { status: 503, code: 14, .. }), "{error:?}");
    }

    #[test]
    fn an_answer_to_another_question_is_refused() {
        assert!(understood::<TxnJson>(200, "{}").is_err());
        assert!(understood::<RangeJson>(200, "[]").is_err());
    }
}
