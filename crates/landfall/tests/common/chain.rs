//! A chain of servers on this machine.

use super::etcd::{Etcd, start_etcd, start_etcd_with_tls};
use super::{
    Place, Refused, Reply, Resp, Server, StandBy, binary, landfall, ok, own_address, stand_by, wait_until,
    wait_until_it_stands_by,
};
use landfall_testbed::Host;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// Time limit for a node to get in step, or for a change of the chain to count.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// How long a port of a node that was killed may be taken.
const PORT_LIMIT: Duration = Duration::from_secs(5);
/// Time limit of a reply that may wait for another node.
pub(crate) const REPLY_LIMIT: Duration = Duration::from_secs(60);

/// Nodes of a chain; those that run have a server.
pub(crate) struct Chain {
    // They end before the directory of the view is removed.
    pub(crate) nodes: Vec<Node>,
    place: Place,
    /// Flags that say where etcd is, if the chain is there.
    etcd: Vec<String>,
    flags: Vec<String>,
}

/// A node.
pub(crate) struct Node {
    // It ends before its directory is removed: fields drop in order.
    server: Option<Server>,
    pub(crate) name: String,
    pub(crate) place: Place,
    pub(crate) address: SocketAddr,
    /// Flags of its own.
    pub(crate) flags: Vec<String>,
    /// The hosts of the node and of its clients; `None`: this one.
    pub(crate) hosts: Option<[Host; 2]>,
}

impl Node {
    /// Its state is as if it had drawn many numbers of records, of which no record is left. It does not run.
    pub(crate) fn draw_numbers(&self) {
        let path = self.place.dir().join("chain");
        let state = std::fs::read_to_string(&path).unwrap();
        let raised = |line: &str| match line.strip_prefix("floor = ") {
            Some(floor) => format!("floor = {}\n", floor.parse::<u64>().unwrap() + (1 << 30)),
            None => format!("{line}\n"),
        };
        std::fs::write(&path, state.lines().map(raised).collect::<String>()).unwrap();
    }

    /// Its region is lost. It does not run.
    pub(crate) fn lose_disk(&self) {
        std::fs::remove_dir_all(self.place.dir()).unwrap();
    }
}

/// An etcd, and a chain of servers in it.
pub(crate) struct InEtcd {
    // Who writes ends before what is written to is removed.
    pub(crate) chain: Chain,
    pub(crate) etcd: Etcd,
    _place: Place,
}

impl InEtcd {
    /// With a T in seconds; no node runs. `None`, with a message, if etcd is not installed.
    pub(crate) fn with(lease_time: u64, nodes: usize, flags: &[&str]) -> Option<Self> {
        Self::at(start_etcd, lease_time, nodes, flags)
    }

    /// As [`Self::with`], with an etcd that demands a certificate.
    pub(crate) fn with_tls(lease_time: u64, nodes: usize, flags: &[&str]) -> Option<Self> {
        Self::at(start_etcd_with_tls, lease_time, nodes, flags)
    }

    fn at(
        start: impl Fn(&Path) -> Option<Etcd>,
        lease_time: u64,
        nodes: usize,
        flags: &[&str],
    ) -> Option<Self> {
        let place = Place::new();
        let etcd = start(&place.path().join("etcd"))?;
        etcd.wait();
        let chain = Chain::in_etcd(&etcd, lease_time, nodes, flags);
        Some(Self { _place: place, etcd, chain })
    }
}

fn is_port_taken(why: &Refused) -> bool {
    why.to_string().contains("Address already in use")
}

/// The version of the view that `chain show` prints.
fn version_in(shown: &str) -> Option<&str> {
    shown.split_once(", version ")?.1.split(|byte: char| !byte.is_ascii_digit()).next()
}

impl Chain {
    /// A chain of nodes `a`, `b`, and so on; none of them runs. The first one holds the chain's data: none.
    pub(crate) fn new(nodes: usize, flags: &[&str]) -> Self {
        Self::at(nodes, flags, Place::new)
    }

