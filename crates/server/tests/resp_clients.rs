//! Commands about the server itself: connected clients, statistics, and supported commands.

mod resp_support;

use landfall_server::Config;
use resp_support::{Asked, Worker, shared, shared_with};
use std::sync::atomic::Ordering;

#[test]
fn clients_are_listed_with_their_properties() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    first.ask("CLIENT SETNAME first");
    first.ask("CLIENT SETINFO LIB-NAME some-lib");
    first.ask("CLIENT SETINFO lib-ver 1.2.3");
    first.ask("SELECT 3");
    first.ask("HELLO 3");
    assert!(first.say("CLIENT SETINFO lib-name two words").contains("wrong number of arguments"));
    assert!(
        first.say("CLIENT SETINFO lib-name \"two words\"").starts_with("-ERR lib-name cannot contain spaces")
    );
    assert!(first.say("CLIENT SETINFO foo bar").starts_with("-ERR Unrecognized option"));
    let list = second.say("CLIENT LIST");
    for field in
        ["addr=127.0.0.1:50001", "name=first", "db=3", "resp=3", "lib-name=some-lib", "lib-ver=1.2.3"]
    {
        assert!(list.contains(field), "{field} is not in {list}");
    }
    assert_eq!(list.matches(" addr=").count(), 2);
    assert!(second.say("CLIENT INFO").contains("addr=127.0.0.1:50002"));
    first.end();
    assert_eq!(second.say("CLIENT LIST").matches(" addr=").count(), 1);
}

#[test]
fn names_of_clients_have_a_limit() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for line in ["CLIENT SETNAME", "CLIENT SETINFO lib-name", "CLIENT SETINFO lib-ver", "HELLO 3 SETNAME"] {
        let [long, longest] = [1025, 1024].map(|len| worker.say(&format!("{line} {}", "x".repeat(len))));
        assert!(long.contains("cannot be longer than 1024 bytes"), "{line}: {long}");
        assert!(!longest.starts_with('-'), "{line}: {longest}");
    }
    assert!(worker.say("CLIENT LIST ID 1 1 7").contains("id=1 "));
}

#[test]
fn a_client_can_end_others_and_itself() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    assert_eq!(second.say("CLIENT KILL ADDR 127.0.0.1:50001"), ":1\\r\\n");
    assert!(first.session.was_killed() && !second.session.was_killed());
    assert_eq!(second.say("CLIENT KILL TYPE normal SKIPME yes ID 999"), ":0\\r\\n");
    assert_eq!(second.say("CLIENT KILL 127.0.0.1:50002"), "+OK\\r\\n");
    assert!(second.closed);
    assert_eq!(first.say("CLIENT ID"), ":1\\r\\n");
}

#[test]
fn quitting_is_answered_and_shutting_down_is_not() {
    let shared = shared();
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    assert_eq!(first.say("QUIT"), "+OK\\r\\n");
    assert!(first.closed && !shared.is_stopping());
    assert_eq!(second.say("SHUTDOWN NOSAVE"), "");
    assert!(second.closed && shared.is_stopping());
}

