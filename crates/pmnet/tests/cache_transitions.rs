//! Tests of the paper's state diagram (figure 11), transition by transition, with our refinements, and of the cache's
//! bounds.

use landfall_pmnet::cache::{Cache, Effect, Id, Limits, Query, State};

type Sut = Cache<char, Vec<u8>>;

fn limits() -> Limits {
    Limits {
        entries_max: 4,
        bytes_max: 100,
        updates_max: 4,
        reads_max: 2,
        touching_max: 2,
        sessions_max: 3,
        window: 4,
    }
}

/// An open cache with the sessions a and b.
fn cache() -> Sut {
    let mut cache = Cache::new(limits());
    cache.open();
    cache.session_started('a', 0, 0);
    cache.session_started('b', 0, 0);
    cache
}

fn id(session: char, seq: u32) -> Id<char> {
    Id { session, seq }
}

/// An update that sets a key passes.
fn seen(cache: &mut Sut, id: Id<char>, key: &[u8]) {
    cache.update_seen(id, key, &Effect::Sets { key: 0..key.len(), value: 0..0 });
}

/// An update passes and is logged.
fn logged(cache: &mut Sut, id: Id<char>, key: &[u8], value: &[u8]) {
    seen(cache, id, key);
    durable(cache, id, value);
}

/// The log entry of an update is fenced.
fn durable(cache: &mut Sut, id: Id<char>, value: &[u8]) {
    cache.update_logged(id, value.to_vec());
    cache.update_durable(id);
}

fn reads(cache: &mut Sut, id: Id<char>, key: &[u8]) {
    cache.bypass_seen(id, key, &Query::Reads { key: 0..key.len() });
}

fn touches(cache: &mut Sut, id: Id<char>, key: &[u8]) {
    cache.bypass_seen(id, key, &Query::Touches(std::iter::once(0..key.len()).collect()));
}

fn value(cache: &mut Sut, key: &[u8]) -> Option<Vec<u8>> {
    cache.lookup(key, None).cloned()
}

#[test]
fn t1_a_logged_update_makes_an_invalid_key_pending() {
    let mut cache = cache();
    assert_eq!(cache.state(b"k"), State::Invalid);
    logged(&mut cache, id('a', 0), b"k", b"1");
    assert_eq!(cache.state(b"k"), State::Pending);
    assert_eq!(value(&mut cache, b"k"), Some(b"1".to_vec()));
}

#[test]
fn t2_a_server_ack_makes_it_persisted() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.server_ack('a', 0);
    assert_eq!(cache.state(b"k"), State::Persisted);
    assert_eq!(value(&mut cache, b"k"), Some(b"1".to_vec()));
}

#[test]
fn t3_another_update_makes_a_persisted_key_pending() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.server_ack('a', 0);
    logged(&mut cache, id('b', 0), b"k", b"2");
    assert_eq!(cache.state(b"k"), State::Pending);
    assert_eq!(value(&mut cache, b"k"), Some(b"2".to_vec()));
}

#[test]
fn t4_an_update_of_another_session_makes_a_pending_key_stale() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    logged(&mut cache, id('b', 0), b"k", b"2");
    assert_eq!(cache.state(b"k"), State::Stale);
    assert_eq!(value(&mut cache, b"k"), None);
}

#[test]
fn t5_a_stale_key_remains_stale_when_updated() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    logged(&mut cache, id('b', 0), b"k", b"2");
    logged(&mut cache, id('b', 1), b"k", b"3");
    assert_eq!(cache.state(b"k"), State::Stale);
}

#[test]
fn t6_a_stale_key_becomes_invalid_once_all_its_updates_are_applied_and_not_before() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    logged(&mut cache, id('b', 0), b"k", b"2");
    cache.server_ack('a', 0);
    assert_eq!(cache.state(b"k"), State::Stale, "the update of b is in flight");
    logged(&mut cache, id('a', 1), b"k", b"3");
    assert_eq!(cache.state(b"k"), State::Stale);
    cache.server_ack('b', 0);
    assert_eq!(cache.state(b"k"), State::Stale, "the order of the two updates is not known");
    cache.server_ack('a', 1);
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn the_newest_update_of_one_session_serves() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    seen(&mut cache, id('a', 1), b"k");
    assert_eq!(cache.state(b"k"), State::Stale, "it is not durable yet");
    durable(&mut cache, id('a', 1), b"2");
    assert_eq!(value(&mut cache, b"k"), Some(b"2".to_vec()));
    cache.server_ack('a', 0);
    assert_eq!(cache.state(b"k"), State::Pending);
    cache.server_ack('a', 1);
    assert_eq!(cache.state(b"k"), State::Persisted);
}

