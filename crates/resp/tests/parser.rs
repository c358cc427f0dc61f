//! What the parser accepts, refuses and asks for.

mod support;

use landfall_media::{Chain, Segment};
use landfall_resp::{Command, Limits, Parser, ProtocolError};
use support::{encode, parse};

fn chain_of(bytes: &[u8], check: impl FnOnce(&Chain<'_>)) {
    check(&Chain::new(&[Segment::new(0, bytes)]));
}

#[track_caller]
fn assert_commands(bytes: &[u8], want: &[&[&str]]) {
    let got = parse(bytes, &[], Limits::default());
    assert_eq!(got.error, None);
    let want: Vec<Vec<Vec<u8>>> =
        want.iter().map(|args| args.iter().map(|arg| arg.as_bytes().to_vec()).collect()).collect();
    assert_eq!(got.commands, want);
}

#[track_caller]
fn assert_refused(bytes: &[u8], text: &str) {
    let error = parse(bytes, &[], Limits::default()).error;
    assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(text), "{}", bytes.escape_ascii());
}

#[test]
fn arrays_of_bulk_strings_are_commands() {
    assert_commands(b"*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
    assert_commands(b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n", &[&["SET", "", "a\r\nb"]]);
}

#[test]
fn commands_may_be_pipelined_in_both_forms() {
    assert_commands(b"PING\r\n*1\r\n$4\r\nQUIT\r\nget k\n", &[&["PING"], &["QUIT"], &["get", "k"]]);
}

#[test]
fn a_look_ahead_sees_whole_usual_commands_and_remembers_nothing() {
    let mut parser = Parser::new(Limits::default());
    let mut command = Command::default();
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\nPING\r\n*1\r\n$4\r\nPI";
    chain_of(bytes, |chain| {
        assert!(parser.look_into(chain, 0, &mut command));
        assert_eq!((command.args.len(), command.end), (2, 20));
        assert!(parser.look_into(chain, 20, &mut command), "whatever was looked at before");
        assert_eq!((command.args.len(), command.end), (1, 34));
        assert!(!parser.look_into(chain, 34, &mut command), "inline commands are not usual");
        assert!(!parser.look_into(chain, 40, &mut command), "it is not whole");
        assert!(parser.look_into(chain, 0, &mut command));
        // What has begun is remembered, and taken by whoever remembers it.
        assert_eq!(parser.next(chain, 40), Ok(None));
        assert!(!parser.look_into(chain, 0, &mut command));
    });
    let mut stranger = Parser::new(Limits::default());
    stranger.set_authenticated(false);
    chain_of(bytes, |chain| assert!(!stranger.look_into(chain, 0, &mut command)));
}

#[test]
fn empty_commands_are_skipped() {
    assert_commands(b"\r\n*0\r\n\n*-1\r\n  \r\n*-7\r\nPING\r\n", &[&["PING"]]);
}

#[test]
fn skipped_bytes_can_be_dropped_while_waiting() {
    let mut parser = Parser::new(Limits::default());
    let bytes = b"\r\n*0\r\n*2\r\n$3\r\nGET\r\n$2\r\nkk\r\n";
    chain_of(&bytes[..bytes.len() - 3], |chain| assert_eq!(parser.next(chain, 0), Ok(None)));
    assert_eq!(parser.bytes_wanted(), bytes.len());
    assert_eq!(parser.take_skipped(), 6);
    assert_eq!((parser.take_skipped(), parser.bytes_wanted()), (0, bytes.len() - 6));
    chain_of(&bytes[6..], |chain| {
        let command = parser.next(chain, 0).unwrap().unwrap();
        assert_eq!([command.args[0].range(), command.args[1].range()], [Some(8..11), Some(17..19)]);
        assert_eq!(command.end, chain.len());
    });
}

#[test]
fn malformed_counts_are_refused_in_the_words_of_redis() {
    for count in ["", "a", "01", "+1", "-0", "1 ", " 1", "1.0", "1048577", "9223372036854775808"] {
        assert_refused(format!("*{count}\r\n").as_bytes(), "Protocol error: invalid multibulk length");
    }
    for count in ["", "a", "-1", "00", "536870913", "99999999999999999999999"] {
        assert_refused(format!("*1\r\n${count}\r\n").as_bytes(), "Protocol error: invalid bulk length");
    }
    assert_refused(b"*1\rX$4\r\n", "Protocol error: invalid multibulk length");
    assert_refused(b"*1\r\n$4\rX", "Protocol error: invalid bulk length");
}

#[test]
fn elements_other_than_bulk_strings_are_refused() {
    assert_refused(b"*1\r\nx4\r\n", "Protocol error: expected '$', got 'x'");
    assert_refused(b"*1\r\n:4\r\n", "Protocol error: expected '$', got ':'");
    assert_refused(b"*2\r\n$1\r\na\r\n\r\n", "Protocol error: expected '$', got '\r'");
}

#[test]
fn a_bulk_string_that_is_longer_than_it_says_is_refused() {
    assert_refused(b"*1\r\n$4\r\nPINGS\r\n", "Protocol error: expected CRLF after bulk");
    assert_refused(b"*1\r\n$4\r\nPING\n\n", "Protocol error: expected CRLF after bulk");
}

#[test]
fn lines_without_end_are_refused_at_the_limit() {
    let long = "1".repeat(64 << 10);
    assert_refused(format!("*{long}1").as_bytes(), "Protocol error: too big mbulk count string");
    assert_refused(format!("*1\r\n${long}1").as_bytes(), "Protocol error: too big bulk count string");
    assert_refused(format!("{long}1").as_bytes(), "Protocol error: too big inline request");
    assert_refused(format!("{long}1\n").as_bytes(), "Protocol error: too big inline request");
    assert_commands(format!("{long}\n").as_bytes(), &[&[&long]]);
}

#[test]
fn unbalanced_quotes_are_refused() {
    assert_refused(b"set k \"v\r\n", "Protocol error: unbalanced quotes in request");
}

#[test]
fn clients_that_have_not_authenticated_are_held_to_less() {
    let next = |bytes: &[u8], authenticated| {
        let mut parser = Parser::new(Limits::default());
        parser.set_authenticated(authenticated);
        parser.next(&Chain::new(&[Segment::new(0, bytes)]), 0)
    };
    let many = encode(&vec![b"x".to_vec(); 11]);
    let long = encode(&[vec![b'x'; 16385]]);
    assert_eq!(next(&many, false), Err(ProtocolError::UnauthenticatedMultibulkLength));
    assert_eq!(next(&long, false), Err(ProtocolError::UnauthenticatedBulkLength));
    for bytes in [&many, &long] {
        assert!(matches!(next(bytes, true), Ok(Some(_))));
    }
    for bytes in [encode(&vec![b"x".to_vec(); 10]), encode(&[vec![b'x'; 16384]])] {
        assert!(matches!(next(&bytes, false), Ok(Some(_))));
    }
    let text = ProtocolError::UnauthenticatedBulkLength.to_string();
    assert_eq!(text, "Protocol error: unauthenticated bulk length");
}

#[test]
fn a_value_is_yielded_where_it_lies() {
    let segments = [Segment::new(4096, b"*2\r\n$3\r\nGET\r\n$5\r\nhe"), Segment::new(9000, b"llo\r\n")];
    let chain = Chain::new(&segments);
    let command = Parser::new(Limits::default()).next(&chain, 0).unwrap().unwrap();
    let mut extents = Vec::new();
    chain.extents(command.args[1].range().unwrap(), |e| extents.push((e.off, e.len())));
    assert_eq!(extents, [(4096 + 17, 2), (9000, 3)]);
}

#[test]
fn waiting_for_a_long_value_reads_nothing_again() {
    let mut parser = Parser::new(Limits::default());
    let header = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n";
    chain_of(header, |chain| assert_eq!(parser.next(chain, 0), Ok(None)));
    let wanted = header.len() + (512 << 20) + 2;
    assert_eq!(parser.bytes_wanted(), wanted);
    // Bytes that would be refused if they were looked at: the wait is over at `wanted` and not before.
    chain_of(&[b'#'; 4096], |chain| assert_eq!(parser.next(chain, 0), Ok(None)));
    assert_eq!(parser.bytes_wanted(), wanted);
}

#[test]
fn a_parser_goes_on_when_the_bytes_before_the_command_are_dropped() {
    let bytes = b"PING\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let mut parser = Parser::new(Limits::default());
    chain_of(&bytes[..17], |chain| {
        assert_eq!(parser.next(chain, 0).unwrap().unwrap().end, 6);
        assert_eq!(parser.next(chain, 6), Ok(None));
    });
    chain_of(&bytes[6..], |chain| {
        let command = parser.next(chain, 0).unwrap().unwrap();
        assert_eq!([command.args[0].range(), command.args[1].range()], [Some(8..11), Some(17..18)]);
    });
}
