//! Chains in etcd: a manager takes out and adds servers, and none that may have lost its place answers.
#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod common;

use common::chain::{Chain, InEtcd as Setting};
use common::etcd::Gate;
use common::faults::Over;
use common::{Reply, Resp, bulk, error_text, ok, pattern, wait_until};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// T, seconds: the shortest.
const T: u64 = 4;
const T_TIME: Duration = Duration::from_secs(T);
/// Time limit for what follows a change, on a machine that does other things, too.
const LIMIT: Duration = Duration::from_secs(60);
/// Clients that write, one key each.
const CLIENTS: usize = 3;
/// How long a client waits for a reply before it turns to another server.
const PATIENCE: Duration = Duration::from_millis(500);

impl Setting {
    fn new(nodes: usize) -> Option<Self> {
        Self::with(T, nodes, &[])
    }

    fn started(nodes: usize) -> Option<Self> {
        let mut setting = Self::new(nodes)?;
        setting.chain.start_all();
        setting.wait_until_known(nodes);
        Some(setting)
    }

    /// Waits until etcd knows of so many nodes that they are in step: what people ask for rests on that.
    fn wait_until_known(&self, nodes: usize) {
        let is_so = || (self.show().matches("registered, in step").count() == nodes).then_some(());
        wait_until(LIMIT, is_so).unwrap_or_else(|| panic!("{}", self.show()));
    }

    fn show(&self) -> String {
        self.chain.command("show", &[])
    }

    /// Runs `etcdctl`. `None`, with a message, if it is not installed.
    fn etcdctl(&self, words: &[&str]) -> Option<()> {
        let mut command = std::process::Command::new("etcdctl");
        command.args(["--endpoints", &self.etcd.url]).args(words).env("ETCDCTL_API", "3");
        let Ok(output) = command.output() else {
            eprintln!("SKIP: etcdctl: not installed, see `cargo xtask peers`");
            return None;
        };
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        Some(())
    }

    /// The names of the view's members, in order.
    fn members(&self) -> String {
        let text = self.show();
        text.lines()
            .filter(|line| line.contains(", since version"))
            .filter_map(|line| line.chars().next())
            .collect()
    }

    /// Waits until these are the members, in this order, and in step.
    fn wait_for(&self, members: &str) {
        let is_so = || (self.members() == members && self.chain.settled().is_some()).then_some(());
        wait_until(LIMIT, is_so)
            .unwrap_or_else(|| panic!("not {members}: {}{}", self.show(), self.chain.words()));
    }

    /// Fails if two changes made the same version: two managers have written.
    fn check_versions(&self) {
        let words = self.chain.words();
        let versions: Vec<&str> = words
            .lines()
            .filter_map(|line| line.split_once("changed the chain version=")?.1.split(' ').next())
            .collect();
        let different: BTreeSet<&&str> = versions.iter().collect();
        assert_eq!(different.len(), versions.len(), "{versions:?}{words}");
    }
}

/// What a client knows of its key.
#[derive(Default)]
struct Known {
    acknowledged: AtomicU64,
    sent: AtomicU64,
}

/// Clients that write numbers that only grow, and one that reads them everywhere.
struct Load {
    known: Vec<Known>,
    addresses: Vec<SocketAddr>,
    over: AtomicBool,
    /// When the last write was acknowledged, and the longest time between two.
    last: Mutex<(Instant, Duration)>,
    reads: AtomicU64,
}

impl Load {
    fn new(chain: &Chain) -> Self {
        Self {
            known: (0..CLIENTS).map(|_| Known::default()).collect(),
            addresses: (0..chain.nodes.len()).map(|index| chain.server(index).resp).collect(),
            over: AtomicBool::new(false),
            last: Mutex::new((Instant::now(), Duration::ZERO)),
            reads: AtomicU64::new(0),
        }
    }

    fn key(client: usize) -> String {
        format!("key:{client}")
    }