#[test]
fn an_update_does_not_serve_before_earlier_updates_of_its_session_are_durable() {
    let mut cache = cache();
    seen(&mut cache, id('a', 0), b"j");
    logged(&mut cache, id('a', 1), b"k", b"2");
    assert_eq!(cache.state(b"k"), State::Stale);
    durable(&mut cache, id('a', 0), b"1");
    assert_eq!(value(&mut cache, b"j"), Some(b"1".to_vec()));
    assert_eq!(value(&mut cache, b"k"), Some(b"2".to_vec()));
}

#[test]
fn an_update_that_is_applied_before_its_fence_leaves_no_value() {
    let mut cache = cache();
    seen(&mut cache, id('a', 0), b"k");
    cache.server_ack('a', 0);
    durable(&mut cache, id('a', 0), b"1");
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn a_waiting_value_is_dropped_when_the_server_confirms_its_update_before_the_fence() {
    let mut cache = cache();
    for seq in 0..1000 {
        seen(&mut cache, id('a', seq), b"k");
        cache.update_logged(id('a', seq), vec![0; 50]);
        assert_eq!(cache.held(), (0, 51), "it waits");
        cache.server_ack('a', seq);
        assert_eq!(cache.held(), (0, 0));
        cache.update_durable(id('a', seq));
    }
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn only_the_newest_update_of_a_key_in_flight_keeps_a_waiting_value() {
    let mut cache = cache();
    for seq in 0..3 {
        seen(&mut cache, id('a', seq), b"k");
        cache.update_logged(id('a', seq), vec![0; 50]);
        assert_eq!(cache.held(), (0, 51));
    }
    seen(&mut cache, id('b', 0), b"k");
    assert_eq!(cache.held(), (0, 0), "none of them will serve");
    assert!(!cache.wants_value(id('b', 0)));
}

#[test]
fn waiting_values_count_against_the_byte_limit_and_are_not_evicted_for_others() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"i", &[0; 40]);
    seen(&mut cache, id('b', 0), b"j");
    cache.update_logged(id('b', 0), vec![0; 70]);
    assert_eq!(cache.held(), (0, 71), "served values are evicted");
    seen(&mut cache, id('b', 1), b"k");
    cache.update_logged(id('b', 1), vec![0; 70]);
    assert_eq!(cache.held(), (0, 71), "waiting values are not evicted");
    cache.update_durable(id('b', 0));
    cache.update_durable(id('b', 1));
    assert_eq!((cache.state(b"j"), cache.state(b"k")), (State::Pending, State::Stale));
}

#[test]
fn values_are_dropped_on_request_including_waiting_ones() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"i", b"long");
    logged(&mut cache, id('a', 1), b"j", b"s");
    seen(&mut cache, id('b', 0), b"k");
    cache.update_logged(id('b', 0), b"long".to_vec());
    cache.drop_values(|value| value.len() > 1);
    assert_eq!(cache.held(), (1, 2));
    assert_eq!((cache.state(b"i"), cache.state(b"j")), (State::Stale, State::Pending));
}

#[test]
fn repeated_updates_change_nothing() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    seen(&mut cache, id('a', 0), b"k");
    assert_eq!(cache.state(b"k"), State::Pending);
    cache.server_ack('a', 0);
    logged(&mut cache, id('b', 0), b"k", b"2");
    cache.server_ack('b', 0);
    logged(&mut cache, id('a', 0), b"k", b"1");
    assert_eq!(value(&mut cache, b"k"), Some(b"2".to_vec()));
    assert_eq!(cache.updates_in_flight(), 0);
}

#[test]
fn an_identity_with_other_bytes_makes_the_keys_of_both_stale() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"j", b"1");
    cache.update_conflicts(id('a', 0), b"k", &Effect::Sets { key: 0..1, value: 1..1 });
    assert_eq!((cache.state(b"j"), cache.state(b"k")), (State::Stale, State::Stale));
    cache.server_ack('a', 0);
    assert_eq!((cache.state(b"j"), cache.state(b"k")), (State::Invalid, State::Invalid));
}

