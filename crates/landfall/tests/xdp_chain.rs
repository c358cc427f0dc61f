//! A chain of hosts at a switch, whose servers receive by AF_XDP: from clients, and from the node before.

#![allow(clippy::print_stderr, reason = "a test reports that it is skipped")]

mod common;

use common::chain::{Chain, LIMIT, same_everywhere};
use common::faults::{Addresses, Numbers};
use common::{Server, can_mount, mount_metric, ok, pattern, wait_until};
use landfall_testbed::{Host, Switch, Testbed};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NODES: usize = 3;
const CLIENTS: usize = 3;

/// The nodes of the chain, and what joins them. The last host is that of the clients.
struct Net {
    chain: Chain,
    switch: Switch,
    _hosts: [Host; NODES + 1],
}

impl Net {
    /// No node runs. `None`, with a message, if hosts cannot be created here.
    fn new(flags: &[&str]) -> Option<Self> {
        let testbed = Testbed::new().inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()?;
        let hosts = ["a", "b", "c", "clients"].map(|name| testbed.host(name).unwrap());
        let addresses = ["10.9.0.1/24", "10.9.0.2/24", "10.9.0.3/24", "10.9.0.9/24"];
        let places: Vec<_> = hosts.iter().zip(addresses).collect();
        let switch = testbed.switch(&places).inspect_err(|reason| eprintln!("SKIP: {reason}")).ok()?;
        let nodes = [1, 2, 3].map(|number| SocketAddr::from(([10, 9, 0, number], 7101)));
        let usual =
            ["--workers", "1", "--insecure-no-password", "--resp", "0.0.0.0:6479", "--http", "0.0.0.0:6480"];
        let mut chain = Chain::listening(&nodes, &[&usual, flags].concat());
        for (index, node) in chain.nodes.iter_mut().enumerate() {
            node.flags = vec!["--xdp".into(), switch.interface(index).into()];
            node.hosts = Some([hosts[index].clone(), hosts[NODES].clone()]);
        }
        Some(Self { chain, switch, _hosts: hosts })
    }
}

/// Bytes that were copied on their way through a server.
fn copied(server: &Server) -> f64 {
    let paths = ["placed", "reply", "stalled", "consolidated", "moved"];
    paths.map(|path| server.metric(&format!("landfall_copied_bytes_total{{path=\"{path}\"}}"))).iter().sum()
}

#[test]
fn packets_of_the_node_before_stay_where_they_landed() {
    let Some(mut net) = Net::new(&["--scrub-rate", "0"]) else { return };
    net.chain.start_all();
    let chain = &net.chain;
    let of_all = |ask: &dyn Fn(&Server) -> f64| [0, 1, 2].map(|node| ask(chain.server(node)));
    let own = |server: &Server| server.metric("landfall_chain_own_batches_total");
    let before = [&copied as &dyn Fn(&Server) -> f64, &own].map(of_all);
    let mut resp = chain.resp(0);
    for seed in 0..500_u64 {
        let value = pattern(seed, [1024, 4096, 20_000][seed as usize % 3]);
        assert_eq!(resp.call(&[b"SET", format!("key:{seed}").as_bytes(), &value]).unwrap(), ok());
    }
    assert_eq!(same_everywhere(chain, &[0, 1, 2]).len(), 500);
    assert_eq!(of_all(&copied), before[0]);
    // Who waits for the answer sends, and reads the answer, itself.
    let sent = of_all(&own);
    assert!((0..2).all(|node| sent[node] - before[1][node] >= 450.0), "{before:?} {sent:?}");
    // The values alone are some 3,000 packets. They are told of now and then.
    let came = || of_all(&|server| *server.metrics().get("landfall_net_received_packets").unwrap_or(&0.0));
    let all_came = || came().iter().all(|came| *came >= 2500.0).then_some(());
    wait_until(LIMIT, all_came).unwrap_or_else(|| panic!("{:?}", came()));
    net.chain.end(&[0, 1, 2]);
}