    /// As [`Self::new`], with regions in certain places.
    pub(crate) fn at(nodes: usize, flags: &[&str], place: impl Fn() -> Place) -> Self {
        Self::make(nodes, flags, None, |_| (place(), own_address()))
    }

    /// As [`Self::new`], with nodes that listen there.
    pub(crate) fn listening(addresses: &[SocketAddr], flags: &[&str]) -> Self {
        Self::make(addresses.len(), flags, None, |index| (Place::new(), addresses[index]))
    }

    /// As [`Self::new`], in etcd, with a T in seconds.
    fn in_etcd(etcd: &Etcd, lease_time: u64, nodes: usize, flags: &[&str]) -> Self {
        Self::make(nodes, flags, Some((etcd, lease_time)), |_| (Place::new(), own_address()))
    }

    fn make(
        nodes: usize,
        flags: &[&str],
        etcd: Option<(&Etcd, u64)>,
        place: impl Fn(usize) -> (Place, SocketAddr),
    ) -> Self {
        let node = |index: usize| {
            let (place, address) = place(index);
            let name = char::from(b'a' + index as u8).to_string();
            Node { name, place, address, flags: Vec::new(), hosts: None, server: None }
        };
        let nodes: Vec<Node> = (0..nodes).map(node).collect();
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let client = etcd.map_or(Vec::new(), |(etcd, _)| etcd.client.clone());
        let chain = Self { place: Place::new(), etcd: client, nodes, flags };
        chain.create(etcd.map(|(_, lease_time)| lease_time));
        chain
    }

    /// Makes the chain. The first node holds its data.
    fn create(&self, lease_time: Option<u64>) {
        let members: Vec<String> =
            self.nodes.iter().map(|node| format!("--member={}={}", node.name, node.address)).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let in_etcd = lease_time.map(|lease_time| lease_time.to_string());
        let named = in_etcd.as_ref().map_or(["--name", "orders"], |lease_time| ["--lease-time", lease_time]);
        self.command("create", &[&named, &members[..]].concat());
        let dir = self.nodes[0].place.dir();
        self.command("init", &["--node", "a", "--dir", dir.to_str().unwrap()]);
    }

    /// Makes the chain anew, with the same name and nodes. None of them runs.
    pub(crate) fn create_again(&self) {
        std::fs::remove_file(self.view_path()).unwrap();
        self.create(None);
    }

    /// Has the servers, which do not run yet, serve mounts elsewhere. Returns where.
    pub(crate) fn serve_mounts(&mut self) -> Vec<SocketAddr> {
        let serve = |node: &mut Node| {
            let (socket, address) = (node.place.dir().join("offload.sock"), own_address());
            let socket = socket.to_str().unwrap().to_owned();
            node.flags = vec!["--files-offload".into(), socket, "--files-listen".into(), address.to_string()];
            address
        };
        self.nodes.iter_mut().map(serve).collect()
    }

    pub(crate) fn view_path(&self) -> PathBuf {
        self.place.path().join("view.toml")
    }

