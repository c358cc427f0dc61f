//! The chain: a server, its replicas, and the devices in front of it. This module does no I/O.

use crate::error::ChainError;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Most devices of a chain: a PMNet-ACK has a byte for the device's number, and some of its values mean other things.
pub const DEVICES_MAX: usize = landfall_pmnet::wire::DEVICES_MAX as usize;
/// Most replicas of a server.
pub const REPLICAS_MAX: usize = 16;
/// Longest name of a chain, device or member, bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest document of a chain, bytes: [`DEVICES_MAX`] devices with long names are a tenth of it.
pub const CHAIN_BYTES_MAX: usize = 1 << 20;
/// Counting epochs stops here, which is what TOML can say.
const EPOCH_MAX: u64 = i64::MAX.cast_unsigned();

/// A chain as it stands at one epoch. The document in etcd (JSON) and the static file (TOML) have these fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// The name of the chain.
    pub name: String,
    /// Grows with each change. The first is 1.
    pub epoch: u64,
    /// Where clients send their requests.
    pub server: SocketAddr,
    /// Servers that hold a copy of the server's state. For people and tools: clients do not talk to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<SocketAddr>,
    /// The devices, in order from the clients to the server.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
}

/// A device of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The number in the device's PMNet-ACKs. A device keeps its number at every position, so that a client that knows an
    /// older order does not take one device's acknowledgement for another's.
    pub number: u8,
    /// Its name, the same as that of the member that it registers.
    pub name: String,
    /// Address for heartbeats and metrics, if the device has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<SocketAddr>,
    /// True if the device has failed for good: clients do not wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
}

impl Chain {
    /// A chain of these devices, numbered in their order, at epoch 1.
    ///
    /// # Errors
    /// [`ChainError`] if the devices make no valid chain.
    pub fn new(
        name: &str,
        server: SocketAddr,
        devices: &[(&str, Option<SocketAddr>)],
    ) -> Result<Self, ChainError> {
        too_many("devices", devices.len(), DEVICES_MAX)?;
        let device = |(number, (name, control)): (u8, &(&str, Option<SocketAddr>))| Device {
            number,
            name: (*name).to_owned(),
            control: *control,
            failed: false,
        };
        let devices = (0..=u8::MAX).zip(devices).map(device).collect();
        let chain = Self { name: name.to_owned(), epoch: 1, server, replicas: Vec::new(), devices };
        chain.check()?;
        Ok(chain)
    }

    /// Checks a chain that was read from elsewhere.
    ///
    /// # Errors
    /// [`ChainError`], which says what to correct.
    pub fn check(&self) -> Result<(), ChainError> {
        check_name("chain", &self.name)?;
        if self.epoch == 0 {
            return Err(ChainError::NoEpoch);
        }
        too_many("replicas", self.replicas.len(), REPLICAS_MAX)?;
        too_many("devices", self.devices.len(), DEVICES_MAX)?;
        for (at, device) in self.devices.iter().enumerate() {
            device.check(&self.devices[..at])?;
        }
        Ok(())
    }

    /// The devices that must acknowledge an update before it counts as durable, in order: those that have not
    /// failed for good. Without any only the server's acknowledgements count.
    pub fn required(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(|device| !device.failed)
    }

    /// The device of this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The chain once this device has failed for good (§IV-E2): clients need only the others. Unchanged where it
    /// had failed already.
    ///
    /// # Errors
    /// [`ChainError::NoDevice`].
    pub fn with_failed(&self, name: &str) -> Result<Self, ChainError> {
        let at = self.position(name)?;
        if self.devices[at].failed {
            return Ok(self.clone());
        }
        self.changed(|devices| devices[at].failed = true)
    }

    /// The chain with a new device at `position` (0 is next to the clients), or next to the server.
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn with_added(
        &self,
        name: &str,
        control: Option<SocketAddr>,
        position: Option<usize>,
    ) -> Result<Self, ChainError> {
        let devices = self.devices.len();
        let position = position.unwrap_or(devices);
        if position > devices {
            return Err(ChainError::BadPosition { position, devices });
        }
        let device = self.newcomer(name, control)?;
        self.changed(|devices| devices.insert(position, device))
    }

    /// The chain without this device.
    ///
    /// # Errors
    /// [`ChainError::NoDevice`].
    pub fn with_removed(&self, name: &str) -> Result<Self, ChainError> {
        let at = self.position(name)?;
        self.changed(|devices| {
            devices.remove(at);
        })
    }

