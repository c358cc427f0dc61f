//! Clients that do not know Sentinel follow a chain through `landfall proxy`.

mod common;

use common::chain::{Chain, InEtcd, REPLY_LIMIT};
use common::follower::{Follower, PATIENCE, connect_by};
use common::{
    Place, Reply, Resp, binary, bulk, error_text, has_program, landfall, ok, run, signal, wait_until,
};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

/// T, seconds: the shortest.
const T: u64 = 4;
/// Time limit for what follows a change, on a machine that does other things, too.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit for what nothing has to be waited for.
const SOON: Duration = Duration::from_secs(10);
/// What a puppet says to each client.
const GREETING: [u8; 7] = *b"+here\r\n";
/// Clients of a puppet of which a test has not asked yet, at most.
const CONNECTIONS_MAX: usize = 16;

/// A proxy, killed when dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
    place: Place,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    /// Of the chain `orders`, by these servers.
    fn start(servers: &[SocketAddr], flags: &[&str]) -> Self {
        let servers: Vec<String> = servers.iter().map(SocketAddr::to_string).collect();
        Self::start_by(Command::new(binary()), &servers.join(","), flags)
    }

    /// As [`Self::start`], by a command that runs the program in a special way.
    fn start_by(mut command: Command, servers: &str, flags: &[&str]) -> Self {
        let place = Place::new();
        let log = File::create(place.path().join("log")).unwrap();
        command.args(["proxy", "--listen", "127.0.0.1:0", "--chain", "orders", "--server", servers]);
        let mut child = command.args(flags).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.next().unwrap_or_else(|| panic!("no proxy: {}", place.log()));
        let address = line.strip_prefix("proxy of the chain orders: ").expect(&line).parse().unwrap();
        Self { child, address, place }
    }

    fn of(chain: &Chain, flags: &[&str]) -> Self {
        let servers: Vec<SocketAddr> = (0..chain.nodes.len()).map(|node| chain.server(node).resp).collect();
        Self::start(&servers, flags).once_it_serves()
    }

    fn once_it_serves(self) -> Self {
        let is_there = || is_served(&mut self.resp()).then_some(());
        wait_until(LIMIT, is_there).unwrap_or_else(|| panic!("{}", self.place.log()));
        self
    }

    /// So many clients that it serves. One that has found the proxy ready may be there still.
    fn served(&self, count: usize) -> Vec<Resp> {
        let mut served = Vec::new();
        let one_more = || {
            let mut resp = self.resp();
            served.extend(is_served(&mut resp).then_some(resp));
            (served.len() == count).then_some(())
        };
        wait_until(LIMIT, one_more).expect("so many clients are served");
        served
    }

    /// Waits until its log has these words.
    fn says(&self, words: &str) {
        let is_said = || self.place.log().contains(words).then_some(());
        wait_until(LIMIT, is_said).unwrap_or_else(|| panic!("{}", self.place.log()));
    }

    fn resp(&self) -> Resp {
        Resp::connect(self.address, REPLY_LIMIT).unwrap()
    }

    /// Sends SIGTERM.
    fn ask_to_end(&self) {
        signal(&self.child, "TERM");
    }

    fn wait_for_end(&mut self) {
        let status = wait_until(LIMIT, || self.child.try_wait().unwrap()).expect("it ends when asked");
        assert!(status.success(), "{}", self.place.log());
    }
}

fn is_served(resp: &mut Resp) -> bool {
    resp.call(&[b"PING"]).is_ok_and(|reply| reply == Reply::Simple("PONG".into()))
}

/// A first server of which a test has the connections, and says what becomes of them.
struct Puppet {
    proxy: Proxy,
    connections: Receiver<TcpStream>,
}

impl Puppet {
    /// With a proxy that has found it.
    fn with(flags: &[&str]) -> Self {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(&[sentinel_of(first.local_addr().unwrap())], flags);
        proxy.says("clients are connected to the first server");
        let (send, connections) = sync_channel(CONNECTIONS_MAX);
        std::thread::spawn(move || {
            for mut connection in first.incoming().map_while(Result::ok) {
                // The client may have gone, and the test as well.
                let _ = connection.write_all(&GREETING);
                let _ = send.send(connection);
            }
        });
        Self { proxy, connections }
    }

    /// A new client, and the server's end of its connection; `None` if the proxy has no place for it.
    fn client(&self) -> Option<(TcpStream, TcpStream)> {
        let mut client = TcpStream::connect(self.proxy.address).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let mut said = GREETING;
        client.read_exact(&mut said).unwrap();
        if said != GREETING {
            return None;
        }
        let server = self.connections.recv_timeout(LIMIT).unwrap();
        server.set_read_timeout(Some(LIMIT)).unwrap();
        Some((client, server))
    }
}

