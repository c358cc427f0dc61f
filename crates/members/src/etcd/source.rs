//! Reads and changes one chain in etcd.

use super::calls::Calls;
use super::cluster::EtcdClient;
use super::config::EtcdConfig;
use super::keys::Revision;
use crate::backoff::Backoff;
use crate::chain::{Chain, check_name};
use crate::error::{ChainError, MembersError};
use crate::member::{MEMBERS_MAX, Member};
use crate::view::View;
use std::collections::BTreeMap;
use std::time::Duration;

/// Prefix of every key.
const ROOT: &str = "/landfall/pmnet/";
/// Attempts of a change while others change the chain or etcd does not answer.
pub(super) const TRIES_MAX: usize = 5;
/// Default time limit of one call, over all addresses.
const LIMIT: Duration = Duration::from_secs(2);
/// The shortest sensible time limit of one call.
const LIMIT_MIN: Duration = Duration::from_millis(50);

/// A chain in etcd, 3.4 or later, through its JSON gateway.
#[derive(Clone, Debug)]
pub struct Etcd {
    client: EtcdClient,
    limit: Duration,
    chain: String,
}

/// The contents of etcd for a chain at one revision.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) revision: Revision,
    /// The document, and the revision of its last change.
    pub(super) order: Option<(Chain, u64)>,
    /// The members that can be read, by name.
    pub(super) members: BTreeMap<String, Member>,
}

impl Etcd {
    /// The chain of this name in the etcd that has these addresses, each `http://HOST:PORT` or `https://HOST:PORT`.
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Those of [`EtcdClient::new`]; [`ChainError::BadName`].
    pub fn new<S: AsRef<str>>(endpoints: &[S], chain: &str) -> Result<Self, MembersError> {
        Self::of(EtcdClient::new(&EtcdConfig::at(endpoints))?, chain)
    }

    /// The chain of this name in an etcd.
    ///
    /// # Errors
    /// [`ChainError::BadName`].
    pub fn of(client: EtcdClient, chain: &str) -> Result<Self, MembersError> {
        check_name("chain", chain)?;
        Ok(Self { client, limit: LIMIT, chain: chain.to_owned() })
    }