    /// The path of the view, as text; in etcd, the name of the chain.
    pub(crate) fn view(&self) -> &'static str {
        if !self.etcd.is_empty() {
            return "orders";
        }
        Box::leak(self.view_path().to_str().unwrap().to_owned().into_boxed_str())
    }

    /// Runs `landfall chain`, which must succeed.
    pub(crate) fn command(&self, command: &str, words: &[&str]) -> String {
        self.try_command(command, words).unwrap_or_else(|why| panic!("{command} {words:?}: {why}"))
    }

    /// Runs `landfall chain`; returns its error output if it fails.
    pub(crate) fn try_command(&self, command: &str, words: &[&str]) -> Result<String, String> {
        let etcd: Vec<&str> = self.etcd.iter().map(String::as_str).collect();
        let output = landfall(&[&["chain", command, self.view()], words, &etcd].concat());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Starts a node.
    pub(crate) fn start(&mut self, index: usize) {
        // What a killed process had open the kernel may close a moment after its end.
        let started = wait_until(PORT_LIMIT, || {
            Some(self.try_start(index)).filter(|started| !started.as_ref().is_err_and(is_port_taken))
        });
        let started = started.unwrap_or_else(|| self.try_start(index));
        let server = started.unwrap_or_else(|why| panic!("node {index} did not start: {why}"));
        self.nodes[index].server = Some(server);
    }

    /// Starts a node on an address for clients that it had before.
    pub(crate) fn start_at(&mut self, index: usize, resp: SocketAddr) {
        self.flags.extend(["--resp".to_owned(), resp.to_string()]);
        self.start(index);
        self.flags.truncate(self.flags.len() - 2);
    }

    /// Starts a node that reaches etcd in another way.
    pub(crate) fn start_by(&mut self, index: usize, etcd: &str) {
        let usual = std::mem::replace(&mut self.etcd, vec!["--etcd".to_owned(), etcd.to_owned()]);
        self.start(index);
        self.etcd = usual;
    }

    /// The node is run by this server.
    pub(crate) fn put(&mut self, index: usize, server: Server) {
        self.nodes[index].server = Some(server);
    }

    /// Starts a node; returns its error output if it does not start.
    pub(crate) fn try_start(&self, index: usize) -> Result<Server, Refused> {
        let Some([host, clients]) = &self.nodes[index].hosts else {
            return self.with_flags(index, Place::try_start);
        };
        let command = host.command(binary().to_str().unwrap());
        let mut server = self.with_flags(index, |place, flags| place.try_start_by(command, flags))?;
        server.clients = Some(clients.clone());
        Ok(server)
    }

    /// A process that becomes a node when it is told to.
    pub(crate) fn stand_by(&self, index: usize) -> StandBy {
        self.with_flags(index, Place::stand_by)
    }

    fn with_flags<R>(&self, index: usize, start: impl FnOnce(&Place, &[&str]) -> R) -> R {
        let node = &self.nodes[index];
        let mut flags = vec!["--chain", self.view(), "--node", &node.name];
        flags.extend(self.etcd.iter().map(String::as_str));
        flags.extend(self.flags.iter().chain(&node.flags).map(String::as_str));
        start(&node.place, &flags)
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
        let server = self.server(index);
        server.at_clients(|| Resp::connect(server.resp, REPLY_LIMIT)).unwrap()
    }

    /// Takes the server of a node out of the chain, to be ended or stopped.
    pub(crate) fn take(&mut self, index: usize) -> Server {
        self.nodes[index].server.take().expect("the node runs")
    }

    /// Kills a node.
    pub(crate) fn kill(&mut self, index: usize) {
        self.take(index).kill();
    }

    /// Ends all nodes that run, the last one first, and checks every region.
    pub(crate) fn end(&mut self, running: &[usize]) {
        for node in running.iter().rev() {
            assert!(self.take(*node).stop().success(), "{}", self.words());
        }
        for node in &self.nodes {
            let checked = node.place.check(&[]);
            assert_eq!(checked.status.code(), Some(0), "{}", String::from_utf8_lossy(&checked.stdout));
        }
    }

    /// Removes a node from the view.
    pub(crate) fn remove(&self, index: usize) {
        self.command("remove", &[&self.nodes[index].name]);
    }

    /// As [`Self::remove`], when what this returns is called: no process is started then.
    pub(crate) fn remove_later(&self, index: usize) -> impl FnOnce() + use<> {
        let mut command = stand_by();
        command.args(["chain", "remove", self.view(), &self.nodes[index].name]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        wait_until_it_stands_by(&mut child);
        move || {
            child.stdin.take().unwrap().write_all(b"go\n").unwrap();
            assert!(child.wait().unwrap().success());
        }
    }

    /// Adds a node at the end of the view.
    pub(crate) fn add(&self, index: usize) {
        let node = &self.nodes[index];
        self.command("add", &[&format!("{}={}", node.name, node.address)]);
    }

    /// What `INFO replication` of a node says in one line.
    pub(crate) fn info(&self, index: usize, name: &str) -> Option<String> {
        let server = self.server(index);
        let mut resp = server.at_clients(|| Resp::connect(server.resp, REPLY_LIMIT)).ok()?;
        let Ok(Reply::Bulk(text)) = resp.call(&[b"INFO", b"replication"]) else { return None };
        let text = String::from_utf8(text).unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().into()))
    }

    /// Waits until every running node is in step with the newest view, and one of them takes writes. Returns that.
    pub(crate) fn wait_until_in_step(&self) -> usize {
        let settled = wait_until(LIMIT, || self.settled());
        settled.unwrap_or_else(|| panic!("the nodes are not in step: {}", self.words()))
    }

    /// The version of the newest view.
    pub(crate) fn version(&self) -> u64 {
        version_in(&self.command("show", &[])).expect("a version").parse().unwrap()
    }

    /// The node that takes writes, if every running node is in step with the newest view.
    pub(crate) fn settled(&self) -> Option<usize> {
        let text = self.try_command("show", &[]).ok()?;
        let version = version_in(&text)?;
        let is_member = |node: &Node| text.contains(&format!("\n{} at {}, since", node.name, node.address));
        let runs = |index: &usize| self.nodes[*index].server.is_some();
        let running: Vec<usize> = (0..self.nodes.len()).filter(runs).collect();
        let members: Vec<usize> =
            running.into_iter().filter(|index| is_member(&self.nodes[*index])).collect();
        let is = |index: usize, name: &str, value: &str| self.info(index, name).as_deref() == Some(value);
        let serves = |index: usize| is(index, "chain_role", "first") || is(index, "chain_role", "replica");
        let in_step = |index: &usize| {
            is(*index, "chain_version", version)
                && is(*index, "chain_in_step", "1")
                && serves(*index)
                && self.info(*index, "chain_next").is_none_or(|next| next.ends_with("state=in_step"))
        };
        let first = members.iter().copied().find(|index| is(*index, "chain_role", "first"))?;
        members.iter().all(in_step).then_some(first)
    }

    /// The logs of all nodes.
    pub(crate) fn words(&self) -> String {
        self.nodes.iter().map(|node| format!("\n--- {}\n{}", node.name, node.place.log())).collect()
    }
}

