use super::*;
use landfall_fuse::{Attr, Entry, Node, Open, Read, ReadDir, SetAttr};
use std::ffi::OsStr;

const NOW: Duration = Duration::from_secs(100);
const DIRECTORY: u64 = 1;
const FILE: u64 = 7;
const OTHER: u64 = 8;
const UNIQUE: Unique = Unique(42);
const SERVER: u64 = 3;

fn heard(reply: &[u8], is_marked: bool) -> Heard<'_> {
    Heard { reply, is_marked, server: SERVER }
}

/// A cache with leases that hold.
fn cache() -> Cache {
    let cache = Cache::new(1 << 20, 2, 0);
    cache.begin_server(SERVER);
    cache.asked(1, 0, NOW);
    cache.asked(2, 1, NOW);
    cache
}

fn request(node: u64, op: Op<'_>) -> Request<'_> {
    Request {
        unique: UNIQUE,
        opcode: 0,
        node: Node(node),
        uid: 0,
        gid: 0,
        pid: 0,
        supplementary_group: None,
        op,
    }
}

fn look_up(name: &str) -> Request<'_> {
    request(DIRECTORY, Op::Lookup { name: OsStr::new(name) })
}

fn unlink(name: &str) -> Request<'_> {
    request(DIRECTORY, Op::Unlink { name: OsStr::new(name) })
}

fn get_attr(node: u64) -> Request<'static> {
    request(node, Op::GetAttr { fh: None })
}

fn set_attr(node: u64) -> Request<'static> {
    request(node, Op::SetAttr(SetAttr::default()))
}

fn read(offset: u64, size: u32) -> Request<'static> {
    request(FILE, Op::Read(Read { fh: Handle(1), offset, size, lock_owner: None, flags: 0 }))
}

/// The server's answer to a LOOKUP, of a file with so many bytes.
fn entry(node: u64, size: u64) -> Vec<u8> {
    let attr = Attr { ino: node, size, ..Attr::default() };
    let entry = Entry { node: Node(node), attr, ..Entry::default() };
    Reply::entry(UNIQUE, &entry).as_bytes().to_vec()
}

fn none() -> Vec<u8> {
    Reply::no_entry(UNIQUE, Duration::ZERO).as_bytes().to_vec()
}

fn attr(node: u64, size: u64) -> Vec<u8> {
    Reply::attr(UNIQUE, &Attr { ino: node, size, ..Attr::default() }, Duration::ZERO).as_bytes().to_vec()
}

fn data(bytes: &[u8]) -> Vec<u8> {
    [Reply::data(UNIQUE, bytes.len()).as_bytes(), bytes].concat()
}

/// What is answered without the server.
#[track_caller]
fn answered(cache: &Cache, request: &Request<'_>) -> Option<Vec<u8>> {
    match cache.begin(0, request, NOW) {
        Begun::Answer(answer) => Some(answer.bytes()),
        Begun::Ask { .. } => {
            cache.end(0, request, None);
            None
        }
    }
}

/// The server is asked, and answers so.
#[track_caller]
fn ask(cache: &Cache, request: &Request<'_>, reply: &[u8]) {
    assert!(matches!(cache.begin(0, request, NOW), Begun::Ask { .. }));
    cache.end(0, request, Some(heard(reply, true)));
}

#[test]
fn what_the_server_has_said_is_answered_as_it_has_answered() {
    let cache = cache();
    ask(&cache, &get_attr(DIRECTORY), &attr(DIRECTORY, 0));
    ask(&cache, &look_up("a"), &entry(FILE, 10));
    ask(&cache, &look_up("b"), &none());
    ask(&cache, &read(0, 4), &data(b"0123456789"));
    let link = request(FILE, Op::ReadLink);
    ask(&cache, &link, &data(b"target"));
    let list = request(DIRECTORY, Op::ReadDir(ReadDir { fh: Handle(1), offset: 0, size: 99 }));
    ask(&cache, &list, &data(b"entries"));
    let get = |name| request(FILE, Op::GetXattr { name: OsStr::new(name), size: 9 });
    let no_data = Reply::error(UNIQUE, Errno::from_raw(libc::ENODATA)).as_bytes().to_vec();
    ask(&cache, &get("user.a"), &no_data);
    let failed = Reply::error(UNIQUE, Errno::IO).as_bytes().to_vec();
    ask(&cache, &get("user.b"), &failed);
    for (request, reply) in [
        (look_up("a"), entry(FILE, 10)),
        (look_up("b"), none()),
        (get_attr(FILE), attr(FILE, 10)),
        (read(3, 4), data(b"3456")),
        (read(3, 400), data(b"3456789")),
        (read(10, 4), data(b"")),
        (link, data(b"target")),
        (list, data(b"entries")),
        (get("user.a"), no_data),
    ] {
        assert_eq!(answered(&cache, &request), Some(reply), "{:?}", request.op);
    }
    assert_eq!(answered(&cache, &get("user.b")), None, "the next one may succeed");
    assert_eq!(answered(&cache, &look_up("c")), None);
    let open = Open { flags: 0, kill_suid_gid: false };
    assert!(answered(&cache, &request(FILE, Op::Open(open))).is_some());
    assert!(answered(&cache, &request(OTHER, Op::Open(open))).is_none(), "nobody knows whether it is there");
}

