//! What the parser refuses, and with which status: above all what could be read in two ways.

mod support;

use landfall_http::{Limits, TRAILER_BYTES_MAX};
use support::parse;

#[track_caller]
fn assert_status(bytes: &str, status: u16) {
    let error = parse(bytes.as_bytes(), &[], Limits::default()).error;
    assert_eq!(error.map(|e| e.status), Some(status), "{bytes:?}: {error:?}");
    assert!(error.is_some_and(|e| e.close));
}

/// A PUT with these header lines and this body.
fn put(headers: &str, body: &str) -> String {
    format!("PUT /k HTTP/1.1\r\nHost: h\r\n{headers}\r\n\r\n{body}")
}

fn chunked(body: &str) -> String {
    put("Transfer-Encoding: chunked", body)
}

#[test]
fn two_framings_are_refused() {
    assert_status(&put("Content-Length: 5\r\nTransfer-Encoding: chunked", ""), 400);
    assert_status(&put("Transfer-Encoding: chunked\r\nContent-Length: 0", ""), 400);
    assert_status(&put("Transfer-Encoding: identity\r\nContent-Length: 0", ""), 400);
    assert_status("PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400);
}

#[test]
fn malformed_lengths_are_refused() {
    for length in [
        "",
        "a",
        "-1",
        "+1",
        "0x1",
        "1 1",
        "1,",
        ",1",
        "1, 2",
        "1\r\nContent-Length: 2",
        "1;",
        "1.0",
        "\u{0661}",
    ] {
        assert_status(&put(&format!("Content-Length: {length}"), ""), 400);
    }
}

#[test]
fn lengths_above_the_limit_are_too_large() {
    for length in ["536870913", "18446744073709551615", "18446744073709551616", "99999999999999999999999999"]
    {
        assert_status(&put(&format!("Content-Length: {length}"), ""), 413);
    }
}

#[test]
fn transfer_codings_other_than_chunked_are_not_implemented() {
    for coding in
        ["gzip", "identity", "gzip, chunked", "chunked, chunked", "chunked;q=1", "xchunked", "\"chunked\""]
    {
        assert_status(&put(&format!("Transfer-Encoding: {coding}"), ""), 501);
    }
    assert_status(&put("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip", ""), 501);
    assert_status(&put("Transfer-Encoding:", ""), 400);
    assert_status(&put("Transfer-Encoding: chunked\x0b", ""), 400);
}

#[test]
fn header_lines_that_others_may_read_differently_are_refused() {
    for header in [
        "A: b\r\n folded: c",
        " A: b",
        "Content-Length : 5",
        "Content-Length\t: 5",
        "Content Length: 5",
        ": 5",
        "NoColon",
        "A: b\rC: d",
        "A: b\nC: d",
        "A: b\0",
        "A\0: b",
        "A: b\x7f",
        "A: b\r\r\nC: d",
    ] {
        assert_status(&put(header, ""), 400);
    }
}

#[test]
fn malformed_request_lines_are_refused() {
    for line in [
        "GET",
        "GET /",
        "GET  / HTTP/1.1",
        "GET / HTTP/1.1 ",
        " GET / HTTP/1.1",
        "GET /\tHTTP/1.1",
        "G(T / HTTP/1.1",
        "GET / http/1.1",
        "GET / FTP/1.1",
        "GET / HTTP/11",
        "GET /a b HTTP/1.1",
        "GET /a\rb HTTP/1.1",
    ] {
        assert_status(&format!("{line}\r\nHost: h\r\n\r\n"), 400);
    }
    assert_status("GET / HTTP/1.1\nHost: h\n\n", 400);
    assert_status("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400);
}

#[test]
fn other_versions_are_not_supported() {
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.0"] {
        assert_status(&format!("GET / {version}\r\nHost: h\r\n\r\n"), 505);
    }
    assert_status("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
}

#[test]
fn malformed_targets_are_refused() {
    for target in
        ["*", "a", "h:80", "ftp://h/", "http:///a", "http://u@h/", "http://", "/a#b", "?a", "//h\u{7f}"]
    {
        assert_status(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    }
    assert_status("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 501);
}

#[test]
fn one_well_formed_host_is_wanted() {
    assert_status("GET / HTTP/1.1\r\n\r\n", 400);
    assert_status("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400);
    assert_status("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", 400);
    for host in ["a b", "a/b", "u@h", "a?b", "\u{e9}"] {
        assert_status(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), 400);
    }
}

#[test]
fn unknown_expectations_are_refused() {
    assert_status(&put("Expect: 200-ok\r\nContent-Length: 1", ""), 417);
    assert_status(&put("Expect: 100-continue, x\r\nContent-Length: 1", ""), 417);
}

#[test]
fn malformed_chunks_are_refused() {
    for body in [
        "\r\n",
        "g\r\n",
        " 5\r\nhello\r\n",
        "+5\r\nhello\r\n",
        "0x5\r\nhello\r\n",
        "5 \r\nhello\r\n",
        "5 x\r\nhello\r\n",
        "5\nhello\r\n",
        "5\r\nhello\n\n",
        "5\r\nhello!\r\n",
        "5;a\rb\r\nhello\r\n",
        "5;\x01\r\nhello\r\n",
        "-5\r\n",
        "00000000000000005\r\nhello\r\n",
        "10000000000000000\r\n",
    ] {
        assert_status(&chunked(body), 400);
    }
}

#[test]
fn chunks_above_the_limit_are_too_large() {
    assert_status(&chunked("20000001\r\n"), 413);
    assert_status(&chunked("ffffffffffffffff\r\n"), 413);
    assert_status(&chunked("1\r\na\r\n20000000\r\n"), 413);
}

#[test]
fn chunk_extensions_are_bounded_by_line_and_by_body() {
    assert_status(&chunked(&format!("1;{}\r\na\r\n", "x".repeat(1024))), 400);
    let chunk = format!("1;{}\r\na\r\n", "x".repeat(1000));
    assert!(parse(chunked(&chunk.repeat(16)).as_bytes(), &[], Limits::default()).error.is_none());
    assert_status(&chunked(&chunk.repeat(17)), 400);
}

#[test]
fn trailers_are_checked_and_bounded() {
    for trailer in ["A : b", " A: b", "A: b\r\n c", "A", "A: \0", "A: b\rc"] {
        assert_status(&chunked(&format!("0\r\n{trailer}\r\n\r\n")), 400);
    }
    assert_status(&chunked(&format!("0\r\nA: {}", "x".repeat(TRAILER_BYTES_MAX))), 431);
    assert_status(&chunked(&format!("0\r\n{}\r\n", "A: b\r\n".repeat(101))), 431);
}

#[test]
fn heads_are_bounded() {
    assert_status(&format!("GET /{}", "a".repeat(64 << 10)), 414);
    assert_status(&put(&format!("A: {}", "a".repeat(64 << 10)), ""), 431);
    assert_status(&put(&"A: b\r\n".repeat(20_000), ""), 431);
    assert_status(&put("A: b\r\n".repeat(100).trim_end(), ""), 431);
    assert!(
        parse(put("A: b\r\n".repeat(99).trim_end(), "").as_bytes(), &[], Limits::default()).error.is_none()
    );
}

#[test]
fn paths_are_bounded_by_their_decoded_length() {
    let limits = Limits { key_bytes_max: 10, ..Limits::default() };
    let status = |path: &str| {
        let bytes = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        parse(bytes.as_bytes(), &[], limits).error.map(|e| e.status)
    };
    assert_eq!(status("/123456789?a-long-query"), None);
    assert_eq!(status("/%31%32%33%34%35%36%37%38%39"), None);
    assert_eq!(status("/1234567890"), Some(414));
}
