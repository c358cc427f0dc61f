//! Clients follow a chain: Sentinel's protocol, which every server of it answers.

mod common;

use common::chain::{Chain, InEtcd as Setting};
use common::etcd::Gate;
use common::follower::{Follower, connect_by, first, text};
use common::{Place, Reply, Resp, bulk, error_text, ok, run, wait_until};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// T, seconds: the shortest.
const T: u64 = 4;
/// Time limit for what follows a change, on a machine that does other things, too.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a client of another project writes, seconds.
const LOAD_SECONDS: u64 = 20;
/// When the first server is killed under it.
const KILLED_AFTER: Duration = Duration::from_secs(6);

impl Setting {
    fn new(flags: &[&str]) -> Option<Self> {
        Self::with(T, 3, flags)
    }

    fn started() -> Option<Self> {
        let mut setting = Self::new(&[])?;
        setting.chain.start_all();
        let known = || (0..3).all(|node| replicas(&setting.chain, node).len() == 2).then_some(());
        wait_until(LIMIT, known).unwrap_or_else(|| panic!("{}", setting.chain.words()));
        Some(setting)
    }
}

/// What a server answers about the chain.
fn sentinel(chain: &Chain, node: usize, words: &[&str]) -> Reply {
    chain.server(node).call(&[&["SENTINEL"], words].concat())
}

fn first_by(chain: &Chain, node: usize) -> Option<SocketAddr> {
    first(&mut chain.resp(node))
}