    /// Runs `work` while clients write and read.
    fn during(&self, work: impl FnOnce()) {
        std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                threads.spawn(move || self.write(client));
            }
            for node in 0..self.addresses.len() * CLIENTS {
                threads.spawn(move || self.read(node / CLIENTS, node % CLIENTS));
            }
            let _ends = Over(&self.over);
            work();
        });
    }

    fn write(&self, client: usize) {
        let (mut node, mut resp, mut number) = (0, None, 0);
        while !self.over.load(Ordering::Relaxed) {
            let Some(to) = &mut resp else {
                node = (node + 1) % self.addresses.len();
                resp = Resp::connect(self.addresses[node], PATIENCE).ok();
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            number += 1;
            self.known[client].sent.store(number, Ordering::SeqCst);
            match to.call(&[b"SET", Self::key(client).as_bytes(), number.to_string().as_bytes()]) {
                Ok(reply) if reply == ok() => {
                    self.known[client].acknowledged.store(number, Ordering::SeqCst);
                    let mut last = self.last.lock().unwrap();
                    *last = (Instant::now(), last.1.max(last.0.elapsed()));
                }
                _ => resp = None,
            }
        }
    }

    /// Reads a client's key at one node. What that answers is at least what was acknowledged when it was asked.
    fn read(&self, node: usize, client: usize) {
        let (mut resp, key) = (None, Self::key(client));
        while !self.over.load(Ordering::Relaxed) {
            let Some(at) = &mut resp else {
                resp = Resp::connect(self.addresses[node], LIMIT).ok();
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let least = self.known[client].acknowledged.load(Ordering::SeqCst);
            match at.call(&[b"GET", key.as_bytes()]) {
                Ok(Reply::Bulk(value)) => {
                    let found = number(&value);
                    assert!(found >= least, "node {node} has answered {found} after {least}");
                    self.reads.fetch_add(1, Ordering::Relaxed);
                }
                Ok(Reply::Nil) => assert_eq!(least, 0, "node {node} has nothing after {least}"),
                Ok(_) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => resp = None,
            }
        }
    }

    /// Waits until a write is acknowledged that begins now.
    fn wait_for_writes(&self, limit: Duration) -> Option<()> {
        let before = self.known.iter().map(|known| known.sent.load(Ordering::SeqCst)).collect::<Vec<_>>();
        let goes_on = |(known, before): (&Known, &u64)| known.acknowledged.load(Ordering::SeqCst) > *before;
        wait_until(limit, || self.known.iter().zip(&before).any(goes_on).then_some(()))
    }

    /// Fails unless every node has the same, and nothing that was acknowledged is missing.
    fn check(&self, chain: &Chain) {
        for (client, known) in self.known.iter().enumerate() {
            let [least, most] =
                [&known.acknowledged, &known.sent].map(|number| number.load(Ordering::SeqCst));
            let found: Vec<u64> = (0..chain.nodes.len())
                .map(|index| match chain.server(index).call(&["GET", &Self::key(client)]) {
                    Reply::Bulk(value) => number(&value),
                    other => panic!("node {index}: {other:?}"),
                })
                .collect();
            assert!(found.iter().all(|other| *other == found[0]), "{found:?}");
            assert!((least..=most).contains(&found[0]), "{found:?}, {least} to {most}{}", chain.words());
        }
        let count: u64 = self.known.iter().map(|known| known.acknowledged.load(Ordering::SeqCst)).sum();
        assert!(count > 100 && self.reads.load(Ordering::Relaxed) > 100, "they did work: {count}");
    }
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

#[test]
fn a_first_node_that_is_killed_is_replaced_and_comes_back_by_being_started() {
    let Some(mut setting) = Setting::started(3) else { return };
    let load = Load::new(&setting.chain);
    // A server that is started again listens where clients expect it.
    let addresses = load.addresses.clone();
    load.during(|| {
        assert!(load.wait_for_writes(LIMIT).is_some());
        setting.chain.kill(0);
        let killed = Instant::now();
        assert!(load.wait_for_writes(T_TIME * 4).is_some(), "{}", setting.chain.words());
        let gap = killed.elapsed();
        assert!(gap < T_TIME * 2, "writes went on after {gap:?}");
        assert!(setting.members().starts_with("bc"));
        setting.chain.start_at(0, addresses[0]);
        setting.wait_for("bca");
        assert!(load.wait_for_writes(LIMIT).is_some());
    });
    setting.wait_for("bca");
    load.check(&setting.chain);
    setting.check_versions();
}

#[test]
fn a_first_node_that_was_stopped_for_long_answers_no_stale_read_and_starts_anew_by_itself() {
    let Some(mut setting) = Setting::started(3) else { return };
    let load = Load::new(&setting.chain);
    load.during(|| {
        assert!(load.wait_for_writes(LIMIT).is_some());
        // Reads wait for a write under way. Of this key there is none.
        assert_eq!(setting.chain.server(0).call(&["SET", "quiet", "1"]), ok());
        let mut asks = setting.chain.resp(0);
        let first = setting.chain.take(0);
        first.signal("STOP");
        assert!(load.wait_for_writes(T_TIME * 4).is_some(), "{}", setting.chain.words());
        std::thread::sleep(T_TIME / 2);
        assert_eq!(setting.members(), "bc");
        assert_eq!(setting.chain.server(1).call(&["SET", "quiet", "2"]), ok());
        // It hears of no change, and must not answer by what it knew.
        setting.etcd.signal("STOP");
        first.signal("CONT");
        let mut answer = asks.call(&[b"GET", b"quiet"]).unwrap();
        assert!(asks.call(&[b"GET", b"quiet"]).is_err(), "its clients turn to another server");
        for _ in 0..50 {
            assert!(matches!(&answer, Reply::Error(text) if text.starts_with("MASTERDOWN")), "{answer:?}");
            std::thread::sleep(Duration::from_millis(10));
            answer = first.call(&["GET", "quiet"]);
        }
        assert!(load.wait_for_writes(LIMIT).is_some());
        setting.etcd.signal("CONT");
        setting.chain.put(0, first);
        setting.wait_for("bca");
        assert!(load.wait_for_writes(LIMIT).is_some());
    });
    setting.wait_for("bca");
    load.check(&setting.chain);
    setting.check_versions();
}

#[test]
fn the_last_node_in_step_is_waited_for() {
    let Some(mut setting) = Setting::started(2) else { return };
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "1"]), ok());
    setting.chain.kill(1);
    setting.wait_for("a");
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "2"]), ok());
    setting.chain.kill(0);
    // b has an older value. It waits for a.
    let waiting = std::thread::scope(|threads| {
        let chain = &setting.chain;
        let starting = threads.spawn(|| chain.try_start(1));
        std::thread::sleep(T_TIME * 2);
        assert_eq!(setting.members(), "a");
        assert!(!starting.is_finished(), "{}", chain.words());
        let first = chain.try_start(0).unwrap();
        (first, starting.join().unwrap().unwrap())
    });
    setting.chain.put(0, waiting.0);
    setting.chain.put(1, waiting.1);
    setting.wait_for("ab");
    assert_eq!(setting.chain.server(1).call(&["GET", "k"]), bulk("2"));
}