#[test]
fn info_has_the_sections_and_fields_that_tools_read() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    worker.ask("SET k v EX 100");
    worker.ask("GET k");
    worker.ask("GET missing");
    let info = String::from_utf8(worker.ask("INFO ALL")).unwrap();
    for field in [
        "# Server",
        "redis_version:7.",
        "redis_mode:standalone",
        "process_id:",
        "uptime_in_seconds:",
        "# Clients",
        "# Memory",
        "used_memory:",
        "maxmemory:67108864",
        "# Persistence",
        "loading:0",
        "rdb_last_save_time:",
        "rdb_last_bgsave_status:ok",
        "aof_enabled:1",
        "aof_last_write_status:ok",
        "aof_rewrite_in_progress:0",
        "# Stats",
        "total_commands_processed:3",
        "keyspace_hits:1",
        "keyspace_misses:1",
        "# Replication",
        "role:master",
        "connected_slaves:0",
        "# CPU",
        "used_cpu_sys:",
        "# Keyspace",
        "db0:keys=1,expires=1,avg_ttl=0",
        "# Landfall",
        "media:simulated",
        "region_bytes:67108864",
        "records:1",
        "records_stale:",
        "tombstones:0",
        "copied_bytes_placed:0",
        "commits_up_to_inf_us:0",
        "recovery_us:0",
        "closed:no",
    ] {
        assert!(info.contains(&format!("\n{field}")), "{field} is not in\n{info}");
    }
    for asked in ["INFO", "INFO everything", "INFO default", "INFO server landfall keyspace"] {
        assert!(worker.say(asked).contains("# Landfall"), "{asked}");
    }
    assert!(!worker.say("INFO server").contains("# Stats"));
    assert_eq!(worker.say("INFO nosuchsection"), "$0\\r\\n\\r\\n");
    worker.ask("CONFIG RESETSTAT");
    assert!(worker.say("INFO stats").contains("keyspace_hits:0"));
    worker.ask("HELLO 3");
    assert!(worker.say("INFO server").starts_with("="));
}

#[test]
fn info_counts_keys_that_expire_by_database() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let lines = [
        "SET a 1 EX 100",
        "SET b 1",
        "SELECT 2",
        "SET a 1 EX 100",
        "SET b 1 PX 100000",
        "SET c 1 EX 9",
        "PERSIST c",
        "SET d 1 EX 9",
        "DEL d",
    ];
    lines.iter().for_each(|line| drop(worker.ask(line)));
    let keyspace = worker.say("INFO keyspace");
    assert!(keyspace.contains("db0:keys=2,expires=1,avg_ttl=0"), "{keyspace}");
    assert!(keyspace.contains("db2:keys=3,expires=2,avg_ttl=0"), "{keyspace}");
    worker.ask("FLUSHALL");
    assert!(!worker.say("INFO keyspace").contains("db"));
    worker.ask("SET a 1");
    assert!(worker.say("INFO keyspace").contains("db2:keys=1,expires=0,"));
}

#[test]
fn info_and_listings_work_within_a_transaction() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for line in ["MULTI", "SET k v", "INFO keyspace", "SCAN 0", "RANDOMKEY", "FLUSHDB", "DBSIZE"] {
        assert!(matches!(worker.try_line(line), Asked::Replied(_)), "{line}");
    }
    let reply = worker.say("EXEC");
    assert!(reply.starts_with("*6\\r\\n+OK\\r\\n$"), "{reply}");
    assert!(reply.ends_with("$1\\r\\nk\\r\\n$1\\r\\nk\\r\\n+OK\\r\\n:0\\r\\n"), "{reply}");
}

#[test]
fn settings_are_shown_and_refuse_to_change() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    for (name, value) in
        [("save", ""), ("appendonly", "yes"), ("appendfsync", "always"), ("maxclients", "10000")]
    {
        let want = format!("*2\\r\\n${}\\r\\n{name}\\r\\n${}\\r\\n{value}\\r\\n", name.len(), value.len());
        assert_eq!(worker.say(&format!("CONFIG GET {name}")), want);
    }
    assert!(worker.say("CONFIG GET *").contains("proto-max-bulk-len"));
    assert!(!worker.say("CONFIG GET *").contains("requirepass"));
    assert!(worker.say("CONFIG GET append* data*").starts_with("*6\\r\\n"));
    assert!(worker.say("CONFIG SET maxmemory 1gb").contains("restart the server with --capacity"));
    assert!(worker.say("CONFIG SET appendfsync no").starts_with("-ERR CONFIG SET failed"));
}