/// The fields of an instance.
fn fields(reply: &Reply) -> BTreeMap<String, String> {
    let Reply::Array(words) = reply else { panic!("{reply:?}") };
    words.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn instances(reply: &Reply) -> Vec<BTreeMap<String, String>> {
    let Reply::Array(all) = reply else { panic!("{reply:?}") };
    all.iter().map(fields).collect()
}

/// Ports of the replicas that a server knows to be in step, in order.
fn replicas(chain: &Chain, node: usize) -> Vec<u16> {
    let all = instances(&sentinel(chain, node, &["REPLICAS", "orders"]));
    all.iter()
        .filter(|replica| replica["flags"] == "slave")
        .map(|replica| replica["port"].parse().unwrap())
        .collect()
}

#[test]
fn every_server_says_where_writes_go_and_who_the_others_are() {
    let Some(Setting { chain, .. }) = &Setting::started() else { return };
    let ports: Vec<u16> = (0..3).map(|node| chain.server(node).resp.port()).collect();
    for node in 0..3 {
        assert_eq!(first_by(chain, node), Some(chain.server(0).resp));
        let masters = instances(&sentinel(chain, node, &["MASTERS"]));
        assert_eq!(masters, [fields(&sentinel(chain, node, &["MASTER", "orders"]))]);
        let wanted =
            [("name", "orders"), ("ip", "127.0.0.1"), ("flags", "master"), ("num-other-sentinels", "2")];
        wanted.iter().for_each(|(field, value)| assert_eq!(masters[0][*field], *value, "{field}"));
        assert_eq!(masters[0]["port"], ports[0].to_string());
        assert_eq!(replicas(chain, node), ports[1..]);
        assert_eq!(
            sentinel(chain, node, &["SLAVES", "orders"]),
            sentinel(chain, node, &["REPLICAS", "orders"])
        );
        let others = instances(&sentinel(chain, node, &["SENTINELS", "orders"]));
        let others: Vec<u16> = others.iter().map(|other| other["port"].parse().unwrap()).collect();
        let wanted: Vec<u16> = ports.iter().copied().filter(|port| *port != ports[node]).collect();
        assert_eq!(others, wanted);
        assert_eq!(text(&sentinel(chain, node, &["MYID"])), chain.nodes[node].name);
        let Reply::Simple(quorum) = sentinel(chain, node, &["CKQUORUM", "orders"]) else {
            panic!("no quorum")
        };
        assert!(quorum.starts_with("OK 3 usable Sentinels"), "{quorum}");
    }
    let show = chain.command("show", &[]);
    assert!(show.contains(&format!("clients connect to 127.0.0.1:{}", ports[1])), "{show}");
}

#[test]
fn a_server_says_which_part_it_has_in_the_words_of_redis() {
    let Some(Setting { chain, .. }) = &Setting::started() else { return };
    let ports: Vec<u16> = (0..3).map(|node| chain.server(node).resp.port()).collect();
    let replica = |port: u16| Reply::Array(vec![bulk("127.0.0.1"), bulk(port.to_string()), bulk("0")]);
    // A batch tells the first server how many have it.
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    let master =
        vec![bulk("master"), Reply::Int(0), Reply::Array(vec![replica(ports[1]), replica(ports[2])])];
    assert_eq!(chain.server(0).call(&["ROLE"]), Reply::Array(master));
    let port = Reply::Int(ports[0].into());
    let slave = vec![bulk("slave"), bulk("127.0.0.1"), port, bulk("connected"), Reply::Int(0)];
    assert_eq!(chain.server(2).call(&["ROLE"]), Reply::Array(slave));
    assert_eq!(chain.info(0, "role").as_deref(), Some("master"));
    let line = format!("ip=127.0.0.1,port={},state=online,offset=0,lag=0", ports[2]);
    assert_eq!(chain.info(0, "slave1"), Some(line));
    for (name, value) in [("role", "slave"), ("master_link_status", "up"), ("master_host", "127.0.0.1")] {
        assert_eq!(chain.info(1, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(chain.info(1, "master_port"), Some(ports[0].to_string()));
    let Reply::Array(hello) = chain.server(1).call(&["HELLO"]) else { panic!("no hello") };
    assert!(hello.contains(&bulk("replica")), "{hello:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut chain = Chain::new(1, &[]);
    chain.start_all();
    let alone = Place::new().start(&[]);
    let is_refused = |reply: Reply, why: &str| assert!(error_text(&reply).contains(why), "{reply:?}");
    assert_eq!(sentinel(&chain, 0, &["GET-MASTER-ADDR-BY-NAME", "others"]), Reply::Nil);
    for command in ["MASTER", "REPLICAS", "SLAVES", "SENTINELS", "CKQUORUM"] {
        is_refused(sentinel(&chain, 0, &[command, "others"]), "ERR No such master with that name");
        is_refused(sentinel(&chain, 0, &[command]), "wrong number of arguments for 'sentinel|");
        is_refused(sentinel(&chain, 0, &[command, "orders", "x"]), "wrong number of arguments");
    }
    for command in
        [&["RESET", "*"][..], &["FAILOVER", "orders"], &["MONITOR", "m", "::1", "1", "2"], &["FLUSHCONFIG"]]
    {
        is_refused(sentinel(&chain, 0, command), "is refused: a chain is changed by `landfall chain");
    }
    is_refused(sentinel(&chain, 0, &["NONSENSE"]), "unknown subcommand 'NONSENSE'");
    is_refused(alone.call(&["SENTINEL", "MASTERS"]), "in no chain");
    is_refused(alone.call(&["SUBSCRIBE", "+switch-master"]), "in no chain");
    assert_eq!(
        alone.call(&["ROLE"]),
        Reply::Array(vec![bulk("master"), Reply::Int(0), Reply::Array(vec![])])
    );
}

#[test]
fn a_password_guards_what_servers_say_of_the_chain() {
    let mut chain = Chain::new(1, &[]);
    let file = chain.nodes[0].place.file("password", "secret\n");
    chain.nodes[0].flags = vec!["--password-file".into(), file.to_str().unwrap().into()];
    chain.start(0);
    let mut resp = chain.resp(0);
    for words in [&[&b"SENTINEL"[..], b"MASTERS"][..], &[b"SUBSCRIBE", b"+switch-master"], &[b"ROLE"]] {
        assert!(error_text(&resp.call(words).unwrap()).starts_with("NOAUTH"));
    }
    assert!(error_text(&resp.call(&[b"AUTH", b"wrong"]).unwrap()).starts_with("WRONGPASS"));
    assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    let is_known = || first(&mut resp).map(|found| assert_eq!(found, chain.server(0).resp));
    wait_until(LIMIT, is_known).unwrap();
}

/// A server that listens everywhere cannot know by which address clients reach it.
#[test]
fn people_say_where_clients_connect_if_a_server_listens_everywhere() {
    let mut chain = Chain::new(1, &["--resp", "0.0.0.0:0", "--insecure-no-password"]);
    chain.start(0);
    let answer = |chain: &Chain| {
        let port = chain.server(0).resp.port();
        let at = SocketAddr::from(([127, 0, 0, 1], port));
        let mut resp = Resp::connect(at, LIMIT).unwrap();
        let mut quorum = || resp.call(&[b"SENTINEL", b"CKQUORUM", b"orders"]).unwrap();
        // A server that has just been started does not know yet that nobody is behind it.
        let why =
            || Some(error_text(&quorum()).to_owned()).filter(|why| !why.contains("may not take writes yet"));
        let why = wait_until(LIMIT, why).expect("it takes writes");
        (resp.call(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", b"orders"]).unwrap(), why)
    };
    let (unknown, why) = answer(&chain);
    assert_eq!(unknown, Reply::Nil);
    assert!(why.starts_with("NOQUORUM") && why.contains("--announce HOST:PORT"), "{why}");
    assert!(chain.nodes[0].place.log().contains("clients cannot be told where this server is"));
    chain.kill(0);
    chain.nodes[0].flags = vec!["--announce".into(), "db-1.example.org:6479".into()];
    chain.start(0);
    let (known, why) = answer(&chain);
    assert_eq!(known, Reply::Array(vec![bulk("db-1.example.org"), bulk("6479")]));
    assert!(why.contains("NOQUORUM nobody replaces a first server but people"), "{why}");
    let refused =
        Place::new().try_start(&["--announce", "db-1.example.org:6479"]).err().expect("it is in no chain");
    assert!(refused.words.contains("--announce HOST:PORT is for a server of a chain"), "{refused}");
    chain.kill(0);
    chain.nodes[0].flags = vec!["--announce".into(), "everywhere".into()];
    let refused = chain.try_start(0).err().expect("no address");
    assert!(refused.words.contains("no address for clients: expected HOST:PORT"), "{refused}");
}

#[test]
fn a_view_in_a_file_says_where_clients_connect_and_who_is_first_after_a_removal() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let [a, b] = [0, 1].map(|node| chain.server(node).resp);
    assert_eq!(first_by(&chain, 0), Some(a), "a server knows its own address");
    assert_eq!(first_by(&chain, 1), None, "and no other one's");
    // The chain does not depend on it, so that the version stays.
    let mut view = std::fs::read_to_string(chain.view_path()).unwrap();
    write!(view, "\n[clients]\na = \"{a}\"\nb = \"{b}\"\n").unwrap();
    std::fs::write(chain.view_path(), view).unwrap();
    wait_until(LIMIT, || (first_by(&chain, 1) == Some(a)).then_some(()))
        .unwrap_or_else(|| panic!("{}", chain.words()));
    let mut listener = chain.resp(1);
    let subscribed = Reply::Array(vec![bulk("subscribe"), bulk("+switch-master"), Reply::Int(1)]);
    assert_eq!(listener.call(&[b"SUBSCRIBE", b"+switch-master"]).unwrap(), subscribed);
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    chain.kill(0);
    chain.remove(0);
    let text = format!("orders {} {} {} {}", a.ip(), a.port(), b.ip(), b.port());
    let message = Reply::Array(vec![bulk("message"), bulk("+switch-master"), bulk(text)]);
    assert_eq!(listener.read().unwrap(), message);
    assert_eq!(first_by(&chain, 1), Some(b));
    assert_eq!(chain.server(1).call(&["GET", "k"]), bulk("v"));
    chain.add(0);
    let kept = chain.command("show", &[]);
    assert!(kept.contains(&format!("clients connect to {a}")), "{kept}");
}

/// Its machine was away when the others' files were changed, and its own could not be: the server behind it knows better.
#[test]
fn a_first_server_that_comes_back_with_an_old_view_names_nobody() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["SET", "k", "v"]), ok());
    let old = std::fs::read_to_string(chain.view_path()).unwrap();
    chain.kill(0);
    chain.remove(0);
    wait_until(LIMIT, || (chain.info(1, "chain_role")? == "first").then_some(()))
        .expect("the next one is first");
    std::fs::write(chain.view_path(), old).unwrap();
    chain.start(0);
    assert_eq!(first_by(&chain, 0), None);
    assert!(error_text(&chain.server(0).call(&["GET", "k"])).starts_with("LOADING"));
    assert_eq!(chain.info(1, "chain_role").as_deref(), Some("first"), "an older view changes nothing");
}

/// Whoever waits for a log to grow waits at the wrong server then.
#[test]
fn a_reader_that_waits_at_a_server_that_is_removed_is_sent_away() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    assert_eq!(chain.server(0).call(&["LF.APPEND", "log", "one"]), Reply::Int(0));
    let mut reader = chain.resp(0);
    reader.push(&[b"LF.READ", b"log", b"$", b"BLOCK", b"0"]);
    reader.flush().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    chain.remove(0);
    assert!(error_text(&reader.read().unwrap()).starts_with("MASTERDOWN"));
    assert!(reader.read().is_err(), "and its connection ends");
}

#[test]
fn clients_of_a_server_that_is_removed_find_the_next_one_as_their_connections_end() {
    let mut chain = Chain::new(2, &[]);
    chain.start_all();
    let mut resp = chain.resp(0);
    assert_eq!(resp.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    chain.remove(0);
    // A write that is under way then is never answered: its connection ends.
    wait_until(LIMIT, || (chain.info(0, "chain_role")? == "removed").then_some(())).expect("it is removed");
    assert!(error_text(&resp.call(&[b"SET", b"k", b"w"]).unwrap()).starts_with("MASTERDOWN"));
    assert!(resp.call(&[b"PING"]).is_err(), "the connection has ended");
    assert!(
        error_text(&sentinel(&chain, 0, &["CKQUORUM", "orders"])).contains("NOQUORUM"),
        "it answers SENTINEL"
    );
}

#[test]
fn a_client_that_listens_takes_only_messages_and_may_leave() {
    let mut chain = Chain::new(1, &["--idle-timeout", "3"]);
    chain.start(0);
    let mut resp = chain.resp(0);
    let confirmed = |kind: &str, name: Reply, count| Reply::Array(vec![bulk(kind), name, Reply::Int(count)]);
    let unsubscribed = confirmed("unsubscribe", Reply::Nil, 0);
    assert_eq!(resp.call(&[b"UNSUBSCRIBE"]).unwrap(), unsubscribed);
    let both = confirmed("subscribe", bulk("+switch-master"), 1);
    assert_eq!(resp.call(&[b"SUBSCRIBE", b"+switch-master", b"+sdown"]).unwrap(), both);
    assert_eq!(resp.read().unwrap(), confirmed("subscribe", bulk("+sdown"), 2));
    assert_eq!(resp.call(&[b"PSUBSCRIBE", b"+*"]).unwrap(), confirmed("psubscribe", bulk("+*"), 3));
    let refused = resp.call(&[b"GET", b"k"]).unwrap();
    assert!(error_text(&refused).starts_with("ERR Can't execute 'get': only"), "{refused:?}");
    std::thread::sleep(Duration::from_millis(3500));
    assert_eq!(resp.call(&[b"PING"]).unwrap(), Reply::Array(vec![bulk("pong"), bulk("")]), "it may be idle");
    assert_eq!(resp.call(&[b"UNSUBSCRIBE", b"+sdown"]).unwrap(), confirmed("unsubscribe", bulk("+sdown"), 2));
    assert_eq!(resp.call(&[b"PUNSUBSCRIBE"]).unwrap(), confirmed("punsubscribe", bulk("+*"), 1));
    assert_eq!(resp.call(&[b"UNSUBSCRIBE"]).unwrap(), confirmed("unsubscribe", bulk("+switch-master"), 0));
    assert_eq!(resp.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    let many: Vec<String> = (0..65).map(|channel| format!("channel {channel}")).collect();
    let many: Vec<&[u8]> =
        std::iter::once(&b"SUBSCRIBE"[..]).chain(many.iter().map(|name| name.as_bytes())).collect();
    assert!(error_text(&resp.call(&many).unwrap()).contains("at most 64 channels"));
    assert_eq!(resp.call(&[b"SUBSCRIBE", b"x"]).unwrap(), confirmed("subscribe", bulk("x"), 1));
    assert_eq!(resp.call(&[b"RESET"]).unwrap(), Reply::Simple("RESET".into()));
    assert_eq!(resp.call(&[b"GET", b"k"]).unwrap(), bulk("v"));
}

#[test]
fn clients_go_on_at_the_next_server_when_the_first_one_is_killed() {
    let Some(mut setting) = Setting::started() else { return };
    let addresses: Vec<SocketAddr> = (0..3).map(|node| setting.chain.server(node).resp).collect();
    let sentinels = addresses.clone();
    let follower = Follower::new(move || connect_by(&sentinels));
    let mut listener = setting.chain.resp(2);
    let subscribed = Reply::Array(vec![bulk("psubscribe"), bulk("+switch-*"), Reply::Int(1)]);
    assert_eq!(listener.call(&[b"PSUBSCRIBE", b"+switch-*"]).unwrap(), subscribed);
    follower.during(|| {
        follower.wait_for_more(LIMIT);
        setting.chain.kill(0);
        let killed = Instant::now();
        let text = format!("orders 127.0.0.1 {} 127.0.0.1 {}", addresses[0].port(), addresses[1].port());
        let message = [bulk("pmessage"), bulk("+switch-*"), bulk("+switch-master"), bulk(text)];
        assert_eq!(listener.read().unwrap(), Reply::Array(message.into()));
        follower.wait_for_more(LIMIT);
        eprintln!("writes go on {:?} after the kill", killed.elapsed());
    });
    for node in 1..3 {
        assert_eq!(first_by(&setting.chain, node), Some(addresses[1]));
        follower.check(&mut setting.chain.resp(node));
    }
}

#[test]
fn a_server_that_does_not_reach_etcd_says_that_it_does_not_know() {
    let Some(mut setting) = Setting::new(&[]) else { return };
    let gate = Gate::to(&setting.etcd);
    setting.chain.start(0);
    setting.chain.start(1);
    setting.chain.start_by(2, &gate.url());
    setting.chain.wait_until_in_step();
    let chain = &setting.chain;
    let a = chain.server(0).resp;
    wait_until(LIMIT, || (first_by(chain, 2) == Some(a)).then_some(())).unwrap();
    gate.close();
    wait_until(LIMIT, || first_by(chain, 2).is_none().then_some(())).unwrap();
    assert!(fields(&sentinel(chain, 2, &["MASTER", "orders"]))["flags"].contains("s_down"));
    let why = sentinel(chain, 2, &["CKQUORUM", "orders"]);
    assert!(error_text(&why).contains("etcd has not been read"), "{why:?}");
    assert_eq!(first_by(chain, 1), Some(a));
    gate.open();
    wait_until(LIMIT, || (first_by(chain, 2) == Some(a)).then_some(())).unwrap();
}

const PYTHON: &str = r#"
import sys, time, redis
from redis.sentinel import Sentinel
ports, password, seconds = sys.argv[1].split(","), sys.argv[2], float(sys.argv[3])
ends = [("127.0.0.1", int(port)) for port in ports]
sentinel = Sentinel(ends, socket_timeout=1, sentinel_kwargs={"password": password})
assert sentinel.discover_master("orders") == ends[0], sentinel.discover_master("orders")
assert sorted(sentinel.discover_slaves("orders")) == sorted(ends[1:])
try:
    sentinel.discover_master("others")
    raise SystemExit("a chain that does not exist was found")
except redis.sentinel.MasterNotFoundError:
    pass
listener = redis.Redis(port=ends[2][1], password=password).pubsub()
listener.subscribe("+switch-master")
assert listener.get_message(timeout=5)["type"] == "subscribe"
master = sentinel.master_for("orders", password=password, socket_timeout=1)
number, acknowledged, longest, last, until = 0, [], 0, time.time(), time.time() + seconds
print("writes", flush=True)
while time.time() < until:
    number += 1
    try:
        master.set(f"key:{number}", number)
    except redis.RedisError:
        time.sleep(0.05)
        continue
    longest, last = max(longest, time.time() - last), time.time()
    acknowledged.append(number)
assert time.time() - last < 5, "no writes at the end"
master = sentinel.master_for("orders", password=password, socket_timeout=30)
replica = sentinel.slave_for("orders", password=password, socket_timeout=30)
assert all(int(master.get(f"key:{n}")) == n for n in acknowledged), "an acknowledged write is lost"
assert int(replica.get(f"key:{acknowledged[-1]}")) == acknowledged[-1]
message = listener.get_message(timeout=5)
assert message["data"] == f"orders 127.0.0.1 {ports[0]} 127.0.0.1 {ports[1]}".encode(), message
print(f"{len(acknowledged)} writes, longest gap {longest:.1f} s")
print("fine")
"#;

#[test]
fn redis_py_follows_a_first_server_that_is_killed() {
    let Some(python) = common::python_with_redis() else { return };
    let Some(mut setting) = Setting::new(&[]) else { return };
    let file = setting.chain.nodes[0].place.file("password", "secret\n");
    for node in &mut setting.chain.nodes {
        node.flags = vec!["--password-file".into(), file.to_str().unwrap().into()];
    }
    (0..3).for_each(|node| setting.chain.start(node));
    let known = |node: usize| {
        let mut resp = setting.chain.resp(node);
        assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
        let all = instances(&resp.call(&[b"SENTINEL", b"REPLICAS", b"orders"]).unwrap());
        all.iter().filter(|replica| replica["flags"] == "slave").count() == 2
    };
    wait_until(LIMIT, || (0..3).all(known).then_some(()))
        .unwrap_or_else(|| panic!("{}", setting.chain.words()));
    let ports: Vec<String> = (0..3).map(|node| setting.chain.server(node).resp.port().to_string()).collect();
    let script = setting.chain.nodes[0].place.file("client.py", PYTHON);
    let mut client = Command::new(python);
    client.arg(script).args([&ports.join(","), "secret", &LOAD_SECONDS.to_string()]);
    eprintln!("{}", outlives_the_first(&mut client, &mut setting.chain));
}

#[test]
fn go_redis_follows_a_first_server_that_is_killed() {
    let place = Place::new();
    let Some(program) = common::build_go_client(&place) else { return };
    let Some(mut setting) = Setting::started() else { return };
    let addresses: Vec<String> = (0..3).map(|node| setting.chain.server(node).resp.to_string()).collect();
    let mut client = Command::new(program);
    client.args([&addresses.join(","), &LOAD_SECONDS.to_string()]);
    eprintln!("{}", outlives_the_first(&mut client, &mut setting.chain));
}

/// Runs a client that writes for [`LOAD_SECONDS`], and kills the first server meanwhile. Returns what the client says.
fn outlives_the_first(client: &mut Command, chain: &mut Chain) -> String {
    std::thread::scope(|threads| {
        let client = threads.spawn(|| run(client, LIMIT));
        std::thread::sleep(KILLED_AFTER);
        chain.kill(0);
        let (well, text) = client.join().unwrap();
        assert!(well && text.ends_with("fine\n"), "{text}{}", chain.words());
        text
    })
}
