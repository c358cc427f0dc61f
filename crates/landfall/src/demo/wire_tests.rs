//! Responses as the clients read them. Apart from `wire.rs`, which each program of tests has for itself.

use super::wire::read_response;
use std::io;

fn read(mut bytes: &[u8]) -> io::Result<(u16, Vec<u8>, usize)> {
    let mut body = Vec::new();
    let status = read_response(&mut bytes, &mut body)?;
    Ok((status, body, bytes.len()))
}

#[test]
fn bodies_with_a_length_and_in_chunks_are_read_to_their_end() {
    let fixed = read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcNEXT").unwrap();
    assert_eq!(fixed, (200, b"abc".to_vec(), 4));
    let none = read(b"HTTP/1.1 204 No Content\r\n\r\nNEXT").unwrap();
    assert_eq!(none, (204, Vec::new(), 4));
    let chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0000000a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\nNEXT";
    assert_eq!(read(chunks).unwrap(), (200, b"0123456789x".to_vec(), 4));
}

#[test]
fn a_body_cut_short_is_an_error() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"",
    ] {
        assert!(read(bytes).is_err(), "{}", bytes.escape_ascii());
    }
}
