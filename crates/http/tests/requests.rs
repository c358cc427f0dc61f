//! What the parser takes, and what it asks for.

mod support;

use landfall_http::{
    Connection, EntityTags, Limits, Method, Parser, Progress, Request, decode_path, query_pairs,
};
use landfall_media::{Chain, Segment};
use support::{Seen, parse};

#[track_caller]
fn one(bytes: &str) -> Seen {
    let mut got = parse(bytes.as_bytes(), &[], Limits::default());
    assert_eq!(got.error, None, "{bytes:?}");
    assert_eq!((got.requests.len(), got.end), (1, bytes.len()), "{bytes:?}");
    got.requests.remove(0)
}

fn next(parser: &mut Parser, bytes: &[u8]) -> Progress {
    parser.next(&Chain::new(&[Segment::new(0, bytes)]), 0).unwrap()
}

fn request(bytes: &str) -> Request {
    match next(&mut Parser::new(Limits::default()), bytes.as_bytes()) {
        Progress::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_has_method_path_query_and_headers() {
    let got =
        request("PUT /a%2Fb?ttl=10&x HTTP/1.1\r\nHost: h\r\nIf-Match: \"1\"\r\nif-match: \"2\"\r\n\r\n");
    assert_eq!(got.method, Method::Put);
    assert_eq!(decode_path(got.path()).as_deref(), Ok(&b"/a/b"[..]));
    assert_eq!(query_pairs(got.query().unwrap()).unwrap().len(), 2);
    assert_eq!(got.header("IF-MATCH"), Some(&b"\"1\""[..]));
    assert_eq!(got.header("absent"), None);
    let tags = EntityTags::parse(got.header_values("if-match")).unwrap();
    assert!(tags.matches_strong(Some(b"2")));
}

#[test]
fn targets_may_be_in_origin_absolute_or_asterisk_form() {
    for (target, path, query) in [
        ("/", "/", None),
        ("/a?", "/a", Some("")),
        ("/a?b?c", "/a", Some("b?c")),
        ("http://h:80/a?b", "/a", Some("b")),
        ("HTTPS://[::1]", "/", None),
        ("http://h?b", "/", Some("b")),
    ] {
        let got = one(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(got.path, path.as_bytes(), "{target}");
        assert_eq!(got.query.as_deref(), query.map(str::as_bytes), "{target}");
    }
    assert_eq!(one("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").path, b"*");
}

#[test]
fn a_body_of_known_length_is_one_range() {
    let got = request("PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(got.body.as_slice(), std::slice::from_ref(&(got.end - 5..got.end)));
    assert_eq!(got.body_len, 5);
    for length in ["5, 5", "005", "5\r\nContent-Length: 5"] {
        let bytes = format!("PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\nhello");
        assert_eq!(one(&bytes).body(), b"hello");
    }
}

#[test]
fn a_chunked_body_is_one_range_a_chunk() {
    let got = one("PUT /k HTTP/1.1\r\nHost: h\r\ntransfer-encoding: Chunked\r\n\r\n\
         5\r\nhello\r\n0A ; a=\"b c\";d\r\n, world...\r\n00\r\nX-Sum: 1\r\nY:\r\n\r\n");
    assert_eq!(got.chunks, [b"hello".to_vec(), b", world...".to_vec()]);
    assert!(got.headers.iter().all(|(name, _)| name != b"X-Sum"), "trailers are dropped");
    assert!(
        one("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").chunks.is_empty()
    );
}

#[test]
fn requests_may_be_pipelined_and_preceded_by_empty_lines() {
    let bytes = "\r\n\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n\r\nPUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\
                 DELETE /c HTTP/1.1\r\nHost: h\r\n\r\n";
    let got = parse(bytes.as_bytes(), &[], Limits::default());
    assert_eq!((got.error, got.end), (None, bytes.len()));
    let paths: Vec<&[u8]> = got.requests.iter().map(|r| &r.path[..]).collect();
    assert_eq!(paths, [b"/a", b"/b", b"/c"]);
}

#[test]
fn connections_are_kept_as_version_and_options_say() {
    for (version, option, want) in [
        ("1.1", "", Connection::Implied),
        ("1.1", "Connection: Close\r\n", Connection::Close),
        ("1.1", "Connection: keep-alive\r\nConnection: te, close\r\n", Connection::Close),
        ("1.0", "", Connection::Close),
        ("1.0", "Connection: x, Keep-Alive\r\n", Connection::KeepAlive),
        ("1.0", "Connection: keep-alive, close\r\n", Connection::Close),
    ] {
        let got = request(&format!("GET / HTTP/{version}\r\nHost: h\r\n{option}\r\n"));
        assert_eq!(got.connection(), want, "{version} {option:?}");
        assert_eq!(got.keep_alive, want != Connection::Close);
    }
    assert!(!one("GET / HTTP/1.0\r\n\r\n").keep_alive, "HTTP/1.0 needs no Host");
}

#[test]
fn a_client_that_waits_for_permission_gets_it_once() {
    let head = "PUT /k HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
    for (head, body) in [
        (head.to_owned(), "ab"),
        (head.replace("Content-Length: 2", "Transfer-Encoding: chunked"), "1\r\na\r\n0\r\n\r\n"),
    ] {
        let mut parser = Parser::new(Limits::default());
        assert!(matches!(next(&mut parser, head.as_bytes()), Progress::AwaitsBody { wants_continue: true }));
        assert_eq!(parser.head().map(Request::path), Some(&b"/k"[..]));
        assert!(matches!(next(&mut parser, head.as_bytes()), Progress::NeedMore));
        assert!(matches!(next(&mut parser, (head + body).as_bytes()), Progress::Request(_)));
    }
}

#[test]
fn permission_is_not_given_to_a_body_that_has_begun_or_is_absent() {
    let head = "PUT /k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    assert!(matches!(
        next(&mut Parser::new(Limits::default()), format!("{head}a").as_bytes()),
        Progress::AwaitsBody { wants_continue: false }
    ));
    request(&head.replace("Content-Length: 2", "Content-Length: 0"));
    let old = head.replace("HTTP/1.1", "HTTP/1.0");
    let awaits = Progress::AwaitsBody { wants_continue: false };
    let got = next(&mut Parser::new(Limits::default()), old.as_bytes());
    assert_eq!(format!("{got:?}"), format!("{awaits:?}"));
}

#[test]
fn the_caller_is_asked_about_a_body_before_it_is_there_once_and_can_refuse_it() {
    let head = "PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n";
    let mut parser = Parser::new(Limits::default());
    let first = format!("{head}ab");
    assert!(matches!(next(&mut parser, first.as_bytes()), Progress::AwaitsBody { wants_continue: false }));
    assert_eq!(parser.head().map(Request::path), Some(&b"/k"[..]));
    assert_eq!(parser.len_known(), Some(head.len() + 4));
    parser.refuse_body();
    assert!(matches!(next(&mut parser, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), Progress::Request(_)));
    // One that is all there at once is yielded at once.
    assert!(matches!(next(&mut parser, format!("{head}abcd").as_bytes()), Progress::Request(_)));
}

#[test]
fn waiting_for_a_long_body_reads_nothing_again() {
    let mut parser = Parser::new(Limits::default());
    let head = b"PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 536870912\r\n\r\n";
    assert!(matches!(next(&mut parser, head), Progress::AwaitsBody { .. }));
    assert!(matches!(next(&mut parser, head), Progress::NeedMore));
    assert_eq!(parser.bytes_wanted(), head.len() + (512 << 20));
    // Bytes that would be refused if they were looked at.
    assert!(matches!(next(&mut parser, &[b'\n'; 4096]), Progress::NeedMore));
}

#[test]
fn a_body_is_yielded_where_it_lies() {
    let segments = [
        Segment::new(4096, b"PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe"),
        Segment::new(9000, b"llo"),
    ];
    let chain = Chain::new(&segments);
    let Ok(Progress::Request(request)) = Parser::new(Limits::default()).next(&chain, 0) else { panic!() };
    let mut extents = Vec::new();
    chain.extents(request.body[0].clone(), |e| extents.push((e.off, e.len())));
    assert_eq!(extents, [(4096 + 47, 2), (9000, 3)]);
}
