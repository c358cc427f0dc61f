//! Chains and members in a real etcd.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a child tells its parent, and a skipped test says so"
)]

mod server;

use landfall_members::{
    Chain, ChainError, Etcd, Event, Keeper, Member, MembersError, Membership, Role, Standing, Watch,
};
use server::Server;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(2);
/// Tells the child process of a test where etcd is.
const CHILD: &str = "LANDFALL_MEMBERS_CHILD_ETCD";

fn chain() -> Chain {
    Chain::new("lab", "10.0.0.9:51000".parse().unwrap(), &[("near", None), ("far", None)]).unwrap()
}

/// An etcd that holds the chain.
fn with_chain() -> Option<(Server, Membership)> {
    let server = Server::start()?;
    let membership = server.membership("lab");
    membership.init(&chain()).unwrap();
    Some((server, membership))
}

fn member(name: &str, incarnation: u64) -> Member {
    let address = "10.0.0.1:51000".parse().unwrap();
    Member { name: name.to_owned(), role: Role::Device, address, incarnation, since: 0 }
}

fn register(membership: &Membership, name: &str, incarnation: u64) -> Keeper {
    let keeper = membership.register(member(name, incarnation), TTL).unwrap();
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
    keeper
}

fn alive(membership: &Membership) -> Vec<String> {
    membership.show().unwrap().members.into_keys().collect()
}

/// Whether it becomes so before patience ends.
fn comes_true(mut it: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < WAIT {
        if it() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn watched(membership: &Membership) -> Watch {
    let watch = membership.watch_every(Duration::from_millis(20)).unwrap();
    assert!(matches!(next(&watch), Event::ChainChanged(_)));
    watch
}

fn next(watch: &Watch) -> Event {
    watch.event(WAIT).expect("an event")
}

#[test]
fn a_chain_is_made_once_and_changed_with_an_epoch_more_each_time() {
    let Some((_server, membership)) = with_chain() else { return };
    let other = Chain { server: "10.0.0.8:51000".parse().unwrap(), ..chain() };
    assert!(matches!(membership.init(&other), Err(MembersError::Exists { epoch: 1, .. })));
    membership.add_device("middle", None, Some(1)).unwrap();
    membership.fail_device("near").unwrap();
    membership.fail_device("near").unwrap();
    membership.replace_device("near", "nearer", None).unwrap();
    let last = membership.remove_device("far").unwrap();
    assert_eq!(membership.show().unwrap().chain, last);
    let devices: Vec<(&str, u8)> = last.required().map(|d| (d.name.as_str(), d.number)).collect();
    assert_eq!((last.epoch, devices), (5, vec![("nearer", 3), ("middle", 2)]));
    let refused = membership.fail_device("nobody");
    assert!(matches!(refused, Err(MembersError::Chain(ChainError::NoDevice { .. }))));
}

#[test]
fn a_chain_that_is_not_there_is_told_with_its_key() {
    let Some(server) = Server::start() else { return };
    let outcome = server.membership("none").fail_device("near").unwrap_err();
    assert!(outcome.to_string().contains("/landfall/pmnet/none/order"), "{outcome}");
}

#[test]
fn writers_at_the_same_time_lose_no_change() {
    let Some((server, membership)) = with_chain() else { return };
    let writers: Vec<_> = ["a", "b"]
        .into_iter()
        .map(|writer| {
            let membership = server.membership("lab");
            std::thread::spawn(move || {
                let add = |n: u32| membership.add_device(&format!("{writer}{n}"), None, None).unwrap().epoch;
                (0..8).map(add).collect::<Vec<u64>>()
            })
        })
        .collect();
    let epochs: Vec<u64> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
    let distinct: BTreeSet<u64> = epochs.iter().copied().collect();
    assert_eq!(distinct, (2..18).collect(), "each change has an epoch of its own");
    let last = membership.show().unwrap().chain;
    assert_eq!((last.epoch, last.devices.len()), (17, 18));
}

#[test]
fn a_writer_who_was_overtaken_begins_anew_with_what_is_there() {
    let Some((server, membership)) = with_chain() else { return };
    let other = server.membership("lab");
    let seen = std::cell::RefCell::new(Vec::new());
    let change = |chain: &Chain| {
        seen.borrow_mut().push(chain.epoch);
        if seen.borrow().len() == 1 {
            other.fail_device("near").unwrap();
        }
        chain.with_failed("far")
    };
    let last = membership.change(change).unwrap();
    assert_eq!(seen.into_inner(), [1, 2]);
    assert_eq!((last.epoch, last.required().count()), (3, 0));
}

#[test]
fn a_writer_who_is_always_overtaken_gives_up_with_a_conflict() {
    let Some((server, membership)) = with_chain() else { return };
    let other = server.membership("lab");
    let change = |chain: &Chain| {
        other.add_device(&format!("d{}", chain.epoch), None, None).unwrap();
        chain.with_failed("far")
    };
    assert!(matches!(membership.change(change), Err(MembersError::Conflict { tries: 5, .. })));
    assert!(!membership.show().unwrap().chain.device("far").unwrap().failed);
}

#[test]
fn a_member_stays_while_it_is_kept_and_goes_when_its_keeper_does() {
    let Some((_server, membership)) = with_chain() else { return };
    let keeper = register(&membership, "near", 7);
    std::thread::sleep(TTL * 2);
    assert!(keeper.is_member());
    let view = membership.show().unwrap();
    let (found, since) = (&view.members["near"], view.members["near"].since);
    assert_eq!(found, &Member { since, ..member("near", 7) });
    assert!(since > 1_700_000_000);
    drop(keeper);
    assert_eq!(alive(&membership), ["near"], "the lease has not run out");
    assert!(comes_true(|| alive(&membership).is_empty()));
}

#[test]
fn a_member_that_resigns_is_gone_at_once() {
    let Some((_server, membership)) = with_chain() else { return };
    let keeper = membership.register(member("near", 1), Duration::from_secs(3600)).unwrap();
    keeper.resign().unwrap();
    assert!(alive(&membership).is_empty());
}

#[test]
fn a_member_whose_process_is_killed_goes_after_its_ttl_and_the_watch_tells() {
    if let Ok(endpoint) = std::env::var(CHILD) {
        return keep_a_member(endpoint);
    }
    let Some((server, membership)) = with_chain() else { return };
    let watch = watched(&membership);
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_member_whose_process_is_killed_goes_after_its_ttl_and_the_watch_tells",
            "--nocapture",
        ])
        .env(CHILD, server.endpoint())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("registered")));
    assert!(matches!(next(&watch), Event::Alive(member) if member.name == "near"));
    let quiet = watch.event(TTL * 2);
    drop(child);
    assert!(quiet.is_none(), "it lived: {quiet:?}");
    assert!(matches!(next(&watch), Event::Gone(member) if member.name == "near"));
}