/// Answers questions for the first server: it is there. Returns where to ask.
fn sentinel_of(first: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (ip, port) = (first.ip().to_string(), first.port().to_string());
    let fields = ["ip", &ip, "port", &port, "flags", "master", "config-epoch", "1"];
    let words = fields.map(|field| format!("${}\r\n{field}\r\n", field.len())).concat();
    let answer = format!("*{}\r\n{words}", fields.len());
    std::thread::spawn(move || {
        for mut asks in listener.incoming().map_while(Result::ok) {
            let mut question = [0; 1024];
            while asks.read(&mut question).is_ok_and(|count| count > 0) {
                // The proxy asks again if it has got no answer.
                let _ = asks.write_all(answer.as_bytes());
            }
        }
    });
    address
}

/// Sends until nobody takes any more.
fn fill(mut client: &TcpStream) {
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    while client.write(&[b'x'; 64 << 10]).is_ok() {}
}

/// Ends a connection as a client does that has replies unread: the proxy gets a reset.
fn reset(client: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
}

/// A chain of one or more servers whose view is a file, which says where clients connect.
fn chain_in_a_file(nodes: usize) -> Chain {
    let mut chain = Chain::new(nodes, &[]);
    chain.start_all();
    let mut view = std::fs::read_to_string(chain.view_path()).unwrap() + "[clients]\n";
    for (index, node) in chain.nodes.iter().enumerate() {
        view += &format!("{} = \"{}\"\n", node.name, chain.server(index).resp);
    }
    std::fs::write(chain.view_path(), view).unwrap();
    chain
}

#[test]
fn clients_of_a_proxy_go_on_at_the_next_server_by_connecting_again() {
    let Some(mut setting) = InEtcd::with(T, 3, &[]) else { return };
    let chain = &mut setting.chain;
    chain.start_all();
    let proxy = Proxy::of(chain, &[]);
    let address = proxy.address;
    let follower = Follower::new(move || Resp::connect(address, PATIENCE).ok());
    follower.during(|| {
        follower.wait_for_more(LIMIT);
        chain.kill(0);
        follower.wait_for_more(LIMIT);
    });
    let first = chain.wait_until_in_step();
    assert_eq!(first, 1);
    follower.check(&mut proxy.resp());
    follower.check(&mut chain.resp(2));
}

/// `LANDFALL_KILLS` says how often.
#[test]
fn clients_follow_first_servers_that_are_killed_and_come_back() {
    let kills = std::env::var("LANDFALL_KILLS").map_or(2, |text| text.parse().unwrap());
    let Some(mut setting) = InEtcd::with(T, 3, &[]) else { return };
    let chain = &mut setting.chain;
    chain.start_all();
    let proxy = Proxy::of(chain, &[]);
    let address = proxy.address;
    let servers: Vec<SocketAddr> = (0..3).map(|node| chain.server(node).resp).collect();
    let sentinels = servers.clone();
    let by_proxy = Follower::new(move || Resp::connect(address, PATIENCE).ok());
    let by_sentinel = Follower::new(move || connect_by(&sentinels));
    let kill_and_start = || {
        for _ in 0..kills {
            let first = chain.wait_until_in_step();
            chain.kill(first);
            [&by_proxy, &by_sentinel].iter().for_each(|follower| follower.wait_for_more(LIMIT));
            chain.start_at(first, servers[first]);
        }
    };
    by_proxy.during(|| by_sentinel.during(kill_and_start));
    chain.wait_until_in_step();
    for node in 0..3 {
        by_proxy.check(&mut chain.resp(node));
        by_sentinel.check(&mut chain.resp(node));
    }
}

/// The old one does not close the connections itself: it is stopped.
#[test]
fn clients_are_cut_off_from_a_server_that_is_not_the_first_any_more() {
    let mut chain = chain_in_a_file(2);
    let proxy = Proxy::of(&chain, &[]);
    let mut idle = proxy.resp();
    assert_eq!(idle.call(&[b"SET", b"k", b"v"]).unwrap(), ok());
    let stopped = chain.take(0);
    stopped.signal("STOP");
    chain.remove(0);
    assert_eq!(
        idle.read().unwrap_err().kind(),
        ErrorKind::UnexpectedEof,
        "it is cut off, and waits for nobody"
    );
    let set = || (proxy.resp().call(&[b"SET", b"k", b"w"]).ok()? == ok()).then_some(());
    wait_until(LIMIT, set).unwrap_or_else(|| panic!("{}", proxy.place.log()));
    assert_eq!(chain.server(1).call(&["GET", "k"]), bulk("w"));
    let log = proxy.place.log();
    // A client that has just left may be there still.
    assert!(log.contains("cut_off=1") || log.contains("cut_off=2"), "{log}");
}