#[test]
fn a_first_node_that_has_lost_its_disk_is_copied_to() {
    let Some(mut setting) = Setting::started(3) else { return };
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "v"]), ok());
    setting.chain.kill(0);
    setting.chain.nodes[0].lose_disk();
    // Before anybody has noticed that it was away.
    setting.chain.start(0);
    setting.wait_for("bca");
    assert_eq!(setting.chain.server(0).call(&["GET", "k"]), bulk("v"));
    assert_eq!(setting.chain.server(1).call(&["SET", "k", "w"]), ok());
    assert_eq!(setting.chain.server(0).call(&["GET", "k"]), bulk("w"));
}

#[test]
fn a_copy_keeps_to_its_rate_and_says_how_far_it_has_come() {
    let Some(mut setting) = Setting::with(T, 2, &["--copy-rate", "1MiB"]) else { return };
    setting.chain.start_all();
    setting.wait_until_known(2);
    let mut resp = setting.chain.resp(0);
    for seed in 0..50 {
        let value = pattern(seed, 100_000);
        assert_eq!(resp.call(&[b"SET", seed.to_string().as_bytes(), &value]).unwrap(), ok());
    }
    setting.chain.kill(1);
    setting.chain.nodes[1].lose_disk();
    setting.chain.start(1);
    let far = || setting.show().lines().find(|line| line.contains("copies to b")).map(str::to_owned);
    let line = wait_until(LIMIT, far).unwrap_or_else(|| panic!("{}", setting.show()));
    let begun = Instant::now();
    assert!(line.starts_with("a at ") && line.contains(" of about "), "{line}");
    let copy = setting.chain.info(0, "chain_copy").expect("a copy is under way");
    assert!(copy.starts_with("name=b,records="), "{copy}");
    let further = || far().filter(|now| *now != line);
    wait_until(LIMIT, further).expect("it goes on");
    setting.wait_until_known(2);
    assert!(begun.elapsed() > Duration::from_secs(2), "5 MB at 1 MiB/s");
    wait_until(LIMIT, || far().is_none().then_some(())).expect("nobody copies any more");
    assert_eq!(setting.chain.info(0, "chain_copy"), None);
}