#[test]
fn what_is_not_marked_or_was_recalled_on_its_way_is_not_kept() {
    let cache = cache();
    let begin = |request: &Request<'_>| assert!(matches!(cache.begin(0, request, NOW), Begun::Ask { .. }));
    begin(&get_attr(FILE));
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), false)));
    assert_eq!(answered(&cache, &get_attr(FILE)), None);
    begin(&get_attr(FILE));
    cache.recall(&[OTHER, FILE]);
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), true)));
    assert_eq!(answered(&cache, &get_attr(FILE)), None);
    begin(&look_up("a"));
    cache.recall(&[FILE]);
    cache.end(0, &look_up("a"), Some(heard(&entry(FILE, 1), true)));
    assert_eq!(answered(&cache, &look_up("a")), None);
    begin(&get_attr(FILE));
    (100..200).for_each(|other| cache.recall(&[other]));
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), true)));
    assert_eq!(answered(&cache, &get_attr(FILE)), None, "they were not counted");
    ask(&cache, &get_attr(FILE), &attr(FILE, 1));
    assert!(answered(&cache, &get_attr(FILE)).is_some());
    cache.recall(&[FILE]);
    assert_eq!(answered(&cache, &get_attr(FILE)), None);
}

#[test]
fn nobody_is_told_of_what_is_being_changed_and_it_is_dropped() {
    let cache = cache();
    ask(&cache, &get_attr(FILE), &attr(FILE, 1));
    let change = set_attr(FILE);
    assert!(matches!(cache.begin(1, &change, NOW), Begun::Ask { .. }));
    assert_eq!(answered(&cache, &get_attr(FILE)), None);
    assert!(matches!(cache.begin(0, &get_attr(FILE), NOW), Begun::Ask { .. }));
    cache.end(1, &change, Some(heard(&attr(FILE, 2), false)));
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), true)));
    assert_eq!(answered(&cache, &get_attr(FILE)), None, "it was asked before the change was done");
}

/// A file with two names, of which one is removed, while the directory is changed by others or not.
fn removed(knows_name: bool, is_recalled: bool, is_marked: bool) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let cache = cache();
    match knows_name {
        true => ask(&cache, &look_up("a"), &entry(FILE, 1)),
        false => ask(&cache, &get_attr(FILE), &attr(FILE, 1)),
    }
    ask(&cache, &get_attr(OTHER), &attr(OTHER, 1));
    assert!(matches!(cache.begin(1, &unlink("a"), NOW), Begun::Ask { .. }));
    if is_recalled {
        cache.recall(&[DIRECTORY]);
        assert_eq!(answered(&cache, &get_attr(OTHER)), None, "this may be what is removed");
    }
    cache.end(1, &unlink("a"), Some(heard(Reply::ok(UNIQUE).as_bytes(), is_marked)));
    (answered(&cache, &get_attr(FILE)), answered(&cache, &get_attr(OTHER)))
}

#[test]
fn what_a_removed_name_has_led_to_is_dropped_or_all() {
    let (gone, kept) = removed(true, false, true);
    assert!(gone.is_none() && kept.is_some());
    assert_eq!(removed(true, true, true), (None, None));
    assert_eq!(removed(false, false, true), (None, None));
    let (_, kept) = removed(false, false, false);
    assert!(kept.is_some(), "nothing was kept of what was removed");
}

#[test]
fn nothing_is_answered_after_the_term_and_nothing_kept_before_it_ended() {
    let cache = cache();
    ask(&cache, &get_attr(FILE), &attr(FILE, 1));
    let late = NOW + Duration::from_secs(1);
    assert!(matches!(cache.begin(0, &get_attr(FILE), late), Begun::Ask { .. }));
    cache.asked(3, 2, late);
    cache.asked(4, 3, late);
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), true)));
    assert!(matches!(cache.begin(0, &get_attr(FILE), late), Begun::Ask { .. }), "it was asked before");
    cache.end(0, &get_attr(FILE), Some(heard(&attr(FILE, 1), true)));
    assert!(matches!(cache.begin(0, &get_attr(FILE), late), Begun::Answer(_)));
    cache.end_server();
    assert!(matches!(cache.begin(0, &get_attr(FILE), late), Begun::Ask { .. }));
}