/// A process that is killed when this is dropped, also by a test that fails.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In the process that is killed.
fn keep_a_member(endpoint: String) {
    let membership = Membership::Etcd(Etcd::new(&[endpoint], "lab").unwrap());
    let _keeper = register(&membership, "near", 1);
    println!("registered");
    std::thread::sleep(WAIT * 4);
}

#[test]
fn a_process_that_starts_again_takes_its_place_and_the_older_one_is_told() {
    let Some((_server, membership)) = with_chain() else { return };
    let watch = watched(&membership);
    let older = register(&membership, "near", 1);
    assert!(matches!(next(&watch), Event::Alive(_)));
    let newer = register(&membership, "near", 2);
    assert_eq!(older.change(WAIT), Some(Standing::Replaced));
    assert!(!older.is_member() && newer.is_member());
    let outcome = next(&watch);
    assert!(matches!(&outcome, Event::Alive(member) if member.incarnation == 2), "{outcome:?}");
    assert!(watch.event(TTL * 2).is_none(), "the older one's lease ends, and takes nothing with it");
}

#[test]
fn a_lease_that_somebody_ends_is_told_and_taken_anew() {
    let Some((server, membership)) = with_chain() else { return };
    let keeper = register(&membership, "near", 1);
    end_all_leases(&server);
    assert_eq!(keeper.change(WAIT), Some(Standing::Lost));
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
    assert!(keeper.is_member());
    assert_eq!(alive(&membership), ["near"]);
}

fn end_all_leases(server: &Server) {
    let ids = server.post("/v3/lease/leases", "{}", None);
    for id in ids.split("\"ID\":\"").skip(1) {
        let json = format!("{{\"ID\":\"{}\"}}", id.split('"').next().unwrap());
        server.post("/v3/lease/revoke", &json, None);
    }
}