#[test]
fn the_table_of_commands_is_complete_in_every_form() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    let count = worker.say("COMMAND COUNT");
    let count = count.trim_start_matches(':').trim_end_matches("\\r\\n").to_owned();
    assert!(count.parse::<usize>().unwrap() > 70);
    assert!(worker.say("COMMAND").starts_with(&format!("*{count}\\r\\n*10\\r\\n$")));
    assert!(worker.say("COMMAND LIST").starts_with(&format!("*{count}\\r\\n$")));
    assert!(worker.say("COMMAND INFO get").starts_with(
        "*1\\r\\n*10\\r\\n$3\\r\\nget\\r\\n:2\\r\\n*2\\r\\n+readonly\\r\\n+fast\\r\\n:1\\r\\n:1\\r\\n:1\\r\\n"
    ));
    assert!(worker.say("COMMAND INFO client|id").contains("client|id"));
    assert!(worker.say("COMMAND DOCS get").starts_with("*2\\r\\n$3\\r\\nget\\r\\n*6\\r\\n$7\\r\\nsummary"));
    for container in ["CLIENT", "CONFIG", "COMMAND", "OBJECT", "MEMORY", "SLOWLOG", "LATENCY"] {
        assert!(worker.say(&format!("{container} HELP")).contains("HELP"), "{container}");
    }
}

#[test]
fn durability_commands_report_that_everything_is_saved() {
    let shared = shared();
    let mut worker = Worker::new(&shared, 1);
    assert!(matches!(worker.try_line("SET k v"), Asked::Pending));
    assert!(matches!(worker.try_line("WAITAOF 1 0 0"), Asked::Pending));
    assert_eq!(worker.commit(), b"+OK\r\n*2\r\n:1\r\n:0\r\n");
    assert_eq!(worker.say("WAITAOF 0 0 -1"), "-ERR timeout is negative\\r\\n");
    assert!(worker.say("BGSAVE").starts_with("+Background saving started"));
    assert!(worker.say("BGREWRITEAOF").starts_with("+Background append only file rewriting started"));
    assert_eq!(worker.say("SAVE"), "+OK\\r\\n");
    assert_eq!(worker.say("LASTSAVE"), format!(":{}\\r\\n", worker.now_ns / 1_000_000_000));
}

#[test]
fn commands_and_errors_are_counted_once_each() {
    let (shared, _media) = shared_with(Config::default());
    let (mut first, mut second) = (Worker::new(&shared, 1), Worker::new(&shared, 2));
    assert!(matches!(first.try_line("SET n 1"), Asked::Pending));
    assert!(matches!(second.try_line("INCR n"), Asked::Waits));
    first.commit();
    second.ask("INCR n");
    second.ask("NOSUCH");
    assert_eq!(shared.counters.commands.load(Ordering::Relaxed), 3);
    assert_eq!(shared.counters.errors.load(Ordering::Relaxed), 1);
}

#[test]
fn reply_that_is_too_long_is_an_error_and_a_transaction_with_it_changes_nothing() {
    let config = Config { max_output: landfall_server::config::Size(128), ..Config::default() };
    let (shared, _media) = shared_with(config);
    let mut worker = Worker::new(&shared, 1);
    worker.ask_words(&[b"SET".into(), b"a".into(), vec![b'x'; 200]]);
    let mget = format!("MGET {}", "a ".repeat(50));
    assert!(worker.say(&mget).starts_with("-ERR the reply is too long"));
    worker.ask("MULTI");
    worker.ask("SET b 1");
    (0..50).for_each(|_| drop(worker.ask("GET a")));
    assert!(worker.say("EXEC").starts_with("-ERR the reply is too long"));
    assert_eq!(worker.say("GET b"), "$-1\\r\\n", "nothing was executed");
    assert_eq!(shared.counters.overflows.load(Ordering::Relaxed), 2);
    // Values that are sent from their frames do not count.
    worker.ask_words(&[b"SET".into(), b"long".into(), vec![b'x'; 20_000]]);
    assert_eq!(worker.ask("MGET long long").len(), 2 * 20_000 + 4 + 2 * 10);
    worker.ask("MULTI");
    (0..30).for_each(|_| drop(worker.ask("GET a")));
    assert!(worker.say("EXEC").starts_with("*30\\r\\n$200\\r\\n"));
}
