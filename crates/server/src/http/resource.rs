//! Maps paths below `/wal` to resources.

use super::answer::Refusal;
use super::params::number;
use landfall_http::decode_path;

/// A resource; names are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// `/wal`
    Logs,
    /// `/wal/{log}`
    Log(Vec<u8>),
    /// `/wal/{log}/{offset}`
    Entry(Vec<u8>, u64),
    /// `/wal/{log}/consumers`
    Consumers(Vec<u8>),
    /// `/wal/{log}/consumers/{name}`
    Consumer(Vec<u8>, Vec<u8>),
    /// `/wal/{log}/config`
    Config(Vec<u8>),
}

impl Resource {
    /// Finds the resource of a path as the client sent it; `None` if the path is not below `/wal`.
    pub(super) fn find(path: &[u8]) -> Result<Option<Self>, Refusal> {
        let below = match path {
            b"/wal" => return Ok(Some(Self::Logs)),
            _ => path.strip_prefix(b"/wal/"),
        };
        let Some(below) = below else { return Ok(None) };
        let parts: Vec<&[u8]> = below.split(|byte| *byte == b'/').collect();
        let decoded = |part: &[u8]| decode_path(part).map(std::borrow::Cow::into_owned);
        let log = decoded(parts[0])?;
        Ok(Some(match parts[1..] {
            [] => Self::Log(log),
            [b"consumers"] => Self::Consumers(log),
            [b"consumers", name] => Self::Consumer(log, decoded(name)?),
            [b"config"] => Self::Config(log),
            [offset] if number(offset).is_some() => Self::Entry(log, number(offset).unwrap_or_default()),
            _ => {
                return Err(Refusal::new(
                    404,
                    "below a log there are its offsets, consumers, consumers/{name} and config",
                ));
            }
        }))
    }

    /// The methods of the resource.
    pub(super) fn allow(&self) -> &'static str {
        match self {
            Self::Logs | Self::Entry(..) | Self::Consumers(_) => "GET, HEAD, OPTIONS",
            Self::Log(_) => "GET, HEAD, POST, DELETE, OPTIONS",
            Self::Consumer(..) => "GET, HEAD, PUT, DELETE, OPTIONS",
            Self::Config(_) => "GET, HEAD, PUT, OPTIONS",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_logs_and_what_is_below_them() {
        let log = b"a".to_vec();
        for (path, resource) in [
            ("/wal", Resource::Logs),
            ("/wal/a", Resource::Log(log.clone())),
            ("/wal/%61", Resource::Log(log.clone())),
            ("/wal/a/7", Resource::Entry(log.clone(), 7)),
            ("/wal/a/consumers", Resource::Consumers(log.clone())),
            ("/wal/a/consumers/x", Resource::Consumer(log.clone(), b"x".to_vec())),
            ("/wal/a/config", Resource::Config(log.clone())),
        ] {
            assert_eq!(Resource::find(path.as_bytes()).expect("found"), Some(resource), "{path}");
        }
        assert_eq!(Resource::find(b"/walx").expect("another"), None);
        for path in ["/wal/a/x", "/wal/a/-1", "/wal/a/consumers/x/y", "/wal/a/"] {
            assert_eq!(Resource::find(path.as_bytes()).expect_err("refused").status, 404, "{path}");
        }
    }
}