#[test]
fn a_watch_sees_the_order_change() {
    let Some((server, membership)) = with_chain() else { return };
    let watch = watched(&membership);
    server.membership("lab").fail_device("far").unwrap();
    let Event::ChainChanged(now) = next(&watch) else { panic!("no change") };
    assert_eq!((now.epoch, now.required().map(|d| d.number).collect::<Vec<_>>()), (2, vec![0]));
    assert!(watch.event(Duration::from_millis(200)).is_none());
}

#[test]
fn a_watch_does_not_mind_that_history_is_compacted() {
    let Some((server, membership)) = with_chain() else { return };
    let watch = watched(&membership);
    for n in 0..20 {
        membership.add_device(&format!("d{n}"), None, None).unwrap();
    }
    server.post("/v3/kv/compaction", r#"{"revision":"15","physical":true}"#, None);
    membership.fail_device("far").unwrap();
    assert!(comes_true(|| matches!(next(&watch), Event::ChainChanged(chain) if chain.epoch == 22)));
}

#[test]
fn etcd_killed_and_started_again_is_told_and_members_come_back() {
    let Some((mut server, membership)) = with_chain() else { return };
    let watch = watched(&membership);
    let keeper = register(&membership, "near", 1);
    assert!(matches!(next(&watch), Event::Alive(_)));
    server.kill();
    assert!(matches!(next(&watch), Event::SourceLost(MembersError::Unreachable { .. })));
    assert_eq!(keeper.change(WAIT), Some(Standing::Lost));
    assert!(!keeper.is_member());
    assert!(matches!(membership.show(), Err(MembersError::Unreachable { .. })));

    server.restart();
    assert!(matches!(next(&watch), Event::SourceBack));
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
    assert!(keeper.is_member());
    std::thread::sleep(TTL * 2);
    assert_eq!(alive(&membership), ["near"], "with a lease that is kept");
    assert_eq!(membership.fail_device("far").unwrap().epoch, 2);
    assert!(comes_true(|| matches!(next(&watch), Event::ChainChanged(chain) if chain.epoch == 2)));
}

#[test]
fn a_member_whose_etcd_hangs_stops_claiming_its_place_within_the_ttl() {
    let Some((server, membership)) = with_chain() else { return };
    let keeper = register(&membership, "near", 1);
    let paused = Instant::now();
    server.pause();
    let lost = keeper.change(WAIT);
    let after = paused.elapsed();
    server.resume();
    assert_eq!(lost, Some(Standing::Lost));
    assert!(after < TTL * 2, "{after:?}");
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
}

#[test]
fn the_second_address_serves_where_the_first_does_not() {
    let Some((server, _membership)) = with_chain() else { return };
    // Port 1 of loopback refuses.
    let etcd = Etcd::new(&["http://127.0.0.1:1".to_owned(), server.endpoint()], "lab").unwrap();
    let membership = Membership::Etcd(etcd);
    assert_eq!(membership.fail_device("near").unwrap().epoch, 2);
}

#[test]
fn a_server_that_is_no_etcd_is_told_with_its_address() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = std::thread::spawn(move || {
        for answer in
            ["SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 404 No\r\n\r\n"]
        {
            let (mut stream, _) = listener.accept().unwrap();
            // The whole question, so that closing does not reset the connection.
            let (mut question, mut piece) = (Vec::new(), [0; 1024]);
            while !question.ends_with(b"}") {
                let count = stream.read(&mut piece).unwrap();
                question.extend_from_slice(&piece[..count]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let membership = Membership::Etcd(Etcd::new(&[&address], "lab").unwrap());
    let outcome = [(); 3].map(|()| membership.show().unwrap_err());
    serve.join().unwrap();
    assert!(matches!(&outcome[0], MembersError::Answer { what: "no HTTP", .. }), "{:?}", outcome[0]);
    assert!(matches!(&outcome[1], MembersError::Answer { .. }), "{:?}", outcome[1]);
    assert!(matches!(&outcome[2], MembersError::Refused { status: 404, .. }), "{:?}", outcome[2]);
    assert!(outcome.iter().all(|error| error.to_string().contains(&address)));
}