#[test]
fn a_response_is_stored_unless_its_key_may_have_changed_meanwhile() {
    let mut cache = cache();
    reads(&mut cache, id('a', 0), b"k");
    assert_eq!(cache.awaited(id('a', 0)), Some(&b"k"[..]));
    assert!(cache.response_seen(id('a', 0), Some(b"1".to_vec())));
    assert_eq!(cache.state(b"k"), State::Persisted);

    reads(&mut cache, id('a', 1), b"j");
    logged(&mut cache, id('b', 0), b"j", b"2");
    cache.server_ack('b', 0);
    assert!(!cache.response_seen(id('a', 1), Some(b"1".to_vec())));
    assert_eq!(value(&mut cache, b"j"), Some(b"2".to_vec()));
}

#[test]
fn the_response_to_a_repeated_read_is_not_stored_because_it_may_be_old() {
    let mut cache = cache();
    reads(&mut cache, id('a', 0), b"k");
    cache.response_seen(id('a', 0), None);
    reads(&mut cache, id('a', 0), b"k");
    assert!(!cache.response_seen(id('a', 0), Some(b"1".to_vec())));
}

#[test]
fn a_key_that_a_bypass_may_change_is_stale_until_its_response() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.server_ack('a', 0);
    touches(&mut cache, id('b', 0), b"k");
    assert_eq!(cache.state(b"k"), State::Stale);
    cache.response_seen(id('b', 0), None);
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn a_bypass_that_is_never_answered_is_dropped_only_on_request() {
    let mut cache = cache();
    let before = cache.mark();
    touches(&mut cache, id('b', 0), b"k");
    cache.drop_before(before);
    assert_eq!(cache.state(b"k"), State::Stale);
    let after = cache.mark();
    cache.drop_before(after);
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn while_a_request_may_change_any_key_nothing_is_served() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.update_seen(id('b', 0), b"", &Effect::TouchesAll);
    assert_eq!((cache.state(b"k"), cache.state(b"j")), (State::Stale, State::Stale));
    cache.server_ack('a', 0);
    cache.server_ack('b', 0);
    assert_eq!(cache.state(b"k"), State::Invalid);
    cache.bypass_seen(id('b', 0), b"", &Query::TouchesAll);
    logged(&mut cache, id('a', 1), b"k", b"2");
    assert_eq!(value(&mut cache, b"k"), None);
    cache.response_seen(id('b', 0), None);
    assert_eq!(cache.state(b"k"), State::Stale, "the order of the two is not known");
}

#[test]
fn a_session_reads_its_own_writes() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    assert!(cache.lookup(b"k", Some(id('a', 0))).is_some());
    assert!(
        cache.lookup(b"k", Some(id('a', 1))).is_none(),
        "the update has not passed yet, and may change this key"
    );
    assert!(cache.lookup(b"k", Some(id('c', 0))).is_none());
}

#[test]
fn a_server_ack_for_updates_that_never_passed_drops_everything() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.server_ack('a', 0);
    reads(&mut cache, id('a', 0), b"j");
    cache.server_ack('c', 7);
    assert_eq!(cache.state(b"k"), State::Invalid);
    assert!(!cache.response_seen(id('a', 0), Some(b"1".to_vec())));
    logged(&mut cache, id('a', 1), b"k", b"2");
    cache.server_ack('a', 3);
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn a_session_that_is_known_by_its_server_ack_serves_beyond_its_window() {
    let mut cache = cache();
    logged(&mut cache, id('c', 7), b"k", b"1");
    assert_eq!(
        cache.state(b"k"),
        State::Stale,
        "it may be a late copy of an update that is applied and overwritten"
    );
    cache.server_ack('c', 7);
    for seq in 8..=12 {
        logged(&mut cache, id('c', seq), b"k", b"2");
        assert_eq!(cache.state(b"k"), if seq < 12 { State::Stale } else { State::Pending });
        cache.server_ack('c', seq);
    }
}

#[test]
fn a_shut_cache_serves_and_stores_no_values_but_follows_requests_in_flight() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.clear();
    assert_eq!(value(&mut cache, b"k"), None);
    reads(&mut cache, id('a', 0), b"j");
    assert!(!cache.response_seen(id('a', 0), Some(b"1".to_vec())));
    cache.open();
    assert_eq!(cache.state(b"k"), State::Stale);
    cache.server_ack('a', 0);
    assert_eq!(cache.state(b"k"), State::Invalid);
}