/// Everything that a node has, in all databases.
pub(crate) fn contents(server: &Server) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut resp = server.resp();
    for database in 0..16_u8 {
        assert_eq!(resp.call(&[b"SELECT", database.to_string().as_bytes()]).unwrap(), ok());
        let Reply::Array(keys) = resp.call(&[b"KEYS", b"*"]).unwrap() else { panic!("keys") };
        for key in keys {
            let Reply::Bulk(key) = key else { panic!("a key") };
            let Reply::Bulk(value) = resp.call(&[b"GET", &key]).unwrap() else {
                panic!("a value of {key:?}")
            };
            all.insert((database, key), value);
        }
    }
    all
}

/// Fails unless all nodes that run have the same. Returns it.
pub(crate) fn same_everywhere(chain: &Chain, running: &[usize]) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let first = contents(chain.server(running[0]));
    for index in &running[1..] {
        assert_eq!(contents(chain.server(*index)), first, "{}", chain.nodes[*index].name);
    }
    first
}

/// The codes of all messages that a node answers with until it ends the connection.
pub(crate) fn codes_answered(node: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut node = TcpStream::connect(node).unwrap();
    node.set_read_timeout(Some(REPLY_LIMIT)).unwrap();
    node.write_all(message).unwrap();
    let mut answer = Vec::new();
    let _ = node.read_to_end(&mut answer);
    answer.windows(6).filter(|at| at.starts_with(b"LFCH")).map(|at| at[5]).collect()
}