    /// The chain with a new device, of a number of its own, in the place of another one.
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn with_replaced(
        &self,
        name: &str,
        by: &str,
        control: Option<SocketAddr>,
    ) -> Result<Self, ChainError> {
        let at = self.position(name)?;
        let device = self.newcomer(by, control)?;
        self.changed(|devices| devices[at] = device)
    }

    fn position(&self, name: &str) -> Result<usize, ChainError> {
        let found = self.devices.iter().position(|device| device.name == name);
        found.ok_or_else(|| ChainError::NoDevice { chain: self.name.clone(), name: name.to_owned() })
    }

    fn newcomer(&self, name: &str, control: Option<SocketAddr>) -> Result<Device, ChainError> {
        let count = self.devices.len() + 1;
        let number =
            self.fresh_number().ok_or(ChainError::TooMany { what: "devices", count, max: DEVICES_MAX })?;
        Ok(Device { number, name: name.to_owned(), control, failed: false })
    }

    /// A number above all numbers in use, so that the numbers of devices that were removed recently are not reused; or the
    /// lowest free number once the highest is in use.
    fn fresh_number(&self) -> Option<u8> {
        let above = self.devices.iter().map(|device| device.number + 1).max().unwrap_or(0);
        let free = |number: &u8| self.devices.iter().all(|device| device.number != *number);
        (above..NUMBERS_END).next().or_else(|| (0..NUMBERS_END).find(free))
    }

    fn changed(&self, change: impl FnOnce(&mut Vec<Device>)) -> Result<Self, ChainError> {
        let mut chain = self.clone();
        if chain.epoch >= EPOCH_MAX {
            return Err(ChainError::NoEpochLeft);
        }
        chain.epoch += 1;
        change(&mut chain.devices);
        chain.check()?;
        Ok(chain)
    }
}

/// Numbers of devices are below this.
const NUMBERS_END: u8 = landfall_pmnet::wire::DEVICES_MAX;

impl Device {
    /// Checks the device against those before it.
    fn check(&self, before: &[Self]) -> Result<(), ChainError> {
        check_name("device", &self.name)?;
        if self.number >= NUMBERS_END {
            let (name, number) = (self.name.clone(), self.number);
            return Err(ChainError::BadNumber { name, number, max: NUMBERS_END - 1 });
        }
        if before.iter().any(|other| other.name == self.name) {
            return Err(ChainError::SameName { name: self.name.clone() });
        }
        match before.iter().find(|other| other.number == self.number) {
            None => Ok(()),
            Some(other) => Err(ChainError::SameNumber {
                number: self.number,
                first: other.name.clone(),
                second: self.name.clone(),
            }),
        }
    }
}

fn too_many(what: &'static str, count: usize, max: usize) -> Result<(), ChainError> {
    if count > max { Err(ChainError::TooMany { what, count, max }) } else { Ok(()) }
}

