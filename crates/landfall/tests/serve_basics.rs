//! Starting, configuring, protecting and stopping the server.

mod common;

use common::{Place, Reply, bulk, error_text, landfall, ok};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn ports_and_medium_are_printed_before_ready() {
    let place = Place::new();
    let server = place.start(&[]);
    assert_ne!(server.resp.port(), 0);
    assert_ne!(server.http.port(), 0);
    assert!(
        server.lines[0].starts_with("landfall ") && server.lines[0].contains(" on "),
        "{:?}",
        server.lines
    );
    assert!(server.lines.iter().any(|line| line.starts_with("transport: ")), "{:?}", server.lines);
    assert_eq!(server.http().call("GET", "/healthz", "", b"").unwrap().status, 200);
}

#[test]
fn the_program_and_a_server_say_which_formats_and_messages_they_know() {
    let release = env!("CARGO_PKG_VERSION");
    let said = |flag: &str| String::from_utf8(landfall(&[flag]).stdout).unwrap();
    assert_eq!(said("-V"), format!("landfall {release}\n"));
    let long = said("--version");
    assert!(long.starts_with(&format!("landfall {release}\n")), "{long}");
    for (what, version) in [
        ("format of regions", landfall_heap::VERSION),
        ("messages of chains", landfall_chain::MESSAGES_VERSION.into()),
        ("messages of mounts whose server is apart", landfall_fs_io::OFFLOAD_VERSION.into()),
        ("link of libraries to mounts", landfall_fs_io::LINK_VERSION.into()),
    ] {
        assert!(long.contains(&format!("\n{what}: version {version}\n")), "{long}");
    }
    let place = Place::new();
    let server = place.start(&[]);
    let Reply::Bulk(info) = server.call(&["INFO", "server"]) else { panic!("no text") };
    let info = String::from_utf8(info).unwrap();
    for (name, version) in [
        ("landfall_region_format", landfall_heap::VERSION),
        ("landfall_chain_messages", landfall_chain::MESSAGES_VERSION.into()),
    ] {
        assert!(info.contains(&format!("\n{name}:{version}\r\n")), "{info}");
    }
}

/// Names in `docs` are those of the page without `landfall_`, or without the prefix of their table.
#[test]
fn every_metric_of_a_server_is_in_a_document() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = std::fs::read_dir(docs).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|end| end == "md"));
    let text: String = pages.map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let words: BTreeSet<&str> = text.split(|one: char| !one.is_ascii_alphanumeric() && one != '_').collect();
    let place = Place::new();
    let server = place.start(&["--memory", "64MiB"]);
    let names: BTreeSet<String> = server.metrics().into_keys().collect();
    let is_told = |name: &&String| {
        let name = name.split('{').next().unwrap().trim_start_matches("landfall_");
        let whole =
            ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        words.contains(whole) || whole.strip_prefix("files_").is_some_and(|name| words.contains(name))
    };
    let untold: Vec<&String> = names.iter().filter(|name| !is_told(name)).collect();
    assert!(names.len() > 50 && untold.is_empty(), "{untold:#?}");
}

#[test]
fn sigterm_ends_cleanly_within_seconds_and_data_are_there_again() {
    let place = Place::new();
    for signal in ["TERM", "INT"] {
        let mut server = place.start(&[]);
        assert_eq!(server.call(&["SET", signal, "kept"]), ok());
        let idle = server.resp();
        let begun = Instant::now();
        server.signal(signal);
        assert!(server.wait().expect("it ends").success());
        assert!(begun.elapsed() < Duration::from_secs(4), "an idle client must not hold it up");
        drop(idle);
    }
    let server = place.start(&[]);
    assert_eq!(server.call(&["MGET", "TERM", "INT"]), Reply::Array(vec![bulk("kept"), bulk("kept")]));
}