#[test]
fn whatever_is_killed_removed_or_added_nothing_acknowledged_is_lost() {
    let Some(mut net) = Net::new(&["--capacity", "128MiB"]) else { return };
    net.chain.start_all();
    let addresses = Addresses::of_all(&net.chain);
    let value_of = |number: u64| {
        [format!("{number}:").into_bytes(), pattern(number, number as usize * 977 % 9_000)].concat()
    };
    let numbers = Numbers::new(CLIENTS, value_of);
    numbers.hunt(&mut net.chain, &addresses);
    let all = same_everywhere(&net.chain, &[0, 1, 2]);
    let all = all.into_iter().map(|((_, key), value)| (key, value)).collect();
    numbers.check(&all, &net.chain.words());
}

/// The link of the interface is down meanwhile, which AF_XDP tells by errors.
#[test]
fn writes_wait_while_a_cable_is_cut_and_go_on_when_it_is_mended() {
    let Some(mut net) = Net::new(&[]) else { return };
    net.chain.start_all();
    let mut resp = net.chain.resp(0);
    for victim in [1, 2] {
        assert_eq!(resp.call(&[b"SET", b"key", b"before"]).unwrap(), ok());
        net.switch.cut(victim).unwrap();
        let is_answered = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                assert_eq!(resp.call(&[b"SET", b"key", &pattern(victim as u64, 50_000)]).unwrap(), ok());
                is_answered.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(500));
            assert!(!is_answered.load(Ordering::Acquire), "not all servers have it");
            net.switch.mend(victim).unwrap();
        });
        let all = same_everywhere(&net.chain, &[0, 1, 2]);
        assert!(all[&(0, b"key".to_vec())] == pattern(victim as u64, 50_000));
    }
    net.chain.end(&[0, 1, 2]);
}

#[test]
fn files_come_by_packets_and_the_next_node_mounts_them() {
    let flags = ["--capacity", "256MiB", "--scrub-rate", "0"];
    let Some(mut net) = Net::new(&flags).filter(|_| can_mount()) else { return };
    let points = [(); NODES].map(|()| tempfile::tempdir().unwrap());
    for (node, point) in net.chain.nodes.iter_mut().zip(&points) {
        node.flags.extend(["--files".into(), point.path().to_str().unwrap().into()]);
    }
    net.chain.start_all();
    let is_mounted =
        |node: usize| mount_metric(points[node].path(), "landfall_fs_pace_waits_total").map(drop);
    wait_until(LIMIT, || is_mounted(0)).expect("it is mounted");
    let path = |node: usize| points[node].path().join("file");
    let file = File::create(path(0)).unwrap();
    file.sync_all().unwrap();
    let before = [1, 2].map(|node| copied(net.chain.server(node)));
    let block = pattern(3, 65_536);
    (0..64).for_each(|at| file.write_all_at(&block, at * 65_536).unwrap());
    file.sync_all().unwrap();
    let after = [1, 2].map(|node| copied(net.chain.server(node)));
    // The file has 4 MiB. What is left are operations and attributes.
    assert!((0..2).all(|at| after[at] - before[at] < 20_000.0), "{before:?} {after:?}");
    drop(file);
    assert!(net.chain.take(0).stop().success());
    net.chain.remove(0);
    net.chain.wait_until_in_step();
    wait_until(LIMIT, || is_mounted(1)).expect("the next node mounts");
    assert!(fs::read(path(1)).unwrap() == block.repeat(64));
    net.chain.end(&[1, 2]);
}

#[test]
fn a_server_that_the_view_has_elsewhere_is_refused() {
    let Some(net) = Net::new(&["--ip", "10.9.0.77/24"]) else { return };
    let why = net.chain.try_start(1).err().expect("nobody could connect").to_string();
    assert!(why.contains("at 10.9.0.2:7101") && why.contains("at 10.9.0.77 alone"), "{why}");
}
