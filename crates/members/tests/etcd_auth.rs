//! Users and passwords of a real etcd, and tokens that expire.

#![expect(clippy::print_stderr, reason = "a skipped test says so")]

mod server;

use landfall_members::{Chain, EtcdClient, EtcdConfig, EtcdUser, Member, MembersError, Role, Standing};
use server::{Certificates, Server, Setup, membership};
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);
const PASSWORD: &str = "correct horse";

fn chain() -> Chain {
    Chain::new("lab", "10.0.0.9:51000".parse().unwrap(), &[("near", None), ("far", None)]).unwrap()
}

fn member(name: &str) -> Member {
    let address = "10.0.0.1:51000".parse().unwrap();
    Member { name: name.to_owned(), role: Role::Device, address, incarnation: 1, since: 0 }
}

fn as_user(server: &Server, name: &str, password: &str) -> EtcdConfig {
    EtcdConfig { user: Some(EtcdUser::new(name, password)), ..server.config() }
}

/// Makes `root`, and `operator`, who may use the keys of Landfall, and demands passwords from now on.
fn demand_passwords(server: &Server) {
    let own = r#""key":"L2xhbmRmYWxsLw==","range_end":"L2xhbmRmYWxsMA==""#;
    for (path, json) in [
        ("user/add", r#"{"name":"root","password":"root's own"}"#.to_owned()),
        ("user/grant", r#"{"user":"root","role":"root"}"#.to_owned()),
        ("role/add", r#"{"name":"landfall"}"#.to_owned()),
        ("role/grant", format!(r#"{{"name":"landfall","perm":{{"permType":"READWRITE",{own}}}}}"#)),
        ("user/add", format!(r#"{{"name":"operator","password":"{PASSWORD}"}}"#)),
        ("user/grant", r#"{"user":"operator","role":"landfall"}"#.to_owned()),
        ("enable", "{}".to_owned()),
    ] {
        server.post(&format!("/v3/auth/{path}"), &json, None);
    }
}

/// Changes the operator's password, as root.
fn set_password(server: &Server, password: &str) {
    let answer = server.post("/v3/auth/authenticate", r#"{"name":"root","password":"root's own"}"#, None);
    let token = answer.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let json = format!(r#"{{"name":"operator","password":"{password}"}}"#);
    server.post("/v3/auth/user/changepw", &json, Some(&token));
}

#[test]
fn a_user_with_a_password_is_let_in_and_others_are_told_why_not() {
    let Some(server) = Server::start() else { return };
    demand_passwords(&server);
    let lab = membership(&as_user(&server, "operator", PASSWORD), "lab");
    lab.init(&chain()).unwrap();
    assert_eq!(lab.fail_device("far").unwrap().epoch, 2);

    for (name, password) in [("operator", "wrong"), ("nobody", PASSWORD)] {
        let error = membership(&as_user(&server, name, password), "lab").show().unwrap_err();
        assert!(matches!(&error, MembersError::Login { user, .. } if user == name), "{error:?}");
        assert!(error.to_string().contains("invalid user ID or password"), "{error}");
        assert!(!format!("{error:?} {error}").contains(password), "{error:?}");
    }
    let error = membership(&server.config(), "lab").show().unwrap_err();
    assert!(error.to_string().contains("give a user and a password"), "{error}");
}

#[test]
fn a_password_without_need_is_refused_with_what_to_do() {
    let Some(server) = Server::start() else { return };
    let error = membership(&as_user(&server, "operator", PASSWORD), "lab").show().unwrap_err();
    assert!(error.to_string().contains("authentication is not enabled"), "{error}");
}

#[test]
fn tokens_that_expire_are_renewed() {
    let Some(server) = Server::start_as(&Setup::default().with(&["--auth-token-ttl", "1"])) else { return };
    demand_passwords(&server);
    let lab = membership(&as_user(&server, "operator", PASSWORD), "lab");
    lab.init(&chain()).unwrap();
    let ttl = Duration::from_secs(12);
    let keeper = lab.register(member("near"), ttl).unwrap();
    assert_eq!(keeper.change(WAIT), Some(Standing::Member));
    // The keeper renews every four seconds, and finds its token expired each time.
    let begun = Instant::now();
    while begun.elapsed() < ttl + ttl / 2 {
        assert!(keeper.is_member(), "after {:?}", begun.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(lab.show().unwrap().members.len(), 1);
    assert_eq!(lab.fail_device("far").unwrap().epoch, 2);
}

#[test]
fn a_password_that_is_changed_ends_the_session_until_it_is_changed_back() {
    let Some(server) = Server::start() else { return };
    demand_passwords(&server);
    let lab = membership(&as_user(&server, "operator", PASSWORD), "lab");
    lab.init(&chain()).unwrap();
    set_password(&server, "another");
    assert!(matches!(lab.show(), Err(MembersError::Login { .. })));
    set_password(&server, PASSWORD);
    assert_eq!(lab.show().unwrap().chain.epoch, 1);
}

#[test]
fn a_session_with_a_password_goes_on_at_another_member() {
    let Some(mut servers) = Server::cluster(&Setup::default(), 3) else { return };
    demand_passwords(&servers[0]);
    let addresses = servers.iter().map(Server::endpoint).collect();
    let config = EtcdConfig { addresses, ..as_user(&servers[0], "operator", PASSWORD) };
    let lab = membership(&config, "lab");
    lab.init(&chain()).unwrap();
    servers[0].kill();
    let begun = Instant::now();
    while let Err(error) = lab.show() {
        assert!(begun.elapsed() < WAIT, "{error}");
    }
    assert_eq!(lab.fail_device("far").unwrap().epoch, 2);
}

#[test]
fn a_client_certificate_and_a_user_go_together_if_the_certificate_has_no_common_name() {
    let Some(mut server) = Server::start() else { return };
    demand_passwords(&server);
    let certificates = Certificates::new();
    let with = |file, common_name| {
        let [certificate, key] = certificates.sign(file, &[], common_name);
        let mut setup = Setup::demanding(&certificates);
        setup.client.certificate = Some(certificate);
        setup.client.key = Some(key);
        setup.client.user = Some(EtcdUser::new("operator", PASSWORD));
        setup
    };
    server.restart_as(&with("nameless", None));
    server.membership("lab").init(&chain()).unwrap();
    let nobody = EtcdConfig { user: None, ..server.config() };
    let error = membership(&nobody, "lab").show().unwrap_err();
    assert!(error.to_string().contains("give a user and a password"), "{error}");

    let named = with("named", Some("operator")).client;
    for user in [named.user.clone(), None] {
        let addresses = server.config().addresses;
        let error = membership(&EtcdConfig { addresses, user, ..named.clone() }, "lab").show().unwrap_err();
        assert!(error.to_string().contains("use a client certificate without a common name"), "{error}");
    }
}

#[test]
fn neither_password_nor_token_is_in_what_is_printed() {
    let Some(server) = Server::start() else { return };
    demand_passwords(&server);
    let config = as_user(&server, "operator", PASSWORD);
    let client = EtcdClient::new(&config).unwrap();
    let lab = landfall_members::Etcd::of(client.clone(), "lab").unwrap();
    landfall_members::Membership::Etcd(lab).init(&chain()).unwrap();
    let printed = format!("{config:?} {client:?}");
    assert!(printed.contains("operator") && !printed.contains(PASSWORD), "{printed}");
    // Tokens of etcd have a dot, which nothing else has but the address.
    let address = server.endpoint().replace("http://", "");
    assert!(!printed.replace(&address, "").replace("127.0.0.1", "").contains('.'), "{printed}");
}
