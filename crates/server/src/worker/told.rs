//! What clients that listen for `+switch-master` are told.

use landfall_chain_io::{ClientAddress, Directory};

/// What clients of a worker have been told of the first server.
#[derive(Debug, Default)]
pub(super) struct Told(Option<ClientAddress>);

impl Told {
    /// The message, if another server than before takes writes, and it is known where clients connect to it.
    pub(super) fn update(&mut self, directory: &Directory) -> Option<String> {
        let first = directory.first().ok().filter(|first| self.0.as_ref() != Some(*first))?;
        let before = self.0.replace(first.clone())?;
        let ClientAddress { host, port } = first;
        Some(format!("{} {} {} {host} {port}", directory.chain, before.host, before.port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_chain_io::Listed;

    fn directory(clients: Option<&str>) -> Directory {
        let clients = clients.map(|text| text.parse().unwrap());
        let first = Listed { name: "a".into(), clients, is_sound: true };
        Directory { chain: "orders".into(), version: 1, members: vec![first], doubt: None }
    }

    #[test]
    fn clients_are_told_of_each_change_once_its_address_is_known() {
        let mut told = Told::default();
        assert_eq!(told.update(&directory(Some("10.0.0.1:6479"))), None, "there was none before");
        assert_eq!(told.update(&directory(Some("10.0.0.1:6479"))), None);
        assert_eq!(told.update(&directory(None)), None);
        let text = "orders 10.0.0.1 6479 db-2.example.org 6480";
        assert_eq!(told.update(&directory(Some("db-2.example.org:6480"))).as_deref(), Some(text));
        assert_eq!(told.update(&directory(Some("db-2.example.org:6480"))), None);
    }
}