#[test]
fn clients_are_told_what_to_do_while_there_is_no_first_server() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(&[nobody], &[]);
    let mut resp = proxy.resp();
    let refused = resp.call(&[b"GET", b"k"]).unwrap();
    let text = "MASTERDOWN no server of the chain orders says which one takes writes: try again";
    assert!(error_text(&refused).starts_with(text), "{refused:?}");
    assert!(resp.call(&[b"GET", b"k"]).is_err(), "and the connection ends");
    proxy.says("no answer");
    // One that cannot be reached.
    let mut chain = chain_in_a_file(1);
    let proxy = Proxy::of(&chain, &[]);
    chain.kill(0);
    // The sockets of a killed server go a little later than the server.
    let refused = wait_until(LIMIT, || proxy.resp().call(&[b"GET", b"k"]).ok()).unwrap();
    assert!(error_text(&refused).starts_with("MASTERDOWN"), "{refused:?}");
}

#[test]
fn a_chain_of_another_name_or_with_a_password_is_not_guessed() {
    let mut chain = Chain::new(1, &[]);
    let file = chain.nodes[0].place.file("password", "secret\n");
    let file = file.to_str().unwrap().to_owned();
    chain.nodes[0].flags = vec!["--password-file".into(), file.clone()];
    chain.start(0);
    let server = chain.server(0).resp;
    Proxy::start(&[server], &[]).says("it refuses: NOAUTH");
    let proxy = Proxy::start(&[server], &["--password-file", &file]);
    proxy.says("clients are connected to the first server");
    let mut resp = proxy.resp();
    assert!(
        error_text(&resp.call(&[b"GET", b"k"]).unwrap()).starts_with("NOAUTH"),
        "clients say it themselves"
    );
    assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"GET", b"k"]).unwrap(), Reply::Nil);
    let other = chain_in_a_file(1);
    let server = other.server(0).resp.to_string();
    let mut proxy = Command::new(binary());
    proxy.args(["proxy", "--listen", "127.0.0.1:0", "--chain", "others", "--server", &server]);
    let (_, words) = run(&mut proxy, Duration::from_secs(5));
    assert!(words.contains("ERR No such master with that name"), "{words}");
}

/// The proxy has a file of names of its own. The server listens at one of two addresses, and the other one comes first.
#[test]
fn a_server_whose_name_has_several_addresses_is_asked_at_all_of_them() {
    if !has_program("unshare", &["--mount", "true"]) {
        return;
    }
    let chain = chain_in_a_file(1);
    let server = chain.server(0).resp;
    let names = chain.nodes[0].place.file("hosts", &format!("::1 servers\n{} servers\n", server.ip()));
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
    command.arg(names).arg(binary());
    Proxy::start_by(command, &format!("servers:{}", server.port()), &[]).once_it_serves();
}

#[test]
fn flags_that_make_no_sense_are_refused_with_what_to_do() {
    let refused = |flags: &[&str]| {
        let output = landfall(&[&["proxy", "--chain", "orders"], flags].concat());
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&[]).contains("--server <HOST:PORT>"));
    assert!(refused(&["--server", "host"]).contains("expected HOST:PORT"));
    let server = ["--server", "127.0.0.1:6479"];
    let with = |flags: &[&str]| refused(&[&server, flags].concat());
    assert!(with(&["--listen", "0.0.0.0:0"]).contains("give --password-file, or --insecure-no-password"));
    assert!(with(&["--listen", "off"]).contains("expected ADDR:PORT"));
    assert!(with(&["--max-clients", "0"]).contains("expected 1 to 10000"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    assert!(with(&["--listen", &taken]).contains("cannot listen on"));
}

#[test]
fn more_clients_than_allowed_are_refused_and_others_go_on() {
    let chain = chain_in_a_file(1);
    let proxy = Proxy::of(&chain, &["--max-clients", "2"]);
    let mut served = proxy.served(2);
    assert_eq!(proxy.resp().read().unwrap(), Reply::Error("ERR max number of clients reached".into()));
    assert!(served.iter_mut().all(is_served));
    served.pop();
    wait_until(LIMIT, || is_served(&mut proxy.resp()).then_some(())).expect("there is room again");
}

/// 64 files are for others than clients, and a client takes two.
#[test]
fn clients_for_whom_there_are_no_files_are_refused_and_not_left_waiting() {
    let chain = chain_in_a_file(1);
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit -n 80 && exec \"$0\" \"$@\""]).arg(binary());
    let server = chain.server(0).resp.to_string();
    let proxy = Proxy::start_by(command, &server, &[]).once_it_serves();
    let mut served = proxy.served(8);
    assert_eq!(proxy.resp().read().unwrap(), Reply::Error("ERR max number of clients reached".into()));
    assert!(served.iter_mut().all(is_served));
    assert!(proxy.place.log().contains("the limit on open files is low"), "{}", proxy.place.log());
}

