//! The codec of a device: which protocol requests are written in.

use crate::cache::codec::KeyRanges;
use crate::cache::{Effect, KeyCodec, PlainCodec, Query, RespCodec};
use std::ops::Range;

/// The protocol in which requests are written.
#[derive(Clone, Copy, Debug)]
pub enum Codec {
    /// Redis' protocol. With `keep_responses`, responses to reads fill the cache, which is correct only where no key
    /// expires.
    Resp {
        /// Whether responses to reads fill the cache.
        keep_responses: bool,
    },
    /// The protocol of the plain key-value handlers.
    Plain,
    /// Another application's protocol.
    Custom(&'static dyn KeyCodec),
}

impl Codec {
    fn inner(self) -> &'static dyn KeyCodec {
        match self {
            Self::Resp { keep_responses: true } => &RespCodec { keep_responses: true },
            Self::Resp { keep_responses: false } => &RespCodec { keep_responses: false },
            Self::Plain => &PlainCodec,
            Self::Custom(codec) => codec,
        }
    }
}

impl KeyCodec for Codec {
    fn update(&self, request: &[u8]) -> Effect {
        self.inner().update(request)
    }

    fn keys_of_start(&self, start: &[u8], total: usize) -> Option<KeyRanges> {
        self.inner().keys_of_start(start, total)
    }

    fn bypass(&self, request: &[u8]) -> Query {
        self.inner().bypass(request)
    }

    fn response_value(&self, key: &[u8], response: &[u8]) -> Option<Range<usize>> {
        self.inner().response_value(key, response)
    }

    fn render(&self, value: &[u8], into: &mut Vec<u8>) {
        self.inner().render(value, into);
    }
}