#[test]
fn the_server_hears_of_the_lookups_that_it_has_counted() {
    let cache = cache();
    ask(&cache, &get_attr(DIRECTORY), &attr(DIRECTORY, 0));
    ask(&cache, &look_up("a"), &entry(FILE, 10));
    assert!((0..3).all(|_| answered(&cache, &look_up("a")).is_some()));
    assert_eq!((cache.forget(SERVER, FILE, 2), cache.forget(SERVER, FILE, 2)), (None, Some(1)));
    assert_eq!(answered(&cache, &look_up("a")), None, "the server may delete it");
    ask(&cache, &look_up("a"), &entry(FILE, 10));
    assert!(answered(&cache, &look_up("a")).is_some());
    let next = SERVER + 1;
    cache.begin_server(next);
    assert_eq!(cache.forget(next, FILE, 1), None, "it has counted none, and the kernel knows more");
    assert_eq!(cache.forget(next, FILE, 1), Some(0), "it may have given a lease");
    // One is answered by a server that has ended since.
    assert!(matches!(cache.begin(0, &look_up("a"), NOW), Begun::Ask { .. }));
    cache.end(0, &look_up("a"), Some(Heard { reply: &entry(FILE, 1), is_marked: true, server: SERVER }));
    assert_eq!(cache.forget(SERVER, FILE, 0), None);
    assert_eq!(cache.forget(next, FILE, 1), Some(0));
}

#[test]
fn an_inode_is_known_until_the_kernel_has_forgotten_all_lookups_of_it_whichever_server_has_counted_them() {
    let cache = cache();
    ask(&cache, &look_up("a"), &entry(FILE, 10));
    assert_eq!(cache.unknown(&[OTHER, FILE, DIRECTORY]), [OTHER, DIRECTORY]);
    let next = SERVER + 1;
    cache.begin_server(next);
    ask(&cache, &look_up("a"), &entry(FILE, 10));
    assert_eq!(cache.forget(next, FILE, 1), None, "the kernel has it open");
    assert!(cache.unknown(&[FILE]).is_empty());
    // While there is no server.
    assert_eq!(cache.forget(0, FILE, 1), None);
    assert_eq!(cache.unknown(&[FILE]), [FILE]);
}

#[test]
fn short_reads_one_after_the_other_ask_for_more() {
    let cache = cache();
    let asks = |request: &Request<'_>| match cache.begin(1, request, NOW) {
        Begun::Ask { read_bytes } => read_bytes,
        Begun::Answer(_) => panic!("nothing is kept"),
    };
    assert_eq!(asks(&read(0, 4096)), None, "nobody knows how long it is");
    ask(&cache, &get_attr(FILE), &attr(FILE, 1 << 17));
    assert_eq!(asks(&read(0, 4096)), Some(AHEAD_BYTES));
    assert_eq!(asks(&read(8192, 4096)), None);
    assert_eq!(asks(&read(0, 1 << 18)), None);
    ask(&cache, &read(0, 4096), &data(&[1; 8192]));
    assert!(answered(&cache, &read(4096, 4096)).is_some());
    assert_eq!(asks(&read(8192, 4096)), Some(AHEAD_BYTES));
    let nothing = Cache::new(0, 2, 0);
    ask(&nothing, &get_attr(FILE), &attr(FILE, 1));
    ask(&nothing, &get_attr(FILE), &attr(FILE, 1));
}

#[test]
fn names_of_attributes_are_not_told_to_others() {
    let (cache, mut list) = (cache(), request(FILE, Op::ListXattr { size: 99 }));
    ask(&cache, &list, &data(b"trusted.a\0"));
    assert!(answered(&cache, &list).is_some());
    list.uid = 1000;
    assert_eq!(answered(&cache, &list), None);
}

#[test]
fn a_change_that_has_changed_more_than_it_names_drops_all() {
    for is_marked in [false, true] {
        let cache = cache();
        ask(&cache, &get_attr(FILE), &attr(FILE, 1));
        let name = OsStr::new("a");
        let make = request(DIRECTORY, Op::MkDir { name, mode: 0, umask: 0 });
        assert!(matches!(cache.begin(0, &make, NOW), Begun::Ask { .. }));
        cache.end(0, &make, Some(heard(&entry(OTHER, 0), is_marked)));
        assert_eq!(answered(&cache, &get_attr(FILE)).is_some(), !is_marked);
    }
}