/// The server takes no more requests, either.
#[test]
fn the_place_of_a_client_is_free_when_its_replies_have_ended() {
    let puppet = Puppet::with(&["--max-clients", "1"]);
    let (mut client, server) = puppet.client().expect("a place");
    fill(&client);
    server.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "the client is told");
    drop(client);
    let (client, mut server) = wait_until(SOON, || puppet.client()).expect("a place");
    fill(&client);
    reset(client);
    // Whoever passes a reply on finds out that nobody takes it.
    let again = || {
        let _ = server.write(b"+OK\r\n");
        puppet.client()
    };
    wait_until(SOON, again).expect("a place");
}

/// The server says nothing, be it that it waits for another one of its chain.
#[test]
fn the_place_of_a_client_that_resets_its_connection_is_free_at_once() {
    let puppet = Puppet::with(&["--max-clients", "1"]);
    let (mut client, mut server) = puppet.client().expect("a place");
    client.write_all(b"PING\r\n").unwrap();
    server.read_exact(&mut [0; 6]).unwrap();
    assert!(puppet.client().is_none(), "the only place is taken");
    reset(client);
    let (mut client, mut server) = wait_until(SOON, || puppet.client()).expect("a place");
    // One that has ended its direction before.
    client.write_all(b"PING\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.read_exact(&mut [0; 6]).unwrap();
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "the server sees the end of requests");
    server.write_all(b"+PONG\r\n").unwrap();
    client.peek(&mut [0]).unwrap();
    drop(client);
    let (client, server) = wait_until(SOON, || puppet.client()).expect("a place");
    // One of whose requests the server takes no more.
    fill(&client);
    reset(client);
    wait_until(SOON, || puppet.client()).expect("a place");
    drop(server);
}

#[test]
fn a_client_that_has_ended_its_direction_gets_its_replies() {
    let puppet = Puppet::with(&[]);
    let (mut client, mut server) = puppet.client().expect("a place");
    client.write_all(b"GET k\r\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut request = String::new();
    server.read_to_string(&mut request).unwrap();
    assert_eq!(request, "GET k\r\n");
    std::thread::sleep(Duration::from_secs(2));
    server.write_all(b"$1\r\nv\r\n").unwrap();
    drop(server);
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert_eq!(reply, "$1\r\nv\r\n");
}

#[test]
fn a_proxy_that_is_asked_to_end_passes_on_what_is_on_its_way() {
    let chain = chain_in_a_file(1);
    let mut proxy = Proxy::of(&chain, &[]);
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let value = "v".repeat(1 << 20);
    let request = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n{value}\r\n", value.len());
    client.write_all(request.as_bytes()).unwrap();
    client.write_all(&b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(8)).unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    proxy.ask_to_end();
    // Replies wait for a client that does not read at once.
    std::thread::sleep(Duration::from_millis(500));
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert_eq!((&reply, rest.len()), (b"+OK\r\n", 8 * (value.len() + 12)));
    proxy.wait_for_end();
}

#[test]
fn a_client_that_goes_on_while_the_proxy_ends_loses_no_reply() {
    const VALUE_BYTES: usize = 1 << 20;
    const GETS: usize = 32;
    let chain = chain_in_a_file(1);
    let mut proxy = Proxy::of(&chain, &[]);
    let set = proxy.resp().call(&[b"SET", b"k", "v".repeat(VALUE_BYTES).as_bytes()]);
    assert_eq!(set.unwrap(), ok());
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    client.write_all(&b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(GETS)).unwrap();
    let mut replies = vec![0];
    client.read_exact(&mut replies).unwrap();
    proxy.ask_to_end();
    proxy.says("stopping");
    std::thread::sleep(Duration::from_millis(500));
    client.write_all(b"PING\r\n").unwrap();
    // The proxy is done long before the client: what is on its way then lies in the proxy's kernel.
    while (&client).take(VALUE_BYTES as u64).read_to_end(&mut replies).unwrap() > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    // One that comes before the stop is answered, too.
    let replies = replies.strip_suffix(b"+PONG\r\n").unwrap_or(&replies);
    assert_eq!(replies.len(), GETS * (VALUE_BYTES + 12));
    proxy.wait_for_end();
}

#[test]
fn redis_benchmark_runs_through_a_proxy() {
    if !has_program("redis-benchmark", &["--version"]) {
        return;
    }
    let chain = chain_in_a_file(2);
    let proxy = Proxy::of(&chain, &[]);
    let mut bench = Command::new("redis-benchmark");
    bench.args([
        "-p",
        &proxy.address.port().to_string(),
        "-n",
        "5000",
        "-c",
        "50",
        "-P",
        "16",
        "-q",
        "-t",
        "set,get",
    ]);
    let (well, text) = run(&mut bench, LIMIT);
    assert!(well && text.contains("SET: ") && text.contains("GET: ") && !text.contains("rror"), "{text}");
}
