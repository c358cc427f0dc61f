//! Tests of a real server that has lost confirmed updates.

#![allow(clippy::print_stderr, reason = "a skipped test reports why")]

mod common;

use common::{Redis, Running, Sidecars, anywhere, until};
use landfall_pmnet_io::redis::reconcile::{behind, discard_lost};
use landfall_pmnet_io::redis::server::{self, ServerSideConfig};
use std::sync::Arc;

#[test]
fn a_session_whose_confirmed_updates_redis_has_lost_is_refused_until_it_is_reconciled() {
    for restarts in [false, true] {
        let Some(mut redis) = Redis::start() else { return };
        let mut pair = Sidecars::start(redis.address);
        let mut client = pair.client();
        assert_eq!(client.call(&["SET", "k", "1"]), "+OK\r\n");
        assert_eq!(client.call(&["GET", "k"]), "$1\r\n1\r\n");
        let image = redis.image();
        for value in ["2", "3"] {
            client.call(&["SET", "k", value]);
        }
        assert_eq!(client.call(&["GET", "k"]), "$1\r\n3\r\n");
        if restarts {
            pair.stop_server();
        }
        redis.go_back_to(&image);
        if restarts {
            pair.start_server();
        }
        // A side-car that has just started learns of the loss from the client, which it asks first. A read may be
        // faster.
        let reply =
            until("the refusal", || Some(client.call(&["GET", "k"])).filter(|reply| reply.starts_with('-')));
        assert!(reply.starts_with("-LANDFALL the server refuses the session (Behind)"), "{restarts} {reply}");
        until("the session to be noted", || (pair.reports.redis.get().behind > 0).then_some(()));
        let lost = behind(&pair.config).unwrap();
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!((lost[0].first, lost[0].last), (2, 3), "the lost updates are named");
        assert_eq!(pair.client().call(&["GET", "k"]), "$1\r\n1\r\n", "other sessions continue");
        pair.stop_server();
        assert_eq!(discard_lost(&pair.config).unwrap(), lost);
        pair.start_server();
        assert_eq!(pair.client().call(&["SET", "k", "4"]), "+OK\r\n");
        assert_eq!(behind(&pair.config).unwrap(), []);
    }
}

#[test]
fn a_redis_that_may_lose_confirmed_updates_is_refused_unless_that_is_accepted() {
    let Some(redis) = Redis::start() else { return };
    for (setting, value) in [("appendfsync", "everysec"), ("appendonly", "no")] {
        redis.client().call(&["CONFIG", "SET", setting, value]);
        let config = ServerSideConfig::new(anywhere(), redis.address);
        let error = server::run(config, Arc::default(), Arc::default()).unwrap_err().to_string();
        let expected = format!("{setting} of the Redis server is {value}");
        assert!(error.contains(&expected) && error.contains("--accept-data-loss"), "{error}");
        redis.client().call(&["CONFIG", "SET", "appendfsync", "always"]);
    }
    let mut config = ServerSideConfig::new(anywhere(), redis.address);
    config.accept_data_loss = true;
    let reports: Arc<server::ServerSideReports> = Arc::default();
    let published = reports.clone();
    let _running = Running::start(move |stop| server::run(config, published, stop).unwrap());
    until("its start", || (reports.redis.get().connections > 0).then_some(()));
}