/// Workers wake each other for commits. After that they wait again, whether the region is paged or not.
#[test]
fn a_server_whose_clients_are_silent_uses_no_processor() {
    for memory in [&[][..], &["--capacity", "256MiB", "--memory", "64MiB"]] {
        let place = Place::new();
        let server = place.start(&[memory, &["--workers", "2"]].concat());
        let mut clients: Vec<_> = (0..20).map(|_| server.resp()).collect();
        for _ in 0..200 {
            for client in &mut clients {
                client.push(&[b"SET", b"key", b"value"]);
                client.push(&[b"GET", b"key"]);
                client.flush().unwrap();
            }
            for client in &mut clients {
                assert_eq!((client.read().unwrap(), client.read().unwrap()), (ok(), bulk("value")));
            }
        }
        std::thread::sleep(Duration::from_secs(1));
        let used = || server.metrics()["landfall_process_cpu_seconds_total"];
        let before = used();
        std::thread::sleep(Duration::from_secs(2));
        let used = used() - before;
        assert!(used < 0.5, "{used} s of processor time in 2 s without a request");
        assert!(server.stop().success());
    }
}

#[test]
fn clients_that_connect_during_a_stop_do_not_delay_it() {
    let place = Place::new();
    for _ in 0..4 {
        let mut server = place.start(&[]);
        let address = server.resp;
        // Connects one after the other for as long as the server listens, up to a limit.
        let late = std::thread::spawn(move || {
            let come = (0..2000).map_while(|_| TcpStream::connect(address).ok());
            come.collect::<Vec<_>>()
        });
        let begun = Instant::now();
        server.signal("TERM");
        assert!(server.wait().expect("it ends").success());
        assert!(begun.elapsed() < Duration::from_secs(4), "it waits for new clients");
        drop(late.join());
    }
}

#[test]
fn shutdown_command_ends_cleanly() {
    let place = Place::new();
    let mut server = place.start(&[]);
    assert_eq!(server.call(&["SET", "a", "1"]), ok());
    assert!(server.resp().call(&[b"SHUTDOWN"]).is_err(), "no reply, the connection ends");
    assert!(server.wait().expect("it ends").success());
    assert_eq!(place.start(&[]).call(&["GET", "a"]), bulk("1"));
}

