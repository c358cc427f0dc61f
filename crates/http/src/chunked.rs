//! Chunked bodies (RFC 9112, section 7.1).

use crate::error::HttpError;
use crate::head;
use crate::limits::Limits;
use crate::request::Request;
use crate::stream::{Line, LineScan, Stream};

/// Longest line that holds a chunk's size and its extensions, with its end, bytes.
pub const CHUNK_LINE_BYTES_MAX: usize = 1024;

/// Most bytes of chunk extensions in one body: they are read for nothing.
pub const EXTENSION_BYTES_MAX: usize = 16 << 10;

/// Longest trailer section, bytes.
pub const TRAILER_BYTES_MAX: usize = 16 << 10;

/// Most chunks of one body: each costs the server a range.
pub const CHUNKS_MAX: usize = 1 << 20;

/// Where in a chunked body the parser is.
#[derive(Debug, Default)]
pub(crate) struct Chunked {
    lines: LineScan,
    extension_bytes: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default)]
enum Stage {
    /// At a line with a chunk's size.
    #[default]
    Size,
    /// At `len` bytes of a chunk.
    Data { len: usize },
    /// After the last chunk, in a trailer section that starts at `start`.
    Trailer { start: usize },
}

/// What one step has come to.
pub(crate) enum ChunkedStep {
    Again,
    /// More bytes are needed: so many from the start of the request.
    Want(usize),
    Done,
}

impl Chunked {
    /// What need not be read again, where everything before `pos` has been understood.
    pub(crate) fn understood(&self, pos: usize) -> usize {
        match self.stage {
            Stage::Trailer { start } => start,
            Stage::Size | Stage::Data { .. } => pos,
        }
    }

    /// Takes one step from `pos` on. One that fails is not taken: taken again, it fails again.
    pub(crate) fn step(
        &mut self,
        stream: &Stream<'_, '_>,
        pos: &mut usize,
        request: &mut Request,
        limits: &Limits,
    ) -> Result<ChunkedStep, HttpError> {
        match self.stage {
            Stage::Size => self.size(stream, pos, request, limits),
            Stage::Data { len } => self.data(stream, pos, request, len),
            Stage::Trailer { start } => self.trailer_line(stream, pos, start, limits),
        }
    }

    /// Reads `size [extensions] CRLF`.
    fn size(
        &mut self,
        stream: &Stream<'_, '_>,
        pos: &mut usize,
        request: &Request,
        limits: &Limits,
    ) -> Result<ChunkedStep, HttpError> {
        let end = match self.lines.line(stream, *pos, pos.saturating_add(CHUNK_LINE_BYTES_MAX)) {
            Line::Ends(end) => end,
            Line::Open => return Ok(ChunkedStep::Want(stream.len() + 1)),
            Line::TooLong => return Err(HttpError::bad("chunk extensions too large")),
            Line::BareLineFeed => return Err(HttpError::bad("line ends with LF alone")),
        };
        let (len, extension_bytes) = parse_size(&stream.gather(*pos..end))?;
        self.extension_bytes += extension_bytes;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(HttpError::bad("chunk extensions too large"));
        }
        let len = check_size(len, request, limits)?;
        *pos = end + 2;
        self.stage = match len {
            0 => Stage::Trailer { start: *pos },
            len => Stage::Data { len },
        };
        Ok(ChunkedStep::Again)
    }

    /// Takes the bytes of a chunk once they and the line end after them are there.
    fn data(
        &mut self,
        stream: &Stream<'_, '_>,
        pos: &mut usize,
        request: &mut Request,
        len: usize,
    ) -> Result<ChunkedStep, HttpError> {
        let end = pos.saturating_add(len);
        let next = end.saturating_add(2);
        if stream.len() < next {
            return Ok(ChunkedStep::Want(next));
        }
        if !stream.is_crlf(end) {
            return Err(HttpError::bad("chunk longer than its size"));
        }
        request.body.push(*pos..end);
        request.body_len += len;
        *pos = next;
        self.stage = Stage::Size;
        Ok(ChunkedStep::Again)
    }

    /// Reads a line of the trailer section, whose fields are checked and dropped.
    fn trailer_line(
        &mut self,
        stream: &Stream<'_, '_>,
        pos: &mut usize,
        start: usize,
        limits: &Limits,
    ) -> Result<ChunkedStep, HttpError> {
        let end = match self.lines.line(stream, *pos, start.saturating_add(TRAILER_BYTES_MAX)) {
            Line::Ends(end) => end,
            Line::Open => return Ok(ChunkedStep::Want(stream.len() + 1)),
            Line::TooLong => return Err(HttpError::new(431, "trailer fields too large")),
            Line::BareLineFeed => return Err(HttpError::bad("line ends with LF alone")),
        };
        let is_last = end == *pos;
        if is_last && end > start {
            head::check_fields(&stream.gather(start..end + 2), limits)?;
        }
        *pos = end + 2;
        Ok(if is_last { ChunkedStep::Done } else { ChunkedStep::Again })
    }
}

/// The size on a chunk's line, and how many bytes of extensions come after it.
fn parse_size(line: &[u8]) -> Result<(u64, usize), HttpError> {
    const DIGITS_MAX: usize = 16;
    let digits = line.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    if digits == 0 || digits > DIGITS_MAX {
        return Err(HttpError::bad("malformed chunk size"));
    }
    let (digits, extensions) = line.split_at(digits);
    let size = digits.iter().fold(0, |size, digit| size << 4 | u64::from(hex(*digit)));
    check_extensions(extensions)?;
    Ok((size, extensions.len()))
}

/// The value of a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// Extensions start with `;`, perhaps after blanks, and hold no control characters, bare CR among them.
fn check_extensions(extensions: &[u8]) -> Result<(), HttpError> {
    let is_control = |b: &u8| b.is_ascii_control() && *b != b'\t';
    let mut after_blanks = extensions.iter().skip_while(|b| matches!(b, b' ' | b'\t'));
    let starts_well = extensions.is_empty() || after_blanks.next() == Some(&b';');
    if starts_well && !extensions.iter().any(is_control) {
        return Ok(());
    }
    Err(HttpError::bad("malformed chunk extension"))
}

/// Holds a chunk, and the body that it would make, to the limits.
fn check_size(len: u64, request: &Request, limits: &Limits) -> Result<usize, HttpError> {
    let fits = |len: &usize| request.body_len.saturating_add(*len) <= limits.body_bytes_max;
    if len > 0 && request.body.len() == CHUNKS_MAX {
        return Err(HttpError::new(413, "body in too many chunks"));
    }
    usize::try_from(len).ok().filter(fits).ok_or(HttpError::new(413, "body too large"))
}
