//! Parses several commands of a pipeline before they are executed. While one command is executed, what the next ones
//! will read is fetched from memory.
//!
//! A SET of a random key waits for memory three times: for the index, for the record that it replaces, and for what
//! that record refers to. Each wait of a command must end before its next one can begin, but waits of different
//! commands can overlap.

use landfall_kv::{Engine, Need};
use landfall_media::{Chain, prefetch};
use landfall_resp::{Arg, Command, Parser, ProtocolError};

/// Commands that are parsed at once. What is fetched for them fits the first-level cache: three lines per command, and
/// about a dozen for a value.
const COMMANDS_MAX: usize = 16;
/// Longer keys are hashed only when the command is executed, bytes.
const KEY_BYTES_MAX: usize = 256;
/// Longer values are fetched only when they are read, bytes.
const VALUE_BYTES_MAX: usize = 4096;
/// A command of this many words probably reads the value of its key.
const READER_WORDS: usize = 2;

/// The next commands of the connection that a worker currently serves. The worker owns this: no connection keeps state
/// here from one turn to the next.
#[derive(Debug)]
pub(crate) struct Lookahead {
    commands: [Command; COMMANDS_MAX],
    /// Number of parsed commands, and index of the next one.
    parsed: usize,
    next: usize,
}

impl Default for Lookahead {
    fn default() -> Self {
        Self { commands: std::array::from_fn(|_| Command::default()), parsed: 0, next: 0 }
    }
}

impl Lookahead {
    /// Drops commands that were not executed: their bytes are still in the stream and are parsed again.
    pub(crate) fn forget(&mut self) {
        (self.parsed, self.next) = (0, 0);
    }

    /// The command at stream offset `from`, where the previous one ended; `None` if it is not complete.
    ///
    /// # Errors
    /// Errors of the parser.
    #[inline]
    pub(crate) fn next(
        &mut self,
        parser: &mut Parser,
        chain: &Chain<'_>,
        from: usize,
        engine: &Engine,
        space: u8,
    ) -> Result<Option<&Command>, ProtocolError> {
        if self.next == self.parsed {
            self.parse(parser, chain, from, engine, space);
        }
        if self.parsed == 0 {
            let is_whole = parser.next_into(chain, from, &mut self.commands[0])?;
            return Ok(is_whole.then_some(&self.commands[0]));
        }
        self.next += 1;
        if let Some(following) = self.commands[..self.parsed].get(self.next) {
            fetch_bytes(following, &self.commands[self.next - 1], chain);
        }
        Ok(Some(&self.commands[self.next - 1]))
    }

    /// Asks for the values that the commands behind the current one will read, where they have left memory: the device then has
    /// several reads to do.
    pub(crate) fn fetch_ahead(&self, chain: &Chain<'_>, engine: &Engine, space: u8, now_ms: u64) {
        let (mut chain, _) = match self.next.checked_sub(1).and_then(|now| self.commands.get(now)) {
            Some(now) => chain.skip_to(now.end),
            None => return,
        };
        for command in self.commands[..self.parsed].iter().skip(self.next) {
            if command.args.len() == READER_WORDS {
                engine.fetch(space, &command.args[1].bytes(&chain), now_ms);
            }
            (chain, _) = chain.skip_to(command.end);
        }
    }

    /// Parses the next commands, as many as are complete and usual. Each one is parsed in the rest of the chain that it
    /// will be executed with.
    fn parse(&mut self, parser: &Parser, chain: &Chain<'_>, from: usize, engine: &Engine, space: u8) {
        self.forget();
        let mut needs = [Need::default(); COMMANDS_MAX];
        let mut known = 0;
        let (mut chain, mut from) = (*chain, from);
        for command in &mut self.commands {
            if !parser.look_into(&chain, from, command) {
                break;
            }
            if let Some(need) = need_of(command, &chain, engine, space) {
                needs[known] = need;
                known += 1;
            }
            (chain, from) = chain.skip_to(command.end);
            self.parsed += 1;
        }
        if self.parsed > 1 {
            engine.prefetch(&needs[..known]);
        }
    }
}

/// The bytes of a command are not in a near cache, because the kernel has just written them.
#[inline]
fn fetch_bytes(command: &Command, before: &Command, chain: &Chain<'_>) {
    let (chain, _) = chain.skip_to(before.end);
    if let Some(range) = command.args.last().and_then(Arg::range)
        && range.len() <= VALUE_BYTES_MAX
        && let Some(bytes) = chain.first().get(range)
    {
        prefetch(bytes);
    }
}

