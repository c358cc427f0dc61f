//! A chain of servers on this machine.

use super::{Place, Refused, Reply, Resp, Server, landfall, wait_until};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Time limit for a node to get in step, or for a change of the chain to count.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit of a reply that may wait for another node.
pub(crate) const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// Where nodes listen for each other.
const PORT: u16 = 7101;

/// Nodes of a chain; those that run have a server.
pub(crate) struct Chain {
    place: Place,
    pub(crate) nodes: Vec<Node>,
    flags: Vec<String>,
}

/// A node.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) address: SocketAddr,
    server: Option<Server>,
}

impl Chain {
    /// A chain of nodes `a`, `b`, and so on; none of them runs. The first one holds the chain's data: none.
    pub(crate) fn new(nodes: usize, flags: &[&str]) -> Self {
        Self::at(nodes, flags, Place::new)
    }

    /// As [`Self::new`], with regions in certain places.
    pub(crate) fn at(nodes: usize, flags: &[&str], place: impl Fn() -> Place) -> Self {
        let node = |(index, address): (usize, SocketAddr)| Node {
            name: char::from(b'a' + index as u8).to_string(),
            place: place(),
            address,
            server: None,
        };
        let nodes: Vec<Node> = own_addresses(nodes).into_iter().enumerate().map(node).collect();
        let chain =
            Self { place: Place::new(), nodes, flags: flags.iter().map(|flag| (*flag).to_owned()).collect() };
        let members: Vec<String> =
            chain.nodes.iter().map(|node| format!("--member={}={}", node.name, node.address)).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        chain.command(&[&["create", chain.view(), "--name", "orders"], &members[..]].concat());
        chain.command(&[
            "init",
            chain.view(),
            "--node",
            "a",
            "--dir",
            chain.nodes[0].place.dir().to_str().unwrap(),
        ]);
        chain
    }

    pub(crate) fn view_path(&self) -> PathBuf {
        self.place.path().join("view.toml")
    }

    /// The path of the view, as text.
    pub(crate) fn view(&self) -> &'static str {
        Box::leak(self.view_path().to_str().unwrap().to_owned().into_boxed_str())
    }

    fn command(&self, words: &[&str]) -> String {
        let output = landfall(&[&["chain"], words].concat());
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts a node.
    pub(crate) fn start(&mut self, index: usize) {
        let server = self.try_start(index).unwrap_or_else(|why| panic!("node {index} did not start: {why}"));
        self.nodes[index].server = Some(server);
    }

    /// Starts a node; returns its error output if it does not start.
    pub(crate) fn try_start(&self, index: usize) -> Result<Server, Refused> {
        let node = &self.nodes[index];
        let mut flags = vec!["--chain", self.view(), "--node", &node.name];
        flags.extend(self.flags.iter().map(String::as_str));
        node.place.try_start(&flags)
    }

    /// Starts all nodes and waits until they are in step.
    pub(crate) fn start_all(&mut self) {
        (0..self.nodes.len()).for_each(|index| self.start(index));
        self.wait_until_in_step();
    }

    pub(crate) fn server(&self, index: usize) -> &Server {
        self.nodes[index].server.as_ref().expect("the node runs")
    }

    pub(crate) fn resp(&self, index: usize) -> Resp {
        Resp::connect(self.server(index).resp, REPLY_LIMIT).unwrap()
    }

    /// Takes the server of a node out of the chain, to be ended or stopped.
    pub(crate) fn take(&mut self, index: usize) -> Server {
        self.nodes[index].server.take().expect("the node runs")
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, index: usize) {
        self.take(index).kill();
    }

    /// Removes a node from the view.
    pub(crate) fn remove(&self, index: usize) {
        self.command(&["remove", self.view(), &self.nodes[index].name]);
    }

    /// Adds a node at the end of the view.
    pub(crate) fn add(&self, index: usize) {
        let node = &self.nodes[index];
        self.command(&["add", self.view(), &format!("{}={}", node.name, node.address)]);
    }

    /// What `INFO replication` of a node says in one line.
    pub(crate) fn info(&self, index: usize, name: &str) -> Option<String> {
        let Reply::Bulk(text) = self.server(index).call(&["INFO", "replication"]) else { return None };
        let text = String::from_utf8(text).unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().into()))
    }

    /// Waits until every running node is in step with the newest view, and one of them takes writes. Returns that.
    pub(crate) fn wait_until_in_step(&self) -> usize {
        let text = std::fs::read_to_string(self.view_path()).unwrap();
        let version = text.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().to_owned();
        let running: Vec<usize> =
            (0..self.nodes.len()).filter(|index| self.nodes[*index].server.is_some()).collect();
        let members = |index: &usize| text.contains(&format!("name = \"{}\"", self.nodes[*index].name));
        let running: Vec<usize> = running.into_iter().filter(members).collect();
        let settled = wait_until(LIMIT, || {
            let is = |index: usize, name: &str, value: &str| self.info(index, name).as_deref() == Some(value);
            let in_step = |index: &usize| {
                is(*index, "chain_version", &version)
                    && is(*index, "chain_in_step", "1")
                    && !is(*index, "chain_role", "waiting")
                    && self.info(*index, "chain_next").is_none_or(|next| next.ends_with("state=in_step"))
            };
            let first = running.iter().copied().find(|index| is(*index, "chain_role", "first"))?;
            running.iter().all(in_step).then_some(first)
        });
        settled.unwrap_or_else(|| panic!("the nodes are not in step: {}", self.words()))
    }

    /// The logs of all nodes.
    pub(crate) fn words(&self) -> String {
        self.nodes.iter().map(|node| format!("\n--- {}\n{}", node.name, node.place.log())).collect()
    }
}

/// Addresses that no other test has: each chain has a network of its own within that of this machine, where no server
/// listens on a port that the kernel has chosen.
fn own_addresses(count: usize) -> Vec<SocketAddr> {
    static CHAINS: AtomicU32 = AtomicU32::new(0);
    let chain = CHAINS.fetch_add(1, Ordering::Relaxed) as u8;
    let process = (std::process::id() % 120) as u8 + 100;
    (1..=count as u8).map(|node| SocketAddr::from(([127, process, chain, node], PORT))).collect()
}