#[test]
fn show_says_what_keeps_the_chain_from_its_work() {
    let Some(mut setting) = Setting::new(2) else { return };
    setting.chain.nodes[1].flags = vec!["--capacity".into(), "64MiB".into()];
    setting.chain.start_all();
    setting.wait_until_known(2);
    let line_of = |show: &str, node: &str| {
        show.lines()
            .find(|line| line.starts_with(&format!("{node} at ")))
            .map(str::to_owned)
            .expect("its line")
    };
    let says = |setting: &Setting, node: &str, text: &str| {
        let line = || Some(line_of(&setting.show(), node)).filter(|line| line.contains(text));
        wait_until(LIMIT, line).unwrap_or_else(|| panic!("{node} does not say {text}: {}", setting.show()));
    };
    assert!(!setting.show().contains("no room") && setting.chain.info(1, "chain_troubles").is_none());
    let mut resp = setting.chain.resp(0);
    let value = pattern(1, 1 << 20);
    let mut fits = |index: &u64| resp.call(&[b"SET", index.to_string().as_bytes(), &value]).unwrap() == ok();
    let full = (0..200_u64).find(|index| !fits(index)).expect("it is full");
    says(&setting, "b", "registered, in step; no room for new values");
    let troubles = setting.chain.info(1, "chain_troubles");
    assert!(troubles.is_some_and(|says| says.starts_with("no room for new values")));
    for index in 0..full {
        assert_eq!(resp.call(&[b"DEL", index.to_string().as_bytes()]).unwrap(), Reply::Int(1));
    }
    let is_over = || (!line_of(&setting.show(), "b").contains("no room")).then_some(());
    wait_until(LIMIT, is_over).unwrap_or_else(|| panic!("{}", setting.show()));
    setting.chain.kill(1);
    says(&setting, "a", "no connection to b: Connection refused");
    setting.chain.start(1);
    setting.wait_for("ab");
    let is_over = || (!setting.show().contains("no connection")).then_some(());
    wait_until(LIMIT, is_over).unwrap_or_else(|| panic!("{}", setting.show()));
    assert_eq!(setting.chain.server(0).metric("landfall_chain_troubles"), 0.0);
}

#[test]
fn a_replica_that_has_lost_its_disk_is_added_behind_one_that_has_not() {
    let Some(mut setting) = Setting::started(3) else { return };
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "v"]), ok());
    setting.chain.kill(1);
    setting.chain.nodes[1].lose_disk();
    setting.chain.start(1);
    setting.wait_for("acb");
    assert_eq!(setting.chain.server(1).call(&["GET", "k"]), bulk("v"));
    let copies = setting.chain.nodes[2].place.log().matches("the copy has ended").count();
    assert_eq!(copies, 1, "c has kept what it had{}", setting.chain.words());
}

