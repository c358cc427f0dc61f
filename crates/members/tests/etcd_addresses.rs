//! Several addresses of one etcd, some of which fail.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod server;

use landfall_members::{
    Chain, Etcd, EtcdClient, EtcdConfig, Member, MembersError, Membership, Role, Standing,
};
use server::{Certificates, Server, Setup};
use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);

fn chain() -> Chain {
    Chain::new("lab", "10.0.0.9:51000".parse().unwrap(), &[("near", None), ("far", None)]).unwrap()
}

fn member(name: &str) -> Member {
    let address = "10.0.0.1:51000".parse().unwrap();
    Member { name: name.to_owned(), role: Role::Device, address, incarnation: 1, since: 0 }
}

/// The chain, with time for an address that does not answer.
fn reach(addresses: &[String]) -> Membership {
    Membership::Etcd(Etcd::new(addresses, "lab").unwrap().with_limit(Duration::from_secs(10)))
}

/// A member that accepts connections and never answers.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    (listener, address)
}

#[test]
fn the_session_goes_on_when_the_member_in_use_is_killed() {
    let Some(mut servers) = Server::cluster(&Setup::default(), 3) else { return };
    let addresses: Vec<String> = servers.iter().map(Server::endpoint).collect();
    let lab = reach(&addresses);
    lab.init(&chain()).unwrap();
    // Long enough for an election on a machine that does other things, too.
    let ttl = Duration::from_secs(12);
    let keeper = lab.register(member("near"), ttl).unwrap();
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
    servers[0].kill();
    let killed = Instant::now();
    while killed.elapsed() < ttl + ttl / 2 {
        assert!(keeper.is_member(), "after {:?}", killed.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(keeper.change(Duration::ZERO), None, "the lease has lasted");
    assert_eq!(reach(&addresses[1..]).show().unwrap().members.len(), 1);
    assert_eq!(lab.fail_device("far").unwrap().epoch, 2);
    // The other two are no majority without the third.
    servers[1].kill();
    assert!(lab.show().is_err());
    servers[0].restart();
    assert_eq!(lab.show().unwrap().chain.epoch, 2);
}

#[test]
fn a_member_that_never_answers_is_left_for_another_which_stays_in_use() {
    let Some(server) = Server::start() else { return };
    reach(&[server.endpoint()]).init(&chain()).unwrap();
    let (listener, silence) = silent();
    let lab = reach(&[silence, server.endpoint()]);
    (0..20).for_each(|_| drop(lab.show().unwrap()));
    listener.set_nonblocking(true).unwrap();
    let asked = std::iter::from_fn(|| listener.accept().ok()).count();
    assert_eq!(asked, 1, "by the first call only");
}

#[test]
fn a_change_is_made_once_though_the_first_address_never_answers() {
    let Some(server) = Server::start() else { return };
    reach(&[server.endpoint()]).init(&chain()).unwrap();
    let (_listener, silence) = silent();
    assert_eq!(reach(&[silence, server.endpoint()]).fail_device("near").unwrap().epoch, 2);
    assert_eq!(reach(&[server.endpoint()]).show().unwrap().chain.epoch, 2);
}

#[test]
fn a_write_goes_to_the_next_address_where_no_connection_is_made() {
    let Some(server) = Server::start() else { return };
    for dead in ["http://127.0.0.1:1", "http://no-such-host.invalid:2379"] {
        let client = EtcdClient::new(&EtcdConfig::at(&[dead.to_owned(), server.endpoint()])).unwrap();
        client.within(WAIT).put("/k", b"", None).unwrap();
    }
}

#[test]
fn a_write_that_may_have_arrived_is_not_sent_to_another_address() {
    let Some(server) = Server::start() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let rude = listener.local_addr().unwrap().to_string();
    let hangs_up = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut question, mut piece) = (Vec::new(), [0; 1024]);
        while !question.ends_with(b"}") {
            let count = stream.read(&mut piece).unwrap();
            question.extend_from_slice(&piece[..count]);
        }
    });
    let client = EtcdClient::new(&EtcdConfig::at(&[rude, server.endpoint()])).unwrap();
    let outcome = client.within(WAIT).put("/k", b"", None);
    hangs_up.join().unwrap();
    assert!(matches!(outcome, Err(MembersError::Answer { .. })), "{outcome:?}");
    assert!(client.within(WAIT).get("/k").unwrap().is_none());
    client.within(WAIT).put("/k", b"", None).unwrap();
}

#[test]
fn errors_name_each_address_and_what_it_said() {
    let (_listener, silence) = silent();
    let addresses =
        ["http://127.0.0.1:1".to_owned(), silence.clone(), "http://no-such-host.invalid:2379".into()];
    let error = reach(&addresses).show().unwrap_err();
    assert!(matches!(&error, MembersError::Addresses { failures } if failures.len() == 3), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("127.0.0.1:1 does not answer: Connection refused"), "{text}");
    assert!(
        text.contains(&format!("{} does not answer: timed out", silence.replace("http://", ""))),
        "{text}"
    );
    assert!(text.contains("no-such-host.invalid:2379 does not answer"), "{text}");
}

#[test]
fn a_handshake_that_never_ends_is_given_up() {
    let certificates = Certificates::new();
    let Some(server) = Server::start_as(&Setup::encrypted(&certificates)) else { return };
    let (_listener, silence) = silent();
    let mut config = server.config();
    config.addresses.insert(0, silence.replace("http://", "https://"));
    // Nothing was sent, so that a write may go to the next address.
    EtcdClient::new(&config).unwrap().within(WAIT).put("/k", b"", None).unwrap();
}
