//! A small JSON reader for what cargo and the landfall binary print (RFC 8259). It reads; it never writes.

use crate::error::Error;

/// Deepest nesting accepted; cargo's messages need fewer than ten.
const DEPTH_MAX: usize = 64;

/// A JSON value. Numbers keep their spelling, since they are only shown or parsed once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as it was spelt.
    Number(String),
    /// A string, escapes resolved.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object in the order of its members.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one value that fills `text` but for white space around it.
    ///
    /// # Errors
    /// [`Error::Json`] with the offset of the first byte that does not fit.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at == text.len() { Ok(value) } else { Err(reader.wrong("text after the value")) }
    }

    /// A member of an object.
    pub(crate) fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(n, _)| n == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The string behind a member, if it is one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Self::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The elements of a member that is a list; none otherwise.
    pub(crate) fn list(&self, name: &str) -> &[Self] {
        match self.get(name) {
            Some(Self::List(items)) => items,
            _ => &[],
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Json, Error> {
        if depth > DEPTH_MAX {
            return Err(self.wrong("nested too deep"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => Ok(self.number()),
            _ => self.word(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, Error> {
        let mut members = Vec::new();
        self.at += 1;
        while !self.closes(b'}', members.is_empty())? {
            self.space();
            let name = self.string()?;
            self.space();
            self.expect(b':', "colon expected")?;
            members.push((name, self.value(depth + 1)?));
        }
        Ok(Json::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<Json, Error> {
        let mut items = Vec::new();
        self.at += 1;
        while !self.closes(b']', items.is_empty())? {
            items.push(self.value(depth + 1)?);
        }
        Ok(Json::List(items))
    }

    /// Whether the list ends here; otherwise steps over the comma before the next element.
    fn closes(&mut self, end: u8, first: bool) -> Result<bool, Error> {
        self.space();
        if self.peek() == Some(end) {
            self.at += 1;
            return Ok(true);
        }
        if !first {
            self.expect(b',', "comma or end of list expected")?;
        }
        Ok(false)
    }

    fn string(&mut self) -> Result<String, Error> {
        self.expect(b'"', "string expected")?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(['"', '\\']).ok_or_else(|| self.wrong("string without end"))?;
            out.push_str(&rest[..plain]);
            self.at += plain + 1;
            if rest.as_bytes()[plain] == b'"' {
                return Ok(out);
            }
            out.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char, Error> {
        let letter = self.peek().ok_or_else(|| self.wrong("escape without end"))?;
        self.at += 1;
        Ok(match letter {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => char::from(letter),
            b'u' => return self.code_point(),
            _ => return Err(self.wrong("unknown escape")),
        })
    }

    /// `\uXXXX`, with surrogate pairs joined.
    fn code_point(&mut self) -> Result<char, Error> {
        let high = self.hex()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.wrong("lone surrogate"));
        }
        self.expect(b'\\', "second surrogate expected")?;
        self.expect(b'u', "second surrogate expected")?;
        let low = self.hex()?;
        let joined = 0x10000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff);
        char::from_u32(joined).ok_or_else(|| self.wrong("bad surrogate pair"))
    }

    fn hex(&mut self) -> Result<u32, Error> {
        let digits = self.text.get(self.at..self.at + 4).ok_or_else(|| self.wrong("four digits expected"))?;
        let value = u32::from_str_radix(digits, 16).map_err(|_| self.wrong("four digits expected"))?;
        self.at += 4;
        Ok(value)
    }

    fn number(&mut self) -> Json {
        let rest = &self.text[self.at..];
        let len = rest.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'));
        let spelt = &rest[..len.unwrap_or(rest.len())];
        self.at += spelt.len();
        Json::Number(spelt.to_owned())
    }

    fn word(&mut self) -> Result<Json, Error> {
        let rest = &self.text[self.at..];
        let known = [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))];
        for (spelt, value) in known {
            if rest.starts_with(spelt) {
                self.at += spelt.len();
                return Ok(value);
            }
        }
        Err(self.wrong("value expected"))
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), Error> {
        if self.peek() != Some(byte) {
            return Err(self.wrong(what));
        }
        self.at += 1;
        Ok(())
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, what: &'static str) -> Error {
        Error::Json { what, at: self.at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_read() {
        let json =
            Json::parse(r#" {"a": [1, -2.5e3, "x\n\u00e9\ud83d\ude00"], "b": {}, "c": null} "#).unwrap();
        let texts = [Json::Number("1".into()), Json::Number("-2.5e3".into()), Json::Text("x\né😀".into())];
        assert_eq!(json.list("a"), texts);
        assert_eq!(json.get("b"), Some(&Json::Object(Vec::new())));
        assert_eq!(json.get("c"), Some(&Json::Null));
        assert_eq!(json.text("b"), None);
    }

    #[test]
    fn broken_text_is_refused() {
        for text in ["", "{", "[1,]", "{\"a\" 1}", "\"\\q\"", "tru", "1 2", "[1 2]", "\"\\ud800\""] {
            assert!(Json::parse(text).is_err(), "{text}");
        }
        assert!(Json::parse(&"[".repeat(10_000)).is_err());
    }
}