#[test]
fn people_promote_fail_remove_and_add_nodes_under_load() {
    let Some(setting) = Setting::started(3) else { return };
    let load = Load::new(&setting.chain);
    let command = |name: &str, word: &str| setting.chain.command(name, &[word]);
    load.during(|| {
        assert!(load.wait_for_writes(LIMIT).is_some());
        let shown = command("promote", "b");
        assert!(shown.contains("\nb at "), "{shown}");
        setting.wait_for("bca");
        setting.wait_until_known(3);
        command("fail", "c");
        setting.wait_for("bac");
        assert!(load.wait_for_writes(LIMIT).is_some());
    });
    load.check(&setting.chain);
    setting.check_versions();
    let refused = |name: &str, words: &[&str]| setting.chain.try_command(name, words).unwrap_err();
    for (name, word, expected) in [
        ("promote", "x", "x is no node of the chain orders"),
        ("remove", "x", "x is no node of the chain orders"),
        ("fail", "x", "x is no node of the chain orders"),
        ("add", "a=127.0.0.1:9999", "a is a node of the chain orders already"),
        ("create", "--member=a=127.0.0.1:1", "etcd has a chain orders already"),
    ] {
        let words = refused(name, &[word]);
        assert!(words.contains(expected), "{words}");
    }
}

#[test]
fn a_node_that_is_removed_ends_and_the_last_one_stays() {
    let Some(mut setting) = Setting::started(2) else { return };
    let address = setting.chain.nodes[1].address;
    setting.chain.command("remove", &["b"]);
    let mut removed = setting.chain.take(1);
    assert_eq!(removed.wait().and_then(|status| status.code()), Some(1));
    let log = setting.chain.nodes[1].place.log();
    assert!(log.contains("b is no node of the chain orders"), "{log}");
    setting.wait_for("a");
    let words = setting.chain.try_command("remove", &["a"]).unwrap_err();
    assert!(words.contains("no node of the chain orders is registered and in step"), "{words}");
    setting.chain.command("add", &[&format!("b={address}")]);
    assert!(setting.show().contains("not in the view; silent"));
    setting.chain.start(1);
    setting.wait_for("ab");
}

#[test]
fn a_second_server_on_the_same_directory_takes_no_place_from_the_first() {
    let Some(setting) = Setting::started(1) else { return };
    let refused = setting.chain.try_start(0).err().expect("refused").words;
    assert!(refused.contains("another process serves the region there"), "{refused}");
    // Long enough for whoever has lost its place to say so.
    std::thread::sleep(T_TIME);
    let log = setting.chain.nodes[0].place.log();
    assert!(!log.contains("another process has registered as this node"), "{log}");
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "v"]), ok());
}

/// Its command was killed, or has lost etcd, and nobody else can be the first one.
#[test]
fn a_removal_that_nobody_carries_out_is_taken_back() {
    let Some(mut setting) = Setting::started(2) else { return };
    setting.chain.kill(1);
    setting.chain.nodes[1].lose_disk();
    wait_until(LIMIT, || setting.show().contains("replica; silent").then_some(())).expect("b is silent");
    if setting.etcdctl(&["del", "/landfall/chains/orders/nodes/a"]).is_none() {
        return;
    }
    let address = setting.chain.nodes[0].address;
    let refused = setting.chain.try_command("add", &["a=127.0.0.1:9"]).unwrap_err();
    assert!(refused.contains("a is there twice"), "{refused}");
    setting.chain.command("add", &[&format!("a={address}")]);
    let serves = || (setting.chain.resp(0).call(&[b"SET", b"k", b"v"]).ok()? == ok()).then_some(());
    wait_until(LIMIT, serves).expect("it serves again");
}

/// People have given a host name, or another program has written there.
#[test]
fn a_value_of_one_node_that_cannot_be_read_costs_no_other_node_its_registration() {
    let Some(mut setting) = Setting::started(2) else { return };
    let node = "/landfall/chains/orders/nodes/d";
    if setting.etcdctl(&["put", node, "db4.example:7101"]).is_none() {
        return;
    }
    let begun = Instant::now();
    while begun.elapsed() < T_TIME * 2 {
        let shown = setting.show();
        assert_eq!(shown.matches("registered, in step").count(), 2, "{shown}{}", setting.chain.words());
        assert!(shown.contains("db4.example:7101") && !shown.contains("manager none"), "{shown}");
        std::thread::sleep(T_TIME / 20);
    }
    assert_eq!(setting.chain.server(0).metric("landfall_chain_registered"), 1.0);
    assert_eq!(setting.chain.server(0).call(&["SET", "k", "v"]), ok());
    assert_eq!(setting.chain.server(1).call(&["GET", "k"]), bulk("v"));
    let troubles = setting.chain.info(0, "chain_troubles").expect("it says so");
    assert!(troubles.contains(node), "{troubles}");
    // The registration of a node that lives is written anew, and is nobody else's.
    setting.etcdctl(&["put", "/landfall/chains/orders/alive/b", "?"]).expect("etcdctl");
    setting.wait_until_known(2);
    setting.chain.kill(1);
    setting.chain.start(1);
    setting.wait_for("ab");
    setting.chain.command("remove", &["d"]);
    let shown = setting.show();
    assert!(!shown.contains("nodes/d") && !shown.contains("alive/b"), "{shown}");
    let log = setting.chain.nodes[1].place.log();
    assert!(!log.contains("another process has registered as this node"), "{log}");
}