    /// Sets the time limit of one call, over all addresses.
    #[must_use]
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = limit.max(LIMIT_MIN);
        self
    }

    /// The time limit of one call.
    pub(super) fn limit(&self) -> Duration {
        self.limit
    }

    /// The chain's name.
    pub fn name(&self) -> &str {
        &self.chain
    }

    /// The key of the chain's document.
    pub fn order_key(&self) -> String {
        format!("{ROOT}{}/order", self.chain)
    }

    /// The key of a member.
    pub fn member_key(&self, member: &str) -> String {
        format!("{}{member}", self.alive_prefix())
    }

    fn alive_prefix(&self) -> String {
        format!("{ROOT}{}/alive/", self.chain)
    }

    pub(super) fn calls(&self) -> Calls<'_> {
        self.client.within(self.limit)
    }

    /// The current contents of etcd, confirmed by a majority of its servers. One call.
    pub(crate) fn view(&self) -> Result<View, MembersError> {
        let Held { order, members, .. } = self.held(None)?.expect("no revision was given");
        let (chain, _) = order.ok_or_else(|| self.no_chain())?;
        Ok(View { chain, members })
    }

    /// Writes a new chain.
    pub(crate) fn init(&self, chain: &Chain) -> Result<(), MembersError> {
        chain.check()?;
        same_name(&self.chain, &chain.name)?;
        self.repeatedly(|| self.try_init(chain))
    }

    fn try_init(&self, chain: &Chain) -> Result<Option<()>, MembersError> {
        if self.swap(0, chain)? {
            return Ok(Some(()));
        }
        let found = self.view()?.chain;
        // The answer to the attempt before was lost; the attempt had succeeded.
        if found == *chain { Ok(Some(())) } else { Err(self.exists(found.epoch)) }
    }

    /// Changes the chain, also while others change it.
    pub(crate) fn update(
        &self,
        change: impl Fn(&Chain) -> Result<Chain, ChainError>,
    ) -> Result<Chain, MembersError> {
        let mut wanted = None;
        self.repeatedly(|| self.try_update(&change, &mut wanted))
    }

    /// Tries a change until it is made, while others come first (`None`) or etcd does not answer.
    fn repeatedly<T>(
        &self,
        mut attempt: impl FnMut() -> Result<Option<T>, MembersError>,
    ) -> Result<T, MembersError> {
        let mut last = None;
        let mut backoff = Backoff::new();
        for tries in 0..TRIES_MAX {
            if tries > 0 {
                std::thread::sleep(backoff.pause());
            }
            match attempt() {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => last = None,
                Err(error) if error.passes() => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        let conflict = || MembersError::Conflict { key: self.order_key(), tries: TRIES_MAX };
        Err(last.unwrap_or_else(conflict))
    }

    /// `None` if another change came first. `wanted` is the chain that the attempt before wrote, perhaps without receiving
    /// the answer.
    fn try_update(
        &self,
        change: impl Fn(&Chain) -> Result<Chain, ChainError>,
        wanted: &mut Option<Chain>,
    ) -> Result<Option<Chain>, MembersError> {
        let held = self.held(None)?.expect("no revision was given");
        let (now, modified) = held.order.ok_or_else(|| self.no_chain())?;
        if wanted.as_ref() == Some(&now) {
            return Ok(Some(now));
        }
        let next = change(&now)?;
        if next == now {
            return Ok(Some(next));
        }
        *wanted = Some(next.clone());
        Ok(self.swap(modified, &next)?.then_some(next))
    }

    /// Writes the document if its last change is still that of revision `modified` (0: the key does not exist).
    fn swap(&self, modified: u64, chain: &Chain) -> Result<bool, MembersError> {
        let key = self.order_key();
        let json =
            serde_json::to_vec(chain).map_err(|source| MembersError::Value { key: key.clone(), source })?;
        self.calls().swap(&key, modified, &json, None)
    }

    /// The contents of etcd for the chain; `None` if they are still those of revision `known`.
    pub(super) fn held(&self, known: Option<&Revision>) -> Result<Option<Held>, MembersError> {
        let prefix = format!("{ROOT}{}/", self.chain);
        let range = self.calls().get_prefix(&prefix, MEMBERS_MAX + 1)?;
        if known == Some(&range.revision) {
            return Ok(None);
        }
        if range.more {
            return Err(MembersError::TooMany { chain: self.chain.clone(), max: MEMBERS_MAX + 1 });
        }
        let (order_key, alive) = (self.order_key(), self.alive_prefix());
        let mut held = Held { revision: range.revision, order: None, members: BTreeMap::new() };
        for entry in range.entries {
            if entry.key == order_key {
                held.order = Some((self.document(&entry.value)?, entry.modified));
            } else if let Some(name) = entry.key.strip_prefix(&alive) {
                held.members.extend(member_of(name, &entry.value).map(|member| (name.to_owned(), member)));
            }
        }
        Ok(Some(held))
    }

    /// Parses and checks the chain of a document.
    fn document(&self, json: &[u8]) -> Result<Chain, MembersError> {
        let key = self.order_key();
        let chain: Chain = serde_json::from_slice(json)
            .map_err(|source| MembersError::Value { key: key.clone(), source })?;
        let right = chain.check().and_then(|()| same_name(&self.chain, &chain.name));
        right.map_err(|source| MembersError::ValueChain { key, source })?;
        Ok(chain)
    }

    pub(super) fn no_chain(&self) -> MembersError {
        MembersError::NoChain { chain: self.chain.clone(), key: self.order_key() }
    }

    fn exists(&self, epoch: u64) -> MembersError {
        MembersError::Exists { chain: self.chain.clone(), epoch }
    }
}

fn same_name(wanted: &str, found: &str) -> Result<(), ChainError> {
    if found == wanted {
        return Ok(());
    }
    Err(ChainError::OtherChain { wanted: wanted.to_owned(), found: found.to_owned() })
}

/// Parses the member under a key. A member that cannot be parsed, perhaps of a later version, counts as absent, so that
/// it does not hide the others.
fn member_of(name: &str, json: &[u8]) -> Option<Member> {
    let warn =
        |why: &dyn std::fmt::Display| tracing::warn!(name, %why, "a member's key in etcd is not understood");
    check_name("member", name).inspect_err(|why| warn(why)).ok()?;
    let member: Member = serde_json::from_slice(json).inspect_err(|why| warn(why)).ok()?;
    Some(Member { name: name.to_owned(), ..member })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lie_under_the_chain() {
        let etcd = Etcd::new(&["127.0.0.1:2379"], "lab").unwrap();
        assert_eq!(etcd.order_key(), "/landfall/pmnet/lab/order");
        assert_eq!(etcd.member_key("near"), "/landfall/pmnet/lab/alive/near");
    }

    #[test]
    fn names_and_addresses_that_cannot_be_are_refused() {
        let refused = |endpoints: &[&str], chain| Etcd::new(endpoints, chain).unwrap_err();
        assert!(matches!(refused(&["h:1"], "a/b"), MembersError::Chain(ChainError::BadName { .. })));
        assert!(matches!(refused(&[], "lab"), MembersError::Endpoints { count: 0, .. }));
        assert!(matches!(refused(&["h:1"; 9], "lab"), MembersError::Endpoints { count: 9, .. }));
        assert!(matches!(refused(&["ftp://h:1"], "lab"), MembersError::Endpoint { .. }));
    }

    #[test]
    fn errors_of_wrong_documents_name_their_key() {
        let etcd = Etcd::new(&["127.0.0.1:2379"], "lab").unwrap();
        let other = br#"{"name":"other","epoch":1,"server":"10.0.0.9:51000"}"#;
        for (json, word) in [(&b"{}"[..], "missing field"), (b"\xff", "damaged"), (other, "\"other\"")] {
            let message = etcd.document(json).unwrap_err().to_string();
            assert!(message.contains("/landfall/pmnet/lab/order") && message.contains(word), "{message}");
        }
    }

    #[test]
    fn a_member_that_is_not_understood_counts_as_not_there() {
        let json = br#"{"role":"device","address":"10.0.0.2:51000","incarnation":1,"since":2}"#;
        assert_eq!(member_of("near", json).unwrap().name, "near");
        assert!(member_of("near/far", json).is_none());
        assert!(member_of("near", b"{\"role\":\"oracle\"}").is_none());
    }
}