#[test]
fn the_value_that_was_not_used_is_evicted_first() {
    let mut cache = cache();
    for (seq, key) in (0..).zip([b"a", b"b", b"c", b"d"]) {
        logged(&mut cache, id('a', seq), key, b"1");
        cache.server_ack('a', seq);
    }
    [b"a", b"c", b"d"].iter().for_each(|key| assert!(value(&mut cache, *key).is_some()));
    logged(&mut cache, id('a', 4), b"e", b"1");
    assert_eq!(cache.held(), (4, 8));
    assert_eq!(cache.state(b"b"), State::Invalid);
    logged(&mut cache, id('a', 5), b"f", &[0; 98]);
    assert_eq!(cache.held(), (1, 99), "as many values are evicted as its bytes need");
    assert_eq!(
        cache.state(b"e"),
        State::Stale,
        "its update is in flight, whether or not its value is stored"
    );
    logged(&mut cache, id('a', 6), b"g", &[0; 100]);
    assert_eq!(cache.held(), (1, 99), "the value alone is too long");
}

#[test]
fn more_updates_in_flight_than_the_limit_stop_serving_until_they_are_applied() {
    let mut cache = cache();
    for seq in 0..5 {
        logged(&mut cache, id('a', seq), b"k", b"1");
    }
    assert_eq!((cache.updates_in_flight(), value(&mut cache, b"k")), (4, None));
    cache.server_ack('a', 3);
    assert_eq!(cache.state(b"j"), State::Stale);
    cache.server_ack('a', 4);
    logged(&mut cache, id('b', 0), b"j", b"2");
    assert_eq!((cache.state(b"k"), cache.state(b"j")), (State::Invalid, State::Pending));
}

#[test]
fn more_changing_bypasses_or_sessions_than_the_limit_shut_the_cache() {
    let mut first = cache();
    for seq in 0..3 {
        assert!(first.is_open());
        touches(&mut first, id('a', seq), b"k");
    }
    assert!(!first.is_open());

    let mut second = cache();
    for session in ['a', 'b', 'c', 'd'] {
        assert!(second.is_open());
        seen(&mut second, id(session, 0), b"k");
    }
    assert!(!second.is_open());
}

#[test]
fn a_session_without_requests_in_flight_is_evicted() {
    let mut cache = cache();
    seen(&mut cache, id('a', 0), b"k");
    ('c'..='z').for_each(|session| cache.session_started(session, 0, 0));
    logged(&mut cache, id('z', 0), b"j", b"1");
    assert!(cache.is_open());
    assert_eq!((cache.state(b"k"), cache.state(b"j")), (State::Stale, State::Pending));
}

#[test]
fn a_session_that_is_gone_blocks_nothing() {
    let mut cache = cache();
    seen(&mut cache, id('a', 1), b"k");
    cache.update_seen(id('a', 2), b"", &Effect::TouchesAll);
    cache.session_gone('a');
    assert_eq!((cache.updates_in_flight(), cache.state(b"k")), (0, State::Invalid));
}

#[test]
fn the_highest_number_is_handled() {
    let mut cache = cache();
    logged(&mut cache, id('a', u32::MAX), b"k", b"1");
    reads(&mut cache, id('a', u32::MAX), b"k");
    cache.server_ack('a', u32::MAX);
    assert_eq!(cache.updates_in_flight(), 0);
}

#[test]
fn a_session_with_the_number_of_an_ended_one_drops_no_values() {
    let mut cache = cache();
    logged(&mut cache, id('a', 0), b"k", b"1");
    cache.server_ack('a', 0);
    // The numbers in between were never used.
    cache.session_started('b', 9, 9);
    cache.server_ack('b', 8);
    assert_eq!(value(&mut cache, b"k"), Some(b"1".to_vec()));
    logged(&mut cache, id('b', 9), b"k", b"2");
    assert_eq!(value(&mut cache, b"k"), Some(b"2".to_vec()), "its updates are new");
    // A late copy of the packet changes nothing, because the update is still in flight.
    cache.session_started('b', 9, 9);
    assert_eq!(cache.state(b"k"), State::Pending);
}