/// Names stand in keys of etcd and on command lines, so they are plain.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), ChainError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(ChainError::BadName { what, name: name.to_owned(), max: NAME_BYTES_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn server() -> SocketAddr {
        "10.0.0.9:51000".parse().unwrap()
    }

    fn chain() -> Chain {
        Chain::new("lab", server(), &[("a", None), ("b", Some("10.0.0.2:9000".parse().unwrap()))]).unwrap()
    }

    fn names(chain: &Chain) -> Vec<(u8, &str)> {
        chain.devices.iter().map(|device| (device.number, device.name.as_str())).collect()
    }

    #[test]
    fn nobody_waits_for_a_device_that_failed() {
        let failed = chain().with_failed("a").unwrap();
        assert_eq!(failed.epoch, 2);
        assert_eq!(failed.required().map(|device| device.number).collect::<Vec<_>>(), [1]);
        assert_eq!(failed.with_failed("a").unwrap(), failed, "failing twice changes nothing");
    }

    #[test]
    fn devices_keep_their_numbers_and_newcomers_get_others() {
        let added = chain().with_added("c", None, Some(0)).unwrap();
        assert_eq!(names(&added), [(2, "c"), (0, "a"), (1, "b")]);
        let replaced = added.with_replaced("c", "d", None).unwrap();
        assert_eq!(names(&replaced), [(3, "d"), (0, "a"), (1, "b")]);
        let removed = replaced.with_removed("a").unwrap();
        assert_eq!(names(&removed), [(3, "d"), (1, "b")]);
        assert_eq!(removed.epoch, 4);
    }

    #[test]
    fn numbers_are_used_again_only_when_the_highest_is_in_use() {
        let mut chain = chain();
        chain.devices[1].number = NUMBERS_END - 1;
        assert_eq!(names(&chain.with_added("c", None, None).unwrap())[2], (1, "c"));
    }

    #[test]
    fn what_is_no_chain_is_refused() {
        let refused = |change: &dyn Fn(&mut Chain)| {
            let mut chain = chain();
            change(&mut chain);
            chain.check().unwrap_err()
        };
        assert_eq!(refused(&|chain| chain.epoch = 0), ChainError::NoEpoch);
        assert!(matches!(
            refused(&|chain| chain.name = "a/b".into()),
            ChainError::BadName { what: "chain", .. }
        ));
        assert!(matches!(
            refused(&|chain| chain.devices[0].name = String::new()),
            ChainError::BadName { .. }
        ));
        assert!(matches!(refused(&|chain| chain.devices[1].name = "a".into()), ChainError::SameName { .. }));
        assert!(matches!(refused(&|chain| chain.devices[1].number = 0), ChainError::SameNumber { .. }));
        assert!(matches!(refused(&|chain| chain.devices[1].number = 250), ChainError::BadNumber { .. }));
        assert!(matches!(refused(&|chain| chain.replicas = vec![server(); 17]), ChainError::TooMany { .. }));
    }

    #[test]
    fn changes_that_cannot_be_made_are_refused() {
        assert!(matches!(chain().with_failed("x"), Err(ChainError::NoDevice { .. })));
        assert!(matches!(chain().with_added("a", None, None), Err(ChainError::SameName { .. })));
        assert!(matches!(chain().with_added("c", None, Some(3)), Err(ChainError::BadPosition { .. })));
        let last = Chain { epoch: EPOCH_MAX, ..chain() };
        assert_eq!(last.with_removed("a"), Err(ChainError::NoEpochLeft));
    }

    #[test]
    fn a_chain_holds_as_many_devices_as_there_are_numbers() {
        let mut chain = Chain::new("lab", server(), &[]).unwrap();
        for n in 0..DEVICES_MAX {
            chain = chain.with_added(&format!("d{n}"), None, None).unwrap();
        }
        assert!(matches!(chain.with_added("more", None, None), Err(ChainError::TooMany { .. })));
        assert!(serde_json::to_vec(&chain).unwrap().len() < CHAIN_BYTES_MAX / 10);
    }

    #[test]
    fn the_document_is_plain_json() {
        let json = serde_json::to_string(&chain().with_failed("a").unwrap()).unwrap();
        assert_eq!(
            json,
            r#"{"name":"lab","epoch":2,"server":"10.0.0.9:51000","devices":[{"number":0,"name":"a","failed":true},{"number":1,"name":"b","control":"10.0.0.2:9000"}]}"#
        );
        let unknown = json.replace("epoch", "era");
        assert!(serde_json::from_str::<Chain>(&unknown).is_err());
    }

    /// A change, by numbers that are taken modulo what there is.
    #[derive(Clone, Debug)]
    enum Change {
        Fail(usize),
        Add(usize),
        Remove(usize),
        Replace(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..9_usize).prop_map(Change::Fail),
            (0..9_usize).prop_map(Change::Add),
            (0..9_usize).prop_map(Change::Remove),
            (0..9_usize).prop_map(Change::Replace),
        ]
    }

    fn apply(chain: &Chain, change: &Change, name: &str) -> Result<Chain, ChainError> {
        let at = |n: usize| chain.devices.get(n % chain.devices.len().max(1)).map_or("none", |d| &d.name);
        match *change {
            Change::Fail(n) => chain.with_failed(at(n)),
            Change::Add(n) => chain.with_added(name, None, Some(n % (chain.devices.len() + 1))),
            Change::Remove(n) => chain.with_removed(at(n)),
            Change::Replace(n) => chain.with_replaced(at(n), name, None),
        }
    }

    proptest! {
        #[test]
        fn any_changes_leave_a_chain_whose_epoch_grew_and_whose_documents_hold_it(
            changes in proptest::collection::vec(change(), 0..40)
        ) {
            let mut now = chain();
            for (n, change) in changes.iter().enumerate() {
                let Ok(next) = apply(&now, change, &format!("n{n}")) else {
                    prop_assert!(now.devices.is_empty());
                    continue;
                };
                prop_assert!(next == now || next.epoch == now.epoch + 1);
                prop_assert!(next.check().is_ok());
                let numbers: BTreeSet<u8> = next.devices.iter().map(|device| device.number).collect();
                prop_assert_eq!(numbers.len(), next.devices.len());
                let json = serde_json::to_vec(&next).unwrap();
                prop_assert_eq!(serde_json::from_slice::<Chain>(&json).unwrap(), next.clone());
                now = next;
            }
        }
    }
}