#[test]
fn only_the_owner_may_read_the_region_file() {
    let place = Place::new();
    let _server = place.start(&[]);
    let mode = std::fs::metadata(place.region()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn configuration_file_is_read_and_flags_win() {
    let place = Place::new();
    let config = place.file(
        "landfall.toml",
        "capacity = \"48MiB\"\nmax_clients = 3\nlog_format = \"json\"\nresp = \"off\"\ntransport = \"epoll\"\n",
    );
    let flags = ["--config", config.to_str().unwrap(), "--capacity", "40MiB", "--resp", "127.0.0.1:0"];
    let server = place.start(&flags);
    assert_eq!(std::fs::metadata(place.region()).unwrap().len(), 40 << 20);
    assert!(server.lines.iter().any(|line| line.starts_with("transport: epoll")), "{:?}", server.lines);
    assert!(place.log().starts_with('{'), "the log is JSON: {}", place.log());
    assert_ne!(server.resp.port(), 0, "the flag wins over \"off\"");
}

#[test]
fn example_configuration_is_accepted() {
    let place = Place::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/landfall.toml");
    let server = place.start(&["--config", example]);
    assert_eq!(server.call(&["PING"]), Reply::Simple("PONG".into()));
}

#[test]
fn unknown_settings_and_bad_values_are_refused_by_name() {
    let place = Place::new();
    let unknown = place.file("unknown.toml", "capacty = \"1GiB\"\n");
    let of_xdp = place.file("xdp.toml", "xdp_mode = \"what\"\n");
    let listens =
        place.file("listens.toml", "files_offload = \"/nowhere/socket\"\nfiles = \"/nowhere/mount\"\n");
    let cases: [(&[&str], &str); 23] = [
        (&["--config", unknown.to_str().unwrap()], "capacty"),
        (&["--config", "/nowhere/landfall.toml"], "/nowhere/landfall.toml"),
        (&["--capacity", "12parsecs"], "12parsecs"),
        (&["--capacity", "1MiB"], "capacity"),
        (&["--transport", "pigeon"], "pigeon"),
        (&["--media", "tape"], "tape"),
        (&["--resp", "localhost:never"], "localhost:never"),
        (&["--workers", "0"], "workers"),
        (&["--password-file", "/nowhere/password"], "/nowhere/password"),
        (&["--max-clients", "0"], "--max-clients"),
        (&["--max-request", "0"], "--max-request"),
        (&["--max-pipeline", "0"], "--max-pipeline"),
        (&["--max-header", "1"], "--max-header"),
        (&["--max-output", "0"], "--max-output"),
        (&["--log-level", "loud"], "loud"),
        (&["--ip", "10.0.0.1/24"], "--ip is for --xdp"),
        (&["--config", of_xdp.to_str().unwrap()], "--xdp-mode is for --xdp"),
        (&["--files-options", "ro"], "--files-options is for the files of --files"),
        (&["--files-commands"], "--files-commands is for the files of --files"),
        (&["--files-offload", "/nowhere/socket", "--files-commands"], "give --files MOUNTPOINT instead"),
        (&["--files-listen", "127.0.0.1:0"], "give --files-offload"),
        (&["--nvdimm"], "give --files-listen"),
        (&["--config", listens.to_str().unwrap()], "a mountpoint is for --files"),
    ];
    for (flags, word) in cases {
        let refused = place.try_start(flags).err().unwrap_or_else(|| panic!("{flags:?} was accepted"));
        assert_ne!(refused.code, Some(0), "{flags:?}");
        assert!(refused.words.contains(word), "{flags:?}: {}", refused.words);
    }
    assert!(!place.region().exists(), "nothing was created");
}

#[test]
fn workers_that_would_leave_no_room_for_writes_are_refused() {
    let place = Place::new();
    let refused = place.try_start(&["--capacity", "64MiB", "--workers", "16"]).err().expect("refused");
    assert!(refused.words.contains("16 workers need a region of 80 MiB"), "{}", refused.words);
    let server = place.start(&["--capacity", "64MiB", "--workers", "12"]);
    assert_eq!(server.call(&["SET", "a", "b"]), ok());
    assert!(server.stop().success());
}

#[test]
fn a_flag_may_need_what_the_configuration_file_has() {
    let place = Place::new();
    let file = place.file("offload.toml", "files_offload = \"offload.sock\"\n");
    let flags = ["--config", file.to_str().unwrap(), "--files-listen", "0.0.0.0:0"];
    let refused = place.try_start(&flags).err().expect("refused");
    assert!(refused.words.contains("--password-file"), "the flag counts: {}", refused.words);
}

#[test]
fn second_server_on_a_directory_is_refused() {
    let place = Place::new();
    let mut first = place.start(&[]);
    let refused = place.try_start(&[]).err().expect("refused");
    assert!(refused.words.contains("another process has this region open"), "{}", refused.words);
    assert!(first.is_running());
    let check = place.check(&[]);
    assert_eq!(check.status.code(), Some(2), "nor is it checked while it is served");
    first.kill();
    assert_eq!(place.start(&[]).call(&["DBSIZE"]), Reply::Int(0), "a dead server's lock is gone");
}

#[test]
fn port_in_use_is_named() {
    let (place, other) = (Place::new(), Place::new());
    let first = place.start(&[]);
    let address = first.resp.to_string();
    let refused = other.try_start(&["--resp", &address]).err().expect("refused");
    assert!(refused.words.contains(&address) && refused.words.contains("listen"), "{}", refused.words);
}

#[test]
fn a_refused_start_makes_no_region_and_grows_none() {
    let (place, other) = (Place::new(), Place::new());
    let first = other.start(&[]);
    let taken = first.resp.to_string();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let (missing, deep, socket) = (path("missing"), path("missing/socket"), path("socket"));
    let cases: [&[&str]; 7] = [
        &["--resp", &taken],
        &["--http", &taken],
        &["--workers", "20"],
        &["--files", &missing],
        &["--files", &missing, "--files-options", "shiny"],
        &["--files-offload", &deep],
        &["--files-offload", &socket, "--files-listen", &taken],
    ];
    let len = || std::fs::metadata(place.region()).ok().map(|region| region.len());
    for flags in cases {
        assert!(place.try_start(flags).is_err(), "{flags:?}");
        assert_eq!(len(), None, "{flags:?}");
    }
    assert_eq!(place.start(&["--capacity", "40MiB"]).call(&["SET", "a", "1"]), ok());
    for flags in cases {
        assert!(place.try_start(&[flags, &["--capacity", "80MiB"]].concat()).is_err(), "{flags:?}");
        assert_eq!(len(), Some(40 << 20), "{flags:?}");
    }
    assert_eq!(place.start(&["--capacity", "80MiB"]).call(&["GET", "a"]), bulk("1"));
    assert_eq!(len(), Some(80 << 20));
}

#[test]
fn addresses_beyond_loopback_need_a_password() {
    let place = Place::new();
    for flag in ["--resp", "--http"] {
        let refused = place.try_start(&[flag, "0.0.0.0:0"]).err().expect("refused");
        assert!(refused.words.contains("password"), "{}", refused.words);
    }
    place.start(&["--resp", "0.0.0.0:0", "--insecure-no-password"]);
    let password = place.file("password", "secret\n");
    place.start(&["--resp", "0.0.0.0:0", "--password-file", password.to_str().unwrap()]);
}

#[test]
fn password_is_needed_over_both_protocols() {
    let place = Place::new();
    let password = place.file("password", "secret\nsecond line\n");
    let server = place.start(&["--password-file", password.to_str().unwrap()]);
    let mut resp = server.resp();
    assert!(error_text(&resp.call(&[b"GET", b"a"]).unwrap()).starts_with("NOAUTH"));
    assert!(error_text(&resp.call(&[b"AUTH", b"wrong"]).unwrap()).starts_with("WRONGPASS"));
    assert_eq!(resp.call(&[b"AUTH", b"secret"]).unwrap(), ok());
    assert_eq!(resp.call(&[b"SET", b"a", b"1"]).unwrap(), ok());
    let mut http = server.http();
    assert_eq!(http.call("GET", "/kv/a", "", b"").unwrap().status, 401);
    let bearer = http.call("GET", "/kv/a", "Authorization: Bearer secret\r\n", b"").unwrap();
    assert_eq!((bearer.status, bearer.body.as_slice()), (200, &b"1"[..]));
    let basic = "Authorization: Basic YW55Ym9keTpzZWNyZXQ=\r\n";
    assert_eq!(http.call("GET", "/kv/a", basic, b"").unwrap().status, 200);
    assert_eq!(http.call("PUT", "/kv/a", "Authorization: Bearer wrong\r\n", b"2").unwrap().status, 401);
}

#[test]
fn larger_capacity_grows_the_region_and_a_smaller_one_leaves_it() {
    let place = Place::new();
    let value = "x".repeat(5000);
    assert_eq!(place.start(&["--capacity", "40MiB"]).call(&["SET", "a", &value]), ok());
    for (capacity, len) in [("80MiB", 80u64 << 20), ("40MiB", 80 << 20)] {
        let server = place.start(&["--capacity", capacity]);
        assert_eq!(server.metric("landfall_region_bytes"), len as f64);
        assert_eq!(server.call(&["GET", "a"]), bulk(&value));
    }
}