/// Takes the first word after a command's name for a key; if it is none, this does no harm.
#[inline]
fn need_of(command: &Command, chain: &Chain<'_>, engine: &Engine, space: u8) -> Option<Need> {
    let range = command.args.get(1)?.range().filter(|range| range.len() <= KEY_BYTES_MAX)?;
    let hash = engine.heap().hash(space, chain.contiguous(range)?);
    Some(Need { hash, is_read: command.args.len() == READER_WORDS })
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall_heap::NewRegion;
    use landfall_media::sim::{SimMedia, SimOptions};
    use landfall_media::{RUN_SIZE, Segment};
    use landfall_resp::Limits;
    use proptest::prelude::*;

    fn engine() -> Engine {
        let media = SimMedia::new(32 * RUN_SIZE, SimOptions::default());
        landfall_heap::create(&*media, &NewRegion { salt: [7; 16], hash_seed: 1, created_ms: 1 }).unwrap();
        crate::store::recover(media, 2).unwrap().0
    }

    /// Usual commands, inline ones, empty ones, and invalid ones.
    fn stream() -> impl Strategy<Value = Vec<u8>> {
        let set = (0..300_usize).prop_map(|len| {
            let mut command = format!("*3\r\n$3\r\nSET\r\n$4\r\nk{len:03}\r\n${len}\r\n").into_bytes();
            command.extend(std::iter::repeat_n(b'v', len));
            command.extend_from_slice(b"\r\n");
            command
        });
        let piece = prop_oneof![
            8 => set,
            4 => Just(b"*2\r\n$3\r\nGET\r\n$4\r\nk001\r\n".to_vec()),
            1 => Just(b"*1\r\n$4\r\nPING\r\n".to_vec()),
            1 => Just(b"ping\r\n".to_vec()),
            1 => Just(b"*0\r\n\r\n".to_vec()),
            1 => Just(b"*1\r\n$x\r\n".to_vec()),
        ];
        prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
    }

    /// The words of each command, and the final result; `next` returns the commands.
    fn run(
        chain: Chain<'_>,
        mut next: impl FnMut(&Chain<'_>, usize) -> Result<Option<Command>, ProtocolError>,
    ) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
        let (mut chain, mut from, mut commands) = (chain, 0, Vec::new());
        loop {
            match next(&chain, from) {
                Ok(Some(command)) => {
                    commands.push(command.args.iter().map(|arg| arg.bytes(&chain).into_owned()).collect());
                    (chain, from) = chain.skip_to(command.end);
                }
                Ok(None) => return (commands, None),
                Err(error) => return (commands, Some(error)),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn commands_are_those_of_the_parser_however_they_are_cut(
            bytes in stream(),
            cut_off in any::<prop::sample::Index>(),
            pieces in 1..2000_usize,
        ) {
            let engine = engine();
            // A part arrives first, which ends within a command.
            for end in [cut_off.index(bytes.len() + 1), bytes.len()] {
                let segments: Vec<Segment<'_>> =
                    bytes[..end].chunks(pieces).map(|piece| Segment::new(0, piece)).collect();
                let (mut plain, mut parser) = (Parser::new(Limits::default()), Parser::new(Limits::default()));
                let mut lookahead = Lookahead::default();
                let want = run(Chain::new(&segments), |chain, from| plain.next(chain, from));
                let got = run(Chain::new(&segments), |chain, from| {
                    Ok(lookahead.next(&mut parser, chain, from, &engine, 0)?.cloned())
                });
                prop_assert_eq!(&got, &want);
                prop_assert_eq!(parser.bytes_wanted(), plain.bytes_wanted());
            }
        }
    }

    #[test]
    fn commands_that_were_not_executed_are_parsed_again() {
        let (engine, mut parser) = (engine(), Parser::new(Limits::default()));
        let mut lookahead = Lookahead::default();
        let bytes = b"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n";
        let segments = [Segment::new(0, bytes)];
        let chain = Chain::new(&segments);
        for _ in 0..2 {
            let command = lookahead.next(&mut parser, &chain, 0, &engine, 0).unwrap().unwrap();
            assert_eq!((command.args.len(), command.end), (1, 14));
            lookahead.forget();
        }
        assert_eq!(lookahead.next(&mut parser, &chain, 14, &engine, 0).unwrap().unwrap().args.len(), 2);
    }
}