#[test]
fn writes_and_reads_at_the_first_node_go_on_while_etcd_is_away() {
    let Some(mut setting) = Setting::started(3) else { return };
    let load = Load::new(&setting.chain);
    load.during(|| {
        assert!(load.wait_for_writes(LIMIT).is_some());
        setting.etcd.kill();
        std::thread::sleep(T_TIME * 2);
        assert!(load.wait_for_writes(LIMIT).is_some(), "{}", setting.chain.words());
        let chain = &setting.chain;
        let info = |index: usize, name: &str| chain.info(index, name).unwrap();
        assert_eq!((&*info(0, "chain_role"), &*info(0, "chain_etcd")), ("first", "away"));
        assert_eq!(chain.server(0).metric("landfall_chain_registered").to_string(), "0");
        for replica in [1, 2] {
            assert_eq!(info(replica, "chain_role"), "fenced");
            assert_eq!(chain.server(replica).metric("landfall_chain_fenced").to_string(), "1");
            let answer = chain.server(replica).call(&["GET", "key:0"]);
            assert!(error_text(&answer).starts_with("MASTERDOWN"), "{answer:?}");
        }
        let words = chain.try_command("show", &[]).unwrap_err();
        assert!(words.contains("does not answer"), "{words}");
        let begun = Instant::now();
        while begun.elapsed() < T_TIME {
            let answer = chain.server(0).call(&["GET", "key:0"]);
            assert!(matches!(answer, Reply::Bulk(_)), "{answer:?}");
        }
        setting.etcd.restart();
        setting.wait_for("abc");
    });
    load.check(&setting.chain);
}

#[test]
fn a_first_node_that_only_the_chain_hears_goes_on_until_it_is_replaced_without_a_stale_read() {
    let Some(mut setting) = Setting::new(3) else { return };
    let gate = Gate::to(&setting.etcd);
    setting.chain.start_by(0, &gate.url());
    (1..3).for_each(|index| setting.chain.start(index));
    setting.wait_for("abc");
    let load = Load::new(&setting.chain);
    let answers = |index: usize, words: &[&str]| {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        setting.chain.resp(index).call(&words).unwrap()
    };
    load.during(|| {
        assert_eq!(answers(0, &["SET", "quiet", "1"]), ok());
        gate.close();
        let cut = Instant::now();
        // Its own proof has ended, and the chain's counts.
        std::thread::sleep(T_TIME * 3 / 4);
        assert_eq!(answers(0, &["GET", "quiet"]), bulk("1"));
        let taken_over = || (answers(1, &["SET", "quiet", "2"]) == ok()).then_some(());
        wait_until(LIMIT, taken_over).unwrap_or_else(|| panic!("{}", setting.chain.words()));
        let answer = answers(0, &["GET", "quiet"]);
        assert!(error_text(&answer).starts_with("MASTERDOWN"), "{answer:?}");
        assert!(cut.elapsed() < T_TIME * 5, "{:?}", cut.elapsed());
        gate.open();
        setting.wait_for("bca");
    });
    load.check(&setting.chain);
    setting.check_versions();
}

#[test]
fn a_chain_of_one_goes_on_while_etcd_is_away() {
    let Some(mut setting) = Setting::started(1) else { return };
    setting.etcd.kill();
    std::thread::sleep(T_TIME);
    for value in ["1", "2"] {
        assert_eq!(setting.chain.server(0).call(&["SET", "k", value]), ok());
        assert_eq!(setting.chain.server(0).call(&["GET", "k"]), bulk(value));
    }
}
